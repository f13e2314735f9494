"""Tokenizers: SmolLM2's against llama.cpp itself, offsets, and errors."""

from __future__ import annotations

import random

import httpx
import numpy as np
import pytest

from corag_search.errors import InputError
from corag_search.tokenizers import load_tokenizer

TEXTS = [
    "",
    " ",
    "   ",
    "Hello world",
    " leading and trailing  ",
    "a\n\n\nb\t\tc  \n d\r\n\r\n",
    "don't we'll I'VE they're",
    "请解释光合作用的过程，并列出影响其效率的因素。",
    "😀👩‍🚀 é é 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "price 12345.67 ½ ② ٣٤ Ⅷ x²",
    "def f(x):\n    return x ** 2  # ok\n\n\tpass\n",
    "<|im_start|>user\nhi<|im_end|> after",
    "\u00a0nbsp \u3000 ideographic \u2028",
    "สวัสดี हिन्दी العربية עברית",
    "\x00\x01\x06\x7f control",
    "https://example.org/a?b=c&d=%20 -- __init__ <html>",
]
PIECES = [
    "a",
    "B",
    " ",
    "  ",
    "\n",
    "\t",
    "1",
    "9",
    "'s",
    "é",
    "光",
    "😀",
    "ท",
    "-",
    "_",
    "...",
    "\u00a0",
    "\u0301",
    "𠀀",
]


@pytest.fixture(scope="module")
def smollm2():
    pytest.importorskip("gguf")
    return load_tokenizer("smollm2")


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("xllamacpp")
    from corag_search.generators import load_generator

    generator = load_generator("smollm2", n_ctx=256, threads=1)
    with httpx.Client(base_url=generator.address) as client:
        yield client
    generator.close()


@pytest.mark.models
def test_smollm2_gives_the_ids_of_llama_cpp(smollm2, server):
    draw = random.Random(0)
    texts = TEXTS + ["".join(draw.choices(PIECES, k=draw.randint(1, 14))) for _ in range(150)]
    expected = [server.post("/tokenize", json={"content": t, "add_special": False}).json()["tokens"] for t in texts]
    assert smollm2.ids(texts) == expected
    assert smollm2.count(texts) == [len(ids) for ids in expected]


@pytest.mark.models
def test_digits_are_single_and_special_tokens_whole(smollm2):
    assert smollm2.count(["12345", "<|im_end|>", ""]) == [5, 1, 0]


@pytest.mark.models
@pytest.mark.parametrize("name", ["smollm2", "minilm"])
def test_offsets_lie_in_the_text_and_match_the_count(name):
    tokenizer = load_tokenizer(name)
    for text in TEXTS:
        offsets = tokenizer.offsets(text)
        assert offsets.shape == (tokenizer.count([text])[0], 2)
        assert np.issubdtype(offsets.dtype, np.integer)
        assert (offsets[:, 0] <= offsets[:, 1]).all()
        assert not len(offsets) or (offsets.min() >= 0 and offsets.max() <= len(text))


@pytest.mark.models
def test_smollm2_offsets_cover_every_character(smollm2):
    for text in TEXTS:
        if "\x06" in text:  # no token for this byte, neither here nor in llama.cpp
            continue
        covered = {place for start, end in smollm2.offsets(text).tolist() for place in range(start, end)}
        assert covered == set(range(len(text)))


@pytest.mark.models
def test_minilm_is_not_truncated():
    assert load_tokenizer("minilm").count(["word " * 2000]) == [2000]


@pytest.mark.models
def test_names_are_loaded_once_and_fingerprints_differ(smollm2):
    assert load_tokenizer("smollm2") is smollm2
    minilm = load_tokenizer("minilm")
    assert smollm2.name == "smollm2" and len(smollm2.fingerprint) == 16
    assert smollm2.fingerprint != minilm.fingerprint


def _save(path, words):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(path))


def test_a_file_and_its_directory_are_the_same_tokenizer(tmp_path):
    _save(tmp_path / "tokenizer.json", ["?", "red", "apple"])
    file, folder = load_tokenizer(str(tmp_path / "tokenizer.json")), load_tokenizer(str(tmp_path))
    assert file.fingerprint == folder.fingerprint
    assert file.count(["red apple red apple"]) == [4]  # neither cut to 2 nor filled to 9
    assert file.offsets("red  apple").tolist() == [[0, 3], [5, 10]]


def test_what_cannot_be_loaded_says_why(tmp_path, monkeypatch):
    import tokenizers

    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"is no tokenizer\.json"):
        load_tokenizer(str(tmp_path))
    with pytest.raises(InputError, match="no tokenizer at"):
        load_tokenizer(str(tmp_path / "missing.json"))

    class Offline:
        @staticmethod
        def from_pretrained(name):
            raise OSError("no network\nat all")

    monkeypatch.setattr(tokenizers, "Tokenizer", Offline)
    with pytest.raises(InputError, match=r"'smolm2' is none of smollm2, minilm.*no network$"):
        load_tokenizer("smolm2")


def test_a_single_string_is_refused(tmp_path):
    _save(tmp_path / "tokenizer.json", ["?", "red"])
    with pytest.raises(InputError, match="put it in a list"):
        load_tokenizer(str(tmp_path)).count("red")
