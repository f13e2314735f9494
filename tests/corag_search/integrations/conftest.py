"""The three frameworks behind one interface, so that what they share is tested on each."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pytest

from corag_search import Chunk

# Read when the frameworks are imported, which the adapters below do: nothing may be sent while tests run.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"
os.environ["LANGSMITH_TRACING"] = "false"


class Adapter(ABC):
    """One framework: its adapter made of settings, its kind of item, one choice."""

    @abstractmethod
    def make(self, **settings: Any) -> Any:
        """The adapter."""

    @abstractmethod
    def item(self, id: str, text: str, **metadata: Any) -> Any:
        """What its retrievers return."""

    @abstractmethod
    def choose(self, adapter: Any, query: str, items: Sequence[Any]) -> list[Any]:
        """The items that the adapter gives back."""

    def ids(self, items: Sequence[Any]) -> list[str]:
        return [item.id for item in items]


class LlamaIndex(Adapter):
    def make(self, **settings: Any) -> Any:
        from corag_search.integrations.llamaindex import CoragNodePostprocessor

        return CoragNodePostprocessor(**settings)

    def item(self, id: str, text: str, **metadata: Any) -> Any:
        from llama_index.core.schema import NodeWithScore, TextNode

        hidden = list(metadata)  # from the LLM, so that an item costs in each framework the same
        return NodeWithScore(
            node=TextNode(id_=id, text=text, metadata=metadata, excluded_llm_metadata_keys=hidden), score=0.5
        )

    def choose(self, adapter: Any, query: str, items: Sequence[Any]) -> list[Any]:
        return adapter.postprocess_nodes(list(items), query_str=query)

    def ids(self, items: Sequence[Any]) -> list[str]:
        return [item.node_id for item in items]


class LangChain(Adapter):
    def make(self, **settings: Any) -> Any:
        from corag_search.integrations.langchain import CoragDocumentCompressor

        return CoragDocumentCompressor(**settings)

    def item(self, id: str, text: str, **metadata: Any) -> Any:
        from langchain_core.documents import Document

        return Document(text, id=id, metadata=metadata)

    def choose(self, adapter: Any, query: str, items: Sequence[Any]) -> list[Any]:
        return list(adapter.compress_documents(items, query))


class Haystack(Adapter):
    def make(self, **settings: Any) -> Any:
        from corag_search.integrations.haystack import CoragRanker

        return CoragRanker(**settings)

    def item(self, id: str, text: str, **metadata: Any) -> Any:
        from haystack import Document

        return Document(id=id, content=text, meta=metadata, score=0.5)

    def choose(self, adapter: Any, query: str, items: Sequence[Any]) -> list[Any]:
        return adapter.run(query, list(items))["documents"]


@pytest.fixture(params=[LlamaIndex, LangChain, Haystack], ids=lambda kind: kind.__name__)
def framework(request: pytest.FixtureRequest) -> Adapter:
    return request.param()


def counting(query: str, combinations: Sequence[Sequence[Chunk]]) -> list[float]:
    """A reranker for which more is better: a tenth for each chunk."""
    return [len(combination) / 10 for combination in combinations]
