"""What a search is given by others: candidates, rerankers that misbehave, numbers beyond all measure."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from corag_search import Chunk, InputError, SearchConfig, search_policy_tree, search_policy_trees
from corag_search.baselines import best_single, greedy_climb, naive_rag, upper_bound
from tests.corag_search.scripted import RandomScores, Scripted, chunks_of

CONFIG = SearchConfig(iterations=8, budget=12)


def half(query: str, combinations: Sequence[Sequence[Chunk]]) -> list[float]:
    return [0.5] * len(combinations)


class Pairs(RandomScores):
    """Scores the combinations of several queries in one batch, and keeps the size of each batch."""

    def __init__(self, seed: int, order_sensitive: bool = True) -> None:
        super().__init__(seed, order_sensitive)
        self.batches: list[int] = []

    def score(self, query: str, combinations: Sequence[Sequence[Chunk]]) -> np.ndarray:
        self.batches.append(len(combinations))
        return super().score(query, combinations)

    def score_pairs(self, queries: Sequence[str], combinations: Sequence[Sequence[Chunk]]) -> np.ndarray:
        self.batches.append(len(combinations))
        return np.array(
            [RandomScores.score(self, q, [c])[0] for q, c in zip(queries, combinations, strict=True)], np.float64
        )


@pytest.mark.parametrize("order_sensitive", [True, False])
def test_two_queries_with_several_settings_each_share_scores_and_batches(order_sensitive: bool) -> None:
    """As labelling does: each combination of a query is scored once, in one batch an iteration, none of them empty."""
    chunks = chunks_of(a=3, b=4, c=5, d=2)
    queries = ["q", "r", "q", "r", "q"]
    configs = [SearchConfig(iterations=6, exploration=c, budget=12) for c in (0.0, 0.1, 1.0, 2.4, 0.5)]
    reranker = Pairs(5, order_sensitive)
    results = search_policy_trees(queries, [chunks] * 5, reranker, configs)
    assert len(reranker.batches) <= 6 and min(reranker.batches) > 0
    # What is scored for both queries may be alike, for one it is not.
    assert max(reranker.evaluated.count(key) for key in reranker.evaluated) <= 2
    alone = [
        search_policy_tree(query, chunks, RandomScores(5, order_sensitive), config)
        for query, config in zip(queries, configs, strict=True)
    ]
    assert results == alone


def test_settings_of_one_query_ask_for_no_empty_batch() -> None:
    reranker = Pairs(5)
    chunks = chunks_of(a=3, b=4)
    search_policy_trees(["q"] * 3, [chunks] * 3, reranker, [SearchConfig(iterations=n, budget=12) for n in (1, 2, 3)])
    assert min(reranker.batches) > 0


def test_rerankers_cannot_change_what_is_searched() -> None:
    chunks = chunks_of(a=3, b=4, c=5)
    expected = search_policy_tree("q", chunks, RandomScores(2), CONFIG)

    class Vandal(RandomScores):
        def score(self, query, combinations):
            scores = super().score(query, combinations)
            for combination in combinations:
                combination.clear()
            combinations.clear()
            return scores

    class VandalWithSession(Vandal):
        def open(self, query, candidates):
            own, outer = list(candidates), self
            if isinstance(candidates, list):
                candidates.reverse()
                candidates.pop()

            class Session:
                def score(self, orders):
                    scores = outer.score(query, [[own[i] for i in order] for order in orders])
                    orders.clear()
                    return scores

            return Session()

    for vandal in (Vandal(2), VandalWithSession(2)):
        assert search_policy_tree("q", chunks, vandal, CONFIG) == expected
    assert [chunk.id for chunk in chunks] == ["a", "b", "c"]


def test_scores_that_are_changed_later_stay_as_they_were_given() -> None:
    given = []

    def reusing(query: str, combinations: Sequence[Sequence[Chunk]]) -> np.ndarray:
        for earlier in given:
            earlier[:] = 0.0
        given.append(np.array([0.2 + 0.1 * len(c) for c in combinations]))
        return given[-1]

    assert search_policy_tree("q", chunks_of(a=1, b=1), reusing, CONFIG).value == pytest.approx(0.4)


def test_a_reranker_that_fails_midway_is_asked_again_as_if_nothing_had_been() -> None:
    class Failing(RandomScores):
        left = 2

        def score(self, query, combinations):
            self.left -= 1
            if self.left == 0:
                raise RuntimeError("the lamp went out")
            return super().score(query, combinations)

    chunks = chunks_of(a=3, b=4, c=5)
    reranker = Failing(4)
    with pytest.raises(RuntimeError, match="the lamp went out"):
        search_policy_tree("q", chunks, reranker, CONFIG)
    assert search_policy_tree("q", chunks, reranker, CONFIG) == search_policy_tree("q", chunks, RandomScores(4), CONFIG)


@pytest.mark.parametrize("make", [tuple, iter, lambda chunks: np.array(chunks, object)], ids=["tuple", "iter", "array"])
def test_candidates_may_come_in_any_row(make) -> None:
    chunks = chunks_of(a=3, b=4, c=5)
    expected = search_policy_tree("q", chunks, RandomScores(1), CONFIG)
    assert search_policy_tree("q", make(chunks), RandomScores(1), CONFIG) == expected
    assert naive_rag("q", make(chunks), RandomScores(1), CONFIG) == naive_rag("q", chunks, RandomScores(1), CONFIG)
    assert upper_bound("q", make(chunks), RandomScores(1), CONFIG).objective >= expected.objective
    assert search_policy_trees(iter(["q"]), iter([make(chunks)]), RandomScores(1), CONFIG) == [expected]  # type: ignore[arg-type]


@pytest.mark.parametrize("candidates", [None, 5, "ab", b"ab", bytearray(b"ab"), {}, {1: 2}, {"a"}, np.array(5)])
def test_candidates_that_are_no_list(candidates: object) -> None:
    with pytest.raises(InputError, match=r"candidates must be a list of chunks, best first, got"):
        search_policy_tree("q", candidates, half, CONFIG)  # type: ignore[arg-type]


def test_many_searches_need_lists() -> None:
    for queries, candidates, name in ((None, [chunks_of(a=1)], "queries"), ("q", [chunks_of(a=1)], "queries")):
        with pytest.raises(InputError, match=f"{name} must be a list with an entry for each search, got"):
            search_policy_trees(queries, candidates, half)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="candidates must be a list with an entry for each search, got None"):
        search_policy_trees(["q"], None, half)  # type: ignore[arg-type]


def test_a_tensor_with_a_gradient_is_no_score() -> None:
    scores = torch.full((2,), 0.5, requires_grad=True)
    with pytest.raises(InputError, match=r"returned tensor\(.* for 2 combinations; it must return one number each"):
        search_policy_tree("q", chunks_of(a=1, b=1), lambda query, combinations: scores, CONFIG)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "512", math.nan, True])
def test_a_limit_is_a_whole_number(limit: object) -> None:
    reranker = Scripted({}, default=0.5)
    reranker.max_tokens = limit  # type: ignore[assignment]
    with pytest.raises(InputError, match="reranker 'scripted': max_tokens must be a whole number of tokens, at least"):
        search_policy_tree("q", chunks_of(a=1), reranker, CONFIG)


@pytest.mark.parametrize("counted", [None, [3], [3] * 9, [2.5] * 3, [math.nan] * 3, [-1] * 3, "333"])
def test_a_reranker_counts_each_text(counted: object) -> None:
    class Counting(RandomScores):
        max_tokens = 9

        def count_tokens(self, texts):
            return counted

    with pytest.raises(InputError, match="must count one number of tokens for each of 3 texts"):
        search_policy_tree("q", chunks_of(a=1, b=1), Counting(1), CONFIG)


def test_a_class_is_no_reranker() -> None:
    with pytest.raises(InputError, match="reranker must be an instance, got the class RandomScores; make one of it"):
        search_policy_tree("q", chunks_of(a=1), RandomScores, CONFIG)


def test_greatest_budget_and_costs() -> None:
    """No sum of costs leaves the range of the arrays."""
    most = sys.maxsize
    config = SearchConfig(budget=most, iterations=50, cost_coefficient=0)
    result = search_policy_tree("q", chunks_of(a=most // 2, b=most // 2, c=most // 2, d=1), RandomScores(3), config)
    assert result.cost <= most
    assert search_policy_tree("q", chunks_of(a=most, b=1), half, config).order == (1,)
    for make in (lambda: SearchConfig(budget=most + 1), lambda: Chunk("a", "text", most + 1)):
        with pytest.raises(
            InputError, match=r"must be at most 9,223,372,036,854,775,807, got 9,223,372,036,854,775,80"
        ):
            make()
    with pytest.raises(InputError, match=r"iterations must be at most 1,000,000, got 1,000,000,000"):
        SearchConfig(iterations=10**9)


@pytest.mark.parametrize("coefficient", [3, 10**20, 1e100, 0.3])
def test_a_price_of_any_size_is_exact(coefficient: float) -> None:
    """Whole λ times whole costs leave 64 bits: 3 · 2⁶² as an int64 is negative, a reward for what is dear."""
    most = sys.maxsize
    chunks, config = chunks_of(dear=most // 2 + 1, cheap=1), SearchConfig(budget=most, cost_coefficient=coefficient)
    for choose in (search_policy_tree, upper_bound, best_single):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = choose("q", chunks, half, config)
        assert result.order == (1,) and result.objective == 0.5 - coefficient / most


def test_greatest_coefficients() -> None:
    for name in ("cost_coefficient", "exploration"):
        with pytest.raises(InputError, match=rf"{name} must be at most 1e\+100, got 1e\+308"):
            SearchConfig(**{name: 1e308})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for rule in ("objective", "utility"):
                config = SearchConfig(**{name: 1e100}, final_rule=rule, budget=20, iterations=50)
                assert search_policy_tree("q", chunks_of(a=3, b=4, c=5), RandomScores(1), config).cost <= 20


@pytest.mark.parametrize("config", [5, "x", {"budget": 3}, [SearchConfig()]])
def test_settings_of_a_baseline_are_a_search_config(config: object) -> None:
    for choose in (naive_rag, upper_bound, best_single, greedy_climb):
        with pytest.raises(InputError, match="config must be a SearchConfig, such as"):
            choose("q", chunks_of(a=1), half, config)  # type: ignore[arg-type]


def test_real_numbers_of_any_type() -> None:
    config = SearchConfig(exploration=np.float32(0.5), cost_coefficient=1, time_limit=np.float64(2))  # type: ignore[arg-type]
    assert (config.exploration, config.cost_coefficient, config.time_limit) == (0.5, 1, 2.0)
    assert [type(value) for value in (config.exploration, config.cost_coefficient)] == [float, int]
    with pytest.raises(InputError, match="exploration must be a finite number, at least 0, got 1000"):
        SearchConfig(exploration=10**400)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((None, "text", 1), "chunk None: id must be a text, got None"),
        ((["a"], "text", 1), r"chunk \['a'\]: id must be a text, got \['a'\]"),
        (("a", None, 1), "chunk 'a': text must be a text, got None"),
        (("a", b"text", 1), "chunk 'a': text must be a text, got b'text'"),
        (
            ("a", "é\ud83d", 1),
            "chunk 'a': text must be a text that can be encoded as UTF-8, got half a surrogate pair at",
        ),
        (
            ("\udc00", "text", 1),
            "id must be a text that can be encoded as UTF-8, got half a surrogate pair at character 0",
        ),
    ],
)
def test_chunks_are_text(given: tuple, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Chunk(*given)
