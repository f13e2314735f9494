"""What an embedder is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


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
