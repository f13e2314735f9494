"""What an embedder is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
F = TypeVar("F", np.float32, np.float64)


def at_unit_length(vectors: NDArray[F]) -> NDArray[F]:
    """Rows of `[n, d]` at unit length; a row of zeros stays."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors whose inner product is their similarity.

    Attributes:
        name: As `load_embedder` knows it.
        dimension: Length of a vector.
        fingerprint: 16 hexadecimal digits that change with the weights and with any setting that changes vectors.
    """

    name: str

    @property
    def dimension(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors `[n, dimension]` of unit length."""
        ...
