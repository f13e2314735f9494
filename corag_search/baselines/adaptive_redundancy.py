"""AdaGReS: relevance minus pairwise redundancy, with a trade-off computed from the candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag_search.baselines.filling import fill_by_gain
from corag_search.baselines.judge import Judge
from corag_search.baselines.vectors import unit_rows
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.policy_tree.search import AnyReranker
from corag_search.result import SearchResult

_NO_GAIN = 1e-9  # a gain of 0 with the noise of rounding: β* makes exact zeros likely


def adagres(
    query: str,
    candidates: Sequence[Chunk],
    reranker: AnyReranker,
    config: SearchConfig | None = None,
    *,
    embeddings: NDArray[np.floating],
    query_embedding: NDArray[np.floating] | None = None,
    trade_off: float | None = None,
) -> SearchResult:
    """Fill the budget greedily by F(q, C) = Σ rel(q, c) − β · Σ over pairs of cos(c, c′), until nothing raises it.

    C. Peng, B. Wang, Z. Long, J. Sheng, *AdaGReS: Adaptive Greedy Context Selection via Redundancy-Aware Scoring for
    Token-Budgeted RAG*, arXiv:2512.25052, with α = 1. Each step takes the chunk of the greatest marginal gain
    rel(q, x) − β · Σ over taken c of cos(x, c) that fits; it ends when no gain is positive or the budget is spent.
    `max_chunks` does not apply.

    The paper's text was not at hand: objective, gain, closed form (`adaptive_trade_off`) and stopping rule were taken
    from a summary of it and agree with the authors' program (github.com/orderer0001/AdaGReS), but for the following
    **[ours]**: the program takes a fixed number of chunks and does not stop at a gain of 0; it measures lengths in
    characters, here tokens are counted; the first chunk is taken even if its gain is 0, so that there is a result;
    and relevance is the reranker's single score unless `query_embedding` is given (the paper's is the cosine).

    Args:
        query: The question.
        candidates: Retrieved chunks, best first.
        reranker: As for `search_policy_tree`; value and objective are its scores of the combination chosen.
        config: Settings.
        embeddings: Of the candidates, `[k, d]`, of any length; their cosines are compared.
        query_embedding: `[d]`. When given, relevance is its cosine with each candidate, as in the paper.
        trade_off: β, at least 0; None for `adaptive_trade_off` over the candidates that fit the budget alone.

    Raises:
        InputError: As `search_policy_tree`, embeddings of another shape, or a trade-off below 0.
    """
    if trade_off is not None and (
        not isinstance(trade_off, int | float)
        or isinstance(trade_off, bool)
        or not (math.isfinite(trade_off) and trade_off >= 0)
    ):
        raise InputError(
            f"trade_off must be a finite number, at least 0, or None for the adaptive one, got {trade_off!r}"
        )
    judge = Judge(query, candidates, reranker, config)
    units = unit_rows("embeddings", embeddings, len(judge.candidates)).astype(np.float64)
    similarity = units @ units.T
    if query_embedding is None:
        relevance = judge.single_scores(judge.config.budget)
    else:
        asked = unit_rows("query_embedding", np.asarray(query_embedding)[None], 1)[0].astype(np.float64)
        if len(asked) != units.shape[1]:
            raise InputError(f"query_embedding must have the embeddings' width {units.shape[1]}, got {len(asked)}")
        relevance = units @ asked
    costs, budget = judge.costs, judge.config.budget
    if trade_off is None:
        pool = np.flatnonzero(costs <= budget)
        beta = adaptive_trade_off(relevance[pool], similarity[np.ix_(pool, pool)], costs[pool], budget)
    else:
        beta = float(trade_off)

    def gains(chosen: list[int]) -> NDArray[np.float64]:
        return relevance - beta * similarity[:, chosen].sum(axis=1)

    return judge.result(fill_by_gain(costs, budget, gains, stop_at=_NO_GAIN))


def adaptive_trade_off(
    relevance: NDArray[np.float64], similarity: NDArray[np.float64], costs: NDArray[np.int64], budget: int
) -> float:
    """β* = E[rel(q, x)] / ((k̄ − 1)/2 · E[sim(x, y)]), arXiv:2512.25052, with k̄ = ⌊budget / mean cost⌋.

    At a set of k̄ typical chunks the expected redundancy then weighs as much as the expected relevance. **[ours]** It
    is 0 where the quotient has no meaning: k̄ ≤ 1 (no pair is expected), one candidate, or a mean relevance or
    similarity of at most 0. (The authors' program takes 0.01 there; it also rounds k̄ down.)

    Args:
        relevance: Of each candidate, `[n]`.
        similarity: Of each pair, `[n, n]`; the mean is over i < j.
        costs: `[n]` tokens.
        budget: Tokens.

    Example:
        >>> adaptive_trade_off(np.array([0.6, 0.2]), np.array([[1, 0.5], [0.5, 1]]), np.array([10, 10]), 30)
        0.8
    """
    count = len(relevance)
    expected = budget * count // sum(costs.tolist())  # which may leave 64 bits
    if count < 2 or expected <= 1:
        return 0.0
    redundancy = float(similarity[np.triu_indices(count, 1)].mean())
    mean = float(relevance.mean())
    return mean / ((expected - 1) / 2 * redundancy) if mean > 0 and redundancy > 0 else 0.0
