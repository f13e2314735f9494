"""What a composite reranker sees of a combination: its parts' scores, its cost and its redundancy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.lexical import lexical_tokens
from corag_search.rerankers.base import Reranker, Scores, checked_scores
from corag_search.rerankers.session import reduce_orders

Order = tuple[int, ...]
Features = NDArray[np.float64]

# By part: its score of the whole combination, and the best and mean of its scores of the single chunks.
OF_PART = ("score", "best", "mean")
OF_COMBINATION = ("log_cost", "redundancy")
_LEAST_SPREAD = 0.01  # benefits that differ by less are taken for equal


def feature_names(parts: Sequence[str]) -> tuple[str, ...]:
    """Of the columns of `CombinationFeatures.of`.

    Example:
        >>> feature_names(["bm25"])
        ('bm25.score', 'bm25.best', 'bm25.mean', 'log_cost', 'redundancy')
    """
    return (*(f"{part}.{kind}" for part in parts for kind in OF_PART), *OF_COMBINATION)


class CombinationFeatures:
    """One query with its candidates: the features of their combinations.

    The features of a part are relative: less the mean and divided by the standard deviation of the part's scores of the
    single candidates, since what is much for one reranker, or one query, is little for another. Single chunks are
    scored once, when this is made; so a combination costs what its parts ask for it, and one of a single chunk nothing.

    Attributes:
        singles: Each part's score of each candidate alone, `[candidates, parts]`.
    """

    def __init__(self, query: str, candidates: Sequence[Chunk], parts: Sequence[Reranker]) -> None:
        """Score the candidates one by one.

        Args:
            query: The question.
            candidates: At least one.
            parts: In the order of the features.

        Raises:
            InputError: A part's scores are unusable.
            RerankerError: A part failed.
        """
        self._parts = [_Part(part, query, candidates) for part in parts]
        self.singles = np.stack([part.score([(i,) for i in range(len(candidates))]) for part in self._parts], axis=1)
        self._center = self.singles.mean(axis=0)
        self._spread = np.maximum(self.singles.std(axis=0), _LEAST_SPREAD)
        self._cost = np.array([[chunk.cost] for chunk in candidates], np.float64)
        self._overlap = lexical_overlap([chunk.text for chunk in candidates])

    def scores(self, orders: Sequence[Order]) -> Scores:
        """Each part's benefit of each combination, `[n, parts]`; none of the orders is empty."""
        scores = np.empty((len(orders), len(self._parts)))
        joint = [row for row, order in enumerate(orders) if len(order) > 1]
        alone = [row for row, order in enumerate(orders) if len(order) == 1]
        scores[alone] = self.singles[[orders[row][0] for row in alone]]
        if joint:
            asked = [orders[row] for row in joint]
            scores[joint] = np.stack([part.score(asked) for part in self._parts], axis=1)
        return scores

    def of(self, orders: Sequence[Order], scores: Scores | None = None) -> Features:
        """Features of combinations.

        Args:
            orders: n tuples of candidate indices, none of them empty.
            scores: Of `scores(orders)`, where they are at hand.

        Returns:
            `[n, features]`, in the order of `feature_names`.
        """
        lengths = np.fromiter(map(len, orders), np.float64, len(orders))[:, None]
        raw = np.stack(
            [
                self.scores(orders) if scores is None else scores,
                reduce_orders(np.maximum, self.singles, orders),
                reduce_orders(np.add, self.singles, orders) / lengths,
            ],
            axis=2,
        )  # [n, parts, kinds]
        relative = (raw - self._center[:, None]) / self._spread[:, None]
        log_cost = np.log(reduce_orders(np.add, self._cost, orders))
        return np.hstack([relative.reshape(len(orders), -1), log_cost, self._redundancy(orders)[:, None]])

    def _redundancy(self, orders: Sequence[Order]) -> Features:
        """Mean overlap of the pairs of chunks in each combination, `[n]`; 0 for a single one."""
        pairs = [(row, *pair) for row, order in enumerate(orders) for pair in combinations(sorted(order), 2)]
        if not pairs:
            return np.zeros(len(orders))
        rows, left, right = np.array(pairs).T
        sums = np.bincount(rows, self._overlap[left, right], len(orders))
        return sums / np.maximum(np.bincount(rows, minlength=len(orders)), 1)


def lexical_overlap(texts: Sequence[str]) -> NDArray[np.float64]:
    """Jaccard's coefficient of each two texts' sets of words, `[n, n]`; zeros on the diagonal."""
    words = [set(lexical_tokens(text)) for text in texts]
    overlap = np.zeros((len(texts), len(texts)))
    for row, own in enumerate(words):
        for column in range(row):
            union = len(own | words[column])
            overlap[row, column] = overlap[column, row] = len(own & words[column]) / union if union else 0.0
    return overlap


class _Part:
    """One part with the query and its candidates, in a session where it keeps one."""

    def __init__(self, part: Reranker, query: str, candidates: Sequence[Chunk]) -> None:
        self._part, self._query, self._candidates = part, query, candidates
        self._session = part.open(query, candidates) if hasattr(part, "open") else None

    def score(self, orders: Sequence[Order]) -> Scores:
        """Benefits `[n]`."""
        if self._session is not None:
            scores = self._session.score(orders)
        else:
            scores = self._part.score(self._query, [[self._candidates[i] for i in order] for order in orders])
        return checked_scores(scores, len(orders), self._part.name)
