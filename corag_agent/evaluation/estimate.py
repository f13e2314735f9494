"""What an evaluation will take, going by a few of its questions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from corag_agent.evaluation.evaluator import FAILURES, Chosen
from corag_agent.evaluation.job import LEDGER, Job, Work
from corag_agent.evaluation.methods import find_method
from corag_agent.evaluation.plan import Unit
from data_prep.ledger import Ledger
from data_prep.progress import progress_bar

TIMED_ANSWERS = 3  # made, and kept in the cache, to know how long an answer takes


@dataclass(frozen=True)
class Estimate:
    """What one experiment leaves to do on one data set.

    Attributes:
        run: The experiment's name.
        dataset: The data set's.
        questions: With anything left to do.
        searches: Choices of chunks to make.
        answers: That the generator must be asked for.
        cached: Answers that are there already.
        seconds: For searching and answering, one question at a time.
        prepared: What is built before the first question and is in none of these numbers, such as RAPTOR's summaries.
    """

    run: str
    dataset: str
    questions: int
    searches: int
    answers: int
    cached: int
    seconds: float
    prepared: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "run": self.run,
            "dataset": self.dataset,
            "questions": self.questions,
            "searches": self.searches,
            "answers": self.answers,
            "cached": self.cached,
            "hours": round(self.seconds / 3600, 3),
            "prepared": self.prepared,
        }


def estimate_job(job: Job, probe: int) -> list[Estimate]:
    """Search for a few questions of every experiment and data set, spread over those that are left; answer none.

    A few answers are made to time them; they stay in the cache. Answers that two experiments share are counted for
    each of them unless a cache has them.

    Args:
        job: What is to be done.
        probe: Questions of each experiment and data set.

    Raises:
        InputError: The ledger belongs to other settings or is in use.
    """
    path = job.out / LEDGER
    with Ledger(path, job.fingerprint()) as ledger:
        left = _left(job, ledger.done)
        if not ledger.done and not ledger.failed:  # an estimate begins no run; still locked, so nobody else has one
            path.unlink(missing_ok=True)
    chosen = {key: _spread(works, probe) for key, works in left.items()}
    prompts: list[str] = []
    estimates = []
    with progress_bar("search a probe", sum(map(len, chosen.values()))) as advance:
        for (run, dataset), works in left.items():
            counts = _Counts()
            for pending in chosen[run, dataset]:
                counts.add(*_probed(job, pending, prompts))
                advance(1)
            estimates.append((run, dataset, works, counts))
    per_answer = _seconds_per_answer(job, prompts)
    return [
        counts.scaled(run, dataset, works, len(chosen[run, dataset]), per_answer)
        for run, dataset, works, counts in estimates
    ]


@dataclass(frozen=True, slots=True)
class _Pending:
    """What is not done of a question."""

    work: Work
    units: tuple[Unit, ...]
    measurements: tuple[Unit, ...]


_Left = list[_Pending]


@dataclass
class _Counts:
    """Of the questions that were probed."""

    made: int = 0
    cached: int = 0
    seconds: float = 0.0

    def add(self, made: int, cached: int, seconds: float) -> None:
        self.made += made
        self.cached += cached
        self.seconds += seconds

    def scaled(self, run: str, dataset: str, works: _Left, probed: int, per_answer: float) -> Estimate:
        factor = len(works) / probed if probed else 0.0
        prepared = {find_method(unit.method).prepares for pending in works for unit in pending.units} - {""}
        return Estimate(
            run=run,
            dataset=dataset,
            questions=len(works),
            searches=sum(len(pending.units) + len(pending.measurements) for pending in works),
            answers=round(self.made * factor),
            cached=round(self.cached * factor),
            seconds=(self.seconds + self.made * per_answer) * factor,
            prepared=", ".join(sorted(prepared)),
        )


def _left(job: Job, done: Mapping[str, Any]) -> dict[tuple[str, str], _Left]:
    """What is not done, by experiment and data set."""
    left: dict[tuple[str, str], _Left] = {}
    for experiment, planned in job.plan:
        for work in job.work(experiment, planned):
            own = tuple(unit for key, unit in job.keys(work).items() if key not in done)
            measurements = tuple(unit for key, unit in job.structure_keys(work).items() if key not in done)
            if own or measurements:
                pending = _Pending(work, own, measurements)
                left.setdefault((experiment.name, work.data.source.name), []).append(pending)
    return left


def _spread(works: _Left, count: int) -> _Left:
    taken = min(count, len(works))
    return [works[i * len(works) // taken] for i in range(taken)]


def _probed(job: Job, pending: _Pending, prompts: list[str]) -> tuple[int, int, float]:
    """Answers to make, answers that are cached, and seconds of searching, for one question."""
    evaluator, work = job.evaluator, pending.work
    sizes = dict.fromkeys(unit.chunk_size for unit in (*pending.units, *pending.measurements))
    # Before the clock starts: a store that is made now, or a model that is loaded, is no part of the work that is left.
    corpora = {chunk_size: job.corpus(work.data, chunk_size) for chunk_size in sizes}
    for corpus in corpora.values():
        evaluator.warm_up(corpus, work.question)
    start = time.perf_counter()
    anew = 0
    asked = list(evaluator.reference_prompts(work.data, work.question)) if pending.units else []
    for chunk_size, corpus in corpora.items():
        # What builds something over the whole corpus first would take longer than all the rest.
        own = [u for u in pending.units if u.chunk_size == chunk_size and not find_method(u.method).prepares]
        for picked in evaluator.choose(corpus, work.question, own, job.agent_of(work)):
            if isinstance(picked, Chosen) and picked.unit.timing:
                anew += 1
            elif isinstance(picked, Chosen):
                asked.append(picked.prompt)
        for unit in pending.measurements:
            if unit.chunk_size == chunk_size:
                with suppress(*FAILURES):
                    evaluator.measure(corpus, work.question, unit)
    seconds = time.perf_counter() - start
    distinct = dict.fromkeys(asked)
    missing = [prompt for prompt in distinct if not evaluator.answerer.knows(prompt)]
    prompts += missing
    return len(missing) + anew, len(distinct) - len(missing), seconds


def _seconds_per_answer(job: Job, prompts: Sequence[str]) -> float:
    taken = list(dict.fromkeys(prompts))[:: max(1, len(prompts) // TIMED_ANSWERS)][:TIMED_ANSWERS]
    answerer = job.evaluator.answerer
    try:
        answerer.answers(taken)
    except FAILURES:
        return 0.0
    return answerer.seconds / answerer.made if answerer.made else 0.0
