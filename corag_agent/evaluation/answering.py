"""Answers of an evaluation: out of caches where they are there, with the seconds of those that were made."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from corag_agent.evaluation.scoring import NAN
from corag_search.errors import InputError
from corag_search.generators.base import Generation, Generator
from corag_search.pipeline import check_context
from corag_search.pipeline_config import PipelineConfig
from corag_search.tokenizers import Tokenizer
from data_prep.answers import AnswerCache, Answers, CachedGenerator


class LayeredAnswers:
    """A cache of one's own over others that are only read: what they have is copied into the own one when asked for."""

    def __init__(self, own: Answers, others: Sequence[Answers] = ()) -> None:
        self._own, self._others = own, tuple(others)

    def get(self, key: str) -> Generation | None:
        """As `AnswerCache.get`."""
        found = self._own.get(key)
        for other in self._others if found is None else ():
            found = other.get(key)
            if found is not None:
                self._own.put(key, found)
                break
        return found

    def put(self, key: str, generation: Generation) -> None:
        """As `AnswerCache.put`, into the own cache."""
        self._own.put(key, generation)


@contextmanager
def opened_answers(path: Path, others: Iterable[Path]) -> Iterator[LayeredAnswers]:
    """The answers of a run.

    Args:
        path: Its own cache; made when it is not there.
        others: Caches of other runs, such as the one beside a label table.

    Raises:
        InputError: Another cache is not there, or a file is no cache.
    """
    with ExitStack() as caches:
        layers = []
        for other in others:
            if not other.is_file():
                raise InputError(f"there is no answer cache {other}; `corag label` leaves NAME.answers.sqlite")
            layers.append(caches.enter_context(AnswerCache(other)))
        yield LayeredAnswers(caches.enter_context(AnswerCache(path)), layers)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer.

    Attributes:
        text: What the generator wrote.
        tokens: Of it.
        seconds: That it took; NaN where it came from a cache.
    """

    text: str
    tokens: int
    seconds: float


class Answerer:
    """Asks the generator, or the cache before it. Safe to share between threads.

    Attributes:
        made: Answers that the generator was asked for.
        seconds: Spent on those that were made, of all threads together.
    """

    def __init__(
        self,
        generator: Generator,
        answers: Answers,
        tokenizer: Tokenizer,
        config: PipelineConfig,
        concurrency: int = 1,
    ) -> None:
        """Prepare.

        Args:
            generator: Writes the answers.
            answers: The cache.
            tokenizer: Counts where the generator does not.
            config: Its prompt and max_answer_tokens are used.
            concurrency: Answers of one question that are asked for at a time.
        """
        self.plain = generator
        self.cached = CachedGenerator(generator, answers)
        self.made = 0
        self.seconds = 0.0
        self._answers, self._tokenizer, self._config = answers, tokenizer, config
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="answers")

    def prompt(self, question: str, texts: Sequence[str]) -> str:
        """The prompt over texts in this order.

        Raises:
            InputError: It would overflow the generator's context.
        """
        prompt = self._config.prompt.fill(question, texts)
        check_context(prompt, self._config.max_answer_tokens, self.plain, self._tokenizer)
        return prompt

    def answers(self, prompts: Iterable[str]) -> dict[str, Answered]:
        """The answer to each distinct prompt, several at a time.

        Raises:
            GeneratorError: The generator failed.
        """
        distinct = list(dict.fromkeys(prompts))
        return dict(zip(distinct, self._pool.map(self._looked_up, distinct), strict=True))

    def knows(self, prompt: str) -> bool:
        """Whether a cache has the answer."""
        return self._answers.get(self._key(prompt)) is not None

    def anew(self, prompt: str) -> Answered:
        """An answer made now, past all caches.

        Raises:
            GeneratorError: The generator failed.
        """
        return self._made(self.plain, prompt)

    def close(self) -> None:
        """Wait for the answers under way, and free the generator."""
        self._pool.shutdown(cancel_futures=True)
        self.plain.close()

    def _looked_up(self, prompt: str) -> Answered:
        known = self._answers.get(self._key(prompt))
        if known is None:
            return self._made(self.cached, prompt)
        return Answered(known.text, self._tokens(known), NAN)

    def _made(self, generator: Generator, prompt: str) -> Answered:
        start = time.perf_counter()
        answer = generator.generate(prompt, self._config.max_answer_tokens)
        seconds = time.perf_counter() - start
        self.made += 1
        self.seconds += seconds
        return Answered(answer.text, self._tokens(answer), seconds)

    def _key(self, prompt: str) -> str:
        return AnswerCache.key(self.plain.fingerprint, prompt, self._config.max_answer_tokens)

    def _tokens(self, answer: Generation) -> int:
        return answer.answer_tokens or self._tokenizer.count([answer.text])[0]
