"""The composite reranker at inference: features by hand, predictions derived anew, and what it refuses."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_search import Chunk, InputError, SearchConfig, load_reranker, search_policy_tree, search_policy_trees
from corag_search.rerankers.composite import CompositeReranker, _Limit
from corag_search.rerankers.composite_features import CombinationFeatures, feature_names, lexical_overlap
from corag_search.rerankers.composite_model import CompositeModel, read_composite
from tests.corag_search.composite_files import some_model, write_model
from tests.corag_search.scripted import RandomScores, Scripted

QUERY = "How tall is the tower, and who built it?"
CHUNKS = [
    Chunk("a", "The tower is 330 metres tall.", 8),
    Chunk("b", "Eiffel built the tower.", 5),
    Chunk("c", "The tower is tall, at 330 metres in all.", 11),
    Chunk("d", "Bread and butter.", 4),
]
ORDERS = [order for size in (1, 2, 3) for order in itertools.permutations(range(4), size)]


def derived(model: CompositeModel, parts: Sequence[Any], query: str, chunks: Sequence[Chunk], order: tuple) -> float:
    """The prediction in plain loops, each part asked for one combination at a time."""

    features = []
    for part in parts:
        session = part.open(query, chunks) if hasattr(part, "open") else None

        def ask(members: Sequence[int], part: Any = part, session: Any = session) -> float:
            if session is not None:
                return float(session.score([tuple(members)])[0])
            return float(part.score(query, [[chunks[i] for i in members]])[0])

        singles = [ask([i]) for i in range(len(chunks))]
        mean = sum(singles) / len(singles)
        spread = max(math.sqrt(sum((s - mean) ** 2 for s in singles) / len(singles)), 0.01)
        own = [singles[i] for i in order]
        features += [(x - mean) / spread for x in (ask(order), max(own), sum(own) / len(own))]
    features.append(math.log(sum(chunks[i].cost for i in order)))
    words = [set(chunk.text.lower().replace(".", "").replace(",", "").split()) for chunk in chunks]
    pairs = [len(words[i] & words[j]) / len(words[i] | words[j]) for i, j in itertools.combinations(order, 2)]
    features.append(sum(pairs) / len(pairs) if pairs else 0.0)
    standardised = [(x - c) / s for x, c, s in zip(features, model.center, model.scale, strict=True)]
    return min(max(model.bias + sum(w * z for w, z in zip(model.weights, standardised, strict=True)), 0.0), 1.0)


# ------------------------------------------------------------ features


def test_features_by_hand() -> None:
    chunks = [Chunk("a", "red blue", 10), Chunk("b", "Red, green blue!", 30), Chunk("c", "black", 60)]
    # Singles 0.2, 0.8, 0.5: mean 0.5, standard deviation √0.06; "ab" scores 0.9 together, "ba" 0.4.
    part = Scripted({"a": 0.2, "b": 0.8, "c": 0.5, "ab": 0.9, "ba": 0.4, "abc": 0.5})
    features = CombinationFeatures("q", chunks, [part])
    deviation = math.sqrt(0.06)
    expected = [
        [0.4 / deviation, 0.3 / deviation, 0.0, math.log(40), 2 / 3],
        [-0.1 / deviation, 0.3 / deviation, 0.0, math.log(40), 2 / 3],
        [0.3 / deviation, 0.3 / deviation, 0.3 / deviation, math.log(30), 0.0],
        [0.0, 0.3 / deviation, 0.0, math.log(100), 2 / 9],
    ]
    assert feature_names(["x"]) == ("x.score", "x.best", "x.mean", "log_cost", "redundancy")
    np.testing.assert_allclose(features.of([(0, 1), (1, 0), (1,), (0, 1, 2)]), expected, atol=1e-12)
    # Each single chunk is asked for once, when the query is opened.
    assert part.batches == [["a", "b", "c"], ["ab", "ba", "abc"]]


def test_candidates_that_a_part_cannot_tell_apart_are_all_average() -> None:
    features = CombinationFeatures("q", CHUNKS, [Scripted({}, default=0.25)])
    assert not features.of([(0,), (1, 2)])[:, :3].any()
    close = CombinationFeatures("q", CHUNKS[:2], [Scripted({"a": 0.501, "b": 0.499})])
    np.testing.assert_allclose(close.of([(0,), (1,)])[:, 0], [0.1, -0.1])  # 0.001 of the least spread, 0.01


def test_overlap_of_texts_without_words() -> None:
    np.testing.assert_array_equal(lexical_overlap(["...", "a b", "", "B a"]), np.eye(4)[[0, 3, 2, 1]] * [0, 1, 0, 1])


# ------------------------------------------------------------ scores


@pytest.fixture
def of_bm25(tmp_path: Path) -> CompositeReranker:
    reranker = load_reranker("composite", path=write_model(tmp_path / "c", some_model(1), {"bm25": {"k1": 1.2}}))
    assert isinstance(reranker, CompositeReranker)
    return reranker


def test_predictions_derived_in_plain_loops(of_bm25: CompositeReranker) -> None:
    expected = [derived(some_model(1), [load_reranker("bm25", k1=1.2)], QUERY, CHUNKS, order) for order in ORDERS]
    found = of_bm25.open(QUERY, CHUNKS).score(ORDERS)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert len(set(found.round(6))) > 10
    combinations = [[CHUNKS[i] for i in order] for order in ORDERS]
    np.testing.assert_array_equal(of_bm25.score(QUERY, combinations), found)


def test_what_it_declares(of_bm25: CompositeReranker) -> None:
    assert (of_bm25.name, of_bm25.order_sensitive, of_bm25.max_tokens) == ("composite", False, None)
    assert not hasattr(of_bm25, "count_tokens") and not hasattr(of_bm25, "score_pairs")
    assert [part.name for part in of_bm25.parts] == ["bm25"]


def test_nothing_scores_nothing(of_bm25: CompositeReranker) -> None:
    assert of_bm25.score(QUERY, []).tolist() == []
    assert of_bm25.score(QUERY, [[], []]).tolist() == [0.0, 0.0]
    assert of_bm25.score(QUERY, [[], [CHUNKS[0]]])[0] == 0.0
    assert of_bm25.open(QUERY, CHUNKS).score([()]).tolist() == [0.0]


def test_predictions_are_clipped(tmp_path: Path) -> None:
    zeros = np.zeros(5)
    for bias, score in ((1.7, 1.0), (-0.2, 0.0)):
        model = CompositeModel(zeros, zeros + 1, zeros, bias)
        reranker = load_reranker("composite", path=write_model(tmp_path / "c", model, {"bm25": {}}))
        assert reranker.score(QUERY, [CHUNKS[:2]]).tolist() == [score]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.permutations(range(4)).flatmap(lambda p: st.integers(1, 4).map(lambda n: tuple(p[:n]))), min_size=1))
def test_a_score_does_not_depend_on_its_batch(orders: list[tuple[int, ...]]) -> None:
    features = CombinationFeatures(QUERY, CHUNKS, [RandomScores(seed, order_sensitive=False) for seed in (3, 4)])
    model = some_model(2)
    together = model.predict(features.of(orders))
    alone = [model.predict(features.of([tuple(sorted(order))]))[0] for order in orders]
    assert together.tolist() == alone


def test_search_finds_the_best_of_all_and_lockstep_equals_one_by_one(of_bm25: CompositeReranker) -> None:
    config = SearchConfig(budget=24, cost_coefficient=0.0, iterations=200)
    result = search_policy_tree(QUERY, CHUNKS, of_bm25, config)
    affordable = [order for order in ORDERS if sum(CHUNKS[i].cost for i in order) <= 24]
    assert result.value == max(of_bm25.open(QUERY, CHUNKS).score(affordable))
    queries = [QUERY, "Who baked the bread?"]
    candidates = [CHUNKS, CHUNKS[1:]]
    together = search_policy_trees(queries, candidates, of_bm25, config)
    assert together == [
        search_policy_tree(query, own, of_bm25, config) for query, own in zip(queries, candidates, strict=True)
    ]


@pytest.mark.models
def test_of_the_embedded_rerankers(tmp_path: Path, minilm: Any, one_thread: None) -> None:
    parts = {"bm25": {}, "cosine": {}, "maxsim": {}, "wordllama": {}}
    model = some_model(4)
    reranker = load_reranker("composite", path=write_model(tmp_path / "c", model, parts))
    assert (reranker.order_sensitive, reranker.max_tokens) == (True, 512)
    assert isinstance(reranker, CompositeReranker)
    texts = ["", "The tower is 330 metres tall.", "word " * 600]
    assert reranker.count_tokens(texts) == load_reranker("cosine").count_tokens(texts)
    loaded = [load_reranker(name) for name in parts]
    orders = [(3,), (1, 0), (0, 1)]
    expected = [derived(model, loaded, QUERY, CHUNKS, order) for order in orders]
    found = reranker.open(QUERY, CHUNKS).score(orders)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found[1] != found[2]
    placed = load_reranker("composite", path=tmp_path / "c", parts={"cosine": {"batch_size": 1, "device": "cpu"}})
    np.testing.assert_allclose(placed.open(QUERY, CHUNKS).score(orders), found, atol=1e-6)


# ------------------------------------------------------------ limits


class Limited(Scripted):
    """A part with a limit that counts characters."""

    def __init__(self, name: str, max_tokens: int | None) -> None:
        super().__init__({}, default=0.5)
        self.name, self.max_tokens = name, max_tokens  # type: ignore[assignment]


class Counting(Limited):
    def __init__(self, name: str, max_tokens: int | None, per_token: int) -> None:
        super().__init__(name, max_tokens)
        self.per_token = per_token

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) // self.per_token for text in texts]


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=5))
def test_what_fits_the_least_limit_fits_every_part(lengths: list[int]) -> None:
    parts = [Counting("fine", 300, 1), Counting("coarse", 100, 4), Limited("none", None)]
    limit = _Limit(parts)
    assert limit.max_tokens == 100 and limit.countable
    texts = ["x" * length for length in lengths]
    if sum(limit.count_tokens(texts)) <= limit.max_tokens:
        assert all(sum(part.count_tokens(texts)) <= part.max_tokens for part in parts[:2])  # type: ignore[operator]
    # A text that fills a part's limit alone fills that of the composite.
    assert limit.count_tokens(["x" * 300, "x" * 120, "x" * 400]) == [100, 40, 134]


def test_a_limit_that_cannot_be_counted() -> None:
    assert (_Limit([Limited("a", 50)]).max_tokens, _Limit([Limited("a", 50)]).countable) == (50, False)
    assert (_Limit([Limited("a", None)]).max_tokens, _Limit([Limited("a", None)]).countable) == (None, False)
    with pytest.raises(InputError, match="parts a, b read 50, 60 tokens, and 'a' cannot count its own"):
        _Limit([Limited("a", 50), Counting("b", 60, 1)])


# ------------------------------------------------------------ the directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_model(tmp_path / "c", some_model(1), {"bm25": {}})


def change_config(directory: Path, **values: Any) -> None:
    config = json.loads((directory / "config.json").read_text())
    config.pop("config_sha256", None)  # as one of before there was one
    (directory / "config.json").write_text(json.dumps(config | values))


def test_a_changed_configuration(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text()) | {"note": "another"}
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"composite reranker .*: config\.json was changed since it was written"):
        load_reranker("composite", path=directory)


def test_a_round_trip_keeps_every_bit(directory: Path) -> None:
    model, (part,) = read_composite(directory)
    assert (part.name, dict(part.options), part.fingerprint) == ("bm25", {}, None)
    for name, tensor in some_model(1).tensors().items():
        np.testing.assert_array_equal(model.tensors()[name], tensor)


def test_the_fingerprint_follows_weights_and_parts(tmp_path: Path) -> None:
    def of(name: str, model: CompositeModel, **options: float) -> str:
        return load_reranker("composite", path=write_model(tmp_path / name, model, {"bm25": options})).fingerprint  # type: ignore[attr-defined]

    first = of("a", some_model(1))
    assert first == of("b", some_model(1)) and len(first) == 16
    others = {of("c", some_model(1), k1=1.2), of("d", replace(some_model(1), bias=0.4)), of("e", some_model(1, seed=1))}
    assert len(others) == 3 and first not in others


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_missing_file(directory: Path, file: str) -> None:
    (directory / file).unlink()
    with pytest.raises(InputError, match=f"has no {file}; make one with `corag composite`"):
        load_reranker("composite", path=directory)


@pytest.mark.parametrize("position", [0, 40, -1])
def test_a_flipped_byte(directory: Path, position: int) -> None:
    weights = bytearray((directory / "model.safetensors").read_bytes())
    weights[position] ^= 1
    (directory / "model.safetensors").write_bytes(weights)
    with pytest.raises(InputError, match="damaged or of another export"):
        load_reranker("composite", path=directory)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"format": "corag-agent"}, "not that of a corag-composite"),
        ({"format_version": 2}, "format version 2, readable are 1; export it again"),
        ({"format_version": None}, "format version None"),
        ({"sha256": "0" * 64}, "damaged"),
        ({"parts": []}, "parts must be at least one reranker"),
        ({"parts": None}, "parts must be at least one reranker"),
        ({"parts": ["bm25"]}, "parts must be at least one reranker"),
        ({"parts": [{"name": "bm25", "options": None, "fingerprint": None}]}, "parts must be at least one reranker"),
        ({"parts": [{"name": "bm25", "options": {}, "fingerprint": None}] * 2}, "each once"),
        ({"features": ["bm25.score"]}, "features must be"),
        ({"parts": [{"name": "maxsim", "options": {}, "fingerprint": None}]}, "features must be"),
        ({"parts": [{"name": "bm25", "options": {}, "fingerprint": "abc"}]}, "has the fingerprint None, .* with abc"),
        ({"parts": [{"name": "bm25", "options": {"k2": 1}, "fingerprint": None}]}, "'bm25' has no option 'k2'"),
    ],
)
def test_unusable_configurations(directory: Path, values: dict[str, Any], message: str) -> None:
    change_config(directory, **values)
    with pytest.raises(InputError, match=message):
        load_reranker("composite", path=directory)


def test_an_unreadable_configuration(directory: Path) -> None:
    (directory / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config.json is not JSON"):
        load_reranker("composite", path=directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: replace(m, weights=m.weights[:4]), r"weights must be finite float64 \[5\], got float64 \[4\]"),
        (lambda m: replace(m, weights=m.weights.astype(np.float32)), r"got float32 \[5\]"),
        (lambda m: replace(m, center=m.center * np.nan), "center must be finite"),
        (lambda m: replace(m, scale=m.scale * 0), "scale must be above 0"),
    ],
)
def test_unusable_weights(tmp_path: Path, change: Callable[[Any], Any], message: str) -> None:
    names = feature_names(["bm25"])
    with pytest.raises(InputError, match=message):
        load_reranker("composite", path=write_model(tmp_path / "c", change(some_model(1)), {"bm25": {}}, names))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"bm25": {"k1": 2.0}}, "part 'bm25' was trained with {}; k1 would change its scores"),
        ({"maxsim": {}}, "parts must map some of bm25 to options, got 'maxsim'"),
        ({"bm25": None}, "parts must map some of bm25 to options, got 'bm25': None"),
        ({"bm25": {"device": "cpu"}}, "'bm25' has no option 'device'"),
        (["bm25"], "parts must be a mapping or null"),
    ],
)
def test_options_of_parts_that_cannot_be_given(directory: Path, parts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_reranker("composite", path=directory, parts=parts)


def test_a_foreign_directory_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is no corag-composite"):
        write_model(tmp_path / "c", some_model(1), {"bm25": {}})
    assert (tmp_path / "c" / "thesis.txt").read_text() == "mine"


def test_no_model_library_is_imported(directory: Path) -> None:
    program = (
        "import sys; from corag_search import Chunk, load_reranker; "
        f"load_reranker('composite', path={str(directory)!r}).score('a', [[Chunk('a', 'a b', 2)]]); "
        "print({'torch', 'transformers', 'faiss', 'pandas', 'sklearn', 'corag_agent', 'data_prep'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "set()\n", "")
