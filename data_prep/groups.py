"""Groups of what hangs together, directly or through others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import numpy.typing as npt


def connected(shared: Sequence[Iterable[Hashable]]) -> npt.NDArray[np.intp]:
    """Numbers of the groups, from 0 in order of appearance, `[n]`.

    Args:
        shared: What each of n items has, such as a question its documents; no whole numbers, which stand for the items.
            Two that share one are in a group; so are those that others connect. An item without any is a group of its
            own.

    Example:
        >>> connected([["a"], [], ["b"], ["b", "a"]]).tolist()
        [0, 1, 0, 0]
    """
    parent: dict[Hashable, Hashable] = {}

    def root(item: Hashable) -> Hashable:
        while parent.setdefault(item, item) != item:
            parent[item] = item = parent[parent[item]]
        return item

    for number, own in enumerate(shared):
        for one in own:
            parent[root(number)] = root(one)
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(root(at), len(numbers)) for at in range(len(shared))], np.intp)
