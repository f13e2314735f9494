"""Chunks and their embeddings on disk, and the search for candidates among them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.files import DirectoryFormat, replacing_directory, sha256_of
from corag_search.registry import whole

if TYPE_CHECKING:
    from corag_search.embedders.base import Embedder

MANIFEST, INDEX, CHUNKS = "manifest.json", "index.faiss", "chunks.jsonl"
FORMAT_VERSION = 1
STORE = DirectoryFormat("corag-store", MANIFEST, (MANIFEST, INDEX, CHUNKS))


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Which embedder made the vectors.

    Attributes:
        name: As `load_embedder` knows it.
        dimension: Width of a vector.
        fingerprint: Of its weights and settings.
    """

    name: str
    dimension: int
    fingerprint: str

    @classmethod
    def of(cls, embedder: Embedder) -> EmbedderIdentity:
        return cls(embedder.name, embedder.dimension, embedder.fingerprint)

    def __str__(self) -> str:
        return f"{self.name} ({self.dimension} dimensions, {self.fingerprint})"


class VectorStore:
    """Chunks with their embeddings in a FAISS index; similarity is the inner product of unit vectors.

    Safe to search from several threads.

    Attributes:
        chunks: In insertion order.
        embedder: Which embedder made the vectors.
        tokenizer: Name of the tokenizer that cut the chunks.
        chunk_size: Tokens, as it was asked for.
    """

    def __init__(
        self, chunks: Sequence[Chunk], index: Any, embedder: EmbedderIdentity, tokenizer: str = "", chunk_size: int = 0
    ) -> None:
        self.chunks = tuple(chunks)
        self.embedder = embedder
        self.tokenizer = tokenizer
        self.chunk_size = chunk_size
        self._index = index

    def __len__(self) -> int:
        return len(self.chunks)

    @classmethod
    def build(
        cls, chunks: Sequence[Chunk], embedder: Embedder, *, tokenizer: str = "", chunk_size: int = 0
    ) -> VectorStore:
        """Embed chunks and index them.

        Args:
            chunks: From `chunk_documents`.
            embedder: From `load_embedder`.
            tokenizer: Name of the tokenizer that cut them, for the manifest.
            chunk_size: Tokens, for the manifest.

        Raises:
            InputError: No chunks, or two with one id.
        """
        if not chunks:
            raise InputError("there are no chunks to index; the corpus is empty")
        if len({chunk.id for chunk in chunks}) < len(chunks):
            raise InputError("two chunks have the same id; ids must be unique in a store")
        return cls.from_embeddings(
            chunks, embedder.encode([chunk.text for chunk in chunks]), EmbedderIdentity.of(embedder),
            tokenizer=tokenizer, chunk_size=chunk_size,
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
    ) -> VectorStore:
        """Index chunks whose embeddings are there already, `[n, dimension]`."""
        import faiss

        if embeddings.shape != (len(chunks), embedder.dimension) or not np.isfinite(embeddings).all():
            raise InputError(
                f"embeddings must be finite and of shape [{len(chunks)}, {embedder.dimension}], "
                f"got {list(embeddings.shape)}"
            )
        index = faiss.IndexFlatIP(embedder.dimension)
        index.add(np.ascontiguousarray(embeddings, np.float32))
        return cls(chunks, index, embedder, tokenizer, chunk_size)

    def embeddings(self, rows: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Stored vectors of all chunks or of some rows, `[n, dimension]`."""
        if rows is None:
            return self._index.reconstruct_n(0, len(self))
        return self._index.reconstruct_batch(np.asarray(rows, np.int64))

    def search(self, query_embedding: NDArray[np.float32], k: int) -> list[Chunk]:
        """The k chunks most similar to a query, best first (fewer when the store is smaller).

        Args:
            query_embedding: `[dimension]`.
            k: At least 1.

        Raises:
            InputError: Another width, or k is no whole number of at least 1.
        """
        return [self.chunks[row] for row in self.search_rows(np.asarray(query_embedding)[None], k)[0][0]]

    def search_rows(
        self, query_embeddings: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows and similarities of the k nearest chunks of many queries, each `[n, min(k, len)]`, best first."""
        if query_embeddings.ndim != 2 or query_embeddings.shape[1] != self.embedder.dimension:
            raise InputError(
                f"the store holds vectors of {self.embedder.dimension} dimensions ({self.embedder.name}), "
                f"got a query embedding of shape {list(query_embeddings.shape[1:])}; use the embedder that built it"
            )
        count = min(whole("candidates", k), len(self))
        similarity, rows = self._index.search(np.ascontiguousarray(query_embeddings, np.float32), count)
        return rows, similarity

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
        """Write the store; an existing store there is replaced whole.

        Raises:
            InputError: Something else is at `directory`.
        """
        import faiss

        with replacing_directory(directory, STORE) as partial:
            faiss.write_index(self._index, str(partial / INDEX))
            with (partial / CHUNKS).open("w", encoding="utf-8", newline="\n") as file:
                for chunk in self.chunks:
                    row = {"id": chunk.id, "text": chunk.text, "cost": chunk.cost, "metadata": dict(chunk.metadata)}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
            manifest = {
                "format": STORE.name,
                "format_version": FORMAT_VERSION,
                "embedder": asdict(self.embedder),
                "tokenizer": self.tokenizer,
                "chunk_size": self.chunk_size,
                "count": len(self),
                "sha256": {name: sha256_of(partial / name) for name in (INDEX, CHUNKS)},
            }
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> VectorStore:
        """Read a store and verify it against its manifest.

        Raises:
            InputError: It is not there, not a store, of another format version, or a file was changed or cut.
        """
        import faiss

        root = Path(directory)
        if not (root / MANIFEST).is_file():
            raise InputError(f"{root} is not a store (no {MANIFEST}); build one with `corag index --out {root}`")
        try:
            manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
            version = manifest["format_version"]
            if version != FORMAT_VERSION:
                raise InputError(
                    f"{root} has store format {version!r}, this version reads {FORMAT_VERSION}; "
                    "build it anew with `corag index`"
                )
            checksums, count = manifest["sha256"], manifest["count"]
            identity = EmbedderIdentity(**manifest["embedder"])
            tokenizer, chunk_size = manifest["tokenizer"], manifest["chunk_size"]
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{root / MANIFEST} is damaged ({error}); build the store anew with `corag index`"
            ) from None
        for name in (INDEX, CHUNKS):
            if not (root / name).is_file() or sha256_of(root / name) != checksums.get(name):
                raise InputError(f"{root / name} is missing or was changed; build the store anew with `corag index`")
        index = faiss.read_index(str(root / INDEX))
        with (root / CHUNKS).open(encoding="utf-8") as file:
            chunks = [Chunk(**json.loads(line)) for line in file]
        if not (index.ntotal == len(chunks) == count and index.d == identity.dimension):
            raise InputError(
                f"{root}: index, chunks and manifest differ in size; build the store anew with `corag index`"
            )
        return cls(chunks, index, identity, tokenizer, chunk_size)
