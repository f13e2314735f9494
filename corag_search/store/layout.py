"""The files of a store, and the manifest that tells whether they are whole."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag_search.errors import InputError
from corag_search.files import DirectoryFormat, digest_of, sha256_of
from corag_search.lexical import LexicalIndex
from corag_search.store.identity import EmbedderIdentity
from corag_search.store.kinds import IndexKind, index_kind
from corag_search.store.stored_chunks import ChunkLines, StoredChunks

MANIFEST, INDEX, CHUNKS, STARTS = "manifest.json", "index.faiss", "chunks.jsonl", "chunks.starts.npy"
LEXICAL = {name: f"lexical.{name}.npy" for name in LexicalIndex.ARRAYS}
CHECKSUM = "manifest_sha256"  # of the manifest's other entries; stores of before it was added lack it
_ENTRIES = {
    "format", "format_version", "embedder", "tokenizer", "chunk_size", "index", "count", "bytes", "sha256"
}  # fmt: skip
FORMAT_VERSION = 2
STORE = DirectoryFormat("corag-store", MANIFEST, (MANIFEST, INDEX, CHUNKS, STARTS, *LEXICAL.values()))

_ANEW = "build the store anew with `corag index`"


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store is made of.

    Attributes:
        embedder: Which embedder made the vectors.
        tokenizer: Name of the tokenizer that cut the chunks.
        chunk_size: Tokens, as it was asked for.
        index: Kind and settings of the index.
    """

    embedder: EmbedderIdentity
    tokenizer: str
    chunk_size: int
    index: IndexKind


def write_manifest(root: Path, info: StoreInfo, count: int) -> None:
    """Write the manifest of the files that lie in a directory."""
    names = [name for name in STORE.files if name != MANIFEST and (root / name).is_file()]
    manifest = {
        "format": STORE.name,
        "format_version": FORMAT_VERSION,
        "embedder": asdict(info.embedder),
        "tokenizer": info.tokenizer,
        "chunk_size": info.chunk_size,
        "index": info.index.to_dict(),
        "count": count,
        "bytes": {name: (root / name).stat().st_size for name in names},
        "sha256": {name: sha256_of(root / name) for name in names},
    }
    manifest[CHECKSUM] = digest_of(manifest)
    (root / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read_manifest(root: Path, verify: bool) -> tuple[StoreInfo, int]:
    """Read a manifest and compare the files with it.

    Args:
        root: Directory of the store.
        verify: Whether to compare all bytes; otherwise lengths alone.

    Returns:
        The manifest, and the number of chunks.

    Raises:
        InputError: It is not there, not a store's, of another format version, or a file was changed or cut.
    """
    if not (root / MANIFEST).is_file():
        raise InputError(f"{root} is not a store (no {MANIFEST}); build one with `corag index --out {root}`")
    try:
        manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        version, own = manifest["format_version"], manifest.pop(CHECKSUM, None)
        if manifest["format"] != STORE.name or version != FORMAT_VERSION:
            raise InputError(f"{root} has store format {version!r}, this version reads {FORMAT_VERSION}; {_ANEW}")
        unknown = manifest.keys() - _ENTRIES
        if unknown or own not in (None, digest_of(manifest)):
            raise ValueError(f"it has the entry {min(unknown)!r}" if unknown else "its checksum is another")
        info = StoreInfo(
            EmbedderIdentity(**manifest["embedder"]),
            manifest["tokenizer"],
            manifest["chunk_size"],
            index_kind(manifest["index"]),
        )
        count, sizes, checksums = int(manifest["count"]), dict(manifest["bytes"]), dict(manifest["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{root / MANIFEST} is damaged ({error}); {_ANEW}") from None
    for name in {INDEX: 0, CHUNKS: 0, STARTS: 0} | sizes:
        file = root / name
        whole = name in STORE.files and file.is_file() and file.stat().st_size == sizes.get(name)
        if not whole or (verify and sha256_of(file) != checksums.get(name)):
            raise InputError(f"{file} is missing or was changed; {_ANEW}")
    return info, count


def write_index(index: Any, path: Path) -> None:
    """Write an index.

    Through a file of Python's, which says that a disk is full. FAISS by itself raises a RuntimeError, and for the last
    bytes, written as the file is closed, nothing at all.
    """
    import faiss

    with path.open("wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]


def read_index(root: Path, info: StoreInfo, count: int) -> Any:
    """Map the index into memory.

    Raises:
        InputError: It cannot be read, or is not the index that the manifest describes.
    """
    import faiss

    try:
        index = faiss.read_index(str(root / INDEX), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        reason = str(error).rsplit("Error: ", 1)[-1]
        raise InputError(f"{root / INDEX} cannot be read ({' '.join(reason.split())}); {_ANEW}") from None
    found = (type(index).__name__, index.metric_type, index.d, index.ntotal)
    if found != (info.index.type_name, faiss.METRIC_INNER_PRODUCT, info.embedder.dimension, count):
        raise InputError(
            f"{root / INDEX} is another index ({found[0]} of {found[3]} vectors of {found[2]} dimensions) than the "
            f"manifest describes; {_ANEW}"
        )
    return index


def read_lexical(root: Path, count: int) -> LexicalIndex | None:
    """Map the lexical index into memory; None where there is none.

    Raises:
        InputError: Its arrays cannot be read, or are of another store.
    """
    if not (root / LEXICAL["terms"]).is_file():
        return None
    try:
        lexical = LexicalIndex(**{name: _mapped(root / file) for name, file in LEXICAL.items()})
    except (OSError, ValueError) as error:
        raise InputError(f"the lexical index in {root} cannot be read ({error}); {_ANEW}") from None
    if len(lexical) != count:
        raise InputError(f"the lexical index in {root} has {len(lexical)} texts for {count} chunks; {_ANEW}")
    return lexical


def read_chunks(root: Path, count: int) -> StoredChunks:
    """Map the chunks into memory.

    Raises:
        InputError: They are not as many as the manifest says, or their file has another length.
    """
    try:
        chunks = StoredChunks((), ChunkLines(root / CHUNKS, _mapped(root / STARTS)))
    except (OSError, ValueError) as error:
        raise InputError(f"the chunks in {root} cannot be read ({error}); {_ANEW}") from None
    if len(chunks) != count:
        raise InputError(f"{root / STARTS} has {len(chunks)} chunks, the manifest {count}; {_ANEW}")
    return chunks


def _mapped(path: Path) -> NDArray[Any]:
    return np.load(path, mmap_mode="r").view(np.ndarray)
