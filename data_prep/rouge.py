"""ROUGE for any script: rouge-score's own numbers where its tokenizer reads the text, a Unicode tokenizer elsewhere."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from corag_search.errors import InputError
from corag_search.scripts import is_unspaced

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer


class Rouge(NamedTuple):
    """F-measures in [0, 1] (Lin 2004): of shared words, of shared word pairs, of the longest common subsequence."""

    rouge1: float
    rouge2: float
    rougeL: float


def rouge_scores(reference: str, answer: str) -> Rouge:
    """How much of the reference the answer has, and little else.

    Exactly rouge-score's numbers (without stemming) unless either text has a letter of a script without spaces between
    words, or mostly letters outside ASCII. The library drops those: it gives two equal Chinese texts 0, and two that
    share their only Latin word 1. English stays its own with an é or a β too. Texts without words score 0.

    >>> rouge_scores("the tower is tall", "the tall tower")
    Rouge(rouge1=0.8571428571428571, rouge2=0.0, rougeL=0.5714285714285715)
    >>> rouge_scores("NADPH增加", "NADPH减少").rougeL
    0.3333333333333333
    """
    scores = _scorer(_is_for_library(reference) and _is_for_library(answer)).score(reference, answer)
    return Rouge(*(float(scores[measure].fmeasure) for measure in Rouge._fields))


def best_of(references: Sequence[str], answer: str) -> Rouge:
    """Each measure's greatest value over several references, as rouge-score's `score_multi`.

    Raises:
        InputError: There are no references.
    """
    if isinstance(references, str) or not references:
        raise InputError(f"references must be a sequence of at least one text, got {references!r}")
    scores = [rouge_scores(reference, answer) for reference in references]
    return Rouge(*(max(values) for values in zip(*scores, strict=True)))


@lru_cache(maxsize=2)
def _scorer(library: bool) -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer  # takes a second, so only once it is needed
    from rouge_score.tokenizers import DefaultTokenizer

    # Named, for a scorer that takes its default says so, which sets up Python's logging for the whole process.
    tokenizer = DefaultTokenizer(use_stemmer=False) if library else UnicodeTokenizer()
    return RougeScorer(list(Rouge._fields), tokenizer=tokenizer)


def _is_for_library(text: str) -> bool:
    """Whether rouge-score's tokenizer, which reads a-z and 0-9, takes in what there is."""
    if text.isascii():
        return True
    letters = [c for c in text if c.isalpha()]
    mostly_ascii = 2 * sum(c.isascii() for c in letters) >= len(letters)
    return mostly_ascii and not any(map(is_unspaced, _normalised(text)))


class UnicodeTokenizer:
    """Words of any script, for `RougeScorer(tokenizer=…)`.

    Lower-cased and NFKC-normalised; runs of a-z and 0-9 are tokens, as in rouge-score; so is every letter of a script
    without spaces between words, with its combining marks; so are runs of all other letters, marks and digits.

    >>> UnicodeTokenizer().tokenize("ATP与ＮＡＤＰＨ, один ที่")
    ['atp', '与', 'nadph', 'один', 'ที่']
    """

    def tokenize(self, text: str) -> list[str]:
        tokens: list[str] = []
        before = _OTHER
        for character in _normalised(text):
            kind = _kind(character)
            if kind == _FORMAT:
                continue
            if kind == _MARK:
                # A mark belongs to the letter before it; on a-z (or on nothing) there is nothing it could change.
                kind = before if before in (_UNSPACED, _WORD) else _OTHER
                if kind != _OTHER:
                    tokens[-1] += character
            elif kind in (_ASCII, _WORD) and kind == before:
                tokens[-1] += character
            elif kind != _OTHER:
                tokens.append(character)
            before = kind
        return tokens


def _normalised(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()


_ASCII, _UNSPACED, _WORD, _MARK, _FORMAT, _OTHER = range(6)


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> int:
    category = unicodedata.category(character)
    if category == "Cf":
        return _FORMAT  # joiners and the like, which two spellings of one word may or may not have
    if category[0] == "M":
        return _MARK
    if category[0] not in "LN":
        return _OTHER
    if character.isascii():
        return _ASCII
    return _UNSPACED if is_unspaced(character) else _WORD
