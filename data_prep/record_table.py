"""From the records of a ledger to the label table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from corag_search.query_features import STATISTICS
from data_prep.dataset import Dataset, Question
from data_prep.grid import GridPoint, LabelGrid
from data_prep.scoring import LLM
from data_prep.table import METRICS, LabelTable


def has_features(record: Mapping[str, Any]) -> bool:
    """Whether a record has the features of this version."""
    return set(record.get("statistics", ())) == set(STATISTICS) and "chunk_mean" in record


def scoring_of(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """References and samples that labels of a fingerprint are made of."""
    return fingerprint.get("scoring", {"references": [LLM], "samples": 1})


def table_of(
    dataset: Dataset, records: Mapping[str, dict[str, Any]], splits: Mapping[str, str], fingerprint: dict[str, Any]
) -> LabelTable:
    """The label table of ledger records.

    Args:
        dataset: The questions'.
        records: By question id; all have features.
        splits: By question id.
        fingerprint: Of the scorer; the table's has the names of the statistics besides.
    """
    questions = [question for question in dataset.questions if question.id in records]
    rows: list[tuple] = []
    rival_rows: list[tuple] = []
    repeat_rows: list[tuple] = []
    points = [tuple(point) for point in LabelGrid.from_dict(fingerprint["grid"])]
    scoring = scoring_of(fingerprint)
    kinds = [(reference, sample) for reference in scoring["references"] for sample in range(scoring["samples"])]
    for question in questions:
        record = records[question.id]
        orders = {key: np.array(key.split(), np.int32) for key in record["scores"]}
        for reranker, outcomes in record["outcomes"].items():
            for point, (key, value) in zip(points, outcomes, strict=True):
                tokens, *rouge = record["scores"][key]
                rows.append((question.id, reranker, *point, orders[key], tokens, value, *rouge))
        for reranker, methods in record["rivals"].items():
            for method, (key, value) in methods.items():
                tokens, *rouge = record["scores"][key]
                rival_rows.append((question.id, method, reranker, orders[key], tokens, value, *rouge))
        for key, repeats in record.get("repeats", {}).items():
            for kind, rouge in zip(kinds, repeats, strict=True):
                repeat_rows.append((question.id, orders[key], *kind, *rouge))
    outcome = ["order", "prompt_tokens", "value", *METRICS]
    repeats = pd.DataFrame(repeat_rows, columns=["question_id", "order", "reference", "sample", *METRICS])
    return LabelTable(
        scores=pd.DataFrame(rows, columns=["question_id", "reranker", *GridPoint._fields, *outcome]),
        questions=_questions(dataset, questions, records, splits),
        rivals=pd.DataFrame(rival_rows, columns=["question_id", "method", "reranker", *outcome]),
        repeats=repeats if len(repeats) else None,
        fingerprint={**fingerprint, "statistics": list(STATISTICS)},
    )


def _questions(
    dataset: Dataset,
    questions: Sequence[Question],
    records: Mapping[str, dict[str, Any]],
    splits: Mapping[str, str],
) -> pd.DataFrame:
    own = [records[question.id] for question in questions]
    return pd.DataFrame(
        {
            "question_id": [question.id for question in questions],
            "domain": [question.domain for question in questions],
            "kind": [question.kind for question in questions],
            "language": [question.language for question in questions],
            "split": [splits[question.id] for question in questions],
            "reference": [record["reference"] for record in own],
            "embedding": [np.array(record["embedding"], np.float32) for record in own],
            "documents": list(map(list, gold_documents(dataset, questions))),
            "statistics": [np.array([record["statistics"][name] for name in STATISTICS], np.float32) for record in own],
            "chunk_mean": [np.array(record["chunk_mean"], np.float32) for record in own],
            "candidates": [record["candidates"] for record in own],
        }
    )


def gold_documents(dataset: Dataset, questions: Iterable[Question]) -> list[tuple[str, ...]]:
    """Of each question the documents of its gold passages, each once, as `document_names` has them."""
    names = document_names(dataset)
    return [tuple(dict.fromkeys(names[gold.document] for gold in question.gold_passages)) for question in questions]


def document_names(dataset: Dataset) -> dict[str, str]:
    """What documents are called beyond their data set, by id: equal names are one document, be it in two languages.

    The title, where no other document of the data set has it; else the data set's name and the id.
    """
    titles = Counter(document.title for document in dataset.documents if document.title)
    return {
        document.id: document.title if titles[document.title] == 1 else f"{dataset.name}/{document.id}"
        for document in dataset.documents
    }
