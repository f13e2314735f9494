"""Token ids of many texts as batches of like length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


_MULTIPLE = 16  # tokens that a row is filled up to, where shapes are to be few


def batches(
    ids: Sequence[Ids], size: int, padding: int, *, few_shapes: bool = False
) -> Iterator[tuple[NDArray[np.intp], NDArray, NDArray]]:
    """Sort by length, longest first, and pad each batch to its own longest.

    Args:
        ids: n rows of token ids.
        size: Rows of a batch at most.
        padding: Id that fills up a row.
        few_shapes: Let the number of rows be a power of two (or `size`) and that of tokens a multiple of 16, which the
            model's positions must allow. On a CPU oneDNN keeps memory for every shape that it has met: gigabytes in a
            long job.

    Yields:
        Positions `[b]`, ids `[b, tokens]` and mask `[b, tokens]` (1 for a token), both int64.
    """
    lengths = np.fromiter(map(len, ids), np.intp, len(ids))
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        rows = order[start : start + size]
        if few_shapes and len(rows) < size:
            rows = rows[: 1 << (len(rows).bit_length() - 1)]
        start += len(rows)
        longest = int(lengths[rows[0]])
        width = -(-longest // _MULTIPLE) * _MULTIPLE if few_shapes else longest
        mask = (np.arange(width) < lengths[rows][:, None]).astype(np.int64)
        padded = np.full(mask.shape, padding, np.int64)
        padded[mask.astype(np.bool_)] = np.concatenate([ids[row] for row in rows])
        yield rows, padded, mask
