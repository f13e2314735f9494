"""Index kinds: how the nearest vectors of a store are found. Similarity is the inner product of unit vectors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from corag_search.errors import InputError
from corag_search.registry import Entry, create, whole
from corag_search.texts import shown

Vectors = NDArray[np.float32]

_BLOCK = 65_536  # vectors copied at once
_TRAINED_ON = 64  # vectors for each list, at most: four times as fast as FAISS's 256, and no worse
_NBITS = range(4, 13)
_SHORTEST_LIST, _LIST_FACTOR = 128, 4  # of a graph's search: 0.98 of the nearest among 100,000, 0.87 with 64 for 60
_LEAST_PROBED, _PROBED_SHARE = 64, 4  # lists that are looked through: a fourth of them
_HEADROOM = 0.1  # of a component's range on either side: vectors that are added later may lie beyond what was seen
_MOST = 2**31 - 1  # what FAISS has room for
_MOST_LINKS = 4096  # what memory has room for, at the least
_MOST_FACTOR = 1000  # FAISS reads no index with more
_REFINED_BY = {"SQ8": "QT_8bit", "SQfp16": "QT_fp16"}


class IndexKind(ABC):
    """Settings of an index, and what is done with one of its kind. An index is never changed once it is made.

    Attributes:
        kind: Its name in a configuration.
        type_name: Of the FAISS index.
    """

    __slots__ = ()
    kind: ClassVar[str]

    @property
    @abstractmethod
    def type_name(self) -> str: ...

    def check(self, count: int, dimension: int) -> None:
        """Refuse to index so many vectors of this width.

        Raises:
            InputError: There are none, too few to learn from, or the settings do not fit the dimension.
        """
        if not count:
            raise InputError("there are no chunks to index; the corpus is empty")

    @abstractmethod
    def build(self, vectors: Vectors) -> Any:
        """An index over vectors `[n, dimension]` that `check` allows."""

    def extended(self, index: Any, vectors: Vectors) -> Any:
        """A new index with more vectors `[m, dimension]`, whose rows follow those that are there.

        What was learned when the index was built stays as it is.
        """
        grown = _owned(index)
        grown.add(vectors)
        return grown

    @abstractmethod
    def only(self, index: Any, rows: NDArray[np.int64]) -> Any:
        """A new index with the vectors of some rows, ascending, which become 0, 1, …"""

    def search(self, index: Any, queries: Vectors, k: int) -> tuple[NDArray[np.int64], Vectors]:
        """Rows and similarities `[n, k]` of the k nearest, best first; k is at most the number of vectors.

        An approximate index may reach fewer than k; those queries are then answered by looking everywhere.
        """
        similarity, rows = self._nearest(index, queries, k)
        if -1 in rows[:, -1].tolist():
            missed = rows[:, -1] < 0
            similarity[missed], rows[missed] = self._everywhere(index, queries[missed], k)
            if (rows < 0).any():
                raise InputError("a query embedding is too large to compare; use the embedder that built the store")
        return rows, similarity

    def _nearest(self, index: Any, queries: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        """Similarities and rows as the index finds them; −1 where it reached fewer than k."""
        return index.search(queries, k)

    def _everywhere(self, index: Any, queries: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        return index.search(queries, k)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a configuration holds them."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class FlatIndex(IndexKind):
    """All vectors are compared: exact."""

    kind: ClassVar[str] = "flat"
    type_name = "IndexFlatIP"

    def build(self, vectors: Vectors) -> Any:
        index = self._empty(vectors.shape[1])
        index.add(vectors)
        return index

    def extended(self, index: Any, vectors: Vectors) -> Any:
        grown = _filled(self._empty(index.d), index, np.arange(index.ntotal))
        grown.add(vectors)
        return grown

    def only(self, index: Any, rows: NDArray[np.int64]) -> Any:
        return _filled(self._empty(index.d), index, rows)

    def _empty(self, dimension: int) -> Any:
        import faiss

        return faiss.IndexFlatIP(dimension)


@dataclass(frozen=True, slots=True)
class HNSWIndex(IndexKind):
    """A graph of neighbours, Malkov and Yashunin, arXiv:1603.09320; the vectors are kept as they are.

    Attributes:
        M: Links of a vector, twice as many in the lowest layer.
        efConstruction: Length of the list of candidates when a vector is linked.
        efSearch: Length of the list of candidates in a search, k where that is more; None for the greater of 128
            and 4k.
    """

    M: int = 32
    efConstruction: int = 100
    efSearch: int | None = None

    kind: ClassVar[str] = "hnsw"
    type_name = "IndexHNSWFlat"

    def __post_init__(self) -> None:
        for name, least, most in (("M", 2, _MOST_LINKS), ("efConstruction", 1, _MOST), ("efSearch", 1, _MOST)):
            value = getattr(self, name)
            if value is not None or name != "efSearch":
                object.__setattr__(self, name, whole(f"index hnsw: {name}", value, least, most=most))

    def list_length(self, k: int) -> int:
        """Length of the list of candidates in a search for k."""
        return self.efSearch or max(_SHORTEST_LIST, _LIST_FACTOR * k)

    def build(self, vectors: Vectors) -> Any:
        index = self._empty(vectors.shape[1])
        index.add(vectors)
        return index

    def only(self, index: Any, rows: NDArray[np.int64]) -> Any:
        """A graph cannot lose nodes: the vectors that stay are linked anew."""
        return _filled(self._empty(index.d), index, rows)

    def _nearest(self, index: Any, queries: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        return index.search(queries, k, params=_graph_parameters(self.list_length(k)))

    def _everywhere(self, index: Any, queries: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        return index.storage.search(queries, k)

    def _empty(self, dimension: int) -> Any:
        import faiss

        index = faiss.IndexHNSWFlat(dimension, self.M, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = self.efConstruction, self.list_length(1)
        return index


@dataclass(frozen=True, slots=True)
class IVFPQIndex(IndexKind):
    """Lists of vectors near a centroid, compressed by product quantisation (Jégou, Douze and Schmid, PAMI 2011).

    What the codes find is compared once more with vectors that are kept nearly as they are; those are read from the
    mapped file for these few alone.

    Attributes:
        nlist: Lists; None for the square root of the number of vectors, at the time of building.
        nprobe: Lists looked through in a search; all of them where that is more. None for a fourth of them, at
            least 64.
        m: Parts that a vector is cut into; must divide the dimension. None for four components a part, or what is
            nearest to that from above.
        nbits: Bits of a part's code, 4 to 12.
        refine: How the vectors are kept: SQ8 (a byte a component) or SQfp16 (two). None for the codes alone.
        k_factor: Times k that the codes find, for comparing them once more.
    """

    nlist: int | None = None
    nprobe: int | None = None
    m: int | None = None
    nbits: int = 8
    refine: str | None = "SQ8"
    k_factor: int = 4

    kind: ClassVar[str] = "ivfpq"

    def __post_init__(self) -> None:
        for name in ("nlist", "nprobe", "m", "nbits", "k_factor"):
            value = getattr(self, name)
            if value is not None or name in ("nbits", "k_factor"):
                most = _MOST_FACTOR if name == "k_factor" else _MOST
                object.__setattr__(self, name, whole(f"index ivfpq: {name}", value, most=most))
        if self.nbits not in _NBITS:
            raise InputError(f"index ivfpq: nbits must be {_NBITS[0]} to {_NBITS[-1]}, got {self.nbits}")
        if self.refine is not None and self.refine not in _REFINED_BY:
            raise InputError(
                f"index ivfpq: refine must be {' or '.join(_REFINED_BY)}, or null, got {shown(self.refine)}"
            )

    @property
    def type_name(self) -> str:
        return "IndexIVFPQ" if self.refine is None else "IndexRefine"

    def check(self, count: int, dimension: int) -> None:
        IndexKind.check(self, count, dimension)
        self._parts(dimension)
        nlist = self._lists(count)
        needed = max(nlist, 2**self.nbits)
        if count < needed:
            raise InputError(
                f"index ivfpq needs at least {needed} chunks to train on (nlist {nlist}, nbits {self.nbits}), "
                f"got {count}; lower them or use the kind flat"
            )

    def build(self, vectors: Vectors) -> Any:
        import faiss

        lists = self._trained_lists(vectors)
        lists.add(vectors)
        if self.refine is None:
            lists.make_direct_map()
            return lists
        kept = faiss.IndexScalarQuantizer(
            vectors.shape[1], getattr(faiss.ScalarQuantizer, _REFINED_BY[self.refine]), faiss.METRIC_INNER_PRODUCT
        )
        kept.sq.rangestat_arg = _HEADROOM
        kept.train(vectors)
        kept.add(vectors)
        index = faiss.IndexRefine(lists, kept)
        index.k_factor = self.k_factor
        return index

    def _trained_lists(self, vectors: Vectors) -> Any:
        import faiss

        count, dimension = vectors.shape
        nlist = self._lists(count)
        lists = faiss.IndexIVFPQ(
            faiss.IndexFlatIP(dimension),
            dimension,
            nlist,
            self._parts(dimension),
            self.nbits,
            faiss.METRIC_INNER_PRODUCT,
        )
        lists.cp.min_points_per_centroid = lists.pq.cp.min_points_per_centroid = 1  # `check` says what is too few
        lists.cp.max_points_per_centroid = _TRAINED_ON
        lists.nprobe = self.nprobe or max(_LEAST_PROBED, nlist // _PROBED_SHARE)
        lists.train(vectors)
        return lists

    def only(self, index: Any, rows: NDArray[np.int64]) -> Any:
        """The codes of the vectors that stay are kept, and so is what was learned."""
        import faiss

        shrunk = _owned(index)
        shrunk.reset()
        if self.refine is None:
            _copy_codes(index, shrunk, rows)
            shrunk.make_direct_map(False)  # forgets the old one
            shrunk.make_direct_map()
        else:
            _copy_codes(faiss.downcast_index(index.base_index), faiss.downcast_index(shrunk.base_index), rows)
            _filled(shrunk.refine_index, index, rows)
            shrunk.ntotal = len(rows)
        return shrunk

    def _everywhere(self, index: Any, queries: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        import faiss

        lists: Any = index if self.refine is None else faiss.downcast_index(index.base_index)
        parameters: Any = faiss.SearchParametersIVF()
        parameters.nprobe = lists.nlist
        if self.refine is None:
            return index.search(queries, k, params=parameters)
        refining: Any = faiss.IndexRefineSearchParameters()
        refining.k_factor, refining.base_index_params = self.k_factor, parameters
        return index.search(queries, k, params=refining)

    def _lists(self, count: int) -> int:
        return self.nlist or max(1, math.isqrt(count))

    def _parts(self, dimension: int) -> int:
        m = self.m
        allowed = [parts for parts in range(1, dimension + 1) if dimension % parts == 0]
        if m is None:
            return max(parts for parts in allowed if parts <= max(1, dimension // 4))
        if m not in allowed:
            near = sorted(sorted(allowed, key=lambda parts: abs(parts - m))[:4])
            raise InputError(
                f"index ivfpq: m must divide the dimension {dimension}, got {m}; such as {', '.join(map(str, near))}"
            )
        return m


_KINDS = {kind.kind: kind for kind in (FlatIndex, HNSWIndex, IVFPQIndex)}


def index_kind(settings: Mapping[str, Any] | str) -> IndexKind:
    """Settings of plain values, such as `{"kind": "hnsw", "M": 16}`; the kind alone will do.

    Raises:
        InputError: An unknown kind or option, or a value of another type or outside its range.
    """
    options = {"kind": settings} if isinstance(settings, str) else settings
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options) or "kind" not in options:
        raise InputError(f"index must have a kind, such as {{kind: flat}}, got {shown(settings)}")
    entries = {name: Entry(kind.__module__, kind.__name__) for name, kind in _KINDS.items()}
    return create("index", entries, options["kind"], {key: options[key] for key in options if key != "kind"})


def _filled(empty: Any, index: Any, rows: NDArray[np.int64]) -> Any:
    """Add the vectors of some rows of an index to an empty one."""
    for start in range(0, len(rows), _BLOCK):
        empty.add(index.reconstruct_batch(rows[start : start + _BLOCK]))
    return empty


def _copy_codes(index: Any, empty: Any, rows: NDArray[np.int64]) -> None:
    """Put the codes of some rows of an IVF index, ascending, into an empty one with the same lists."""
    import faiss

    position = np.full(index.ntotal, -1)
    position[rows] = np.arange(len(rows))
    for number in range(index.nlist):
        size = index.invlists.list_size(number)
        if not size:
            continue
        ids = position[faiss.rev_swig_ptr(index.invlists.get_ids(number), size)]
        codes = faiss.rev_swig_ptr(index.invlists.get_codes(number), size * index.code_size).reshape(size, -1)
        kept = ids >= 0
        ids, codes = ids[kept], codes[kept]
        empty.invlists.add_entries(number, len(ids), faiss.swig_ptr(ids), faiss.swig_ptr(codes))
    empty.ntotal = len(rows)


@lru_cache(64)
def _graph_parameters(list_length: int) -> Any:
    import faiss

    return faiss.SearchParametersHNSW(efSearch=list_length)  # type: ignore[attr-defined]


def _owned(index: Any) -> Any:
    """A copy that may grow. A mapped index, and a clone of one, end the process when they are added to."""
    import faiss

    return faiss.deserialize_index(faiss.serialize_index(index))
