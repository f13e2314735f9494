"""Training, search and labelling on a graphics card: seconds by precision. Ends within five minutes on one card.

    python benchmarks/gpu.py                        # all parts, on the first card
    python benchmarks/gpu.py train search --device cpu --small

Prints its tables as Markdown. A part whose packages are missing says so, and the others go on: `train` needs the extra
`train`, `search` also transformers, `label` the extra `local`. The table trained on is random numbers of the shape of
1,000 labelled questions, and the cross-encoder of `search` has bge-reranker-base's shape and random weights, so only
times mean anything; `label` runs the embedded models on real questions, its language model on the CPU.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from corag_search import Chunk, SearchConfig, load_reranker, search_policy_trees
from corag_search.rerankers.base import Reranker
from corag_search.shipped import shipped


@dataclass(frozen=True)
class Size:
    """How much is done.

    Attributes:
        questions: In the label table that is trained on.
        dimension: Of their embeddings.
        epochs: Of training.
        layers: Of the cross-encoder.
        width: Of its hidden states; heads are 64 wide.
        searches: Queries that are searched in lockstep.
        candidates: Chunks of each.
        labelled: Questions that are labelled.
    """

    questions: int = 1000
    dimension: int = 384
    epochs: int = 60
    layers: int = 12
    width: int = 768
    searches: int = 32
    candidates: int = 20
    labelled: int = 3


SMALL = Size(questions=60, epochs=2, layers=2, width=128, searches=2, candidates=6, labelled=1)
RERANKERS = ("bm25", "cosine", "maxsim", "wordllama")
CHUNK_WORDS, BUDGET = 40, 160


def train(size: Size, device: str) -> None:
    """Seconds of `corag fit`, by precision and with torch.compile."""
    from corag_agent.training import training_cli

    accelerator = "cpu" if device == "cpu" else "gpu"
    runs: list[tuple[str, str | None]] = [("32-true", None), ("bf16-mixed", None)]
    if accelerator == "gpu":
        runs += [("16-mixed", None), ("32-true", "inductor")]
    print_row(["precision", "compile", f"{size.epochs} epochs, s", "ms a step", "val/regret"])
    print_row(["---"] * 5)
    with tempfile.TemporaryDirectory() as folder:
        labels = write_random_table(Path(folder), size)
        for number, (precision, backend) in enumerate([runs[0], *runs]):
            given = ["--data.labels", labels, "--output", f"{folder}/{number}", "--trainer.accelerator", accelerator]
            given += ["--trainer.max_epochs", str(size.epochs), "--trainer.precision", precision]
            given += ["--trainer.enable_progress_bar", "false", "--trainer.callbacks", "[]", "--data.train_on", "all"]
            started = time.perf_counter()
            cli = training_cli(["fit", *given, *(["--compile", backend] if backend else [])])
            seconds = time.perf_counter() - started
            if number == 0:
                continue  # the first run of a process loads libraries
            step, regret = 1000 * seconds / cli.trainer.global_step, float(cli.trainer.callback_metrics["val/regret"])
            print_row([precision, backend or "–", f"{seconds:.1f}", f"{step:.2f}", f"{regret:.4f}"])


def write_random_table(folder: Path, size: Size) -> str:
    """A label table of random scores, in which the embedding tells a little of the best reranker."""
    import pandas as pd

    from data_prep.grid import LabelGrid
    from data_prep.table import LabelTable

    generator = np.random.default_rng(0)
    grid = LabelGrid(exploration=(0.0, 2.4), cost_coefficient=(0.0, 0.1), iterations=(5, 10))
    names = [f"q{index:05}" for index in range(size.questions)]
    embeddings = generator.normal(0, 0.05, (size.questions, size.dimension)).astype(np.float32)
    questions = pd.DataFrame(
        {
            "question_id": names,
            **{name: "any" for name in ("domain", "kind", "language")},
            "split": np.resize(["train"] * 8 + ["val", "test"], size.questions),
            "reference": None,
            "embedding": list(embeddings),
        }
    )
    axes = grid.to_dict() | {"iterations": list(grid.iterations)}
    keys = {"question_id": names, "reranker": RERANKERS, **axes}
    scores = pd.MultiIndex.from_product(keys.values(), names=keys).to_frame(index=False)
    better = np.repeat(embeddings[:, : len(RERANKERS)].ravel(), len(grid))
    rouge = np.clip(0.5 + 4 * better + generator.normal(0, 0.05, len(scores)), 0, 1)
    scores = scores.assign(order=[[0]] * len(scores), prompt_tokens=100, value=0.5, rouge1=rouge, rouge2=rouge)
    embedder = {"name": "random", "dimension": size.dimension, "fingerprint": "random"}
    fingerprint = {"embedder": embedder, "grid": grid.to_dict(), "rerankers": list(RERANKERS)}
    LabelTable(scores.assign(rougeL=rouge), questions, fingerprint).write(folder / "labels.parquet")
    return str(folder / "labels.parquet")


def search(size: Size, device: str) -> None:
    """Seconds of lockstep searches with a cross-encoder, by precision."""
    queries, candidates = random_candidates(size)
    config = SearchConfig(budget=BUDGET)
    print_row(["precision", f"{size.searches} searches, s", "evaluations", "evaluations a second", "peak GB"])
    print_row(["---"] * 5)
    with tempfile.TemporaryDirectory() as folder:
        path = random_cross_encoder(Path(folder), size, [chunk.text for own in candidates for chunk in own])
        for dtype in ("float32", "bfloat16") if device == "cpu" else ("float32", "float16", "bfloat16"):
            judge: Reranker = load_reranker("bge-reranker-base", path=str(path), dtype=dtype, devices=device)
            search_policy_trees(queries[:1], candidates[:1], judge, replace(config, iterations=1))  # warms up
            started = time.perf_counter()
            found = search_policy_trees(queries, candidates, judge, config)
            seconds = time.perf_counter() - started
            evaluations = sum(result.evaluations for result in found)
            speed = [f"{seconds:.2f}", f"{evaluations:,}", f"{evaluations / seconds:,.0f}"]
            print_row([dtype, *speed, f"{peak_gigabytes(device):.1f}"])


def random_candidates(size: Size) -> tuple[list[str], list[list[Chunk]]]:
    """Queries and their candidates, made of the words of the demo corpus."""
    from data_prep.readers import read_dataset

    words = " ".join(document.text for document in read_dataset("demo").documents).split()
    generator = np.random.default_rng(0)

    def some(count: int) -> str:
        at = generator.integers(len(words) - count)
        return " ".join(words[at : at + count])

    candidates = [
        [Chunk(f"{query}-{index}", some(CHUNK_WORDS), CHUNK_WORDS) for index in range(size.candidates)]
        for query in range(size.searches)
    ]
    return [some(12) for _ in range(size.searches)], candidates


def random_cross_encoder(folder: Path, size: Size, texts: Sequence[str]) -> Path:
    """XLM-RoBERTa with random weights, and a tokenizer trained on the texts."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaForSequenceClassification
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=4000, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = dict(zip(("bos", "pad", "eos", "unk", "mask"), special, strict=True)) | {"cls": "<s>", "sep": "</s>"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, **{f"{name}_token": text for name, text in names.items()}
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"num_hidden_layers": size.layers, "hidden_size": size.width, "intermediate_size": 4 * size.width}
    config = XLMRobertaConfig(
        vocab_size=len(fast), num_attention_heads=size.width // 64, max_position_embeddings=514, num_labels=1, **shape
    )
    XLMRobertaForSequenceClassification(config).save_pretrained(folder)
    return folder


def label(size: Size, device: str) -> None:
    """Seconds of labelling real questions with the embedded models."""
    from corag_search.pipeline_config import PipelineConfig
    from data_prep.grid import LabelGrid
    from data_prep.label_job import run_label_job
    from data_prep.readers import read_dataset

    dataset = read_dataset("demo")
    placed = {"device": device, "dtype": "float32" if device == "cpu" else "float16"}
    config = replace(
        PipelineConfig.from_file(shipped("configs") / "demo.yaml"),
        embedder={"name": "minilm", "device": device},
        rerankers={"bm25": {}, "cosine": placed, "maxsim": placed},
    )
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run = run_label_job(
            dataset, dataset.questions[: size.labelled], config, LabelGrid(), Path(folder) / "l.parquet"
        )
        seconds = time.perf_counter() - started
    print_row(["questions", "evaluations", "answers", "s, with the corpus indexed"])
    print_row(["---"] * 4)
    print_row([str(size.labelled), f"{run.evaluations:,}", str(run.answers), f"{seconds:.1f}"])


def peak_gigabytes(device: str) -> float:
    """Most memory of the device that tensors took so far; 0 on the CPU."""
    import torch

    return 0.0 if device == "cpu" else torch.cuda.max_memory_allocated(device) / 1e9


def print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


PARTS = {"train": train, "search": search, "label": label}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"among {', '.join(PARTS)}; all without")
    parser.add_argument("--device", default="cuda", help="as torch names it")
    parser.add_argument("--small", action="store_true", help="sizes that a CPU does in a minute")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"parts must be among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    logging.getLogger("corag_agent").setLevel(logging.ERROR)
    for name in arguments.parts:
        print(f"\n{name}\n", flush=True)
        started = time.perf_counter()
        try:
            PARTS[name](SMALL if arguments.small else Size(), arguments.device)
        except ImportError as error:
            print(f"not run: {error}")
        print(f"\n{time.perf_counter() - started:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
