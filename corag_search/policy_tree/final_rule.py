"""Which of all evaluated combinations is returned."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from corag_search.config import FinalRule
from corag_search.policy_tree.selection import utility
from corag_search.policy_tree.tree import PolicyTree, objective
from corag_search.result import Combination


def tie_key(cost: int, order: tuple[int, ...]) -> tuple:
    """Among equals the least wins: lower cost, then shorter, then retrieval order (METHOD §3)."""
    return (cost, len(order), order)


class BestSoFar:
    """The best row under the final rule, kept up to date after each iteration.

    Rules on R alone can only be improved by new rows. V/N and U move, so for them all rows are looked at anew.
    """

    def __init__(self, tree: PolicyTree) -> None:
        self._tree = tree
        self._rule = tree.problem.config.final_rule
        self._moving = self._rule in (FinalRule.AVERAGE, FinalRule.UTILITY)
        self._worth = -np.inf
        self.combination: Combination | None = None

    def look(self, new: slice) -> Combination:
        """Take account of the rows that an iteration added.

        Returns:
            The best combination of the whole tree.
        """
        rows = slice(1, len(self._tree)) if self._moving else new
        worth = self._worth_of(rows)
        if worth.size:
            best = worth.max()
            if self._moving or best >= self._worth:
                rivals: Iterable[Combination] = (
                    self._combination(rows.start + int(i)) for i in np.flatnonzero(worth == best)
                )
                if not self._moving and best == self._worth and self.combination is not None:
                    rivals = (self.combination, *rivals)
                self.combination = min(rivals, key=lambda c: tie_key(c.cost, c.order))
                self._worth = best
        assert self.combination is not None, "the root's expansion adds at least one row"
        return self.combination

    def _worth_of(self, rows: slice) -> NDArray[np.float64]:
        tree = self._tree
        if self._rule is FinalRule.OBJECTIVE:
            return objective(tree.score[rows], tree.cost[rows], tree.problem.config)
        if self._rule is FinalRule.REWARD:
            return tree.score[rows]
        if self._rule is FinalRule.AVERAGE:
            return tree.value_sum[rows] / tree.visits[rows]
        return utility(tree, rows)

    def _combination(self, row: int) -> Combination:
        tree = self._tree
        value, cost = float(tree.score[row]), int(tree.cost[row])
        return Combination(tree.order_for_prompt(row), value, objective(value, cost, tree.problem.config), cost)
