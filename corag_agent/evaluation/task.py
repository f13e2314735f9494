"""What a method is given: one question, its candidates, a judge, and the run's components."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from corag_search.agent import ConfigurationAgent
from corag_search.baselines import RaptorConfig, RaptorTree
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.embedders.base import Embedder
from corag_search.errors import InputError
from corag_search.generators.base import Generator
from corag_search.pipeline import Corag, Selected
from corag_search.pipeline_config import PipelineConfig
from corag_search.policy_tree import search_policy_tree
from corag_search.policy_tree.scores import SharedScores
from corag_search.rerankers.base import Reranker
from corag_search.result import SearchResult
from corag_search.retrieval import Retriever, make_retriever
from corag_search.store import VectorStore
from corag_search.tokenizers import Tokenizer


@dataclass(frozen=True)
class Components:
    """What the pipeline names, loaded once. Safe to share between threads.

    Attributes:
        config: The pipeline.
        embedder: Embeds chunks and questions.
        tokenizer: Cuts and counts.
        rerankers: By name.
        generator: Writes answers, references, summaries and hypothetical passages; what it wrote before comes out of
            the cache.
    """

    config: PipelineConfig
    embedder: Embedder
    tokenizer: Tokenizer
    rerankers: Mapping[str, Reranker]
    generator: Generator


@dataclass(frozen=True)
class Corpus:
    """A data set's documents, cut to one chunk size.

    Attributes:
        components: Of the run.
        store: The chunks.
    """

    components: Components
    store: VectorStore
    _trees: dict[RaptorConfig, RaptorTree] = field(default_factory=dict)
    _building: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def retriever(self) -> Retriever:
        """Gives the candidates, as configured."""
        return make_retriever(self.components.config.retrieval, self.store, self.components.embedder)

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """Row of each chunk in the store, by its id."""
        return {chunk.id: row for row, chunk in enumerate(self.store.chunks)}

    def embeddings(self, chunks: Sequence[Chunk]) -> npt.NDArray[np.float32]:
        """Vectors of chunks of the store, `[n, d]`."""
        return self.store.embeddings([self.rows[chunk.id] for chunk in chunks])

    def raptor_tree(self, config: RaptorConfig) -> RaptorTree:
        """The summary tree over all chunks, built when first asked for; its summaries stay in the answer cache."""
        with self._building:
            if config not in self._trees:
                own = self.components
                self._trees[config] = RaptorTree.build(
                    self.store.chunks,
                    own.embedder,
                    own.generator,
                    own.tokenizer,
                    config,
                    embeddings=self.store.embeddings(),
                )
            return self._trees[config]


@dataclass(frozen=True)
class Assigned:
    """The agent of one question.

    Attributes:
        agent: None where every agent has seen one of the question's documents.
        key: Digest of all that shapes its predictions and of `about`.
        about: What a record says of it: `fold`, and `held_out`, whether that fold is the question's own (no agent has
            seen the question where it is not). Empty where one agent answers all.
        missing: Why there is none.
    """

    agent: ConfigurationAgent | None
    key: str
    about: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""

    def loaded(self) -> ConfigurationAgent:
        """The agent.

        Raises:
            InputError: Every agent has seen one of the question's documents.
        """
        if self.agent is None:
            raise InputError(self.missing)
        return self.agent


@dataclass(frozen=True)
class Task:
    """One question for one method at one setting.

    Attributes:
        query: The question.
        candidates: Retrieved chunks, best first.
        config: Settings of the search.
        reranker: Name of the judge; "" where the method uses none of its own.
        corpus: Where the candidates come from.
        generator: The run's; in a timing run one without cache.
        judges: Rerankers by name. Outside timing runs each scores a combination of this question and these candidates
            once for all methods.
        fixed: Settings that take precedence over the agent.
        agent: The question's; None where none is configured.
        timing: Whether nothing may be shared: the agent's pipeline retrieves anew.
    """

    query: str
    candidates: tuple[Chunk, ...]
    config: SearchConfig
    reranker: str
    corpus: Corpus
    generator: Generator
    judges: Mapping[str, Reranker]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    agent: Assigned | None = None
    timing: bool = False

    @property
    def judge(self) -> Reranker:
        """The reranker."""
        return self.judges[self.reranker]

    @property
    def problem(self) -> tuple[str, tuple[Chunk, ...], Reranker, SearchConfig]:
        """The first arguments of every baseline: query, candidates, judge, settings."""
        return self.query, self.candidates, self.judge, self.config

    @cached_property
    def tree(self) -> SearchResult:
        """What the tree search chooses with these settings and this reranker, without an agent."""
        return search_policy_tree(*self.problem, prior=self._prior)

    @property
    def embeddings(self) -> npt.NDArray[np.float32]:
        """Of the candidates, `[k, d]`."""
        return self.corpus.embeddings(self.candidates)

    def reordered(self, order: Sequence[int]) -> SearchResult:
        """A combination of the candidates in this very order, judged as it stands."""
        chosen = tuple(order)
        chunks = tuple(self.candidates[i] for i in chosen)
        value = float(self.judge.score(self.query, [chunks])[0])
        cost = sum(chunk.cost for chunk in chunks)
        price = self.config.cost_coefficient * cost / self.config.budget
        return SearchResult(chosen, chunks, value, value - price, cost, evaluations=1)

    @cached_property
    def with_agent(self) -> Selected:
        """The whole pipeline, with reranker and settings as the agent predicts them.

        Raises:
            InputError: No agent is configured, or every one has seen the question.
        """
        if self.agent is None:
            raise InputError("the method needs an agent; set agent to the directory that `corag export` wrote")
        pipeline = _Pipeline(self, self.agent.loaded())
        given = len(self.candidates) if self.timing else self.candidates
        return pipeline.search(self.query, budget=self.config.budget, candidates=given, **self.fixed)

    @property
    def _prior(self) -> Reranker | None:
        name = self.corpus.components.config.prior
        return self.judges[name] if name is not None and self.config.narrows else None


class _Pipeline(Corag):
    """The pipeline with the task's judges."""

    def __init__(self, task: Task, agent: ConfigurationAgent) -> None:
        own = task.corpus.components
        config = replace(own.config, search=task.config)
        super().__init__(
            task.corpus.store,
            own.embedder,
            config,
            agent=agent,
            retriever=task.corpus.retriever,
            generator=task.generator,
            tokenizer=own.tokenizer,
        )
        self._judges = task.judges
        self._watch = None  # an evaluation marks its rows instead, `on_distribution`

    def reranker(self, name: str) -> Reranker:
        """As `Corag.reranker`, out of the task's judges.

        Raises:
            InputError: The agent knows a reranker that is not configured.
        """
        if name not in self._judges:
            raise InputError(f"the agent chose the reranker {name!r}, configured are {', '.join(self._judges)}")
        return self._judges[name]


def shared_judges(rerankers: Mapping[str, Reranker], query: str, candidates: Sequence[Chunk]) -> dict[str, Reranker]:
    """Rerankers for one question and its candidates that score each combination once, whoever asks."""
    return {name: SharedScores(query, candidates, reranker) for name, reranker in rerankers.items()}
