"""Scores of orders that an earlier run chose: other references, samples, prompt or generator, and no search."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from corag_search.chunk import Chunk
from corag_search.chunking import chunk_documents
from corag_search.errors import InputError
from corag_search.pipeline_config import PipelineConfig
from corag_search.query_features import STATISTICS, QueryFeatures
from corag_search.store import VectorStore
from corag_search.tokenizers import Tokenizer
from data_prep.dataset import Dataset, Question
from data_prep.scoring import Scorer, plain_features
from data_prep.searched import Chosen, Searched
from data_prep.table import LabelTable

_NOT_SHAPED = ("statistics", "scoring")  # parts of the table's fingerprint that its searches did not shape


@dataclass(frozen=True, kw_only=True)
class Rescorer(Scorer):
    """Scores the orders of a label table anew; it has neither embedder nor rerankers.

    Everything up to the orders is the table's, everything behind them (prompt, generator, references, samples) is as
    configured: the labels are those of a run from the start with the table's searches and that configuration.

    Attributes:
        table: As `corag label` wrote it.
        chunks: The candidates of its questions, by id, as `candidate_chunks` gives them.
    """

    table: LabelTable
    chunks: Mapping[str, Chunk]

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_columns(self.table)

    def fingerprint(self) -> dict[str, Any]:
        searched = {key: value for key, value in self.table.fingerprint.items() if key not in _NOT_SHAPED}
        return {**searched, **self._answering()}

    def search(self, question: Question) -> Searched:
        """What the table's searches chose.

        Raises:
            InputError: The table lacks the question, or an order that does not cost what the table says.
        """
        row, rows = self._row(question), len(self.table.rerankers) * len(self.table.grid)
        own = self.table.scores.iloc[row * rows : (row + 1) * rows]
        assert self.table.rivals is not None, "checked on construction"
        rivals = self.table.rivals.iloc[self._rivals.get(question.id, [])]
        candidates = tuple(self.chunks[name] for name in self.table.questions["candidates"].iloc[row])
        for frame in (own, rivals):
            _check_costs(question, frame, candidates)
        chosen, points = _chosen(own), len(self.table.grid)
        by_method: dict[str, dict[str, Chosen]] = {}
        for reranker, method, choice in zip(rivals["reranker"], rivals["method"], _chosen(rivals), strict=True):
            by_method.setdefault(reranker, {})[method] = choice
        return Searched(
            question=question,
            embedding=self.table.embeddings[row],
            candidates=candidates,
            features=self._features(row),
            outcomes={r: chosen[i * points : (i + 1) * points] for i, r in enumerate(self.table.rerankers)},
            rivals=by_method,
            evaluations={},
            seconds=0.0,
        )

    def complete(self, question: Question, record: Mapping[str, Any]) -> dict[str, Any]:
        return {**record, **plain_features(self._features(self._row(question)))}

    def _row(self, question: Question) -> int:
        if question.id not in self._rows:
            raise InputError(f"question {question.id!r} is not in the label table whose orders are scored; label it")
        return self._rows[question.id]

    def _features(self, row: int) -> QueryFeatures:
        statistics, means = self.table.statistics, self.table.chunk_means
        assert statistics is not None and means is not None, "checked on construction"
        order = [self.table.statistic_names.index(name) for name in STATISTICS]
        return QueryFeatures(means[row], statistics[row, order])

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.table.questions["question_id"])}

    @cached_property
    def _rivals(self) -> dict[str, Any]:
        """Rows of the rivals of each question."""
        assert self.table.rivals is not None, "checked on construction"
        return {str(name): rows for name, rows in self.table.rivals.groupby("question_id").indices.items()}


def candidate_chunks(
    table: LabelTable, dataset: Dataset, config: PipelineConfig, tokenizer: Tokenizer
) -> dict[str, Chunk]:
    """The candidates of a table's questions by id, out of the configured store or cut from the documents anew.

    Args:
        table: As `corag label` wrote it.
        dataset: The one that it was labelled with.
        config: Names store, tokenizer and chunk size.
        tokenizer: The configured one.

    Raises:
        InputError: Data, chunking or embedder are not the table's, or a chunk is missing or has another text.
    """
    _check_columns(table)
    store = VectorStore.load(config.store) if config.store else None
    present: dict[str, Any] = {
        "data": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        "chunking": {
            "tokenizer": tokenizer.name,
            "fingerprint": tokenizer.fingerprint,
            "chunk_size": store.chunk_size if store else config.chunk_size,
        },
    }
    if store:
        present["embedder"] = asdict(store.embedder)
    _check_same(table.fingerprint, present)
    wanted = {name for own in table.questions["candidates"] for name in own}
    if store:
        names = sorted(wanted)
        rows = [row for row in store.rows_of(names).tolist() if row >= 0]
        found = {chunk.id: chunk for chunk in map(store.chunks.at, rows)}
    else:
        cut = chunk_documents(dataset.documents, tokenizer, config.chunk_size)
        found = {chunk.id: chunk for chunk in cut if chunk.id in wanted}
    if missing := sorted(wanted - set(found)):
        where = "the store" if store else f"{dataset.name}, without a store,"
        raise InputError(
            f"the label table has the candidate {missing[0]!r}, which {where} does not hold; give the --store that it "
            "was labelled with"
        )
    dataset.check_chunks(found.values())
    return found


def questions_of(table: LabelTable, questions: Iterable[Question]) -> tuple[Question, ...]:
    """Those of the questions that a label table has.

    Raises:
        InputError: It has none of them.
    """
    known = set(table.questions["question_id"])
    found = tuple(question for question in questions if question.id in known)
    if not found:
        raise InputError("the label table has none of these questions; give the data that it was labelled with")
    return found


def _check_same(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    differing = [key for key in ours if theirs.get(key) != ours[key]]
    if differing:
        differences = "; ".join(f"{k} was {json.dumps(theirs.get(k))}, is now {json.dumps(ours[k])}" for k in differing)
        raise InputError(
            f"the label table's orders are not of this configuration ({differences}); give the data, the options that "
            "made its questions, the chunk size and the store that it was labelled with"
        )


def _check_columns(table: LabelTable) -> None:
    """Refuse a table that does not say which chunks its orders are of (InputError)."""
    if "candidates" not in table.questions or table.rivals is None:
        lacking = "candidates" if table.rivals is not None else "rivals"
        raise InputError(f"the label table has no {lacking}, so it is not as `corag label` writes it; label again")
    if set(table.statistic_names) != set(STATISTICS) or table.statistics is None or table.chunk_means is None:
        raise InputError(
            "the label table lacks statistics or chunk_mean of this version; run the command that made it once more, "
            "which adds them without a search"
        )


def _check_costs(question: Question, frame: pd.DataFrame, candidates: tuple[Chunk, ...]) -> None:
    costs = np.array([chunk.cost for chunk in candidates])
    for order, tokens in zip(frame["order"], frame["prompt_tokens"], strict=True):
        if order.max(initial=0) >= len(costs) or costs[order].sum() != tokens:
            raise InputError(
                f"order {order.tolist()} of question {question.id!r} does not cost the {tokens} tokens that the label "
                "table says; give the --store that it was labelled with"
            )


def _chosen(frame: pd.DataFrame) -> list[Chosen]:
    return [(tuple(o.tolist()), value) for o, value in zip(frame["order"], frame["value"].tolist(), strict=True)]
