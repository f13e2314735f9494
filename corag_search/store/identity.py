"""Which embedder made the vectors of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corag_search.embedders.base import Embedder


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Which embedder made the vectors.

    Attributes:
        name: As `load_embedder` knows it.
        dimension: Width of a vector.
        fingerprint: Of its weights and settings.
    """

    name: str
    dimension: int
    fingerprint: str

    @classmethod
    def of(cls, embedder: Embedder) -> EmbedderIdentity:
        return cls(embedder.name, embedder.dimension, embedder.fingerprint)

    def __str__(self) -> str:
        return f"{self.name} ({self.dimension} dimensions, {self.fingerprint})"
