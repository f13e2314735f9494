"""The compressor in LangChain itself."""

from __future__ import annotations

import asyncio
import copy

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import ValidationError

from corag_search.errors import InputError
from corag_search.integrations.langchain import CoragDocumentCompressor
from tests.corag_search.integrations.blocking import WaitsForLoop
from tests.corag_search.integrations.conftest import counting
from tests.corag_search.scripted import Scripted

pytestmark = pytest.mark.models

DOCUMENTS = [
    Document("alpha", id="a", metadata={"page": 1}),
    Document("beta beta", id="b", metadata={"page": 2}),
    Document("gamma gamma gamma", id="c"),
]
SCORES = {"a": 0.5, "b": 0.4, "c": 0.3, "ab": 0.6, "ba": 0.8}


def test_documents_as_loaders_leave_them() -> None:
    """Blank pages, ids that are no text, a row of them that can be gone through once; and a copy of all of it."""
    compressor = copy.deepcopy(CoragDocumentCompressor(budget=20, reranker="bm25"))
    odd = [
        Document(" \n\t", id="blank"),
        Document.model_construct(page_content="alpha", metadata=None, id=7),
        Document("beta alpha", id="\ud800"),
    ]
    assert {document.page_content for document in compressor.compress_documents(iter(odd), "alpha")} <= {
        "alpha",
        "beta alpha",
    }
    assert compressor.compress_documents(odd[:1], "alpha") == []
    assert compressor.compress_documents(odd[1:2], "alpha") == odd[1:2]
    with pytest.raises(InputError, match="the text of None must be a text, got None"):
        compressor.compress_documents([Document.model_construct(page_content=None, metadata={}, id=None)], "alpha")


def test_a_retriever_gives_the_chosen_documents_in_the_found_order() -> None:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents(DOCUMENTS)
    retriever = ContextualCompressionRetriever(
        base_compressor=CoragDocumentCompressor(
            budget=6, reranker=Scripted(SCORES, default=0.1), search={"iterations": 25}
        ),
        base_retriever=store.as_retriever(search_kwargs={"k": 3}),
    )
    chain = {"context": retriever, "question": RunnablePassthrough()} | RunnablePassthrough()
    for found in (chain.invoke("which?"), asyncio.run(chain.ainvoke("which?"))):
        assert found["context"] == [DOCUMENTS[1], DOCUMENTS[0]]


def test_documents_without_ids_may_be_alike() -> None:
    documents = [Document("alpha", metadata={"page": page}) for page in (1, 2)] + [Document("beta")]
    chosen = CoragDocumentCompressor(budget=9, reranker=counting).compress_documents(documents, "q")
    assert sorted(documents.index(document) for document in chosen) == [0, 2]


def test_the_event_loop_goes_on_meanwhile() -> None:
    reranker = WaitsForLoop()
    waiting = CoragDocumentCompressor(budget=6, reranker=reranker)
    chosen = asyncio.run(reranker.beside(waiting.acompress_documents(DOCUMENTS, "q")))
    assert sorted(document.id for document in chosen) == ["a", "b", "c"]


def test_the_budget_can_be_assigned_and_nothing_else() -> None:
    assigned = CoragDocumentCompressor(budget=6, reranker=counting, search={"cost_coefficient": 0.01})
    assert len(assigned.compress_documents(DOCUMENTS, "q")) == 3
    assigned.budget = 3
    assert len(assigned.compress_documents(DOCUMENTS, "q")) == 2
    with pytest.raises(ValidationError, match="Field is frozen"):
        assigned.reranker = "bm25"


def test_it_is_written_down_and_made_again() -> None:
    written = CoragDocumentCompressor(budget=3, reranker="bm25", search={"iterations": 4}).model_dump_json()
    again = CoragDocumentCompressor.model_validate_json(written)
    assert again.model_dump_json() == written
    assert again.compress_documents(DOCUMENTS, "beta") == [DOCUMENTS[1]]
