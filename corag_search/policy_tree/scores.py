"""Each combination of a query and reranker is scored once, in as few batches as the reranker allows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.policy_tree.tree import Order
from corag_search.rerankers.base import Reranker, Session, checked_scores


class ScoreMemo:
    """Benefits of one query's combinations under one reranker, shared by every search that asks.

    Attributes:
        evaluations: Combinations that the reranker scored.
    """

    def __init__(self, query: str, candidates: Sequence[Chunk], reranker: Reranker) -> None:
        self.query = query
        self.candidates = candidates
        self.reranker = reranker
        self._scores: dict[Hashable, float] = {}
        self._pending: dict[Hashable, Order] = {}
        self._session: Session | None = None

    @property
    def evaluations(self) -> int:
        return len(self._scores)

    def keys(self, orders: Sequence[Order]) -> Sequence[Hashable]:
        """What tells combinations apart: the order, or the bit mask of its members where order is ignored."""
        return orders if self.reranker.order_sensitive else [sum(1 << i for i in order) for order in orders]

    def ask(self, orders: Sequence[Order], keys: Sequence[Hashable] | None = None) -> None:
        """Put the orders that have no score yet into the next batch; `keys` are theirs, where they are at hand."""
        scores, pending = self._scores, self._pending
        for key, order in zip(self.keys(orders) if keys is None else keys, orders, strict=True):
            if key not in scores and key not in pending:
                pending[key] = order

    def of(self, orders: Sequence[Order], keys: Sequence[Hashable] | None = None) -> NDArray[np.float64]:
        """Scores of orders that were asked for and scored, `[n]`."""
        return np.array([self._scores[key] for key in (self.keys(orders) if keys is None else keys)])

    def _combinations(self) -> list[list[Chunk]]:
        return [[self.candidates[i] for i in order] for order in self._pending.values()]

    def _take(self, scores: NDArray[np.float64]) -> None:
        self._scores.update(zip(self._pending, scores.tolist(), strict=True))
        self._pending = {}

    def _score_alone(self) -> None:
        name, count = self.reranker.name, len(self._pending)
        if hasattr(self.reranker, "open"):
            if self._session is None:
                self._session = self.reranker.open(self.query, self.candidates)
            scores = self._session.score(list(self._pending.values()))
        else:
            scores = self.reranker.score(self.query, self._combinations())
        self._take(checked_scores(scores, count, name))


class SharedScores:
    """A reranker for one query and its candidates, with the scores of all who use it in one memo.

    Labelling runs searches and baselines over the same combinations; through this, each is scored once for all.

    Attributes:
        memo: The scores so far.
    """

    def __init__(self, query: str, candidates: Sequence[Chunk], reranker: Reranker) -> None:
        self.memo = ScoreMemo(query, candidates, reranker)
        self.name = reranker.name
        self.order_sensitive = reranker.order_sensitive
        self.max_tokens = reranker.max_tokens
        if hasattr(reranker, "count_tokens"):
            self.count_tokens = reranker.count_tokens

    def open(self, query: str, candidates: Sequence[Chunk]) -> _SharedSession:
        return _SharedSession(self._own(query, candidates))

    def score(self, query: str, combinations: Sequence[Sequence[Chunk]]) -> NDArray[np.float64]:
        index = {id(chunk): i for i, chunk in enumerate(self.memo.candidates)}
        return self.open(query, self.memo.candidates).score([tuple(index[id(c)] for c in own) for own in combinations])

    def _own(self, query: str, candidates: Sequence[Chunk]) -> ScoreMemo:
        if query != self.memo.query or list(map(id, candidates)) != list(map(id, self.memo.candidates)):
            raise InputError(f"scores are shared for the query {self.memo.query!r} and its candidates, got {query!r}")
        return self.memo


class _SharedSession:
    def __init__(self, memo: ScoreMemo) -> None:
        self._memo = memo

    def score(self, orders: Sequence[Order]) -> NDArray[np.float64]:
        self._memo.ask(orders)
        score_pending([self._memo])
        return self._memo.of(orders)


def score_pending(memos: Sequence[ScoreMemo]) -> None:
    """Score what the memos were asked for: one batch for each reranker that can pair queries with combinations."""
    waiting: dict[int, list[ScoreMemo]] = {}
    for memo in dict.fromkeys(memos):  # searches that share scores share their memo
        if memo._pending:
            waiting.setdefault(id(memo.reranker), []).append(memo)
    for group in waiting.values():
        reranker = group[0].reranker
        if len(group) == 1 or not hasattr(reranker, "score_pairs"):
            for memo in group:
                memo._score_alone()
            continue
        combinations = [memo._combinations() for memo in group]
        queries = [memo.query for memo, own in zip(group, combinations, strict=True) for _ in own]
        flat = [combination for own in combinations for combination in own]
        scores = checked_scores(reranker.score_pairs(queries, flat), len(flat), reranker.name)
        for memo, part in zip(group, np.split(scores, np.cumsum([len(own) for own in combinations])[:-1]), strict=True):
            memo._take(part)
