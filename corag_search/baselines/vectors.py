"""Embeddings of candidates, checked and brought to unit length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag_search.errors import InputError


def unit_rows(name: str, vectors: Any, count: int) -> NDArray[np.float32]:
    """Rows at unit length, so that inner products are cosines; a row of zeros stays one (its cosines are 0).

    Args:
        name: For the message.
        vectors: `[count, d]`.
        count: Rows wanted.

    Returns:
        `[count, d]`.

    Raises:
        InputError: Another shape, no numbers, NaN or infinity.
    """
    try:
        rows = np.asarray(vectors, np.float32)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers of shape [{count}, d], got {type(vectors).__name__}") from None
    if rows.ndim != 2 or len(rows) != count or not rows.shape[1] or not np.isfinite(rows).all():
        raise InputError(f"{name} must be finite and of shape [{count}, d], got {list(rows.shape)}")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(norms > 0, norms, 1)).astype(np.float32, copy=False)
