"""The way down: from the root to the node that is expanded next."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from corag_search.config import Selection
from corag_search.policy_tree.expansion import affordable
from corag_search.policy_tree.tree import ROOT, PolicyTree, price


def utility(tree: PolicyTree, rows: NDArray[np.intp] | slice) -> NDArray[np.float64]:
    """U(v) of non-root rows, `[n]`: Definition 4.2, arXiv:2411.00744.

    U(v) = V(v)/N(v) + c·sqrt(ln N / N(v)) − λ·cost(v)/B. With `Selection.SCALED`, V/N is measured relative to
    the least and greatest V/N seen in the tree (Schrittwieser et al. 2020, arXiv:1911.08265, equation 5).
    """
    config = tree.problem.config
    visits = tree.visits[rows]
    average = tree.value_sum[rows] / visits
    if config.selection is Selection.SCALED:
        spread = tree.highest - tree.lowest
        average = (average - tree.lowest) / spread if spread > 0 else np.zeros_like(average)
    exploration = config.exploration * np.sqrt(math.log(tree.total_visits) / visits)
    return average + exploration - price(tree.cost[rows], config)


def select(tree: PolicyTree) -> list[int] | None:
    """Rows from the root to a node not expanded yet, the child of greatest U at each step.

    Exhausted and terminal nodes are masked; a node found to have nothing left below it is marked on the way.
    Ties go to the lower cost, then to retrieval order: children stand in that order and argmax takes the first.

    Returns:
        The path, root first; None when the whole tree is explored.
    """
    path = [ROOT]
    while True:
        row = path[-1]
        children = tree.children[row]
        if children is None:
            if affordable(tree, row).size:
                return path
        else:
            open_children = children[~tree.exhausted[children]]
            if open_children.size:
                path.append(int(open_children[np.argmax(utility(tree, open_children))]))
                continue
        tree.exhausted[row] = True
        path.pop()
        if not path:
            return None
