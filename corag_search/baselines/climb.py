"""Greedy climb on the objective of the search."""

from __future__ import annotations

from collections.abc import Sequence

from corag_search.baselines.judge import Judge
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.policy_tree.search import AnyReranker
from corag_search.result import SearchResult


def greedy_climb(
    query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None = None
) -> SearchResult:
    """Append the chunk that raises the objective most, until none does.

    Raises:
        InputError: As `search_policy_tree`.
    """
    judge = Judge(query, candidates, reranker, config)
    climbed = judge.best(judge.affordable_singles())
    while children := judge.children(climbed):
        best = judge.best(children)
        if judge.objective(best) <= judge.objective(climbed):
            break
        climbed = best
    return judge.result(climbed)
