"""A store of chunks: building, searching, growing, shrinking, saving and loading it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.files import read_unless_replaced, replacing_directory
from corag_search.lexical import LexicalIndex
from corag_search.registry import whole
from corag_search.store.identity import EmbedderIdentity
from corag_search.store.kinds import FlatIndex, IndexKind
from corag_search.store.layout import (
    CHUNKS,
    INDEX,
    LEXICAL,
    MANIFEST,
    STARTS,
    STORE,
    StoreInfo,
    read_chunks,
    read_index,
    read_lexical,
    read_manifest,
    write_index,
    write_manifest,
)
from corag_search.store.stored_chunks import StoredChunks
from corag_search.texts import shown

if TYPE_CHECKING:
    from corag_search.embedders.base import Embedder


class VectorStore:
    """Chunks with their embeddings in a FAISS index; similarity is the inner product of unit vectors.

    A store never changes: `add` and `remove` make another one, while this one may be searched on. So it is safe to
    share between threads, and what a thread got from it stays true.

    Attributes:
        chunks: By row. Those of a loaded store lie on disk and are read when they are asked for.
        info: Embedder, tokenizer, chunk size and index kind.
    """

    def __init__(self, chunks: StoredChunks, index: Any, info: StoreInfo, lexical: LexicalIndex | None = None) -> None:
        """Join parts that belong together; see `build`, `from_embeddings` and `load`."""
        self.chunks = chunks
        self.info = info
        self._index = index
        self._lexical = lexical
        self._counting = threading.Lock()
        self._kind, self._dimension, self._count = info.index, info.embedder.dimension, len(chunks)

    @property
    def embedder(self) -> EmbedderIdentity:
        """Which embedder made the vectors."""
        return self.info.embedder

    @property
    def tokenizer(self) -> str:
        """Name of the tokenizer that cut the chunks."""
        return self.info.tokenizer

    @property
    def chunk_size(self) -> int:
        """Tokens, as it was asked for."""
        return self.info.chunk_size

    @property
    def lexical(self) -> LexicalIndex:
        """The inverted index over the chunks' words, made when first needed; from then on it is saved and kept."""
        with self._counting:
            if self._lexical is None:
                self._lexical = LexicalIndex.build(chunk.text for chunk in self.chunks)
            return self._lexical

    def __len__(self) -> int:
        return len(self.chunks)

    @classmethod
    def build(
        cls,
        chunks: Sequence[Chunk],
        embedder: Embedder,
        *,
        tokenizer: str = "",
        chunk_size: int = 0,
        index: IndexKind | None = None,
    ) -> VectorStore:
        """Embed chunks and index them.

        Args:
            chunks: From `chunk_documents`.
            embedder: From `load_embedder`.
            tokenizer: Name of the tokenizer that cut them, for the manifest.
            chunk_size: Tokens, for the manifest.
            index: From `index_kind`; flat when None.

        Raises:
            InputError: No chunks, two with one id, or too few for the index.
        """
        (index or FlatIndex()).check(len(chunks), embedder.dimension)
        _distinct_ids(chunks)  # before what may take hours
        return cls.from_embeddings(
            chunks, embedder.encode([chunk.text for chunk in chunks]), EmbedderIdentity.of(embedder),
            tokenizer=tokenizer, chunk_size=chunk_size, index=index,
        )  # fmt: skip

    @classmethod
    def from_embeddings(
        cls,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        embedder: EmbedderIdentity,
        *,
        tokenizer: str = "",
        chunk_size: int = 0,
        index: IndexKind | None = None,
    ) -> VectorStore:
        """Index chunks whose embeddings are there already, `[n, dimension]`, of unit length; see `build`."""
        vectors = _checked(embeddings, len(chunks), embedder.dimension)
        _distinct_ids(chunks)
        kind = index or FlatIndex()
        kind.check(*vectors.shape)
        return cls(StoredChunks(chunks), kind.build(vectors), StoreInfo(embedder, tokenizer, chunk_size, kind))

    def add(self, chunks: Sequence[Chunk], embedder: Embedder) -> VectorStore:
        """A store with more chunks, after those that are there; only the new ones are embedded.

        Args:
            chunks: Cut by the same tokenizer to the same size.
            embedder: The one that built the store.

        Raises:
            InputError: Another embedder, no chunks, or an id that is there already.
        """
        self.check_embedder(embedder)
        if not chunks:
            raise InputError("there are no chunks to add; give at least one document with text")
        return self.add_embeddings(chunks, embedder.encode([chunk.text for chunk in chunks]))

    def add_embeddings(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> VectorStore:
        """A store with more chunks whose embeddings are there already, `[n, dimension]`; see `add`."""
        vectors = _checked(embeddings, len(chunks), self.embedder.dimension)
        self.check_new(chunks)
        lexical = None if self._lexical is None else self._lexical.extended(chunk.text for chunk in chunks)
        index = self.info.index.extended(self._index, vectors)
        return VectorStore(self.chunks.extended(chunks), index, self.info, lexical)

    def check_new(self, chunks: Sequence[Chunk]) -> None:
        """Refuse chunks that are in the store already.

        Raises:
            InputError: An id is there, or is given twice.
        """
        new = _distinct_ids(chunks)
        for chunk in self.chunks:
            if chunk.id in new:
                raise InputError(
                    f"the chunk {chunk.id!r} is in the store already; remove its document first "
                    f"(`corag index --remove {chunk.metadata.get('document', chunk.id)}`)"
                )

    def remove(self, documents: Iterable[str]) -> VectorStore:
        """A store without the chunks of some documents; the others keep ids and order.

        Args:
            documents: Their ids, as in the chunks' metadata.

        Raises:
            InputError: A document that is not there, or nothing would be left.
        """
        try:
            gone = {documents} if isinstance(documents, str) else set(documents)
        except TypeError:
            raise InputError(f"documents must be a list of ids, got {shown(documents)}") from None
        owner = [_document_of(chunk) for chunk in self.chunks]
        unknown = gone.difference(owner)
        if unknown:
            raise InputError(f"the store has no document {min(unknown, key=repr)!r}; documents are named by their ids")
        rows = np.array([row for row, document in enumerate(owner) if document not in gone], np.int64)
        if not len(rows):
            raise InputError("no chunk would be left in the store; delete its directory instead")
        lexical = None if self._lexical is None else self._lexical.only(rows)
        return VectorStore(self.chunks.only(rows), self.info.index.only(self._index, rows), self.info, lexical)

    def rows_of(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Rows of the chunks of some ids, `[n]`, for `embeddings`; −1 where the store has no such chunk."""
        return self.chunks.rows_of(ids)

    def embeddings(self, rows: Sequence[int] | NDArray[np.integer] | None = None) -> NDArray[np.float32]:
        """Vectors of all chunks or of some rows, `[n, dimension]`; an index of kind ivfpq has them approximately.

        Raises:
            InputError: A row that is not there.
        """
        if rows is None:
            return self._index.reconstruct_n(0, len(self))
        wanted = np.asarray(rows)
        if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
            raise InputError(f"rows must be a list of whole numbers, got {shown(rows)}")
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise InputError(f"rows must lie in 0 … {len(self) - 1}, got {wanted.min()} … {wanted.max()}")
        return self._index.reconstruct_batch(wanted.astype(np.int64))

    def search(self, query_embedding: NDArray[np.float32], k: int) -> list[Chunk]:
        """The k chunks most similar to a query, best first (fewer when the store is smaller).

        Args:
            query_embedding: `[dimension]`.
            k: At least 1.

        Raises:
            InputError: Another width, no finite numbers, or k is no whole number of at least 1.
        """
        rows, _ = self.search_rows(np.asarray(query_embedding)[None], k)
        return self.chunks.of(rows[0].tolist())

    def search_rows(
        self, query_embeddings: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows and similarities of the k nearest chunks of many queries, each `[n, min(k, len)]`, best first."""
        if query_embeddings.ndim != 2 or query_embeddings.shape[1] != self._dimension:
            raise InputError(
                f"the store holds vectors of {self._dimension} dimensions ({self.embedder.name}), "
                f"got a query embedding of shape {list(query_embeddings.shape[1:])}; use the embedder that built it"
            )
        count = min(whole("candidates", k), self._count)
        return self._kind.search(self._index, _queries(query_embeddings), count)

    def check_embedder(self, embedder: Embedder) -> None:
        """Refuse an embedder that did not build this store.

        Raises:
            InputError: Its name, dimension or fingerprint differs.
        """
        if EmbedderIdentity.of(embedder) != self.embedder:
            raise InputError(
                f"the store was built with the embedder {self.embedder}, the configured one is "
                f"{EmbedderIdentity.of(embedder)}; configure that embedder or build the store anew with `corag index`"
            )

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the store, with the lexical index if it was made; an existing store there is replaced whole.

        Raises:
            InputError: Something else is at `directory`.
        """
        with replacing_directory(directory, STORE) as partial:
            write_index(self._index, partial / INDEX)
            np.save(partial / STARTS, self.chunks.write(partial / CHUNKS))
            if self._lexical is not None:
                for name, array in self._lexical.arrays().items():
                    np.save(partial / LEXICAL[name], array)
            write_manifest(partial, self.info, len(self))

    @classmethod
    def load(cls, directory: str | os.PathLike[str], *, verify: bool = True) -> VectorStore:
        """Map a store into memory; vectors and texts stay on disk until they are needed.

        Args:
            directory: Where it lies.
            verify: Compare every byte with the manifest's checksums; otherwise only the length of each file.

        A store that another process replaces meanwhile is read anew.

        Raises:
            InputError: It is not there, not a store, of another format version, or a file was changed or cut.
        """
        root = Path(directory)

        def read() -> VectorStore:
            info, count = read_manifest(root, verify)
            return cls(read_chunks(root, count), read_index(root, info, count), info, read_lexical(root, count))

        return read_unless_replaced(read, root, MANIFEST)


def _distinct_ids(chunks: Sequence[Chunk]) -> set[str]:
    for chunk in chunks:
        if not isinstance(chunk, Chunk):
            raise InputError(f"chunks must be chunks (corag_search.Chunk), got {chunk!r} among them")
    ids = {chunk.id for chunk in chunks}
    if len(ids) < len(chunks):
        raise InputError("two chunks have the same id; ids must be unique in a store")
    return ids


def _document_of(chunk: Chunk) -> str | int | None:
    """The id of a chunk's document, as its metadata have it."""
    document = chunk.metadata.get("document")
    return document if isinstance(document, str | int) else None


def _queries(embeddings: NDArray[Any]) -> NDArray[np.float32]:
    """Query embeddings as FAISS takes them. With infinity in them it would give some rows, and say nothing."""
    vectors = _single(embeddings) if embeddings.dtype.kind in "fiu" else None
    if vectors is None or not np.isfinite(vectors).all():
        raise InputError("a query embedding is not finite numbers; use the embedder that built the store")
    return vectors


def _checked(embeddings: NDArray[np.float32], count: int, dimension: int) -> NDArray[np.float32]:
    """Vectors as FAISS takes them."""
    vectors = _single(embeddings)
    if vectors.shape != (count, dimension) or not np.isfinite(vectors).all():
        raise InputError(f"embeddings must be finite and of shape [{count}, {dimension}], got {list(vectors.shape)}")
    return vectors


def _single(embeddings: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # infinity is refused
        return np.ascontiguousarray(embeddings, np.float32)
