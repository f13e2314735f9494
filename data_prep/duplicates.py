"""Questions that ask the same in nearly the same words."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence

from data_prep.groups import connected
from data_prep.scripts import word_spans

__all__ = ["SIMILAR", "duplicate_groups", "word_set"]

SIMILAR = 0.85  # of a dozen words, one may be another


def duplicate_groups(texts: Sequence[str], similar: float = SIMILAR) -> list[list[int]]:
    """Groups of texts that are the same, or nearly so, by their sets of words (Jaccard index).

    Exact: every pair at or above the threshold is found, by a join with prefix and length filters (Chaudhuri et al.
    2006, Bayardo et al. 2007), since two such texts share one of their rarest words. Case, punctuation and width do
    not count; in scripts without spaces, characters are the words.

    >>> duplicate_groups(["Who built it?", "How tall is the tower?", "who built it", "How tall is this tower?"])
    [[0, 2]]

    Args:
        texts: Questions.
        similar: Share of the words of both that they have in common, above 0 and at most 1.

    Returns:
        The indices of each group, rising; a text that is like no other is in none. Being alike is taken to be
        transitive.
    """
    alike: dict[frozenset[str], list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        alike[word_set(text)].append(index)
    sets = list(alike)
    pairs: list[list[tuple[int, int]]] = [[] for _ in sets]
    for pair in _similar_pairs(sets, similar):
        for index in pair:
            pairs[index].append(pair)
    groups: dict[int, list[int]] = defaultdict(list)
    for number, words in zip(connected(pairs).tolist(), sets, strict=True):
        groups[number] += alike[words]
    return sorted(sorted(group) for group in groups.values() if len(group) > 1)


def _similar_pairs(sets: Sequence[frozenset[str]], similar: float) -> list[tuple[int, int]]:
    frequency = Counter(word for words in sets for word in words)
    by_rarity = [sorted(words, key=lambda word: (frequency[word], word)) for words in sets]
    holding: dict[str, list[int]] = defaultdict(list)  # shorter sets that have the word in their prefix
    pairs = []
    for one in sorted(range(len(sets)), key=lambda index: len(sets[index])):
        words, size = by_rarity[one], len(sets[one])
        prefix = words[: size - math.ceil(similar * size - 1e-9) + 1]
        for other in {candidate for word in prefix for candidate in holding[word]}:
            common = len(sets[one] & sets[other])
            if common >= similar * (size + len(sets[other]) - common) - 1e-9:
                pairs.append((one, other))
        for word in prefix:
            holding[word].append(one)
    return pairs


def word_set(text: str) -> frozenset[str]:
    """The words that are compared.

    >>> sorted(word_set("Who built the Tower?"))
    ['built', 'the', 'tower', 'who']
    """
    plain = "".join(c if c.isalnum() or c.isspace() else " " for c in unicodedata.normalize("NFKC", text).casefold())
    # A text of punctuation alone is like itself and nothing else.
    return frozenset(plain[start:end] for start, end in word_spans(plain)) or frozenset([text])
