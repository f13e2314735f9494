"""The figures behind the search: quality per evaluation, expansion by a prior, bookkeeping, lockstep.

    python benchmarks/search.py sets xquad.en.dev.json covidqa.dev.json --plot benchmarks/search.svg
    python benchmarks/search.py orders xquad.en.dev.json covidqa.dev.json --scores runs/orders
    python benchmarks/search.py prior xquad.en.dev.json covidqa.dev.json
    python benchmarks/search.py overhead

Each prints its tables as Markdown. The data are files in SQuAD layout.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from corag_search import (
    Chunk,
    SearchConfig,
    SearchResult,
    load_embedder,
    load_reranker,
    search_policy_tree,
    search_policy_trees,
)
from corag_search.baselines import beam, best_single, greedy_climb
from corag_search.pipeline_config import PipelineConfig
from corag_search.policy_tree.problem import token_lengths
from corag_search.rerankers import Reranker
from corag_search.token_vectors import TokenVectors
from data_prep.corpus import build_store
from data_prep.readers import read_dataset

BUDGET, MAX_CHUNKS, COST_COEFFICIENT = 512, 5, 0.1
RULES = {
    "uct, c = 2.4 (the paper's)": {"selection": "uct", "exploration": 2.4},
    "uct, c = 0.5": {"selection": "uct", "exploration": 0.5},
    "uct, c = 0.1": {"selection": "uct", "exploration": 0.1},
    "uct, c = 0": {"selection": "uct", "exploration": 0.0},
    "scaled, c = 1": {"selection": "scaled", "exploration": 1.0},
    "scaled, c = 0.5": {"selection": "scaled", "exploration": 0.5},
    "scaled, c = 0.2 (default)": {"selection": "scaled", "exploration": 0.2},
    "scaled, c = 0.1": {"selection": "scaled", "exploration": 0.1},
    "scaled, c = 0": {"selection": "scaled", "exploration": 0.0},
}
Order = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A question with its candidates, every combination's score, and the optimum.

    Attributes:
        query: The question.
        candidates: Retrieved chunks, best first.
        scores: Benefit of each combination; sets are keyed by their sorted members.
        ordered: Whether permutations differ.
        reranker: What gave the scores.
        optimum: Greatest objective.
        best_single: Greatest objective of one chunk.
        several: Whether the optimum has two chunks or more.
    """

    query: str
    candidates: list[Chunk]
    scores: dict[Order, float]
    ordered: bool
    reranker: Reranker
    optimum: float
    best_single: float
    several: bool


class Looked:
    """A reranker that looks its scores up, with the limit of the one that made them."""

    name = "table"

    def __init__(self, problem: Problem) -> None:
        self.order_sensitive = problem.ordered
        self.max_tokens = problem.reranker.max_tokens
        self.count_tokens = getattr(problem.reranker, "count_tokens", None)
        self._scores = problem.scores

    def open(self, query: str, candidates: Sequence[Chunk]) -> Looked:
        return self

    def score(self, orders, combinations=None):  # type: ignore[no-untyped-def]
        """As a session: orders of indices."""
        return np.array([self._scores[o if self.order_sensitive else tuple(sorted(o))] for o in orders])


def retrieved(source: str, count: int, k: int) -> Iterator[tuple[str, list[Chunk]]]:
    """The first of a sample of a data set's questions, each with its k nearest chunks of 96 tokens."""
    dataset = read_dataset(f"squad:{source}")
    embedder = load_embedder("minilm")
    store = build_store(dataset, PipelineConfig(chunk_size=96), embedder)
    for question in dataset.select(max(count, 40), 0).questions[:count]:
        yield question.text, store.search(embedder.encode([question.text])[0], k)


def combinations_of(candidates: Sequence[Chunk], ordered: bool) -> list[Order]:
    """Every affordable combination of up to five chunks."""
    choose: Callable = itertools.permutations if ordered else itertools.combinations
    every = (o for length in range(1, MAX_CHUNKS + 1) for o in choose(range(len(candidates)), length))
    return [order for order in every if sum(candidates[i].cost for i in order) <= BUDGET]


def problem_of(query: str, candidates: list[Chunk], scores: dict[Order, float], reranker: Reranker) -> Problem:
    worth = {
        order: score - COST_COEFFICIENT * sum(candidates[i].cost for i in order) / BUDGET
        for order, score in scores.items()
    }
    best = max(worth, key=worth.__getitem__)
    single = max(worth[order] for order in worth if len(order) == 1)
    return Problem(query, candidates, scores, reranker.order_sensitive, reranker, worth[best], single, len(best) > 1)


def readable(query: str, candidates: list[Chunk], scores: dict[Order, float], reranker: Reranker) -> dict[Order, float]:
    """Without the combinations that the reranker cannot read whole, which no search makes."""
    lengths, limit = token_lengths(query, candidates, reranker)
    assert lengths is not None
    return {o: score for o, score in scores.items() if len(o) == 1 or sum(lengths[i] for i in o) <= limit}


@dataclass(frozen=True)
class Quality:
    """What a method reaches over some problems.

    Attributes:
        evaluations: Distinct combinations that were scored, each problem.
        share: Of the optimum's objective, each problem.
        gain: Share of the optimum's lead over the best single chunk, each problem whose optimum has several chunks.
    """

    evaluations: list[int]
    share: list[float]
    gain: list[float]

    def cells(self) -> list[str]:
        return [
            f"{statistics.mean(self.evaluations):.0f}",
            f"{max(self.evaluations)}",
            f"{100 * statistics.mean(self.share):.2f}",
            f"{100 * min(self.share):.1f}",
            f"{100 * statistics.mean(self.gain):.1f}" if self.gain else "–",
        ]

    def __add__(self, other: Quality) -> Quality:
        return Quality(self.evaluations + other.evaluations, self.share + other.share, self.gain + other.gain)


def quality(problems: Sequence[Problem], search: Callable[[Problem], SearchResult]) -> Quality:
    found = Quality([], [], [])
    for problem in problems:
        result = search(problem)
        lead = problem.optimum - problem.best_single
        gain = [(result.objective - problem.best_single) / lead] if problem.several else []
        found += Quality([result.evaluations], [result.objective / problem.optimum], gain)
    return found


Table = dict[tuple[str, int], Quality]  # by method and iterations or width


def quality_table(problems: Sequence[Problem], iterations: Sequence[int]) -> Table:
    base = SearchConfig(budget=BUDGET, cost_coefficient=COST_COEFFICIENT, max_chunks=MAX_CHUNKS)
    table: Table = {}

    def measure(name: str, number: int, method: Callable, **options: object) -> None:
        table[name, number] = quality(problems, lambda p: method(p.query, p.candidates, Looked(p), **options))

    for name, settings in RULES.items():
        for count in iterations:
            config = replace(base, iterations=count, **settings)  # type: ignore[arg-type]
            measure(name, count, search_policy_tree, config=config)
    measure("best single chunk", 0, best_single, config=base)
    measure("greedy climb", 0, greedy_climb, config=base)
    for width in (1, 2, 4, 6):
        measure("beam search", width, beam, config=base, width=width)
    print_table(table)
    return table


def print_table(table: Table) -> None:
    print_row(["method", "iterations, width", "evaluations", "most", "% of optimum", "least", "% of gain"])
    print_row(["---"] * 7)
    for (name, number), found in table.items():
        print_row([name, str(number or ""), *found.cells()])


def sets(sources: Sequence[str], count: int, plot: Path | None) -> None:
    """Rerankers that ignore order, 20 candidates: up to 21,699 sets."""
    pooled: Table = {}
    for source in sources:
        questions = list(retrieved(source, count, 20))
        for name in ("bm25", "maxsim", "wordllama"):
            reranker = load_reranker(name)
            problems = []
            for query, candidates in questions:
                every = combinations_of(candidates, ordered=False)
                scores = reranker.open(query, candidates).score(every)  # type: ignore[attr-defined]
                problems.append(problem_of(query, candidates, dict(zip(every, scores.tolist(), strict=True)), reranker))
            several = sum(problem.several for problem in problems)
            print(f"\n{Path(source).stem}, {name}: {count} questions, the optimum has several chunks in {several}\n")
            for key, found in quality_table(problems, (3, 5, 10, 15, 20)).items():
                pooled[key] = pooled[key] + found if key in pooled else found
    print("\nAll of them together\n")
    print_table(pooled)
    if plot is not None:
        draw(pooled, plot)


def draw(table: Table, path: Path) -> None:
    """Mean share of the optimum against mean evaluations, a line a method."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    styles = {"uct": "--", "scaled": "-"}
    for name in dict.fromkeys(name for name, _ in table if name != "best single chunk"):
        rows = [found for (own, _), found in table.items() if own == name]
        x = [statistics.mean(found.evaluations) for found in rows]
        y = [100 * statistics.mean(found.share) for found in rows]
        axes.plot(x, y, styles.get(name.split(",")[0], ":"), marker="o", markersize=4, label=name)
    axes.set(xlabel="combinations scored, mean", ylabel="% of the optimal objective, mean", xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path)


def orders(sources: Sequence[str], count: int, folder: Path) -> None:
    """The order-sensitive reranker `cosine`, 8 candidates: up to 8,800 orders. Scores are kept in `folder`."""
    reranker = load_reranker("cosine", dtype="bfloat16")
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        problems = []
        for number, (query, candidates) in enumerate(retrieved(source, count, 8)):
            every = combinations_of(candidates, ordered=True)
            file = folder / f"{Path(source).stem}.{number}.npy"
            if not file.exists():
                parts = [every[i : i + 512] for i in range(0, len(every), 512)]
                scored = [reranker.score(query, [[candidates[i] for i in order] for order in part]) for part in parts]
                np.save(file, np.concatenate(scored))
            scores = dict(zip(every, np.load(file).tolist(), strict=True))
            problems.append(problem_of(query, candidates, readable(query, candidates, scores, reranker), reranker))
        several = sum(problem.several for problem in problems)
        print(f"\n{Path(source).stem}, cosine: {count} questions, the optimum has several chunks in {several}\n")
        quality_table(problems, (5, 10, 13))


def overhead() -> None:
    """Processor time of the tree alone, per evaluated combination: 60 candidates, 50 iterations."""

    class Free:
        """Scores from a generator; its own time is taken off."""

        name = "free"
        max_tokens = None

        def __init__(self, ordered: bool) -> None:
            self.order_sensitive = ordered
            self.seconds = 0.0
            self._generator = np.random.default_rng(0)

        def open(self, query: str, candidates: Sequence[Chunk]) -> Free:
            return self

        def score(self, orders, combinations=None):  # type: ignore[no-untyped-def]
            start = time.process_time()
            scores = self._generator.random(len(orders))
            self.seconds += time.process_time() - start
            return scores

    candidates = [Chunk(str(i), f"text {i}", 90 + i % 7) for i in range(60)]
    print_row(["reranker", "rule", "evaluations", "µs per evaluation, median of 25", "least"])
    print_row(["---"] * 5)
    for ordered in (True, False):
        for name in ("uct, c = 2.4 (the paper's)", "scaled, c = 0.2 (default)", "scaled, c = 0"):
            config = SearchConfig(iterations=50, budget=BUDGET, **RULES[name])  # type: ignore[arg-type]
            spent = []
            for _ in range(25):
                reranker = Free(ordered)
                start = time.process_time()
                result = search_policy_tree("q", candidates, reranker, config)
                spent.append((time.process_time() - start - reranker.seconds) / result.evaluations * 1e6)
            kind = "order matters" if ordered else "sets"
            print_row([kind, name, str(result.evaluations), f"{statistics.median(spent):.2f}", f"{min(spent):.2f}"])
    lockstep()


def lockstep() -> None:
    """Batches that 16 searches need, one by one and together."""

    class Counting:
        name = "counting"
        order_sensitive = True
        max_tokens = None
        calls = 0

        def score(self, query, combinations):  # type: ignore[no-untyped-def]
            return self.score_pairs([query] * len(combinations), combinations)

        def score_pairs(self, queries, combinations):  # type: ignore[no-untyped-def]
            self.calls += 1
            return [hash((q, *(c.id for c in own))) % 97 / 97 for q, own in zip(queries, combinations, strict=True)]

    candidates = [Chunk(str(i), f"text {i}", 90) for i in range(20)]
    queries = [f"question {i}" for i in range(16)]
    together, alone = Counting(), Counting()
    config = SearchConfig(iterations=15, budget=BUDGET)
    results = search_policy_trees(queries, [candidates] * 16, together, config)
    same = results == [search_policy_tree(query, candidates, alone, config) for query in queries]
    print(
        f"\n16 searches of 15 iterations: {together.calls} batches in lockstep, {alone.calls} one by one; equal: {same}"
    )


PRIOR_SETTINGS = {  # iterations, root_width, expansion_width
    20: [(10, 20, 10), (10, 20, 4), (4, 12, 4), (3, 10, 4), (2, 10, 8)],
    60: [(10, 60, 20), (10, 60, 8), (4, 16, 6), (3, 12, 8), (2, 16, 16)],
}


def prior(sources: Sequence[str], count: int) -> None:
    """A costly reranker that scores only what a cheap one ranks first: late interaction over stored token vectors."""
    costly = load_reranker("cosine", dtype="bfloat16")
    full = SearchConfig(budget=BUDGET, cost_coefficient=COST_COEFFICIENT, max_chunks=MAX_CHUNKS)
    for k, narrowed in PRIOR_SETTINGS.items():
        questions = [one for source in sources for one in retrieved(source, count, k)]
        with tempfile.TemporaryDirectory() as folder:
            cheap = stored_maxsim(Path(folder), [chunk for _, own in questions for chunk in own])
            costly.score(*_singles(questions[0]))  # models are loaded before the clock starts
            naive = [_seconds(costly.score, *_singles(question))[0] for question in questions]
            reference = [_seconds(search_policy_tree, query, own, costly, full) for query, own in questions]
            climb = [_seconds(greedy_climb, query, own, costly, full) for query, own in questions]
            print(f"\n{k} candidates, {len(questions)} questions; reranking all of them takes {np.mean(naive):.2f} s\n")
            print_row(["iterations", "root", "width", "evaluations", "time / reranking all", "% of full objective"])
            print_row(["---"] * 6)
            _prior_row(["10", "all", "all"], reference, naive, reference)
            _prior_row(["greedy climb", "all", "all"], climb, naive, reference)
            for iterations, root, width in narrowed:
                config = replace(full, iterations=iterations, root_width=root, expansion_width=width)
                found = [
                    _seconds(search_policy_tree, query, own, costly, config, prior=cheap) for query, own in questions
                ]
                _prior_row([str(iterations), str(root), str(width)], found, naive, reference)
            if k == max(PRIOR_SETTINGS):
                base_shape(Path(folder), questions[:2], cheap, narrowed)


def base_shape(folder: Path, questions: list, cheap: Reranker, narrowed: Sequence[tuple[int, int, int]]) -> None:
    """Times with a cross-encoder of bge-reranker-base's shape; its weights are random, so only times mean anything."""
    costly = load_reranker("bge-reranker-base", path=str(random_checkpoint(folder, questions)), dtype="bfloat16")
    costly.score(*_singles(questions[0]))
    naive = [_seconds(costly.score, *_singles(question))[0] for question in questions]
    print(f"\nCross-encoder of 12 layers, 768 wide: reranking all candidates takes {np.mean(naive):.1f} s\n")
    print_row(["iterations", "root", "width", "evaluations", "time / reranking all"])
    print_row(["---"] * 5)
    for iterations, root, width in narrowed:
        config = SearchConfig(budget=BUDGET, iterations=iterations, root_width=root, expansion_width=width)
        found = [_seconds(search_policy_tree, query, own, costly, config, prior=cheap) for query, own in questions]
        ratio = sum(seconds for seconds, _ in found) / sum(naive)
        evaluations = statistics.mean(result.evaluations for _, result in found)
        print_row([str(iterations), str(root), str(width), f"{evaluations:.0f}", f"{ratio:.2f}"])


def random_checkpoint(folder: Path, questions: list) -> Path:
    """XLM-RoBERTa's base shape with random weights, and a tokenizer trained on the questions' chunks."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaForSequenceClassification

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=4000, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator([chunk.text for _, own in questions for chunk in own], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = dict(zip(("bos", "pad", "eos", "unk", "mask"), special, strict=True)) | {"cls": "<s>", "sep": "</s>"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, **{f"{name}_token": text for name, text in names.items()}
    )
    path = folder / "base"
    fast.save_pretrained(path)
    torch.manual_seed(0)
    config = XLMRobertaConfig(vocab_size=len(fast), max_position_embeddings=514, num_labels=1)
    XLMRobertaForSequenceClassification(config).save_pretrained(path)
    return path


def stored_maxsim(folder: Path, chunks: Sequence[Chunk]) -> Reranker:
    """Late interaction over token vectors that lie on disk."""
    TokenVectors.build(folder / "tokens", list({chunk.id: chunk for chunk in chunks}.values()), load_embedder("minilm"))
    return load_reranker("maxsim", token_vectors=str(folder / "tokens"))


def _singles(question: tuple[str, list[Chunk]]) -> tuple[str, list[list[Chunk]]]:
    query, candidates = question
    return query, [[chunk] for chunk in candidates]


def _prior_row(settings: list[str], found: list, naive: list[float], reference: list) -> None:
    share = [result.objective / best.objective for (_, result), (_, best) in zip(found, reference, strict=True)]
    evaluations = statistics.mean(result.evaluations for _, result in found)
    ratio = sum(seconds for seconds, _ in found) / sum(naive)
    print_row([*settings, f"{evaluations:.0f}", f"{ratio:.2f}", f"{100 * statistics.mean(share):.2f}"])


def _seconds(work: Callable, *given: object, **named: object) -> tuple:
    start = time.process_time()
    result = work(*given, **named)
    return time.process_time() - start, result


def print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("sets", "orders", "prior", "overhead"))
    parser.add_argument("sources", nargs="*", help="data sets in SQuAD layout")
    parser.add_argument("--questions", type=int, default=None, help="of each data set")
    parser.add_argument("--scores", type=Path, default=Path("runs/orders"), help="where `orders` keeps its scores")
    parser.add_argument("--plot", type=Path, default=None, help="draw what `sets` found into this file")
    arguments = parser.parse_args()
    if arguments.part == "overhead":
        overhead()
    elif not arguments.sources:
        parser.error(f"{arguments.part} needs data sets")
    elif arguments.part == "sets":
        sets(arguments.sources, arguments.questions or 60, arguments.plot)
    elif arguments.part == "orders":
        orders(arguments.sources, arguments.questions or 3, arguments.scores)
    else:
        prior(arguments.sources, arguments.questions or 10)


if __name__ == "__main__":
    main()
