"""The store returns what a matrix product says, and refuses what was changed behind its back."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from corag_search import Chunk, InputError, VectorStore
from corag_search.store import CHUNKS, INDEX, MANIFEST, EmbedderIdentity, HNSWIndex
from corag_search.store.layout import CHECKSUM, LEXICAL, STARTS


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
    assert tuple(loaded.chunks) == tuple(store.chunks)
    assert (loaded.embedder, loaded.tokenizer, loaded.chunk_size) == (store.embedder, "smollm2", 96)
    query = HashEmbedder().encode(["a query"])[0]
    assert loaded.search(query, 9) == store.search(query, 9)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("name", [INDEX, CHUNKS, STARTS, *LEXICAL.values()])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_changed_file_is_refused(store: VectorStore, tmp_path: Path, name: str, damage: str) -> None:
    _ = store.lexical
    store.save(tmp_path / "s")
    file = tmp_path / "s" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(content if damage == "flip" else content[:-1])
    for verify in (True, False) if damage != "flip" else (True,):  # lengths are always looked at
        with pytest.raises(InputError, match=f"{re.escape(name)} is missing or was changed; build the store anew"):
            VectorStore.load(tmp_path / "s", verify=verify)


def test_a_foreign_index_is_refused_even_with_its_own_checksum(store: VectorStore, tmp_path: Path) -> None:
    store.save(tmp_path / "s")
    identity = EmbedderIdentity("hash", 8, "f1")
    half = HashEmbedder().encode([chunk.text for chunk in CHUNKS_GIVEN])[:, :8]
    others = {
        "IndexFlatIP of 30 vectors of 8": VectorStore.from_embeddings(CHUNKS_GIVEN, half, identity),
        "IndexFlatIP of 29 vectors of 16": VectorStore.build(CHUNKS_GIVEN[1:], HashEmbedder()),
        "IndexHNSWFlat of 30 vectors of 16": VectorStore.build(CHUNKS_GIVEN, HashEmbedder(), index=HNSWIndex()),
    }
    for number, (described, other) in enumerate(others.items()):
        other.save(tmp_path / f"o{number}")
        foreign = (tmp_path / f"o{number}" / INDEX).read_bytes()
        with pytest.raises(InputError, match=rf"index\.faiss is another index \({described} dimensions\)"):
            VectorStore.load(replaced(tmp_path / "s", INDEX, foreign))
    with pytest.raises(InputError, match=r"index\.faiss cannot be read \(.*not recognized.*\); build the store anew"):
        VectorStore.load(replaced(tmp_path / "s", INDEX, b"no index at all, and long enough to be one"))
    store.save(tmp_path / "s")
    for content in (b"no array", (tmp_path / "o1" / STARTS).read_bytes()):
        with pytest.raises(InputError, match=r"the chunks in .* cannot be read"):
            VectorStore.load(replaced(tmp_path / "s", STARTS, content))


def replaced(directory: Path, name: str, content: bytes) -> Path:
    """Put another file into a store, and its length and checksum into the manifest."""
    (directory / name).write_bytes(content)
    manifest = json.loads((directory / MANIFEST).read_text())
    manifest["bytes"][name], manifest["sha256"][name] = len(content), hashlib.sha256(content).hexdigest()
    manifest.pop(CHECKSUM, None)
    (directory / MANIFEST).write_text(json.dumps(manifest))
    return directory


def test_texts_and_vectors_stay_on_disk_until_they_are_needed(store: VectorStore, tmp_path: Path) -> None:
    store.save(tmp_path / "s")
    file = tmp_path / "s" / CHUNKS
    lines = file.read_bytes().splitlines(keepends=True)
    lines[4] = b"x" * (len(lines[4]) - 1) + b"\n"
    file.write_bytes(b"".join(lines))
    loaded = VectorStore.load(tmp_path / "s", verify=False)
    assert loaded.chunks[3] == CHUNKS_GIVEN[3] and loaded.chunks[5:7] == tuple(CHUNKS_GIVEN[5:7])
    with pytest.raises(ValueError):  # read only now
        loaded.chunks[4]
    if Path("/proc/self/maps").exists():
        assert str(tmp_path / "s" / INDEX) in Path("/proc/self/maps").read_text()


def test_the_lexical_index_is_saved_once_it_was_made(store: VectorStore, tmp_path: Path) -> None:
    store.save(tmp_path / "s")
    assert {path.name for path in (tmp_path / "s").iterdir()} == {MANIFEST, INDEX, CHUNKS, STARTS}
    plain = VectorStore.load(tmp_path / "s")
    expected = plain.lexical.search("text 7 光", 4)  # made from the mapped texts
    plain.save(tmp_path / "s")
    loaded = VectorStore.load(tmp_path / "s")
    assert loaded.lexical.search("text 7 光", 4) == expected
    for name, array in plain.lexical.arrays().items():
        np.testing.assert_array_equal(loaded.lexical.arrays()[name], array)
    wordless = VectorStore.build([Chunk("1", "?!", 2)], HashEmbedder())
    _ = wordless.lexical
    wordless.save(tmp_path / "w")
    assert VectorStore.load(tmp_path / "w").lexical.search("text", 4) == []


def test_added_chunks_are_embedded_and_must_be_new(store: VectorStore) -> None:
    more = [Chunk(f"e:{i}", f"more {i}", 2, {"document": "e"}) for i in range(3)]
    grown = store.add(more, HashEmbedder())
    np.testing.assert_allclose(grown.embeddings([30, 32]), HashEmbedder().encode(["more 0", "more 2"]))
    assert grown.search(HashEmbedder().encode(["more 1"])[0], 1) == [more[1]]
    assert tuple(grown.remove("d").chunks) == tuple(more)
    assert tuple(grown.remove(["e"]).chunks) == tuple(store.chunks) == tuple(CHUNKS_GIVEN)

    class Other(HashEmbedder):
        fingerprint = "f2"

    for chunks, embedder, message in (
        (more, Other(), "the store was built with the embedder hash"),
        ([], HashEmbedder(), "there are no chunks to add"),
        ([more[0], more[0]], HashEmbedder(), "two chunks have the same id"),
        ([CHUNKS_GIVEN[3]], HashEmbedder(), "the chunk 'd:3' is in the store already; remove its document first"),
    ):
        with pytest.raises(InputError, match=message):
            store.add(chunks, embedder)
    with pytest.raises(InputError, match="the store has no document 'x'; documents are named by their ids"):
        store.remove(["d", "x"])
    with pytest.raises(InputError, match="no chunk would be left in the store; delete its directory instead"):
        store.remove(["d"])


def test_a_store_is_searched_while_others_are_made_of_it_and_saved_over_it(store: VectorStore, tmp_path: Path) -> None:
    store.save(tmp_path / "s")
    loaded = VectorStore.load(tmp_path / "s")
    queries = HashEmbedder().encode([f"query {n}" for n in range(8)])
    expected = [(store.search(query, 5), store.lexical.search("text 7", 3)) for query in queries]
    stop = threading.Event()

    def search(_: int) -> int:
        rounds = 0
        while rounds < 20 or not stop.is_set():
            assert [(loaded.search(query, 5), loaded.lexical.search("text 7", 3)) for query in queries] == expected
            rounds += 1
        return rounds

    with ThreadPoolExecutor(4) as pool:
        searching = [pool.submit(search, n) for n in range(4)]
        changed = loaded
        try:
            for number in range(12):
                changed = changed.add(
                    [Chunk(f"e{number}", f"text {number}", 1, {"document": f"e{number}"})], HashEmbedder()
                )
                changed.remove(["d"]).save(tmp_path / "s")
                changed = VectorStore.load(tmp_path / "s").add(CHUNKS_GIVEN, HashEmbedder())
        finally:
            stop.set()
        assert all(one.result() >= 20 for one in searching)
    assert [chunk.id for chunk in changed.chunks[:12]] == [f"e{n}" for n in range(12)]
    assert tuple(changed.chunks[12:]) == tuple(CHUNKS_GIVEN)


def test_a_store_that_is_replaced_while_it_is_read_is_read_anew(
    store: VectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each part that is read another process puts a store of another size in its place, once for each part."""
    from corag_search.store import vector_store

    other = store.add([Chunk("new", "another text", 1, {"document": "new"})], HashEmbedder())
    _ = other.lexical
    for part in ("read_manifest", "read_chunks", "read_index", "read_lexical"):
        store.save(tmp_path / "s")
        read, waiting = getattr(vector_store, part), [other]

        def replaced_first(*given, read=read, waiting=waiting):
            if waiting:
                waiting.pop().save(tmp_path / "s")
            return read(*given)

        with monkeypatch.context() as patched:
            patched.setattr(vector_store, part, replaced_first)
            loaded = VectorStore.load(tmp_path / "s", verify=False)
        assert tuple(loaded.chunks) == tuple(other.chunks) and loaded._lexical is not None
        assert len(loaded.search_rows(HashEmbedder().encode(["a"]), 99)[0][0]) == len(other)


def test_a_damaged_or_foreign_manifest_is_refused(store: VectorStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a store \(no manifest\.json\)"):
        VectorStore.load(tmp_path / "nothing")
    store.save(tmp_path / "s")
    manifest = tmp_path / "s" / MANIFEST
    good = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**good, "format_version": 99}))
    with pytest.raises(InputError, match="has store format 99, this version reads 2"):
        VectorStore.load(tmp_path / "s")
    endless = json.dumps({name: value for name, value in good.items() if name != CHECKSUM} | {"count": float("inf")})
    for broken in ("{", "[]", json.dumps({"format_version": 1}), endless):
        manifest.write_text(broken)
        with pytest.raises(InputError, match=r"manifest\.json is damaged"):
            VectorStore.load(tmp_path / "s")
    manifest.write_text("[" * 100_000)
    with pytest.raises(InputError, match="is there and is no corag-store"):
        store.save(tmp_path / "s")


def test_a_flipped_bit_of_the_manifest_is_refused(store: VectorStore, tmp_path: Path) -> None:
    store.save(tmp_path / "s")
    manifest = tmp_path / "s" / MANIFEST
    good = manifest.read_bytes()
    for place in range(0, len(good) - 1, 2):
        manifest.write_bytes(good[:place] + bytes([good[place] ^ 1 << place // 2 % 8]) + good[place + 1 :])
        with pytest.raises(InputError):
            VectorStore.load(tmp_path / "s", verify=False)
    manifest.write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"manifest\.json is damaged"):
        VectorStore.load(tmp_path / "s")


@pytest.mark.parametrize("value", [object(), {1}, np.int64(3), b"text", "\ud800", {("a",): 1}])
def test_metadata_that_no_file_can_hold_are_refused_and_the_old_store_stays(
    store: VectorStore, tmp_path: Path, value: object
) -> None:
    store.save(tmp_path / "s")
    odd = store.add([Chunk("odd", "text", 1, {"document": "x", "value": value})], HashEmbedder())
    with pytest.raises(InputError, match="chunk 'odd': metadata must be texts, numbers, lists and mappings, as JSON"):
        odd.save(tmp_path / "s")
    assert tuple(VectorStore.load(tmp_path / "s").chunks) == tuple(store.chunks)
    assert [file.name for file in tmp_path.iterdir()] == ["s"]


def test_documents_of_any_name(store: VectorStore) -> None:
    added = [Chunk("n", "text 1", 1, {"document": 1}), Chunk("l", "text 2", 1, {"document": ["d"]})]
    mixed = store.add(added, HashEmbedder())
    assert [chunk.id for chunk in mixed.remove([1, "d"]).chunks] == ["l"]  # type: ignore[list-item]
    with pytest.raises(InputError, match="the store has no document"):
        mixed.remove([2, "x"])  # type: ignore[list-item]


def test_rows_that_are_not_there_have_no_vectors(store: VectorStore) -> None:
    for rows in ([-1], [0, 30], np.array([3, -1])):
        with pytest.raises(InputError, match=r"rows must lie in 0 … 29, got"):
            store.embeddings(rows)
    assert store.embeddings([]).shape == (0, 16)


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
    with pytest.raises(InputError, match=r"chunks must be chunks \(corag_search\.Chunk\), got 'a' among them"):
        VectorStore.from_embeddings(["a"], np.ones((1, 16), np.float32), EmbedderIdentity("h", 16, "f"))  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"embeddings must be finite and of shape \[1, 16\]"):
        VectorStore.from_embeddings(CHUNKS_GIVEN[:1], np.full((1, 16), 1e300), EmbedderIdentity("h", 16, "f"))
    with pytest.raises(InputError, match=r"embeddings must be finite and of shape \[30, 16\]"):
        VectorStore.from_embeddings(CHUNKS_GIVEN, np.full((30, 16), np.nan, np.float32), EmbedderIdentity("h", 16, "f"))


def test_a_store_behind_a_link_is_replaced_where_it_is(store: VectorStore, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "s").symlink_to(tmp_path / "disk" / "store")  # to nothing yet
    store.save(tmp_path / "s")
    store.add([Chunk("new", "another text", 1)], HashEmbedder()).save(tmp_path / "s")
    assert (tmp_path / "s").is_symlink()
    assert len(VectorStore.load(tmp_path / "disk" / "store")) == len(store) + 1
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "s"}
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["store"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_full_disk_is_told_by_the_system(store: VectorStore) -> None:
    """FAISS says it by a RuntimeError, and of the few bytes that are written on closing it says nothing."""
    from corag_search.store.layout import write_index

    with pytest.raises(OSError, match="No space left on device") as error:
        write_index(store._index, Path("/dev/full"))
    assert error.value.errno == errno.ENOSPC


@pytest.mark.parametrize("rows", [[0.7], ["a"], [None], [[0]], [True], 0, [10**30]])
def test_rows_are_whole_numbers(store: VectorStore, rows: object) -> None:
    with pytest.raises(InputError, match="rows must be a list of whole numbers, got"):
        store.embeddings(rows)  # type: ignore[arg-type]


@pytest.mark.parametrize("documents", [5, None, [["d0"]]])
def test_documents_are_a_list_of_ids(store: VectorStore, documents: object) -> None:
    with pytest.raises(InputError, match="documents must be a list of ids, got"):
        store.remove(documents)  # type: ignore[arg-type]


def test_a_query_embedding_is_finite(store: VectorStore) -> None:
    """With infinity in it FAISS gives some rows, in an order that means nothing."""
    query = HashEmbedder().encode(["a"])[0]
    for bad in (np.inf, -np.inf, np.nan):
        for place in (0, -1):
            broken = query.copy()
            broken[place] = bad
            with pytest.raises(InputError, match="a query embedding is not finite numbers"):
                store.search(broken, 1)
    for other in (
        query.astype(np.float64) * 1e300,
        query.astype(complex),
        [str(x) for x in query],
        query.astype(object),
    ):
        with pytest.raises(InputError, match="a query embedding is not finite numbers"):
            store.search(other, 1)


def test_chunks_are_looked_at_before_they_are_embedded() -> None:
    class Never(HashEmbedder):
        def encode(self, texts: list[str]) -> np.ndarray:
            raise AssertionError("it takes hours")

    for chunks, message in (
        ([Chunk("a", "x", 1)] * 2, "two chunks have the same id"),
        (["a text"], "chunks must be chunks"),
    ):
        with pytest.raises(InputError, match=message):
            VectorStore.build(chunks, Never())  # type: ignore[arg-type]
