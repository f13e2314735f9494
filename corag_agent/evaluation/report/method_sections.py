"""Sections that put the methods side by side: over all questions, and by kind or domain."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import pandas as pd

from corag_agent.evaluation.report.cells import (
    BEST_NOTE,
    TABLE_BELOW,
    asked,
    best_rows,
    by_fullness,
    fullest_runs,
    greatest_method,
    groups_of,
    in_method_order,
    main_value,
    measured,
    off_note,
    rerankers_of,
    score_cells,
    score_columns,
    single_rows,
    spoken_scores,
)
from corag_agent.evaluation.report.plots import SERIES, LabelledPoint, interval_plot, point_plot
from corag_agent.evaluation.report.report_table import Column, ReportTable, Row
from corag_agent.evaluation.report.section import Plot, Section, legend_of
from corag_agent.evaluation.report.wording import MISSING, counted, method_name, number, way_name

ALL_SCORES = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "human_rougeL": "ROUGE-L, human",
    "token_f1": "token F1",
    "exact_match": "exact match",
    "gold_recall": "gold recall",
}
ALL_COUNTS = {"prompt_tokens": "tokens", "answer_tokens": "answer tokens", "evaluations": "evaluations"}
SCORES_NOTE = (
    "ROUGE against the run's reference, ROUGE-L human, token F1 and exact match against the human answers; gold recall "
    "is the share of gold passages that the chosen chunks overlap. Tokens are those of the chosen chunks."
)


def methods_section(methods: pd.DataFrame) -> Section | None:
    """Methods × chunk sizes, for each data set; None when no run has more than one method.

    The fullest run of a data set comes with plots; others have a table where they add to it. All scores are folded.

    Args:
        methods: Rows of `method_table` without variants.
    """
    plots: list[Plot] = []
    tables: list[ReportTable] = []
    for dataset, run, part, fullest in _compared_runs(methods):
        where = f"{dataset}, budget {part['budget'].iloc[0]}"
        tables.append(_best_table(part, f"{where} ({run}, {asked(part)})"))
        if not fullest:
            continue
        at = main_value(part, "chunk_size")
        shown = in_method_order(part[part["chunk_size"] == at])
        setting = f"{where}, chunks of {at}"
        plots += [_by_method(single_rows(shown), setting), _against_tokens(best_rows(shown), setting)]
    if not tables:
        return None
    tables += [_full_table(part, str(run)) for (run,), part in groups_of(methods, ["run"])]
    text = f"Scores of answers against the run's reference, with 95 % bootstrap intervals of the mean. {BEST_NOTE}"
    return Section("methods", "Methods", text, tuple(plots), tuple(tables))


def _compared_runs(methods: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame, bool]]:
    """Of each data set the fullest run, and those that add to it.

    That is a method, a method at a chunk size, or one for more than twice as many questions as a fuller run has it.

    Runs of one method compare nothing and are left out, unless that is all there is.

    Yields:
        The data set, the run, its rows at its main budget, and whether it is the fullest.
    """
    for (dataset,), own in groups_of(methods, ["dataset"]):
        known: dict[Hashable, int] = {}  # by method and chunk size
        for run, part in by_fullness(own, "method"):
            ways = part.groupby(["method", "chunk_size"])["questions"].max().to_dict()
            adds = any(count > 2 * known.get(way, 0) for way, count in ways.items())
            if not adds or (part["method"].nunique() < 2 and len(methods) > 1):
                continue
            yield dataset, run, part, not known
            known |= {way: max(count, known.get(way, 0)) for way, count in ways.items()}


def _by_method(shown: pd.DataFrame, where: str) -> Plot:
    names = rerankers_of(shown)
    rows = [
        (method_name(method), [measured(row, names.index(row["reranker"])) for _, row in part.iterrows()])
        for (method,), part in groups_of(shown, ["method"])
    ]
    title = f"ROUGE-L by method: {where}"
    svg = interval_plot(rows, "ROUGE-L, 95 % interval", spoken_scores(title, shown))
    labels = [name or "none of its own" for name in names]
    return Plot(title, svg, legend_of(labels))


def _against_tokens(best: pd.DataFrame, where: str) -> Plot:
    points = [
        LabelledPoint(method_name(row["method"]), float(row["prompt_tokens"]), float(row["rougeL"]), place)
        for place, (_, row) in enumerate(best.iterrows())
    ]
    title = f"ROUGE-L against tokens: {where}"
    return Plot(title, point_plot(points, "tokens of the chosen chunks", "ROUGE-L", spoken_scores(title, best)))


def _best_table(part: pd.DataFrame, where: str) -> ReportTable:
    sizes = sorted(part["chunk_size"].unique())
    best = best_rows(part)
    columns = [Column("method", numeric=False)]
    for size in sizes:
        columns += score_columns(f"chunks of {size}")
    rows = []
    strong = {size: greatest_method(best[best["chunk_size"] == size]) for size in sizes}
    for (method,), found in groups_of(best, ["method"]):
        by_size = {row["chunk_size"]: row for _, row in found.iterrows()}
        cells = [cell for size in sizes for cell in score_cells(by_size.get(size))]
        marked = frozenset(1 + 3 * place for place, size in enumerate(sizes) if method in strong[size])
        rows.append(Row((method_name(method), *cells), best=marked))
    return ReportTable(f"Methods: {where}", tuple(columns), tuple(rows), off_note(best))


def _full_table(part: pd.DataFrame, run: str) -> ReportTable:
    """Everything that was scored in a run, folded."""
    names = {**ALL_SCORES, **ALL_COUNTS}
    names = {name: title for name, title in names.items() if part[name].notna().any()}
    columns = [Column("method · reranker", numeric=False), Column("questions"), *map(Column, names.values())]
    rows = []
    for (dataset, size, budget), at in groups_of(single_rows(part), ["dataset", "chunk_size", "budget"]):
        for _, row in in_method_order(at).iterrows():
            scores = [number(row[name], 0 if name in ALL_COUNTS else 3) for name in names]
            name = way_name(row["method"], row["reranker"])
            where = f"{dataset}, chunks of {size}, budget {budget}"
            rows.append(Row((name, f"{row['questions']:,}", *scores), where))
    return ReportTable(f"All scores: {run}", tuple(columns), tuple(rows), SCORES_NOTE, folded=True)


def group_section(groups: pd.DataFrame, by: str, title: str) -> Section | None:
    """Methods by `by`, such as the kind of question; None where there is one only.

    Args:
        groups: Rows of `method_table` by that column, without variants.
    """
    plots: list[Plot] = []
    tables: list[ReportTable] = []
    for dataset, run, part in fullest_runs(groups, "method"):
        if part[by].nunique() < 2 or part["method"].nunique() < 2:
            continue
        at = main_value(part, "chunk_size")
        where = f"{dataset}, budget {part['budget'].iloc[0]}, chunks of {at}"
        shown = best_rows(part[part["chunk_size"] == at])
        names = sorted(shown[by].unique())
        if len(names) <= SERIES:
            plots.append(_by_group(shown, by, names, f"ROUGE-L by {by}: {where}"))
        tables.append(_group_table(shown, by, names, f"By {by}: {where} ({run})"))
    return Section(f"by-{by}", title, "", tuple(plots), tuple(tables)) if tables else None


def _by_group(shown: pd.DataFrame, by: str, names: Sequence[str], title: str) -> Plot:
    rows = [
        (method_name(method), [measured(row, names.index(row[by])) for _, row in found.sort_values(by).iterrows()])
        for (method,), found in groups_of(shown, ["method"])
    ]
    svg = interval_plot(rows, "ROUGE-L, 95 % interval", f"{title}. {TABLE_BELOW}")
    return Plot(title, svg, legend_of([name or MISSING for name in names]))


def _group_table(shown: pd.DataFrame, by: str, names: Sequence[str], caption: str) -> ReportTable:
    counts = shown.groupby(by)["questions"].max()
    columns = [Column("method", numeric=False)]
    for name in names:
        columns += score_columns(f"{name or MISSING} ({counted(int(counts[name]), 'question')})")
    rows = []
    for (method,), found in groups_of(shown, ["method"]):
        by_name = {row[by]: row for _, row in found.iterrows()}
        rows.append(Row((method_name(method), *(cell for name in names for cell in score_cells(by_name.get(name))))))
    return ReportTable(caption, tuple(columns), tuple(rows), off_note(shown))
