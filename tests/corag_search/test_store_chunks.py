"""Chunks of a store against a plain list, through any sequence of adding, leaving out, writing and mapping."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_search import Chunk
from corag_search.store.stored_chunks import ChunkLines, StoredChunks

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)  # line breaks of every kind among them
CHUNKS = st.lists(
    st.builds(Chunk, TEXTS, TEXTS, st.integers(1, 9), st.dictionaries(TEXTS, TEXTS | st.integers(), max_size=2)),
    min_size=1,
    max_size=5,
)


def mapped(chunks: StoredChunks, path: Path) -> StoredChunks:
    return StoredChunks((), ChunkLines(path, chunks.write(path)))


@settings(deadline=None)
@given(CHUNKS, st.data())
def test_as_a_list(first: list[Chunk], data) -> None:
    with tempfile.TemporaryDirectory() as folder:
        chunks, plain = StoredChunks(first), list(first)
        for step in range(data.draw(st.integers(1, 6))):
            match data.draw(st.sampled_from(["map", "extend", "leave out"])):
                case "map":
                    chunks = mapped(chunks, Path(folder) / str(step))
                case "extend":
                    more = data.draw(CHUNKS)
                    chunks, plain = chunks.extended(more), plain + more
                case _:
                    rows = sorted(data.draw(st.sets(st.sampled_from(range(len(plain))), min_size=1)))
                    chunks, plain = chunks.only(np.array(rows)), [plain[row] for row in rows]
            assert list(chunks) == plain
        assert len(chunks) == len(plain)
        assert [chunks.at(row) for row in range(len(plain))] == plain
        assert [chunks[-row - 1] for row in range(len(plain))] == plain[::-1]
        assert chunks[1:-1:2] == tuple(plain[1:-1:2])
        ids = [chunk.id for chunk in plain]
        wanted = [*ids, data.draw(TEXTS)]
        assert chunks.rows_of(wanted).tolist() == [ids.index(name) if name in ids else -1 for name in wanted]
        assert plain[-1] in chunks and chunks.index(plain[0]) == 0
        for row in (len(plain), -len(plain) - 1):
            with pytest.raises(IndexError):
                chunks[row]


def test_threads_share_the_chunks_that_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far fewer are held than are asked for; what is forgotten is read again."""
    monkeypatch.setattr("corag_search.store.stored_chunks.CACHED", 7)
    plain = [Chunk(str(n), f"text {n}", 1) for n in range(40)]
    chunks = mapped(StoredChunks(plain), tmp_path / "c")

    def ask(seed: int) -> bool:
        rows = np.random.default_rng(seed).integers(0, 40, 300).tolist()
        return chunks.of(rows) == [plain[row] for row in rows]

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(ask, range(40)))
    assert sum(chunk is not None for chunk in chunks._held) <= 7


def test_a_file_of_another_length(tmp_path: Path) -> None:
    starts = StoredChunks([Chunk("1", "text", 1)]).write(tmp_path / "c")
    assert starts.tolist() == [0, (tmp_path / "c").stat().st_size]
    for wrong in (starts - 1, starts[:0], starts[None]):
        with pytest.raises(ValueError, match=r"c has .* bytes, its lines end elsewhere"):
            ChunkLines(tmp_path / "c", wrong)


def test_rows_of_ids_whose_hashes_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = StoredChunks([Chunk(name, "text", 1) for name in "badc"])
    monkeypatch.setattr("corag_search.store.stored_chunks.hash", len, raising=False)
    assert chunks.rows_of(["a", "e", "b", "c", "dd"]).tolist() == [1, -1, 0, 3, -1]
    assert chunks.rows_of([]).tolist() == []
