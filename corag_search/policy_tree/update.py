"""Scores back up: the best child's, to the expanded node and its ancestors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corag_search.policy_tree.tree import PolicyTree


def update(tree: PolicyTree, path: Sequence[int], new: slice) -> None:
    """Algorithm 3 of arXiv:2411.00744.

    The best of **all** children of the expanded node gives its score; the child itself keeps V = R and N = 1
    (counted twice, it would fall below its siblings). No row off the path is touched, and the root has no V or N.

    Args:
        tree: The tree.
        path: Root first, the expanded node last.
        new: Rows that the expansion added.
    """
    children = tree.children[path[-1]]
    assert children is not None, "only an expanded node is updated"
    reward = tree.score[children].max()
    ancestors = np.array(path[1:], np.intp)
    tree.value_sum[ancestors] += reward
    tree.visits[ancestors] += 1.0
    tree.total_visits += len(ancestors)

    average = tree.value_sum[ancestors] / tree.visits[ancestors]
    for seen in (tree.score[new], average):
        if seen.size:
            tree.lowest = min(tree.lowest, float(seen.min()))
            tree.highest = max(tree.highest, float(seen.max()))
