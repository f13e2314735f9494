"""The rivals of the policy tree, by hand and against brute force."""

from __future__ import annotations

import random

import pytest

from corag_search import Chunk, InputError, SearchConfig, search_policy_tree
from corag_search.baselines import best_single, greedy_climb, naive_matched, naive_rag, upper_bound
from tests.corag_search.scripted import RandomScores, Scripted, chunks_of

SCORES = {"a": 0.5, "b": 0.9, "c": 0.4, "d": 0.6, "bd": 0.7, "ba": 0.95, "bac": 0.2}


def test_naive_rag_fills_the_budget_best_first_and_passes_over_what_does_not_fit() -> None:
    # b (40 of 100), then d (70) does not fit, a (50) does, c (30) does not.
    reranker = Scripted(SCORES, default=0.1)
    result = naive_rag("q", chunks_of(a=50, b=40, c=30, d=70), reranker, SearchConfig(budget=100))
    assert result.order == (1, 0)
    assert (result.value, result.cost) == (0.95, 90)
    assert result.objective == pytest.approx(0.95 - 0.1 * 90 / 100)


def test_naive_rag_is_stopped_by_the_budget_alone() -> None:
    reranker = Scripted({}, default=0.5)
    chunks = [Chunk(str(i), "t", 1) for i in range(12)]
    assert naive_rag("q", chunks, reranker, SearchConfig(budget=9, max_chunks=2)).cost == 9


def test_naive_matched_spends_what_it_is_given() -> None:
    reranker = Scripted(SCORES, default=0.1)
    chunks = chunks_of(a=50, b=40, c=30, d=70)
    assert naive_matched("q", chunks, reranker, SearchConfig(budget=100), tokens=75).order == (1, 2)
    assert naive_matched("q", chunks, reranker, SearchConfig(budget=100), tokens=35).order == (2,)
    with pytest.raises(
        InputError, match=r"tokens must be at least the smallest candidate's cost \(30 tokens\), got 20"
    ):
        naive_matched("q", chunks, reranker, SearchConfig(budget=100), tokens=20)


def test_best_single_weighs_the_price() -> None:
    reranker = Scripted({"a": 0.5, "b": 0.55})
    chunks = chunks_of(a=10, b=100)
    assert best_single("q", chunks, reranker, SearchConfig(budget=100, cost_coefficient=0.0)).order == (1,)
    assert best_single("q", chunks, reranker, SearchConfig(budget=100, cost_coefficient=0.1)).order == (0,)


def test_greedy_climb_stops_where_no_step_goes_up() -> None:
    # abc is best of all, but a → ab goes down, so the climb ends at a.
    reranker = Scripted({"a": 0.5, "b": 0.3, "c": 0.2, "abc": 1.0}, default=0.4)
    config = SearchConfig(budget=10, cost_coefficient=0.0)
    assert greedy_climb("q", chunks_of(a=1, b=1, c=1), reranker, config).order == (0,)
    up = Scripted({"a": 0.5, "ab": 0.6, "abc": 0.7}, default=0.1)
    assert greedy_climb("q", chunks_of(a=1, b=1, c=1), up, config).order == (0, 1, 2)
    short = SearchConfig(budget=10, cost_coefficient=0.0, max_chunks=2)
    assert greedy_climb("q", chunks_of(a=1, b=1, c=1), up, short).order == (0, 1)


@pytest.mark.parametrize("order_sensitive", [True, False])
def test_upper_bound_is_what_the_whole_tree_finds(order_sensitive: bool) -> None:
    rng = random.Random(0)
    for seed in range(60):
        chunks = [Chunk(str(i), "t", rng.randint(1, 6)) for i in range(rng.randint(1, 5))]
        config = SearchConfig(iterations=500, budget=rng.randint(6, 15), max_chunks=rng.choice([None, 2, 3]))
        bound = upper_bound("q", chunks, RandomScores(seed, order_sensitive), config)
        tree = search_policy_tree("q", chunks, RandomScores(seed, order_sensitive), config)
        assert (bound.order, bound.value, bound.cost) == (tree.order, tree.value, tree.cost)
        assert bound.objective == pytest.approx(tree.objective)
        assert bound.evaluations == tree.evaluations


def test_upper_bound_refuses_what_would_take_too_long_and_says_how_to_lower_it() -> None:
    chunks = [Chunk(str(i), "t", 1) for i in range(60)]
    with pytest.raises(InputError, match=r"up to 667,293,600 combinations of 60 candidates.*lower max_chunks \(5\)"):
        upper_bound("q", chunks, RandomScores(0), SearchConfig(budget=100), limit=5000)
    # Only what is affordable counts: two chunks at most here.
    assert upper_bound("q", chunks, RandomScores(0), SearchConfig(budget=2), limit=5000).evaluations == 60 + 60 * 59


def test_what_the_reranker_cannot_read_is_not_compared() -> None:
    class Limited(RandomScores):
        max_tokens = 5

    chunks = chunks_of(a=3, b=3, c=2, d=4)
    config = SearchConfig(budget=12, iterations=99)
    for seed in range(10):
        reranker = Limited(seed)
        bound = upper_bound("q", chunks, reranker, config)
        assert {frozenset(ids) for ids in reranker.evaluated if len(ids) > 1} == {frozenset("ac"), frozenset("bc")}
        assert bound.order == search_policy_tree("q", chunks, Limited(seed), config).order
        assert greedy_climb("q", chunks, Limited(seed), config).cost <= 5
    with pytest.warns(UserWarning, match="reads 5 tokens: the value of the chosen 4 chunks is that of what fits"):
        assert naive_rag("q", chunks, Limited(1), config).cost == 12


@pytest.mark.parametrize("method", [naive_rag, best_single, greedy_climb, upper_bound])
def test_all_refuse_what_the_search_refuses(method) -> None:
    with pytest.raises(InputError, match="query must be a text"):
        method(" ", chunks_of(a=1), Scripted({}, default=0.5), SearchConfig(budget=5))
    with pytest.raises(InputError, match="smallest candidate's cost"):
        method("q", chunks_of(a=10), Scripted({}, default=0.5), SearchConfig(budget=5))
    with pytest.raises(InputError, match="scores must be finite"):
        method("q", chunks_of(a=1), Scripted({"a": float("nan")}), SearchConfig(budget=5))
