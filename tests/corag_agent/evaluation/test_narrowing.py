"""Which data sets, experiments and methods are left of a plan."""

from __future__ import annotations

from typing import Any

import pytest

from corag_agent.evaluation.narrowing import narrowed
from corag_agent.evaluation.plan import Experiment, Source
from corag_search import InputError

SOURCES = [Source("a", "demo", limit=50), Source("b", "demo"), Source("x=1", "demo", limit=3)]
EXPERIMENTS = [
    Experiment("main", methods=["naive_rag", "beam", "agent"], options={"beam": {"width": 2}}),
    Experiment("few", methods=["agent"], data=["a", "b"], limit=20),
    Experiment("structure", methods=["agent"], data=["b"], structure=True, limit=30),
]


def test_without_options_the_plan_stays() -> None:
    assert narrowed(SOURCES, EXPERIMENTS) == (SOURCES, EXPERIMENTS)
    assert narrowed([], []) == ([], [])  # refused elsewhere


def test_data_sets_are_taken_in_the_plan_s_order_with_so_many_questions() -> None:
    sources, experiments = narrowed(SOURCES, EXPERIMENTS, take=["b=7", "a=60"])
    assert [(one.name, one.limit) for one in sources] == [("a", 60), ("b", 7)]  # above the file's own limit too
    assert [(one.name, one.data) for one in experiments] == [
        ("main", ["a", "b"]),
        ("few", ["a", "b"]),
        ("structure", ["b"]),
    ]
    assert [one.limit for one in experiments] == [None, 20, 30]
    sources, experiments = narrowed(SOURCES, EXPERIMENTS, take=["a"])
    assert sources == SOURCES[:1] and [one.name for one in experiments] == ["main", "few"]


def test_a_name_with_an_equals_sign_is_a_name() -> None:
    assert [(one.name, one.limit) for one in narrowed(SOURCES, EXPERIMENTS, take=["x=1"])[0]] == [("x=1", 3)]
    assert [(one.name, one.limit) for one in narrowed(SOURCES, EXPERIMENTS, take=["x=1=2"])[0]] == [("x=1", 2)]


def test_methods_are_left_out_with_their_options() -> None:
    _, experiments = narrowed(SOURCES, EXPERIMENTS, without=["agent", "beam"])
    assert [(one.name, one.methods) for one in experiments] == [("main", ["naive_rag"]), ("structure", [])]
    assert experiments[0].options == {}


def test_the_smaller_limit_holds() -> None:
    _, experiments = narrowed(SOURCES, EXPERIMENTS, only=["main", "few"], limit=25)
    assert [(one.name, one.limit) for one in experiments] == [("main", 25), ("few", 20)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"only": ["other"]}, "only: there is no run 'other'; there are: main, few, structure"),
        ({"take": ["c"]}, "take: there is no data set 'c'; there are: a, b, x=1"),
        ({"take": ["c=4"]}, "take: there is no data set 'c'"),
        ({"take": ["a=0"]}, "take: questions of a must be a whole number, at least 1, got '0'"),
        ({"take": ["a=-3"]}, "got '-3'"),
        ({"take": ["a="]}, "got ''"),
        ({"limit": 0}, "limit must be a whole number, at least 1, got 0"),
        ({"without": ["magic"]}, "unknown method 'magic'"),
        ({"only": ["few"], "without": ["agent"]}, "nothing is left to do of the runs"),
        ({"only": ["structure"], "take": ["a"]}, "nothing is left to do of the runs"),
    ],
)
def test_what_names_nothing_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        narrowed(SOURCES, EXPERIMENTS, **given)
