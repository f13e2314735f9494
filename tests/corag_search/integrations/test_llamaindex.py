"""The postprocessor and the retriever in LlamaIndex itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from pydantic import ValidationError

from corag_search import Corag, InputError, PipelineConfig, SearchConfig
from corag_search.integrations.llamaindex import CoragNodePostprocessor, LlamaIndexRetriever
from tests.corag_search.integrations.blocking import WaitsForLoop
from tests.corag_search.integrations.conftest import counting
from tests.corag_search.scripted import Scripted

pytestmark = pytest.mark.models

SCORES = {"a": 0.5, "b": 0.4, "c": 0.3, "ab": 0.6, "ba": 0.8}


def nodes_of(**texts: str) -> list[NodeWithScore]:
    return [
        NodeWithScore(
            node=TextNode(
                id_=id,
                text=text,
                metadata={"page": row},
                excluded_llm_metadata_keys=["page"],
                relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"document of {id}")},
                start_char_idx=10 * row,
                end_char_idx=10 * row + len(text),
            ),
            score=1 - row / 10,
        )
        for row, (id, text) in enumerate(texts.items())
    ]


@pytest.fixture
def nodes() -> list[NodeWithScore]:
    return nodes_of(a="alpha", b="beta beta", c="gamma gamma gamma")


class Fixed(BaseRetriever):
    """Returns the nodes that it was given."""

    def __init__(self, nodes: list[NodeWithScore]) -> None:
        super().__init__()
        self._nodes = nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._nodes


def ids(nodes: list[NodeWithScore]) -> list[str]:
    return [node.node_id for node in nodes]


def test_a_query_engine_answers_from_the_chosen_nodes_in_their_order(nodes: list[NodeWithScore]) -> None:
    postprocessor = CoragNodePostprocessor(budget=6, reranker=Scripted(SCORES, default=0.1), search={"iterations": 25})
    engine = RetrieverQueryEngine(
        Fixed(nodes),
        response_synthesizer=get_response_synthesizer(llm=MockLLM()),  # answers with the prompt
        node_postprocessors=[postprocessor],
    )
    for response in (engine.query("which?"), asyncio.run(engine.aquery("which?"))):
        assert ids(response.source_nodes) == ["b", "a"]
        assert "beta beta\n\nalpha" in str(response) and "gamma" not in str(response)
        assert [node.score for node in response.source_nodes] == [0.9, 1.0]
        assert [node.node.ref_doc_id for node in response.source_nodes] == ["document of b", "document of a"]


def test_what_the_llm_reads_is_counted_and_judged() -> None:
    """ "page: 1\\n\\nbeta" is dearer than "beta", and its words count."""
    plain, titled = (TextNode(id_=id, text="beta", metadata={"title": "alpha"}) for id in ("plain", "titled"))
    plain.excluded_llm_metadata_keys = ["title"]
    nodes = [NodeWithScore(node=plain), NodeWithScore(node=titled)]
    assert ids(CoragNodePostprocessor(budget=1, reranker=counting).postprocess_nodes(nodes, query_str="q")) == ["plain"]
    chosen = CoragNodePostprocessor(budget=20, reranker="bm25").postprocess_nodes(nodes, query_str="alpha")
    assert ids(chosen) == ["titled"]


def test_nodes_without_a_query_are_refused(nodes: list[NodeWithScore]) -> None:
    with pytest.raises(InputError, match=r"^query_bundle must be given, got None: nodes are chosen for a query$"):
        CoragNodePostprocessor().postprocess_nodes(nodes)


def test_events_tell_of_the_choice(nodes: list[NodeWithScore]) -> None:
    class Collector(BaseEventHandler):
        events: list[Any] = []  # noqa: RUF012 (pydantic copies it)

        def handle(self, event: BaseEvent, **kwargs: Any) -> None:
            self.events.append(event)

    debug, collector, dispatcher = LlamaDebugHandler(print_trace_on_end=False), Collector(), get_dispatcher()
    dispatcher.add_event_handler(collector)
    try:
        postprocessor = CoragNodePostprocessor(
            budget=6, reranker=Scripted(SCORES, default=0.1), callback_manager=CallbackManager([debug])
        )
        chosen = postprocessor.postprocess_nodes(nodes, QueryBundle("which?"))
    finally:
        dispatcher.event_handlers.remove(collector)
    start, end = (event for event in collector.events if isinstance(event, ReRankStartEvent | ReRankEndEvent))
    assert (start.query.query_str, start.nodes, start.top_n, start.model_name) == ("which?", nodes, 3, "scripted")
    assert end.nodes == chosen
    [(_, ended)] = debug.get_event_pairs(CBEventType.RERANKING)
    assert ended.payload == {"nodes": chosen}


def test_the_event_loop_goes_on_meanwhile(nodes: list[NodeWithScore]) -> None:
    reranker = WaitsForLoop()
    postprocessor = CoragNodePostprocessor(budget=6, reranker=reranker)
    chosen = asyncio.run(reranker.beside(postprocessor.apostprocess_nodes(nodes, query_str="q")))
    assert sorted(ids(chosen)) == ["a", "b", "c"]


def test_it_is_written_down_and_made_again(nodes: list[NodeWithScore]) -> None:
    postprocessor = CoragNodePostprocessor(
        budget=3, reranker="bm25", rerankers={"bm25": {"k1": 1.5}}, search={"iterations": 4}
    )
    again = CoragNodePostprocessor.from_json(postprocessor.to_json())
    assert again.to_dict() == postprocessor.to_dict()
    assert again.to_dict()["class_name"] == "CoragNodePostprocessor"
    assert ids(again.postprocess_nodes(nodes, query_str="beta")) == ["b"]


def test_the_budget_can_be_assigned_and_nothing_else(nodes: list[NodeWithScore]) -> None:
    postprocessor = CoragNodePostprocessor(budget=6, reranker=counting, search={"cost_coefficient": 0.01})
    assert len(postprocessor.postprocess_nodes(nodes, query_str="q")) == 3
    postprocessor.budget = 3
    assert len(postprocessor.postprocess_nodes(nodes, query_str="q")) == 2
    with pytest.raises(ValidationError, match="Field is frozen"):
        postprocessor.reranker = "bm25"


def test_any_retriever_is_a_source_of_candidates(nodes: list[NodeWithScore]) -> None:
    empty = NodeWithScore(node=TextNode(id_="empty", text=""))
    source = LlamaIndexRetriever(Fixed([nodes[0], empty, *nodes[1:]]))
    first, second = source.retrieve("q", 2, embedding=[1.0])
    assert (first.id, first.text, first.cost) == ("a", "alpha", 1)
    assert (second.id, second.text, second.cost) == ("b", "beta beta", 2)
    assert second.metadata == {"page": 1, "document": "document of b", "start": 10, "end": 19}
    assert len(source.retrieve("q", 9)) == 3
    with pytest.raises(InputError, match="candidates must be a whole number, at least 1, got 0"):
        source.retrieve("q", 0)


def test_candidates_from_a_real_index_are_searched() -> None:
    texts = ["The tower is 330 m tall.", "The canal joins two seas.", "Eiffel built the tower."]
    index = VectorStoreIndex(
        [TextNode(id_=str(row), text=text) for row, text in enumerate(texts)], embed_model=MockEmbedding(8)
    )
    chunks = LlamaIndexRetriever(index.as_retriever(similarity_top_k=3)).retrieve("who built the tower?", 3)
    assert {chunk.text for chunk in chunks} == set(texts)
    corag = Corag(None, None, PipelineConfig(search=SearchConfig(budget=12)))
    assert corag.search("who built the tower?", candidates=chunks).chunks[0].id == "2"
