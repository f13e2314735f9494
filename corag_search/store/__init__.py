"""Chunks and their embeddings on disk, and the search for candidates among them."""

from corag_search.store.identity import EmbedderIdentity
from corag_search.store.kinds import FlatIndex, HNSWIndex, IndexKind, IVFPQIndex, index_kind
from corag_search.store.layout import CHUNKS, INDEX, MANIFEST, STORE
from corag_search.store.vector_store import VectorStore

__all__ = [
    "CHUNKS",
    "INDEX",
    "MANIFEST",
    "STORE",
    "EmbedderIdentity",
    "FlatIndex",
    "HNSWIndex",
    "IVFPQIndex",
    "IndexKind",
    "VectorStore",
    "index_kind",
]
