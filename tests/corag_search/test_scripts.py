"""One definition of the scripts without spaces, for BM25, ROUGE and the counting of words."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from corag_search.lexical import lexical_tokens
from corag_search.scripts import HAN, KANA, is_unspaced
from data_prep.rouge import UnicodeTokenizer
from data_prep.scripts import word_spans


def stable(character: str) -> bool:
    """Not changed by the normalisation that comes before the words."""
    return unicodedata.normalize("NFKC", character).lower() == character


@pytest.mark.parametrize("ranges", [HAN, KANA], ids=["han", "kana"])
def test_every_han_and_kana_character_is_a_token_of_bm25(ranges: tuple[tuple[int, int], ...]) -> None:
    """Also the middle dot and what is not assigned yet: BM25's tokens must not change under a store's questions."""
    characters = [chr(point) for low, high in ranges for point in range(low, high + 1)]
    different = [c for c in characters if stable(c) and lexical_tokens(f"a{c}{c}b") != ["a", c, c, "b"]]
    assert different == []
    assert ranges[0] == {"han": (0x3005, 0x3007), "kana": (0x3040, 0x30FF)}["han" if ranges is HAN else "kana"]


def test_all_who_count_words_agree_on_the_letters() -> None:
    letters = [c for c in map(chr, range(sys.maxunicode + 1)) if is_unspaced(c) and stable(c)]
    tokenize = UnicodeTokenizer().tokenize
    assert len(letters) > 90_000
    assert [c for c in letters if lexical_tokens(c + c) != [c, c]] == []
    assert [c for c in letters if tokenize(c + c) != [c, c]] == []
    assert [c for c in letters if word_spans(c + c) != [(0, 1), (1, 2)]] == []


def test_the_mark_between_tibetan_syllables_is_no_word() -> None:
    assert lexical_tokens("ང་ཚོ་") == ["ང", "ཚ", "ོ"]
