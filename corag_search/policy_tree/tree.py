"""Node storage: one row a node, in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from corag_search.config import SearchConfig
from corag_search.policy_tree.problem import Problem

Worth = TypeVar("Worth", float, NDArray[np.float64])
Order = tuple[int, ...]
ROOT = 0


def objective(value: Worth, cost: NDArray[np.int64] | int, config: SearchConfig) -> Worth:
    """R − λ·cost/B: what a combination is worth, or each of `[n]`."""
    return value - price(cost, config)


def price(cost: NDArray[np.int64] | int, config: SearchConfig) -> Any:
    """λ·cost/B, of one or of `[n]`."""
    return float(config.cost_coefficient) * cost / config.budget  # a whole λ times whole costs could leave 64 bits


class PolicyTree:
    """The nodes of one search.

    Rows 1 … size−1 are evaluated combinations; row 0 is the empty root and is never returned.
    For a reranker that ignores order a row stands for a set, and may be the child of several rows.

    Attributes:
        value_sum: V(v), accumulated benefit, `[capacity]`.
        visits: N(v), `[capacity]`.
        score: R(v), the benefit of that very combination, `[capacity]`.
        cost: Tokens, `[capacity]`.
        exhausted: True when nothing below is left to expand, `[capacity]`.
        orders: Candidate indices of each row; for a set, in the order of its first discovery.
        members: Bit mask of each row's candidates.
        children: Rows of each row's children in rank order; None while not expanded.
        row_of_set: Row of each bit mask, when order is ignored.
        expanded: For each iteration the row that was expanded, and the number of rows after it.
        total_visits: N of Definition 4.2, the sum of N(v) over all non-root rows.
        lowest, highest: Range of V/N seen so far, for `Selection.SCALED`.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        capacity = 1 + len(problem.candidate) * min(4, problem.config.iterations + 1)
        self.value_sum = np.zeros(capacity)
        self.visits = np.zeros(capacity)
        self.score = np.zeros(capacity)
        self.cost = np.zeros(capacity, np.int64)
        self.exhausted = np.zeros(capacity, np.bool_)
        self.orders: list[Order] = [()]
        self.members: list[int] = [0]
        self.children: list[NDArray[np.intp] | None] = [None]
        self.row_of_set: dict[int, int] = {}
        self.expanded: list[tuple[int, int]] = []
        self.total_visits = 0.0
        self.lowest = np.inf
        self.highest = -np.inf

    def __len__(self) -> int:
        return len(self.orders)

    def reserve(self, rows: int) -> None:
        """Make room for `rows` rows in all."""
        if rows <= len(self.visits):
            return
        capacity = max(rows, 2 * len(self.visits))
        for name in ("value_sum", "visits", "score", "cost", "exhausted"):
            old = getattr(self, name)
            new = np.zeros(capacity, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def order_for_prompt(self, row: int) -> Order:
        """The order given out: the found one, or for a set by falling single-chunk score."""
        order = self.orders[row]
        if self.problem.order_sensitive or len(order) == 1:
            return order
        # The root is expanded first, so every affordable single chunk has a row, unless a prior left it out.
        rows = {i: self.row_of_set.get(1 << i) for i in order}
        return by_falling_score({i: -1.0 if row is None else self.score[row] for i, row in rows.items()})


def by_falling_score(single: Mapping[int, float]) -> Order:
    """The order of a set of candidates (index → score alone) in the prompt; ties in retrieval order."""
    return tuple(sorted(single, key=lambda i: (-single[i], i)))
