"""The estimate of a dry run: what is measured, what it is scaled to, and that its questions are not labelled twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from corag_search import InputError
from data_prep.engines import LocalEngine
from data_prep.estimate import TokenPrice, Work, work_rows
from data_prep.grid import LabelGrid
from data_prep.job_options import JobOptions
from data_prep.label_run import label_questions, probe_questions
from tests.data_prep.test_labelling import GRID, make_labeller

TWO = [
    {
        "evaluations": {"a": 10, "b": 40},
        "outcomes": {"a": [], "b": []},
        "usage": {
            "calls": 3,
            "prompt_tokens": 1000,
            "answer_tokens": 100,
            "search_seconds": 2.0,
            "answer_seconds": 6.0,
        },
    },
    {
        "evaluations": {"a": 20, "b": 60},
        "outcomes": {"a": [], "b": []},
        "usage": {
            "calls": 5,
            "prompt_tokens": 2000,
            "answer_tokens": 300,
            "search_seconds": 4.0,
            "answer_seconds": 10.0,
        },
    },
    {"evaluations": {"a": 999}, "outcomes": {"a": []}},  # of a version that measured nothing
]
FOUR_SETTINGS = LabelGrid(exploration=(0.0, 1.0), cost_coefficient=(0.0, 0.1), iterations=(5, 10))


def test_an_estimate_worked_by_hand() -> None:
    work = Work.of(TWO, FOUR_SETTINGS).scaled(100)  # 50 times the two that were measured
    assert work.to_dict(hours=1.0, price=TokenPrice(prompt=2.0, answer=10.0)) == {
        "questions": 100,
        "searches": 50 * 2 * 2 * 4,  # two rerankers at four settings each
        "evaluations": {"a": 1500, "b": 5000},
        "llm_calls": 400,
        "prompt_tokens": 150_000,
        "answer_tokens": 20_000,
        "hours": 1.0,
        "price": 0.5,  # 0.15 million at 2, 0.02 million at 10
    }


@pytest.mark.parametrize(
    ("workers", "llm_concurrency", "in_flight", "seconds"),
    [
        (1, 1, 1, 300 + 800),  # nothing overlaps
        (1, 2, 2, 550),  # 1100 seconds of two questions at a time
        (1, 8, 8, 300),  # one search at a time is the narrowest
        (8, 1, 8, 800),  # one answer at a time is
    ],
)
def test_hours_are_those_of_the_narrowest_part(
    workers: int, llm_concurrency: int, in_flight: int, seconds: float
) -> None:
    work = Work.of(TWO, FOUR_SETTINGS).scaled(100)
    assert work.hours(workers, llm_concurrency, in_flight) == pytest.approx(seconds / 3600)


def test_questions_in_flight() -> None:
    assert JobOptions().in_flight == 1
    assert JobOptions(workers=2, llm_concurrency=7).in_flight == 8
    assert JobOptions(engine="ray", workers=4, llm_concurrency=32).in_flight == 32
    assert JobOptions(engine="ray", workers=4).in_flight == 4


def test_nothing_measured_is_an_estimate_of_nothing() -> None:
    work = Work.of([TWO[2]], FOUR_SETTINGS).scaled(10)
    assert (work.calls, work.hours(1, 1, 1), dict(work.evaluations)) == (0, 0, {})


def test_a_probe_is_kept_and_the_run_does_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    labeller = make_labeller()
    engine, questions = LocalEngine(labeller), labeller.dataset.questions
    records, left = probe_questions(engine, questions, out, 2)
    assert (list(records), left) == (["q0", "q3"], 4)  # spread over the questions
    assert not out.exists()
    assert probe_questions(engine, questions, out, 2) == (records, 4)  # those count the next time
    asked = labeller.generator.calls  # type: ignore[attr-defined]
    done = label_questions(engine, labeller.dataset, questions, out)
    assert set(done.labelled) == {"q1", "q2", "q4", "q5"}
    assert list(done.records)[:2] == ["q0", "q3"]  # oldest first: the run's estimate stands on them
    alone = make_labeller()
    label_questions(LocalEngine(alone), alone.dataset, questions, tmp_path / "alone.parquet")
    assert alone.generator.calls == labeller.generator.calls > asked  # type: ignore[attr-defined]
    assert (tmp_path / "alone.parquet").read_bytes() == out.read_bytes()
    assert probe_questions(engine, questions, out, 5)[1] == 0


def test_what_a_run_measures_is_what_it_did(tmp_path: Path) -> None:
    labeller = make_labeller()
    done = label_questions(LocalEngine(labeller), labeller.dataset, labeller.dataset.questions, tmp_path / "l.parquet")
    work = Work.of(done.records.values(), GRID)
    assert work.questions == 6 and work.searches == 6 * 2 * 4
    assert work.calls == labeller.generator.calls == done.answers + 6  # type: ignore[attr-defined]
    assert sum(work.evaluations.values()) == done.evaluations
    assert sum(work.evaluations.values()) == sum(len(reranker.evaluated) for reranker in labeller.rerankers)  # type: ignore[attr-defined]
    assert work.answer_tokens == 9 * work.calls and work.prompt_tokens > work.answer_tokens
    assert work.search_seconds > 0


def test_rows_to_print() -> None:
    work = Work.of(TWO, FOUR_SETTINGS)
    rows = dict((title, cells) for title, *cells in work_rows([(work, 0.5), (work.scaled(4000), 1234.5)], TokenPrice()))
    assert rows["evaluations, b"] == ["100", "200,000"] and rows["hours"] == ["0.5000", "1,234.50"]
    assert "price" not in rows
    assert work_rows([(work, 0.5)], TokenPrice(prompt=1000.0))[-1] == ("price", "3.00")


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_prices_that_are_none(price: float) -> None:
    with pytest.raises(InputError, match=r"price\.answer must be a finite number, at least 0"):
        TokenPrice(answer=price)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "dask"}, "engine must be one of local, ray, got 'dask'"),
        ({"samples": 0}, "samples must be a whole number, at least 1"),
        ({"samples": 10**12}, "samples must be at most 1,000, got 1,000,000,000,000"),
        ({"references": ("gold",)}, "references must be llm, human or llm,human"),
        ({"split_by": "question"}, "splits can be by document or by domain, got 'question'"),
        ({"worker_gpus": -1.0}, "worker_gpus must be a number, at least 0"),
        ({"ray_address": "auto"}, "is for engine=ray, got engine=local"),
        ({"worker_cpus": 2.0}, "worker_cpus=2.0 is for engine=ray, got engine=local"),
        ({"worker_gpus": 0.5}, "worker_gpus=0.5 is for engine=ray, got engine=local"),
    ],
)
def test_unusable_options(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        JobOptions(**options)
