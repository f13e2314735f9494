"""Budgeted, order-aware context selection for retrieval-augmented generation (CORAG, arXiv:2411.00744).

Importing this package takes no torch, transformers or faiss into memory; what needs them loads them on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corag_search.agent import ConfigurationAgent, Prediction
    from corag_search.chunk import Chunk
    from corag_search.chunking import chunk_documents
    from corag_search.config import FinalRule, SearchConfig, Selection
    from corag_search.embedders import list_embedders, load_embedder
    from corag_search.errors import InputError
    from corag_search.generators import list_generators, load_generator
    from corag_search.pipeline import Answer, Corag, Selected
    from corag_search.pipeline_config import PipelineConfig
    from corag_search.policy_tree import search_policy_tree, search_policy_trees
    from corag_search.prompt import Citation, PromptTemplate
    from corag_search.rerankers import Reranker, list_rerankers, load_reranker
    from corag_search.result import Combination, SearchResult
    from corag_search.store import VectorStore
    from corag_search.tokenizers import Tokenizer, load_tokenizer

_HOME = {
    "Answer": "pipeline",
    "Chunk": "chunk",
    "Citation": "prompt",
    "Combination": "result",
    "ConfigurationAgent": "agent",
    "Corag": "pipeline",
    "FinalRule": "config",
    "InputError": "errors",
    "PipelineConfig": "pipeline_config",
    "Prediction": "agent",
    "PromptTemplate": "prompt",
    "Reranker": "rerankers",
    "SearchConfig": "config",
    "SearchResult": "result",
    "Selected": "pipeline",
    "Selection": "config",
    "Tokenizer": "tokenizers",
    "VectorStore": "store",
    "chunk_documents": "chunking",
    "list_embedders": "embedders",
    "list_generators": "generators",
    "list_rerankers": "rerankers",
    "load_embedder": "embedders",
    "load_generator": "generators",
    "load_reranker": "rerankers",
    "load_tokenizer": "tokenizers",
    "search_policy_tree": "policy_tree",
    "search_policy_trees": "policy_tree",
}

__all__ = [
    "Answer",
    "Chunk",
    "Citation",
    "Combination",
    "ConfigurationAgent",
    "Corag",
    "FinalRule",
    "InputError",
    "PipelineConfig",
    "Prediction",
    "PromptTemplate",
    "Reranker",
    "SearchConfig",
    "SearchResult",
    "Selected",
    "Selection",
    "Tokenizer",
    "VectorStore",
    "chunk_documents",
    "list_embedders",
    "list_generators",
    "list_rerankers",
    "load_embedder",
    "load_generator",
    "load_reranker",
    "load_tokenizer",
    "search_policy_tree",
    "search_policy_trees",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"corag_search.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
