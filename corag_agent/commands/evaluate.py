"""`corag evaluate`: methods × data sets × chunk sizes × budgets → records and tables."""

from __future__ import annotations

import argparse
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json, add_pipeline, check_about, check_idle, pipeline_of, warn_of_idle
from corag_agent.evaluation.intervals import RESAMPLES
from corag_agent.evaluation.narrowing import narrowed
from corag_agent.evaluation.plan import Experiment, Source
from corag_search.errors import InputError
from corag_search.pipeline_config import PipelineConfig

if TYPE_CHECKING:
    from corag_agent.evaluation.estimate import Estimate
    from corag_agent.evaluation.job import EvaluationOptions
    from corag_agent.evaluation.records import EvaluationRun

FAILURES = 1  # exit code when something failed
EXAMPLE = """  corag evaluate --config configs/evaluate.yaml --out runs/evaluation --dry-run
  corag evaluate --config configs/evaluate.yaml --out runs/evaluation
  corag evaluate --config configs/evaluate.yaml --out runs/evaluation --only main --answers runs/labels.answers.sqlite
  corag evaluate --config configs/evaluate.yaml --out runs/evaluation --take xquad.en=40 xquad.zh=10
  corag evaluate --config configs/evaluate.yaml --out runs/evaluation --collect --by domain --baseline best_single
Run it again after an interruption, or with more data sets, methods or questions: what is done is kept. While anything
is left that failed, the exit code is 1."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=list[Source], default=[], help="Data sets.")
    parser.add_argument("--runs", type=list[Experiment], default=[], help="Experiments.")
    parser.add_argument("--out", type=Path | None, default=None, help="Directory of records, ledger and stores.")
    parser.add_argument("--only", type=str, nargs="+", default=None, help="Names of the runs to take; all if left out.")
    parser.add_argument(
        "--take", type=str, nargs="+", default=None, help="Data sets to take, NAME or NAME=QUESTIONS; all if left out."
    )
    parser.add_argument("--without", type=str, nargs="+", default=[], help="Names of methods to leave out.")
    parser.add_argument("--limit", type=int | None, default=None, help="Questions of each data set and run, at most.")
    parser.add_argument("--seed", type=int, default=0, help="Of samples, composed questions, halves and resampling.")
    parser.add_argument("--reference", type=str, default="llm", help="To measure ROUGE against: llm or human.")
    parser.add_argument("--answers", type=Path, nargs="+", default=[], help="Answer caches of other runs, read too.")
    parser.add_argument("--workers", type=int, default=1, help="Questions under way at a time.")
    parser.add_argument("--llm_concurrency", type=int, default=1, help="Answers of a question asked for at a time.")
    parser.add_argument("--retry_failed", action="store_true", help="Also take up what failed before.")
    parser.add_argument("--timing", action="store_true", help="Time all runs: share nothing and generate anew.")
    parser.add_argument("--dry_run", action="store_true", help="Only estimate the work, from a probe.")
    parser.add_argument("--probe", type=int, default=1, help="With --dry_run: questions of each run and data set.")
    parser.add_argument("--collect", action="store_true", help="Evaluate nothing; write out what is done so far.")
    parser.add_argument("--baseline", type=str, default="naive_rag", help="Method that the tables compare with.")
    parser.add_argument("--by", type=str, default="dataset", help="Tables by dataset, domain, kind or language.")
    parser.add_argument("--splits", type=str, nargs="+", default=None, help="Tables of questions of these splits only.")
    parser.add_argument("--by_document", action="store_true", help="Intervals that draw documents, not questions.")
    parser.add_argument("--resamples", type=int, default=RESAMPLES, help="Of the bootstrap of each interval.")
    add_json(parser)
    add_pipeline(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> int:
    from corag_agent.evaluation.collecting import collect
    from corag_agent.evaluation.estimate import estimate_job
    from corag_agent.evaluation.job import EvaluationOptions, ledger_state, opened_job, run_job
    from corag_agent.evaluation.seen_questions import warn_of_seen
    from corag_search.registry import whole

    check_about(arguments, named, {"probe": ("dry_run",)})
    warn_of_idle(named, {"reranker"}, "on an evaluation, whose methods take all of --rerankers or those of their run")
    if arguments.collect:
        check_idle(named, {"dry_run", "retry_failed"}, "beside --collect, which evaluates nothing")
    options = EvaluationOptions(
        reference=arguments.reference,
        seed=arguments.seed,
        workers=arguments.workers,
        llm_concurrency=arguments.llm_concurrency,
        retry_failed=arguments.retry_failed,
        answers=tuple(arguments.answers),
    )
    whole("resamples", arguments.resamples)
    sources, experiments = _chosen(arguments)
    with opened_job(sources, experiments, _pipeline(arguments), _out(arguments), options) as job:
        if arguments.dry_run:
            _print_estimates(estimate_job(job, whole("probe", arguments.probe)), arguments.json, options)
            return 0
        ledger = ledger_state(job) if arguments.collect else run_job(job)
        evaluated = collect(job, ledger.done, ledger.failed)
    evaluated.write(arguments.out)
    warn_of_seen(job, evaluated if arguments.splits is None else evaluated.of_splits(arguments.splits))
    _print_run(evaluated, arguments)
    return FAILURES if (evaluated.records["error"] != "").any() else 0


def _out(arguments: argparse.Namespace) -> Path:
    if arguments.out is None:
        raise InputError("--out is required; `corag evaluate --help` shows examples")
    return arguments.out


def _pipeline(arguments: argparse.Namespace) -> PipelineConfig:
    if arguments.store is not None:
        raise InputError("store belongs to a data set here: data: [{name: …, data: …, stores: {96: DIRECTORY}}]")
    return pipeline_of(arguments)


def _chosen(arguments: argparse.Namespace) -> tuple[list[Source], list[Experiment]]:
    """The data sets and experiments that are asked for."""
    given = (arguments.only, arguments.take, arguments.without, arguments.limit)
    sources, experiments = narrowed(arguments.data, arguments.runs, *given)
    return sources, [replace(one, timing=True) for one in experiments] if arguments.timing else experiments


def _print_estimates(estimates: Sequence[Estimate], as_json: bool, options: EvaluationOptions) -> None:
    from corag_agent.evaluation.text_table import text_table

    if as_json:
        print_json({"estimate": [estimate.to_dict() for estimate in estimates]})
        return
    header = ("run", "data", "questions", "searches", "answers to make", "cached", "hours")
    counted = ("questions", "searches", "answers", "cached")
    rows: list[tuple[str, ...]] = [
        (one.run, one.dataset, *(f"{getattr(one, name):,}" for name in counted), f"{one.seconds / 3600:.2f}")
        for one in estimates
    ]
    total = [f"{sum(getattr(one, name) for one in estimates):,}" for name in counted]
    rows += [(), ("all", "", *total, f"{sum(e.seconds for e in estimates) / 3600:.2f}")]
    print_out(text_table(header, rows, "left to do, one question at a time"))
    if prepared := sorted({f"{e.dataset}: {e.prepared}" for e in estimates if e.prepared}):
        print_out(f"not in the estimate, made before the first question: {'; '.join(prepared)}")
    if options.workers > 1:
        print_out(f"{options.workers} workers share that where the machine has the cores")


def _print_run(evaluated: EvaluationRun, arguments: argparse.Namespace) -> None:
    from corag_agent.evaluation.agents import held_out_counts
    from corag_agent.evaluation.summary import experiments
    from corag_agent.evaluation.summary_text import (
        json_structure,
        json_tables,
        printed_tables,
        structure_text,
        tables_of,
    )

    failed = int((evaluated.records["error"] != "").sum())
    if arguments.splits is not None:
        evaluated = evaluated.of_splits(arguments.splits)
    resamples = arguments.resamples
    settings = {name: getattr(arguments, name) for name in ("seed", "by_document", "resamples")}
    by = (arguments.by,)
    tables = {name: tables_of(evaluated, name, arguments.baseline, by, **settings) for name in experiments(evaluated)}
    counts_of_agents = held_out_counts(evaluated.records)
    if arguments.json:
        json_of = {name: json_tables(one) for name, one in tables.items()}
        counts = {"records": len(evaluated), "failed": failed, "agents": counts_of_agents}
        structure = json_structure(evaluated, resamples)
        print_json({"out": str(arguments.out), **counts, "tables": json_of, "structure": structure})
        return
    for name, one in tables.items():
        print_out("\n\n".join(printed_tables(one, name, arguments.baseline, by)))
    if evaluated.structure is not None:
        print_out(structure_text(evaluated, resamples))
    for error, group in evaluated.records[evaluated.records["error"] != ""].groupby("error"):
        print_out(f"failed, {len(group)} record(s): {', '.join(group['method'].unique())}: {error}")
    if counts_of_agents is not None:
        print_out(
            f"agents: {counts_of_agents['held_out']} questions by the one of their own fold, "
            f"{counts_of_agents['unseen']} that none has seen"
        )
    left = f", {failed} failed (--retry-failed takes them up)" if failed else ""
    print_out(f"{len(evaluated.questions)} questions, {len(evaluated):,} records{left} → {arguments.out}")
