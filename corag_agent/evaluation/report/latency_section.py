"""The section on time: means by stage in the plots, percentiles in the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from corag_agent.evaluation.records import STAGES
from corag_agent.evaluation.report.cells import groups_of, in_method_order
from corag_agent.evaluation.report.plots import stacked_bars
from corag_agent.evaluation.report.report_table import Column, ReportTable, Row
from corag_agent.evaluation.report.section import Plot, Section
from corag_agent.evaluation.report.wording import MISSING, STAGE_NAMES, method_name, milliseconds, number, way_name

LLM, TOTAL = "generate", "total"


def latency_section(latency: pd.DataFrame) -> Section | None:
    """Time by stage, for each data set and setting; None where nothing was timed.

    Args:
        latency: Rows of `latency_table` without variants.
    """
    plots: list[Plot] = []
    tables: list[ReportTable] = []
    for (run, dataset, size, budget), part in groups_of(latency, ["run", "dataset", "chunk_size", "budget"]):
        if not (part["stage"] == "search").any():  # other stages are known of every run
            continue
        where = f"{dataset}, chunks of {size}, budget {budget} ({run})"
        plots += _plots(part, where)
        tables.append(_table(part, where))
    if not tables:
        return None
    text = (
        "From the text of a question to its answer. Where one method has several rerankers, a bar is their mean. "
        "Answers that came from a cache are not timed."
    )
    return Section("latency", "Time", text, tuple(plots), tuple(tables))


def _plots(part: pd.DataFrame, where: str) -> list[Plot]:
    """Bars with the LLM's answer, and, since that outweighs all else, without."""
    means = part.groupby(["method", "stage"])["mean"].mean()
    order = dict.fromkeys(in_method_order(part)["method"])
    bars = [
        (method_name(method), [float(means.get((method, stage), math.nan)) for stage in STAGES]) for method in order
    ]
    own = tuple(stage for stage in STAGES if stage != LLM)
    whole = [_plot(f"Time by stage: {where}", STAGES, bars)]
    if (part["stage"] == LLM).any():
        without = [(name, lengths[: len(own)]) for name, lengths in bars]
        whole.append(_plot(f"Time before the LLM's answer: {where}", own, without))
    return whole


def _plot(title: str, stages: Sequence[str], bars: Sequence[tuple[str, Sequence[float]]]) -> Plot:
    names = [STAGE_NAMES[stage] for stage in stages]
    sums = (f"{name} {number(sum(value for value in lengths if math.isfinite(value)), 3)}" for name, lengths in bars)
    svg = stacked_bars(bars, names, "seconds for one question, mean", f"{title}, in seconds. {'; '.join(sums)}.")
    used = [series for series in range(len(stages)) if any(math.isfinite(lengths[series]) for _, lengths in bars)]
    return Plot(title, svg, tuple((series, names[series]) for series in used), bars=True)


def _table(part: pd.DataFrame, where: str) -> ReportTable:
    stages = [stage for stage in (*STAGES, TOTAL) if (part["stage"] == stage).any()]
    columns = [Column("method · reranker", numeric=False), Column("questions")]
    for stage in stages:
        group = STAGE_NAMES.get(stage, stage)
        columns += [Column("p50", group), Column("p95", group)]
    rows = []
    for (method, reranker), found in groups_of(in_method_order(part), ["method", "reranker"]):
        by_stage = {row["stage"]: row for _, row in found.iterrows()}
        cells = [way_name(method, reranker), f"{int(found['questions'].max()):,}"]
        for stage in stages:
            row = by_stage.get(stage)
            cells += [MISSING] * 2 if row is None else [milliseconds(row["p50"]), milliseconds(row["p95"])]
        rows.append(Row(tuple(cells)))
    return ReportTable(f"Milliseconds by stage: {where}", tuple(columns), tuple(rows))
