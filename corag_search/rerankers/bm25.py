"""Lexical reranker: BM25 with the candidates as the collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.lexical import K1, B, inverse_document_frequency, lexical_tokens
from corag_search.rerankers.base import Combinations, Scores
from corag_search.rerankers.session import reduce_orders, score_in_session


class BM25Reranker:
    """BM25 of a combination as one document, the union of its chunks' texts.

    Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond* (2009), with the idf of Lucene:

        score(q, D) = Σ_t idf(t) · tf(t, D) · (k1 + 1) / (tf(t, D) + k1 · (1 − b + b · |D| / avgdl))
        idf(t) = ln(1 + (N − df(t) + ½) / (df(t) + ½))

    over the query's tokens t, repeated ones repeatedly; N, df and avgdl are those of the candidates, each one a
    document. Divided by Σ_t idf(t) · (k1 + 1), which no document reaches, so benefits lie in [0, 1).

    Attributes:
        name: "bm25".
        order_sensitive: False.
        max_tokens: None, there is no limit.
    """

    name = "bm25"
    order_sensitive = False
    max_tokens: int | None = None

    def __init__(self, k1: float = K1, b: float = B) -> None:
        """Choose the parameters.

        Args:
            k1: Saturation of the term frequency, above 0.
            b: Share of the length normalisation, in [0, 1].

        Raises:
            InputError: A value outside its range.
        """
        if not 0 < k1 < np.inf:
            raise InputError(f"k1 must be a finite number above 0, got {k1!r}")
        if not 0 <= b <= 1:
            raise InputError(f"b must lie in [0, 1], got {b!r}")
        self.k1, self.b = k1, b

    def open(self, query: str, candidates: Sequence[Chunk]) -> BM25Session:
        """Count the query's tokens in each candidate once."""
        terms = Counter(lexical_tokens(query))
        tokens = [lexical_tokens(chunk.text) for chunk in candidates]
        counts = np.zeros((len(candidates), len(terms) + 1))
        for row, words in enumerate(tokens):
            found = Counter(words)
            counts[row, :-1] = [found[term] for term in terms]
            counts[row, -1] = len(words)
        return BM25Session(counts, np.fromiter(terms.values(), np.float64, len(terms)), self.k1, self.b)

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits `[n]`; the statistics are those of the distinct chunks in the call."""
        return score_in_session(self, query, combinations)


class BM25Session:
    """Counts of one query's tokens in its candidates.

    Attributes:
        occurs: Whether each distinct term of the query occurs in each candidate, `[candidates, terms]`.
    """

    def __init__(self, counts: NDArray[np.float64], weights: NDArray[np.float64], k1: float, b: float) -> None:
        """Derive the statistics of the collection.

        Args:
            counts: `[candidates, terms + 1]`: occurrences of each query term, and the length in tokens.
            weights: `[terms]`: occurrences of each term in the query.
            k1: Saturation of the term frequency.
            b: Share of the length normalisation.
        """
        self.occurs = counts[:, :-1] > 0
        gain = weights * inverse_document_frequency(len(counts), self.occurs.sum(axis=0))
        self._gain = gain / gain.sum() if len(gain) else gain  # k1 + 1 is above and below the line
        self._average = counts[:, -1].mean() if counts[:, -1].any() else 1.0
        self._counts, self._k1, self._b = counts, k1, b

    def score(self, orders: Sequence[tuple[int, ...]]) -> Scores:
        """Benefits `[n]` in [0, 1)."""
        totals = reduce_orders(np.add, self._counts, orders)
        occurrences, lengths = totals[:, :-1], totals[:, -1:]
        saturation = self._k1 * (1 - self._b + self._b * lengths / self._average)
        # The sum is 0 only where a term does not occur and b = 1 meets an empty text.
        return (occurrences / np.maximum(occurrences + saturation, 1e-12)) @ self._gain
