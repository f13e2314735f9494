"""Other ways of choosing chunks, to measure the policy tree against. All return a `SearchResult`."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence

import numpy as np

from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.policy_tree.final_rule import tie_key
from corag_search.policy_tree.problem import check_search, token_lengths
from corag_search.policy_tree.scores import ScoreMemo, score_pending
from corag_search.policy_tree.search import AnyReranker
from corag_search.policy_tree.tree import Order, by_falling_score
from corag_search.rerankers.base import as_reranker
from corag_search.result import SearchResult


def naive_rag(
    query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None = None
) -> SearchResult:
    """Rank the chunks by their score alone and fill the budget greedily, best first.

    A chunk that does not fit is passed over. `max_chunks` does not apply: only the budget stops it
    (arXiv:2411.00744, section 7: NaiveRAG).

    Raises:
        InputError: As `search_policy_tree`.
    """
    judge = _Judge(query, candidates, reranker, config)
    return judge.result(judge.filled(judge.config.budget))


def naive_matched(
    query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None = None, *, tokens: int
) -> SearchResult:
    """`naive_rag` cut to a number of tokens, such as another method spent: the same price, without the search.

    Args:
        query: The question.
        candidates: Retrieved chunks, best first.
        reranker: As for `search_policy_tree`.
        config: Settings; objectives keep their price relative to its budget.
        tokens: At least the smallest candidate's cost, at most the budget.

    Raises:
        InputError: As `search_policy_tree`.
    """
    judge = _Judge(query, candidates, reranker, config)
    cheapest = min(chunk.cost for chunk in candidates)
    if cheapest > tokens:
        raise InputError(f"tokens must be at least the smallest candidate's cost ({cheapest} tokens), got {tokens}")
    return judge.result(judge.filled(min(tokens, judge.config.budget)))


def best_single(
    query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None = None
) -> SearchResult:
    """The one chunk of the greatest objective.

    Raises:
        InputError: As `search_policy_tree`.
    """
    judge = _Judge(query, candidates, reranker, config)
    return judge.result(judge.best(judge.affordable_singles()))


def greedy_climb(
    query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None = None
) -> SearchResult:
    """Append the chunk that raises the objective most, until none does.

    Raises:
        InputError: As `search_policy_tree`.
    """
    judge = _Judge(query, candidates, reranker, config)
    climbed = judge.best(judge.affordable_singles())
    while children := judge.children(climbed):
        best = judge.best(children)
        if judge.objective(best) <= judge.objective(climbed):
            break
        climbed = best
    return judge.result(climbed)


def upper_bound(
    query: str,
    candidates: Sequence[Chunk],
    reranker: AnyReranker,
    config: SearchConfig | None = None,
    *,
    limit: int = 1_000_000,
) -> SearchResult:
    """The optimum: every affordable order (or set, when order is ignored) of up to `max_chunks` chunks is scored.

    Args:
        query: The question.
        candidates: Retrieved chunks, best first.
        reranker: As for `search_policy_tree`.
        config: Settings.
        limit: Most combinations that may be scored.

    Raises:
        InputError: As `search_policy_tree`, or more combinations than the limit.
    """
    judge = _Judge(query, candidates, reranker, config)
    longest = min(judge.config.max_chunks or len(candidates), len(candidates))
    count_of = math.perm if judge.reranker.order_sensitive else math.comb
    most = sum(count_of(len(candidates), length) for length in range(1, longest + 1))
    best: Order | None = None
    counted = 0
    level = judge.affordable_singles()
    while level:
        counted += len(level)
        if counted > limit:
            raise InputError(
                f"upper_bound would score up to {most:,} combinations of {len(candidates)} candidates, more than "
                f"the limit of {limit:,}; lower max_chunks ({longest}), the number of candidates or the budget, "
                "or raise the limit"
            )
        found = judge.best(level)
        if best is None or judge.preference(found) < judge.preference(best):
            best = found
        longer = (child for order in level for child in judge.children(order, distinct=True))
        level = list(itertools.islice(longer, limit - counted + 1))
    assert best is not None, "check_search leaves at least one affordable candidate"
    return judge.result(best)


class _Judge:
    """Scores a query's combinations and compares their objectives."""

    def __init__(
        self, query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None
    ) -> None:
        self.config = config or SearchConfig()
        check_search(query, candidates, self.config.budget)
        self.reranker = as_reranker(reranker)
        self.candidates = candidates
        self._memo = ScoreMemo(query, candidates, self.reranker)
        self._lengths, self._limit = token_lengths(query, candidates, self.reranker)

    def cost(self, order: Order) -> int:
        return sum(self.candidates[i].cost for i in order)

    def score(self, orders: Sequence[Order]) -> np.ndarray:
        self._memo.ask(orders)
        score_pending([self._memo])
        return self._memo.of(orders)

    def objective(self, order: Order) -> float:
        price = self.config.cost_coefficient * self.cost(order) / self.config.budget
        return float(self.score([order])[0]) - price

    def preference(self, order: Order) -> tuple:
        """Sorts the better first, by the tie rule of METHOD §3."""
        return (-self.objective(order), *tie_key(self.cost(order), self.for_prompt(order)))

    def best(self, orders: Sequence[Order]) -> Order:
        costs = np.array([self.cost(order) for order in orders])
        worth = self.score(orders) - self.config.cost_coefficient * costs / self.config.budget
        return min((orders[i] for i in np.flatnonzero(worth == worth.max()).tolist()), key=self.preference)

    def affordable_singles(self) -> list[Order]:
        return [(i,) for i, chunk in enumerate(self.candidates) if chunk.cost <= self.config.budget]

    def readable(self, order: Order) -> bool:
        """Whether the reranker reads all of a combination."""
        return self._lengths is None or sum(self._lengths[i] for i in order) <= self._limit

    def children(self, order: Order, distinct: bool = False) -> list[Order]:
        """Affordable extensions that the reranker reads whole.

        Args:
            order: What is extended.
            distinct: Make each set once, from its members in ascending order.
        """
        if self.config.max_chunks is not None and len(order) >= self.config.max_chunks:
            return []
        room = self.config.budget - self.cost(order)
        first = order[-1] + 1 if distinct and not self.reranker.order_sensitive else 0
        unused = (i for i in range(first, len(self.candidates)) if i not in order)
        affordable = ((*order, i) for i in unused if self.candidates[i].cost <= room)
        return [child for child in affordable if self.readable(child)]

    def filled(self, tokens: int) -> Order:
        """Candidates by falling score alone (ties: lower cost, then retrieval order), as many as fit into `tokens`."""
        singles = [(i,) for i in range(len(self.candidates)) if self.candidates[i].cost <= tokens]
        scores = self.score(singles)
        chosen: Order = ()
        for (i,), _ in sorted(
            zip(singles, scores, strict=True), key=lambda s: (-s[1], *tie_key(self.cost(s[0]), s[0]))
        ):
            if self.cost(chosen) + self.candidates[i].cost <= tokens:
                chosen = (*chosen, i)
        return chosen

    def for_prompt(self, order: Order) -> Order:
        """The order given out: as it is, or for a set by falling single-chunk score."""
        if self.reranker.order_sensitive or len(order) == 1:
            return order
        singles = self.score([(i,) for i in order])
        return by_falling_score(dict(zip(order, singles.tolist(), strict=True)))

    def result(self, order: Order) -> SearchResult:
        order = self.for_prompt(order)
        if len(order) > 1 and not self.readable(order):
            warnings.warn(
                f"reranker {self.reranker.name!r} reads {self.reranker.max_tokens} tokens: the value of the chosen "
                f"{len(order)} chunks is that of what fits",
                stacklevel=3,
            )
        return SearchResult(
            order=order,
            chunks=tuple(self.candidates[i] for i in order),
            value=float(self.score([order])[0]),
            objective=self.objective(order),
            cost=self.cost(order),
            evaluations=self._memo.evaluations,
        )
