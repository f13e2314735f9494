"""Chunks partition a document by tokens, never inside a code point."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corag_search import InputError, chunk_documents, load_tokenizer
from corag_search.chunking import SMALLEST_CHUNK, _spans
from corag_search.tokenizers import Tokenizer

pytestmark = pytest.mark.models


@dataclass(frozen=True)
class Text:
    id: str
    text: str
    title: str = ""
    domain: str = ""
    language: str = ""


ENGLISH = "The tower was finished in 1889, and it stands 330 metres tall. " * 12
TEXTS = {
    "english": ENGLISH,
    "chinese": "光合作用是植物利用光能，把二氧化碳和水变成葡萄糖并放出氧气的过程。" * 6,
    "emoji": "🏔️👩🏽‍🚀 ok 🇨🇳 " * 15,
    "spaces": "a" + " " * 300 + "b\n\n\t c" + "\n" * 50 + "d",
}


@pytest.mark.parametrize("name", ["smollm2", "minilm"])
@pytest.mark.parametrize("size", [8, 9, 16, 96])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_chunks_are_slices_that_leave_out_white_space_alone(name: str, size: int, text: str) -> None:
    tokenizer = load_tokenizer(name)
    chunks = chunk_documents([Text("d", text)], tokenizer, size)
    end = 0
    for chunk in chunks:
        assert not text[end : chunk.metadata["start"]].strip()
        end = chunk.metadata["end"]
        assert chunk.text == text[chunk.metadata["start"] : end]
        assert chunk.cost == tokenizer.count([chunk.text])[0] <= size
    assert not text[end:].strip()
    assert [chunk.id for chunk in chunks] == [f"d:{i}" for i in range(len(chunks))]


def test_a_size_of_numpy() -> None:
    tokenizer = load_tokenizer("smollm2")
    documents = [Text("d", ENGLISH)]
    assert chunk_documents(documents, tokenizer, np.int64(8)) == chunk_documents(documents, tokenizer, 8)


def test_all_but_the_last_are_as_long_as_asked_and_the_short_one_is_kept() -> None:
    chunks = chunk_documents([Text("d", ENGLISH)], load_tokenizer("smollm2"), 50)
    assert {chunk.cost for chunk in chunks[:-1]} == {50}
    assert 0 < chunks[-1].cost < 50
    assert "".join(chunk.text for chunk in chunks) == ENGLISH


@given(st.text(max_size=300), st.integers(SMALLEST_CHUNK, 40))
@example("\U00040000:\x08", 8)
@settings(max_examples=150, deadline=None)
def test_any_text(text: str, size: int) -> None:
    tokenizer = load_tokenizer("smollm2")
    anchor = "anchor "  # some control characters have no token at all; a document of them alone is empty
    chunks = chunk_documents([Text("d", anchor + text)], tokenizer, size)
    assert all(1 <= chunk.cost <= size for chunk in chunks)
    covered = "".join(chunk.text for chunk in chunks)
    assert "".join(covered.split()) == "".join((anchor + text).split())


def test_what_cannot_be_cut_is_longer_than_asked() -> None:
    """One ligature that the tokenizer spells out in 18 tokens is a chunk, and the cutting goes on behind it."""
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    model.normalizer = tokenizers.normalizers.NFKC()
    model.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("[\\s\\S]"), "isolated")
    letters = Tokenizer("letters", model)
    assert letters.count(["\ufdfa", "ab"]) == [18, 2]
    spans = list(islice(_spans("abc\ufdfadefghi", letters, 4), 9))
    assert spans == [(0, 3), (3, 4), (4, 8), (8, 10)]
    assert [c.cost for c in chunk_documents([Text("d", "abc\ufdfadefghi")], letters, 8)] == [3, 18, 6]


def test_document_facts_go_into_the_metadata() -> None:
    (chunk,) = chunk_documents([Text("d", "short", "Title", "law", "en")], load_tokenizer("minilm"), 96)
    assert chunk.metadata == {
        "document": "d", "start": 0, "end": 5, "title": "Title", "domain": "law", "language": "en",
    }  # fmt: skip


def test_unusable_input() -> None:
    tokenizer = load_tokenizer("minilm")
    for size in (3, 4.0, "many", None):
        with pytest.raises(InputError, match=f"chunk_size must be a whole number of tokens, at least 8, got {size!r}"):
            chunk_documents([Text("d", "text")], tokenizer, size)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the corpus is empty"):
        chunk_documents([Text("d", " \n ")], tokenizer, 96)
    with pytest.raises(InputError, match="the corpus is empty"):
        chunk_documents([], tokenizer, 96)
