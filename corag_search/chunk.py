"""The unit of retrieval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corag_search.registry import whole


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, cut by tokens.

    Attributes:
        id: Unique in its store.
        text: Exactly the slice of the document that the metadata's offsets name.
        cost: Length of `text` in tokens of the run's tokenizer (METHOD §1: cost(χ) = |χ|).
        metadata: At least `document`, `start` and `end` (character offsets) when cut by `chunk_documents`.
    """

    id: str
    text: str
    cost: int
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cost", whole(f"chunk {self.id!r}: cost", self.cost, unit="tokens"))
