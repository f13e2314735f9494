"""Features of a query and its candidates against values worked by hand and against plain loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_search import Chunk, InputError, VectorStore
from corag_search.query_features import STATISTICS, embed_candidates, query_features
from corag_search.rerankers import load_reranker
from corag_search.store import EmbedderIdentity, FlatIndex, HNSWIndex, IVFPQIndex


def chunks(*texts: str) -> list[Chunk]:
    return [Chunk(str(number), text, max(len(text.split()), 1)) for number, text in enumerate(texts)]


def statistics(query: str, embedding: Sequence, texts: Sequence[str], vectors: Sequence) -> dict[str, float]:
    features = query_features(query, np.array(embedding), chunks(*texts), np.array(vectors))
    return dict(zip(STATISTICS, features.statistics.tolist(), strict=True))


def test_worked_by_hand() -> None:
    """Three chunks: the tower's, one that repeats it half, and one of something else."""
    query, embedding = "tall tower", [1.0, 0.0]
    texts = ["tall tower", "tower", "cat"]
    vectors = [[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]]
    features = query_features(query, np.float32(embedding), chunks(*texts), np.float32(vectors))
    assert features.statistics.dtype == features.chunk_mean.dtype == np.float32
    np.testing.assert_allclose(features.chunk_mean, [1.6 / 3, 1.8 / 3], rtol=1e-6)
    found = dict(zip(STATISTICS, features.statistics.tolist(), strict=True))
    # Cosines 0.6, 1, 0: mean 1.6/3, mean of squares 1.36/3.
    # BM25: N = 3, idf of tall (in 1) ln(1 + 2.5/1.5), of tower (in 2) ln(1 + 1.5/2.5); lengths 2, 1, 1, mean 4/3.
    tall, tower = math.log(1 + 2.5 / 1.5), math.log(1 + 1.5 / 2.5)
    both = 1 / (1 + 1.5 * (0.25 + 0.75 * 2 / (4 / 3)))
    one = tower / (tall + tower) / (1 + 1.5 * (0.25 + 0.75 * 1 / (4 / 3)))
    expected = {
        "query_length": math.log(3),
        "dense_best": 1.0,
        "dense_lead": 1 - 1.6 / 3,
        "dense_spread": math.sqrt(1.36 / 3 - (1.6 / 3) ** 2),
        "lexical_best": both,
        "lexical_lead": both - (both + one) / 3,
        "lexical_spread": math.sqrt((both**2 + one**2) / 3 - ((both + one) / 3) ** 2),
        "agreement": 0.5,  # ranks 2, 3, 1 and 3, 2, 1: 1 - 6 · (1 + 1 + 0) / (3 · 8)
        "redundancy": (0.6 + 0.8 + 0.0) / 3,  # of first and second, first and third, second and third
        "lexical_share": 2 / 3,
        "lexical_coverage": 1.0,
        "non_ascii": 0.0,
    }
    assert found == pytest.approx(expected, abs=1e-6)


def test_ties_have_their_mean_rank() -> None:
    found = statistics("a b", [1, 0], ["a b", "a b", "x"], [[0.8, 0.6], [0.6, 0.8], [0, 1]])
    # Dense ranks 3, 2, 1; lexical 2.5, 2.5, 1: covariance 1.5, variances 2 and 1.5.
    assert found["agreement"] == pytest.approx(1.5 / math.sqrt(2 * 1.5), abs=1e-6)


@pytest.mark.parametrize(
    ("texts", "vectors"),
    [(["one"], [[0.0, 1.0]]), (["one", "one"], [[1.0, 0.0], [1.0, 0.0]]), (["", ""], [[0.0, 0.0], [1.0, 0.0]])],
)
def test_no_variation_is_finite(texts: list[str], vectors: list) -> None:
    found = statistics("one", [1, 0], texts, vectors)
    assert found["agreement"] == 0 and all(map(math.isfinite, found.values()))
    if len(texts) == 1:
        assert (found["redundancy"], found["dense_lead"], found["dense_spread"], found["lexical_lead"]) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("query", "length", "non_ascii"),
    [
        ("?!", 0, 0),
        ("", 0, 0),
        ("Wie hoch?", 2, 0),
        ("café", 1, 0.25),
        ("cafe\u0301", 1, 0.25),  # the same, decomposed
        ("高塔 X", 3, 2 / 3),
        ("ＣＡＳＥ 7", 2, 0),
    ],
)
def test_query_length_and_letters(query: str, length: int, non_ascii: float) -> None:
    found = statistics(query, [1, 0], ["a"], [[1, 0]])
    assert found["query_length"] == pytest.approx(math.log(1 + length), abs=1e-6)
    assert found["non_ascii"] == pytest.approx(non_ascii, abs=1e-6)


WORDS = st.lists(st.sampled_from(["tower", "tall", "cat", "光", "é"]), max_size=6).map(" ".join)


@settings(deadline=None, max_examples=60)
@given(WORDS, st.lists(WORDS, min_size=1, max_size=6), st.integers(0, 10**6))
def test_against_plain_loops(query: str, texts: list[str], seed: int) -> None:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(len(texts), 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = statistics(query, vectors[0], texts, vectors)
    bm25 = load_reranker("bm25").open(query, chunks(*texts)).score([(i,) for i in range(len(texts))])  # type: ignore[attr-defined]
    words = set(query.split())
    cosines = [float(vectors[0] @ vector) for vector in vectors]
    pairs = [float(vectors[i] @ vectors[j]) for i, j in itertools.combinations(range(len(texts)), 2)]
    assert found["dense_best"] == pytest.approx(max(cosines), abs=1e-6)
    assert found["dense_spread"] == pytest.approx(float(np.std(cosines)), abs=1e-6)
    assert found["lexical_lead"] == pytest.approx(max(bm25) - sum(bm25) / len(bm25), abs=1e-6)
    assert found["redundancy"] == pytest.approx(sum(pairs) / len(pairs) if pairs else 0, abs=1e-6)
    shared = [bool(words & set(text.split())) for text in texts]
    assert found["lexical_share"] == pytest.approx(sum(shared) / len(shared), abs=1e-6)
    covered = [word in " ".join(texts).split() for word in words]
    assert found["lexical_coverage"] == pytest.approx(sum(covered) / max(len(covered), 1), abs=1e-6)
    assert -1 - 1e-6 <= found["agreement"] <= 1 + 1e-6
    order = random.permutation(len(texts))  # no statistic depends on the order of the candidates
    again = statistics(query, vectors[0], [texts[i] for i in order], vectors[order])
    assert again == pytest.approx(found, abs=1e-6)


def test_lengths_of_vectors_do_not_matter_to_the_statistics() -> None:
    one = statistics("a", [1, 0], ["a", "b"], [[0.6, 0.8], [1, 0]])
    assert statistics("a", [3, 0], ["a", "b"], [[1.2, 1.6], [0.5, 0]]) == pytest.approx(one, abs=1e-6)


@pytest.mark.parametrize(
    ("texts", "embedding", "vectors", "message"),
    [
        ([], [1.0], np.zeros((0, 1)), "there are no candidates to describe"),
        (["a"], [1.0], [[1.0, 0.0]], r"of shape \[d\] and \[1, d\], got \[1\] and \[1, 2\]; embed all"),
        (["a"], [[1.0]], [[1.0]], r"got \[1, 1\] and \[1, 1\]"),
        (["a", "b"], [1.0], [[1.0]], r"\[2, d\], got \[1\] and \[1, 1\]"),
        (["a"], [np.nan], [[1.0]], "must be finite"),
        (["a"], [1.0], [[np.inf]], "must be finite"),
    ],
)
def test_unusable_input(texts: list[str], embedding: list, vectors: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        query_features("a", np.array(embedding), chunks(*texts), np.array(vectors))


class Letters:
    """Embeds a text as how often it has the letters a to d, at unit length, and remembers what it was asked."""

    name, dimension, fingerprint = "letters", 4, "f"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        counts = np.array([[text.count(letter) for letter in "abcd"] for text in texts], np.float32) + 0.1
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.mark.parametrize("index", [FlatIndex(), HNSWIndex(M=4)])
def test_stored_vectors_are_taken_and_only_the_rest_is_embedded(index: FlatIndex | HNSWIndex) -> None:
    embedder = Letters()
    stored = chunks("aab", "b", "cc", "d")
    store = VectorStore.build(stored, embedder, index=index)
    expected = embedder.encode(["cc", "elsewhere ab", "aab", "other text"])
    embedder.asked.clear()
    given = [stored[2], Chunk("9", "elsewhere ab", 2), stored[0], Chunk("1", "other text", 2)]  # 1 is "b" in the store
    np.testing.assert_allclose(embed_candidates(given, embedder, store), expected, atol=1e-6)
    assert embedder.asked == ["elsewhere ab", "other text"]
    np.testing.assert_allclose(embed_candidates(given, embedder), expected, atol=1e-6)
    embedder.asked.clear()
    embed_candidates(stored, embedder, store)
    assert embedder.asked == []


def test_approximate_vectors_are_near() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(64, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    many = chunks(*(f"text {n}" for n in range(64)))
    identity = EmbedderIdentity("none", 16, "f")
    store = VectorStore.from_embeddings(many, vectors, identity, index=IVFPQIndex(nlist=2, m=8, nbits=5))
    near = store.embeddings(store.rows_of([chunk.id for chunk in many[10:30]]))
    assert ((near * vectors[10:30]).sum(axis=1) > 0.5).all() and not np.allclose(near, vectors[10:30])
