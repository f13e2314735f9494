"""What a text's script tells: where its words are, and sometimes its language."""

from __future__ import annotations

import re
import unicodedata

from corag_search.scripts import HAN, KANA, UNSPACED, within

_SAMPLE = 2000  # characters that show a text's language
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Offsets of the words: what stands between spaces, and every single character of a script without spaces.

    >>> [text[a:b] for text in ["two words, 光合"] for a, b in word_spans(text)]
    ['two', 'words,', '光', '合']
    """
    return [match.span() for match in _WORD.finditer(text)]


def guess_language(text: str) -> str:
    """`zh` when most letters are Han and none is kana; otherwise unknown, the empty string.

    >>> guess_language("光合作用 (photosynthesis)"), guess_language("photosynthesis"), guess_language("これは本です")
    ('', '', '')
    >>> guess_language("光合作用制造ATP")
    'zh'
    """
    if text.isascii():
        return ""
    letters = [c for c in text[:_SAMPLE] if unicodedata.category(c)[0] == "L"]
    if any(within(letter, KANA) for letter in letters):
        return ""
    han = sum(within(letter, HAN) for letter in letters)
    return "zh" if 2 * han > len(letters) else ""
