"""Embedded rerankers: hand-worked values, plain-loop derivations, sessions against `score`."""

from __future__ import annotations

import math
import random
import warnings
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.lexical import lexical_tokens
from corag_search.policy_tree.search import search_policy_tree
from corag_search.rerankers import Reranker, list_rerankers, load_reranker
from corag_search.rerankers.maxsim import MaxSimSession
from corag_search.rerankers.session import reduce_orders
from corag_search.rerankers.static import WordLlamaSession

TEXTS = [
    "Photosynthesis turns light, water and carbon dioxide into sugar.",
    "The Eiffel tower was built in 1889 by the company of Gustave Eiffel.",
    "Light, temperature and carbon dioxide limit photosynthesis.",
    "光合作用把光能转化为化学能，影响因素有光照、温度和二氧化碳。",
    "Nothing to see here.",
]
QUERY = "What limits photosynthesis?"
INDEPENDENT = ["bm25", "maxsim", "wordllama"]


def chunks(texts):
    return [Chunk(str(number), text, max(1, len(text.split()))) for number, text in enumerate(texts)]


CANDIDATES = chunks(TEXTS)
ORDERS = [(0,), (1,), (2, 0), (0, 2), (3, 4, 1), (0, 1, 2, 3, 4)]


pytestmark = pytest.mark.usefixtures("one_thread")


def test_names_and_options():
    assert list_rerankers()[:4] == ["bm25", "cosine", "maxsim", "wordllama"] and len(list_rerankers()) == 12
    with pytest.raises(InputError, match="unknown reranker 'bm52'; there are: bm25, cosine"):
        load_reranker("bm52")
    with pytest.raises(InputError, match="no option 'K1'; it has: k1, b"):
        load_reranker("bm25", K1=2)
    with pytest.raises(InputError, match="no option 'name'"):
        from corag_search.registry import create
        from corag_search.rerankers import _RERANKERS

        create("reranker", _RERANKERS, "bge-reranker-base", {"name": "other"})


@pytest.mark.parametrize("options", [{"k1": 0}, {"b": 1.5}, {"k1": math.nan}])
def test_bm25_refuses_values_outside_their_range(options):
    with pytest.raises(InputError, match=next(iter(options))):
        load_reranker("bm25", **options)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Don't STOP-me", ["don", "t", "stop", "me"]),
        ("请解释ABC", ["请", "解", "释", "abc"]),
        ("カタカナ ｶﾞ ひら", ["カ", "タ", "カ", "ナ", "ガ", "ひ", "ら"]),
        ("ไทย", ["ไ", "ท", "ย"]),
        ("लड़का हिन्दी।", ["लड़का", "हिन्दी"]),
        ("Éa e\u0301b naïve 한국어 ½", ["éa", "éb", "naïve", "한국어", "1", "2"]),
        ("𠀀𠀁x", ["𠀀", "𠀁", "x"]),
        ("...!?", []),
        ("", []),
    ],
)
def test_lexical_tokens(text, tokens):
    assert lexical_tokens(text) == tokens


def test_bm25_by_hand():
    """Two documents, "a b" and "a c c c", query "a b": N = 2, avgdl = 3, df(a) = 2, df(b) = 1.

    idf(a) = ln(1 + 0.5/2.5) = 0.182322, idf(b) = ln(1 + 1.5/1.5) = 0.693147, attainable = 2.5 · 0.875469.
    """
    idf_a, idf_b = math.log(1.2), math.log(2)
    attainable = 2.5 * (idf_a + idf_b)
    short = 1.5 * (0.25 + 0.75 * 2 / 3)  # |D| = 2
    long = 1.5 * (0.25 + 0.75 * 4 / 3)  # |D| = 4
    both = 1.5 * (0.25 + 0.75 * 6 / 3)  # |D| = 6, tf(a) = 2
    expected = [
        (idf_a * 2.5 / (1 + short) + idf_b * 2.5 / (1 + short)) / attainable,
        idf_a * 2.5 / (1 + long) / attainable,
        (idf_a * 2 * 2.5 / (2 + both) + idf_b * 2.5 / (1 + both)) / attainable,
    ]
    assert expected[0] == pytest.approx(0.470588, abs=1e-6)
    session = load_reranker("bm25").open("a b", chunks(["a b", "a c c c"]))
    np.testing.assert_allclose(session.score([(0,), (1,), (1, 0)]), expected, rtol=1e-12)


def plain_bm25(query, candidates, combinations, k1=1.5, b=0.75):
    documents = [lexical_tokens(chunk.text) for chunk in candidates]
    average = sum(map(len, documents)) / len(documents)
    scores = []
    for combination in combinations:
        document = lexical_tokens(" ".join(chunk.text for chunk in combination))
        total = attainable = 0.0
        for term in lexical_tokens(query):
            containing = sum(term in words for words in documents)
            idf = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            frequency = document.count(term)
            total += idf * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * len(document) / average))
            attainable += idf * (k1 + 1)
        scores.append(total / attainable if attainable else 0.0)
    return scores


@pytest.mark.parametrize("query", [QUERY, "light light dioxide", "影响光合作用的因素", "zzz", "?"])
@pytest.mark.parametrize("parameters", [{}, {"k1": 0.9, "b": 0.4}, {"b": 0}, {"b": 1}])
def test_bm25_against_plain_loops(query, parameters):
    combinations = [[CANDIDATES[i] for i in order] for order in ORDERS]
    reranker = load_reranker("bm25", **parameters)
    np.testing.assert_allclose(
        reranker.open(query, CANDIDATES).score(ORDERS), plain_bm25(query, CANDIDATES, combinations, **parameters)
    )


def test_bm25_finds_the_chinese_chunk():
    scores = load_reranker("bm25").open("影响光合作用的因素", CANDIDATES).score([(i,) for i in range(5)])
    assert scores.argmax() == 3 and scores[3] > 0.2 and not scores[[0, 1, 2, 4]].any()


words = st.text("ab 光c", max_size=12)


@settings(max_examples=60, deadline=None)
@given(words, st.lists(words, min_size=1, max_size=5))
def test_bm25_lies_in_the_unit_interval_and_ignores_order(query, texts):
    candidates = chunks(texts)
    orders = [tuple(range(len(texts))), tuple(reversed(range(len(texts)))), (0,), ()]
    scores = load_reranker("bm25").open(query, candidates).score(orders)
    assert ((scores >= 0) & (scores < 1)).all() and scores[0] == scores[1] and scores[3] == 0


@pytest.mark.parametrize("function", [np.add, np.maximum])
def test_reduce_orders_against_loops(function):
    features = np.random.default_rng(0).normal(size=(6, 3))
    orders = [(), (5,), (0, 1), (4, 2, 0), (), (0, 1, 2, 3, 4, 5)]
    expected = [function.reduce(features[list(order)], axis=0) if order else np.zeros(3) for order in orders]
    np.testing.assert_allclose(reduce_orders(function, features, orders), expected)
    assert reduce_orders(function, features, []).shape == (0, 3)


def test_maxsim_by_hand():
    """Two query tokens, three chunks: element-wise maxima, their mean, not below 0."""
    session = MaxSimSession(np.array([[0.9, 0.1], [0.2, 0.6], [-0.4, -0.8]]))
    scores = session.score([(0,), (1,), (2,), (0, 1), (1, 2, 0), ()])
    np.testing.assert_allclose(scores, [0.5, 0.4, 0.0, 0.75, 0.75, 0.0])


def test_wordllama_by_hand():
    session = WordLlamaSession(np.array([2.0, 0.0]), np.array([[3.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [0.0, 0.0]]))
    np.testing.assert_allclose(
        session.score([(0,), (1,), (2,), (0, 1), (3,), ()]), [1, 0, 0, 1 / math.sqrt(2), 0, 0], atol=1e-12
    )


@pytest.mark.models
def test_maxsim_against_plain_loops(minilm):
    query = minilm.encode_tokens([QUERY])[0]
    tokens = minilm.encode_tokens(TEXTS)
    expected = []
    for order in ORDERS:
        best = [max(float(q @ t) for i in order for t in tokens[i]) for q in query]
        expected.append(max(0.0, sum(best) / len(best)))
    np.testing.assert_allclose(
        load_reranker("maxsim", device="cpu").open(QUERY, CANDIDATES).score(ORDERS), expected, atol=1e-6
    )


@pytest.mark.models
def test_wordllama_against_plain_loops():
    from corag_search.rerankers.static import _weights

    tokenizer, vectors = _weights()

    def mean(texts):
        ids = [i for text in texts for i in tokenizer.encode(text, add_special_tokens=False).ids]
        return vectors[ids].astype(np.float64).mean(axis=0)

    query = mean([QUERY])
    expected = []
    for order in ORDERS:
        combination = mean([TEXTS[i] for i in order])
        expected.append(max(0.0, query @ combination / np.linalg.norm(query) / np.linalg.norm(combination)))
    np.testing.assert_allclose(load_reranker("wordllama").open(QUERY, CANDIDATES).score(ORDERS), expected, atol=1e-6)


@pytest.mark.models
def test_cosine_reads_the_joined_text(minilm):
    combinations = [[CANDIDATES[i] for i in order] for order in ORDERS]
    query = minilm.encode([QUERY])[0]
    expected = [max(0.0, query @ minilm.encode([" ".join(c.text for c in combo)])[0]) for combo in combinations]
    scores = load_reranker("cosine", device="cpu").score(QUERY, combinations)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert abs(scores[2] - scores[3]) > 1e-4  # the same two chunks in the other order


@pytest.mark.models
def test_cosine_pairs_are_the_single_scores_and_encode_each_text_once(monkeypatch):
    reranker = load_reranker("cosine", device="cpu")
    queries = [QUERY, "Who built the tower?", QUERY, QUERY]
    combinations = [[CANDIDATES[0]], [CANDIDATES[1]], [CANDIDATES[0]], []]
    expected = [reranker.score(q, [c])[0] for q, c in zip(queries, combinations, strict=True)]
    seen, forward = [], reranker._embedder._forward
    monkeypatch.setattr(reranker._embedder, "_forward", lambda ids: seen.append(len(ids)) or forward(ids))
    np.testing.assert_allclose(reranker.score_pairs(queries, combinations), expected, atol=1e-6)
    assert seen == [2]  # two texts; the queries are known from before
    with pytest.raises(InputError, match="one query per combination, got 1 queries for 2"):
        reranker.score_pairs(["a"], combinations[:2])


@pytest.mark.models
@pytest.mark.parametrize("name", INDEPENDENT)
def test_session_and_score_agree(name):
    reranker = load_reranker(name)
    combinations = [[CANDIDATES[i] for i in order] for order in ORDERS]  # all candidates occur: the same statistics
    np.testing.assert_allclose(
        reranker.open(QUERY, CANDIDATES).score(ORDERS), reranker.score(QUERY, combinations), atol=1e-6
    )


@pytest.mark.models
@pytest.mark.parametrize("name", ["maxsim", "wordllama"])
def test_score_does_not_depend_on_what_else_is_scored(name):
    reranker = load_reranker(name)
    together = reranker.score(QUERY, [[chunk] for chunk in CANDIDATES])
    alone = [reranker.score(QUERY, [[chunk]])[0] for chunk in CANDIDATES]
    np.testing.assert_allclose(together, alone, atol=1e-6)


@pytest.mark.models
@pytest.mark.parametrize("name", ["bm25", "cosine", "maxsim", "wordllama"])
def test_every_embedded_reranker_keeps_the_contract(name):
    reranker = load_reranker(name)
    assert isinstance(reranker, Reranker) and reranker.name == name
    assert reranker.order_sensitive == (name == "cosine")
    draw = random.Random(1)
    combinations = [draw.sample(CANDIDATES, draw.randint(1, 5)) for _ in range(12)]
    scores = reranker.score(QUERY, combinations)
    assert scores.shape == (12,) and scores.dtype == np.float64 and ((scores >= 0) & (scores <= 1)).all()
    assert reranker.score(QUERY, []).shape == (0,)
    assert reranker.score(QUERY, [[]])[0] == 0
    assert np.isfinite(reranker.score("", [[CANDIDATES[0]], [Chunk("empty", "", 1)]])).all()
    relevant, filler = reranker.score(QUERY, [[CANDIDATES[2]], [CANDIDATES[4]]])
    assert relevant > filler
    if not reranker.order_sensitive:
        same = reranker.score(QUERY, list(permutations(CANDIDATES[:3])))
        np.testing.assert_allclose(same, same[0], atol=1e-12)


@pytest.mark.models
def test_cuts_are_not_silent():
    long = Chunk("long", "light and water " * 300, 900)
    with pytest.warns(UserWarning, match="'cosine' reads 512 tokens"):
        load_reranker("cosine").score(QUERY, [[long]])
    reranker = load_reranker("maxsim")
    with pytest.warns(UserWarning, match="'maxsim' reads 512 tokens of a chunk: 'long' has 902") as record:
        reranker.score(QUERY, [[long], [CANDIDATES[0]]])
        reranker.score(QUERY, [[long]])
    assert len(record) == 1


@pytest.mark.models
def test_cosine_scores_the_best_of_overlapping_windows(minilm):
    """1,022 distinct words make windows of 510 tokens, at 0, 255, 510 and 512: each a text of its own."""
    words = [token for token in minilm.tokenizer.get_vocab() if token.isascii() and token.isalpha() and len(token) > 3]
    words = sorted(words)[:1022]
    assert minilm.count_tokens([" ".join(words)]) == [1024]
    long = [Chunk("first", " ".join(words[:700]), 700), Chunk("second", " ".join(words[700:]), 322)]
    query = minilm.encode([QUERY])[0]
    expected = [query @ minilm.encode([" ".join(words[start : start + 510])])[0] for start in (0, 255, 510, 512)]
    reranker = load_reranker("cosine", device="cpu", long="window")
    assert reranker.max_tokens is None and load_reranker("cosine").max_tokens == 512
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = reranker.score(QUERY, [long, [CANDIDATES[0]]])
    short = load_reranker("cosine", device="cpu").score(QUERY, [[CANDIDATES[0]]])
    np.testing.assert_allclose(scores, [max(0, *expected), short[0]], atol=1e-6)
    with pytest.raises(InputError, match="long must be one of refuse, window"):
        load_reranker("cosine", long="fold")


@pytest.mark.models
def test_a_search_with_windows_refuses_nothing_for_its_length(minilm):
    candidates = [Chunk(str(i), f"{text} " * 24, 200) for i, text in enumerate(TEXTS[:3])]
    config = SearchConfig(budget=1000, iterations=2)
    limited = search_policy_tree(QUERY, candidates, load_reranker("cosine"), config)
    free = search_policy_tree(QUERY, candidates, load_reranker("cosine", long="window"), config)
    assert limited.evaluations == 3 and free.evaluations == 3 + 2


@pytest.mark.models
def test_siblings_score_as_combinations_do_one_by_one():
    """The children of a node, whose parent's maxima are taken once, bit for bit."""
    session = MaxSimSession(np.random.default_rng(3).normal(scale=0.4, size=(9, 7)))
    for parent in [(), (4,), (8, 1), (2, 7, 0, 5)]:
        children = [(*parent, i) for i in range(9) if i not in parent]
        alone = [session.score([tuple(reversed(child)), ()])[0] for child in children]
        assert session.score(children).tolist() == alone


@pytest.mark.models
def test_cosine_counts_its_own_tokens(minilm):
    assert load_reranker("cosine").count_tokens(["light", "", "photosynthesis"]) == [3, 2, 5]
