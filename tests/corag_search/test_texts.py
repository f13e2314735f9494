"""Texts that cannot be encoded, wherever they come in, and values in messages."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from corag_search import Chunk, InputError, PromptTemplate, chunk_documents, load_embedder, load_tokenizer
from corag_search.integrations.items import Item, chunks_of_items
from corag_search.policy_tree.problem import check_query
from corag_search.rerankers.joined import JoinedTokens
from corag_search.rerankers.static import WordLlamaReranker
from corag_search.texts import check_text, shown

HALF = "a \ud83d b"


@pytest.mark.parametrize("name", ["smollm2", "minilm"])
def test_tokenizers_take_what_can_be_encoded(name: str) -> None:
    tokenizer = load_tokenizer(name)
    for call in (tokenizer.count, tokenizer.ids):
        with pytest.raises(
            InputError, match="text 1 of 2 must be a text that can be encoded as UTF-8, got half a surro"
        ):
            call(["fine", HALF])
        with pytest.raises(InputError, match="text 0 of 1 must be a text, got None"):
            call([None])  # type: ignore[list-item]
    with pytest.raises(InputError, match="text must be a text that can be encoded as UTF-8"):
        tokenizer.offsets(HALF)
    assert tokenizer.count(["é", "plain"]) == [len(ids) for ids in tokenizer.ids(["é", "plain"])]


def test_embedders_and_rerankers_take_what_can_be_encoded() -> None:
    embedder = load_embedder("minilm")
    chunks = [[Chunk("a", "fine", 1)]]
    tokens = JoinedTokens(embedder.tokenizer)  # type: ignore[attr-defined]
    for call in (
        lambda: embedder.encode([HALF]),
        lambda: embedder.count_tokens([HALF]),  # type: ignore[attr-defined]
        lambda: WordLlamaReranker().score(HALF, chunks),
        lambda: tokens.of([HALF]),
    ):
        with pytest.raises(InputError, match="must be a text that can be encoded as UTF-8, got half a surrogate pair"):
            call()


def test_documents_and_items_are_named() -> None:
    tokenizer = load_tokenizer("smollm2")
    for text, message in ((HALF, "encoded as UTF-8, got half a surrogate pair at character 2"), (None, "got None")):
        with pytest.raises(InputError, match=f"document 'd': text must be a text.*{message}"):
            chunk_documents([SimpleNamespace(id="d", text=text)], tokenizer, 8)
        with pytest.raises(InputError, match=f"the text of 'd' must be a text.*{message}"):
            chunks_of_items([Item("d", text)], tokenizer)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [5, None, HALF])
def test_a_template_is_made_of_texts(text: object) -> None:
    with pytest.raises(InputError, match="prompt template: passage must be a text"):
        PromptTemplate(passage=text)  # type: ignore[arg-type]


def test_metadata_are_a_mapping() -> None:
    for metadata in (None, ["document"], "document"):
        with pytest.raises(InputError, match="chunk 'a': metadata must be a mapping, got"):
            Chunk("a", "text", 1, metadata)  # type: ignore[arg-type]


def test_messages_stay_short() -> None:
    for query in (" " * 10**6, HALF * 10**5):
        with pytest.raises(InputError, match="query must be a text") as error:
            check_query(query)
        assert len(str(error.value)) < 300
    with pytest.raises(InputError) as error:
        check_text("name", [1] * 10**5)
    assert len(str(error.value)) < 200
    assert shown({"a": "\n"}) == "{'a': '\\n'}" and len(shown("x" * 99)) == 80
