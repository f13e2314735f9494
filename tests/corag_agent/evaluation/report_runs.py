"""Evaluation runs made up for tests of the report: scores drawn with known differences between methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from corag_agent.evaluation.records import SCHEMAS, SECONDS, EvaluationRun
from corag_agent.evaluation.report import contents_of, report_page

# Mean ROUGE-L and share of the budget, by method.
METHODS: Mapping[str, tuple[float, float]] = {
    "naive_rag": (0.48, 0.96),
    "best_single": (0.52, 0.31),
    "naive_matched": (0.53, 0.38),
    "greedy_climb": (0.55, 0.40),
    "mmr": (0.47, 0.96),
    "tree": (0.58, 0.39),
    "upper": (0.61, 0.39),
}
ORDERS: Mapping[str, tuple[float, float]] = {
    "order_reversed": (0.56, 0.39),
    "order_random": (0.57, 0.39),
    "order_document": (0.58, 0.39),
}
ALONE: Mapping[str, tuple[float, float]] = {"raptor": (0.46, 0.9), "hyde": (0.49, 0.95)}
AGENT = "agent"
AGENTS: Mapping[str, tuple[float, float]] = {
    AGENT: (0.6, 0.36),
    "agent_matched": (0.54, 0.35),
    "agent_climb": (0.56, 0.37),
}
OTHERS: Mapping[str, tuple[float, float]] = {"adagres": (0.48, 0.9), "beam": (0.57, 0.39)}
RERANKERS = ("bm25", "maxsim")
GAIN = {"bm25": 0.02, "cosine": -0.02, "maxsim": 0.0, "wordllama": -0.01}
UNTIMED = ("seconds_search", "seconds_generate")
DOMAINS = ("history", "biology", "law")
RESAMPLES = 200  # of intervals whose width no test is about


@dataclass(frozen=True)
class Experiment:
    """What one `run` of a made-up evaluation holds."""

    name: str = "main"
    methods: Sequence[str] = (*METHODS, *ALONE, *AGENTS)
    rerankers: Sequence[str] = RERANKERS
    chunk_sizes: Sequence[int] = (96,)
    budgets: Sequence[int] = (300,)
    variants: Sequence[str] = ("",)
    timed: bool = True
    data: Sequence[str] | None = None  # None for all
    limit: int | None = None


def made_run(
    sizes: Mapping[str, int],
    experiments: Sequence[Experiment] = (Experiment(),),
    seed: int = 0,
    passages: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> EvaluationRun:
    """A run over made-up data sets.

    Args:
        sizes: Number of questions, by data set.
        experiments: The runs in it.
        seed: Of the scores.
        passages: Texts of the chunks; made up without.
        settings: What run.json says beside the seed.
    """
    draw = np.random.default_rng(seed)
    texts = list(passages) or [
        f"Passage {number}: the tower number {number} is {number + 30} metres tall." for number in range(40)
    ]
    questions, records, answers, chunks = [], [], [], {}
    for dataset, size in sizes.items():
        for number in range(size):
            question = _question(dataset, number, texts)
            questions.append(question)
            level = draw.normal(0, 0.18)
            own = [one for one in experiments if one.data is None or dataset in one.data]
            own = [one for one in own if one.limit is None or number < one.limit]
            for record in _records(question, level, own, len(texts), draw):
                records.append(record)
                key = {name: record[name] for name in SCHEMAS["answers"].names if name != "answer"}
                answers.append({**key, "answer": f"It is {number + 30} metres, says {record['method']}."})
                for name in record["chunk_ids"]:
                    chunks[dataset, record["chunk_size"], name] = texts[int(name.split(":")[1])]
    rows = [
        dict(zip(("dataset", "chunk_size", "chunk_id"), key, strict=True), text=text, cost=len(text.split()))
        for key, text in chunks.items()
    ]
    frames = (records, questions, answers, rows)
    return EvaluationRun(*map(pd.DataFrame, frames), settings={"seed": seed, **(settings or {})})


def page_of(run: EvaluationRun, questions: int | None = None) -> str:
    """The page with few resamples."""
    return report_page(run, questions, contents_of(run, RESAMPLES))


def _question(dataset: str, number: int, texts: Sequence[str]) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "question_id": f"q{number:04d}",
        "domain": DOMAINS[number % len(DOMAINS)],
        "kind": "compound" if number % 4 == 3 else "plain",
        "language": "en",
        "split": "train" if number % 3 == 0 else "test",
        "question": f"How tall is the tower number {number}?",
        "reference": f"Tower {number} is {number + 30} metres tall.",
        "human_answers": [f"{number + 30} metres"] if number % 5 else [],
        "gold": [texts[number % len(texts)]],
        "documents": [f"d{number // 4}"],
    }


def _records(
    question: Mapping[str, Any], level: float, experiments: Sequence[Experiment], texts: int, draw: np.random.Generator
) -> Iterator[dict[str, Any]]:
    for experiment in experiments:
        for chunk_size in experiment.chunk_sizes:
            for budget in experiment.budgets:
                for method in experiment.methods:
                    single = method in ALONE or method in AGENTS
                    for reranker in ("",) if single else experiment.rerankers:
                        for variant in experiment.variants:
                            way = (experiment.name, chunk_size, budget, method, reranker, variant)
                            record = _record(question, level, way, texts, draw)
                            yield record if experiment.timed else {**record, **dict.fromkeys(UNTIMED, np.nan)}


def _record(
    question: Mapping[str, Any],
    level: float,
    way: tuple[str, int, int, str, str, str],
    texts: int,
    draw: np.random.Generator,
) -> dict[str, Any]:
    run, chunk_size, budget, method, reranker, variant = way
    mean, share = {**METHODS, **ORDERS, **ALONE, **AGENTS, **OTHERS}[method]
    rouge = float(np.clip(mean + GAIN.get(reranker, 0) + level + draw.normal(0, 0.12), 0, 1))
    tokens = int(np.clip(budget * share * draw.uniform(0.8, 1.04), 20, budget))
    count = max(1, min(5, tokens // chunk_size))
    order = [int(index) for index in draw.choice(20, count, replace=False)]
    seconds = [
        0.01,
        0.002,
        0.0005,
        0.06 if method in ("tree", "agent") else 0.4 if "upper" in method else 0.006,
        0.0003,
        0.3 + tokens / 300,
    ]
    spread = draw.uniform(0.8, 1.3, len(seconds))
    return {
        "run": run,
        "chunk_size": chunk_size,
        "budget": budget,
        "method": method,
        "reranker": reranker,
        "variant": variant,
        **{name: question[name] for name in ("dataset", "question_id", "domain", "kind", "language")},
        "settings": '{"iterations": 10, "exploration": 2.4}',
        "order": order,
        "chunk_ids": [f"d:{(index * 7 + hash_of(question)) % texts}" for index in order],
        "value": rouge,
        "objective": rouge - 0.1 * tokens / budget,
        "prompt_tokens": tokens,
        "answer_tokens": 20,
        "rouge1": min(1.0, rouge + 0.05),
        "rouge2": max(0.0, rouge - 0.1),
        "rougeL": rouge,
        "human_rougeL": rouge / 2 if question["human_answers"] else np.nan,
        "token_f1": rouge / 2 if question["human_answers"] else np.nan,
        "exact_match": float(rouge > 0.9) if question["human_answers"] else np.nan,
        "gold_recall": float(draw.random() < 0.7),
        "evaluations": 200 if method in ("tree", "agent") else 20,
        **dict(zip(SECONDS, (np.array(seconds) * spread).tolist(), strict=True)),
        "on_distribution": method not in AGENTS or (chunk_size == 96 and budget == 300),
        "error": "",
    }


def hash_of(question: Mapping[str, Any]) -> int:
    """A number that is the same on every machine."""
    return int(str(question["question_id"])[1:])
