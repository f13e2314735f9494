"""Documents on their way into a store: one at a time, and the same store as from a data set."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from corag_search import InputError, PipelineConfig
from data_prep.corpus import build_store, extended_store, store_of_documents
from data_prep.dataset import Dataset, Document
from tests.data_prep.test_labelling import HashEmbedder, Words

CONFIG = PipelineConfig(tokenizer="words", chunk_size=8)
TEXTS = [f"document {number} says " + "a word or two " * 6 for number in range(50)]


class Held:
    """A document that can be seen to be held."""

    def __init__(self, number: int) -> None:
        self.id, self.text = f"d{number}", TEXTS[number]


def test_no_document_is_kept_and_the_store_is_that_of_the_data_set() -> None:
    alive: weakref.WeakSet[Held] = weakref.WeakSet()
    most = 0

    def documents(start: int, end: int) -> Iterator[Held]:
        nonlocal most
        for number in range(start, end):
            one = Held(number)
            alive.add(one)
            most = max(most, len(alive))
            yield one
            del one

    first = store_of_documents(documents(0, 30), CONFIG, HashEmbedder(), Words())  # type: ignore[arg-type]
    whole = extended_store(first, documents(30, 50), CONFIG, HashEmbedder(), Words())  # type: ignore[arg-type]
    assert most <= 2  # the one that is being cut, and the next
    dataset = Dataset("all", tuple(Document(f"d{number}", text) for number, text in enumerate(TEXTS)), ())
    expected = build_store(dataset, CONFIG, HashEmbedder(), Words())  # type: ignore[arg-type]
    assert tuple(whole.chunks) == tuple(expected.chunks)
    np.testing.assert_array_equal(whole.embeddings(), expected.embeddings())


def test_nothing_to_index() -> None:
    with pytest.raises(InputError, match="the corpus is empty"):
        store_of_documents(iter(()), CONFIG, HashEmbedder(), Words())  # type: ignore[arg-type]
