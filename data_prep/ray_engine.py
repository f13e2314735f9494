"""Labelling on many machines: Ray actors hold the models, the driver holds the ledger."""

from __future__ import annotations

import math
import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from corag_search.errors import InputError
from corag_search.generators.base import Generation
from corag_search.packaged import require
from corag_search.registry import whole
from data_prep.answers import AnswerCache, Answers
from data_prep.dataset import Question
from data_prep.engines import Outcome, Worker
from data_prep.scoring import Scorer

LoadScorer = Callable[[Answers], Scorer]

_DEATHS = 3  # of a worker under one question, or while it loads, before it is given up


class RayEngine:
    """Labels in actors of a Ray cluster, one for each worker.

    A worker that dies is replaced, and costs its questions in flight, which are labelled again; one question that
    takes three workers down fails. All workers share one cache of answers, which the driver's machine holds, and must
    hold the same models: their fingerprints are compared.
    """

    def __init__(
        self,
        load: LoadScorer,
        answers: Path | None,
        *,
        workers: int = 1,
        llm_concurrency: int = 1,
        address: str | None = None,
        cpus: float = 1,
        gpus: float = 0,
    ) -> None:
        """Join the cluster and load the first worker's models.

        Args:
            load: Makes a worker's scorer; it and what it holds travel to the workers. It is given the cache.
            answers: The cache's file; None keeps it in memory.
            workers: Actors.
            llm_concurrency: Answers that the generator is asked for at a time, by all workers together; at least one
                by each.
            address: Of the cluster ("auto" on one of its machines); None starts Ray on this machine.
            cpus: Cores that each worker reserves.
            gpus: GPUs that each worker reserves; may be a fraction.

        Raises:
            InputError: No Ray, no cluster at the address, or models that cannot be loaded.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray = require("ray", "ray", "engine 'ray'")
        self._workers = whole("workers", workers)
        self._answers_each = max(1, whole("llm_concurrency", llm_concurrency) // workers)
        self._resources = {"num_cpus": cpus, "num_gpus": gpus}
        address = address or os.environ.get("RAY_ADDRESS")
        alone = {} if address else {"num_cpus": math.ceil(workers * cpus), "include_dashboard": False}
        try:
            if address:
                _check_reachable(address)
            self._ray.init(address, log_to_driver=False, logging_level="ERROR", **alone)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"cannot join a Ray cluster at {address!r} ({reason}); start one with `ray start --head`"
            ) from None
        try:
            self._cache = self._start_cache(answers)
            self._loader = self._ray.put(load)
            self._actors = [self._start()]
            self._fingerprint: dict[str, Any] = self._result(self._loading(self._actors[0]))
        except BaseException:
            self._ray.shutdown()
            raise

    def fingerprint(self) -> dict[str, Any]:
        return self._fingerprint

    def label(self, questions: Sequence[Question]) -> Generator[Outcome]:
        waiting = deque(questions)
        idle = {actor: self._answers_each for actor in self._actors}  # calls that each can take
        running: dict[Any, tuple[Any, Question | None]] = {}  # None while the worker loads
        self._load_into(running, min(self._workers, len(questions)) - len(idle))
        try:
            yield from self._label(waiting, idle, running)
        finally:
            self._actors = list(idle)
            for actor in {actor for actor, _ in running.values()} - set(idle):
                self._ray.kill(actor)  # still loading

    def complete(self, done: Sequence[tuple[Question, dict[str, Any]]]) -> Iterator[tuple[Question, dict[str, Any]]]:
        for question, record in done:
            yield question, self._result(self._actors[0].complete.remote(question, record))

    def _label(
        self, waiting: deque[Question], idle: dict[Any, int], running: dict[Any, tuple[Any, Question | None]]
    ) -> Generator[Outcome]:
        lost: Counter[str | None] = Counter()
        while waiting or any(question for _, question in running.values()):
            for actor in idle:
                while idle[actor] and waiting:
                    question = waiting.popleft()
                    running[actor.label.remote(question)] = actor, question
                    idle[actor] -= 1
            (finished,), _ = self._ray.wait(list(running), num_returns=1)
            actor, asked = running.pop(finished)
            try:
                result = self._result(finished)
            except self._ray.exceptions.RayActorError as error:
                if idle.pop(actor, None) is not None or asked is None:
                    self._load_into(running, 1)  # once for each death: its other calls come here too
                outcome = self._lost(asked, lost, error)
                if outcome is not None:
                    yield outcome
                elif asked is not None:
                    waiting.appendleft(asked)
                continue
            if asked is None:
                self._check(result)
                idle[actor] = self._answers_each
            else:
                idle[actor] += 1
                yield result

    def _load_into(self, running: dict[Any, tuple[Any, Question | None]], count: int) -> None:
        for _ in range(count):
            actor = self._start()
            running[self._loading(actor)] = actor, None

    def _lost(self, question: Question | None, lost: Counter[str | None], error: Exception) -> Outcome | None:
        """Count a death; the failure of the question under which too many workers died.

        Raises:
            InputError: Too many died while they loaded.
        """
        name = question.id if question else None
        lost[name] += 1
        if lost[name] < _DEATHS:
            return None
        if name is None:
            raise InputError(
                f"{_DEATHS} workers died while they loaded their models, the last one so: {_first_line(error)}; "
                "give them more memory, or fewer of them"
            ) from None
        return Outcome(name, None, f"its worker died {_DEATHS} times, the last time so: {_first_line(error)}")

    def _check(self, fingerprint: dict[str, Any]) -> None:
        ours = self._fingerprint
        differing = [key for key in {**ours, **fingerprint} if ours.get(key) != fingerprint.get(key)]
        if differing:
            raise InputError(
                f"a worker would make other labels than the first: fingerprints differ in {', '.join(differing)}; "
                "install the same versions and models on all machines"
            )

    def close(self) -> None:
        """Leave the cluster; the workers end with it, and the cache is whole on the disk."""
        try:
            self._ray.get(self._cache.close.remote())
        finally:
            self._ray.shutdown()

    def _start_cache(self, answers: Path | None) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(self._ray.get_runtime_context().get_node_id(), soft=False)
        return self._ray.remote(_CacheActor).options(num_cpus=0, scheduling_strategy=here).remote(answers)

    def _start(self) -> Any:
        options = {"max_concurrency": self._answers_each, **self._resources}
        return self._ray.remote(_WorkerActor).options(**options).remote(self._answers_each)

    def _loading(self, actor: Any) -> Any:
        return actor.load.remote(self._loader, self._cache)

    def _result(self, reference: Any) -> Any:
        """What a call returned.

        Raises:
            RayActorError: The actor died.
            Exception: What the call raised there.
        """
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None


class _WorkerActor:
    """A worker's process. The models are loaded by a call, whose errors come back whole, not by the constructor."""

    def __init__(self, answers: int) -> None:
        self._answers = answers

    def load(self, load: LoadScorer, cache: Any) -> dict[str, Any]:
        scorer = load(_RemoteAnswers(cache))
        self._worker = Worker(scorer, answers=self._answers)
        return scorer.fingerprint()

    def label(self, question: Question) -> Outcome:
        return self._worker.label(question)

    def complete(self, question: Question, record: dict[str, Any]) -> dict[str, Any]:
        return self._worker.scorer.complete(question, record)


class _CacheActor:
    """The process that holds the cache's file, on the driver's machine."""

    def __init__(self, path: Path | None) -> None:
        self._cache = AnswerCache(path)

    def get(self, key: str) -> Generation | None:
        return self._cache.get(key)

    def put(self, key: str, generation: Generation) -> None:
        self._cache.put(key, generation)

    def close(self) -> None:
        self._cache.close()


class _RemoteAnswers:
    """The cache as a worker sees it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def get(self, key: str) -> Generation | None:
        import ray

        return ray.get(self._actor.get.remote(key))

    def put(self, key: str, generation: Generation) -> None:
        import ray

        ray.get(self._actor.put.remote(key, generation))


def _check_reachable(address: str) -> None:
    """Raise OSError at once where nobody listens; Ray itself tries for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
