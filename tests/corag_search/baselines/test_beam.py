"""Beam search by hand, against the greedy climb and the optimum."""

from __future__ import annotations

import random

import pytest

from corag_search import Chunk, InputError, SearchConfig
from corag_search.baselines import beam, greedy_climb, upper_bound
from tests.corag_search.scripted import RandomScores, Scripted, chunks_of

FREE = SearchConfig(budget=10, cost_coefficient=0.0)


def test_a_beam_of_one_goes_on_downhill_and_returns_the_best_it_saw() -> None:
    # a → ab goes down, abc up again: the climb stops at a, the beam sees abc.
    reranker = Scripted({"a": 0.5, "b": 0.3, "c": 0.2, "ab": 0.45, "abc": 0.9}, default=0.1)
    chunks = chunks_of(a=1, b=1, c=1)
    assert greedy_climb("q", chunks, reranker, FREE).order == (0,)
    assert beam("q", chunks, reranker, FREE, width=1).order == (0, 1, 2)
    down = Scripted({"a": 0.5, "b": 0.3, "c": 0.2, "ab": 0.45, "abc": 0.4}, default=0.1)
    assert beam("q", chunks, down, FREE, width=1).order == (0,)


def test_a_wider_beam_keeps_what_looks_second() -> None:
    reranker = Scripted({"a": 0.5, "b": 0.4, "c": 0.1, "bc": 0.9}, default=0.2)
    chunks = chunks_of(a=1, b=1, c=1)
    assert beam("q", chunks, reranker, FREE, width=1).order == (0,)
    assert beam("q", chunks, reranker, FREE, width=2).order == (1, 2)


def test_rivals_never_push_the_greedy_line_out() -> None:
    # At two chunks ba and bc look better than ab (the climb's), but only ab leads to abc.
    scores = {"a": 0.5, "b": 0.49, "c": 0.1, "ab": 0.6, "ba": 0.7, "bc": 0.69, "abc": 0.9}
    reranker = Scripted(scores, default=0.2)
    assert greedy_climb("q", chunks_of(a=1, b=1, c=1), reranker, FREE).order == (0, 1, 2)
    assert beam("q", chunks_of(a=1, b=1, c=1), reranker, FREE, width=2).order == (0, 1, 2)


@pytest.mark.parametrize("order_sensitive", [True, False])
def test_never_below_the_climb_never_above_the_optimum_and_nothing_scored_twice(order_sensitive: bool) -> None:
    rng = random.Random(1)
    for seed in range(80):
        chunks = [Chunk(str(i), "t", rng.randint(1, 6)) for i in range(rng.randint(1, 6))]
        config = SearchConfig(budget=rng.randint(6, 15), max_chunks=rng.choice([None, 2, 3]))
        climbed = greedy_climb("q", chunks, RandomScores(seed, order_sensitive), config)
        optimum = upper_bound("q", chunks, RandomScores(seed, order_sensitive), config)
        for width in (1, 2, 3):
            reranker = RandomScores(seed, order_sensitive)
            found = beam("q", chunks, reranker, config, width=width)
            assert climbed.objective <= found.objective <= optimum.objective
            assert len(set(reranker.evaluated)) == len(reranker.evaluated) == found.evaluations
            assert found.cost <= config.budget and len(set(found.order)) == len(found.order)
        everything = beam("q", chunks, RandomScores(seed, order_sensitive), config, width=10_000)
        assert (everything.order, everything.evaluations) == (optimum.order, optimum.evaluations)


def test_one_batch_a_length() -> None:
    reranker = Scripted({}, default=0.5)
    beam("q", chunks_of(a=1, b=1, c=1), reranker, FREE, width=2)
    assert [len(batch) for batch in reranker.batches] == [3, 4, 2]


def test_refuses_a_width_of_none() -> None:
    with pytest.raises(InputError, match="width must be a whole number of combinations, at least 1, got 0"):
        beam("q", chunks_of(a=1), Scripted({}, default=0.5), FREE, width=0)
    with pytest.raises(InputError, match="smallest candidate's cost"):
        beam("q", chunks_of(a=11), Scripted({}, default=0.5), FREE)
