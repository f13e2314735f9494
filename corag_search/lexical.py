"""BM25 over a whole collection: lexical words, an inverted index in arrays, scores."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag_search.registry import whole
from corag_search.scripts import UNSPACED

K1, B = 1.5, 0.75

# Marks that belong to the letter before them and that \w leaves out: Latin, Hebrew, Arabic, the scripts of India.
_MARKS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0971-\u0dff"
_TOKEN = re.compile(f"[{UNSPACED}]|(?:(?![{UNSPACED}])[\\w{_MARKS}])+")


def lexical_tokens(text: str) -> list[str]:
    """Lower-cased words; in scripts without spaces each character is one. Compatibility forms are folded (NFKC).

    Example:
        >>> lexical_tokens("The 2nd ＣＡＳＥ: 光合作用!")
        ['the', '2nd', 'case', '光', '合', '作', '用']
    """
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).lower())


def inverse_document_frequency(documents: int, frequency: NDArray[np.integer]) -> NDArray[np.float64]:
    """idf(t) = ln(1 + (N − df(t) + ½) / (df(t) + ½)), as Lucene has it; never negative."""
    return np.log1p((documents - frequency + 0.5) / (frequency + 0.5))


@dataclass(frozen=True, eq=False)
class LexicalIndex:
    """An inverted index. A row is a text; safe to search from several threads.

    Terms are kept as 64-bit hashes: among a million, two are alike with a probability of 3 · 10⁻⁸.

    Attributes:
        terms: Hashes of the distinct terms, ascending, `[terms]`.
        starts: Where each term's postings begin, `[terms + 1]`.
        rows: Text of each posting, ascending within a term, `[postings]`.
        counts: Occurrences of the term in that text, `[postings]`.
        lengths: Tokens of each text, `[texts]`.
    """

    terms: NDArray[np.uint64]
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.int32]
    lengths: NDArray[np.int32]

    ARRAYS = ("terms", "starts", "rows", "counts", "lengths")

    @classmethod
    def build(cls, texts: Iterable[str]) -> LexicalIndex:
        """Count the words of n texts."""
        known: dict[str, int] = {}
        terms, rows, counts, lengths = array("q"), array("i"), array("i"), array("i")
        for row, text in enumerate(texts):
            words = lexical_tokens(text)
            lengths.append(len(words))
            for word, count in Counter(words).items():
                terms.append(known.setdefault(word, len(known)))
                rows.append(row)
                counts.append(count)
        hashes = np.fromiter(map(_hash, known), np.uint64, len(known))
        return cls._of_postings(hashes[np.array(terms)], np.array(rows), np.array(counts), np.array(lengths))

    @classmethod
    def _of_postings(cls, terms: NDArray, rows: NDArray, counts: NDArray, lengths: NDArray) -> LexicalIndex:
        order = np.lexsort((rows, terms))
        distinct, starts = np.unique(terms[order], return_index=True)
        return cls(
            terms=distinct.astype(np.uint64),
            starts=np.append(starts, len(terms)).astype(np.int64),
            rows=rows[order].astype(np.int32),
            counts=counts[order].astype(np.int32),
            lengths=lengths.astype(np.int32),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def arrays(self) -> Mapping[str, NDArray]:
        """All that it holds, by name."""
        return {name: getattr(self, name) for name in self.ARRAYS}

    def extended(self, texts: Iterable[str]) -> LexicalIndex:
        """With more texts, whose rows follow those that are there."""
        more = LexicalIndex.build(texts)
        return self._of_postings(
            np.concatenate([self._posting_terms(), more._posting_terms()]),
            np.concatenate([self.rows, more.rows + len(self)]),
            np.concatenate([self.counts, more.counts]),
            np.concatenate([self.lengths, more.lengths]),
        )

    def only(self, rows: NDArray[np.integer]) -> LexicalIndex:
        """With some of the texts, in the order of `rows`."""
        position = np.full(len(self), -1)
        position[rows] = np.arange(len(rows))
        kept = position[self.rows] >= 0
        return self._of_postings(
            self._posting_terms()[kept], position[self.rows[kept]], self.counts[kept], self.lengths[rows]
        )

    def _posting_terms(self) -> NDArray[np.uint64]:
        return np.repeat(self.terms, np.diff(self.starts))

    def scores(self, query: str) -> NDArray[np.float64]:
        """BM25 of each text, `[texts]`; 0 where no word of the query occurs.

            score(q, D) = Σ_t idf(t) · tf(t, D) · (k1 + 1) / (tf(t, D) + k1 · (1 − b + b · |D| / avgdl))

        over the query's words t, repeated ones repeatedly, with k1 = 1.5 and b = 0.75 (Robertson and Zaragoza,
        *The Probabilistic Relevance Framework: BM25 and Beyond*, 2009).
        """
        scores = np.zeros(len(self))
        average = self.lengths.mean() if len(self) and self.lengths.any() else 1.0
        for word, repeats in Counter(lexical_tokens(query)).items():
            term = np.uint64(_hash(word))
            place = int(np.searchsorted(self.terms, term))
            if place == len(self.terms) or self.terms[place] != term:
                continue
            postings = slice(int(self.starts[place]), int(self.starts[place + 1]))
            rows, counts = self.rows[postings], self.counts[postings]
            idf = inverse_document_frequency(len(self), np.array(len(rows)))
            saturation = K1 * (1 - B + B * self.lengths[rows] / average)
            scores[rows] += repeats * idf * counts * (K1 + 1) / (counts + saturation)
        return scores

    def search(self, query: str, k: int) -> list[int]:
        """Rows of the k best texts, best first; those in which no word of the query occurs are left out.

        Ties go to the smaller row.

        Raises:
            InputError: k is no whole number of at least 1.
        """
        k = whole("candidates", k)
        scores = self.scores(query)
        found = np.flatnonzero(scores)
        if len(found) > k:
            least = np.partition(scores[found], -k)[-k]
            found = found[scores[found] >= least]
        return found[np.argsort(-scores[found], kind="stable")][:k].tolist()


def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def shared_ranking(rankings: Sequence[Sequence[str]]) -> list[str]:
    """Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009): Σ over rankings of 1 / (60 + rank).

    Args:
        rankings: Ids, best first; each ranking holds an id once at most.

    Returns:
        All ids, best first. Ties go to the one that stands first in the first rankings.

    Example:
        >>> shared_ranking([["a", "b"], ["b", "c"]])
        ['b', 'a', 'c']
    """
    worth: dict[str, float] = {}
    for ranking in rankings:
        for rank, name in enumerate(ranking, 1):
            worth[name] = worth.get(name, 0.0) + 1.0 / (60.0 + rank)
    return sorted(worth, key=lambda name: -worth[name])  # stable: first seen first
