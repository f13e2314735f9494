"""Tables of a run, worked out by hand and in plain loops."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_agent.evaluation.best_of_half import BEST, HALVINGS, best_choices, best_rerankers, halves_of
from corag_agent.evaluation.intervals import paired_bootstrap, paired_ratio
from corag_agent.evaluation.records import KEY, PARTIAL, SCHEMAS, SCORES, SECONDS, EvaluationRun
from corag_agent.evaluation.summary import (
    differences,
    experiments,
    latency_table,
    method_table,
    structure_table,
)
from corag_agent.evaluation.summary_text import json_tables, printed_tables, structure_text, tables_of
from corag_search import InputError
from data_prep.groups import connected

QUESTIONS = [f"q{i}" for i in range(24)]


def halves(seed: int = 0) -> dict[str, int]:
    """Half of each of `QUESTIONS`, as those of `run_of` are about ten documents."""
    records = pd.DataFrame(
        {"dataset": "d", "question_id": QUESTIONS, "documents": [[f"doc{q[-1]}"] for q in QUESTIONS]}
    )
    return {question: half for (_, question), half in halves_of(records, seed).items()}


HALF = halves()


def record(question: str, method: str, reranker: str, rouge: float, tokens: int = 10, **more: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        **dict(zip(KEY, ("d", question, "main", method, reranker, 96, 300, ""), strict=True)),
        **{name: "" for name in ("domain", "kind", "language", "error")},
        **dict.fromkeys((*SCORES, *PARTIAL), rouge),
        **dict.fromkeys(SECONDS, math.nan),
        **{"settings": "{}", "order": [0], "chunk_ids": ["c"], "evaluations": 1, "answer_tokens": 3},
        **{"prompt_tokens": tokens, "on_distribution": True},
    }
    return plain | more


def run_of(rows: list[dict[str, Any]], structure: pd.DataFrame | None = None) -> EvaluationRun:
    records = pd.DataFrame(rows, columns=SCHEMAS["records"].names)
    names = sorted({(row["dataset"], row["question_id"]) for row in rows})
    questions = pd.DataFrame(
        [
            dict.fromkeys(("domain", "kind", "language", "split", "question", "reference"), "")
            | {"dataset": d, "question_id": q, "human_answers": [], "gold": [], "documents": [f"doc{q[-1]}"]}
            for d, q in names
        ]
    )
    chunks = pd.DataFrame(
        [{"dataset": d, "chunk_size": 96, "chunk_id": "c", "text": "x", "cost": 10} for d, _ in names]
    )
    answers = records[list(KEY)].assign(answer="x")
    return EvaluationRun(records, questions, answers, chunks.drop_duplicates(), {"runs": [{"name": "main"}]}, structure)


def noisy(seed: int = 0) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    rows = []
    for question in QUESTIONS:
        base = generator.random() / 2
        for method, gain in (("naive_rag", 0.0), ("tree", 0.2)):
            for reranker in ("a", "b"):
                rouge = base + gain + 0.1 * generator.random()
                rows.append(record(question, method, reranker, rouge, tokens=20 if method == "naive_rag" else 5))
        rows.append(record(question, "agent", "", base + 0.15))
    return rows


def test_the_best_reranker_is_chosen_on_the_other_half() -> None:
    assert 6 <= sum(HALF.values()) <= 18
    # "a" is better on half 0, "b" on half 1: whoever looks at what is reported would get 1.0 everywhere.
    rows = [
        record(question, method, reranker, float((reranker == "a") == (HALF[question] == 0)))
        for question in QUESTIONS
        for method in ("naive_rag", "tree")
        for reranker in ("a", "b")
    ]
    run = run_of(rows)
    choices = best_choices(run.succeeded).set_index(["method", "half"])["reranker"]
    assert dict(choices) == {(m, h): "ab"[h] for m in ("naive_rag", "tree") for h in (0, 1)}
    best = best_rerankers(run.succeeded)
    assert len(best) == 2 * len(QUESTIONS) and (best["rougeL"] == 0).all() and set(best["reranker"]) == {BEST}
    for _, row in best.iterrows():
        assert row["chosen"] == "ab"[1 - HALF[row["question_id"]]]


def test_many_halvings_are_the_mean_of_each() -> None:
    rows = noisy()
    records = run_of(rows).succeeded
    scores = {(row["method"], row["question_id"], row["reranker"]): row["rougeL"] for row in rows}
    found = best_rerankers(records, halvings=HALVINGS).set_index(["method", "question_id"])
    assert len(found) == 2 * len(QUESTIONS) and set(found["reranker"]) == {BEST}
    for method in ("naive_rag", "tree"):
        expected = dict.fromkeys(QUESTIONS, 0.0)
        for seed in range(HALVINGS):
            half = halves(seed)
            for question in QUESTIONS:
                others = [other for other in QUESTIONS if half[other] != half[question]]
                best = max("ab", key=lambda name: np.mean([scores[method, other, name] for other in others]))
                expected[question] += scores[method, question, best] / HALVINGS
        assert dict(found.loc[method, "rougeL"]) == pytest.approx(expected)
    assert set(found.loc["tree", "prompt_tokens"]) == {5} and set(found["run"]) == {"main"}


def asked_about(documents: list[list[str]]) -> pd.DataFrame:
    return pd.DataFrame(
        {"dataset": "d", "question_id": [f"q{i}" for i in range(len(documents))], "documents": documents}
    )


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.sampled_from("abcdefghijkl"), max_size=2, unique=True), min_size=1, max_size=30),
    st.integers(0, 99),
)
def test_halves_divide_no_document_and_are_nearly_equal(documents: list[list[str]], seed: int) -> None:
    records = asked_about(documents)
    half = halves_of(records, seed)
    sizes = Counter(half.values())
    of_question = [half["d", f"q{i}"] for i in range(len(documents))]
    components = Counter(connected(documents).tolist())
    if len(components) > 1:
        for one, own in zip(of_question, documents, strict=True):
            assert all(one == other for other, also in zip(of_question, documents, strict=True) if set(own) & set(also))
    largest = max(components.values()) if len(components) > 1 else 1
    assert abs(sizes[0] - sizes[1]) <= largest
    assert halves_of(records.sample(frac=1, random_state=seed), seed) == half  # whatever the order of the rows
    assert halves_of(pd.concat([records, records]), seed) == half


def test_halves_of_equal_documents_are_equal() -> None:
    records = asked_about([[f"d{i // 3}"] for i in range(60)])
    found = [halves_of(records, seed) for seed in range(20)]
    assert all(sum(half.values()) == 30 for half in found)
    assert len({tuple(sorted(half.items())) for half in found}) == 20
    for alone in ([[]] * 11, [["d"]] * 11):  # no document is known, or all questions are about one
        assert sum(halves_of(asked_about(alone)).values()) in (5, 6)


def test_what_chooses_for_a_question_has_not_seen_its_document() -> None:
    """Each document has its own best reranker; by its own questions each would be chosen."""
    own = {q: "ab"[i % 2] for i, q in enumerate(f"doc{n}" for n in range(10))}
    rows = [record(q, "tree", r, float(own[f"doc{q[-1]}"] == r)) for q in QUESTIONS for r in "ab"]
    best = best_rerankers(run_of(rows).succeeded).set_index("question_id")
    for question in QUESTIONS:
        others = [q for q in QUESTIONS if HALF[q] != HALF[question]]
        assert question[-1] not in {q[-1] for q in others}
        score = {r: sum(own[f"doc{q[-1]}"] == r for q in others) for r in "ab"}
        assert score["a"] == score["b"] or best.loc[question, "chosen"] == max("ab", key=score.__getitem__)


def test_equal_rerankers_go_to_fewer_tokens() -> None:
    rows = [record(q, "tree", r, 0.5, tokens=t) for q in QUESTIONS for r, t in (("a", 9), ("b", 8), ("c", 8))]
    assert set(best_choices(run_of(rows).succeeded)["reranker"]) == {"b"}


def test_rerankers_are_compared_on_the_questions_that_all_have() -> None:
    """Of a run under way: "a" has the easy questions only, on which it is worse than "b"."""
    easy = set(QUESTIONS[::3])
    rows = [record(q, "tree", "b", 0.8 if q in easy else 0.2) for q in QUESTIONS]
    rows += [record(q, "tree", "a", 0.7) for q in easy]
    assert set(best_choices(run_of(rows).succeeded)["reranker"]) == {"b"}
    best = best_rerankers(run_of(rows).succeeded).set_index("question_id")["rougeL"]
    assert dict(best) == {q: 0.8 if q in easy else 0.2 for q in QUESTIONS}
    apart = [record(q, "tree", "a" if q in easy else "b", 0.7 if q in easy else 0.2) for q in QUESTIONS]
    assert set(best_choices(run_of(apart).succeeded)["reranker"]) == {"a"}  # no question of both


def test_means_and_failures() -> None:
    rows = noisy()
    rows[0] |= {"error": "broken", "order": [], "chunk_ids": []} | dict.fromkeys((*SCORES, *PARTIAL), math.nan)
    table = method_table(run_of(rows), resamples=500).set_index(["method", "reranker"])
    assert list(table.loc[("naive_rag", "a"), ["questions", "failed"]]) == [23, 1]
    expected = [row["rougeL"] for row in rows[1:] if (row["method"], row["reranker"]) == ("naive_rag", "a")]
    assert table.loc[("naive_rag", "a"), "rougeL"] == pytest.approx(np.mean(expected))
    row = table.loc[("tree", "b")]
    assert row["rougeL_low"] < row["rougeL"] < row["rougeL_high"] and row["prompt_tokens"] == 5
    assert ("agent", "") in table.index and ("agent", BEST) not in table.index


def test_rows_of_a_table_are_about_the_same_questions() -> None:
    rows = [record(q, "naive_rag", "a", 0.2) for q in QUESTIONS]
    rows += [record(q, "tree", "a", 0.5 + 0.1 * (q == "q3"), tokens=5) for q in QUESTIONS[3:9]]
    rows += [record(q, "tree", "a", 1.0, dataset="e") for q in QUESTIONS[:2]]  # where it is the only one
    table = method_table(run_of(rows), resamples=100).set_index(["dataset", "method"])
    assert list(table["questions"]) == [6, 6, 2]
    assert table.loc[("d", "tree"), "rougeL"] == pytest.approx(0.5 + 0.1 / 6)
    rows[3] |= {"error": "broken", "order": [], "chunk_ids": []} | dict.fromkeys((*SCORES, *PARTIAL), math.nan)
    table = method_table(run_of(rows), resamples=100).set_index(["dataset", "method"])
    assert [list(table.loc[("d", name), ["questions", "failed"]]) for name in ("naive_rag", "tree")] == [[5, 1], [6, 0]]


def test_while_no_question_is_done_tables_have_what_there_is() -> None:
    rows = [record("q0", "naive_rag", "a", 0.2), record("q1", "naive_rag", "a", 0.4), record("q2", "tree", "a", 0.5)]
    table = method_table(run_of(rows), resamples=100).set_index("method")
    assert list(table["questions"]) == [2, 1] and table.loc["naive_rag", "rougeL"] == pytest.approx(0.3)


def test_differences_are_paired_with_the_baseline_of_the_same_reranker() -> None:
    rows = noisy()
    table = differences(run_of(rows), resamples=2000).set_index(["method", "reranker"])
    of = {(r["method"], r["reranker"], r["question_id"]): r["rougeL"] for r in rows}
    # The run is in the order of its keys.
    order = sorted(QUESTIONS)
    a, b = ([of[method, "a", q] for q in order] for method in ("tree", "naive_rag"))
    row, wanted = table.loc[("tree", "a")], paired_bootstrap(a, b, resamples=2000)
    assert (row["difference"], row["low"], row["high"]) == (wanted.mean, wanted.low, wanted.high)
    assert row["relative"] == paired_ratio(a, b, resamples=1).mean and row["low"] > 0
    assert (row["tokens"], row["tokens_low"], row["tokens_high"]) == (0.25, 0.25, 0.25)
    # The agent, which has no reranker, is set against NaiveRAG's best.
    best = best_rerankers(run_of(rows).succeeded, halvings=HALVINGS).set_index(["method", "question_id"])["rougeL"]
    gap = np.mean([of["agent", "", q] - best["naive_rag", q] for q in order])
    assert table.loc[("agent", ""), "difference"] == pytest.approx(gap)
    assert "naive_rag" not in table.index.get_level_values("method")


def test_questions_that_only_one_has_are_left_out() -> None:
    rows = [record(q, "naive_rag", "", 0.2) for q in QUESTIONS[:10]]
    rows += [record(q, "tree", "", 0.5) for q in QUESTIONS[5:]]
    row = differences(run_of(rows), resamples=100).iloc[0]
    assert row["questions"] == 5 and row["difference"] == pytest.approx(0.3)
    nothing = [record("q0", "naive_rag", "", 0.0), record("q0", "tree", "", 0.5)]
    assert math.isnan(differences(run_of(nothing), resamples=100).iloc[0]["relative"])


def test_groups_by_kind_and_documents() -> None:
    rows = [row | {"kind": "compound" if row["question_id"] in QUESTIONS[:8] else ""} for row in noisy()]
    table = method_table(run_of(rows), by=("kind",), resamples=100)
    counts = table[table["reranker"] == "a"].groupby("kind")["questions"].first()
    assert dict(counts) == {"": 16, "compound": 8}
    single, grouped = (
        differences(run_of(rows), by_document=by_document, resamples=500).iloc[0] for by_document in (False, True)
    )
    assert single["difference"] == pytest.approx(grouped["difference"]) and single["low"] != grouped["low"]


def test_latency_is_of_what_was_measured() -> None:
    rows = [
        record(q, "tree", "", 0.5, seconds_search=float(i + 1), seconds_generate=10.0, seconds_embed=math.nan)
        for i, q in enumerate(QUESTIONS[:4])
    ]
    rows.append(record("q9", "tree", "", 0.5, seconds_search=7.0))  # its answer came out of the cache
    table = latency_table(run_of(rows)).set_index("stage")
    assert list(table.loc["search", ["questions", "mean", "p50"]]) == [5, 17 / 5, 3.0]
    assert table.loc["search", "p95"] == pytest.approx(4 + 0.8 * 3)  # between 4 and 7
    assert list(table.loc["total", ["questions", "mean"]]) == [4, 12.5] and "embed" not in table.index
    assert latency_table(run_of(noisy())).empty


def test_structure_shares() -> None:
    base = {"dataset": "d", "run": "s", "reranker": "a", "chunk_size": 96, "budget": 300, "candidates": 8}
    one = {"pairs": 10, "additive": 2, "worse_than_best": 5, "order_matters": 0, "best_chunks": 1}
    two = {"pairs": 30, "additive": 0, "worse_than_best": 3, "order_matters": 6, "best_chunks": 2}
    frame = pd.DataFrame(
        [
            base | one | {"question_id": "q0", "best_is_largest": False},
            base | two | {"question_id": "q1", "best_is_largest": True},
        ]
    )
    run = run_of(noisy(), frame)
    row = structure_table(run, resamples=100).iloc[0]
    wanted = {"questions": 2, "pairs": 40, "not_additive": 0.95, "worse_than_best": 0.2, "order_matters": 0.15}
    assert {name: row[name] for name in wanted} == pytest.approx(wanted)
    assert (row["not_largest"], row["best_chunks"]) == (0.5, 1.5)
    assert "0.950" in structure_text(run) and structure_table(run_of(noisy())).empty


def test_questions_that_two_experiments_measure_count_once_each() -> None:
    base = {"dataset": "d", "reranker": "a", "chunk_size": 96, "budget": 300, "pairs": 10, "worse_than_best": 0}
    base |= {"order_matters": 0, "best_chunks": 1}
    frame = pd.DataFrame(
        [
            base
            | {"question_id": question, "run": name, "candidates": candidates, "additive": additive}
            | {"best_is_largest": place % 2 == 0}
            for place, question in enumerate(QUESTIONS)
            for name, candidates, additive in (("eight", 8, 5), ("six", 6, 0))
        ]
    )
    table = structure_table(run_of(noisy(), frame), resamples=100).set_index("run")
    assert dict(table["questions"]) == {"eight": 24, "six": 24} and dict(table["not_additive"]) == {
        "eight": 0.5,
        "six": 1,
    }
    alone = structure_table(run_of(noisy(), frame[frame["run"] == "six"]), resamples=100).iloc[0]
    assert alone["low"] == table.loc["six", "low"] and alone["high"] == table.loc["six", "high"]
    assert "six" in structure_text(run_of(noisy(), frame))


def test_unknown_names_are_refused() -> None:
    run = run_of(noisy())
    assert experiments(run) == ["main"]
    for call, message in (
        (lambda: method_table(run, "other"), "there is no run 'other' in this evaluation; it has main"),
        (lambda: method_table(run, by=("size",)), "got 'size'"),
        (lambda: differences(run, "magic"), "the baseline 'magic' is no method of this run; it has"),
        (lambda: differences(run, metric="bleu"), "metric must be one of rouge1"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_tables_are_printed_and_plain() -> None:
    run = run_of(noisy())
    found = tables_of(run, "main", "naive_rag", resamples=100)
    means, compared = printed_tables(found, "main", "naive_rag")
    assert "main: means" in means and "best" in means and "gold" in means
    assert "main: ROUGE-L against naive_rag, with 95 % intervals" in compared and "agent" in compared
    tables = json_tables(found)
    assert {row["method"] for row in tables["differences"]} == {"tree", "agent"} and tables["latency"] == []
    assert not printed_tables(tables_of(run, "main", "none", resamples=100), "main", "none")[
        1:
    ]  # without the baseline there is nothing to compare with
    assert all(len(line) <= 130 for text in (means, compared) for line in text.splitlines())
