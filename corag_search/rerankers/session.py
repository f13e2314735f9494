"""What rerankers share that keep per-candidate features and ignore order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.rerankers.base import Combinations, Scores, Session


class _Opens(Protocol):
    def open(self, query: str, candidates: Sequence[Chunk]) -> Session: ...


def score_in_session(reranker: _Opens, query: str, combinations: Combinations) -> Scores:
    """Scores `[n]` from a session over the distinct chunks of the combinations, in order of appearance."""
    position: dict[Chunk, int] = {}
    orders = [tuple(position.setdefault(chunk, len(position)) for chunk in combination) for combination in combinations]
    return reranker.open(query, list(position)).score(orders)


def reduce_orders(
    function: np.ufunc, features: NDArray[np.float64], orders: Sequence[tuple[int, ...]]
) -> NDArray[np.float64]:
    """Combine the features of each order's candidates with an associative function.

    Args:
        function: `np.add`, `np.maximum`.
        features: `[candidates, d]`.
        orders: n tuples of candidate indices. Each is sorted first, so that permutations give equal bits.

    Returns:
        `[n, d]`; zeros for an empty order.
    """
    reduced = np.zeros((len(orders), features.shape[1]))
    lengths = np.fromiter(map(len, orders), np.intp, len(orders))
    filled = np.flatnonzero(lengths)
    if len(filled):
        rows = np.fromiter(chain.from_iterable(map(sorted, orders)), np.intp, int(lengths.sum()))
        starts = (np.cumsum(lengths) - lengths)[filled]
        reduced[filled] = function.reduceat(features[rows], starts, axis=0)
    return reduced
