"""Small label tables whose right answers are known, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from corag_search.query_features import STATISTICS
from data_prep.grid import LabelGrid
from data_prep.table import LabelTable

GRID = LabelGrid(exploration=(0.0, 2.4), cost_coefficient=(0.0, 0.1), iterations=(5, 10))
RERANKERS = ("alpha", "beta", "gamma")


def fingerprint(grid: LabelGrid = GRID, rerankers: tuple[str, ...] = RERANKERS, dimension: int = 8) -> dict[str, Any]:
    """What the labels of the table pretend to depend on."""
    return {
        "embedder": {"name": "synthetic", "dimension": dimension, "fingerprint": f"synthetic-{dimension}"},
        "grid": grid.to_dict(),
        "rerankers": list(rerankers),
        "data": {"name": "synthetic"},
    }


def separable_table(
    questions: int = 48,
    dimension: int = 8,
    rerankers: tuple[str, ...] = RERANKERS,
    grid: LabelGrid = GRID,
    seed: int = 0,
    noise: float = 0.05,
) -> LabelTable:
    """A table in which the best reranker and its settings can be read off the embedding.

    Question i belongs to class i mod r: its embedding lies near unit vector i mod r, reranker i mod r scores 0.9 at
    one grid point of its own and 0.6 elsewhere, the others score 0.3. Two thirds of the questions are for training.
    """
    generator = np.random.default_rng(seed)
    points = list(grid)
    score_rows, question_rows = [], []
    for i in range(questions):
        kind = i % len(rerankers)
        embedding = generator.normal(0, noise, dimension)
        embedding[kind] += 1.0
        name = f"q{i:03}"
        turn = i // len(rerankers)
        question_rows.append(
            {
                "question_id": name,
                "domain": f"domain {kind}",
                "kind": "explicit",
                "language": "en",
                "split": ("train", "val", "test", "train", "train", "train")[turn % 6],
                "reference": None if i == 0 else f"answer {i}",
                "embedding": embedding.astype(np.float32),
            }
        )
        best_point = points[(kind * 3) % len(points)]
        for index, reranker in enumerate(rerankers):
            for point in points:
                score = 0.3 if index != kind else (0.9 if point == best_point else 0.6)
                score_rows.append(
                    {
                        "question_id": name,
                        "reranker": reranker,
                        **point._asdict(),
                        "order": [index, 3],
                        "prompt_tokens": 100 + index,
                        "value": 0.5,
                        "rouge1": score,
                        "rouge2": score / 2,
                        "rougeL": score,
                    }
                )
    return LabelTable(pd.DataFrame(score_rows), pd.DataFrame(question_rows), fingerprint(grid, rerankers, dimension))


def with_features(table: LabelTable, statistics: Sequence[str] = STATISTICS) -> LabelTable:
    """The table with documents, chunk means and statistics: question i has i in all statistics, and i·d, i·d + 1 …"""
    count, width = table.embeddings.shape
    means = np.arange(count * width, dtype=np.float32).reshape(count, width)
    values = np.repeat(np.arange(count, dtype=np.float32)[:, None], len(statistics), axis=1)
    documents = [[f"d{i % 12}"] for i in range(count)]
    questions = table.questions.assign(chunk_mean=list(means), statistics=list(values), documents=documents)
    return LabelTable(table.scores, questions, {**table.fingerprint, "statistics": list(statistics)})


def write_separable_table(directory: Path, **options: Any) -> str:
    """Writes such a table and returns its path."""
    path = directory / "labels.parquet"
    separable_table(**options).write(path)
    return str(path)
