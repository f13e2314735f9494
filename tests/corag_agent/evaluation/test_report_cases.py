"""Cases in full: which questions, what is shown of them, and how both forms write it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_agent.evaluation.best_of_half import BEST, best_rerankers
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.case_cards import cases_html, cases_markdown
from corag_agent.evaluation.report.cases import CASES_RULE, NO_CASES, Case, Cases, cases_of, chosen_cases
from tests.corag_agent.evaluation.report_runs import Experiment, made_run
from tests.corag_search.test_tree_page import HOSTILE, Reader

MAIN = Experiment("main", methods=("naive_rag", "tree", "agent"))


@pytest.fixture(scope="module")
def run() -> EvaluationRun:
    return made_run({"b": 14, "a": 9}, [MAIN, Experiment("small", methods=("tree",))])


@pytest.fixture(scope="module")
def cases(run: EvaluationRun) -> Cases:
    found = cases_of(run)
    assert found is not None
    return found


# ---- the rule ----


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [
        ([0.3, -0.1, 0.0, 0.2, 0.1], [("median gain", 4), ("greatest gain", 0), ("greatest loss", 1)]),
        ([0.3, -0.1, 0.2, 0.1], [("median gain", 3), ("greatest gain", 0), ("greatest loss", 1)]),  # the lower middle
        ([0.1, 0.1, 0.1], [("median gain", 1), ("least gain", 0)]),  # equals by their ids
        ([0.2, 0.4, 0.3], [("median gain", 2), ("greatest gain", 1), ("least gain", 0)]),
        ([0.2, -0.4], [("greatest gain", 0), ("greatest loss", 1)]),
        ([-0.2], [("greatest loss", 0)]),
        ([], []),
    ],
)
def test_the_rule_by_hand(gains: list[float], chosen: list[tuple[str, int]]) -> None:
    named = {f"q{i}": gain for i, gain in enumerate(gains)}
    assert chosen_cases(named) == [(what, f"q{i}") for what, i in chosen]


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(-3, 3), min_size=3))
def test_the_rule_and_its_order_of_questions(gains: dict[str, int]) -> None:
    chosen = dict(chosen_cases(gains))
    assert chosen_cases(dict(reversed(gains.items()))) == list(chosen.items())
    assert len(set(chosen.values())) == len(chosen)
    ends = {what: gains[question] for what, question in chosen.items()}
    least = ends.get("greatest loss", ends.get("least gain"))
    assert least == min(gains.values()) and ("greatest loss" in ends) == (least < 0)
    if "greatest gain" in ends:
        assert ends["greatest gain"] == max(gains.values())
    if "median gain" in ends:
        below, above = (sum(sign * (ends["median gain"] - gain) > 0 for gain in gains.values()) for sign in (1, -1))
        assert max(below, above) <= len(gains) / 2


# ---- what is shown ----


def best_of(run: EvaluationRun, dataset: str) -> pd.DataFrame:
    """Both methods with the reranker of the other half, by method and question."""
    rows = run.records[(run.records["dataset"] == dataset) & (run.records["run"] == "main")]
    return best_rerankers(rows).set_index(["method", "question_id"]).sort_index()


def test_cases_are_extremes_of_the_best_rerankers_gain(run: EvaluationRun, cases: Cases) -> None:
    assert cases.note == CASES_RULE
    whats = ["median gain", "greatest gain", "greatest loss"]
    assert [(case.dataset, case.what) for case in cases.cases] == [(name, what) for name in "ab" for what in whats]
    for dataset in "ab":
        rows = best_of(run, dataset)["rougeL"]
        gains = (rows["tree"] - rows["naive_rag"]).sort_values()
        median, greatest, loss = (case for case in cases.cases if case.dataset == dataset)
        assert (greatest.question_id, loss.question_id) == (gains.index[-1], gains.index[0])
        assert median.question_id == gains.index[(len(gains) - 1) // 2]
        assert [case.gain for case in (median, greatest, loss)] == [
            gains[c.question_id] for c in (median, greatest, loss)
        ]


def test_a_case_is_what_the_files_have(run: EvaluationRun, cases: Cases) -> None:
    texts, costs = (run.chunks.set_index(["dataset", "chunk_id"])[name] for name in ("text", "cost"))
    golds = 0
    for case in cases.cases:
        question = run.questions.set_index(["dataset", "question_id"]).loc[(case.dataset, case.question_id)]
        assert (case.question, case.reference) == (question["question"], question["reference"])
        for method, shown in zip(("tree", "naive_rag"), case.answers, strict=True):
            row = best_of(run, case.dataset).loc[(method, case.question_id)]
            assert shown.way.endswith(f" · {row['chosen']}") and BEST not in shown.way.split(" · ")
            assert [chunk.name for chunk in shown.chunks] == list(row["chunk_ids"])  # in the prompt's order
            assert [chunk.text for chunk in shown.chunks] == [texts[case.dataset, n] for n in row["chunk_ids"]]
            assert [chunk.cost for chunk in shown.chunks] == [costs[case.dataset, n] for n in row["chunk_ids"]]
            assert [chunk.gold for chunk in shown.chunks] == [c.text in question["gold"] for c in shown.chunks]
            assert (shown.scores["rougeL"], shown.tokens) == (row["rougeL"], row["prompt_tokens"])
            assert shown.answer.endswith(f"says {method}.")
            golds += sum(chunk.gold for chunk in shown.chunks)
    assert golds


def test_one_reranker_is_the_best() -> None:
    found = cases_of(made_run({"d": 5}, [replace(MAIN, rerankers=("bm25",))]))
    assert found is not None and len(found.cases) == 3
    assert {answer.way for case in found.cases for answer in case.answers} == {"tree search · bm25", "NaiveRAG · bm25"}


def test_failed_questions_are_no_cases(run: EvaluationRun, cases: Cases) -> None:
    worst = cases.cases[2]
    records = run.records.copy()
    bad = (records["question_id"] == worst.question_id) & (records["method"] == "naive_rag")
    records.loc[bad, "error"] = "boom"
    frames = (records, run.questions, run.answers, run.chunks)
    found = cases_of(EvaluationRun(*frames, settings=run.settings))
    assert found is not None
    assert worst.question_id not in {case.question_id for case in found.cases if case.dataset == "a"}


def test_without_both_methods_there_are_none_and_without_texts_a_sentence(run: EvaluationRun) -> None:
    assert cases_of(made_run({"d": 3}, [Experiment(methods=("naive_rag", "agent"))])) is None
    blank: dict[str, Any] = {
        "questions": run.questions.assign(question="", reference=""),
        "answers": run.answers.assign(answer=""),
        "chunks": run.chunks.assign(text="", cost=0),
    }
    assert cases_of(EvaluationRun(records=run.records, **blank, settings=run.settings)) == Cases(NO_CASES)
    assert NO_CASES in cases_html(Cases(NO_CASES)) and list(cases_markdown(Cases(NO_CASES))) == ["## Cases", NO_CASES]


# ---- both forms ----


def with_texts(case: Case, text: str, name: str) -> Case:
    answers = tuple(
        replace(own, answer=text, chunks=tuple(replace(chunk, name=name, text=text) for chunk in own.chunks))
        for own in case.answers
    )
    return replace(case, dataset=name, question=text, question_id=name, reference=text, answers=answers)


def test_the_page_has_all_of_it(cases: Cases) -> None:
    html = cases_html(cases)
    read = Reader(html)
    assert html.index(CASES_RULE[:40]) < html.index("<article>")  # the rule stands above
    assert read.tags.count("article") == 2 * len(cases.cases) and read.tags.count("details") == 2
    chunks = [chunk for case in cases.cases for answer in case.answers for chunk in answer.chunks]
    assert read.tags.count("li") == len(chunks) and html.count("★") == sum(chunk.gold for chunk in chunks)
    assert all(chunk.text in html for chunk in chunks)
    assert html.count('<details class="folded" open>') == 1


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_texts_cannot_break_out(cases: Cases, text: str) -> None:
    hostile = replace(cases, cases=tuple(with_texts(case, text, text) for case in cases.cases))
    plain, read = Reader(cases_html(replace(cases, cases=cases.cases[:3]))), Reader(cases_html(hostile))
    assert set(read.tags) == set(plain.tags)
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    for block in list(cases_markdown(hostile))[2:]:
        assert "<" not in block.replace("\\<", "") and "\n\n" not in block


def test_markdown_cuts_texts(cases: Cases) -> None:
    long = "word " * 300
    blocks = list(cases_markdown(replace(cases, cases=(with_texts(cases.cases[0], long, "c"),))))
    assert "…" in blocks[-1] and max(len(line) for line in blocks[-1].splitlines()) < 1000
    short = "\n".join(cases_markdown(cases))
    assert "…" not in short and all(f"**{case.what.capitalize()}, " in short for case in cases.cases)
