"""Cutting documents into chunks of a fixed size in tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.registry import whole
from corag_search.texts import check_text
from corag_search.tokenizers import Tokenizer

# Tokens. A code point has four bytes at most, and a token may join its first byte to what stands before it, so that the
# two cannot be cut apart: with 8 every piece that cannot be cut fits.
SMALLEST_CHUNK = 8


class DocumentLike(Protocol):
    """What is needed of a document."""

    @property
    def id(self) -> str: ...
    @property
    def text(self) -> str: ...


def chunk_documents(documents: Iterable[DocumentLike], tokenizer: Tokenizer, size: int) -> list[Chunk]:
    """Cut documents into non-overlapping chunks of at most `size` tokens; the last, short one is kept.

    Each chunk's text is the document's slice at the metadata's `start` and `end` (characters), so that the chunks of a
    document joined are the document; stretches of white space alone are left out. A cut never falls inside a code
    point: where a tokenizer makes more than `size` tokens of what cannot be cut, such as one ligature that it spells
    out, the chunk is that longer piece. `title`, `domain` and `language` of a document go into the metadata where it
    has them.

    Args:
        documents: Anything with `id` and `text`.
        tokenizer: Cuts and counts (METHOD §1: one tokenizer for everything in a run).
        size: Tokens, at least 8.

    Returns:
        Chunks with ids `document:number`, in document order.

    Raises:
        InputError: A size that is too small, documents without any text, or one whose text cannot be encoded as UTF-8.
    """
    size = whole("chunk_size", size, least=SMALLEST_CHUNK, unit="tokens")
    chunks: list[Chunk] = []
    for document in documents:
        metadata = {name: value for name in ("title", "domain", "language") if (value := getattr(document, name, ""))}
        check_text(f"document {document.id!r}: text", document.text)
        chunks += _chunks_of(document.id, document.text, tokenizer, size, metadata)
    if not chunks:
        raise InputError("the corpus is empty: no document has any text; give at least one document with text")
    return chunks


def _chunks_of(
    document: str, text: str, tokenizer: Tokenizer, size: int, metadata: Mapping[str, Any]
) -> Iterator[Chunk]:
    number = 0
    for start, end in _spans(text, tokenizer, size):
        piece = text[start:end]
        if piece.strip():
            (cost,) = tokenizer.count([piece])
            yield Chunk(
                id=f"{document}:{number}",
                text=piece,
                cost=cost,
                metadata={"document": document, "start": start, "end": end, **metadata},
            )
            number += 1


def _spans(text: str, tokenizer: Tokenizer, size: int) -> Iterator[tuple[int, int]]:
    """Character spans that partition a text, each at most `size` tokens when counted by itself, if it can be cut."""
    offsets = tokenizer.offsets(text)
    starts, ends = offsets[:, 0], offsets[:, 1]
    # A byte-level token may be part of a code point; only where a token starts at or after the end of all
    # tokens before it does a cut leave code points whole.
    clean = np.ones(len(starts) + 1, np.bool_)
    clean[1:-1] = starts[1:] >= np.maximum.accumulate(ends)[:-1]
    cuts = np.flatnonzero(clean)
    first, begin = 0, 0
    while first < len(starts):
        furthest = np.searchsorted(cuts, min(first + size, len(starts)), side="right") - 1
        last = cuts[max(furthest, np.searchsorted(cuts, first, side="right"))]  # at least one code point
        while True:
            end = len(text) if last == len(starts) else int(starts[last])
            earlier = cuts[np.searchsorted(cuts, last) - 1]
            # Cut off from its neighbours, a piece may be tokenised differently: shorten it until it fits.
            if earlier <= first or tokenizer.count([text[begin:end]])[0] <= size:
                break
            last = earlier
        yield begin, end
        first, begin = int(last), end
