"""What Unicode scripts mean for counting words: in some of them, words are not separated by spaces."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Code point ranges of the scripts that put no space between words.
_HAN = (
    (0x2E80, 0x2FDF),  # radicals
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_KANA = ((0x3041, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0x30FF), (0x31F0, 0x31FF), (0x1B000, 0x1B16F))
_SOUTH_EAST_ASIAN = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0xA9E0, 0xA9FF),  # Myanmar Extended-B
    (0xAA60, 0xAA7F),  # Myanmar Extended-A
)
_SAMPLE = 2000  # characters that show a text's language
_UNSPACED = _HAN + _KANA + _SOUTH_EAST_ASIAN


@lru_cache(maxsize=1 << 16)
def is_unspaced(character: str) -> bool:
    """Whether it is a letter of a script without spaces between words (combining marks and digits are not letters).

    >>> [is_unspaced(c) for c in "光ไ한é7"]
    [True, True, False, False, False]
    """
    point = ord(character)
    return unicodedata.category(character) in ("Lo", "Lm", "Nl") and any(a <= point <= b for a, b in _UNSPACED)


def _char_class(ranges: tuple[tuple[int, int], ...]) -> str:
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges)


_WORD = re.compile(rf"[{_char_class(_UNSPACED)}]|[^\s{_char_class(_UNSPACED)}]+")


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
    letters = [ord(c) for c in text[:_SAMPLE] if unicodedata.category(c)[0] == "L"]
    if any(low <= point <= high for point in letters for low, high in _KANA):
        return ""
    han = sum(any(low <= point <= high for low, high in _HAN) for point in letters)
    return "zh" if 2 * han > len(letters) else ""
