"""The optimum, by scoring everything."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from corag_search.baselines.judge import Judge
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.policy_tree.search import AnyReranker
from corag_search.policy_tree.tree import Order
from corag_search.result import SearchResult


def upper_bound(
    query: str,
    candidates: Sequence[Chunk],
    reranker: AnyReranker,
    config: SearchConfig | None = None,
    *,
    limit: int = 1_000_000,
) -> SearchResult:
    """The optimum: every affordable order (or set, when order is ignored) of up to `max_chunks` chunks is scored.

    Args:
        query: The question.
        candidates: Retrieved chunks, best first.
        reranker: As for `search_policy_tree`.
        config: Settings.
        limit: Most combinations that may be scored.

    Raises:
        InputError: As `search_policy_tree`, or more combinations than the limit.
    """
    judge = Judge(query, candidates, reranker, config)
    candidates = judge.candidates
    longest = min(judge.config.max_chunks or len(candidates), len(candidates))
    count_of = math.perm if judge.reranker.order_sensitive else math.comb
    most = sum(count_of(len(candidates), length) for length in range(1, longest + 1))
    best: Order | None = None
    counted = 0
    level = judge.affordable_singles()
    while level:
        counted += len(level)
        if counted > limit:
            raise InputError(
                f"upper_bound would score up to {most:,} combinations of {len(candidates)} candidates, more than "
                f"the limit of {limit:,}; lower max_chunks ({longest}), the number of candidates or the budget, "
                "or raise the limit"
            )
        found = judge.best(level)
        if best is None or judge.preference(found) < judge.preference(best):
            best = found
        longer = (child for order in level for child in judge.children(order, distinct=True))
        level = list(itertools.islice(longer, limit - counted + 1))
    assert best is not None, "checked_candidates leaves at least one affordable candidate"
    return judge.result(best)
