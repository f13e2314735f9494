"""Chunks ranked by their score alone: NaiveRAG, the same cut to a number of tokens, and the best single chunk."""

from __future__ import annotations

from collections.abc import Sequence

from corag_search.baselines.filling import fill_by_worth
from corag_search.baselines.judge import Judge
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.policy_tree.problem import check_affordable
from corag_search.policy_tree.search import AnyReranker
from corag_search.policy_tree.tree import Order
from corag_search.result import SearchResult


def naive_rag(
    query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None = None
) -> SearchResult:
    """Rank the chunks by their score alone and fill the budget greedily, best first.

    A chunk that does not fit is passed over. `max_chunks` does not apply: only the budget stops it
    (arXiv:2411.00744, section 7: NaiveRAG).

    Raises:
        InputError: As `search_policy_tree`.
    """
    judge = Judge(query, candidates, reranker, config)
    return judge.result(_filled(judge, judge.config.budget))


def naive_matched(
    query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None = None, *, tokens: int
) -> SearchResult:
    """`naive_rag` cut to a number of tokens, such as another method spent: the same price, without the search.

    Args:
        query: The question.
        candidates: Retrieved chunks, best first.
        reranker: As for `search_policy_tree`.
        config: Settings; objectives keep their price relative to its budget.
        tokens: At least the smallest candidate's cost, at most the budget.

    Raises:
        InputError: As `search_policy_tree`.
    """
    judge = Judge(query, candidates, reranker, config)
    check_affordable(judge.candidates, tokens, name="tokens")
    return judge.result(_filled(judge, min(tokens, judge.config.budget)))


def best_single(
    query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None = None
) -> SearchResult:
    """The one chunk of the greatest objective.

    Raises:
        InputError: As `search_policy_tree`.
    """
    judge = Judge(query, candidates, reranker, config)
    return judge.result(judge.best(judge.affordable_singles()))


def _filled(judge: Judge, tokens: int) -> Order:
    return fill_by_worth(judge.single_scores(tokens), judge.costs, tokens)
