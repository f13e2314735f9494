"""A combination as one text and as token ids, and what of it a model with a token limit reads."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from corag_search.embedders.batches import Ids
from corag_search.errors import InputError
from corag_search.rerankers.base import Combinations
from corag_search.texts import check_text

CACHED_PIECES = 32_768  # texts; about 1 kB each with chunks of 96 tokens

# Normalizers that look at no more than a character, or at a cluster of them that a space does not begin.
_LOCAL = {None, "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Precompiled", "StripAccents"}


class Long(StrEnum):
    """What becomes of a combination above a model's token limit."""

    REFUSE = "refuse"  # the search does not make it; a single chunk is scored on what fits
    WINDOW = "window"  # it is scored over overlapping windows, and the best one counts


def joined(queries: Sequence[str], combinations: Combinations) -> list[str]:
    """The text of each combination, its chunks joined in order by a space (METHOD §4).

    Raises:
        InputError: Not as many queries as combinations.
    """
    check_pairs(queries, combinations)
    return [" ".join(chunk.text for chunk in combination) for combination in combinations]


def check_pairs(queries: Sequence[str], combinations: Combinations) -> None:
    """Refuse what is not one query per combination.

    Raises:
        InputError: Their numbers differ.
    """
    if len(queries) != len(combinations):
        raise InputError(
            f"score_pairs takes one query per combination, got {len(queries)} queries for {len(combinations)}"
        )


def windows(ids: Ids, room: int, long: Long) -> list[Ids]:
    """What is read of a row of token ids: all of it if it fits, else its start or overlapping windows.

    Args:
        ids: `[tokens]`.
        room: Tokens that fit, at least 1.
        long: Windows start half a window apart; the last one ends where the ids end.

    Example:
        >>> [row.tolist() for row in windows(np.arange(7), 4, Long.WINDOW)]
        [[0, 1, 2, 3], [2, 3, 4, 5], [3, 4, 5, 6]]
    """
    if len(ids) <= room or long is Long.REFUSE:
        return [ids[:room]]
    last = len(ids) - room
    return [ids[start : start + room] for start in (*range(0, last, max(1, room // 2)), last)]


class _Piece(NamedTuple):
    """A text's token ids, and whether they stay what they are when other texts are joined to it."""

    ids: Ids
    stands: bool


class JoinedTokens:
    """Token ids of joined texts, without special tokens. Safe to share between threads.

    A tokenizer that splits at white space before all else, and treats each part by itself, gives the joined text the
    ids of its pieces one after another: each text is tokenised once, as long as the cache holds it. With any other
    tokenizer, or where a piece begins or ends with a character that may merge with a space, the joined text is
    tokenised.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        """Take a tokenizer that neither cuts nor pads."""
        self._tokenizer = tokenizer
        self._word_by_word = _splits_first(json.loads(tokenizer.to_str()))
        self._piece = lru_cache(CACHED_PIECES)(self._encode)

    def of(self, texts: Sequence[str]) -> Ids:
        """Ids of the texts joined by a space, `[tokens]`."""
        pieces = [self._piece(text) for text in texts] if self._word_by_word or len(texts) == 1 else []
        if len(pieces) == 1:
            return pieces[0].ids
        if pieces and all(piece.stands for piece in pieces):
            return np.concatenate([piece.ids for piece in pieces])
        return self._encode(" ".join(texts)).ids

    def _encode(self, text: str) -> _Piece:
        check_text("text", text)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids = np.array(encoding.ids, np.int32)
        ids.flags.writeable = False  # it is shared
        return _Piece(ids, _stands(text[:1]) and _stands(text[-1:]))


def _splits_first(settings: dict[str, Any]) -> bool:
    """Whether a tokenizer, as its JSON describes it, splits at white space before all else and keeps no trace of it."""
    normalizer, splitter = settings["normalizer"], settings["pre_tokenizer"] or {}
    if (normalizer and normalizer["type"]) not in _LOCAL:
        return False
    if any(any(map(str.isspace, token["content"])) for token in settings["added_tokens"]):
        return False
    steps = splitter.get("pretokenizers", [splitter])
    kinds = [step.get("type") for step in steps]
    if kinds == ["WhitespaceSplit", "Metaspace"]:
        return steps[1]["prepend_scheme"] == "always"
    return kinds in (["BertPreTokenizer"], ["WhitespaceSplit"])


def _stands(character: str) -> bool:
    """Whether a character at the edge of a text never forms a cluster (Unicode UAX #29) with a space beside it.

    Said of fewer than do: below U+0300, and letters in one of two cases, digits, punctuation, symbols and spaces above,
    and the letters of Chinese, Japanese and Korean.
    """
    if character < "\u0300":  # the empty string, too
        return True
    kind = unicodedata.category(character)
    unspaced = "\u3040" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7a3"
    return kind in ("Lu", "Ll", "Sm", "Sc", "So") or kind[0] in "NPZ" or (kind == "Lo" and unspaced)
