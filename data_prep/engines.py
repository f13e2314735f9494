"""Where questions are labelled: in threads here, or by `data_prep.ray_engine` on many machines."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from corag_search.errors import InputError
from corag_search.generators.base import GeneratorError
from corag_search.registry import whole
from corag_search.rerankers.base import RerankerError
from data_prep.dataset import Question
from data_prep.scoring import Scorer

# What can befall one question. Clients of endpoints have tried again, with back-off and a limit, before they raise it.
_FAILURES = (InputError, GeneratorError, RerankerError)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the labelling of a question ended.

    Attributes:
        question_id: Which question.
        record: All outcomes, as `Scorer.label` gives them; None when it failed.
        error: Why it failed, in one line.
    """

    question_id: str
    record: dict[str, Any] | None
    error: str = ""


class Engine(Protocol):
    """Labels questions."""

    def fingerprint(self) -> dict[str, Any]:
        """As `Scorer.fingerprint`."""
        ...

    def label(self, questions: Sequence[Question]) -> Generator[Outcome]:
        """Outcomes in the order in which they come; closing the generator ends the work."""
        ...

    def complete(self, done: Sequence[tuple[Question, dict[str, Any]]]) -> Iterator[tuple[Question, dict[str, Any]]]:
        """Questions with their records, which have what records of earlier versions lack; as `Scorer.complete`."""
        ...


class Worker:
    """One process's labelling: many questions in flight, so that some search while others wait for their answers.

    Attributes:
        scorer: A `Labeller` or `Rescorer`, with everything loaded.
        in_flight: Questions that may be labelled at a time, one thread each.
    """

    def __init__(self, scorer: Scorer, searches: int = 1, answers: int = 1) -> None:
        """Prepare.

        Args:
            scorer: With everything loaded.
            searches: Questions that search at a time.
            answers: Answers that the generator is asked for at a time.
        """
        self.scorer = scorer
        self.in_flight = searches + answers - 1
        self._searches = threading.Semaphore(searches)
        self._answers = ThreadPoolExecutor(answers, thread_name_prefix="answers")

    def label(self, question: Question) -> Outcome:
        """Label a question; safe to call from `in_flight` threads."""
        try:
            with self._searches:
                searched = self.scorer.search(question)
            return Outcome(question.id, self.scorer.score(searched, self._answers.map))
        except _FAILURES as error:
            return Outcome(question.id, None, " ".join(str(error).split()))

    def close(self) -> None:
        """Wait for the answers under way, and ask for no more."""
        self._answers.shutdown(cancel_futures=True)


class LocalEngine:
    """Labels in threads of this process."""

    def __init__(self, scorer: Scorer, workers: int = 1, llm_concurrency: int = 1) -> None:
        """Prepare.

        Args:
            scorer: With everything loaded.
            workers: Questions that search at a time.
            llm_concurrency: Answers that the generator is asked for at a time.

        Raises:
            InputError: A number below 1.
        """
        whole("workers", workers)
        whole("llm_concurrency", llm_concurrency)
        self._scorer, self._workers, self._llm_concurrency = scorer, workers, llm_concurrency

    def fingerprint(self) -> dict[str, Any]:
        return self._scorer.fingerprint()

    def label(self, questions: Sequence[Question]) -> Generator[Outcome]:
        worker = Worker(self._scorer, self._workers, self._llm_concurrency)
        waiting = iter(questions)
        in_flight = min(worker.in_flight, len(questions))
        with ThreadPoolExecutor(max(in_flight, 1), thread_name_prefix="questions") as pool:
            try:
                running = {pool.submit(worker.label, question) for question in islice(waiting, in_flight)}
                while running:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        yield future.result()
                    running |= {pool.submit(worker.label, question) for question in islice(waiting, len(finished))}
            finally:
                worker.close()

    def complete(self, done: Sequence[tuple[Question, dict[str, Any]]]) -> Iterator[tuple[Question, dict[str, Any]]]:
        return ((question, self._scorer.complete(question, record)) for question, record in done)
