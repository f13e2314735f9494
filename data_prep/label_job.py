"""A labelling job as `corag label` does it: everything loaded from the configuration, with progress."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from corag_search.embedders import load_embedder
from corag_search.embedders.base import Embedder
from corag_search.errors import InputError
from corag_search.generators import load_generator
from corag_search.pipeline_config import PipelineConfig
from corag_search.registry import whole
from corag_search.rerankers import load_reranker
from corag_search.store import VectorStore
from corag_search.tokenizers import Tokenizer, load_tokenizer
from data_prep.answers import AnswerCache, Answers, CachedGenerator
from data_prep.corpus import kept_store, planned_store
from data_prep.dataset import Dataset, Question
from data_prep.engines import Engine, LocalEngine
from data_prep.estimate import PROBED, Work
from data_prep.grid import LabelGrid
from data_prep.job_options import EngineName, JobOptions
from data_prep.label_run import LabelRun, check_job, label_questions, ledger_path, probe_questions
from data_prep.labelling import Labeller, candidates_fingerprint
from data_prep.ledger import check_known
from data_prep.progress import progress_bar
from data_prep.ray_engine import LoadScorer, RayEngine
from data_prep.rescoring import Rescorer, candidate_chunks
from data_prep.table import LabelTable


def run_label_job(
    dataset: Dataset,
    questions: Sequence[Question],
    config: PipelineConfig,
    grid: LabelGrid,
    out: Path,
    options: JobOptions | None = None,
) -> LabelRun:
    """Label questions of a data set.

    Args:
        dataset: The corpus, and all questions (splits are made over all of them).
        questions: Those to label.
        config: Components and search settings; its `rerankers` are compared.
        grid: Settings to try.
        out: The table's path, ending in `.parquet`; the generator's answers are kept beside it, and the store where
            none is configured.
        options: How the job is run.

    Raises:
        InputError: As `label_questions`, or a component that cannot be loaded.
    """
    options = options or JobOptions()
    with (
        _engine(dataset, questions, config, grid, out, options) as engine,
        progress_bar("label questions", len(questions)) as advance,
    ):
        return label_questions(
            engine,
            dataset,
            questions,
            out,
            seed=options.seed,
            split_by=options.split_by,
            retry_failed=options.retry_failed,
            progress=lambda _: advance(1),
        )


def estimate_label_job(
    dataset: Dataset,
    questions: Sequence[Question],
    config: PipelineConfig,
    grid: LabelGrid,
    out: Path,
    options: JobOptions | None = None,
    probe: int = PROBED,
) -> Work:
    """What labelling the questions that are not done will take, going by a few that are labelled now.

    Those stay in the ledger, where the job finds them. Arguments as of `run_label_job`.

    Args:
        dataset: The corpus, and all questions.
        questions: Those to label.
        config: Components and search settings.
        grid: Settings to try.
        out: The table's path; only ledger, answers and, where none is configured, the store are written.
        options: How the job will be run.
        probe: Questions to go by.

    Raises:
        InputError: As `run_label_job`.
    """
    options = options or JobOptions()
    count = whole("probe", probe)
    with (
        _engine(dataset, questions, config, grid, out, options) as engine,
        progress_bar("label a probe", count) as advance,
    ):
        records, left = probe_questions(
            engine, questions, out, count, retry_failed=options.retry_failed, progress=lambda _: advance(1)
        )
    return Work.of(records.values(), grid).scaled(left)


def load_labeller(
    dataset: Dataset,
    config: PipelineConfig,
    grid: LabelGrid,
    out: Path,
    references: tuple[str, ...],
    samples: int,
    answers: Answers,
) -> Labeller:
    """A labeller with everything loaded, and a store that is built, and kept, where none is configured.

    Args:
        dataset: The corpus, and all questions.
        config: Components and search settings.
        grid: Settings to try.
        out: The table's path.
        references: What answers are scored against.
        samples: Answers to each prompt; the generator is loaded as many times, with a seed of its own each time.
        answers: Keeps what the generator answers.

    Raises:
        InputError: A component that cannot be loaded, samples without temperature or seed, or, where a store has to be
            built, a ledger of other settings.
    """
    tokenizer, embedder = load_tokenizer(config.tokenizer), load_embedder(**config.embedder)
    if config.store is None:
        _check_ledger(dataset, config, grid, out, embedder, tokenizer)
    scoring = _scoring(dataset, config, tokenizer, references, samples, answers)
    rerankers = [load_reranker(name, **options) for name, options in config.rerankers.items()]
    if config.store is None:
        store = kept_store(dataset, config, store_path(out), embedder, tokenizer)
    else:
        store = VectorStore.load(config.store)
    return Labeller(**scoring, store=store, embedder=embedder, rerankers=rerankers, grid=grid)


def load_rescorer(
    dataset: Dataset,
    config: PipelineConfig,
    table: LabelTable,
    references: tuple[str, ...],
    samples: int,
    answers: Answers,
) -> Rescorer:
    """What scores the orders of a table anew; neither embedder nor rerankers are loaded.

    Args:
        dataset: The corpus, and all questions.
        config: Prompt, generator and chunking are used, and the store where one is configured.
        table: Whose orders.
        references: As of `load_labeller`, as are the next two.
        samples: Answers to each prompt.
        answers: Keeps what the generator answers.

    Raises:
        InputError: The table was made of other data or chunks, or as `load_labeller`.
    """
    tokenizer = load_tokenizer(config.tokenizer)
    chunks = candidate_chunks(table, dataset, config, tokenizer)
    scoring = _scoring(dataset, config, tokenizer, references, samples, answers)
    rescorer = Rescorer(**scoring, table=table, chunks=chunks)
    differing = [k for k in ("generator", "prompt") if table.fingerprint.get(k) != rescorer.fingerprint()[k]]
    if differing:
        warnings.warn(
            f"the label table was answered with another {' and another '.join(differing)}, so none of its answers can "
            "be used again",
            stacklevel=2,
        )
    return rescorer


def _scoring(
    dataset: Dataset,
    config: PipelineConfig,
    tokenizer: Tokenizer,
    references: tuple[str, ...],
    samples: int,
    answers: Answers,
) -> dict[str, Any]:
    """What a `Scorer` of any kind is made of, with the generator of each sample loaded."""
    generator, *samplers = (
        CachedGenerator(load_generator(**{**config.generator, **seed}), answers) for seed in _seeds(config, samples)
    )
    return {
        "dataset": dataset,
        "generator": generator,
        "tokenizer": tokenizer,
        "config": config,
        "references": references,
        "samplers": tuple(samplers),
    }


def _seeds(config: PipelineConfig, samples: int) -> list[dict[str, int]]:
    """The option `seed` of the generator of each sample; the first has the configured one."""
    options = config.generator
    if samples == 1:
        return [{}]
    if not options.get("temperature"):
        raise InputError(
            f"{samples} samples of one answer would be equal at temperature 0; give the generator a temperature, such "
            "as --generator.temperature 0.7, or ask for one sample"
        )
    first = options.get("seed", 0)
    if first is None:
        raise InputError(f"{samples} samples need seeds to be repeatable, generator.seed is null; give a number")
    return [{"seed": whole("generator.seed", first, least=0) + sample} for sample in range(samples)]


@contextmanager
def _engine(
    dataset: Dataset,
    questions: Sequence[Question],
    config: PipelineConfig,
    grid: LabelGrid,
    out: Path,
    options: JobOptions,
) -> Iterator[Engine]:
    """The engine, loaded once the job is known to make sense; a cache of answers that stayed empty is removed."""
    check_job(questions, out, options.references)
    _seeds(config, options.samples)
    path = answers_path(out)
    if options.engine == EngineName.RAY and config.store is None and options.rescore is None:
        embedder, tokenizer = load_embedder(**config.embedder), load_tokenizer(config.tokenizer)
        _check_ledger(dataset, config, grid, out, embedder, tokenizer)
        kept_store(dataset, config, store_path(out), embedder, tokenizer)  # now: the workers only read it
        config = replace(config, store=str(store_path(out)))
    load = _loader(dataset, config, grid, out, options)
    try:
        with _on_ray(load, path, options) if options.engine == EngineName.RAY else _here(load, path, options) as engine:
            if options.rescore is not None:
                _take_over(answers_path(options.rescore), path)  # now: a job that is refused leaves no copy
            yield engine
    finally:
        _remove_if_empty(path)


def _loader(dataset: Dataset, config: PipelineConfig, grid: LabelGrid, out: Path, options: JobOptions) -> LoadScorer:
    """What loads the scorer, once the cache of answers is known."""
    scoring = (options.references, options.samples)
    if options.rescore is not None and options.rescore.resolve() == out.resolve():
        raise InputError(f"{out} would be scored into itself; give the new table another name with --out")
    if options.rescored is None:
        return partial(load_labeller, dataset, config, grid, out, *scoring)
    return partial(load_rescorer, dataset, config, options.rescored, *scoring)


def _take_over(answers: Path, path: Path) -> None:
    """Copy what the answers of another table's generator are, if they lie where they were written."""
    if answers.is_file():
        with AnswerCache(path) as cache:
            cache.take_over(answers)


@contextmanager
def _here(load: LoadScorer, path: Path, options: JobOptions) -> Iterator[Engine]:
    with AnswerCache(path) as cache:
        scorer = load(cache)
        try:
            yield LocalEngine(scorer, options.workers, options.llm_concurrency)
        finally:
            for generator in (scorer.generator, *scorer.samplers):
                generator.close()


@contextmanager
def _on_ray(load: LoadScorer, path: Path, options: JobOptions) -> Iterator[Engine]:
    engine = RayEngine(
        load,
        path.absolute(),
        workers=options.workers,
        llm_concurrency=options.llm_concurrency,
        address=options.ray_address,
        cpus=options.worker_cpus,
        gpus=options.worker_gpus,
    )
    try:
        yield engine
    finally:
        engine.close()


def answers_path(out: Path) -> Path:
    """Where the answers of a table's generator lie."""
    return out.with_name(f"{out.stem}.answers.sqlite")


def store_path(out: Path) -> Path:
    """Where the store of a table lies for which none is configured.

    Not `NAME.store`, which may well be a user's own.
    """
    return out.absolute().with_name(f"{out.stem}.chunks.store")


def _check_ledger(
    dataset: Dataset, config: PipelineConfig, grid: LabelGrid, out: Path, embedder: Embedder, tokenizer: Tokenizer
) -> None:
    """Refuse a ledger of other settings before a corpus is embedded for nothing (InputError)."""
    planned = planned_store(config, embedder)
    check_known(ledger_path(out), candidates_fingerprint(dataset, config, grid, tokenizer, planned))


def _remove_if_empty(path: Path) -> None:
    if not path.is_file():
        return
    # A file of something else is left alone, and a full disk must not hide how the job ended.
    with suppress(InputError, sqlite3.Error), AnswerCache(path) as cache:
        cache.remove_if_empty()
