"""`corag label`: grid searches and answers → label table."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence, Set
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.label_tables import ABOUT, add_tables, print_selection, run_on_tables
from corag_agent.commands.parser import add_json, add_pipeline, check_about, check_store, pipeline_of, warn_of_idle
from corag_search.agent_format import SETTINGS
from corag_search.errors import InputError
from corag_search.pipeline_config import PipelineConfig
from data_prep.dataset import Dataset, Question
from data_prep.estimate import PROBED, TokenPrice, Work, work_rows
from data_prep.grid import LabelGrid
from data_prep.job_options import JobOptions
from data_prep.readers import ReaderOptions

if TYPE_CHECKING:
    from data_prep.label_run import LabelRun

# Options of a pipeline in whose place all rerankers and the grid stand.
VARIED = {"reranker", "prior", "agent", *(f"search.{name}" for name in SETTINGS)}
# Options that shaped the orders of a table, which --rescore scores anew.
SETTLED = {"grid", "rerankers", "search", "candidates", "retrieval", "index", "embedder"}
FAILURES = 1  # exit code when questions are left that failed
EXAMPLE = """  corag label --data demo --out runs/labels.parquet
  corag label --config configs/local.yaml --data squad:dev.json --limit 50 --out runs/labels.parquet
  corag label --config configs/local.yaml --data squad:dev.json --compose 150 --out runs/compound.parquet
  corag label --config configs/local.yaml --data files:handbook --synthesise 200 --out runs/handbook.parquet
  corag label --data squad:dev.json --skip runs/labels.parquet --limit 100 --out runs/more.parquet
  corag label --data squad:dev.json --out runs/labels.parquet --dry-run --price.prompt 0.5 --price.answer 1.5
  corag label --config configs/paper.yaml --data squad:dev.json --out runs/paper.parquet --llm-concurrency 32
  corag label --data squad:dev.json --rescore runs/labels.parquet --references llm,human --out runs/both.parquet
  corag label --select runs/labels.parquet --gain_mode absolute --minimum_gain 0.05
  corag label --merge runs/english.parquet runs/chinese.parquet --out runs/all.parquet
  corag label --merge runs/all.parquet --without_texts --out published/all.parquet
Run it again after an interruption: finished questions are kept. Those that failed are passed over until --retry-failed
takes them up; while any is left, the exit code is 1."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=str | None, default=None, help="FORMAT:PATH with questions and gold passages.")
    parser.add_argument("--out", type=Path | None, default=None, help="The table, ending in .parquet.")
    parser.add_argument("--limit", type=int | None, default=None, help="Label a sample of this many questions.")
    parser.add_argument(
        "--compose",
        type=int | None,
        default=None,
        help="Label this many compound questions, each joined from two or three of one document, and no others.",
    )
    parser.add_argument(
        "--synthesise",
        type=int | None,
        default=None,
        help="Label this many questions that the generator writes about chunks of the documents, and no others.",
    )
    parser.add_argument("--seed", type=int, default=0, help="Of samples, new questions and splits.")
    parser.add_argument("--references", type=str, default="llm", help="To score against: llm, human or llm,human.")
    parser.add_argument("--dry_run", action="store_true", help="Only estimate the work, from a probe.")
    parser.add_argument("--probe", type=int, default=PROBED, help="Questions that --dry_run labels; they are kept.")
    add_tables(parser)
    parser.add_argument(
        "--skip",
        type=Path,
        nargs="+",
        default=(),
        help="Leave out the questions that these tables have of the same data; --merge joins old and new.",
    )
    parser.add_argument("--retry_failed", action="store_true", help="Take up the questions that failed, and no others.")
    parser.add_class_arguments(JobOptions, None, skip={"references", "retry_failed", "seed"})
    parser.add_class_arguments(TokenPrice, "price")
    parser.add_class_arguments(ReaderOptions, "reader")
    parser.add_class_arguments(LabelGrid, "grid")
    add_json(parser)
    add_pipeline(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> int:
    from data_prep.label_job import estimate_label_job, run_label_job
    from data_prep.readers import read_dataset
    from data_prep.rescoring import questions_of

    check_about(arguments, named, ABOUT)
    if run_on_tables(arguments, named):
        return 0
    warn_of_idle(named, VARIED, "on labels, which compare all of --rerankers at every point of --grid")
    if arguments.rescore is not None:
        warn_of_idle(named, SETTLED, "beside --rescore, whose table settles it")
    for name in ("data", "out"):
        if getattr(arguments, name) is None:
            raise InputError(f"--{name} is required to label; `corag label --help` shows examples")
    config, options = pipeline_of(arguments), _options(arguments)
    if config.store is not None and arguments.synthesise is None:  # whose questions are of chunks cut anew
        check_store(config.store, config, named)
    dataset = read_dataset(arguments.data, arguments.reader, seed=arguments.seed)
    made = _new_questions(arguments, dataset)
    questions = made or _usable(dataset, options) or dataset.questions
    if options.rescored is not None:
        questions = questions_of(options.rescored, questions)
    if made:
        dataset = replace(dataset, questions=(*dataset.questions, *made))
    questions = _left_of(questions, dataset, arguments.skip)
    chosen = replace(dataset, questions=questions).select(arguments.limit, arguments.seed)
    if options.rescored is None:
        _warn_of_one_reranker(config)
    job = (dataset, chosen.questions, config, arguments.grid, arguments.out, options)
    if arguments.dry_run:
        _print_estimate(estimate_label_job(*job, probe=arguments.probe), arguments, options)
        return 0
    done = run_label_job(*job)
    _print_run(done, arguments, options)
    return FAILURES if done.failures else 0


def _warn_of_one_reranker(config: PipelineConfig) -> None:
    if len(config.rerankers) == 1:
        warnings.warn(
            f"rerankers names only {next(iter(config.rerankers))}, so an agent trained on these labels has no reranker "
            "to choose; name all that it is to choose among",
            stacklevel=3,
        )


def _options(arguments: argparse.Namespace) -> JobOptions:
    given = {field.name: getattr(arguments, field.name) for field in fields(JobOptions)}
    return JobOptions(**given | {"references": tuple(arguments.references.split(","))})


def _usable(dataset: Dataset, options: JobOptions) -> tuple[Question, ...]:
    """The questions that have what they are scored against."""
    from data_prep.scoring import HUMAN, LLM

    return tuple(
        question
        for question in dataset.questions
        if (LLM not in options.references or question.gold_passages)
        and (HUMAN not in options.references or question.answers)
    )


def _left_of(questions: tuple[Question, ...], dataset: Dataset, skip: Sequence[Path]) -> tuple[Question, ...]:
    """The questions that none of the tables has."""
    from data_prep.merge import labelled_in

    labelled = {question_id for path in skip for question_id in labelled_in(path, dataset)}
    left = tuple(question for question in questions if question.id not in labelled)
    if questions and not left:
        raise InputError(f"skip leaves nothing to label: its tables have all {len(questions)} questions")
    return left


def _hours(work: Work, options: JobOptions) -> float:
    return work.hours(options.workers, options.llm_concurrency, options.in_flight)


def _print_estimate(work: Work, arguments: argparse.Namespace, options: JobOptions) -> None:
    from corag_agent.evaluation.text_table import text_table

    hours = _hours(work, options)
    if arguments.json:
        print_json({"estimate": work.to_dict(hours, arguments.price)})
        return
    print_out(text_table(("left to do", "estimate"), work_rows([(work, hours)], arguments.price)))


def _print_run(done: LabelRun, arguments: argparse.Namespace, options: JobOptions) -> None:
    from corag_agent.evaluation.text_table import text_table
    from data_prep.selection import choose_labels

    estimated, took = _comparison(done, arguments.grid)
    compared = {"estimate": (estimated, _hours(estimated, options)), "took": (took, done.seconds / 3600)}
    if arguments.json:
        counts = {"evaluations": done.evaluations, "answers": done.answers, "failed": dict(done.failures)}
        works = {name: work.to_dict(hours, arguments.price) for name, (work, hours) in compared.items()}
        print_json({"labels": str(arguments.out), "questions": len(done.table), **counts, **works})
        return
    print_selection(choose_labels(done.table))
    if done.labelled:
        print_out(text_table(("this run", *compared), work_rows(compared.values(), arguments.price)))
    for question, error in done.failures.items():
        print_out(f"failed: {question}: {error}")
    failed = f", {len(done.failures)} failed (--retry-failed takes them up)" if done.failures else ""
    work = f"{done.evaluations:,} evaluations, {done.answers:,} answers"
    print_out(f"{len(done.table)} questions{failed}, {work} → {arguments.out}")


def _comparison(done: LabelRun, grid: LabelGrid) -> tuple[Work, Work]:
    """What the first questions of the ledger, as a dry run takes them, promised for this run; what it was."""
    took = Work.of([done.records[question] for question in done.labelled], grid)
    measured = [record for record in done.records.values() if "usage" in record]
    return Work.of(measured[:PROBED], grid).scaled(round(took.questions)), took


def _new_questions(arguments: argparse.Namespace, dataset: Dataset) -> tuple[Question, ...]:
    """The compound or synthetic questions to label in place of the data set's own; none without such an option."""
    from data_prep.compose import compose_questions
    from data_prep.label_job import answers_path
    from data_prep.label_run import check_table_name
    from data_prep.synthesise import synthesise_for_job

    if arguments.compose is not None and arguments.synthesise is not None:
        raise InputError("compose and synthesise were both given; label their questions into two tables")
    if arguments.compose is not None:
        return compose_questions(dataset, arguments.compose, arguments.seed)
    if arguments.synthesise is not None:
        check_table_name(arguments.out)
        answers = answers_path(arguments.rescore or arguments.out)
        return synthesise_for_job(dataset, pipeline_of(arguments), arguments.synthesise, answers, arguments.seed)
    return ()
