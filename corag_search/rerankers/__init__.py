"""Rerankers, by name. Importing this brings no model library into memory."""

from __future__ import annotations

from typing import Any

from corag_search.errors import InputError
from corag_search.registry import Entry, create
from corag_search.rerankers.base import (
    Combinations,
    Reranker,
    RerankerError,
    Scores,
    Session,
    as_reranker,
    checked_scores,
)

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
_COMPOSITE = {"composite": Entry("corag_search.rerankers.composite", "CompositeReranker")}
_SERVER = {"server": Entry("corag_search.rerankers.server", "ServerReranker")}
_RERANKERS = _EMBEDDED | _PAPER | _COMPOSITE | _SERVER


def list_rerankers() -> list[str]:
    """Names that `load_reranker` knows: the embedded ones, the paper's, then 'composite' and 'server'."""
    return list(_RERANKERS)


def load_reranker(name: str, /, **options: Any) -> Reranker:
    """Load a reranker.

    Args:
        name: One of `list_rerankers()`, or "server:" and a name of your own, which tells several servers apart in one
            configuration and becomes the reranker's name.
        **options: Parameters of its class: `device`, `dtype`, `batch_size` of "cosine" and "maxsim"; `token_vectors` of
            "maxsim"; `path`, `devices`, `batch_size`, `trust_remote_code`, `dtype` of the cross-encoders; `long` of
            these and "cosine"; `k1`, `b` of "bm25"; `base_url`, `dialect` and more of "server"; `path`, `parts` of
            "composite".

    Raises:
        InputError: Unknown name or option, an unusable value or checkpoint, or a package that is not installed.
    """
    if isinstance(name, str) and name.startswith("server:"):
        if "name" in options:
            raise InputError(f"reranker {name!r} has its name already; leave out the option name={options['name']!r}")
        return create("reranker", _RERANKERS, "server", options | {"name": name})
    return create("reranker", _RERANKERS, name, options)


__all__ = [
    "Combinations",
    "Reranker",
    "RerankerError",
    "Scores",
    "Session",
    "as_reranker",
    "checked_scores",
    "list_rerankers",
    "load_reranker",
]
