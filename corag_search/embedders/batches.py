"""Token ids of many texts as batches of like length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


def batches(ids: Sequence[Ids], size: int, padding: int) -> Iterator[tuple[NDArray[np.intp], NDArray, NDArray]]:
    """Sort by length, longest first, and pad each batch to its own longest.

    Args:
        ids: n rows of token ids.
        size: Rows of a batch at most.
        padding: Id that fills up a row.

    Yields:
        Positions `[b]`, ids `[b, tokens]` and mask `[b, tokens]` (1 for a token), both int64.
    """
    lengths = np.fromiter(map(len, ids), np.intp, len(ids))
    order = np.argsort(-lengths, kind="stable")
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        mask = (np.arange(lengths[rows[0]]) < lengths[rows][:, None]).astype(np.int64)
        padded = np.full(mask.shape, padding, np.int64)
        padded[mask.astype(np.bool_)] = np.concatenate([ids[row] for row in rows])
        yield rows, padded, mask
