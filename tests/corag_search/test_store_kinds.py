"""Index kinds: what they find against a matrix product, what they refuse, adding and removing."""

from __future__ import annotations

import re

import numpy as np
import pytest

from corag_search import Chunk, InputError, VectorStore
from corag_search.pipeline_config import PipelineConfig
from corag_search.store import EmbedderIdentity, FlatIndex, HNSWIndex, IVFPQIndex, index_kind

DIMENSION = 16
IDENTITY = EmbedderIdentity("random", DIMENSION, "0")
KINDS = [
    FlatIndex(),
    HNSWIndex(M=8, efConstruction=40),
    IVFPQIndex(nlist=8, nbits=4),
    IVFPQIndex(nlist=8, nbits=4, refine="SQfp16"),
    IVFPQIndex(nlist=8, nbits=4, refine=None),
]


def called(kind) -> str:
    return " ".join(str(value) for value in (kind.kind, getattr(kind, "refine", "")) if value)


def unit(count: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def named(count: int, prefix: str = "d") -> list[Chunk]:
    """Three chunks a document."""
    return [
        Chunk(f"{prefix}{n // 3}:{n % 3}", f"{prefix} {n}", 1, {"document": f"{prefix}{n // 3}"}) for n in range(count)
    ]


def made(kind, count: int = 300) -> VectorStore:
    return VectorStore.from_embeddings(named(count), unit(count), IDENTITY, index=kind)


def recall(store: VectorStore, vectors: np.ndarray, k: int = 10) -> float:
    queries = unit(40, seed=9)
    best = np.argsort(-(queries @ vectors.T), axis=1)[:, :k]
    found = store.search_rows(queries, k)[0]
    return float(np.mean([len(set(a) & set(b)) / k for a, b in zip(found.tolist(), best.tolist(), strict=True)]))


def test_flat_finds_all_a_graph_nearly_all_and_codes_most() -> None:
    assert [recall(made(kind), unit(300)) for kind in KINDS[:1]] == [1.0]
    assert recall(made(KINDS[1]), unit(300)) > 0.95
    exhaustive = recall(
        made(IVFPQIndex(nlist=8, nprobe=8, nbits=8, m=16, refine=None)), unit(300)
    )  # a byte for each component
    assert exhaustive > 0.95
    assert recall(made(IVFPQIndex(nlist=8, nprobe=1, nbits=8, m=16, refine=None)), unit(300)) < exhaustive


@pytest.mark.parametrize("refine", ["SQ8", "SQfp16"])
def test_what_coarse_codes_find_is_compared_once_more(refine: str) -> None:
    """Every vector is reached and given to the comparison, so what comes first is what is nearest."""
    coarse = {"nlist": 8, "nprobe": 8, "nbits": 4, "m": 2}
    refined = made(IVFPQIndex(**coarse, refine=refine, k_factor=30))
    assert recall(refined, unit(300)) > 0.98
    fewer = recall(made(IVFPQIndex(**coarse, refine=refine, k_factor=2)), unit(300))
    codes_alone = recall(made(IVFPQIndex(**coarse, refine=None)), unit(300))
    assert codes_alone < fewer < 0.98
    queries = unit(5, seed=9)
    rows, similarity = refined.search_rows(queries, 10)
    np.testing.assert_allclose(similarity, np.take_along_axis(queries @ unit(300).T, rows, 1), atol=0.01)


def test_the_list_of_a_graphs_search_follows_k() -> None:
    assert [HNSWIndex().list_length(k) for k in (1, 32, 33, 60)] == [128, 128, 132, 240]
    assert HNSWIndex(efSearch=7).list_length(60) == 7
    vectors = unit(4000)
    chunks = named(4000)
    queries = unit(40, seed=9)

    def found(**settings) -> np.ndarray:
        kind = HNSWIndex(M=4, efConstruction=20, **settings)
        return VectorStore.from_embeddings(chunks, vectors, IDENTITY, index=kind).search_rows(queries, 60)[0]

    assert (found() == found(efSearch=240)).all()
    assert (found() != found(efSearch=60)).any()


@pytest.mark.parametrize("kind", KINDS, ids=called)
def test_every_query_gets_as_many_as_it_asks_for(kind) -> None:
    store = made(kind)
    rows, similarity = store.search_rows(unit(5, seed=4), 300)  # more than the lists that are looked through hold
    assert np.sort(rows, axis=1).tolist() == [list(range(300))] * 5
    assert (np.diff(similarity, axis=1) <= 0).all()
    narrow = made(IVFPQIndex(nlist=16, nprobe=1, nbits=4))
    assert (narrow.search_rows(unit(50, seed=4), 40)[0] >= 0).all()
    assert len(store.search(unit(1)[0], 1000)) == 300
    with pytest.raises(InputError, match="a query embedding is not finite"):
        store.search(np.full(DIMENSION, np.nan, np.float32), 3)


def test_a_graph_with_an_unreachable_part_is_completed_from_its_vectors() -> None:
    import faiss

    store = made(HNSWIndex(M=2, efConstruction=1, efSearch=1), 30)
    neighbours = faiss.vector_to_array(store._index.hnsw.neighbors)
    neighbours[:] = -1  # no links at all
    faiss.copy_array_to_vector(neighbours, store._index.hnsw.neighbors)
    query = unit(1, seed=3)
    assert store.search_rows(query, 30)[0][0].tolist() == np.argsort(-(unit(30) @ query[0])).tolist()


@pytest.mark.parametrize("kind", KINDS, ids=called)
@pytest.mark.parametrize("loaded", [False, True])
def test_added_and_removed(kind, loaded: bool, tmp_path) -> None:
    """Rows, chunks and vectors stay together through add, remove, save and load, in any order."""
    store = VectorStore.from_embeddings(named(240), unit(240), IDENTITY, index=kind)
    _ = store.lexical
    if loaded:
        store.save(tmp_path / "s")
        store = VectorStore.load(tmp_path / "s")
    more, vectors = named(60, "e"), unit(60, seed=1)
    changed = (
        store.add_embeddings(more, vectors).remove(["d0", "d79", "e3"]).add_embeddings(named(3, "f"), unit(3, seed=2))
    )
    every = [*named(240), *more, *named(3, "f")]
    kept = [row for row, chunk in enumerate(every) if chunk.metadata["document"] not in ("d0", "d79", "e3")]
    expected = np.concatenate([unit(240), vectors, unit(3, seed=2)])[kept]
    for one in (changed, saved_and_loaded(changed, tmp_path)):
        assert tuple(one.chunks) == tuple(every[row] for row in kept)
        assert (
            one.chunks[5] == every[kept[5]]
            and one.chunks[-1].id == "f0:2"
            and one.chunks[-2:] == tuple(one.chunks)[-2:]
        )
        assert one.info == store.info
        if getattr(kind, "refine", None):
            np.testing.assert_allclose(one.embeddings(), expected, atol=0.01)
        elif kind.kind != "ivfpq":
            np.testing.assert_allclose(one.embeddings(), expected, atol=1e-7)
            assert [one.search(vector, 1)[0] for vector in expected[::7]] == [every[row] for row in kept[::7]]
        np.testing.assert_array_equal(one.embeddings([7, 2]), one.embeddings()[[7, 2]])
        cosines = (one.embeddings() * expected).sum(axis=1)  # those of codes are only near
        assert np.median(cosines) > 0.8
        assert [one.chunks[row].id for row in one.lexical.search("59", 5)] == ["d19:2", "e19:2"]
    # The store that it was made from is as it was.
    assert tuple(store.chunks) == tuple(named(240))
    assert len(store.search_rows(unit(1), 240)[0][0]) == 240


def saved_and_loaded(store: VectorStore, directory) -> VectorStore:
    store.save(directory / "again")
    return VectorStore.load(directory / "again")


@pytest.mark.parametrize("refine", ["SQ8", "SQfp16", None])
def test_a_shrunk_list_answers_as_a_search_that_leaves_out_what_is_gone(refine: str | None) -> None:
    store = made(IVFPQIndex(nlist=6, nprobe=6, nbits=4, refine=refine))
    queries = unit(20, seed=5)
    rows, similarity = store.search_rows(queries, 300)
    shrunk = store.remove(["d4", "d90"])
    kept = np.array([row for row in range(300) if row // 3 not in (4, 90)])
    gone = np.isin(rows, kept, invert=True)
    found, values = shrunk.search_rows(queries, 294)
    np.testing.assert_allclose(values, similarity[~gone].reshape(20, 294), atol=1e-6)
    # Ties may stand in another order: compare by similarity of each row.
    for query in range(20):
        by_row = dict(zip(rows[query].tolist(), similarity[query].tolist(), strict=True))
        assert [by_row[row] for row in kept[found[query]].tolist()] == pytest.approx(values[query].tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "lsh"}, "unknown index 'lsh'; there are: flat, hnsw, ivfpq"),
        ({"M": 3}, "index must have a kind, such as {kind: flat}, got {'M': 3}"),
        (["flat"], "index must have a kind"),
        ({"kind": "flat", "M": 3}, "index 'flat' has no option 'M'; it has: none"),
        ({"kind": "hnsw", "m": 3}, "index 'hnsw' has no option 'm'; it has: M, efConstruction, efSearch"),
        ({"kind": "hnsw", "M": 1}, "index hnsw: M must be a whole number, at least 2, got 1"),
        ({"kind": "hnsw", "efSearch": 0}, "index hnsw: efSearch must be a whole number, at least 1, got 0"),
        ({"kind": "hnsw", "efConstruction": 2.5}, "index 'hnsw': efConstruction must be a whole number, got 2.5"),
        ({"kind": "ivfpq", "nlist": 0}, "index ivfpq: nlist must be a whole number, at least 1, got 0"),
        ({"kind": "ivfpq", "nprobe": 0}, "index ivfpq: nprobe must be a whole number, at least 1, got 0"),
        ({"kind": "ivfpq", "k_factor": None}, "index 'ivfpq': k_factor must be a whole number, got None"),
        ({"kind": "ivfpq", "refine": "Flat"}, "index ivfpq: refine must be SQ8 or SQfp16, or null, got 'Flat'"),
        ({"kind": "ivfpq", "nbits": 3}, "index ivfpq: nbits must be 4 to 12, got 3"),
    ],
)
def test_impossible_settings(settings, message: str) -> None:
    for make in (index_kind, lambda value: PipelineConfig(index=value)):
        with pytest.raises(InputError, match=re.escape(message)):
            make(settings)


def test_settings_that_do_not_fit_the_chunks() -> None:
    with pytest.raises(InputError, match=r"m must divide the dimension 16, got 5; such as 1, 2, 4, 8$"):
        made(IVFPQIndex(m=5))
    with pytest.raises(InputError, match=r"at least 256 chunks to train on \(nlist 15, nbits 8\), got 255; lower them"):
        made(IVFPQIndex(), 255)
    with pytest.raises(InputError, match=r"at least 400 chunks to train on \(nlist 400, nbits 4\), got 300"):
        made(IVFPQIndex(nlist=400, nbits=4))
    assert len(made(IVFPQIndex(), 256)) == 256
    codes = made(IVFPQIndex(nbits=4, refine=None))._index
    assert (codes.nlist, codes.nprobe, codes.pq.M) == (17, 64, 4)  # √300, the least, four components a part
    assert made(IVFPQIndex(nbits=4, nlist=300, refine=None))._index.nprobe == 75  # a fourth
    assert IVFPQIndex()._parts(3) == 1 and IVFPQIndex()._parts(14) == 2


def test_settings_in_a_configuration() -> None:
    assert PipelineConfig().index == {"kind": "flat"}
    config = PipelineConfig.from_dict({"index": {"kind": "hnsw", "M": 16}})
    assert config.index == {"kind": "hnsw", "M": 16, "efConstruction": 100, "efSearch": None}
    assert PipelineConfig.from_dict(config.to_dict()) == config
    assert index_kind(config.index) == HNSWIndex(M=16)
    assert PipelineConfig(index="ivfpq").index["refine"] == "SQ8"  # type: ignore[arg-type]
    assert PipelineConfig.from_dict({"index": {"kind": "ivfpq", "refine": None}}).index["refine"] is None


def test_settings_hold_in_the_index(tmp_path) -> None:
    import faiss

    made(HNSWIndex(M=4, efConstruction=11, efSearch=13)).save(tmp_path / "h")
    graph = VectorStore.load(tmp_path / "h")
    assert graph.info.index == HNSWIndex(M=4, efConstruction=11, efSearch=13)
    hnsw = graph._index.hnsw
    assert (hnsw.efConstruction, hnsw.efSearch, hnsw.nb_neighbors(1)) == (11, 13, 4)
    made(IVFPQIndex(nlist=5, nprobe=3, m=8, nbits=5)).save(tmp_path / "i")
    refined = VectorStore.load(tmp_path / "i")._index
    lists = faiss.downcast_index(refined.base_index)
    assert (refined.k_factor, refined.refine_index.sa_code_size()) == (4, DIMENSION)
    assert (lists.nlist, lists.nprobe, lists.pq.M, lists.pq.nbits) == (5, 3, 8, 5)


@pytest.mark.parametrize(
    ("kind", "option", "most"),
    [
        ("hnsw", "M", 4096),
        ("hnsw", "efSearch", 2**31 - 1),
        ("hnsw", "efConstruction", 2**31 - 1),
        ("ivfpq", "nprobe", 2**31 - 1),
        ("ivfpq", "nlist", 2**31 - 1),
        ("ivfpq", "k_factor", 1_000),
    ],
)
def test_options_are_not_greater_than_there_is_room_for(kind: str, option: str, most: int) -> None:
    with pytest.raises(InputError, match=f"index {kind}: {option} must be at most {most:,}, got {most + 1:,}"):
        index_kind({"kind": kind, option: most + 1})


def test_a_store_of_the_greatest_options_is_read_again(tmp_path) -> None:
    for kind in (HNSWIndex(M=4096), IVFPQIndex(nlist=1, nprobe=2**31 - 1, nbits=4, k_factor=1000)):
        store = made(kind, count=30)
        store.save(tmp_path / kind.kind)
        again = VectorStore.load(tmp_path / kind.kind)
        assert again.search(unit(1)[0], 5) == store.search(unit(1)[0], 5)
        assert len(again.add_embeddings(named(3, "e"), unit(3, seed=1))) == 33
