"""From the orders that searches chose to scores: answers, references, ROUGE."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corag_search.errors import InputError
from corag_search.generators.base import Generation, Generator
from corag_search.pipeline import check_context
from corag_search.pipeline_config import PipelineConfig
from corag_search.query_features import STATISTICS, QueryFeatures
from corag_search.tokenizers import Tokenizer
from data_prep.dataset import Dataset, Question
from data_prep.rouge import Rouge, best_of
from data_prep.searched import Searched

LLM, HUMAN = "llm", "human"

Request = tuple[str, Generator]  # prompt, and who answers it
Ask = Callable[[Callable[[Request], tuple[Generation, float]], Iterable[Request]], Iterable[tuple[Generation, float]]]


@dataclass(frozen=True, kw_only=True)
class Scorer(ABC):
    """Scores the orders that searches chose; a subclass says where those come from.

    Attributes:
        dataset: Questions with gold passages, and their documents.
        generator: Answers, and writes the references.
        tokenizer: Counts.
        config: Pipeline settings; of these, prompt and max_answer_tokens are used here.
        references: What answers are scored against: "llm" (the generator's own answer from the gold passages), "human"
            (the data set's), or both; several are averaged.
        samplers: The generator with other seeds: each gives one more sample of every answer, and all are averaged.
    """

    dataset: Dataset
    generator: Generator
    tokenizer: Tokenizer
    config: PipelineConfig
    references: tuple[str, ...] = (LLM,)
    samplers: tuple[Generator, ...] = ()

    def __post_init__(self) -> None:
        check_references(self.references)

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Everything that shapes the labels, as plain values."""

    @abstractmethod
    def search(self, question: Question) -> Searched:
        """What every reranker chooses for a question at every grid point; the generator is not needed for it.

        Raises:
            InputError: Nothing can be chosen for it.
            RerankerError: A reranker failed.
        """

    @abstractmethod
    def complete(self, question: Question, record: Mapping[str, Any]) -> dict[str, Any]:
        """A record of an earlier version with the features that it lacks; nothing is searched or answered.

        Raises:
            InputError: The features cannot be had.
        """

    @property
    def samples(self) -> int:
        """Answers to each prompt."""
        return 1 + len(self.samplers)

    def label(self, question: Question, ask: Ask = map) -> dict[str, Any]:
        """All outcomes of one question, as plain values for the ledger: `search`, then `score`.

        Raises:
            InputError: A prompt would overflow the generator's context, or a reranker's scores are unusable.
            GeneratorError: The generator failed.
            RerankerError: A reranker failed.
        """
        return self.score(self.search(question), ask)

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
            **plain_features(searched.features),
            "outcomes": {name: [(_key(o), value) for o, value in points] for name, points in searched.outcomes.items()},
            "rivals": {
                name: {method: (_key(order), value) for method, (order, value) in methods.items()}
                for name, methods in searched.rivals.items()
            },
            "scores": {key: [tokens[key], *_mean(own)] for key, own in repeats.items()},
            **({"repeats": repeats} if len(self.references) * self.samples > 1 else {}),
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

    def _answering(self) -> dict[str, Any]:
        """The part of the fingerprint that is about prompts, answers and scores."""
        # Left out for one answer against one reference of the generator's, as tables had it before there was a choice.
        usual = self.references == (LLM,) and not self.samplers
        scoring = {} if usual else {"scoring": {"references": list(self.references), "samples": self.samples}}
        return {
            "generator": {
                "name": self.generator.name,
                "fingerprint": self.generator.fingerprint,
                "max_answer_tokens": self.config.max_answer_tokens,
            },
            "prompt": self.config.prompt.fingerprint,
            **scoring,
        }

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


def check_references(references: Sequence[str]) -> None:
    """Refuse what names no references (InputError)."""
    if not references or set(references) - {LLM, HUMAN} or len(set(references)) < len(references):
        raise InputError(f"references must be llm, human or llm,human, got {','.join(references) or 'none'!r}")


def plain_features(features: QueryFeatures) -> dict[str, Any]:
    """Features as a record has them."""
    statistics = dict(zip(STATISTICS, features.statistics.tolist(), strict=True))
    return {"statistics": statistics, "chunk_mean": features.chunk_mean.tolist()}


def _mean(repeats: Sequence[Rouge]) -> list[float]:
    """Mean of each measure; of a single score, that score to the bit."""
    return [sum(values) / len(repeats) for values in zip(*repeats, strict=True)]


def _key(order: tuple[int, ...]) -> str:
    """An order as a text key, for JSON."""
    return " ".join(map(str, order))
