"""Scores and objectives of one query's combinations, shared by the baselines that ask a reranker."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.config import SearchConfig, check_config
from corag_search.policy_tree.final_rule import tie_key
from corag_search.policy_tree.problem import checked_candidates, token_lengths
from corag_search.policy_tree.scores import ScoreMemo, score_pending
from corag_search.policy_tree.search import AnyReranker
from corag_search.policy_tree.tree import Order, by_falling_score, objective
from corag_search.rerankers.base import as_reranker
from corag_search.result import SearchResult


class Judge:
    """Scores a query's combinations, each once, and compares their objectives.

    Attributes:
        config: Settings.
        reranker: The judge of combinations.
        candidates: Retrieved chunks, best first.
        costs: `[k]` tokens.
    """

    def __init__(
        self, query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None
    ) -> None:
        self.config = SearchConfig() if config is None else config
        check_config(self.config)
        self.candidates = checked_candidates(query, candidates, self.config.budget)
        self.costs = np.array([chunk.cost for chunk in self.candidates], np.int64)
        self.reranker = as_reranker(reranker)
        self._memo = ScoreMemo(query, self.candidates, self.reranker)
        self._lengths, self._limit = token_lengths(query, self.candidates, self.reranker)

    def cost(self, order: Order) -> int:
        return sum(self.candidates[i].cost for i in order)

    def score(self, orders: Sequence[Order]) -> NDArray[np.float64]:
        self._memo.ask(orders)
        score_pending([self._memo])
        return self._memo.of(orders)

    def objective(self, order: Order) -> float:
        return objective(float(self.score([order])[0]), self.cost(order), self.config)

    def preference(self, order: Order) -> tuple:
        """Sorts the better first, by the tie rule of METHOD §3."""
        return (-self.objective(order), *tie_key(self.cost(order), self.for_prompt(order)))

    def best(self, orders: Sequence[Order]) -> Order:
        return self.ranked(orders, 1)[0]

    def ranked(self, orders: Sequence[Order], count: int) -> list[Order]:
        """The best of some orders (all of them scored in one batch), best first."""
        costs = np.array([self.cost(order) for order in orders])
        worth = objective(self.score(orders), costs, self.config)
        least = -np.inf if count >= len(orders) else np.partition(worth, -count)[-count]
        return sorted((orders[i] for i in np.flatnonzero(worth >= least).tolist()), key=self.preference)[:count]

    def affordable_singles(self) -> list[Order]:
        return [(i,) for i, chunk in enumerate(self.candidates) if chunk.cost <= self.config.budget]

    def single_scores(self, tokens: int) -> NDArray[np.float64]:
        """Score of each candidate alone, `[k]`; 0 for one of more tokens, which is not scored."""
        scores = np.zeros(len(self.candidates))
        fitting = np.flatnonzero(self.costs <= tokens)
        scores[fitting] = self.score([(i,) for i in fitting.tolist()])
        return scores

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
