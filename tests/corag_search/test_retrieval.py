"""Lexical and hybrid retrieval against the formulas written out, and the retrievers in a pipeline."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_search import Chunk, Corag, InputError, VectorStore
from corag_search.lexical import LexicalIndex, lexical_tokens, shared_ranking
from corag_search.pipeline_config import PipelineConfig
from corag_search.retrieval import DenseRetriever, HybridRetriever, LexicalRetriever, Retriever, make_retriever

WORDS = st.sampled_from(["tower", "Tower", "tall", "of", "Eiffel", "光", "合成", "x1"])
TEXTS = st.lists(st.lists(WORDS, max_size=8).map(" ".join), min_size=1, max_size=8)


def bm25(query: str, texts: list[str]) -> list[float]:
    """The formula in plain loops, k1 = 1.5 and b = 0.75."""
    documents = [lexical_tokens(text) for text in texts]
    average = sum(map(len, documents)) / len(documents) or 1.0
    scores = []
    for document in documents:
        score = 0.0
        for term in lexical_tokens(query):
            containing = sum(term in other for other in documents)
            idf = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            count = document.count(term)
            if count:
                score += idf * count * 2.5 / (count + 1.5 * (0.25 + 0.75 * len(document) / average))
        scores.append(score)
    return scores


@given(TEXTS, st.lists(WORDS, max_size=4).map(" ".join))
def test_scores_are_the_formulas(texts: list[str], query: str) -> None:
    np.testing.assert_allclose(LexicalIndex.build(texts).scores(query), bm25(query, texts), rtol=1e-12)


@given(TEXTS, TEXTS, st.data())
def test_added_and_removed_texts_leave_what_building_anew_gives(first: list[str], more: list[str], data) -> None:
    texts = first + more
    grown = LexicalIndex.build(first).extended(more)
    kept = data.draw(st.lists(st.sampled_from(range(len(texts))), unique=True, min_size=1))
    shrunk = grown.only(np.array(kept))
    for index, expected in ((grown, texts), (shrunk, [texts[i] for i in kept])):
        anew = LexicalIndex.build(expected)
        for name, array in anew.arrays().items():
            np.testing.assert_array_equal(index.arrays()[name], array, err_msg=name)


@given(TEXTS, st.lists(WORDS, max_size=4).map(" ".join), st.integers(1, 9))
def test_the_best_come_first_and_ties_in_order(texts: list[str], query: str, k: int) -> None:
    index = LexicalIndex.build(texts)
    scores = index.scores(query)
    expected = sorted((i for i in range(len(texts)) if scores[i] > 0), key=lambda i: (-scores[i], i))
    assert index.search(query, k) == expected[:k]


def test_a_query_without_known_words_finds_nothing() -> None:
    index = LexicalIndex.build(["the tower", "of iron"])
    assert index.search("bridge", 3) == [] and index.search("?", 3) == []
    assert LexicalIndex.build(["?", ""]).search("tower", 2) == []
    with pytest.raises(InputError, match="candidates must be a whole number, at least 1, got 0"):
        index.search("tower", 0)


@given(st.lists(st.lists(st.sampled_from("abcdef"), unique=True), max_size=4))
def test_reciprocal_rank_fusion(rankings: list[list[str]]) -> None:
    worth: Counter[str] = Counter()
    for ranking in rankings:
        for name in ranking:
            worth[name] += 1 / (60 + ranking.index(name) + 1)  # type: ignore[assignment]
    fused = shared_ranking(rankings)
    assert sorted(fused) == sorted(worth)
    assert all(worth[a] >= worth[b] - 1e-15 for a, b in itertools.pairwise(fused))


class Letters:
    """Embeds a text as the counts of a, b and c, of unit length; remembers what it embedded."""

    name, dimension, fingerprint = "letters", 3, "0"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, texts):
        self.seen += texts
        vectors = np.array([[text.count(letter) for letter in "abc"] for text in texts], np.float32)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


CHUNKS = [Chunk("1", "aaa tower", 2), Chunk("2", "bbb tall tower", 3), Chunk("3", "ccc bridge", 2), Chunk("4", "ab", 1)]


@pytest.fixture
def store() -> VectorStore:
    return VectorStore.build(CHUNKS, Letters())  # type: ignore[arg-type]


def test_dense_lexical_and_hybrid_by_hand(store: VectorStore) -> None:
    embedder = Letters()
    query = "a tall tower"  # embeds as two a's: 1 and then 4 are nearest; its words stand in 2 and 1
    assert [c.id for c in make_retriever("dense", store, embedder).retrieve(query, 2)] == ["1", "4"]
    assert [c.id for c in make_retriever("lexical", store, embedder).retrieve(query, 4)] == ["2", "1"]
    hybrid = make_retriever("hybrid", store, embedder).retrieve(query, 3)
    # 1: 1/61 + 1/62; 2: 1/61 + its dense place (third or fourth); 4: 1/62 alone.
    assert [c.id for c in hybrid] == ["1", "2", "4"]
    shallow = HybridRetriever([DenseRetriever(store, embedder), LexicalRetriever(store)], depth=1)
    assert [c.id for c in shallow.retrieve(query, 1)] == ["1"]
    with pytest.raises(InputError, match="retrieval must be one of dense, lexical, hybrid, got 'sparse'"):
        make_retriever("sparse", store, embedder)


def test_a_pipeline_retrieves_as_configured_and_embeds_only_when_needed(store: VectorStore) -> None:
    embedder = Letters()
    settings = {"embedder": {"name": "letters"}, "candidates": 3}
    lexical = Corag(store, embedder, PipelineConfig.from_dict({**settings, "retrieval": "lexical"}))  # type: ignore[arg-type]
    assert [c.id for c in lexical.search("tall tower", reranker="bm25").candidates] == ["2", "1"]
    assert embedder.seen == []
    with pytest.raises(InputError, match="found no chunk for the query 'zzz'; lexical"):
        lexical.search("zzz", reranker="bm25")
    hybrid = Corag(store, embedder, PipelineConfig.from_dict({**settings, "retrieval": "hybrid"}))  # type: ignore[arg-type]
    assert [c.id for c in hybrid.search("a tall tower", reranker="bm25").candidates] == ["1", "2", "4"]
    assert embedder.seen == ["a tall tower"]
    with pytest.raises(InputError, match="retrieval must be one of dense, lexical, hybrid, got 'both'"):
        PipelineConfig.from_dict({"retrieval": "both"})


def test_a_retriever_of_ones_own(store: VectorStore) -> None:
    asked = []

    class Own:
        def retrieve(self, query, k, *, embedding=None):
            asked.append((query, k, embedding))
            return CHUNKS[1:3]

    own = Own()
    assert isinstance(own, Retriever)
    corag = Corag(None, None, PipelineConfig(), retriever=own)
    selected = corag.search("tall bridge", reranker="bm25", candidates=7)
    assert asked == [("tall bridge", 7, None)]
    assert selected.candidates == (CHUNKS[1], CHUNKS[2])
    assert set(selected.timings) == {"retrieve", "search"}
