"""Documents on their way into a store: one at a time, and the same store as from a data set."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from corag_search import InputError, PipelineConfig, SearchConfig
from corag_search.store import CHUNKS
from data_prep.corpus import build_store, extended_store, kept_store, store_of_documents
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


@dataclass
class Counting(HashEmbedder):
    """Counts the texts that it embeds."""

    fingerprint: str = "f"
    texts: int = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += len(texts)
        return super().encode(texts)


def dataset_of(*texts: str) -> Dataset:
    return Dataset("some", tuple(Document(f"d{number}", text) for number, text in enumerate(texts)), ())


def test_a_kept_store_is_made_once_and_anew_whenever_another_would_be_made(tmp_path: Path) -> None:
    folder, dataset, longer = tmp_path / "l.chunks.store", dataset_of(*TEXTS[:3]), dataset_of(*TEXTS[:4])

    def embedded(data: Dataset, config: PipelineConfig = CONFIG, fingerprint: str = "f") -> int:
        embedder = Counting(fingerprint)
        kept = kept_store(data, config, folder, embedder, Words())  # type: ignore[arg-type]
        expected = build_store(data, config, Counting(fingerprint), Words())  # type: ignore[arg-type]
        assert kept.info == expected.info and list(kept.chunks) == list(expected.chunks)
        np.testing.assert_array_equal(kept.embeddings(), expected.embeddings())
        return embedder.texts

    other = dataset_of(*TEXTS[:2], TEXTS[2].replace("says", "said"))  # as long as before
    hnsw = replace(CONFIG, index={"kind": "hnsw"})
    jobs = [(dataset,), (longer,), (dataset,), (other,), (other, replace(CONFIG, chunk_size=12)), (other, CONFIG, "g")]
    for job in (*jobs, (other, hnsw, "g")):
        assert embedded(*job) > 0
        assert embedded(*job) == 0
    (folder / CHUNKS).write_bytes(b"damaged")
    assert embedded(other, hnsw, "g") > 0
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_a_store_that_cannot_be_kept_is_not_embedded(tmp_path: Path) -> None:
    embedder, folder = Counting(), tmp_path / "l.chunks.store"
    small = replace(CONFIG, search=SearchConfig(budget=2))
    with pytest.raises(InputError, match="budget must be at least the smallest chunk's cost"):
        kept_store(dataset_of(*TEXTS), small, folder, embedder, Words())  # type: ignore[arg-type]
    assert not folder.exists()
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is no corag-store, so it is not overwritten"):
        kept_store(dataset_of(*TEXTS), CONFIG, folder, embedder, Words())  # type: ignore[arg-type]
    assert embedder.texts == 0
