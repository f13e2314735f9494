"""Embedders, by name. Importing this brings no model library into memory."""

from __future__ import annotations

from typing import Any

from corag_search.embedders.base import Embedder
from corag_search.registry import Entry, create

_EMBEDDERS = {
    "minilm": Entry("corag_search.embedders.minilm", "MiniLMEmbedder"),
    "bge-m3": Entry("corag_search.embedders.bge_m3", "BGEM3Embedder"),
}


def list_embedders() -> list[str]:
    """Names that `load_embedder` knows."""
    return list(_EMBEDDERS)


def load_embedder(name: str, **options: Any) -> Embedder:
    """Load an embedder.

    Args:
        name: One of `list_embedders()`: "minilm" lies inside a package, "bge-m3" is the paper's.
        **options: Parameters of its class.

    Raises:
        InputError: Unknown name or option, an unusable value, or a package that is not installed.
    """
    return create("embedder", _EMBEDDERS, name, options)


__all__ = ["Embedder", "list_embedders", "load_embedder"]
