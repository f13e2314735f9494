"""The store returns what a matrix product says, and refuses what was changed behind its back."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from corag_search import Chunk, InputError, VectorStore
from corag_search.store import CHUNKS, INDEX, MANIFEST, EmbedderIdentity


class HashEmbedder:
    """A unit vector for each text, always the same one."""

    name, dimension, fingerprint = "hash", 16, "f1"

    def encode(self, texts: list[str]) -> np.ndarray:
        rows = [np.random.default_rng(zlib.crc32(t.encode())).normal(size=self.dimension) for t in texts]
        matrix = np.array(rows, np.float32)
        return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


CHUNKS_GIVEN = [Chunk(f"d:{i}", f"text {i} 光", 3, {"document": "d", "start": i, "end": i + 1}) for i in range(30)]


@pytest.fixture
def store() -> VectorStore:
    return VectorStore.build(CHUNKS_GIVEN, HashEmbedder(), tokenizer="smollm2", chunk_size=96)


def test_nearest_are_those_of_the_matrix_product(store: VectorStore) -> None:
    queries = HashEmbedder().encode(["a query", "another"])
    vectors = HashEmbedder().encode([chunk.text for chunk in CHUNKS_GIVEN])
    expected = np.argsort(-(queries @ vectors.T), axis=1)[:, :7]
    rows, similarity = store.search_rows(queries, 7)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_allclose(similarity, np.take_along_axis(queries @ vectors.T, expected, 1), atol=1e-6)
    assert store.search(queries[0], 3) == [CHUNKS_GIVEN[i] for i in expected[0, :3]]
    assert len(store.search(queries[0], 500)) == 30
    assert store.search(queries[0], np.int64(3)) == store.search(queries[0], 3)
    np.testing.assert_allclose(store.embeddings([4, 2]), vectors[[4, 2]])


def test_saved_and_loaded(store: VectorStore, tmp_path: Path) -> None:
    store.save(tmp_path / "s")
    store.save(tmp_path / "s")  # an earlier store is replaced
    loaded = VectorStore.load(tmp_path / "s")
    assert loaded.chunks == store.chunks
    assert (loaded.embedder, loaded.tokenizer, loaded.chunk_size) == (store.embedder, "smollm2", 96)
    query = HashEmbedder().encode(["a query"])[0]
    assert loaded.search(query, 9) == store.search(query, 9)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("name", [INDEX, CHUNKS])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_changed_file_is_refused(store: VectorStore, tmp_path: Path, name: str, damage: str) -> None:
    store.save(tmp_path / "s")
    file = tmp_path / "s" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(content if damage == "flip" else content[:-1])
    with pytest.raises(InputError, match=f"{name} is missing or was changed; build the store anew"):
        VectorStore.load(tmp_path / "s")


def test_a_damaged_or_foreign_manifest_is_refused(store: VectorStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a store \(no manifest\.json\)"):
        VectorStore.load(tmp_path / "nothing")
    store.save(tmp_path / "s")
    manifest = tmp_path / "s" / MANIFEST
    good = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**good, "format_version": 99}))
    with pytest.raises(InputError, match="has store format 99, this version reads 1"):
        VectorStore.load(tmp_path / "s")
    for broken in ("{", "[]", json.dumps({"format_version": 1})):
        manifest.write_text(broken)
        with pytest.raises(InputError, match=r"manifest\.json is damaged"):
            VectorStore.load(tmp_path / "s")


def test_another_embedder_is_refused(store: VectorStore) -> None:
    class Other(HashEmbedder):
        fingerprint = "f2"

    store.check_embedder(HashEmbedder())
    with pytest.raises(InputError, match=r"built with the embedder hash \(16 dimensions, f1\), the configured one is"):
        store.check_embedder(Other())


def test_unusable_queries_and_chunks(store: VectorStore) -> None:
    with pytest.raises(
        InputError, match=r"holds vectors of 16 dimensions \(hash\), got a query embedding of shape \[8\]"
    ):
        store.search(np.zeros(8, np.float32), 3)
    for count in (0, 2.5, "ten", True, None):
        with pytest.raises(InputError, match=f"candidates must be a whole number, at least 1, got {count!r}"):
            store.search(np.zeros(16, np.float32), count)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="corpus is empty"):
        VectorStore.build([], HashEmbedder())
    with pytest.raises(InputError, match="two chunks have the same id"):
        VectorStore.build([CHUNKS_GIVEN[0], CHUNKS_GIVEN[0]], HashEmbedder())
    with pytest.raises(InputError, match=r"embeddings must be finite and of shape \[30, 16\]"):
        VectorStore.from_embeddings(CHUNKS_GIVEN, np.full((30, 16), np.nan, np.float32), EmbedderIdentity("h", 16, "f"))
