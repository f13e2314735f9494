"""The section on order: paired differences worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.order_section import orders_section
from corag_agent.evaluation.report.report_table import ReportTable
from corag_agent.evaluation.summary import method_table
from tests.corag_agent.evaluation.report_runs import Experiment, made_run

# ROUGE-L of three questions, of which the tree search chose one, two and three chunks.
CHUNKS = (1, 2, 3)
ROUGE: Mapping[str, Sequence[float]] = {
    "tree": (0.5, 0.6, 0.7),
    "order_reversed": (0.5, 0.4, 0.6),
    "order_document": (0.5, 0.7, 0.7),
}
RESAMPLES = 2000


def run_of(chunks: Sequence[int], failed: Sequence[tuple[str, str]] = ()) -> EvaluationRun:
    run = made_run({"d": 3}, [Experiment("order", methods=tuple(ROUGE), rerankers=("bm25",))])
    records = run.records.copy()
    places = [int(question[1:]) for question in records["question_id"]]
    records["rougeL"] = [ROUGE[method][place] for method, place in zip(records["method"], places, strict=True)]
    records["order"] = [list(range(chunks[place])) for place in places]
    way = records[["method", "question_id"]].apply(tuple, axis=1)
    records.loc[way.isin(list(failed)), "error"] = "boom"
    return EvaluationRun(records, run.questions, run.answers, run.chunks, settings=run.settings)


def tables_of(run: EvaluationRun) -> tuple[ReportTable, ...]:
    section = orders_section(run, method_table(run, resamples=50).assign(run="order"), RESAMPLES)
    assert section is not None
    assert len(section.plots) == 1 and "reversed, bm25: +0.100; document, bm25: −0.033" in section.plots[0].svg
    return section.tables


def test_differences_are_paired() -> None:
    """Reversed loses 0, 0.2 and 0.1; a resample of three zeros, or of three 0.2, is drawn once in 27 times."""
    table, _ = tables_of(run_of(CHUNKS))
    assert [column.name for column in table.columns] == [
        "order",
        "ROUGE-L",
        "95 %",
        "found less this",
        "its 95 %",
    ]
    rows = {row.cells[0]: (row.cells[1], *row.cells[3:]) for row in table.rows}
    assert rows == {
        "as found": ("0.600", "–", "–"),
        "reversed": ("0.500", "+0.100", "0.000 to +0.200"),
        "document": ("0.633", "−0.033", "−0.100 to 0.000"),
    }


def test_a_single_chunk_has_one_order_only() -> None:
    """Without the first question two are left: of their resamples one in four is twice the one, or twice the other."""
    _, several = tables_of(run_of(CHUNKS))
    assert "two chunks or more" in several.caption
    assert [row.cells for row in several.rows] == [
        ("as found", "2", "0.650", "–", "–"),
        ("reversed", "2", "0.500", "+0.150", "+0.100 to +0.200"),
        ("document", "2", "0.700", "−0.050", "−0.100 to 0.000"),
    ]
    assert len(tables_of(run_of((1, 1, 1)))) == 1  # nothing is left


def test_a_question_that_failed_on_one_side_is_no_pair() -> None:
    run = run_of(CHUNKS, failed=[("tree", "q0001"), ("order_document", "q0002")])
    section = orders_section(run, method_table(run, resamples=50).assign(run="order"), RESAMPLES)
    assert section is not None
    several = {row.cells[0]: row.cells[1:] for row in section.tables[1].rows}
    assert several == {"as found": ("1", "0.700", "–", "–"), "reversed": ("1", "0.600", "+0.100", "–")}


def test_without_the_found_order_there_are_means_only() -> None:
    run = made_run({"d": 3}, [Experiment("order", methods=("order_reversed", "order_random"), rerankers=("bm25",))])
    section = orders_section(run, method_table(run, resamples=50).assign(run="order"), RESAMPLES)
    assert section is not None and not section.plots
    (table,) = section.tables
    assert [(row.cells[0], *row.cells[3:]) for row in table.rows] == [("reversed", "–", "–"), ("random", "–", "–")]


def test_without_other_orders_there_is_nothing_to_say() -> None:
    run = made_run({"d": 3}, [Experiment("order", methods=("tree", "naive_rag"))])
    assert orders_section(run, method_table(run, resamples=50).assign(run="order"), RESAMPLES) is None


@pytest.mark.parametrize("rerankers", [("bm25",), ("bm25", "maxsim")])
def test_each_reranker_has_its_columns(rerankers: Sequence[str]) -> None:
    run = made_run({"d": 8}, [Experiment("order", methods=tuple(ROUGE), rerankers=rerankers, chunk_sizes=(32,))])
    section = orders_section(run, method_table(run, resamples=50).assign(run="order"), RESAMPLES)
    assert section is not None
    for table in section.tables:
        assert [column.group for column in table.columns] == ["", *(name for name in rerankers for _ in range(4))]
    means = run.records.groupby(["method", "reranker"])["rougeL"].mean()
    (row,) = (row for row in section.tables[0].rows if row.cells[0] == "reversed")
    for place, name in enumerate(rerankers):
        less = means["tree", name] - means["order_reversed", name]
        assert float(row.cells[3 + 4 * place].replace("−", "-")) == pytest.approx(less, abs=0.00051)
