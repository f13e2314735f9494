"""Rerankers, by name. Importing this brings no model library into memory."""

from __future__ import annotations

from typing import Any

from corag_search.registry import Entry, create
from corag_search.rerankers.base import Combinations, Reranker, Scores, Session, as_reranker, checked_scores

_EMBEDDED = {
    "bm25": Entry("corag_search.rerankers.bm25", "BM25Reranker"),
    "cosine": Entry("corag_search.rerankers.cosine", "CosineReranker"),
    "maxsim": Entry("corag_search.rerankers.maxsim", "MaxSimReranker"),
    "wordllama": Entry("corag_search.rerankers.static", "WordLlamaReranker"),
}
_PAPER = {
    name: Entry("corag_search.rerankers.cross_encoder", "CrossEncoderReranker", {"name": name})
    for name in (
        "jina-reranker-v1-turbo-en",
        "jina-reranker-v2-base-multilingual",
        "bge-reranker-v2-m3",
        "bge-reranker-large",
        "bge-reranker-base",
        "gte-multilingual-reranker-base",
    )
}
_RERANKERS = _EMBEDDED | _PAPER


def list_rerankers() -> list[str]:
    """Names that `load_reranker` knows: the embedded ones, then the paper's."""
    return list(_RERANKERS)


def load_reranker(name: str, **options: Any) -> Reranker:
    """Load a reranker.

    Args:
        name: One of `list_rerankers()`.
        **options: Parameters of its class: `device`, `dtype`, `batch_size` of "cosine" and "maxsim"; `path`, `devices`,
            `batch_size`, `trust_remote_code` of the cross-encoders; `k1`, `b` of "bm25".

    Raises:
        InputError: Unknown name or option, an unusable value or checkpoint, or a package that is not installed.
    """
    return create("reranker", _RERANKERS, name, options)


__all__ = [
    "Combinations",
    "Reranker",
    "Scores",
    "Session",
    "as_reranker",
    "checked_scores",
    "list_rerankers",
    "load_reranker",
]
