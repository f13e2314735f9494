"""The unit of retrieval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corag_search.errors import InputError
from corag_search.registry import whole
from corag_search.texts import check_text, shown

MOST_TOKENS = 2**63 - 1  # what the arrays of a search hold


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, cut by tokens.

    Attributes:
        id: Unique in its store.
        text: Exactly the slice of the document that the metadata's offsets name.
        cost: Length of `text` in tokens of the run's tokenizer (METHOD §1: cost(χ) = |χ|).
        metadata: At least `document`, `start` and `end` (character offsets) when cut by `chunk_documents`.

    Raises:
        InputError: Id or text is no text that can be encoded as UTF-8, the cost is no whole number of at least 1, or
            the metadata are no mapping.
    """

    id: str
    text: str
    cost: int
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name, value in (("id", self.id), ("text", self.text)):
            if not (isinstance(value, str) and value.isascii()):  # the name is not made for each chunk that is read
                check_text(f"chunk {self.id!r}: {name}", value)
        if not isinstance(self.metadata, Mapping):
            raise InputError(f"chunk {self.id!r}: metadata must be a mapping, got {shown(self.metadata)}")
        object.__setattr__(self, "cost", whole(f"chunk {self.id!r}: cost", self.cost, unit="tokens", most=MOST_TOKENS))
