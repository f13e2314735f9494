"""MMR and AdaGReS by hand, and against plain loops over their formulas."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corag_search import Chunk, InputError, SearchConfig
from corag_search.baselines import adagres, adaptive_trade_off, mmr, naive_rag
from tests.corag_search.scripted import RandomScores, Scripted, chunks_of

SCORES = {"a": 0.9, "b": 0.8, "c": 0.5}
# b says what a says; c is something else.
TWINS = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
PAIR = SearchConfig(budget=20, cost_coefficient=0.1)


def test_mmr_prefers_the_chunk_that_says_something_else() -> None:
    # After a: b is worth 0.5·0.8 − 0.5·1 = −0.1, c 0.5·0.5 − 0 = 0.25.
    result = mmr("q", chunks_of(a=10, b=10, c=10), Scripted(SCORES, default=0.7), PAIR, embeddings=TWINS)
    assert (result.order, result.cost, result.value) == ((0, 2), 20, 0.7)
    assert result.objective == pytest.approx(0.7 - 0.1)
    # At λ = 0.9 the 0.3 of relevance outweigh it: 0.9·0.8 − 0.1·1 = 0.62 against 0.45.
    near = mmr("q", chunks_of(a=10, b=10, c=10), Scripted(SCORES, default=0.7), PAIR, embeddings=TWINS, trade_off=0.9)
    assert near.order == (0, 1)


def test_mmr_passes_over_what_does_not_fit_and_gives_sets_out_by_falling_score() -> None:
    reranker = Scripted(SCORES, order_sensitive=False, default=0.7)
    result = mmr("q", chunks_of(a=10, b=10, c=15), reranker, PAIR, embeddings=TWINS)
    assert result.order == (0, 1)
    # All alike to one another but in c, which is taken first for its cost; for the prompt b comes first.
    scores = Scripted({"b": 0.5, "c": 0.5}, default=0.0, order_sensitive=False)
    assert mmr("q", chunks_of(b=12, c=8), scores, PAIR, embeddings=TWINS[:2]).order == (0, 1)


@given(
    seed=st.integers(0, 10_000),
    costs=st.lists(st.integers(1, 6), min_size=1, max_size=7),
    budget=st.integers(6, 20),
    trade_off=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
@example(seed=99, costs=[1, 3], budget=6, trade_off=0.0)  # the second gains 0, give or take the rounding
@settings(max_examples=60, deadline=None)
def test_both_follow_their_formula_step_by_step(seed: int, costs: list[int], budget: int, trade_off: float) -> None:
    chunks = [Chunk(str(i), "t", cost) for i, cost in enumerate(costs)]
    vectors = np.random.default_rng(seed).normal(size=(len(chunks), 3))
    config = SearchConfig(budget=budget)
    judge = RandomScores(seed)
    relevance = [judge.of("q", (chunk.id,)) for chunk in chunks]

    def cosine(i: int, j: int) -> float:
        return float(vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j]))

    def greedy(worth, stop: bool) -> tuple[int, ...]:
        taken: list[int] = []
        while True:
            room = budget - sum(costs[i] for i in taken)
            rest = [i for i in range(len(chunks)) if i not in taken and costs[i] <= room]
            if not rest:
                return tuple(taken)
            best = max(rest, key=lambda i: (round(worth(i, taken), 5), -costs[i], -i))
            if stop and taken and worth(best, taken) <= 1e-9:
                return tuple(taken)
            taken.append(best)

    found = mmr("q", chunks, judge, config, embeddings=vectors, trade_off=trade_off)
    expected = greedy(
        lambda i, taken: trade_off * relevance[i] - (1 - trade_off) * max((cosine(i, s) for s in taken), default=0.0),
        stop=False,
    )
    assert found.order == expected
    if trade_off == 1.0:
        assert found == naive_rag("q", chunks, judge, config)

    pairs = list(itertools.combinations(range(len(chunks)), 2))
    k_bar = math.floor(budget / (sum(costs) / len(costs)))
    mean_pair = sum(cosine(i, j) for i, j in pairs) / len(pairs) if pairs else 0.0
    mean_relevance = sum(relevance) / len(chunks)
    usable = k_bar > 1 and mean_pair > 0 and mean_relevance > 0
    beta = mean_relevance / ((k_bar - 1) / 2 * mean_pair) if usable else 0.0
    result = adagres("q", chunks, judge, config, embeddings=vectors)
    assert result.order == greedy(lambda i, taken: relevance[i] - beta * sum(cosine(i, s) for s in taken), stop=True)


def test_adagres_by_hand() -> None:
    # k̄ = ⌊30/10⌋ = 3, mean relevance 2.2/3, mean pair similarity 1/3: β = (2.2/3) / (1 · 1/3) = 2.2.
    chunks, config = chunks_of(a=10, b=10, c=10), SearchConfig(budget=30)
    similarity = np.array([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]])
    beta = adaptive_trade_off(np.array([0.9, 0.8, 0.5]), similarity, np.array([10, 10, 10]), 30)
    assert beta == pytest.approx(2.2)
    # a, then c (b would lose 2.2 by its likeness to a); then b's gain is 0.8 − 2.2 < 0: budget is left unspent.
    result = adagres("q", chunks, Scripted(SCORES, default=0.7), config, embeddings=TWINS)
    assert (result.order, result.cost) == ((0, 2), 20)
    # A smaller β takes all three, b last or not at all.
    mild = adagres("q", chunks, Scripted(SCORES, default=0.7), config, embeddings=TWINS, trade_off=0.5)
    assert mild.order == (0, 2, 1)
    assert adagres("q", chunks, Scripted(SCORES, default=0.7), config, embeddings=TWINS, trade_off=0).order == (0, 1, 2)


def test_adagres_by_cosine_with_the_query_needs_no_scores_of_single_chunks() -> None:
    reranker = Scripted({"ca": 0.6})
    result = adagres(
        "q", chunks_of(a=10, b=10, c=10), reranker, SearchConfig(budget=30),
        embeddings=TWINS, query_embedding=np.array([0.6, 0.8]), trade_off=1.0,
    )  # fmt: skip
    assert (result.order, reranker.batches) == ((2, 0), [["ca"]])


def test_the_trade_off_is_zero_where_its_formula_means_nothing() -> None:
    one, two = np.array([10]), np.array([10, 10])
    alike, unlike = np.ones((2, 2)), np.array([[1.0, -0.5], [-0.5, 1.0]])
    good = np.array([0.5, 0.5])
    assert adaptive_trade_off(np.array([0.5]), np.ones((1, 1)), one, 100) == 0
    assert adaptive_trade_off(good, alike, two, 19) == 0  # one chunk fits
    assert adaptive_trade_off(good, unlike, two, 100) == 0
    assert adaptive_trade_off(good * 0, alike, two, 100) == 0
    huge = np.full(4, 2**62)  # together 0 in 64 bits
    assert adaptive_trade_off(np.full(4, 0.5), np.ones((4, 4)), huge, 2**63 - 1) == 0


def test_the_first_chunk_is_taken_even_without_gain() -> None:
    nothing = Scripted({}, default=0.0)
    assert adagres("q", chunks_of(a=20, b=10), nothing, PAIR, embeddings=TWINS[:2]).order == (1,)


@pytest.mark.parametrize("method", [mmr, adagres])
def test_unusable_embeddings_are_named(method) -> None:
    chunks, reranker = chunks_of(a=1, b=1), Scripted({}, default=0.5)
    config = SearchConfig(budget=5)
    for bad in (TWINS, np.ones(2), np.full((2, 3), np.nan), np.ones((2, 0))):
        with pytest.raises(InputError, match=r"embeddings must be finite and of shape \[2, d\], got \["):
            method("q", chunks, reranker, config, embeddings=bad)
    with pytest.raises(InputError, match="embeddings must be numbers"):
        method("q", chunks, reranker, config, embeddings=[["x"], ["y"]])
    for bad in (-0.1, float("nan"), True, "half"):
        with pytest.raises(InputError, match="trade_off must be a"):
            method("q", chunks, reranker, config, embeddings=TWINS[:2], trade_off=bad)
    # A row of zeros is like nothing.
    assert method("q", chunks, reranker, config, embeddings=np.zeros((2, 2))).order == (0, 1)


def test_query_embedding_of_another_width_is_refused() -> None:
    with pytest.raises(InputError, match="query_embedding must have the embeddings' width 2, got 3"):
        adagres(
            "q", chunks_of(a=1), Scripted({}, default=0.5), PAIR, embeddings=TWINS[:1], query_embedding=np.ones(3)
        )  # fmt: skip
