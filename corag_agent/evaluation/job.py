"""An evaluation as `corag evaluate` does it: everything loaded from the configuration, work done into the ledger."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from corag_agent.evaluation.agents import Agents
from corag_agent.evaluation.answering import Answerer, opened_answers
from corag_agent.evaluation.corpora import SourceData, check_reference, open_corpus, read_source
from corag_agent.evaluation.evaluator import FAILURES, Evaluator
from corag_agent.evaluation.ledger_work import Recorder
from corag_agent.evaluation.methods import find_method
from corag_agent.evaluation.plan import Experiment, Source, Unit, check_plan, units
from corag_agent.evaluation.task import Assigned, Components, Corpus
from corag_search.embedders import load_embedder
from corag_search.errors import InputError
from corag_search.generators import load_generator
from corag_search.pipeline_config import PipelineConfig
from corag_search.registry import whole
from corag_search.rerankers import load_reranker
from corag_search.shipped import find_checkpoint
from corag_search.store import EmbedderIdentity
from corag_search.tokenizers import load_tokenizer
from data_prep.dataset import Question
from data_prep.labelling import LLM
from data_prep.ledger import Ledger
from data_prep.progress import progress_bar
from data_prep.readers import read_dataset

LEDGER, ANSWERS, STORES = "ledger.jsonl", "answers.sqlite", "stores"


@dataclass(frozen=True)
class EvaluationOptions:
    """How an evaluation is run. Reference and seed shape its records; the rest does not.

    Attributes:
        reference: What ROUGE is measured against: "llm" (the generator's own answer from the gold passages) or "human".
        seed: Of samples and composed questions.
        workers: Questions under way at a time; experiments that are timed take one.
        llm_concurrency: Answers of one question that are asked for at a time.
        retry_failed: Also take up what failed before.
        answers: Answer caches of other runs, to be read first.

    Raises:
        InputError: An unusable value.
    """

    reference: str = LLM
    seed: int = 0
    workers: int = 1
    llm_concurrency: int = 1
    retry_failed: bool = False
    answers: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        check_reference(self.reference)
        whole("seed", self.seed, least=0)
        whole("workers", self.workers)
        whole("llm_concurrency", self.llm_concurrency)


@dataclass(frozen=True)
class Work:
    """One question of one experiment.

    Attributes:
        experiment: Which.
        data: The question's data set.
        question: Which.
        units: All that the experiment does for it.
    """

    experiment: Experiment
    data: SourceData
    question: Question
    units: tuple[Unit, ...]

    @property
    def name(self) -> str:
        """Of the question, in messages."""
        return f"{self.data.source.name}/{self.question.id}"


@dataclass(frozen=True)
class Job:
    """A plan with everything loaded.

    Attributes:
        plan: Each experiment with its units.
        data: The data sets, by name.
        evaluator: Does the work.
        out: Directory of the output.
        options: How it is run.
        agents: None where none is configured.
    """

    plan: Sequence[tuple[Experiment, tuple[Unit, ...]]]
    data: Mapping[str, SourceData]
    evaluator: Evaluator
    out: Path
    options: EvaluationOptions
    agents: Agents | None = None
    _corpora: dict[tuple[str, int], Corpus] = field(default_factory=dict)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _shapes: dict[tuple[int, str | None], str] = field(default_factory=dict)

    def fingerprint(self) -> dict[str, Any]:
        """What all records depend on, as plain values; what only some depend on is in their keys."""
        own = self.evaluator.components
        return {
            "embedder": asdict(EmbedderIdentity.of(own.embedder)),
            "tokenizer": {"name": own.tokenizer.name, "fingerprint": own.tokenizer.fingerprint},
            "generator": {
                "name": own.generator.name,
                "fingerprint": own.generator.fingerprint,
                "max_answer_tokens": own.config.max_answer_tokens,
            },
            "prompt": own.config.prompt.fingerprint,
            "retrieval": own.config.retrieval,
            "index": own.config.index,
            "reference": self.options.reference,
        }

    def corpus(self, data: SourceData, chunk_size: int) -> Corpus:
        """A data set's documents at one chunk size, opened when first needed; one for all over the same."""
        key = self._corpus_key(data, chunk_size)
        with self._opening:
            if key not in self._corpora:
                self._corpora[key] = open_corpus(data, chunk_size, self.evaluator.components, self.out / STORES)
            return self._corpora[key]

    def store_sizes(self, data: SourceData) -> dict[int, int]:
        """Number of chunks in each of a data set's stores that were opened, by chunk size."""
        sizes = sorted({chunk_size for _, chunk_size in self._corpora})
        keys = {size: self._corpus_key(data, size) for size in sizes}
        return {size: len(self._corpora[key].store) for size, key in keys.items() if key in self._corpora}

    def _corpus_key(self, data: SourceData, chunk_size: int) -> tuple[str, int]:
        same = f"{data.documents_fingerprint}+{data.source.distractors}"
        return data.source.stores.get(chunk_size, same), chunk_size

    def work(self, experiment: Experiment, planned: tuple[Unit, ...]) -> Iterator[Work]:
        """The questions of an experiment; data sets take turns, so that any beginning is a fair sample of all."""
        chosen = [data for data in self.data.values() if experiment.data is None or data.source.name in experiment.data]
        for turn in itertools.zip_longest(*(data.questions[: experiment.limit] for data in chosen)):
            for data, question in zip(chosen, turn, strict=True):
                if question is not None:
                    yield Work(experiment, data, question, planned)

    def keys(self, work: Work) -> dict[str, Unit]:
        """The ledger's key of each unit of a question: legible, and with digests of all that shapes its record.

        The experiment's name is no part of it: what two experiments share is done once.
        """
        of_question = (work.data.source.name, work.question.id)
        asked = work.data.question_fingerprint(work.question)
        agent = self.agent_of(work)
        keys = {}
        for unit in work.units:
            of_unit = (unit.method, unit.reranker, unit.chunk_size, unit.budget)
            keys[json.dumps((*of_question, *of_unit, asked, self._shape(unit, agent)), ensure_ascii=False)] = unit
        return keys

    def agent_of(self, work: Work) -> Assigned | None:
        """The agent of a question; None where none is configured."""
        return None if self.agents is None else self.agents.of(work.data, work.question)

    def structure_keys(self, work: Work) -> dict[str, Unit]:
        """The ledger's key of each measurement of a reranker; none where the experiment measures none."""
        measured = self._measurements.get(work.experiment.name, ())
        return {f"structure {key}": unit for key, unit in self.keys(replace(work, units=measured)).items()}

    @cached_property
    def _measurements(self) -> dict[str, tuple[Unit, ...]]:
        """What each experiment that measures structure does: one unit for each reranker, chunk size and budget."""
        bare: dict[str, Any] = {"methods": ["best_single"], "sweep": {}, "options": {}, "timing": False}
        pipeline = self.evaluator.components.config
        return {one.name: tuple(units(replace(one, **bare), pipeline)) for one, _ in self.plan if one.structure}

    def _shape(self, unit: Unit, agent: Assigned | None) -> str:
        # Units are the plan's, which outlives this, so an id stays the same unit's.
        key = id(unit), None if agent is None else agent.key
        if key not in self._shapes:
            self._shapes[key] = self.evaluator.shape(unit, agent)
        return self._shapes[key]

    def reference_key(self, work: Work) -> str:
        """The ledger's key of a question's reference."""
        name, question = work.data.source.name, work.question
        return f"reference {name} {question.id} {work.data.question_fingerprint(question)}"


@contextmanager
def opened_job(
    sources: Sequence[Source],
    experiments: Sequence[Experiment],
    config: PipelineConfig,
    out: Path,
    options: EvaluationOptions,
) -> Iterator[Job]:
    """Check the plan, then load what it needs.

    Args:
        sources: Data sets.
        experiments: What to do with them, in this order.
        config: The pipeline; its `store` is not used.
        out: Directory of the output.
        options: How it is run.

    Raises:
        InputError: No plan, or something in it that cannot be read or loaded.
    """
    check_plan(sources, experiments)
    plan = [(experiment, tuple(units(experiment, config))) for experiment in experiments]
    followers = {unit.method for _, own in plan for unit in own if find_method(unit.method).follows_agent}
    if followers and config.agent is None:
        raise InputError(
            f"the method {min(followers)} needs a checkpoint; set agent to the directory that `corag export` or "
            "`corag crossfit` wrote"
        )
    wanted = {name for experiment in experiments for name in experiment.data or [source.name for source in sources]}
    read = cache(partial(read_dataset, seed=options.seed))  # compound questions and others of one file
    data = {s.name: read_source(s, options.reference, options.seed, read) for s in sources if s.name in wanted}
    agents = None if config.agent is None else Agents.load(find_checkpoint(config.agent))
    known = {name for agent in agents.agents for name in agent.rerankers} if agents is not None else set()
    unknown = sorted(known - set(config.rerankers)) if followers else []
    if unknown:
        raise InputError(f"the agent may choose {', '.join(unknown)}, which are not configured; add them to rerankers")
    embedder, tokenizer = load_embedder(**config.embedder), load_tokenizer(config.tokenizer)
    for agent in agents.agents if agents is not None else ():
        agent.check_embedder(embedder.name, embedder.dimension, embedder.fingerprint)
    rerankers = {name: load_reranker(name, **own) for name, own in config.rerankers.items()}
    with opened_answers(out / ANSWERS, options.answers) as answers:
        generator = load_generator(**config.generator)
        answerer = Answerer(generator, answers, tokenizer, config, options.llm_concurrency)
        try:
            components = Components(config, embedder, tokenizer, rerankers, answerer.cached)
            yield Job(plan, data, Evaluator(components, answerer, options.reference), out, options, agents)
        finally:
            answerer.close()


def run_job(job: Job) -> Ledger:
    """Do what the ledger does not have yet, experiment by experiment.

    Returns:
        The ledger; it is closed and can still be read.

    Raises:
        InputError: The ledger belongs to other settings or is in use, or nothing but failures.
    """
    with Ledger(job.out / LEDGER, job.fingerprint()) as ledger:
        total = _count_pending(job, Recorder(ledger, job.options.retry_failed, lambda _: None))
        with progress_bar("evaluate", total) as advance:
            recorder = Recorder(ledger, job.options.retry_failed, advance)
            for experiment, planned in job.plan:
                workers = 1 if experiment.timing else job.options.workers
                if experiment.timing:
                    _warm_up(job, recorder, job.work(experiment, planned))
                _spread(workers, job.work(experiment, planned), lambda work: _do(job, recorder, work))
            recorder.finish()
        return ledger


def ledger_state(job: Job) -> Ledger:
    """The ledger as it is; it is closed and can still be read.

    Raises:
        InputError: There is none, it belongs to other settings, or it is in use.
    """
    path = job.out / LEDGER
    if not path.is_file():
        raise InputError(f"there is no ledger in {job.out}; run `corag evaluate` without --collect first")
    with Ledger(path, job.fingerprint()) as ledger:
        return ledger


def _warm_up(job: Job, recorder: Recorder, works: Iterator[Work]) -> None:
    """Touch each store that something pending is timed on (the first read of a mapped one is slow) and all models."""
    warm: set[tuple[str, int]] = set()
    for work in works:
        for key, unit in job.keys(work).items():
            store = work.data.source.name, unit.chunk_size
            if store not in warm and recorder.pending(key):
                warm.add(store)
                job.evaluator.warm_up(job.corpus(work.data, unit.chunk_size), work.question)
    if warm:
        with suppress(*FAILURES):  # a server may load its model when it is first asked
            job.evaluator.answerer.plain.generate("Hello", 1)


def _count_pending(job: Job, recorder: Recorder) -> int:
    keys = {
        key
        for experiment, planned in job.plan
        for work in job.work(experiment, planned)
        for key in (*job.keys(work), *job.structure_keys(work))
    }
    return sum(recorder.pending(key) for key in keys)


def _do(job: Job, recorder: Recorder, work: Work) -> None:
    """What is pending of one question, chunk size by chunk size."""
    pending = {key: unit for key, unit in job.keys(work).items() if recorder.pending(key)}
    keys = {id(unit): key for key, unit in pending.items()}
    if pending:
        reference = _reference(job, recorder, work, pending)
        if reference is not None:
            for chunk_size in dict.fromkeys(unit.chunk_size for unit in pending.values()):
                own = [unit for unit in pending.values() if unit.chunk_size == chunk_size]
                corpus = job.corpus(work.data, chunk_size)
                for outcome in job.evaluator.evaluate(corpus, work.question, reference, own, job.agent_of(work)):
                    if outcome.record is None:
                        recorder.fail(keys[id(outcome.unit)], outcome.error, work.name)
                    else:
                        recorder.add(keys[id(outcome.unit)], outcome.record)
    for key, unit in job.structure_keys(work).items():
        if recorder.pending(key):
            try:
                measured = job.evaluator.measure(job.corpus(work.data, unit.chunk_size), work.question, unit)
                recorder.add(key, asdict(measured))
            except FAILURES as error:
                recorder.fail(key, " ".join(str(error).split()), work.name)


def _reference(job: Job, recorder: Recorder, work: Work, pending: Mapping[str, Unit]) -> str | None:
    """A question's reference, which all its units wait for; None when it failed, and they with it."""
    key = job.reference_key(work)
    if key not in recorder.ledger.done:
        try:
            recorder.keep_reference(key, job.evaluator.written_reference(work.data, work.question))
        except FAILURES as error:
            for one in pending:
                recorder.fail(one, f"its reference failed: {' '.join(str(error).split())}", work.name)
            return None
    return str(recorder.ledger.done[key])


def _spread(workers: int, items: Iterator[Work], do: Callable[[Work], None]) -> None:
    """Work on several questions at a time, in their order."""
    with ThreadPoolExecutor(workers, thread_name_prefix="questions") as pool:
        running = {pool.submit(do, item) for item in itertools.islice(items, workers)}
        try:
            while running:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                running |= {pool.submit(do, item) for item in itertools.islice(items, len(finished))}
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
