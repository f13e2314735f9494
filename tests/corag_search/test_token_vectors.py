"""Stored token vectors: by hand, against plain loops, updated, and with files that were tampered with."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from corag_search import Chunk, Corag, SearchConfig, VectorStore, search_policy_tree
from corag_search.errors import InputError
from corag_search.files import sha256_of
from corag_search.rerankers import load_reranker
from corag_search.token_vectors import MANIFEST, TOKEN_VECTORS, TokenVectors, beside

TEXTS = [
    "Photosynthesis turns light, water and carbon dioxide into sugar.",
    "The Eiffel tower was built in 1889 by the company of Gustave Eiffel.",
    "Light, temperature and carbon dioxide limit photosynthesis.",
    "光合作用把光能转化为化学能。",
    "Nothing to see here.",
]
QUERY = "What limits photosynthesis?"


def chunks(texts):
    return [Chunk(f"d{number}:0", text, 10, {"document": f"d{number}"}) for number, text in enumerate(texts)]


class Letters:
    """Each letter is a token with a vector of its own; remembers what it encoded."""

    name, dimension, fingerprint = "letters", 4, "0123456789abcdef"
    vectors = {  # noqa: RUF012
        "a": [1.0, 0.0, 0.0, 0.0],
        "b": [0.6, 0.8, 0.0, 0.0],
        "c": [0.0, 0.6, -0.8, 0.0],
        "d": [0.1, -0.1, 0.7, 0.7],
    }

    def __init__(self):
        self.encoded = []

    def encode_tokens(self, texts):
        self.encoded += texts
        return [np.array([self.vectors[letter] for letter in text], np.float32).reshape(-1, 4) for text in texts]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def letters(tmp_path):
    """Stored "ab", "", "c" and "ab" once more."""
    return TokenVectors.build(tmp_path / "tokens", chunks(["ab", "", "c", "ab"]), Letters())


def test_int8_by_hand(letters):
    """b = [0.6, 0.8, 0, 0]: scale 0.8/127, numbers 95.25 → 95 and 127."""
    assert len(letters) == 3 and letters.info.tokens == 3 and letters.nbytes == 3 * (4 + 4)
    np.testing.assert_allclose(letters.of("ab"), [[1, 0, 0, 0], [95 * 0.8 / 127, 0.8, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(letters.of("c"), [[0, 95 * 0.8 / 127, -0.8, 0]], rtol=1e-6)
    assert letters.of("").shape == (0, 4)
    assert letters.of("x") is None and "x" not in letters and "" in letters


def test_maxima_by_hand(letters):
    query = np.array([[1, 0, 0, 0], [0, 0, -1, 0]], np.float32)
    found, maxima = letters.maxima(query, ["c", "x", "ab", "", "c"])
    assert found.tolist() == [0, 2, 3, 4]
    np.testing.assert_allclose(maxima, [[0, 0.8], [1, 0], [-1, -1], [0, 0.8]], atol=1e-6)
    found, maxima = letters.maxima(query, ["x"])
    assert found.shape == (0,) and maxima.shape == (0, 2)
    assert letters.maxima(query[:0], ["c"])[1].shape == (1, 0)


def test_float16_and_int8_are_as_near_as_they_can_be(tmp_path, minilm):
    exact = minilm.encode_tokens(TEXTS)
    for precision, step in (("float16", 2.0**-11), ("int8", 0.5 / 127)):
        stored = TokenVectors.build(tmp_path / precision, chunks(TEXTS), minilm, precision)
        for text, vectors in zip(TEXTS, exact, strict=True):
            error = np.abs(stored.of(text) - vectors)
            assert (error <= step * np.abs(vectors).max(axis=1, keepdims=True) * 1.001 + 1e-7).all()


@pytest.mark.models
@pytest.mark.parametrize(
    ("options", "tolerance"),
    [({"precision": "float16"}, 5e-4), ({"precision": "int8"}, 5e-3), ({"precision": "int8", "dimension": 96}, 0.15)],
)
def test_maxsim_with_stored_vectors_against_plain_loops(tmp_path, minilm, options, tolerance):
    """Four of five chunks are stored, the fifth is encoded."""
    TokenVectors.build(tmp_path / "tokens", chunks(TEXTS[:4]), minilm, **options)
    reranker = load_reranker("maxsim", device="cpu", token_vectors=tmp_path / "tokens")
    seen, encode = [], reranker.encoder.encode_tokens_of
    reranker.encoder.encode_tokens_of = lambda ids: seen.append(len(ids)) or encode(ids)
    query, tokens = minilm.encode_tokens([QUERY])[0], minilm.encode_tokens(TEXTS)
    orders = [(i,) for i in range(5)] + [(0, 1), (4, 2), (3, 1, 0)]
    expected = []
    for order in orders:
        best = [max(float(q @ t) for i in order for t in tokens[i]) for q in query]
        expected.append(max(0.0, sum(best) / len(best)))
    session = reranker.open(QUERY, chunks(TEXTS))
    assert seen == [1, 1]  # the query, and the chunk that is not stored
    np.testing.assert_allclose(session.score(orders), expected, atol=tolerance)
    np.testing.assert_allclose(session.score([(4,)]), expected[4:5], atol=1e-6)


@pytest.mark.models
def test_a_search_with_stored_vectors(tmp_path, minilm):
    TokenVectors.build(tmp_path / "tokens", chunks(TEXTS), minilm)
    config = SearchConfig(budget=30, iterations=10)
    stored = load_reranker("maxsim", device="cpu", token_vectors=str(tmp_path / "tokens"))
    found, exact = (
        search_policy_tree(QUERY, chunks(TEXTS), one, config) for one in (stored, load_reranker("maxsim", device="cpu"))
    )
    assert found.order == exact.order and found.evaluations == exact.evaluations
    assert found.value == pytest.approx(exact.value, abs=5e-3)


def test_a_chunk_whose_text_changed_is_not_served_old_vectors(letters):
    assert letters.of("ab") is not None and letters.of("ab ") is None


def test_update_encodes_what_is_new_and_drops_what_is_gone(letters):
    encoder = Letters()
    kept = [Chunk("d2:0", "c", 1), Chunk("d9:0", "da", 2)]
    updated = letters.update(kept, encoder)
    assert encoder.encoded == ["da"] and len(updated) == 2
    assert updated.of("ab") is None and updated.of("da").shape == (2, 4)
    np.testing.assert_array_equal(updated.of("c"), letters.of("c"))
    reloaded = TokenVectors.load(updated.directory)
    assert reloaded.info == updated.info
    for text in ("c", "da"):
        np.testing.assert_array_equal(reloaded.of(text), updated.of(text))
    fresh = TokenVectors.build(letters.directory.with_name("fresh"), kept, encoder)
    assert [sha256_of(fresh.directory / name) for name in TOKEN_VECTORS.files[1:]] == [
        sha256_of(updated.directory / name) for name in TOKEN_VECTORS.files[1:]
    ]


def test_many_batches_equal_one(tmp_path, monkeypatch):
    texts = ["ab", "c", "d", "ba", "", "cc", "dab"]
    whole = TokenVectors.build(tmp_path / "whole", chunks(texts), Letters())
    monkeypatch.setattr("corag_search.token_vectors.BATCH", 2)
    parts = TokenVectors.build(tmp_path / "parts", chunks(texts), Letters())
    assert json.loads((whole.directory / MANIFEST).read_text()) == json.loads((parts.directory / MANIFEST).read_text())


def test_the_projection_keeps_what_the_corpus_spans(tmp_path):
    """a and b lie in a plane: two dimensions keep their products, and those of no other vector."""
    plane = TokenVectors.build(tmp_path / "plane", chunks(["a", "ab"]), Letters(), "float16", 2)
    query = np.array([[0.6, 0.8, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]], np.float32)
    _, maxima = plane.maxima(query, ["a", "ab"])
    np.testing.assert_allclose(maxima, [[0.6, 0.0], [1.0, 0.0]], atol=1e-3)
    np.testing.assert_allclose(plane._projection.T @ plane._projection, np.eye(2), atol=1e-6)
    assert plane.nbytes == 3 * (2 * 2 + 4)
    later = plane.update(chunks(["b", "a"]), Letters())  # learned once: what is stored stays comparable
    np.testing.assert_array_equal(later._projection, plane._projection)
    np.testing.assert_allclose(later.maxima(query, ["b"])[1], [[1.0, 0.0]], atol=1e-3)


@pytest.mark.models
def test_the_projection_is_the_best_of_its_width(tmp_path, minilm):
    """Eckart and Young: no other 32 columns keep more of the squared norms than the leading singular vectors."""
    stored = TokenVectors.build(tmp_path / "tokens", chunks(TEXTS), minilm, "float16", 32)
    vectors = np.concatenate(minilm.encode_tokens(TEXTS)).astype(np.float64)
    kept = np.linalg.norm(vectors @ stored._projection) ** 2
    assert kept == pytest.approx((np.linalg.svd(vectors, compute_uv=False)[:32] ** 2).sum(), rel=1e-5)


def test_vectors_are_mapped_and_not_read(letters):
    assert isinstance(TokenVectors.load(letters.directory)._vectors.base, np.memmap)


@pytest.mark.parametrize("name", TOKEN_VECTORS.files[1:])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_file_that_was_changed_is_refused(letters, name, damage):
    file = letters.directory / name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(content if damage == "flip" else content[:-1])
    with pytest.raises(InputError, match=f"{name} is missing or was changed; write them anew"):
        TokenVectors.load(letters.directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m | {"format_version": 99}, "holds corag-token-vectors 99, this version reads"),
        (lambda m: m | {"format": "corag-store"}, "holds corag-store 1"),
        (lambda m: {k: v for k, v in m.items() if k != "info"}, "manifest.json is damaged"),
        (lambda m: m | {"info": m["info"] | {"precision": "int4"}}, "manifest.json is damaged"),
        (lambda m: m | {"info": m["info"] | {"tokens": 4}}, "manifest and files differ in size"),
        (lambda m: [m], "manifest.json is damaged"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(letters, change, message):
    path = letters.directory / MANIFEST
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(InputError, match=message) as error:
        TokenVectors.load(letters.directory)
    assert "\n" not in str(error.value)


def test_what_is_no_token_vectors_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no token vectors"):
        TokenVectors.load(tmp_path / "nowhere")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match="is not overwritten"):
        TokenVectors.build(tmp_path / "mine", chunks(["a"]), Letters())
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"


def test_token_vectors_that_are_replaced_while_they_are_read_are_read_anew(letters, tmp_path, monkeypatch):
    """Between the manifest and the files another process puts those of other texts in their place."""
    from corag_search import token_vectors

    TokenVectors.build(tmp_path / "other", chunks(["abcd", "d"]), Letters())
    waiting, compare = [tmp_path / "other"], token_vectors.sha256_of

    def replaced_first(path):
        if waiting:
            letters.directory.rename(tmp_path / "old")
            waiting.pop().rename(letters.directory)
        return compare(path)

    monkeypatch.setattr(token_vectors, "sha256_of", replaced_first)
    assert "abcd" in TokenVectors.load(letters.directory)


def test_an_encoder_that_fails_leaves_the_old_ones(letters):
    with pytest.raises(KeyError):
        letters.update(chunks(["ab", "z"]), Letters())
    assert TokenVectors.load(letters.directory).info == letters.info
    assert [path.name for path in letters.directory.parent.iterdir()] == ["tokens"]


@pytest.mark.models
def test_vectors_of_another_precision_are_refused(tmp_path, minilm):
    TokenVectors.build(tmp_path / "tokens", chunks(TEXTS[:1]), minilm)
    with pytest.raises(InputError, match=r"are those of minilm \(384 .*not of minilm \(384 .*use the dtype"):
        load_reranker("maxsim", dtype="bfloat16", token_vectors=str(tmp_path / "tokens"))
    shutil.rmtree(tmp_path / "tokens")
    with pytest.raises(InputError, match="holds no token vectors"):
        load_reranker("maxsim", token_vectors=str(tmp_path / "tokens"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int4"}, "precision must be one of float16, int8, got 'int4'"),
        ({"dimension": 5}, "dimension must be at most the encoder's 4, got 5"),
        ({"dimension": 0}, "dimension must be a whole number, at least 1, got 0"),
    ],
)
def test_unusable_options(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        TokenVectors.build(tmp_path / "tokens", chunks(["a"]), Letters(), **options)


@pytest.mark.models
def test_the_pipeline_reads_what_lies_beside_its_store(tmp_path, minilm):
    store = tmp_path / "store"
    VectorStore.build(chunks(TEXTS), minilm).save(store)
    config = {"store": str(store), "reranker": "maxsim", "search": {"budget": 30}}
    assert Corag.from_config(config).reranker("maxsim")._stored is None
    TokenVectors.build(beside(store), chunks(TEXTS), minilm)
    corag = Corag.from_config(config)
    assert len(corag.reranker("maxsim")._stored) == len(TEXTS)
    assert corag.search(QUERY).chunks[0].text in (TEXTS[0], TEXTS[2])
    without = Corag.from_config(config | {"rerankers": {"maxsim": {"token_vectors": None}}})
    assert without.reranker("maxsim")._stored is None


@pytest.mark.models
def test_the_command_writes_them(tmp_path, capsys):
    pytest.importorskip("gguf")
    from corag_agent.cli import main

    corpus = tmp_path / "corpus.json"
    asked = [{"id": "q", "question": QUERY, "answers": [{"answer_start": 0, "text": "Light"}]}]
    articles = [
        {"title": f"d{number}", "paragraphs": [{"context": text, "qas": asked if number == 2 else []}]}
        for number, text in enumerate(TEXTS)
    ]
    corpus.write_text(json.dumps({"version": "1.1", "data": articles}))
    arguments = ["index", "--data", f"squad:{corpus}", "--out", str(tmp_path / "store"), "--token_vectors", "int8"]
    assert main(arguments) == 0, capsys.readouterr().err
    stored = TokenVectors.load(beside(tmp_path / "store"))
    assert all(chunk.text in stored for chunk in VectorStore.load(tmp_path / "store").chunks) and len(stored) == 5
    gone = VectorStore.load(tmp_path / "store").chunks[1]
    assert main(["index", "--remove", gone.metadata["document"], "--out", str(tmp_path / "store")]) == 0
    followed = TokenVectors.load(beside(tmp_path / "store"))
    assert gone.text not in followed and len(followed) == 4


def test_nothing_to_encode(tmp_path, letters):
    for make in (lambda: TokenVectors.build(tmp_path / "x", [], Letters()), lambda: letters.update([], Letters())):
        with pytest.raises(InputError, match="there are no chunks to encode"):
            make()
