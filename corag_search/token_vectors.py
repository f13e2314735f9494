"""Token vectors of chunks on disk, memory-mapped: late interaction without encoding the candidates again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.embedders.base import Embedder, Vectors
from corag_search.errors import InputError
from corag_search.files import DirectoryFormat, read_unless_replaced, replacing_directory, sha256_of
from corag_search.registry import one_of, whole
from corag_search.store import EmbedderIdentity

MANIFEST, VECTORS, SCALES = "manifest.json", "vectors.bin", "scales.bin"
STARTS, KEYS, PROJECTION = "starts.npy", "keys.npy", "projection.npy"
FORMAT_VERSION = 1
TOKEN_VECTORS = DirectoryFormat("corag-token-vectors", MANIFEST, (MANIFEST, VECTORS, SCALES, STARTS, KEYS, PROJECTION))

SAMPLE = 512  # texts that the projection is learned from
BATCH = 256  # texts encoded before they are written
LEAST = -1.0  # the least cosine: a text without tokens adds nothing
_KEY_BYTES = 16


class Precision(StrEnum):
    """How a component of a vector is stored."""

    FLOAT16 = "float16"
    INT8 = "int8"  # with a scale for each vector, a float32


def beside(store: str | os.PathLike[str]) -> Path:
    """Where the token vectors of a store's chunks lie: `runs/store` has `runs/store.tokens`."""
    path = Path(store)
    return path.with_name(f"{path.name}.tokens")


class TokenEncoder(Embedder, Protocol):
    """An embedder that also gives a vector for each token, such as `MiniLMEmbedder`."""

    def encode_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """n arrays `[tokens, dimension]` of rows of unit length."""
        ...


@dataclass(frozen=True, slots=True)
class TokenVectorsInfo:
    """What a directory of token vectors holds; its manifest.

    Attributes:
        encoder: Which encoder made them; its fingerprint changes with weights and precision.
        precision: Of a component.
        dimension: Components stored of each vector.
        texts: Distinct texts.
        tokens: Vectors in all.
    """

    encoder: EmbedderIdentity
    precision: Precision
    dimension: int
    texts: int
    tokens: int


class TokenVectors:
    """Token vectors of texts, found by the text itself. Safe to share between threads.

    A chunk whose text changed is therefore never served old vectors, and texts that occur twice are stored once.

    Attributes:
        info: What it holds.
        directory: Where it lies.
    """

    def __init__(self, directory: Path, info: TokenVectorsInfo) -> None:
        """Map what `load` has verified."""
        self.directory, self.info = directory, info
        shape = (info.tokens, info.dimension)
        self._vectors = _mapped(directory / VECTORS, info.precision, shape)
        self._scales = _mapped(directory / SCALES, "float32", (info.tokens,))
        self._starts = np.load(directory / STARTS)
        self._projection = np.load(directory / PROJECTION)
        keys = np.load(directory / KEYS).tobytes()
        if len(keys) != info.texts * _KEY_BYTES or self._starts.tolist()[-1] != info.tokens:
            raise ValueError(f"{info.texts} texts and {info.tokens} tokens are declared")
        self._row = {keys[at : at + _KEY_BYTES]: row for row, at in enumerate(range(0, len(keys), _KEY_BYTES))}

    def __len__(self) -> int:
        return self.info.texts

    def __contains__(self, text: str) -> bool:
        return _key(text) in self._row

    @property
    def nbytes(self) -> int:
        """Bytes of vectors and scales on disk."""
        return int(self._vectors.nbytes + self._scales.nbytes)

    @classmethod
    def build(
        cls,
        directory: str | os.PathLike[str],
        chunks: Sequence[Chunk],
        encoder: TokenEncoder,
        precision: str = "int8",
        dimension: int | None = None,
    ) -> TokenVectors:
        """Encode chunks and write their vectors, a batch at a time; token vectors at `directory` are replaced.

        Args:
            directory: Where to.
            chunks: At least one.
            encoder: Of the reranker that will read them.
            precision: "int8" or "float16".
            dimension: Components kept of each vector, by the orthogonal projection that keeps most of the corpus'
                inner products (the leading eigenvectors of Σ v·vᵀ over a sample); None for all.

        Raises:
            InputError: No chunks, an unusable value, or something else is at `directory`.
        """
        if not chunks:
            raise InputError("there are no chunks to encode; the corpus is empty")
        kind = one_of("precision", precision, Precision)
        kept = encoder.dimension if dimension is None else whole("dimension", dimension)
        if kept > encoder.dimension:
            raise InputError(f"dimension must be at most the encoder's {encoder.dimension}, got {kept}")
        texts = list(dict.fromkeys(chunk.text for chunk in chunks))
        projection = np.eye(encoder.dimension, dtype=np.float32)
        if kept < encoder.dimension:
            projection = _principal(encoder, texts, kept)
        return _write(directory, texts, encoder, kind, projection, None)

    def update(self, chunks: Sequence[Chunk], encoder: TokenEncoder) -> TokenVectors:
        """Make it hold these chunks and no others: what is there stays as it is, the rest is encoded or dropped.

        Args:
            chunks: All chunks that the store holds now, at least one.
            encoder: The one that made it.

        Returns:
            The new token vectors, in the same directory. This object keeps reading the old ones.

        Raises:
            InputError: No chunks, or another encoder.
        """
        self.check_encoder(encoder)
        if not chunks:
            raise InputError("there are no chunks to encode; the corpus is empty")
        texts = list(dict.fromkeys(chunk.text for chunk in chunks))
        return _write(self.directory, texts, encoder, self.info.precision, self._projection, self)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> TokenVectors:
        """Verify token vectors against their manifest and map them.

        Those that another process replaces meanwhile are read anew.

        Raises:
            InputError: They are not there, something else, of another version, or a file was changed or cut.
        """
        root = Path(directory)
        return read_unless_replaced(lambda: cls._read(root), root, MANIFEST)

    @classmethod
    def _read(cls, root: Path) -> TokenVectors:
        again = "write them anew with `corag index --token_vectors int8`"
        try:
            manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
            if manifest["format"] != TOKEN_VECTORS.name or manifest["format_version"] != FORMAT_VERSION:
                raise InputError(
                    f"{root} holds {manifest['format']} {manifest['format_version']}, this version reads "
                    f"{TOKEN_VECTORS.name} {FORMAT_VERSION}; {again}"
                )
            plain, checksums = dict(manifest["info"]), dict(manifest["sha256"])
            encoder, precision = EmbedderIdentity(**plain.pop("encoder")), Precision(plain.pop("precision"))
            info = TokenVectorsInfo(encoder=encoder, precision=precision, **plain)
        except OSError:
            raise InputError(f"{root} holds no token vectors (no {MANIFEST}); {again}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{root / MANIFEST} is damaged ({error}); {again}") from None
        for name in TOKEN_VECTORS.files[1:]:
            if not (root / name).is_file() or sha256_of(root / name) != checksums.get(name):
                raise InputError(f"{root / name} is missing or was changed; {again}")
        try:
            return cls(root, info)
        except (ValueError, TypeError) as error:
            raise InputError(f"{root}: manifest and files differ in size ({error}); {again}") from None

    def check_encoder(self, encoder: TokenEncoder) -> None:
        """Refuse an encoder that did not make these vectors.

        Raises:
            InputError: Its name, dimension or fingerprint (weights and precision) differs.
        """
        own = EmbedderIdentity.of(encoder)
        if own != self.info.encoder:
            raise InputError(
                f"the token vectors in {self.directory} are those of {self.info.encoder}, not of "
                f"{own}; use the dtype they were made with, or write them anew with "
                "`corag index --token_vectors int8`"
            )

    def of(self, text: str) -> Vectors | None:
        """A text's vectors `[tokens, info.dimension]`; None when it is not stored."""
        span = self._span(text)
        return None if span is None else self._vectors[span].astype(np.float32) * self._scales[span][:, None]

    def maxima(self, tokens: Vectors, texts: Sequence[str]) -> tuple[NDArray[np.intp], Vectors]:
        """The best inner product of each query token in each text (MaxSim, arXiv:2004.12832).

        Args:
            tokens: `[query tokens, encoder's dimension]`.
            texts: n texts.

        Returns:
            Which of the texts are stored `[m]`, and their maxima `[m, query tokens]`.
        """
        stored = {number: span for number, text in enumerate(texts) if (span := self._span(text)) is not None}
        found, spans = np.array([*stored], np.intp), list(stored.values())
        maxima = np.full((len(found), len(tokens)), LEAST, np.float32)
        lengths = np.array([span.stop - span.start for span in spans], np.intp)
        filled = np.flatnonzero(lengths)
        if len(filled):
            vectors = np.concatenate([self._vectors[span] for span in spans]).astype(np.float32)
            products = vectors @ (tokens @ self._projection).T
            products *= np.concatenate([self._scales[span] for span in spans])[:, None]
            maxima[filled] = np.maximum.reduceat(products, (np.cumsum(lengths) - lengths)[filled], axis=0)
        return found, maxima

    def _stored(self, text: str) -> tuple[bytes, bytes] | None:
        """A text's vectors and scales as they lie on disk."""
        span = self._span(text)
        return None if span is None else (self._vectors[span].tobytes(), self._scales[span].tobytes())

    def _span(self, text: str) -> slice | None:
        """Where the vectors of a text lie."""
        row = self._row.get(_key(text))
        return None if row is None else slice(self._starts[row], self._starts[row + 1])


def _write(
    directory: str | os.PathLike[str],
    texts: Sequence[str],
    encoder: TokenEncoder,
    precision: Precision,
    projection: Vectors,
    stored: TokenVectors | None,
) -> TokenVectors:
    """Write the vectors of distinct texts, those that are stored as they are."""
    with replacing_directory(directory, TOKEN_VECTORS) as partial:
        lengths = []
        with (partial / VECTORS).open("wb") as vectors, (partial / SCALES).open("wb") as scales:
            for start in range(0, len(texts), BATCH):
                for content, scale in _encoded(texts[start : start + BATCH], encoder, precision, projection, stored):
                    vectors.write(content)
                    scales.write(scale)
                    lengths.append(len(scale) // 4)
        np.save(partial / STARTS, np.cumsum([0, *lengths], dtype=np.int64))
        np.save(partial / KEYS, np.frombuffer(b"".join(map(_key, texts)), np.uint8))
        np.save(partial / PROJECTION, projection)
        info = TokenVectorsInfo(EmbedderIdentity.of(encoder), precision, projection.shape[1], len(texts), sum(lengths))
        manifest = {
            "format": TOKEN_VECTORS.name,
            "format_version": FORMAT_VERSION,
            "info": asdict(info),
            "sha256": {name: sha256_of(partial / name) for name in TOKEN_VECTORS.files[1:]},
        }
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return TokenVectors(Path(directory), info)


def _encoded(
    texts: Sequence[str], encoder: TokenEncoder, precision: Precision, projection: Vectors, stored: TokenVectors | None
) -> Iterator[tuple[bytes, bytes]]:
    """Vectors and scales of each text, as they lie on disk."""
    there = {} if stored is None else {text: own for text in texts if (own := stored._stored(text)) is not None}
    new = [text for text in texts if text not in there]
    reduced = projection.shape[1] < projection.shape[0]
    there |= {
        text: _compressed(vectors @ projection if reduced else vectors, precision)
        for text, vectors in zip(new, encoder.encode_tokens(new), strict=True)
    }
    return (there[text] for text in texts)


def _compressed(vectors: Vectors, precision: Precision) -> tuple[bytes, bytes]:
    """Vectors `[tokens, d]` in a precision, and the scale of each, float32."""
    if precision is Precision.FLOAT16:
        return vectors.astype(np.float16).tobytes(), np.ones(len(vectors), np.float32).tobytes()
    scales = np.maximum(np.abs(vectors).max(axis=1, initial=0.0), 1e-12).astype(np.float32) / np.float32(127)
    return np.rint(vectors / scales[:, None]).astype(np.int8).tobytes(), scales.tobytes()


def _principal(encoder: TokenEncoder, texts: Sequence[str], dimension: int) -> Vectors:
    """The orthonormal columns `[encoder's dimension, dimension]` that keep most of Σ (u·v)² over the sample's vectors.

    Not centred: inner products are to be kept, not distances from a mean.
    """
    sample = [texts[row] for row in np.unique(np.linspace(0, len(texts) - 1, SAMPLE).astype(np.intp))]
    moment = np.zeros((encoder.dimension, encoder.dimension))
    for start in range(0, len(sample), BATCH):
        for vectors in encoder.encode_tokens(sample[start : start + BATCH]):
            moment += vectors.T.astype(np.float64) @ vectors
    return np.linalg.eigh(moment)[1][:, ::-1][:, :dimension].astype(np.float32)


def _mapped(path: Path, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A file of numbers, mapped into memory; an empty one cannot be."""
    if not np.prod(shape):
        return np.zeros(shape, kind)
    if path.stat().st_size != np.prod(shape) * np.dtype(kind).itemsize:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes for the shape {list(shape)}")
    return np.memmap(path, kind, "r", shape=shape).view(np.ndarray)


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()
