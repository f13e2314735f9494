"""The section on order: the chunks of the tree search in the order it found against the same ones in others."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from corag_agent.evaluation.intervals import Interval, paired_bootstrap
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.cells import (
    TABLE_BELOW,
    asked,
    groups_of,
    in_method_order,
    off_note,
    rerankers_of,
    score_cells,
    score_columns,
    single_rows,
)
from corag_agent.evaluation.report.plots import Measured, interval_plot
from corag_agent.evaluation.report.report_table import Column, ReportTable, Row
from corag_agent.evaluation.report.section import Plot, Section, legend_of
from corag_agent.evaluation.report.wording import MISSING, TREE, interval_text, number, signed
from corag_agent.evaluation.summary import shared_questions

_ORDERS = {TREE: "as found", "order_reversed": "reversed", "order_random": "random", "order_document": "document"}
_LESS, _ENDS = "found less this", "its 95 %"
_SETTING = ["run", "dataset", "chunk_size", "budget"]

Way = tuple[str, str]  # method and reranker


def orders_section(run: EvaluationRun, methods: pd.DataFrame, resamples: int) -> Section | None:
    """The same chunks in other orders; None where none was tried.

    Args:
        run: What `methods` is about; orders are compared question by question.
        methods: Rows of `method_table` without variants.
        resamples: Of the intervals of differences.
    """
    plots: list[Plot] = []
    tables: list[ReportTable] = []
    records = shared_questions(run.records)
    records = records[(records["variant"] == "") & (records["error"] == "") & records["method"].isin(list(_ORDERS))]
    for setting, part in groups_of(methods, _SETTING):
        shown = single_rows(in_method_order(part[part["method"].isin(list(_ORDERS))]))
        if shown["method"].nunique() < 2:
            continue
        name, dataset, size, budget = setting
        where = f"{dataset}, budget {budget}, chunks of {size}"
        pairs = _pairs(records[(records[_SETTING] == list(setting)).all(axis=1)])
        less = _less(pairs, resamples)
        if less:
            plots.append(_plot(shown, less, f"ROUGE-L of the found order less that of another: {where}"))
        tables.append(_table(shown, less, f"The same chunks in other orders: {where} ({name}, {asked(shown)})"))
        several = pairs[pairs["chunks"] > 1]
        if len(several):
            caption = f"Where the found order has two chunks or more: {where} ({name})"
            tables.append(_several_table(several, resamples, caption))
    if not tables:
        return None
    text = (
        "The chunks that the tree search chose, put into the prompt in other orders. Differences are paired, question "
        "by question, with 95 % bootstrap intervals. A single chunk has one order only and pulls them towards zero, so "
        "a second table leaves those questions out."
    )
    return Section("order", "Order of the chunks", text, tuple(plots), tuple(tables))


def _pairs(records: pd.DataFrame) -> pd.DataFrame:
    """Records of one setting beside the tree search's: its ROUGE-L as `found`, and how many `chunks` it chose."""
    tree = records[records["method"] == TREE]
    tree = tree.assign(found=tree["rougeL"], chunks=tree["order"].map(len))
    return records.merge(tree[["question_id", "reranker", "found", "chunks"]], on=["question_id", "reranker"])


def _less(pairs: pd.DataFrame, resamples: int) -> dict[Way, Interval]:
    """The found order's ROUGE-L less that of each other."""
    return {
        way: paired_bootstrap(own["found"], own["rougeL"], resamples=resamples)
        for way, own in groups_of(pairs[pairs["method"] != TREE], ["method", "reranker"])
    }


def _less_cells(less: Interval | None) -> list[str]:
    if less is None:
        return [MISSING] * 2
    return [signed(less.mean), interval_text(less.low, less.high, signed)]


def _plot(shown: pd.DataFrame, less: Mapping[Way, Interval], title: str) -> Plot:
    names = rerankers_of(shown)
    rows, told = [], []
    for method in dict.fromkeys(shown["method"]):
        found = [(name, less[method, name]) for name in names if (method, name) in less]
        if found:
            rows.append((_ORDERS[method], [Measured(d.mean, d.low, d.high, names.index(name)) for name, d in found]))
            told += [f"{_ORDERS[method]}, {name}: {signed(d.mean)}" for name, d in found]
    spoken = f"{title}. {'; '.join(told)}. {TABLE_BELOW}"
    svg = interval_plot(rows, "difference of ROUGE-L, paired 95 % interval", spoken, reference=0)
    return Plot(title, svg, legend_of(names))


def _table(shown: pd.DataFrame, less: Mapping[Way, Interval], caption: str) -> ReportTable:
    names = rerankers_of(shown)
    columns = [Column("order", numeric=False)]
    for name in names:
        columns += [*score_columns(name)[:2], Column(_LESS, name), Column(_ENDS, name)]  # all orders cost the same
    rows = []
    for (method,), part in groups_of(shown, ["method"]):
        found = {row["reranker"]: row for _, row in part.iterrows()}
        cells = [[*score_cells(found.get(name))[:2], *_less_cells(less.get((method, name)))] for name in names]
        rows.append(Row((_ORDERS[method], *(cell for own in cells for cell in own))))
    return ReportTable(caption, tuple(columns), tuple(rows), off_note(shown))


def _several_table(pairs: pd.DataFrame, resamples: int, caption: str) -> ReportTable:
    names, less = rerankers_of(pairs), _less(pairs, resamples)
    columns = [Column("order", numeric=False)]
    for name in names:
        columns += [Column(title, name) for title in ("questions", "ROUGE-L", _LESS, _ENDS)]
    rows = []
    for (method,), part in groups_of(in_method_order(pairs), ["method"]):
        cells: list[str] = []
        for name in names:
            own = part[part["reranker"] == name]
            means = [f"{len(own):,}", number(own["rougeL"].mean())] if len(own) else [MISSING] * 2
            cells += [*means, *_less_cells(less.get((method, name)))]
        rows.append(Row((_ORDERS[method], *cells)))
    return ReportTable(caption, tuple(columns), tuple(rows))
