"""Scripts that put no space between words, where a letter is counted as a word."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

CodePoints = tuple[tuple[int, int], ...]  # ranges, ends included

HAN: CodePoints = ((0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
KANA: CodePoints = ((0x3040, 0x30FF), (0x31F0, 0x31FF))
SOUTH_EAST_ASIAN: CodePoints = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0F00),  # Tibetan, without the marks that stand between its syllables
    (0x0F40, 0x0FBC),
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0xA9E0, 0xA9FF),  # Myanmar Extended-B
    (0xAA60, 0xAA7F),  # Myanmar Extended-A
)
_ALL = HAN + KANA + SOUTH_EAST_ASIAN

# All of them, for the inside of a regular expression's brackets.
UNSPACED = "".join(f"{chr(low)}-{chr(high)}" for low, high in _ALL)


@lru_cache(maxsize=1 << 16)
def is_unspaced(character: str) -> bool:
    """Whether it is a letter of a script without spaces between words (combining marks and digits are not letters).

    >>> [is_unspaced(c) for c in "光ไ한é7"]
    [True, True, False, False, False]
    """
    return unicodedata.category(character) in ("Lo", "Lm", "Nl") and within(character, _ALL)


def within(character: str, ranges: CodePoints) -> bool:
    """Whether a character lies in one of the ranges."""
    return any(low <= ord(character) <= high for low, high in ranges)
