"""Where candidates come from: dense, lexical or hybrid retrieval, or a retriever of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.embedders.base import Embedder
from corag_search.errors import InputError
from corag_search.lexical import shared_ranking
from corag_search.registry import whole
from corag_search.store import VectorStore

RETRIEVALS = ("dense", "lexical", "hybrid")
DEPTH = 100  # of each ranking that is fused


@runtime_checkable
class Retriever(Protocol):
    """Gives candidates for a query."""

    def retrieve(self, query: str, k: int, *, embedding: NDArray[np.float32] | None = None) -> Sequence[Chunk]:
        """At most k chunks, best first.

        Args:
            query: The question.
            k: At least 1.
            embedding: Of the query, `[dimension]`, where it is at hand.
        """
        ...


class EmbeddingRetriever:
    """Mark of those that search with the embedding of the query, which is made once for them and the agent."""


class DenseRetriever(EmbeddingRetriever):
    """By similarity of embeddings."""

    def __init__(self, store: VectorStore, embedder: Embedder) -> None:
        self._store, self._embedder = store, embedder

    def retrieve(self, query: str, k: int, *, embedding: NDArray[np.float32] | None = None) -> list[Chunk]:
        return self._store.search(self._embedder.encode([query])[0] if embedding is None else embedding, k)


class LexicalRetriever:
    """By BM25 over the whole store; fewer than k where fewer chunks share a word with the query."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store

    def retrieve(self, query: str, k: int, *, embedding: NDArray[np.float32] | None = None) -> list[Chunk]:
        return [self._store.chunks[row] for row in self._store.lexical.search(query, k)]


class HybridRetriever(EmbeddingRetriever):
    """Reciprocal rank fusion of several retrievers; see `shared_ranking`."""

    def __init__(self, retrievers: Sequence[Retriever], depth: int = DEPTH) -> None:
        """Choose what is fused.

        Args:
            retrievers: In the order that ties prefer.
            depth: Length of each ranking, at least; k when that is more.
        """
        self._retrievers, self._depth = tuple(retrievers), whole("depth", depth)

    def retrieve(self, query: str, k: int, *, embedding: NDArray[np.float32] | None = None) -> list[Chunk]:
        depth = max(whole("candidates", k), self._depth)
        found = [one.retrieve(query, depth, embedding=embedding) for one in self._retrievers]
        by_id = {chunk.id: chunk for ranking in found for chunk in ranking}
        return [by_id[name] for name in shared_ranking([[chunk.id for chunk in ranking] for ranking in found])[:k]]


def make_retriever(name: str, store: VectorStore, embedder: Embedder) -> Retriever:
    """A retriever over a store, by name.

    Args:
        name: One of `RETRIEVALS`.
        store: The chunks.
        embedder: The one that built the store.

    Raises:
        InputError: Unknown name.
    """
    if name == "dense":
        return DenseRetriever(store, embedder)
    if name == "lexical":
        return LexicalRetriever(store)
    if name == "hybrid":
        return HybridRetriever([DenseRetriever(store, embedder), LexicalRetriever(store)])
    raise InputError(f"retrieval must be one of {', '.join(RETRIEVALS)}, got {name!r}")
