"""What the page's question browser reads: questions, records, chunks and answers, each text once."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pandas as pd

from corag_agent.evaluation.records import KEY, QUESTION, EvaluationRun
from corag_agent.evaluation.report.cells import in_method_order
from corag_agent.evaluation.report.main_setting import Settings
from corag_agent.evaluation.report.wording import method_name

SCORES = ("rougeL", "human_rougeL", "token_f1", "gold_recall")
_DIGITS = 3
_SHARED = 24  # characters that a chunk and a gold passage share at least, where one reaches over the other's edge


class Numbers:
    """Values, and the number of each by its first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def of(self, value: Hashable) -> int:
        """The value's number."""
        return self._numbers.setdefault(value, len(self._numbers))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._numbers)


def has_texts(run: EvaluationRun) -> bool:
    """Whether it was published with its texts."""
    return bool(run.questions["question"].str.strip().any())


def chosen_questions(run: EvaluationRun, limit: int | None) -> pd.DataFrame:
    """The questions to show: all, or so many, spread evenly over the run's."""
    count = len(run.questions)
    if limit is None or limit >= count:
        return run.questions
    return run.questions.iloc[[place * count // limit for place in range(limit)]]


def browser_data(run: EvaluationRun, limit: int | None = None) -> str:
    """The browser's data as JSON in which nothing can end a script element.

    Args:
        run: With texts.
        limit: Questions at most; None for all.
    """
    questions = chosen_questions(run, limit)
    places = questions[QUESTION].assign(place=range(len(questions)))
    rows = run.records.merge(places, on=QUESTION).merge(run.answers, on=list(KEY), how="left")
    numbers = {name: Numbers() for name in ("settings", "ways", "chunks", "texts", "answers")}
    for way in in_method_order(rows)[["method", "reranker", "variant"]].itertuples(index=False, name=None):
        numbers["ways"].of(way)
    records = _records(rows.fillna({"answer": ""}), numbers)
    chunks = _chunks(run, numbers)
    gold = _gold(records, questions, chunks, numbers["texts"])
    values = {
        "questions": [_question(row) for row in questions.to_dict("records")],
        "records": records,
        "settings": list(numbers["settings"]),
        "start": _start(run, numbers["settings"]),
        "ways": [[method_name(way[0]), *way] for way in numbers["ways"]],
        "chunks": chunks,
        "gold": gold,
        "texts": list(numbers["texts"]),
        "answers": list(numbers["answers"]),
    }
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _start(run: EvaluationRun, settings: Numbers) -> int:
    """The setting to be shown first: that of the most questions; the first one where no shown question has that."""
    known = list(settings)
    for dataset in sorted(run.records["dataset"].unique()):
        rows = Settings(run, dataset).first_with()
        if rows is not None:
            wanted = tuple(rows[["run", "chunk_size", "budget"]].iloc[0])
            return known.index(wanted) if wanted in known else 0
    return 0


def _question(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    names = ("dataset", "question_id", "domain", "kind", "question", "reference")
    return {name: row[name] for name in names} | {name: list(row[name]) for name in ("human_answers", "gold")}


def _records(rows: pd.DataFrame, numbers: Mapping[str, Numbers]) -> dict[str, list[Any]]:
    """Column by column; settings, ways, chunks and answers by their numbers."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("question", "setting", "way", "answer", "chunks", "tokens", "error", *SCORES)
    }
    for row in rows.to_dict("records"):
        setting = (row["run"], row["chunk_size"], row["budget"])
        chunks = [numbers["chunks"].of((row["dataset"], row["chunk_size"], name)) for name in row["chunk_ids"]]
        columns["question"].append(row["place"])
        columns["setting"].append(numbers["settings"].of(setting))
        columns["way"].append(numbers["ways"].of((row["method"], row["reranker"], row["variant"])))
        columns["answer"].append(numbers["answers"].of(row["answer"]))
        columns["chunks"].append(chunks)
        columns["tokens"].append(row["prompt_tokens"])
        columns["error"].append(row["error"] or 0)
        for name in SCORES:
            columns[name].append(None if row["error"] else _score(row[name]))
    return columns


def _score(value: float) -> float | None:
    return round(value, _DIGITS) if math.isfinite(value) else None


def _chunks(run: EvaluationRun, numbers: Mapping[str, Numbers]) -> list[list[Any]]:
    """Of each chunk that a record names: its id, the number of its text, and its cost in tokens."""
    columns = ["dataset", "chunk_size", "chunk_id", "text", "cost"]
    known = {
        (dataset, size, name): [name, text, cost]
        for dataset, size, name, text, cost in run.chunks[columns].itertuples(index=False, name=None)
    }
    chunks = [known[key] for key in numbers["chunks"]]
    return [[name, numbers["texts"].of(text), cost] for name, text, cost in chunks]


def _gold(
    records: Mapping[str, list[Any]], questions: pd.DataFrame, chunks: list[list[Any]], texts: Numbers
) -> list[list[int]]:
    """Of each question the chosen chunks that hold a part of a gold passage, by their numbers."""
    used: list[set[int]] = [set() for _ in range(len(questions))]
    for question, chosen in zip(records["question"], records["chunks"], strict=True):
        used[question].update(chosen)
    written = [" ".join(text.split()) for text in texts]
    passages = [[" ".join(passage.split()) for passage in gold] for gold in questions["gold"]]
    return [
        sorted(number for number in chosen if any(overlaps(written[chunks[number][1]], passage) for passage in gold))
        for chosen, gold in zip(used, passages, strict=True)
    ]


def overlaps(chunk: str, passage: str) -> bool:
    """Whether a chunk and a gold passage share text: one holds the other, or reaches over its edge.

    Example:
        >>> overlaps("The tower is 330 metres tall. It was built", "was built in 1889 of iron")
        False
        >>> overlaps("The tower is 330 metres tall. It was built in", "It is old. The tower is 330 metres tall.")
        True
    """
    if not chunk or not passage:
        return False
    if chunk in passage or passage in chunk:
        return True
    return _reaches_over(chunk, passage) or _reaches_over(passage, chunk)


def _reaches_over(one: str, other: str) -> bool:
    """Whether one text ends with how the other begins."""
    start = one.find(other[:_SHARED])
    return start >= 0 and len(one) - start >= _SHARED and other.startswith(one[start:])
