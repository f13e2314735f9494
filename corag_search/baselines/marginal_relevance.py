"""Maximal marginal relevance."""

from __future__ import annotations

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


def mmr(
    query: str,
    candidates: Sequence[Chunk],
    reranker: AnyReranker,
    config: SearchConfig | None = None,
    *,
    embeddings: NDArray[np.floating],
    trade_off: float = 0.5,
) -> SearchResult:
    """Fill the budget by maximal marginal relevance: relevant, and unlike what was taken already.

        MMR = argmax over unused c of  λ · score(c) − (1 − λ) · max over taken s of cos(c, s)

    J. Carbonell and J. Goldstein, *The use of MMR, diversity-based reranking for reordering documents and producing
    summaries*, SIGIR 1998. A chunk that does not fit is passed over; `max_chunks` does not apply, only the budget
    stops it. `trade_off=1` is `naive_rag`.

    Args:
        query: The question.
        candidates: Retrieved chunks, best first.
        reranker: As for `search_policy_tree`. Relevance is its score of the chunk alone; value and objective are its
            scores of the combination chosen.
        config: Settings.
        embeddings: Of the candidates, `[k, d]`, of any length; their cosines are compared.
        trade_off: λ of the formula above, in [0, 1] (not the cost coefficient of the objective).

    Raises:
        InputError: As `search_policy_tree`, embeddings of another shape, or a trade-off outside [0, 1].
    """
    if not isinstance(trade_off, int | float) or isinstance(trade_off, bool) or not 0 <= trade_off <= 1:
        raise InputError(f"trade_off must be a number in [0, 1], got {trade_off!r}")
    judge = Judge(query, candidates, reranker, config)
    units = unit_rows("embeddings", embeddings, len(judge.candidates)).astype(np.float64)
    similarity = units @ units.T
    relevance = judge.single_scores(judge.config.budget)

    def gains(chosen: list[int]) -> NDArray[np.float64]:
        nearest = similarity[:, chosen].max(axis=1) if chosen else np.zeros(len(similarity))
        return trade_off * relevance - (1 - trade_off) * nearest

    return judge.result(fill_by_gain(judge.costs, judge.config.budget, gains))
