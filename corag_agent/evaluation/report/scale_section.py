"""The section on scale: time against the number of chunks, where one data set was asked of several stores."""

from __future__ import annotations

import pandas as pd

from corag_agent.evaluation.intervals import bootstrap_mean, paired_ratio
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.cells import TABLE_BELOW, groups_of
from corag_agent.evaluation.report.plots import Line, Measured, line_plot
from corag_agent.evaluation.report.report_table import Column, ReportTable, Row
from corag_agent.evaluation.report.section import Plot, Section, legend_of
from corag_agent.evaluation.report.store_sizes import timed_families
from corag_agent.evaluation.report.wording import (
    MISSING,
    NAIVE,
    interval_text,
    milliseconds,
    number,
    signed_percent,
    way_name,
)

_COLUMNS = (
    Column("method · reranker", numeric=False),
    Column("questions"),
    Column("retrieve", "milliseconds"),
    Column("choose chunks", "milliseconds"),
    Column("before the answer", "milliseconds"),
    Column("with the answer", "milliseconds"),
    Column("more than NaiveRAG", "with the answer"),
    Column("95 %", "with the answer"),
    Column("ROUGE-L"),
)


def scale_section(run: EvaluationRun, resamples: int) -> Section | None:
    """Times of each method over the number of chunks; None where no data set was timed with several stores.

    Args:
        run: What `corag evaluate` wrote; its settings tell how large the stores are.
        resamples: Of the intervals.
    """
    plots: list[Plot] = []
    tables: list[ReportTable] = []
    for _, where, part in timed_families(run):
        plots.append(_plot(part, "before", f"Milliseconds before the answer: {where}", resamples))
        plots.append(_plot(part, "total", f"Milliseconds with the answer: {where}", resamples))
        tables.append(_table(part, f"Time by the number of chunks: {where}", resamples))
    if not tables:
        return None
    text = (
        "The same questions asked of the same documents among more and more made-up chunks, each mixed of two real "
        "ones. Means over questions, with 95 % bootstrap intervals; NaiveRAG with the same reranker is the plain "
        "pipeline."
    )
    return Section("scale", "Size of the store", text, tuple(plots), tuple(tables))


def _plot(part: pd.DataFrame, column: str, title: str, resamples: int) -> Plot:
    lines = []
    for way, rows in groups_of(part, ["method", "reranker"]):
        groups = [(at, found[column]) for (at,), found in groups_of(rows.sort_values("chunks"), ["chunks"])]
        means = [bootstrap_mean(1000 * seconds, resamples=resamples) for _, seconds in groups]
        measured = tuple(Measured(mean.mean, mean.low, mean.high) for mean in means)
        lines.append(Line(way_name(*way), tuple(float(at) for at, _ in groups), measured))
    svg = line_plot(lines, "chunks in the store", "ms", f"{title}. {TABLE_BELOW}", zero=True, logarithmic=True)
    return Plot(title, svg, legend_of([line.name for line in lines]))


def _table(part: pd.DataFrame, caption: str, resamples: int) -> ReportTable:
    rows = []
    for (count,), at in groups_of(part.sort_values("chunks", kind="stable"), ["chunks"]):
        for (method, reranker), own in groups_of(at, ["method", "reranker"]):
            seconds = (own["seconds_retrieve"], own["seconds_search"], own["before"], own["total"])
            times = [milliseconds(float(spent.mean())) for spent in seconds]
            plain = at[(at["method"] == NAIVE) & (at["reranker"] == reranker)]
            more = [MISSING, MISSING] if method == NAIVE else _more(own, plain, resamples)
            cells = (way_name(method, reranker), f"{len(own):,}", *times, *more, number(own["rougeL"].mean()))
            rows.append(Row(cells, f"{count:,} chunks"))
    return ReportTable(caption, _COLUMNS, tuple(rows))


def _more(own: pd.DataFrame, plain: pd.DataFrame, resamples: int) -> list[str]:
    """By how much a method takes longer than the plain pipeline on the same questions, and the interval."""
    both = own.merge(plain, on="question_id", suffixes=("", "_plain"))
    if both.empty:
        return [MISSING, MISSING]
    more = paired_ratio(both["total"], both["total_plain"], resamples=resamples)
    return [signed_percent(more.mean), interval_text(more.low, more.high, signed_percent)]
