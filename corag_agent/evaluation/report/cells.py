"""How frames of means become cells, rows and marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from corag_agent.evaluation.best_of_half import BEST
from corag_agent.evaluation.report.plots import Measured
from corag_agent.evaluation.report.report_table import Column
from corag_agent.evaluation.report.wording import METHODS, MISSING, UPPER, counted, interval_text, number, way_name

_GROUPS = ("dataset", "domain", "kind")
TABLE_BELOW = "The table below has the values."
OFF = "†"  # marks an agent used off what its labels were made with
BEST_NOTE = (
    "Where a method was run with several rerankers it has the one that is best on the half of the questions that a "
    "question is not in, so that none has a part in choosing for itself; its numbers are means over 20 halvings, which "
    "divide no document's questions where documents are known and there are several."
)
OFF_NOTE = f"{OFF} The agent's labels were made with another chunk size, budget or data set."


def groups_of(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Parts of a frame with equal values in these columns, in the order in which they come."""
    yield from frame.groupby(list(names), sort=False)


def in_method_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows as the methods stand in `METHODS`, unknown ones behind them; then by reranker."""
    known = {method: place for place, method in enumerate(METHODS)}
    place = frame["method"].map(lambda method: known.get(method, len(known)))
    ordered = frame.assign(_place=place).sort_values(["_place", "method", "reranker"], kind="stable")
    return ordered.drop(columns="_place")


def asked(rows: pd.DataFrame) -> str:
    """How many questions the rows are about; failed ones may leave some of them fewer."""
    return counted(int(rows["questions"].max()), "question")


def rerankers_of(frame: pd.DataFrame) -> list[str]:
    """Names of the rerankers, sorted; first "" for methods that use none of their own, if there are such."""
    return sorted(frame["reranker"].unique())


def measured(row: pd.Series, series: int = 0) -> Measured:
    """ROUGE-L of a row with its interval."""
    return Measured(float(row["rougeL"]), float(row["rougeL_low"]), float(row["rougeL_high"]), series)


def score_columns(group: str) -> list[Column]:
    """Columns of `score_cells`."""
    return [Column("ROUGE-L", group), Column("95 %", group), Column("tokens", group)]


def score_cells(row: pd.Series | None) -> list[str]:
    """ROUGE-L, its interval, and the tokens of the chosen chunks."""
    if row is None:
        return [MISSING] * 3
    mark = "" if row["on_distribution"] else OFF
    return [
        number(row["rougeL"]) + mark,
        interval_text(row["rougeL_low"], row["rougeL_high"]),
        number(row["prompt_tokens"], 0),
    ]


def best_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each method, in each setting and group, the row of `BEST`.

    Without one, which takes several rerankers and questions in both halves, it is the only one, or the first by name.
    """
    ranked = frame.assign(_later=frame["reranker"] != BEST).sort_values(["_later", "reranker"], kind="stable")
    key = [name for name in ("run", *_GROUPS, "chunk_size", "budget", "variant", "method") if name in frame]
    return in_method_order(ranked.drop_duplicates(key).drop(columns="_later").sort_index())


def single_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of one reranker, or of none."""
    return frame[frame["reranker"] != BEST]


def greatest_method(rows: pd.DataFrame) -> set[str]:
    """The methods of the greatest ROUGE-L as it is shown; `UPPER`, which is no rival, stands aside."""
    shown = rows[rows["method"] != UPPER].groupby("method")["rougeL"].max().round(3)
    return set(shown.index[shown == shown.max()])


def off_note(frame: pd.DataFrame) -> str:
    """What the mark means, where it is used."""
    return "" if frame["on_distribution"].all() else OFF_NOTE


def main_value(part: pd.DataFrame, column: str) -> int:
    """The chunk size or budget with the most rows; of equals one that the agent's labels cover, then the smallest."""
    best, _ = max(
        groups_of(part, [column]),
        key=lambda group: (len(group[1]), bool(group[1]["on_distribution"].all()), -group[0][0]),
    )
    return int(best[0])


def by_fullness(frame: pd.DataFrame, column: str) -> list[tuple[str, pd.DataFrame]]:
    """The runs of a data set, those with the most values in a column first, each with its rows at its main budget."""
    runs = [(str(run), rows) for (run,), rows in groups_of(frame, ["run"])]
    runs.sort(key=lambda one: -one[1][column].nunique())
    return [(run, rows[rows["budget"] == main_value(rows, "budget")]) for run, rows in runs]


def fullest_runs(frame: pd.DataFrame, column: str) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Of each data set the run that has most values in a column, the first of equals, at its main budget.

    Yields:
        The data set, the run and its rows.
    """
    for (dataset,), part in groups_of(frame, ["dataset"]):
        run, rows = by_fullness(part, column)[0]
        yield dataset, run, rows


def spoken_scores(title: str, rows: pd.DataFrame) -> str:
    """A plot's title and its values."""
    values = (
        f"{way_name(row['method'], row['reranker'], row['variant'])} {number(row['rougeL'])}"
        for _, row in rows.iterrows()
    )
    return f"{title}. {'; '.join(values)}."
