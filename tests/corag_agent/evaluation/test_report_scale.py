"""The section on scale: which data sets are one with larger stores, and its times by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pytest

from corag_agent.evaluation.records import SECONDS, EvaluationRun
from corag_agent.evaluation.report import contents_of
from corag_agent.evaluation.report.figures import figures_of
from corag_agent.evaluation.report.report_table import ReportTable
from corag_agent.evaluation.report.scale_section import scale_section
from corag_agent.evaluation.report.store_sizes import larger_stores
from tests.corag_agent.evaluation.report_runs import AGENT, RESAMPLES, Experiment, made_run

TIMED = Experiment("scale", methods=("naive_rag", "tree", AGENT), rerankers=("bm25",))
UNTIMED = Experiment("main", methods=("naive_rag", "tree"), rerankers=("bm25",), timed=False)


def about(distractors: int, fingerprint: str = "f", compose: int | None = None, real: int = 200) -> Mapping[str, Any]:
    sizes = {"96": real + distractors}
    return {"fingerprint": fingerprint, "compose": compose, "distractors": distractors, "chunks": sizes}


DATA = {
    "d+10k": about(10_000),
    "d": about(0),
    "d+1k": about(1000),
    "other": about(0, "g"),
    "compound": about(0, compose=5),
}


def run_of(*experiments: Experiment, data: Mapping[str, Any] = DATA) -> EvaluationRun:
    return made_run(dict.fromkeys(data, 4), experiments, settings={"data": data})


@pytest.fixture(scope="module")
def run() -> EvaluationRun:
    return run_of(TIMED)


@pytest.fixture(scope="module")
def table(run: EvaluationRun) -> ReportTable:
    section = scale_section(run, RESAMPLES)
    assert section is not None
    (table,) = section.tables
    return table


def test_larger_stores_of_the_same_documents_are_one_family(run: EvaluationRun) -> None:
    assert larger_stores(run) == {"d": {"d+1k", "d+10k"}}
    lone = {name: own for name, own in DATA.items() if name in ("d+1k", "other")}
    assert not larger_stores(run_of(TIMED, data=lone)) and scale_section(run_of(TIMED, data=lone), RESAMPLES) is None
    same = {"one": about(1000), "two": about(1000)}
    assert not larger_stores(run_of(TIMED, data=same))
    assert not larger_stores(run_of(UNTIMED)) and scale_section(run_of(UNTIMED), RESAMPLES) is None
    assert not larger_stores(made_run({"d": 3}, [TIMED]))  # whose settings tell nothing of the data


def test_rows_rise_with_the_store(table: ReportTable) -> None:
    ways = ["tree search with agent", "tree search · bm25", "NaiveRAG · bm25"]
    expected = [(way, f"{size} chunks") for size in ("200", "1,200", "10,200") for way in ways]
    assert [(row.cells[0], row.section) for row in table.rows] == expected


def test_times_are_means_and_the_rest_a_ratio_to_naive_rag(run: EvaluationRun, table: ReportTable) -> None:
    records = run.records[run.records["dataset"] == "d+1k"].set_index(["method", "question_id"])
    total = records[list(SECONDS)].sum(axis=1)
    row = next(row for row in table.rows if row.section == "1,200 chunks" and row.cells[0].startswith("tree search ·"))
    own = records.loc["tree"]
    parts = (own["seconds_retrieve"], own["seconds_search"], total["tree"] - own["seconds_generate"], total["tree"])
    assert row.cells[1] == "4"
    shown = [float(cell.replace(",", "")) for cell in row.cells[2:6]]
    assert shown == pytest.approx([1000 * part.mean() for part in parts], rel=0.01)
    more = 100 * (total["tree"].mean() / total["naive_rag"].mean() - 1)
    assert float(row.cells[6].removesuffix(" %").replace("−", "-")) == pytest.approx(more, abs=0.051)
    low, high = (float(end.strip(" %").replace("−", "-")) for end in row.cells[7].split(" to "))
    assert low <= more + 0.05 and more - 0.05 <= high
    naive, agent = (
        next(r for r in table.rows if r.cells[0].startswith(name)) for name in ("NaiveRAG", "tree search w")
    )
    assert naive.cells[6:8] == agent.cells[6:8] == ("–", "–")  # the agent has no reranker of its own


def test_lines_have_a_point_for_each_store(run: EvaluationRun) -> None:
    section = scale_section(run, RESAMPLES)
    assert section is not None and len(section.plots) == 2
    for plot in section.plots:
        assert [name for _, name in plot.legend] == [
            "tree search with agent",
            "tree search · bm25",
            "NaiveRAG · bm25",
        ]
        assert len(re.findall('class="mark"', plot.svg)) == 3 * 3
        assert all(f">{size}<" in plot.svg for size in ("200", "1,200", "10,200"))


def test_made_up_chunks_are_in_no_other_comparison() -> None:
    contents = contents_of(run_of(TIMED, data={name: DATA[name] for name in ("d", "d+1k")}), RESAMPLES)
    assert {figure.dataset for figure in contents.figures} == {"d"}
    assert contents.cases is not None and {case.dataset for case in contents.cases.cases} == {"d"}
    others = [section for section in contents.sections if section.anchor != "scale"]
    assert "d+1k" not in str(others) and "d+1k" in contents.facts["data"]


@pytest.mark.parametrize(
    ("distractors", "size"),
    [
        ((0, 1000), 1200),
        ((0, 10_000, 100_000, 1_000_000), 100_200),
        ((0, 10_000, 1_000_000), 10_200),  # 90,000 off, and not 900,000
        ((0, 50_000, 140_000), 140_200),
    ],
)
def test_the_added_time_is_that_of_the_store_nearest_to_its_target(distractors: Sequence[int], size: int) -> None:
    data = {f"d+{count}": about(count) for count in distractors}
    alone = Experiment("latency", methods=("naive_rag", "mmr", "tree"), rerankers=("bm25",), data=["d+0"])
    run = run_of(alone, TIMED, data=data)
    times = [one for one in figures_of(run, RESAMPLES) if one.claim.metric == "seconds"]
    assert {(one.dataset, one.method, one.run, one.chunks) for one in times} == {
        ("d+0", method, "scale", size) for method in ("tree", AGENT)
    }
    records = run.records[(run.records["dataset"] == f"d+{size - 200}") & (run.records["run"] == "scale")]
    total = records[list(SECONDS)].sum(axis=1).groupby(records["method"]).mean()
    for one in times:
        assert (one.own, one.other) == pytest.approx((total[one.method], total["naive_rag"]))


def test_a_store_of_unknown_size_is_the_only_one() -> None:
    figures = figures_of(made_run({"d": 4, "e": 4}, [TIMED]), RESAMPLES)
    times = {(one.dataset, one.measured_on) for one in figures if one.claim.metric == "seconds"}
    assert times == {("d", "4 questions (scale)"), ("e", "4 questions (scale)")}


def test_a_failed_question_counts_for_none(run: EvaluationRun) -> None:
    records = run.records.copy()
    bad = (records["dataset"] == "d+1k") & (records["method"] == "naive_rag") & (records["question_id"] == "q0001")
    records.loc[bad, "error"] = "boom"
    frames: tuple[pd.DataFrame, ...] = (records, run.questions, run.answers, run.chunks)
    section = scale_section(EvaluationRun(*frames, settings=run.settings), RESAMPLES)
    assert section is not None
    counts = {row.cells[0]: row.cells[1] for row in section.tables[0].rows if row.section == "1,200 chunks"}
    assert counts == {"tree search with agent": "4", "tree search · bm25": "4", "NaiveRAG · bm25": "3"}
