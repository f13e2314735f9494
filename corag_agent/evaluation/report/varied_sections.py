"""Sections on what is varied: the budget, the reranker, settings of the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from corag_agent.evaluation.best_of_half import BEST
from corag_agent.evaluation.report.cells import (
    TABLE_BELOW,
    asked,
    best_rows,
    fullest_runs,
    groups_of,
    in_method_order,
    main_value,
    measured,
    off_note,
    score_cells,
    score_columns,
    single_rows,
    spoken_scores,
)
from corag_agent.evaluation.report.plots import Line, Measured, interval_plot, line_plot
from corag_agent.evaluation.report.report_table import Column, ReportTable, Row
from corag_agent.evaluation.report.section import Plot, Section, legend_of
from corag_agent.evaluation.report.wording import (
    AGENT,
    NAIVE,
    SETTINGS,
    TREE,
    interval_text,
    method_name,
    number,
    percent,
    way_name,
)


def budgets_section(methods: pd.DataFrame) -> Section | None:
    """ROUGE-L and tokens by budget, for each data set; None where budgets are not compared.

    Args:
        methods: Rows of `method_table` without variants.
    """
    plots: list[Plot] = []
    tables: list[ReportTable] = []
    for (run, dataset, size), part in groups_of(methods, ["run", "dataset", "chunk_size"]):
        if part["budget"].nunique() < 2:
            continue
        where = f"{dataset}, chunks of {size}"
        ways = [
            (method_name(method), rows.sort_values("budget", kind="stable"))
            for (method,), rows in groups_of(best_rows(part), ["method"])
        ]
        plots += _budget_plots(ways, where)
        tables.append(_budget_table(ways, part, f"By budget: {where} ({run}, {asked(part)})"))
    if not tables:
        return None
    text = "What is chosen and what comes of it when more tokens may be spent; the dashed line is the budget itself."
    return Section("budgets", "Budgets", text, tuple(plots), tuple(tables))


def _budget_plots(ways: Sequence[tuple[str, pd.DataFrame]], where: str) -> list[Plot]:
    legend = legend_of([name for name, _ in ways])
    scores, tokens = [], []
    for name, rows in ways:
        at = tuple(map(float, rows["budget"]))
        scores.append(Line(name, at, tuple(measured(row) for _, row in rows.iterrows())))
        tokens.append(Line(name, at, tuple(Measured(float(value)) for value in rows["prompt_tokens"])))
    title, spent = f"ROUGE-L by budget: {where}", f"Tokens spent by budget: {where}"
    return [
        Plot(title, line_plot(scores, "budget (tokens)", "ROUGE-L", f"{title}. {TABLE_BELOW}"), legend),
        Plot(
            spent,
            line_plot(tokens, "budget (tokens)", "tokens", f"{spent}. {TABLE_BELOW}", zero=True, diagonal=True),
            legend,
        ),
    ]


def _budget_table(ways: Sequence[tuple[str, pd.DataFrame]], part: pd.DataFrame, caption: str) -> ReportTable:
    rows = [
        Row((f"{row['budget']:,}", *score_cells(row)), section=name)
        for name, found in ways
        for _, row in found.iterrows()
    ]
    shown = best_rows(part)
    over = shown[shown["prompt_tokens"] > shown["budget"]]
    note = "Mean tokens are below every budget. " if over.empty else "Mean tokens are ABOVE a budget: see the table. "
    columns = (Column("budget", numeric=False), *score_columns(""))
    return ReportTable(caption, columns, tuple(rows), (note + off_note(shown)).strip())


def rerankers_section(methods: pd.DataFrame) -> Section | None:
    """Each reranker alone, against the agent's choice; None where the tree search has one only.

    Args:
        methods: Rows of `method_table` without variants.
    """
    plots: list[Plot] = []
    tables: list[ReportTable] = []
    judged = methods[methods["method"].isin([NAIVE, TREE, AGENT])]
    for dataset, run, part in fullest_runs(judged, "reranker"):
        at = main_value(part, "chunk_size")
        shown = part[part["chunk_size"] == at]
        if shown.loc[shown["method"] == TREE, "reranker"].nunique() < 2:
            continue
        where = f"{dataset}, budget {part['budget'].iloc[0]}, chunks of {at}"
        plots.append(_by_reranker(shown, f"ROUGE-L by reranker: {where}"))
        tables.append(_reranker_table(shown, f"Each reranker alone, and the agent: {where} ({run}, {asked(shown)})"))
    if not tables:
        return None
    return Section(
        "rerankers",
        "Rerankers",
        "The tree search with one reranker for all questions, and the agent, which picks one for each.",
        tuple(plots),
        tuple(tables),
    )


def _compared(shown: pd.DataFrame) -> list[str]:
    return [method for method in (NAIVE, TREE) if (shown["method"] == method).any()]


def _reranker_rows(shown: pd.DataFrame) -> Iterator[tuple[str, list[pd.Series | None]]]:
    """A row for each reranker, one for the best and one for the agent, with what the compared methods reach."""
    methods = _compared(shown)
    rerankers = sorted(shown.loc[shown["method"] == TREE, "reranker"].unique())
    for reranker in sorted(rerankers, key=lambda name: name == BEST):
        found = [shown[(shown["method"] == method) & (shown["reranker"] == reranker)] for method in methods]
        name = "best of the other half" if reranker == BEST else reranker
        yield name, [rows.iloc[0] if len(rows) else None for rows in found]
    agent = shown[shown["method"] == AGENT]
    if len(agent):
        yield "agent's choice", [None] * (len(methods) - 1) + [agent.iloc[0]]


def _by_reranker(shown: pd.DataFrame, title: str) -> Plot:
    names = [method_name(method) for method in _compared(shown)]
    rows = [
        (name, [measured(row, series) for series, row in enumerate(found) if row is not None])
        for name, found in _reranker_rows(shown)
    ]
    svg = interval_plot(rows, "ROUGE-L, 95 % interval", f"{title}. {TABLE_BELOW}")
    return Plot(title, svg, legend_of(names))


def _reranker_table(shown: pd.DataFrame, caption: str) -> ReportTable:
    columns = [Column("reranker", numeric=False)]
    for method in _compared(shown):
        columns += score_columns(method_name(method))
    rows = [Row((name, *(cell for row in found for cell in score_cells(row)))) for name, found in _reranker_rows(shown)]
    return ReportTable(caption, tuple(columns), tuple(rows), off_note(shown))


def sweeps_section(methods: pd.DataFrame) -> Section | None:
    """Scores over a setting of the search; None where nothing is varied.

    Args:
        methods: All rows of `method_table`; those whose variant is NAME=VALUE, or several of these, are looked at.
    """
    varied = single_rows(methods[methods["variant"] != ""])
    plots: list[Plot] = []
    tables: list[ReportTable] = []
    for (run, dataset, size, budget), part in groups_of(varied, ["run", "dataset", "chunk_size", "budget"]):
        where = f"{dataset}, budget {budget}, chunks of {size}"
        values = setting_values(list(part["variant"]))
        if values is None:
            plots.append(_by_variant(part, f"ROUGE-L by setting: {where}"))
        else:
            name, numbers = values
            part = part.assign(_at=numbers).sort_values("_at", kind="stable")
            plots += _sweep_plots(part, SETTINGS.get(name, name), where)
        tables.append(_sweep_table(part, f"By setting: {where} ({run}, {asked(part)})"))
    if not tables:
        return None
    return Section("settings", "Settings of the search", "", tuple(plots), tuple(tables))


def setting_values(variants: Sequence[str]) -> tuple[str, list[float]] | None:
    """The one setting that all variants name, and its values; None for several settings, or values that are words.

    Example:
        >>> setting_values(["exploration=0", "exploration=2.4"])
        ('exploration', [0.0, 2.4])
        >>> setting_values(["final_rule=value"]) is setting_values(["a=1,b=2"]) is None
        True
    """
    names, values = zip(*(variant.partition("=")[::2] for variant in variants), strict=True)
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return None
    return (names[0], numbers) if len(set(names)) == 1 else None


def _sweep_plots(part: pd.DataFrame, name: str, where: str) -> list[Plot]:
    scores, tokens = [], []
    for (method, reranker), rows in groups_of(in_method_order(part), ["method", "reranker"]):
        rows = rows.sort_values("_at", kind="stable")
        way, at = way_name(method, reranker), tuple(rows["_at"])
        scores.append(Line(way, at, tuple(measured(row) for _, row in rows.iterrows())))
        tokens.append(Line(way, at, tuple(Measured(float(value)) for value in rows["prompt_tokens"])))
    legend = legend_of([line.name for line in scores])
    title, spent = f"ROUGE-L by {name}: {where}", f"Tokens by {name}: {where}"
    return [
        Plot(title, line_plot(scores, name, "ROUGE-L", f"{title}. {TABLE_BELOW}"), legend),
        Plot(spent, line_plot(tokens, name, "tokens", f"{spent}. {TABLE_BELOW}", zero=True), legend),
    ]


def _by_variant(part: pd.DataFrame, title: str) -> Plot:
    ways = [key for key, _ in groups_of(in_method_order(part), ["method", "reranker"])]
    rows = [
        (variant, [measured(row, ways.index((row["method"], row["reranker"]))) for _, row in found.iterrows()])
        for (variant,), found in groups_of(part, ["variant"])
    ]
    legend = legend_of([way_name(*way) for way in ways])
    return Plot(title, interval_plot(rows, "ROUGE-L, 95 % interval", spoken_scores(title, part)), legend)


def _sweep_table(part: pd.DataFrame, caption: str) -> ReportTable:
    rows = [
        Row((row["variant"], *score_cells(row)), section=way_name(*way))
        for way, found in groups_of(in_method_order(part), ["method", "reranker"])
        for _, row in found.iterrows()
    ]
    columns = (Column("setting", numeric=False), *score_columns(""))
    return ReportTable(caption, columns, tuple(rows), off_note(part))


def structure_section(structure: pd.DataFrame) -> Section | None:
    """How far rerankers are from additive and from monotone; None where that was not measured.

    Args:
        structure: Rows of `structure_table`.
    """
    if structure.empty:
        return None
    columns = [
        Column("reranker", numeric=False),
        Column("questions"),
        Column("not the sum", "of pairs"),
        Column("below the better one", "of pairs"),
        Column("order matters", "of pairs"),
        Column("best is not the largest", "of questions"),
        Column("95 %", "of questions"),
        Column("chunks in the best"),
    ]
    rows = []
    several = structure["run"].nunique() > 1
    for row in structure.to_dict("records"):
        shares = [percent(row[name]) for name in ("not_additive", "worse_than_best", "order_matters", "not_largest")]
        ends = interval_text(row["low"], row["high"], percent)
        section = f"{row['dataset']}, chunks of {row['chunk_size']}, budget {row['budget']}"
        section += f" ({row['run']})" if several else ""
        cells = (row["reranker"], f"{row['questions']:,}", *shares, ends, number(row["best_chunks"], 1))
        rows.append(Row(cells, section))
    caption = "Pairs whose score is not the sum of their chunks' scores, and questions whose best leaves room"
    text = "Why a combination cannot be judged by its parts: what all pairs, and all combinations, score."
    table = ReportTable(caption, tuple(columns), tuple(rows))
    return Section("structure", "Rerankers as judges of combinations", text, (), (table,))
