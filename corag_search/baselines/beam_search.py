"""Beam search on the objective of the policy tree."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from corag_search.baselines.judge import Judge
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.policy_tree.search import AnyReranker
from corag_search.policy_tree.tree import Order
from corag_search.registry import whole
from corag_search.result import SearchResult


def beam(
    query: str,
    candidates: Sequence[Chunk],
    reranker: AnyReranker,
    config: SearchConfig | None = None,
    *,
    width: int = 4,
) -> SearchResult:
    """Extend the `width` best combinations of each length by every affordable chunk; the best one seen is returned.

    It goes on where the objective falls, up to `max_chunks` or the budget. One place of the beam is kept for the
    greedy line (the best child of the best child …): an ordinary beam of two may drop it for better-looking rivals
    and end below a greedy climb, this one never does. `width=1` is that line alone.

    Args:
        query: The question.
        candidates: Retrieved chunks, best first.
        reranker: As for `search_policy_tree`. Each combination is scored once, each length in one batch.
        config: Settings; value and objective come from the reranker.
        width: Combinations kept at each length.

    Raises:
        InputError: As `search_policy_tree`, or a width that is no whole number of at least 1.
    """
    width = whole("width", width, unit="combinations")
    judge = Judge(query, candidates, reranker, config)

    def key(order: Order) -> Hashable:
        return order if judge.reranker.order_sensitive else frozenset(order)

    level = judge.affordable_singles()
    on_line = {key(order) for order in level}
    best: Order | None = None
    while level:
        kept = judge.ranked(level, width)
        if best is None or judge.preference(kept[0]) < judge.preference(best):
            best = kept[0]
        if line := [order for order in level if key(order) in on_line]:
            greedy = judge.best(line)
            kept = [greedy, *(order for order in kept if order != greedy)][:width]
            on_line = {key(child) for child in judge.children(greedy)}
        distinct = {key(child): child for order in reversed(kept) for child in judge.children(order)}
        level = list(distinct.values())
    assert best is not None, "checked_candidates leaves at least one affordable candidate"
    return judge.result(best)
