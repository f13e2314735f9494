"""The report over a run in the shape of the project's own plan: every claim is looked at where both sides are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from corag_agent.evaluation.best_of_half import BEST
from corag_agent.evaluation.records import SECONDS, EvaluationRun
from corag_agent.evaluation.report import Contents, contents_of
from corag_agent.evaluation.report.claims import CLAIMS
from corag_agent.evaluation.report.figures import Figure
from corag_agent.evaluation.report.headline import headline_table, tiles_html
from corag_search.shipped import shipped
from tests.corag_agent.evaluation.report_runs import RESAMPLES, Experiment, made_run

PLAN: dict[str, Any] = yaml.safe_load((shipped("configs") / "evaluate.yaml").read_text(encoding="utf-8"))
DATA = [one for one in PLAN["data"] if one["name"] in ("xquad.en", "xquad.en+1k", "xquad.en+100k", "xquad.en+1M")]
REAL = 450  # chunks of the real documents, at every chunk size


def experiments() -> Iterator[Experiment]:
    for one in PLAN["runs"]:
        if "methods" not in one or "sweep" in one:
            continue
        yield Experiment(
            one["name"],
            methods=one["methods"],
            rerankers=one.get("rerankers", list(PLAN["rerankers"])),
            chunk_sizes=one.get("chunk_sizes", [PLAN["chunk_size"]]),
            budgets=one.get("budgets", [PLAN["search"]["budget"]]),
            timed=one.get("timing", False),
            data=one["data"],
            limit=3 if one.get("timing") else None,
        )


@pytest.fixture(scope="module")
def run() -> EvaluationRun:
    sizes = (64, 96, 128, 256)
    about = {
        one["name"]: {
            "fingerprint": one["data"],
            "compose": one.get("compose"),
            "distractors": one.get("distractors", 0),
            "chunks": {str(size): REAL + one.get("distractors", 0) for size in sizes},
        }
        for one in DATA
    }
    named = [{"name": one["name"], "methods": one.get("methods", [])} for one in PLAN["runs"]]
    return made_run(dict.fromkeys(about, 6), list(experiments()), settings={"data": about, "runs": named})


@pytest.fixture(scope="module")
def contents(run: EvaluationRun) -> Contents:
    return contents_of(run, RESAMPLES)


def found(contents: Contents, method: str, baseline: str, metric: str = "rougeL") -> Figure:
    (one,) = (
        figure
        for figure in contents.figures
        if figure.dataset == "xquad.en"
        and (figure.method, figure.claim.baseline, figure.claim.metric) == (method, baseline, metric)
        and figure.reranker in ("", BEST)
    )
    return one


def means(run: EvaluationRun, name: str, column: str, dataset: str = "xquad.en") -> pd.Series:
    """Means of a column in a run, by method and reranker."""
    rows = run.records.assign(total=run.records[list(SECONDS)].sum(axis=1))
    return rows[(rows["run"] == name) & (rows["dataset"] == dataset)].groupby(["method", "reranker"])[column].mean()


def test_every_claim_is_looked_at_in_the_run_that_has_both_sides(contents: Contents) -> None:
    """Of the agent and Upper none has both, since the agent is not made for eight candidates."""
    runs = {(claim.baseline, claim.metric): "main" for claim in CLAIMS}
    runs |= {("raptor", "rougeL"): "raptor", ("naive_rag", "seconds"): "scale"}
    runs |= {("upper", "objective"): "upper", ("upper", "rougeL"): "upper", ("upper", "seconds_search"): "upper_time"}
    expected = {
        (method, claim.baseline, claim.metric): runs[claim.baseline, claim.metric]
        for claim in CLAIMS
        for method in claim.methods
        if (method, claim.baseline) != ("agent", "upper")
    }
    own = [figure for figure in contents.figures if figure.dataset == "xquad.en"]
    assert {(f.method, f.claim.baseline, f.claim.metric): f.run for f in own} == expected
    assert own == list(contents.figures)  # made-up chunks make no data set of its own


def test_the_agent_s_rivals_have_its_reranker_and_settings(run: EvaluationRun, contents: Contents) -> None:
    rouge = means(run, "main", "rougeL")
    for baseline in ("agent_matched", "agent_climb"):
        one = found(contents, "agent", baseline)
        assert one.ratio == pytest.approx(rouge["agent", ""] / rouge[baseline, ""])
        assert (one.own, one.other) == pytest.approx((rouge["agent", ""], rouge[baseline, ""]))
    pairs = {(f.method, f.claim.baseline) for f in contents.figures if f.claim.metric == "rougeL"}
    for rival in ("matched", "climb"):
        fixed = "naive_matched" if rival == "matched" else "greedy_climb"
        assert ("tree", fixed) in pairs and ("agent", f"agent_{rival}") in pairs
        assert ("agent", fixed) not in pairs and ("tree", f"agent_{rival}") not in pairs


def test_raptor_is_a_rival(run: EvaluationRun, contents: Contents) -> None:
    rouge = means(run, "raptor", "rougeL")
    one = found(contents, "agent", "raptor")
    assert one.ratio == pytest.approx(rouge["agent", ""] / rouge["raptor", ""])
    assert one.claim.target == "above 0" and one.measured_on == "6 questions (raptor)"


def test_upper_is_compared_by_the_same_reranker_and_candidates(run: EvaluationRun, contents: Contents) -> None:
    names = ("bm25", "maxsim", "wordllama")
    for metric, name in (("objective", "upper"), ("seconds_search", "upper_time")):
        values = means(run, name, metric)
        own, other = (np.mean([values[method, reranker] for reranker in names]) for method in ("tree", "upper"))
        one = found(contents, "tree", "upper", metric)
        assert (one.own, one.other, one.ratio) == pytest.approx((own, other, own / other))
    assert found(contents, "tree", "upper", "seconds_search").questions == 3


def test_the_added_time_is_that_at_a_hundred_thousand_chunks(run: EvaluationRun, contents: Contents) -> None:
    total = means(run, "scale", "total", "xquad.en+100k")
    own, other = (np.mean([total[method, name] for name in ("bm25", "maxsim")]) for method in ("tree", "naive_rag"))
    one = found(contents, "tree", "naive_rag", "seconds")
    assert (one.own, one.other, one.ratio) == pytest.approx((own, other, own / other))
    assert one.measured_on == "3 questions (scale), 100,450 chunks"
    assert found(contents, "agent", "naive_rag", "seconds").own == pytest.approx(total["agent", ""])
    (row,) = (
        row
        for row in headline_table(contents.figures).rows
        if row.section.startswith("Time added") and row.cells[0] == "xquad.en, tree search"
    )
    assert row.cells[-1] == one.measured_on
    assert "at 100,000 chunks. The paper's claim (arXiv:2411.00744): at most +10 %." in row.section
    assert "among 100,450 chunks" in tiles_html(contents.figures)


def test_a_run_that_adds_a_method_or_a_chunk_size_has_its_table(contents: Contents) -> None:
    (section,) = (section for section in contents.sections if section.anchor == "methods")
    shown = [table for table in section.tables if not table.folded]
    runs = [table.caption.partition("(")[2].partition(",")[0] for table in shown]
    assert runs == ["main", "chunk_sizes", "raptor", "upper"]
    raptor = shown[2]
    assert [row.cells[0] for row in raptor.rows] == ["tree search with agent", "tree search", "NaiveRAG", "RAPTOR"]
    assert len(section.plots) == 2  # of the fullest only


def test_a_run_of_many_more_questions_has_its_table() -> None:
    """A half-done fuller run hides none that has more than twice its questions."""
    methods = ("naive_rag", "tree")
    for asked, shown in ((9, ["main", "rerankers"]), (8, ["main"])):
        experiments = [Experiment("main", methods=(*methods, "mmr"), limit=4), Experiment("rerankers", methods=methods)]
        made = made_run({"d": asked}, experiments, settings={"runs": [{"name": one.name} for one in experiments]})
        (section,) = (one for one in contents_of(made, 50).sections if one.anchor == "methods")
        captions = [table.caption for table in section.tables if not table.folded]
        assert [caption.partition("(")[2].partition(",")[0] for caption in captions] == shown
