"""The tables of an evaluation run for a terminal, and as plain values for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from corag_agent.evaluation.intervals import RESAMPLES
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.summary import SETTING, differences, latency_table, method_table, structure_table
from corag_agent.evaluation.text_table import text_table

_GONE = "–"  # no value


def tables_of(
    run: EvaluationRun,
    experiment: str,
    baseline: str,
    by: Sequence[str] = ("dataset",),
    seed: int = 0,
    by_document: bool = False,
    resamples: int = RESAMPLES,
) -> dict[str, pd.DataFrame]:
    """All tables of an experiment: methods, differences, latency. Arguments as of `summary`."""
    methods = method_table(run, experiment, by, seed, resamples, by_document)
    compared = pd.DataFrame()
    if baseline in set(methods["method"]):
        compared = differences(run, baseline, experiment, by, "rougeL", seed, resamples, by_document)
    return {"methods": methods, "differences": compared, "latency": latency_table(run, experiment, by)}


def json_tables(tables: Mapping[str, pd.DataFrame]) -> dict[str, list[dict[str, Any]]]:
    """What `tables_of` gave as lists of rows; NaN is null."""
    return {name: [_plain(row) for row in table.to_dict("records")] for name, table in tables.items()}


def printed_tables(
    tables: Mapping[str, pd.DataFrame], experiment: str, baseline: str, by: Sequence[str] = ("dataset",)
) -> list[str]:
    """What `tables_of` gave for the same arguments, as text."""
    drawn = []
    methods = tables["methods"]
    varying = [name for name in SETTING[2:] if methods[name].nunique() > 1]
    where = [*by, *varying, "method", "reranker"]
    drawn.append(_drawn(f"{experiment}: means", methods, where, _METHODS))
    if len(tables["differences"]):
        title = f"{experiment}: ROUGE-L against {baseline}, with 95 % intervals"
        drawn.append(_drawn(title, tables["differences"], where, _DIFFERENCES))
    totals = tables["latency"][tables["latency"]["stage"].isin(("search", "total"))]
    if len(totals):
        drawn.append(_drawn(f"{experiment}: seconds", totals, [*where, "stage"], _LATENCY))
    return drawn


def json_structure(run: EvaluationRun, resamples: int = RESAMPLES) -> list[dict[str, Any]]:
    """The table of how the rerankers' benefits behave, as a list of rows; empty where it was not measured."""
    return [_plain(row) for row in structure_table(run, resamples=resamples).to_dict("records")]


def structure_text(run: EvaluationRun, resamples: int = RESAMPLES) -> str:
    """The table of how the rerankers' benefits behave."""
    table = structure_table(run, resamples=resamples)
    several = [name for name in ("run", "budget") if len(table) and table[name].nunique() > 1]
    return _drawn("rerankers' benefits", table, ["dataset", "reranker", "chunk_size", *several], _STRUCTURE)


# Columns of a printed table: title, column, digits (None for whole numbers), columns of the interval.
_Column = tuple[str, str, int | None, tuple[str, str] | None]
_METHODS: tuple[_Column, ...] = (
    ("questions", "questions", None, None),
    ("ROUGE-L", "rougeL", 3, ("rougeL_low", "rougeL_high")),
    ("human R-L", "human_rougeL", 3, None),
    ("F1", "token_f1", 3, None),
    ("EM", "exact_match", 3, None),
    ("gold", "gold_recall", 2, None),
    ("tokens", "prompt_tokens", 0, None),
)
_DIFFERENCES: tuple[_Column, ...] = (
    ("questions", "questions", None, None),
    ("difference", "difference", 3, ("low", "high")),
    ("relative", "relative", 2, ("relative_low", "relative_high")),
    ("tokens ×", "tokens", 2, ("tokens_low", "tokens_high")),
)
_LATENCY: tuple[_Column, ...] = (
    ("questions", "questions", None, None),
    ("mean", "mean", 3, None),
    ("p50", "p50", 3, None),
    ("p95", "p95", 3, None),
)
_STRUCTURE: tuple[_Column, ...] = (
    ("questions", "questions", None, None),
    ("not additive", "not_additive", 3, None),
    ("worse than best", "worse_than_best", 3, None),
    ("order matters", "order_matters", 3, None),
    ("not the largest", "not_largest", 3, ("low", "high")),
    ("chunks of the best", "best_chunks", 2, None),
)


def _drawn(title: str, table: pd.DataFrame, where: Sequence[str], columns: Sequence[_Column]) -> str:
    rows = [
        [*(_short(str(row[name])) or _GONE for name in where), *(_cell(row, column) for column in columns)]
        for row in table.to_dict("records")
    ]
    return text_table([*where, *(column[0] for column in columns)], rows, title)


def _short(text: str) -> str:
    """A variant with the symbols of Definition 4.2, so that it fits into a column."""
    return text.replace("exploration=", "c=").replace("cost_coefficient=", "λ=")


def _cell(row: dict[Any, Any], column: _Column) -> str:
    _, name, digits, interval = column
    value = row[name]
    if math.isnan(value):
        return _GONE
    if interval is None or math.isnan(row[interval[0]]):
        return f"{value:,}" if digits is None else f"{value:,.{digits}f}"
    low, high = (f"{row[end]:.{digits}f}" for end in interval)
    return f"{value:,.{digits}f} [{low}, {high}]"


def _plain(row: dict[Any, Any]) -> dict[str, Any]:
    return {str(name): None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
