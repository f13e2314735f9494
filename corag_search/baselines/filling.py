"""Filling a budget greedily: by gains that change with what was taken, or by a worth that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from corag_search.baselines.judge import Judge
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig, check_config
from corag_search.policy_tree.problem import check_affordable
from corag_search.policy_tree.search import AnyReranker
from corag_search.policy_tree.tree import Order, objective
from corag_search.result import SearchResult


def fill_by_gain(
    costs: NDArray[np.int64],
    budget: int,
    gains: Callable[[list[int]], NDArray[np.float64]],
    stop_at: float = -np.inf,
) -> Order:
    """Take the candidate of the greatest gain among those that still fit, again and again.

    Ties go to lower cost, then retrieval order (METHOD §3).

    Args:
        costs: `[k]` tokens.
        budget: Tokens, at least the smallest cost.
        gains: From the indices taken so far to what each candidate would add, `[k]`.
        stop_at: After the first, a gain of at most this ends it.
    """
    by_tie = np.argsort(costs, kind="stable")  # the first of several maxima is the one that the tie rule wants
    chosen: list[int] = []
    fits = costs <= budget
    while fits.any():
        worth = np.where(fits, gains(chosen), -np.inf)[by_tie]
        if chosen and worth.max() <= stop_at:
            break
        best = int(by_tie[worth.argmax()])
        chosen.append(best)
        budget -= int(costs[best])
        fits[best] = False
        fits &= costs <= budget
    return tuple(chosen)


def fill_by_worth(worth: NDArray[np.floating], costs: NDArray[np.int64], budget: int) -> Order:
    """Take candidates by falling worth `[k]`, passing over what does not fit; ties as for `fill_by_gain`."""
    cheapest = int(costs.min())
    chosen: list[int] = []
    for i in np.lexsort((costs, -worth)).tolist():  # stable: retrieval order last
        if costs[i] <= budget:
            chosen.append(i)
            budget -= int(costs[i])
        if budget < cheapest:
            break
    return tuple(chosen)


def fill_by_similarity(
    query: str,
    chunks: Sequence[Chunk],
    similarity: NDArray[np.floating],
    config: SearchConfig,
    reranker: AnyReranker | None = None,
) -> SearchResult:
    """Chunks by falling similarity until the budget is spent; one that does not fit is passed over.

    Args:
        query: The question, for the reranker.
        chunks: n chunks, no id twice.
        similarity: `[n]` with the query.
        config: Its budget and λ are used; `max_chunks` does not apply.
        reranker: Judge of what was chosen. None: the value is the mean similarity of the chosen chunks, each clipped
            to [0, 1], and no evaluation is counted.

    Returns:
        With `order` as indices into `chunks`: by falling similarity, or for a reranker that ignores order by falling
        single-chunk score, as everywhere.

    Raises:
        InputError: A budget below every cost.
    """
    check_config(config)
    check_affordable(chunks, config.budget)
    costs = np.fromiter((chunk.cost for chunk in chunks), np.int64, len(chunks))
    order = fill_by_worth(similarity, costs, config.budget)
    taken = tuple(chunks[i] for i in order)
    if reranker is not None:
        judged = Judge(query, taken, reranker, config).result(tuple(range(len(taken))))
        return replace(judged, order=tuple(order[i] for i in judged.order))
    value = float(np.clip(similarity[list(order)], 0.0, 1.0).mean())
    cost = sum(chunk.cost for chunk in taken)
    return SearchResult(order, taken, value, objective(value, cost, config), cost, evaluations=0)
