"""All affordable children of a node at once ("parallel expansion"), or the best of them by a prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag_search.policy_tree.tree import ROOT, Order, PolicyTree, objective


def affordable(tree: PolicyTree, row: int) -> NDArray[np.intp]:
    """Ranks of the unused candidates that may be appended to a row, `[n]`, cheapest first."""
    problem = tree.problem
    order = tree.orders[row]
    if len(order) >= problem.max_chunks:
        return np.empty(0, np.intp)
    fitting = int(np.searchsorted(problem.cost, problem.config.budget - tree.cost[row], side="right"))
    unused = np.ones(fitting, np.bool_)
    for index in order:
        if problem.rank[index] < fitting:
            unused[problem.rank[index]] = False
    # A single chunk above the reranker's limit is scored on what fits; only longer combinations are refused.
    if problem.length is not None and row != ROOT:
        used = sum(int(problem.length[problem.rank[index]]) for index in order)
        unused &= problem.length[:fitting] <= problem.length_limit - used
    return np.flatnonzero(unused)


@dataclass(frozen=True, slots=True)
class Children:
    """The combinations that an expansion scores, in rank order.

    Attributes:
        ranks: `[n]` rank of the candidate that each appends.
        orders: n orders.
        members: n bit masks of their candidates.
    """

    ranks: NDArray[np.intp]
    orders: list[Order]
    members: list[int]

    def only(self, rows: NDArray[np.intp]) -> Children:
        """Some of them; `rows` ascending."""
        chosen = rows.tolist()
        return Children(self.ranks[rows], [self.orders[i] for i in chosen], [self.members[i] for i in chosen])


def children_of(tree: PolicyTree, row: int) -> Children:
    """All affordable children of a row."""
    ranks = affordable(tree, row)
    order, mask = tree.orders[row], tree.members[row]
    appended = [tree.problem.candidate[rank] for rank in ranks.tolist()]
    return Children(ranks, [(*order, index) for index in appended], [mask | 1 << index for index in appended])


def best_by_prior(tree: PolicyTree, row: int, children: Children, scores: NDArray[np.float64], width: int) -> Children:
    """The `width` children of greatest objective under a prior's scores `[n]`; ties as everywhere (METHOD §3)."""
    problem = tree.problem
    cost = tree.cost[row] + problem.cost[children.ranks]
    worth = objective(scores, cost, problem.config)
    return children.only(np.sort(np.argsort(-worth, kind="stable")[:width]))


def expand(tree: PolicyTree, row: int, children: Children, scores: NDArray[np.float64]) -> slice:
    """Add the children of a row: each new one has V = R and N = 1.

    When order is ignored, a child may be there already (a transposition); it is linked and left as it is.

    Args:
        tree: The tree.
        row: A row that was not expanded yet.
        children: Of that row.
        scores: `[n]` their benefits.

    Returns:
        The rows that are new.
    """
    problem = tree.problem
    first = len(tree)
    ranks, orders, members = children.ranks, children.orders, children.members
    if problem.order_sensitive:
        rows = np.arange(first, first + len(orders))
        fresh: NDArray[np.intp] | slice = slice(None)
    else:
        found = [tree.row_of_set.get(member, -1) for member in members]
        rows = np.array(found, np.intp)
        fresh = np.flatnonzero(rows < 0)
        rows[fresh] = np.arange(first, first + len(fresh))
        orders = [orders[i] for i in fresh]
        members = [members[i] for i in fresh]
        tree.row_of_set.update(zip(members, range(first, first + len(members)), strict=True))
    new = slice(first, first + len(orders))
    tree.reserve(new.stop)
    tree.orders += orders
    tree.members += members
    tree.children += [None] * len(orders)
    tree.children[row] = rows
    tree.score[new] = tree.value_sum[new] = scores[fresh]
    tree.visits[new] = 1.0
    tree.cost[new] = tree.cost[row] + problem.cost[ranks[fresh]]
    tree.exhausted[new] = _terminal(tree, row, ranks)[fresh]
    tree.total_visits += len(orders)
    tree.expanded.append((row, new.stop))
    return new


def _terminal(tree: PolicyTree, row: int, ranks: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which children of a row can have no child of their own, `[n]`; a reranker's length limit is left to `select`."""
    problem = tree.problem
    if len(tree.orders[row]) + 1 >= problem.max_chunks:
        return np.ones(len(ranks), np.bool_)
    # The cheapest candidate that a child may still append is the cheapest unused one, or, for the child that
    # used just that, the second cheapest. Unused means unused by the row: beyond the budget of the row as well.
    used = sorted(problem.rank[index] for index in tree.orders[row])
    unused = [rank for rank in range(min(len(used) + 2, len(problem.candidate))) if rank not in used][:2]
    cheapest = np.full(len(ranks), problem.cost[unused[0]])
    if ranks[0] == unused[0]:
        cheapest[0] = problem.cost[unused[1]] if len(unused) > 1 else np.iinfo(np.int64).max
    room = problem.config.budget - tree.cost[row] - problem.cost[ranks]
    return cheapest > room
