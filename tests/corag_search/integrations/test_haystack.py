"""The ranker in Haystack itself."""

from __future__ import annotations

import asyncio

import pytest
from haystack import Document, Pipeline
from haystack.components.builders import PromptBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.core.errors import DeserializationError
from haystack.document_stores.in_memory import InMemoryDocumentStore

from corag_search import InputError
from corag_search.integrations.haystack import CoragRanker
from tests.corag_search.integrations.blocking import WaitsForLoop
from tests.corag_search.integrations.conftest import counting
from tests.corag_search.scripted import Scripted

pytestmark = pytest.mark.models

SCORES = {"a": 0.5, "b": 0.4, "c": 0.3, "ab": 0.6, "ba": 0.8}
TEMPLATE = "{% for document in documents %}[{{ document.content }}]{% endfor %}"


def pipeline_of(ranker: CoragRanker) -> Pipeline:
    store = InMemoryDocumentStore()
    store.write_documents(
        [
            Document(id="a", content="word alpha", meta={"page": 1}),
            Document(id="b", content="word beta beta", meta={"page": 2}),
            Document(id="c", content="word gamma gamma gamma"),
        ]
    )
    pipeline = Pipeline()
    pipeline.add_component("retriever", InMemoryBM25Retriever(store))
    pipeline.add_component("ranker", ranker)
    pipeline.add_component("prompt", PromptBuilder(TEMPLATE, required_variables=["documents"]))
    pipeline.connect("retriever.documents", "ranker.documents")
    pipeline.connect("ranker.documents", "prompt.documents")
    return pipeline


def inputs(query: str, **ranker: int) -> dict:
    return {"retriever": {"query": query}, "ranker": {"query": query, **ranker}}


def test_a_pipeline_writes_the_prompt_in_the_found_order() -> None:
    ranker = CoragRanker(budget=20, reranker=Scripted(SCORES, default=0.1), search={"iterations": 25})
    result = pipeline_of(ranker).run(inputs("word"), include_outputs_from={"ranker"})
    assert result["prompt"]["prompt"] == "[word beta beta][word alpha]"
    documents = result["ranker"]["documents"]
    assert [(document.id, document.meta) for document in documents] == [("b", {"page": 2}), ("a", {"page": 1})]
    assert all(document.score is not None for document in documents)  # the retriever's


def test_a_run_may_have_its_own_budget() -> None:
    ranker = CoragRanker(budget=20, reranker=counting)
    pipeline = pipeline_of(ranker)
    assert pipeline.run(inputs("word"))["prompt"]["prompt"].count("[") == 3
    assert pipeline.run(inputs("word", budget=2))["prompt"]["prompt"] == "[word alpha]"
    with pytest.raises(InputError, match=r"^budget must be a whole number of tokens, at least 1, got 0$"):
        ranker.run("word", [Document(content="alpha")], budget=0)


def test_the_event_loop_goes_on_meanwhile() -> None:
    reranker = WaitsForLoop()
    pipeline = pipeline_of(CoragRanker(budget=20, reranker=reranker))
    result = asyncio.run(reranker.beside(pipeline.run_async(inputs("word"))))
    assert result["prompt"]["prompt"].count("[") == 3


def test_a_document_without_content_is_never_chosen() -> None:
    ranker = CoragRanker(budget=20, reranker=counting)
    assert ranker.run("q", [Document(meta={"image": "a.png"})]) == {"documents": []}


def test_a_saved_pipeline_chooses_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RERANK_KEY", "a-secret")
    server = {"base_url": "http://localhost:9", "dialect": "tei", "api_key_env": "RERANK_KEY"}
    ranker = CoragRanker(
        budget=8, reranker="bm25", rerankers={"bm25": {"k1": 1.5}, "server:far": server}, search={"selection": "scaled"}
    )
    ranker.warm_up()
    pipeline = pipeline_of(ranker)
    saved = pipeline.dumps()
    assert "RERANK_KEY" in saved and "a-secret" not in saved
    again = Pipeline.loads(saved, allowed_modules=["corag_search"])  # beside those that Haystack trusts
    assert again.get_component("ranker").to_dict() == ranker.to_dict()
    assert ranker.to_dict()["init_parameters"] == {
        "budget": 8,
        "reranker": "bm25",
        "rerankers": {"bm25": {"k1": 1.5}, "server:far": server},
        "agent": None,
        "embedder": {"name": "minilm"},
        "tokenizer": "smollm2",
        "search": {"selection": "scaled"},
    }
    documents = [Document(id="a", content="alpha"), Document(id="b", content="beta")]
    assert again.get_component("ranker").run("beta", documents)["documents"] == [documents[1]]


def test_a_bad_value_in_a_saved_pipeline_is_told_by_haystack_in_our_words() -> None:
    saved = pipeline_of(CoragRanker(reranker="bm25")).dumps().replace("budget: 1024", "budget: many")
    message = "settings: budget must be a whole number of tokens, at least 1, got 'many'"
    with pytest.raises(DeserializationError, match=f"{message}$") as refused:
        Pipeline.loads(saved, allowed_modules=["corag_search"])
    assert isinstance(refused.value.__cause__, InputError) and str(refused.value.__cause__) == message


def test_a_reranker_object_cannot_be_saved() -> None:
    with pytest.raises(InputError, match="reranker 'counting' is an object and cannot be written down; give a name"):
        CoragRanker(reranker=counting).to_dict()


def test_warm_up_finds_what_cannot_be_loaded() -> None:
    with pytest.raises(InputError, match="unknown reranker 'nonsense'"):
        CoragRanker(reranker="nonsense").warm_up()
