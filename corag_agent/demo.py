"""The demo: corpus → index → label → train → export → evaluate → answer, in front of one's eyes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corag_agent.commands.answer import describe_answer
from corag_agent.evaluation.comparison import AGENT, MethodScores, compare, following
from corag_agent.evaluation.text_table import text_table
from corag_agent.evaluation.timing import selection_milliseconds
from corag_search.agent import ConfigurationAgent
from corag_search.pipeline import Corag
from corag_search.pipeline_config import PipelineConfig
from corag_search.shipped import find_checkpoint, shipped
from data_prep.corpus import build_store
from data_prep.dataset import Dataset, Question
from data_prep.demo_corpus import LABELS
from data_prep.label_job import JobOptions, run_label_job
from data_prep.readers import read_dataset
from data_prep.selection import choose_labels
from data_prep.table import LabelTable

LIVE_QUESTIONS = 8
LIVE_WORKERS = 2  # one searches while the other waits for its answers
SHIPPED_AGENT = "embedded"  # trained on real labels; it has seen nothing of the demo's corpus
CHINESE_QUESTION = "chinese-001"  # METHOD §7: photosynthesis and what its efficiency depends on


def run_demo(out: Path, config: PipelineConfig) -> None:
    """Run the chain and print what happens.

    Args:
        out: Directory of all that is made; earlier results of a demo in it are replaced.
        config: The pipeline's settings.

    Raises:
        InputError: The settings or a package cannot be used.
    """
    started = time.perf_counter()
    config = replace(config, store=str(out / "store"))
    dataset = read_dataset("demo")
    shipped_labels = LabelTable.read(LABELS)
    stages: dict[str, float] = {}

    with _stage(1, "index the corpus", stages):
        store = build_store(dataset, config)
        store.save(out / "store")
        _say(f"{len(dataset.documents)} documents → {len(store)} chunks of at most {config.chunk_size} tokens")
    live = live_questions(dataset, shipped_labels)
    with _stage(2, f"label {len(live)} of {len(dataset.questions)} questions live", stages):
        labelled = _label(dataset, live, config, shipped_labels, out)
        _say(agreement(labelled, shipped_labels))
    with _stage(3, "train the agent on the shipped label table", stages):
        checkpoint = _train(out)
        for what, which, count in choose_labels(shipped_labels).summary()[:5]:
            _say(f"{count} {what}{': ' if which else ''}{which}")
    with _stage(4, "export", stages):
        from corag_agent.export import export

        export(checkpoint, out / "agent")
        _say(f"{out / 'agent'}: model.safetensors, config.json, README.md")
    agent = ConfigurationAgent.load(out / "agent")
    corag = Corag.from_config(replace(config, agent=str(out / "agent")))
    with _stage(5, "evaluate on held-out questions", stages):
        held_out = shipped_labels.split("test")
        methods = _compare(shipped_labels, held_out, agent)
        milliseconds = selection_milliseconds(corag, [question.text for question in live], shipped_labels.grid.defaults)
    with _stage(6, "answer two questions", stages):
        answers = [corag.answer(question.text) for question in _asked(dataset, shipped_labels)]
        corag.generator.close()

    _say("")
    _say(_comparison_table(methods, milliseconds, len(held_out), len(live)))
    for answer in answers:
        _say(f"\n{answer.selected.query}\n{describe_answer(answer)}")
    seconds = ", ".join(f"{name} {spent:.0f}" for name, spent in stages.items())
    _say(f"\nseconds: {seconds}; {time.perf_counter() - started:.0f} in all")


def live_questions(dataset: Dataset, table: LabelTable) -> list[Question]:
    """One held-out question of each domain in turn, until there are enough: always the same ones."""
    held_out = set(table.questions["question_id"].iloc[table.split("test")])
    by_domain: dict[str, list[Question]] = {}
    for question in dataset.questions:
        if question.id in held_out:
            by_domain.setdefault(question.domain, []).append(question)
    rounds = max(map(len, by_domain.values()))
    ordered = [own[i] for i in range(rounds) for own in by_domain.values() if i < len(own)]
    return ordered[:LIVE_QUESTIONS]


def agreement(labelled: LabelTable, shipped_labels: LabelTable) -> str:
    """How the labels just made compare with the shipped ones, in a sentence or two."""
    ids = set(labelled.questions["question_id"])
    theirs = shipped_labels.scores[shipped_labels.scores["question_id"].isin(ids)].reset_index(drop=True)
    mine = labelled.scores
    equal_order = np.array([np.array_equal(a, b) for a, b in zip(mine["order"], theirs["order"], strict=True)])
    equal = equal_order & np.isclose(mine["value"], theirs["value"], atol=2e-6) & (mine["rougeL"] == theirs["rougeL"])
    labels_made, labels_shipped = _best_labels(labelled), _best_labels(shipped_labels)
    same_label = sum(labels_made[name] == labels_shipped[name] for name in ids)
    text = (
        f"{int(equal.sum()):,} of {len(mine):,} rows equal the shipped table's; "
        f"{same_label} of {len(ids)} questions have the same label"
    )
    if not equal.all():
        other = [key for key, value in shipped_labels.fingerprint.items() if labelled.fingerprint.get(key) != value]
        cause = f"made with other settings or versions ({', '.join(other)})" if other else "made on another processor"
        text += f"\n{int((~equal_order).sum())} rows chose other chunks; the shipped table was {cause}"
    return text


def _best_labels(table: LabelTable) -> dict[str, tuple]:
    best = choose_labels(table)
    settings = zip(best.reranker, best.exploration, best.cost_coefficient, best.iterations, strict=True)
    return dict(zip(best.question_ids, settings, strict=True))


def _label(
    dataset: Dataset, live: Sequence[Question], config: PipelineConfig, shipped_labels: LabelTable, out: Path
) -> LabelTable:
    """Label from nothing: earlier results of a demo in the same place would make it a show."""
    target = out / "labels.parquet"
    for name in ("parquet", "questions.parquet", "rivals.parquet", "ledger.jsonl", "answers.sqlite"):
        (out / f"labels.{name}").unlink(missing_ok=True)
    run = run_label_job(dataset, live, config, shipped_labels.grid, target, JobOptions(workers=LIVE_WORKERS))
    _say(f"{run.evaluations:,} evaluations, {run.answers} answers → {target}")
    return run.table


def _train(out: Path) -> Path:
    from corag_agent.training import training_cli

    folder = out / "training"
    settings = str(shipped("configs") / "train.yaml")
    training_cli(["fit", "--config", settings, "--data.labels", str(LABELS), "--output", str(folder)])
    return folder / "checkpoints" / "best.ckpt"


def _asked(dataset: Dataset, table: LabelTable) -> list[Question]:
    """A held-out question that needs several chunks, and the Chinese one of METHOD §7."""
    held_out = set(table.questions["question_id"].iloc[table.split("test")])
    first = next(q for q in dataset.questions if q.id in held_out and q.kind == "explanation" and q.language == "en")
    chinese = next(q for q in dataset.questions if q.id == CHINESE_QUESTION)
    return [first, chinese]


def _compare(table: LabelTable, held_out: NDArray[np.intp], agent: ConfigurationAgent) -> list[MethodScores]:
    """Everything that can be looked up, with the agent just trained and the shipped one."""
    methods = compare(table, held_out, agent)
    own = next(at for at, scores in enumerate(methods) if scores.method == AGENT)
    other = ConfigurationAgent.load(find_checkpoint(SHIPPED_AGENT))
    return [*methods[: own + 1], following(table, held_out, other, f"{AGENT} (shipped)"), *methods[own + 1 :]]


def _comparison_table(
    methods: Sequence[MethodScores], milliseconds: dict[tuple[str, str], float], questions: int, timed: int
) -> str:
    rows: list[list[str]] = []
    last = ""
    for scores in methods:
        if scores.method != last and last:
            rows.append([])
        last = scores.method
        spent = milliseconds.get((scores.method, scores.reranker))
        rows.append(
            [
                scores.method,
                scores.reranker or "–",
                f"{scores.rouge.mean():.3f}",
                f"{scores.tokens.mean():.0f}",
                "–" if spent is None else f"{spent:.0f}",
            ]
        )
    title = f"{questions} held-out questions, looked up in the label table; ms: {timed} questions live"
    return text_table(("method", "reranker", "ROUGE-L", "prompt tokens", "ms"), rows, title)


@contextmanager
def _stage(number: int, name: str, stages: dict[str, float]) -> Iterator[None]:
    _say(f"\n{number}  {name}")
    start = time.perf_counter()
    yield
    spent = time.perf_counter() - start
    stages[name.split()[0]] = spent
    _say(f"   {spent:.1f} s")


def _say(text: str) -> None:
    from corag_agent.cli import print_out

    print_out(text)
