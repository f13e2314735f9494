"""The chunks of a store: in memory, or lines of a file that is mapped into memory and read on demand."""

from __future__ import annotations

import json
import mmap
import operator
from collections import deque
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.errors import InputError

CACHED = 16_384  # chunks that were read last stay in memory: about 25 MB of chunks of 96 tokens


class ChunkLines:
    """A mapped file with a chunk a line, as JSON in UTF-8.

    Attributes:
        starts: Where each line begins, and the end of the last, `[lines + 1]`, in bytes.
    """

    def __init__(self, path: Path, starts: NDArray[np.int64]) -> None:
        """Map a file; raises ValueError when it has another length than `starts` ends with."""
        with path.open("rb") as file:
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.starts = starts
        if starts.ndim != 1 or not len(starts) or starts[-1] != len(self._content):
            raise ValueError(f"{path.name} has {len(self._content)} bytes, its lines end elsewhere")

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> bytes:
        return self._content[self.starts[row] : self.starts[row + 1]]


class StoredChunks(Sequence[Chunk]):
    """Chunks by row, read when they are asked for. It never changes; safe to share between threads."""

    def __init__(
        self, added: Sequence[Chunk], lines: ChunkLines | None = None, places: NDArray[np.int64] | None = None
    ) -> None:
        """Join what lies in a file and what is in memory.

        Args:
            added: In memory.
            lines: In a file.
            places: Of each row: a line, or ~n for the n-th of `added`; None for all lines, then all of `added`.
        """
        self._added = tuple(added)
        self._lines = lines
        if places is None:
            places = np.concatenate([np.arange(len(lines or ())), ~np.arange(len(added))])
        self._places = places
        # A list by row, and not a dictionary: a search touches little more memory than the chunks that it returns.
        self._held: MutableSequence[Chunk | None] = [*self._added] if lines is None else [None] * len(places)
        self._read_last: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, row: int) -> Chunk: ...
    @overload
    def __getitem__(self, row: slice) -> tuple[Chunk, ...]: ...
    def __getitem__(self, row: int | slice) -> Chunk | tuple[Chunk, ...]:
        if isinstance(row, slice):
            return tuple(map(self.at, range(len(self))[row]))
        return self.at(range(len(self))[operator.index(row)])

    def at(self, row: int) -> Chunk:
        """The chunk of a row that is there, not counted from the end."""
        return self._held[row] or self._read_and_hold(row)

    def of(self, rows: Sequence[int]) -> list[Chunk]:
        """Those of some rows, in their order; see `at`."""
        held = self._held
        return [held[row] or self._read_and_hold(row) for row in rows]

    def __iter__(self) -> Iterator[Chunk]:
        return map(self._read, range(len(self)))  # past the cache, which would forget what queries ask for

    def extended(self, chunks: Sequence[Chunk]) -> StoredChunks:
        """With more chunks, whose rows follow those that are there."""
        places = np.concatenate([self._places, ~np.arange(len(self._added), len(self._added) + len(chunks))])
        return StoredChunks((*self._added, *chunks), self._lines, places)

    def only(self, rows: NDArray[np.integer]) -> StoredChunks:
        """With the chunks of some rows, in their order."""
        if self._lines is None:
            return StoredChunks([self._added[row] for row in rows.tolist()])
        return StoredChunks(self._added, self._lines, self._places[rows])

    def rows_of(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Rows of the chunks of some ids, `[n]`; −1 where there is none.

        The first call reads every id, about 5 s for a million chunks on disk; what is kept are 16 bytes a chunk.
        """
        hashes, rows = self._by_hash
        wanted = np.fromiter(map(hash, ids), np.int64, len(ids))
        starts, ends = np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, side="right")
        found = [
            next((row for row in rows[start:end].tolist() if self.at(row).id == name), -1)
            for name, start, end in zip(ids, starts, ends, strict=True)
        ]
        return np.array(found, np.int64)

    @cached_property
    def _by_hash(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Hashes of all ids, ascending, and the row of each."""
        hashes = np.fromiter((hash(self._id(place)) for place in self._places.tolist()), np.int64, len(self))
        rows = np.argsort(hashes, kind="stable")
        return hashes[rows], rows

    def _id(self, place: int) -> str:
        if place < 0 or self._lines is None:
            return self._added[~place].id
        return json.loads(self._lines[place])["id"]

    def write(self, path: Path) -> NDArray[np.int64]:
        """Write a line for each chunk.

        Returns:
            Where each line begins, and the end of the last, `[chunks + 1]`.
        """
        lengths = []
        with path.open("wb") as file:
            for line in self._encoded():
                lengths.append(file.write(line))
        return np.cumsum([0, *lengths], dtype=np.int64)

    def _encoded(self) -> Iterable[bytes]:
        for place in self._places.tolist():
            if place >= 0 and self._lines is not None:
                yield self._lines[place]
            else:
                chunk = self._added[~place]
                row = {"id": chunk.id, "text": chunk.text, "cost": chunk.cost, "metadata": dict(chunk.metadata)}
                try:
                    yield (json.dumps(row, ensure_ascii=False) + "\n").encode()
                except (TypeError, ValueError, RecursionError) as error:
                    raise InputError(
                        f"chunk {chunk.id!r}: metadata must be texts, numbers, lists and mappings, as JSON holds them "
                        f"({error}); change or leave out what is not"
                    ) from None

    def _read_and_hold(self, row: int) -> Chunk:
        chunk = self._held[row] = self._read(row)
        self._read_last.append(row)
        if len(self._read_last) > CACHED:
            self._held[self._read_last.popleft()] = None
        return chunk

    def _read(self, row: int) -> Chunk:
        place = int(self._places[row])
        if place < 0 or self._lines is None:
            return self._added[~place]
        return Chunk(**json.loads(self._lines[place]))
