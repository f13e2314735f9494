"""The seven steps from a query to an answer (METHOD §7)."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

from corag_search.agent import ConfigurationAgent, Prediction
from corag_search.agent_format import SETTINGS
from corag_search.agent_labels import LabelWatch
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.embedders import load_embedder
from corag_search.embedders.base import Embedder, Vectors
from corag_search.errors import InputError
from corag_search.generators import load_generator
from corag_search.generators.base import Generator
from corag_search.pipeline_config import PipelineConfig
from corag_search.policy_tree.problem import check_query, has_order
from corag_search.policy_tree.search import search_policy_tree
from corag_search.prompt import Citation, citations
from corag_search.query_features import embed_candidates, query_features
from corag_search.registry import whole
from corag_search.rerankers import load_reranker
from corag_search.rerankers.base import Reranker, as_reranker
from corag_search.result import SearchResult
from corag_search.retrieval import EmbeddingRetriever, Retriever, make_retriever
from corag_search.shipped import find_checkpoint
from corag_search.store import VectorStore
from corag_search.texts import shown
from corag_search.token_vectors import beside
from corag_search.tokenizers import Tokenizer, load_tokenizer

TEMPLATE_TOKENS = 48  # room for the chat template that an endpoint wraps around the prompt


@dataclass(frozen=True, slots=True)
class Selected(SearchResult):
    """A search result together with what led to it.

    Attributes:
        query: The question.
        candidates: What was retrieved, best first; `order` points into it.
        reranker: Name of the reranker that judged.
        config: Settings of the search.
        prediction: What the agent predicted; None without an agent.
        timings: Seconds by step: embed, agent, retrieve, search.
    """

    query: str = ""
    candidates: tuple[Chunk, ...] = ()
    reranker: str = ""
    config: SearchConfig = field(default_factory=SearchConfig)
    prediction: Prediction | None = None
    timings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer and where it comes from.

    Attributes:
        text: What the generator wrote.
        chunks: The prompt's chunks, in its order.
        citations: For each number of the prompt: chunk, document and offsets, and whether the answer names it.
        config: Settings of the search.
        timings: Seconds by step: embed, agent, retrieve, search, prompt, generate.
        selected: The search behind it.
        prompt: The prompt as it was sent.
        prompt_tokens: Tokens of the whole prompt, as the generator counted them.
        answer_tokens: Tokens of the answer.
    """

    text: str
    chunks: tuple[Chunk, ...]
    citations: tuple[Citation, ...]
    config: SearchConfig
    timings: dict[str, float]
    selected: Selected
    prompt: str
    prompt_tokens: int
    answer_tokens: int


class Corag:
    """Query in, answer out. Safe to share between threads.

    Args:
        store: Where candidates come from; None when every call gives its `candidates`.
        embedder: The one that built the store; None for `config.embedder`, loaded when first needed.
        config: Settings; its component names are used for what is not given here.
        agent: Predicts reranker and settings for each query; None for the configured ones. A warning tells, once, when
            it is used otherwise than its labels were made.
        retriever: Gives the candidates; by `config.retrieval` from the store when None.
        generator: Writes the answer; loaded by `config.generator` when first needed.
        tokenizer: Counts; loaded by `config.tokenizer` when first needed.

    Raises:
        InputError: Store, embedder and agent do not belong together.
    """

    def __init__(
        self,
        store: VectorStore | None,
        embedder: Embedder | None,
        config: PipelineConfig | None = None,
        *,
        agent: ConfigurationAgent | None = None,
        retriever: Retriever | None = None,
        generator: Generator | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.config = config or PipelineConfig()
        self.agent = agent
        self._watch = None if agent is None else LabelWatch(agent.config)
        self._store = store
        self._embedder = None if embedder is None else self._checked(embedder)
        self._retriever = retriever
        self._retrieves_as_configured = retriever is None
        self._generator = generator
        self._tokenizer = tokenizer
        self._rerankers: dict[str, Reranker] = {}
        self._loading = threading.RLock()

    @classmethod
    def from_config(cls, config: str | os.PathLike[str] | Mapping[str, Any] | PipelineConfig) -> Corag:
        """Load all that a YAML file, or its content, names; rerankers and generator are loaded when first needed.

        Raises:
            InputError: The file, a component in it, the store or the checkpoint cannot be used.
        """
        settings = PipelineConfig.of(config)
        if settings.store is None:
            raise InputError("store is not set; name the directory that `corag index` wrote")
        store = VectorStore.load(settings.store)
        agent = None if settings.agent is None else ConfigurationAgent.load(find_checkpoint(settings.agent))
        return cls(store, load_embedder(**settings.embedder), settings, agent=agent)

    @property
    def store(self) -> VectorStore:
        """Where candidates come from.

        Raises:
            InputError: There is no store.
        """
        if self._store is None:
            raise InputError("there is no store to retrieve from; give candidates=[...], the chunks to choose from")
        return self._store

    @property
    def embedder(self) -> Embedder:
        """The embedder, loaded on first use."""
        with self._loading:
            if self._embedder is None:
                self._embedder = self._checked(load_embedder(**self.config.embedder))
            return self._embedder

    @property
    def retriever(self) -> Retriever:
        """Gives the candidates.

        Raises:
            InputError: There is neither a retriever nor a store.
        """
        with self._loading:
            if self._retriever is None:
                self._retriever = make_retriever(self.config.retrieval, self.store, self.embedder)
            return self._retriever

    @property
    def generator(self) -> Generator:
        """The generator, loaded on first use."""
        with self._loading:
            if self._generator is None:
                self._generator = load_generator(**self.config.generator)
            return self._generator

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that counts, loaded on first use."""
        with self._loading:
            if self._tokenizer is None:
                self._tokenizer = load_tokenizer(self.config.tokenizer)
            return self._tokenizer

    def reranker(self, name: str) -> Reranker:
        """A reranker by name with its configured options, loaded on first use.

        "maxsim" reads the token vectors that lie beside the store, unless its options say otherwise.

        Raises:
            InputError: Unknown name, or it cannot be loaded.
        """
        with self._loading:
            if name not in self._rerankers:
                options = self.config.rerankers.get(name, {})
                if name == "maxsim" and self.config.store and beside(self.config.store).is_dir():
                    options = {"token_vectors": str(beside(self.config.store)), **options}
                self._rerankers[name] = load_reranker(name, **options)
            return self._rerankers[name]

    def warm_up(self, *, reranker: str | Reranker | None = None, answers: bool = True) -> None:
        """Load what a query needs and use all but the generator once, so that the first query need not.

        A server that forks calls it in each worker, not before: threads and connections do not outlive a fork.

        Args:
            reranker: As of the searches to come; every one that the agent can choose when None, or the configured one.
            answers: Whether to load what writes the answer as well; nothing is generated.

        Raises:
            InputError: A component cannot be loaded, or they do not belong together.
            RerankerError: A reranker's server does not answer.
        """
        query, chunk = "warm-up", Chunk("warm-up", "warm-up", cost=1)
        embedding = None if self.agent is None else self.embedder.encode([query])[0]
        retrieved: tuple[Chunk, ...] = ()
        if self._store is not None or self._retriever is not None:
            retrieved = _retrieved(self.retriever, query, 1, embedding)
        if self.agent is not None and embedding is not None:
            self._predict(self.agent, query, embedding, retrieved or (chunk,))
        configured = (self.config.reranker,) if self.agent is None else self.agent.rerankers
        judges = list(configured) if reranker is None else [reranker]
        if self.config.prior is not None and self.config.search.narrows:
            judges.append(self.config.prior)
        for judge in judges:
            self._reranker(judge).score(query, [(chunk,)])
        if answers:
            _ = self.generator, self.tokenizer

    def search(
        self,
        query: str,
        *,
        budget: int | None = None,
        reranker: str | Reranker | None = None,
        candidates: int | Sequence[Chunk] | None = None,
        prior: str | Reranker | None = None,
        trace: bool = False,
        **settings: Any,
    ) -> Selected:
        """Choose the chunks for a query.

        Args:
            query: The question.
            budget: Tokens; the configured one when None.
            reranker: Name or object; the agent's choice when None, or the configured one without an agent.
            candidates: How many chunks to retrieve, or the very chunks to choose from, best first.
            prior: Name or object that ranks the children where `expansion_width` or `root_width` is set; the configured
                one when None.
            trace: Keep the whole tree in the result's `trace`.
            **settings: Any other field of `SearchConfig`; takes precedence over the agent.

        Raises:
            InputError: A bad value; see `search_policy_tree`.
        """
        check_query(query)
        timings: dict[str, float] = {}
        config = _with_settings(self.config.search, settings, budget)
        prediction = None
        count, given = _count_or_chunks(self.config.candidates if candidates is None else candidates)
        retriever = self.retriever if given is None else None
        embedding = None
        if self.agent is not None or isinstance(retriever, EmbeddingRetriever):
            with timed(timings, "embed"):
                embedding = self.embedder.encode([query])[0]
        if retriever is not None:
            with timed(timings, "retrieve"):
                given = _retrieved(retriever, query, count, embedding)
            if not given:
                raise InputError(
                    f"retrieval found no chunk for the query {query[:60]!r}; lexical retrieval needs a word in common "
                    "with the store: use dense or hybrid, or check that the store holds documents"
                )
        assert given is not None, "retrieved or given"
        if self.agent is not None:
            assert embedding is not None, "embedded for the agent"
            with timed(timings, "agent"):
                prediction = self._predict(self.agent, query, embedding, given)
            predicted = {n: getattr(prediction, n) for n in SETTINGS}
            predicted["selection"] = self.agent.selection
            config = replace(config, **{name: value for name, value in predicted.items() if name not in settings})
            self._compare_with_labels(config, count or len(given), retriever)
        if reranker is None:
            reranker = prediction.reranker if prediction else self.config.reranker
        judge = self._reranker(reranker)
        prior = self.config.prior if prior is None else prior
        ranker = None if prior is None or not config.narrows else self._reranker(prior)
        with timed(timings, "search"):
            result = search_policy_tree(query, given, judge, config, prior=ranker, trace=trace)
        return Selected(
            **{f.name: getattr(result, f.name) for f in fields(result)},
            query=query,
            candidates=given,
            reranker=judge.name,
            config=config,
            prediction=prediction,
            timings=timings,
        )

    def answer(self, query: str, **options: Any) -> Answer:
        """Choose the chunks for a query and let the generator answer from them.

        Args:
            query: The question.
            **options: As for `search`.

        Raises:
            InputError: As `search`, or a prompt that would overflow the generator's context.
            GeneratorError: The generator failed.
        """
        selected = self.search(query, **options)
        prompt, timings = self._prompt(selected)
        with timed(timings, "generate"):
            generation = self.generator.generate(prompt, self.config.max_answer_tokens)
        return _answer(selected, prompt, generation.text, timings, generation.prompt_tokens, generation.answer_tokens)

    def stream(self, query: str, **options: Any) -> AnswerStream:
        """As `answer`, but the text comes in pieces as it is written.

        Example:
            >>> stream = corag.stream("How tall is the tower?")  # doctest: +SKIP
            >>> for piece in stream:  # doctest: +SKIP
            ...     print(piece, end="")
            >>> stream.answer.citations  # doctest: +SKIP
        """
        selected = self.search(query, **options)
        prompt, timings = self._prompt(selected)
        return AnswerStream(self, selected, prompt, timings)

    async def asearch(self, query: str, **options: Any) -> Selected:
        """`search` in a worker thread; the event loop goes on."""
        return await asyncio.to_thread(self.search, query, **options)

    async def aanswer(self, query: str, **options: Any) -> Answer:
        """`answer` in a worker thread; the event loop goes on."""
        return await asyncio.to_thread(self.answer, query, **options)

    async def astream(self, query: str, **options: Any) -> AsyncIterator[str]:
        """The answer's text in pieces; each is awaited in a worker thread."""
        stream = await asyncio.to_thread(self.stream, query, **options)
        pieces = iter(stream)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece

    def _checked(self, embedder: Embedder) -> Embedder:
        """The embedder, if store and agent were made with it."""
        if self._store is not None:
            self._store.check_embedder(embedder)
        if self.agent is not None:
            self.agent.check_embedder(embedder.name, embedder.dimension, embedder.fingerprint)
        return embedder

    def _reranker(self, given: str | Reranker) -> Reranker:
        return self.reranker(given) if isinstance(given, str) else as_reranker(given)

    def _predict(
        self, agent: ConfigurationAgent, query: str, embedding: Vectors, candidates: Sequence[Chunk]
    ) -> Prediction:
        if not agent.needs_features:
            return agent.predict(embedding)
        vectors = embed_candidates(candidates, self.embedder, self._store)
        return agent.predict(embedding, query_features(query, embedding, candidates, vectors))

    def _compare_with_labels(self, config: SearchConfig, candidates: int, retriever: Retriever | None) -> None:
        """Warn of an agent whose labels were made otherwise; nothing is loaded for it."""
        if self._watch is None:
            return
        values = config.to_dict() | {"candidates": candidates}
        used = {name: values[name] for name in ("budget", "max_chunks", "selection", "final_rule", "candidates")}
        if retriever is not None and self._retrieves_as_configured:
            used["retrieval"] = self.config.retrieval
            used |= {"chunk_size": self.store.chunk_size} if self.store.chunk_size else {}
        self._watch.compare(used | self._answering(), stacklevel=3)

    def _answering(self) -> dict[str, Any]:
        """Prompt and generator, as far as known; nothing where chunks are chosen for somebody else's prompt."""
        loaded = self._generator
        if loaded is None and self._store is None:
            return {}
        known = {"prompt": self.config.prompt.fingerprint, "generator": self.config.generator["name"]}
        return (
            known if loaded is None else known | {"generator": loaded.name, "generator_fingerprint": loaded.fingerprint}
        )

    def _prompt(self, selected: Selected) -> tuple[str, dict[str, float]]:
        timings = dict(selected.timings)
        generator, tokenizer = self.generator, self.tokenizer  # loaded before the clock starts
        if self._watch is not None:
            self._watch.compare(self._answering(), stacklevel=3)  # the generator is there now, with its fingerprint
        with timed(timings, "prompt"):
            prompt = self.config.prompt.fill(selected.query, [chunk.text for chunk in selected.chunks])
            check_context(prompt, self.config.max_answer_tokens, generator, tokenizer)
        return prompt, timings


class AnswerStream:
    """Pieces of an answer as they are written; `answer` is there when the last one was taken."""

    def __init__(self, corag: Corag, selected: Selected, prompt: str, timings: dict[str, float]) -> None:
        self.selected = selected
        self.prompt = prompt
        self._corag = corag
        self._timings = timings
        self._answer: Answer | None = None

    def __iter__(self) -> Iterator[str]:
        pieces = []
        with timed(self._timings, "generate"):
            for piece in self._corag.generator.stream(self.prompt, self._corag.config.max_answer_tokens):
                if not isinstance(piece, str):
                    raise InputError(
                        f"generator {self._corag.generator.name!r} streamed {shown(piece)}; each piece must be a text"
                    )
                pieces.append(piece)
                yield piece
        text = "".join(pieces)
        prompt_tokens, answer_tokens = self._corag.tokenizer.count([self.prompt, text])
        self._answer = _answer(self.selected, self.prompt, text, self._timings, prompt_tokens, answer_tokens)

    @property
    def answer(self) -> Answer:
        """The whole answer (token counts are the tokenizer's).

        Raises:
            RuntimeError: The stream was not read to its end.
        """
        if self._answer is None:
            raise RuntimeError("read the stream to its end before asking for the answer")
        return self._answer


def check_context(prompt: str, max_answer_tokens: int, generator: Generator, tokenizer: Tokenizer) -> None:
    """Refuse a prompt that leaves no room for the answer.

    Raises:
        InputError: Prompt, chat template and answer exceed the generator's context.
    """
    if generator.context_length is None:
        return
    tokens = tokenizer.count([prompt])[0] + TEMPLATE_TOKENS
    if tokens + max_answer_tokens > generator.context_length:
        raise InputError(
            f"the prompt of about {tokens} tokens and an answer of up to {max_answer_tokens} overflow the context of "
            f"{generator.name} ({generator.context_length} tokens); lower the budget or max_answer_tokens"
        )


def _answer(
    selected: Selected, prompt: str, text: str, timings: dict[str, float], prompt_tokens: int, answer_tokens: int
) -> Answer:
    return Answer(
        text=text,
        chunks=selected.chunks,
        citations=citations(text, selected.chunks),
        config=selected.config,
        timings=timings,
        selected=selected,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
    )


def _count_or_chunks(candidates: Any) -> tuple[int, tuple[Chunk, ...] | None]:
    """How many chunks to retrieve, or the given ones."""
    if has_order(candidates):
        return 0, tuple(candidates)
    try:
        return whole("candidates", candidates), None
    except InputError as error:
        raise InputError(f"{error}; or give the chunks themselves in a list, best first") from None


def _retrieved(retriever: Retriever, query: str, count: int, embedding: Vectors | None) -> tuple[Chunk, ...]:
    """What a retriever gives, which may be one of the user's own."""
    found = retriever.retrieve(query, count, embedding=embedding)
    if not has_order(found):
        raise InputError(f"a retriever must return a list of chunks, best first, got {shown(found)}")
    return tuple(found)


def _with_settings(config: SearchConfig, settings: dict[str, Any], budget: int | None) -> SearchConfig:
    allowed = [f.name for f in fields(SearchConfig)]
    for name in settings:
        if name not in allowed:
            raise InputError(
                f"unknown setting {name!r}; allowed are candidates, prior, reranker, trace, {', '.join(allowed)}"
            )
    return replace(config, **settings) if budget is None else replace(config, **settings, budget=budget)


@contextmanager
def timed(timings: dict[str, float], step: str) -> Iterator[None]:
    """Note the seconds of a step, whether or not it fails."""
    start = time.perf_counter()
    try:
        yield
    finally:
        timings[step] = time.perf_counter() - start
