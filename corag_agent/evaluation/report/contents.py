"""What a report consists of, whatever it is written as: headline figures, sections, and facts about the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from corag_agent.evaluation.intervals import RESAMPLES
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.cases import Cases, cases_of
from corag_agent.evaluation.report.cells import fullest_runs, groups_of, in_method_order
from corag_agent.evaluation.report.figures import Figure, figures_of
from corag_agent.evaluation.report.latency_section import latency_section
from corag_agent.evaluation.report.method_sections import group_section, methods_section
from corag_agent.evaluation.report.order_section import orders_section
from corag_agent.evaluation.report.report_table import Column, ReportTable, Row
from corag_agent.evaluation.report.scale_section import scale_section
from corag_agent.evaluation.report.section import Section
from corag_agent.evaluation.report.store_sizes import larger_stores
from corag_agent.evaluation.report.varied_sections import (
    budgets_section,
    rerankers_section,
    structure_section,
    sweeps_section,
)
from corag_agent.evaluation.report.wording import METHODS, ORDER, counted, method_name, way_name
from corag_agent.evaluation.summary import experiments, latency_table, method_table, structure_table

GROUPS = {"kind": "Kinds of questions", "domain": "Domains"}


@dataclass(frozen=True, slots=True)
class Contents:
    """A report before it is written.

    Attributes:
        figures: The headline.
        sections: In order.
        facts: About the run, by name.
        cases: None where there is nothing to compare.
    """

    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    facts: Mapping[str, str]
    cases: Cases | None = None


def contents_of(run: EvaluationRun, resamples: int = RESAMPLES) -> Contents:
    """Work out everything that a report says.

    Args:
        run: What `corag evaluate` wrote.
        resamples: Of the intervals.

    Raises:
        InputError: The run has no records and no structure.
    """
    if run.succeeded.empty and (len(run) or run.structure is not None):
        alone = (structure_section(structure_table(run, resamples=resamples)), _failures_section(run))
        return Contents((), tuple(filter(None, alone)), _facts(run))
    # Made-up chunks are there to see how time grows, and for nothing else.
    larger = set().union(*larger_stores(run).values())
    main = run.of_datasets(set(run.records["dataset"]) - larger) if larger else run
    methods = _of_all(main, method_table, experiments(main), resamples=resamples)
    fixed = _fixed(methods)
    compared = fixed[~fixed["method"].str.startswith(ORDER)]
    sections = [
        methods_section(compared),
        *(_grouped(main, compared, by, resamples) for by in GROUPS),
        budgets_section(compared),
        rerankers_section(compared),
        latency_section(_fixed(_of_all(main, latency_table, experiments(main)))),
        scale_section(run, resamples),
        sweeps_section(methods),
        orders_section(main, fixed, resamples),
        structure_section(structure_table(main, resamples=resamples)),
        _failures_section(run),
        _methods_named(fixed),
    ]
    figures = tuple(figures_of(run, resamples))
    return Contents(figures, tuple(filter(None, sections)), _facts(run), cases_of(main))


def _of_all(
    run: EvaluationRun, table: Callable[..., pd.DataFrame], names: Iterable[str], **options: Any
) -> pd.DataFrame:
    """A table of several experiments, whose names stand in the column `run`."""
    return pd.concat([table(run, name, **options).assign(run=name) for name in names], ignore_index=True)


def _grouped(run: EvaluationRun, compared: pd.DataFrame, by: str, resamples: int) -> Section | None:
    """The section by kind or domain; worked out for the runs that it shows only."""
    shown = dict.fromkeys(name for _, name, _ in fullest_runs(compared, "method"))
    if not shown:
        return None
    table = _fixed(_of_all(run, method_table, shown, by=("dataset", by), resamples=resamples))
    return group_section(table[~table["method"].str.startswith(ORDER)], by, GROUPS[by])


def _fixed(table: pd.DataFrame) -> pd.DataFrame:
    """Rows in which no setting is varied."""
    return table[table["variant"] == ""]


def _facts(run: EvaluationRun) -> dict[str, str]:
    records = run.records
    sizes = run.asked.groupby("dataset")["question_id"].nunique()
    failed = int((records["error"] != "").sum())
    facts = {
        "data": ", ".join(f"{dataset} ({counted(int(size), 'question')})" for dataset, size in sizes.items()),
        "methods": f"{records['method'].nunique()}",
        "chunk sizes": ", ".join(map(str, sorted(run.asked["chunk_size"].unique()))),
        "budgets": ", ".join(map(str, sorted(run.asked["budget"].unique()))),
        "records": f"{len(records):,}",
    }
    return facts | ({"failed": f"{failed:,}"} if failed else {})


def _failures_section(run: EvaluationRun) -> Section | None:
    """Records without an answer, with the first error of each kind; None without such."""
    failed = run.records[run.records["error"] != ""]
    if failed.empty:
        return None
    columns = [Column("method", numeric=False), Column("failed"), Column("first error", numeric=False)]
    rows = []
    for (run_name, dataset), part in groups_of(failed, ["run", "dataset"]):
        for way, found in groups_of(in_method_order(part), ["method", "reranker", "variant"]):
            first = found.iloc[0]
            error = f"{first['question_id']}: {first['error']}"
            rows.append(Row((way_name(*way), f"{len(found):,}", error), f"{dataset} ({run_name})"))
    table = ReportTable("Records that failed", tuple(columns), tuple(rows))
    text = "They count in no mean and in no comparison."
    return Section("failures", "Failures", text, (), (table,))


def _methods_named(methods: pd.DataFrame) -> Section | None:
    used = dict.fromkeys(in_method_order(methods)["method"])
    rows = [Row((method_name(method), method, METHODS[method][1])) for method in used if method in METHODS]
    if not rows:
        return None
    columns = tuple(Column(name, numeric=False) for name in ("method", "in files", "what it is"))
    return Section("names", "What the methods are", "", (), (ReportTable("Methods", columns, tuple(rows)),))
