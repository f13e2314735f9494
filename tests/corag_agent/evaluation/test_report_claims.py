"""Headline figures: hand-worked values, the summary's own, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from corag_agent.evaluation.best_of_half import BEST
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.cells import best_rows, fullest_runs, greatest_method, main_value
from corag_agent.evaluation.report.claims import CLAIMS, Claim
from corag_agent.evaluation.report.figures import Figure, figures_of
from corag_agent.evaluation.report.headline import headline_table, leading_method, tiles_html, verdict_sentence
from corag_agent.evaluation.report.main_setting import Settings
from corag_agent.evaluation.summary import differences
from tests.corag_agent.evaluation.report_runs import AGENT, RESAMPLES, Experiment, made_run


def claim(baseline: str, metric: str) -> Claim:
    return next(one for one in CLAIMS if (one.baseline, one.metric) == (baseline, metric))


def figure(one: Claim, ratio: float, low: float, high: float, **other: Any) -> Figure:
    return replace(Figure(one, "d", "tree", "", ratio, low, high, 0.6, 0.5, 30, True, "main"), **other)


def changed(run: EvaluationRun, records: pd.DataFrame) -> EvaluationRun:
    return EvaluationRun(records, run.questions, run.answers, run.chunks, settings=run.settings)


def only(run: EvaluationRun, **values: Sequence[Any]) -> EvaluationRun:
    records = run.records
    for name, wanted in values.items():
        records = records[records[name].isin(wanted)]
    return changed(run, records)


def found(figures: Sequence[Figure], method: str, baseline: str, metric: str, reranker: str = "") -> Figure:
    (one,) = (
        f
        for f in figures
        if (f.method, f.claim.baseline, f.claim.metric, f.reranker) == (method, baseline, metric, reranker)
    )
    return one


def runs_of(rows: pd.DataFrame | None) -> set[str]:
    return set() if rows is None else set(rows["run"])


@pytest.fixture(scope="module")
def run() -> EvaluationRun:
    return made_run({"d": 60})


@pytest.fixture(scope="module")
def figures(run: EvaluationRun) -> list[Figure]:
    return figures_of(run, RESAMPLES)


# ---- values ----


def test_ratios_are_those_of_the_summary(run: EvaluationRun, figures: list[Figure]) -> None:
    table = differences(run, "naive_rag", resamples=RESAMPLES).set_index(["method", "reranker"])
    for method, reranker in (("tree", BEST), (AGENT, "")):
        row = table.loc[(method, reranker)]
        gain = found(figures, method, "naive_rag", "rougeL")
        assert (gain.ratio - 1, gain.low - 1, gain.high - 1) == pytest.approx(
            tuple(row[["relative", "relative_low", "relative_high"]])
        )
        assert (gain.own, gain.other) == pytest.approx((row["score"], row["baseline_score"]))
        tokens = found(figures, method, "naive_rag", "prompt_tokens")
        assert (tokens.ratio, tokens.low, tokens.high) == pytest.approx(
            tuple(row[["tokens", "tokens_low", "tokens_high"]])
        )


def test_the_objective_is_compared_by_the_same_reranker(run: EvaluationRun, figures: list[Figure]) -> None:
    """And never the agent's, whose reranker and price are its own."""
    by = run.records.groupby(["method", "reranker"])["objective"].mean()
    own, other = (np.mean([by[method, name] for name in ("bm25", "maxsim")]) for method in ("tree", "upper"))
    share = found(figures, "tree", "upper", "objective")
    assert (share.own, share.other, share.ratio) == pytest.approx((own, other, own / other))
    assert not [f for f in figures if f.method == AGENT and f.claim.metric in ("objective", "seconds_search")]


def test_the_agent_is_compared_with_each_reranker(run: EvaluationRun, figures: list[Figure]) -> None:
    means = run.records.groupby(["method", "reranker"])["rougeL"].mean()
    for reranker in ("bm25", "maxsim"):
        one = found(figures, AGENT, "tree", "rougeL", reranker)
        assert one.ratio == pytest.approx(means[AGENT, ""] / means["tree", reranker])
    assert {f.reranker for f in figures if f.claim.baseline == "tree"} == {"bm25", "maxsim", BEST}


def test_time_is_the_sum_of_the_stages(run: EvaluationRun, figures: list[Figure]) -> None:
    seconds = run.records.filter(like="seconds_").sum(axis=1)
    means = seconds.groupby([run.records["method"], run.records["reranker"]]).mean()
    time = found(figures, "tree", "naive_rag", "seconds")
    assert time.own == pytest.approx(np.mean([means["tree", name] for name in ("bm25", "maxsim")]))
    assert time.other == pytest.approx(np.mean([means["naive_rag", name] for name in ("bm25", "maxsim")]))


def test_time_comes_from_the_run_that_measured_it() -> None:
    experiments = [Experiment("main", timed=False), Experiment("timing", methods=("naive_rag", "tree"))]
    run = made_run({"d": 8}, experiments)
    timed, plain = Settings(run, "d", measured=True), Settings(run, "d")
    assert [runs_of(one.first_with("tree")) for one in (timed, plain)] == [{"timing"}, {"main"}]
    assert timed.first_with("upper") is None and runs_of(plain.first_with("upper")) == {"main"}
    figures = figures_of(run, RESAMPLES)
    assert found(figures, "tree", "naive_rag", "seconds").questions == 8
    assert not [f for f in figures if f.claim.metric == "seconds_search"]  # Upper was not timed
    untimed = made_run({"d": 8}, [Experiment(timed=False)])
    assert not [f for f in figures_of(untimed, RESAMPLES) if f.claim.metric.startswith("seconds")]


def test_failed_questions_count_on_neither_side(run: EvaluationRun) -> None:
    records = run.records.copy()
    failed = (records["question_id"] == "q0003") & (records["method"] == "naive_rag")
    records.loc[failed, "error"] = "boom"
    gain = found(figures_of(changed(run, records), RESAMPLES), "tree", "naive_rag", "rougeL")
    assert gain.questions == 59


def test_nothing_is_said_of_a_baseline_that_is_zero(run: EvaluationRun) -> None:
    records = run.records.copy()
    records.loc[records["method"] == "naive_rag", "rougeL"] = 0.0
    left = {(f.claim.baseline, f.claim.metric) for f in figures_of(changed(run, records), RESAMPLES)}
    assert ("naive_rag", "rougeL") not in left and ("naive_rag", "prompt_tokens") in left


def test_the_fullest_setting_that_the_agent_covers_is_the_main_one() -> None:
    run = made_run({"d": 4}, [Experiment(chunk_sizes=(64, 96, 128), budgets=(128, 300))])
    rows = Settings(run, "d").first_with()
    assert rows is not None and rows[["chunk_size", "budget"]].drop_duplicates().to_numpy().tolist() == [[96, 300]]


def test_the_setting_that_has_both_sides_for_the_most_questions() -> None:
    """Not the one of the most methods; of equals that one."""
    experiments = [
        Experiment("few", methods=("naive_rag", "tree"), limit=1),
        Experiment("equal", methods=("naive_rag", "tree")),
        Experiment("half_done", methods=("naive_rag", "tree", "best_single", "mmr", "beam"), limit=2),
        Experiment("main", methods=("naive_rag", "best_single", "mmr")),
    ]
    run = made_run({"d": 4}, experiments, settings={"runs": [{"name": one.name} for one in experiments]})
    settings = Settings(run, "d")
    wanted = [("naive_rag",), ("tree",), ("tree", "naive_rag"), ("tree", "mmr"), ("tree", "hyde")]
    assert [runs_of(settings.first_with(*methods)) for methods in wanted] == [
        {"main"},
        {"equal"},
        {"equal"},
        {"half_done"},
        set(),
    ]
    assert found(figures_of(run, RESAMPLES), "tree", "naive_rag", "rougeL").run == "equal"


# ---- words ----


@pytest.mark.parametrize(
    ("baseline", "metric", "ends", "verdict"),
    [
        ("naive_rag", "rougeL", (1.4, 1.31, 1.5), "✓ met"),
        ("naive_rag", "rougeL", (1.4, 1.3, 1.5), "✓ met"),
        ("naive_rag", "rougeL", (1.35, 1.2, 1.5), "(✓) met on average"),
        ("naive_rag", "rougeL", (1.25, 1.1, 1.35), "(✗) missed on average"),
        ("naive_rag", "rougeL", (1.2, 1.1, 1.29), "✗ missed"),
        ("naive_rag", "prompt_tokens", (0.4, 0.3, 0.49), "✓ met"),
        ("naive_rag", "prompt_tokens", (0.49, 0.4, 0.6), "(✓) met on average"),
        ("naive_rag", "prompt_tokens", (0.8, 0.7, 0.9), "✗ missed"),
        ("best_single", "rougeL", (1.1, 1.01, 1.2), "✓ met"),
        ("best_single", "rougeL", (1.1, 1.0, 1.2), "(✓) met on average"),
        ("best_single", "rougeL", (1.0, 1.0, 1.0), "(✗) missed on average"),
        ("best_single", "rougeL", (0.9, 0.8, 0.99), "✗ missed"),
    ],
)
def test_a_target_is_met_by_the_whole_interval(
    baseline: str, metric: str, ends: tuple[float, float, float], verdict: str
) -> None:
    assert figure(claim(baseline, metric), *ends).verdict == verdict


def test_sentences() -> None:
    gain = figure(claim("naive_rag", "rougeL"), 1.2, 1.1, 1.3)
    assert gain.sentence() == (
        "Its ROUGE-L is 20.0 % above that of NaiveRAG: 0.600 against 0.500. The interval excludes zero."
    )
    assert (gain.shown, gain.interval) == ("+20.0 %", "+10.0 to +30.0 %")
    open_loss = replace(gain, claim=claim("tree", "rougeL"), reranker="bm25", ratio=0.95, low=0.9, high=1.01)
    assert open_loss.sentence() == (
        "Its ROUGE-L is 5.0 % below that of the tree search with bm25: 0.600 against 0.500. "
        "The interval includes zero: these questions do not tell the two apart."
    )
    tokens = figure(claim("naive_rag", "prompt_tokens"), 0.375, 0.35, 0.4, own=105.4, other=281.0)
    assert tokens.sentence() == (
        "It spends 105 tokens on chunks where NaiveRAG spends 281: 37.5 % of them. The interval excludes 100 %."
    )
    time = figure(claim("naive_rag", "seconds"), 1.05, math.nan, math.nan, own=1.0, other=0.95, questions=1)
    assert time.sentence() == (
        "From question to answer it takes 1,000 ms, LLM included, and NaiveRAG 950 ms: 5.0 % more. "
        "One question gives no interval."
    )
    assert time.interval == "–"


def test_few_questions_tell_nothing_but_their_figures() -> None:
    """Whatever their interval; one question more and it tells something."""
    few = figure(claim("naive_rag", "rougeL"), 1.072, 1.027, 1.186, questions=29)
    assert few.sentence() == (
        "Its ROUGE-L is 7.2 % above that of NaiveRAG: 0.600 against 0.500. "
        "29 questions are too few to tell; 30 are the least."
    )
    assert (few.verdict, few.differs, few.interval) == ("too few questions", False, "+2.7 to +18.6 %")
    (row,) = headline_table([few]).rows
    assert row.cells[1:4] == ("+7.2 %", "+2.7 to +18.6 %", "too few questions")
    tile = tiles_html([few])
    assert 'class="tile open"' in tile and "too few questions to tell" in tile and "+7.2 %" in tile
    assert "better" not in tile and "worse" not in tile
    enough = replace(few, questions=30)
    assert (enough.verdict, enough.differs) == ("✗ missed", True)
    assert 'class="tile better"' in tiles_html([enough])


def test_a_target_says_whose_it_is() -> None:
    """METHOD.md §8 has the paper's claims; the rest are targets that this project set itself."""
    paper = {
        ("naive_rag", "rougeL"): "at least +30 %",
        ("tree", "rougeL"): "above 0",
        ("upper", "seconds_search"): "at most 10 %",
        ("naive_rag", "seconds"): "at most +10 %",
    }
    for one in CLAIMS:
        target = paper.get((one.baseline, one.metric))
        whose = "This project's target" if target is None else "The paper's claim (arXiv:2411.00744)"
        assert one.whose_target == f"{whose}: {target or one.target}"
    gain = figure(claim("naive_rag", "rougeL"), 1.2, 1.1, 1.25)
    assert "The paper's claim (arXiv:2411.00744): at least +30 %; ✗ missed" in tiles_html([gain])
    assert headline_table([gain]).rows[0].section == (
        "ROUGE-L against NaiveRAG. The paper's claim (arXiv:2411.00744): at least +30 %."
    )


def test_the_run_in_one_sentence() -> None:
    def gains(*ends: tuple[float, float, float]) -> list[Figure]:
        return [
            figure(claim("naive_rag", metric), *(end if metric == "rougeL" else (share, share, share)), dataset=f"d{i}")
            for i, end in enumerate(ends)
            for metric, share in (("rougeL", 0.0), ("prompt_tokens", 0.35 + i / 10))
        ]

    better, worse, unclear = (1.2, 1.1, 1.3), (0.8, 0.7, 0.9), (1.1, 0.9, 1.3)
    told = "By ROUGE-L, tree search is "
    alone = f"{told}better than NaiveRAG on 1 of 1 data set, and spends 35 % of its tokens."
    assert verdict_sentence(gains(better)) == alone
    assert verdict_sentence(gains(better, worse, unclear)) == (
        f"{told}better than NaiveRAG on 1 of 3 data sets, worse than it on 1, not told apart from it on 1, "
        "and spends 35 to 55 % of its tokens."
    )
    both = verdict_sentence(gains(unclear, unclear))
    assert both.startswith(f"{told}not told apart from NaiveRAG on 2 of 2 data sets, and")
    assert "no headline" in verdict_sentence([])
    few = [replace(one, questions=29) for one in gains(better)]
    assert verdict_sentence(few) == (
        "By ROUGE-L, there are too few questions to tell (fewer than 30) whether tree search is better than NaiveRAG "
        "on 1 data set; it spends 35 % of its tokens."
    )
    one_few = [*gains(better), *(replace(one, dataset="few") for one in few)]
    assert verdict_sentence(one_few) == (
        f"{told}better than NaiveRAG on 1 of 2 data sets; on 1 there are too few questions to tell (fewer than 30); "
        "it spends 35 % of its tokens."
    )


def test_the_agent_leads_where_every_data_set_has_it() -> None:
    one = claim("naive_rag", "rougeL")
    tree, agent = (figure(one, 1.2, 1.1, 1.3, method=method) for method in ("tree", "agent"))
    assert leading_method([tree, agent]) == leading_method([agent]) == "agent"
    assert leading_method([tree, agent, replace(tree, dataset="other")]) == leading_method([tree]) == "tree"


def test_an_agent_off_its_labels_is_marked() -> None:
    one = figure(claim("naive_rag", "rougeL"), 1.2, 1.1, 1.3, method="agent", on_distribution=False)
    table = headline_table([one])
    assert table.rows[0].cells[1] == "+20.0 %†" and "†" in table.note
    assert "†" in tiles_html([one])
    fits = headline_table([replace(one, on_distribution=True)])
    assert "†" not in fits.rows[0].cells[1] + fits.note


def test_every_figure_has_a_row(figures: list[Figure]) -> None:
    table = headline_table(figures)
    assert len(table.rows) == len(figures)
    assert {row.section.split(". The paper's")[0].split(". This project's")[0] for row in table.rows} == {
        f.claim.title for f in figures
    }


# ---- choosing rows ----


def frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    names = ["run", "dataset", "chunk_size", "budget", "method", "reranker", "rougeL", "on_distribution"]
    return pd.DataFrame(rows, columns=names)


def test_the_best_reranker_stands_for_its_method() -> None:
    rows = frame(
        [
            ("r", "d", 96, 300, "tree", "bm25", 0.9, True),
            ("r", "d", 96, 300, "tree", BEST, 0.5, True),
            ("r", "d", 64, 300, "tree", "maxsim", 0.6, True),
            ("r", "d", 64, 300, "tree", "bm25", 0.4, True),
            ("r", "d", 96, 300, "hyde", "", 0.3, True),
            ("r", "d", 96, 300, "own", "x", 0.2, True),
        ]
    )
    chosen = best_rows(rows)[["chunk_size", "method", "reranker"]].to_numpy().tolist()
    # Never the greatest, which would be picked on the questions that are reported.
    assert sorted(chosen) == sorted([[96, "tree", BEST], [64, "tree", "bm25"], [96, "hyde", ""], [96, "own", "x"]])
    assert [method for _, method, _ in chosen] == ["tree", "tree", "hyde", "own"]


def test_upper_is_no_rival() -> None:
    rows = frame([("r", "d", 96, 300, m, "", s, True) for m, s in (("upper", 0.9), ("tree", 0.5), ("mmr", 0.5001))])
    assert greatest_method(rows) == {"tree", "mmr"}  # equal as shown


def test_the_fullest_run_of_each_data_set() -> None:
    rows = frame(
        [("small", "d", 96, 300, m, "", 0.5, True) for m in ("tree",)]
        + [("large", "d", 96, b, m, "", 0.5, b == 300) for b in (128, 300) for m in ("tree", "mmr")]
        + [("small", "e", 96, 300, "tree", "", 0.5, True)]
    )
    chosen = [(dataset, run, set(part["budget"])) for dataset, run, part in fullest_runs(rows, "method")]
    assert chosen == [("d", "large", {300}), ("e", "small", {300})]
    assert main_value(rows[rows["run"] == "large"], "budget") == 300
