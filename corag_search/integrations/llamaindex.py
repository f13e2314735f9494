"""LlamaIndex: a node postprocessor, and any retriever as a source of candidates. Needs the extra `llamaindex`."""

from __future__ import annotations

from typing import Any

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.integrations.items import Item, chunks_of_items, framework
from corag_search.registry import whole
from corag_search.tokenizers import load_tokenizer

with framework("llama_index.core", "llamaindex"):
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.callbacks import CBEventType, EventPayload
    from llama_index.core.instrumentation import get_dispatcher
    from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle

    from corag_search.integrations.fields import SelectorFields

dispatcher = get_dispatcher(__name__)


class CoragNodePostprocessor(SelectorFields, BaseNodePostprocessor):
    """Of the nodes that a retriever returned, gives back the best combination within a budget, in the found order.

    Its fields are the arguments of `corag_search.integrations.items.ItemSelector`. What is judged and counted is the
    text that the LLM will read: `node.get_content(metadata_mode=MetadataMode.LLM)`. Safe to share between threads.

    Raises:
        InputError: A bad value, or a model that cannot be loaded.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> texts = {"a": "The tower is 330 m tall.", "b": "Cats sleep."}
        >>> nodes = [NodeWithScore(node=TextNode(id_=id, text=text)) for id, text in texts.items()]
        >>> postprocessor = CoragNodePostprocessor(budget=50, reranker="bm25")
        >>> [node.node_id for node in postprocessor.postprocess_nodes(nodes, query_str="How tall is the tower?")]
        ['a']
    """

    @classmethod
    def class_name(cls) -> str:
        return "CoragNodePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        """Choose nodes; the given objects come back, with the scores that the retriever gave them.

        Raises:
            InputError: No query, or every node costs more than the budget.
            RerankerError: The reranker or its server failed.
        """
        if query_bundle is None:
            raise InputError("query_bundle must be given, got None: nodes are chosen for a query")
        query, model_name, top_n = query_bundle.query_str, self._selector.model_name, self._selector.most(len(nodes))
        dispatcher.event(ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=top_n, model_name=model_name))
        payload: dict[str, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: model_name,
            EventPayload.QUERY_STR: query,
            EventPayload.TOP_K: top_n,
        }
        with self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event:
            items = [_item(node.node) for node in nodes]
            chosen = [nodes[row] for row in self._selector.select(query, items, self.budget)]
            event.on_end(payload={EventPayload.NODES: chosen})
        dispatcher.event(ReRankEndEvent(nodes=chosen))
        return chosen


class LlamaIndexRetriever:
    """Any LlamaIndex retriever as a source of candidates, and so any vector database that LlamaIndex speaks to.

    As safe to share between threads as the retriever is.

    Args:
        retriever: It decides by itself how many nodes it fetches; give it a `similarity_top_k` of at least the
            candidates that are asked for.
        tokenizer: Counts the chunks' tokens; the run's.
    """

    def __init__(self, retriever: BaseRetriever, tokenizer: str = "smollm2") -> None:
        self._retriever = retriever
        self._tokenizer = load_tokenizer(tokenizer)

    def retrieve(self, query: str, k: int, *, embedding: Any = None) -> list[Chunk]:
        """The first k nodes that have text, as chunks.

        Each is the text that an LLM would read, `MetadataMode.LLM`; its metadata are the node's, and the source
        document with the node's offsets in it where LlamaIndex knows them.

        Args:
            query: The question.
            k: At least 1.
            embedding: Not used: the retriever embeds the query with the model that its index was made with.

        Raises:
            InputError: k is no whole number of at least 1.
        """
        count = whole("candidates", k)
        items = [_item(node.node, with_source=True) for node in self._retriever.retrieve(query)]
        return chunks_of_items(items, self._tokenizer)[1][:count]


def _item(node: BaseNode, with_source: bool = False) -> Item:
    source = {}
    if with_source:
        offsets = {"start": getattr(node, "start_char_idx", None), "end": getattr(node, "end_char_idx", None)}
        source = {name: value for name, value in {"document": node.ref_doc_id, **offsets}.items() if value is not None}
    return Item(node.node_id, node.get_content(metadata_mode=MetadataMode.LLM), {**node.metadata, **source})
