"""How long each way of choosing chunks takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from corag_agent.evaluation.comparison import AGENT, TREE
from corag_search import baselines
from corag_search.chunk import Chunk
from corag_search.pipeline import Corag
from corag_search.policy_tree import search_policy_tree
from corag_search.rerankers.base import Reranker
from data_prep.grid import GridPoint
from data_prep.labelling import default_search


def selection_milliseconds(corag: Corag, queries: Sequence[str], defaults: GridPoint) -> dict[tuple[str, str], float]:
    """Mean milliseconds from a query to its chosen chunks (embed, retrieve, choose), by (method, reranker).

    Nothing is shared between methods: each scores for itself what it needs.

    Args:
        corag: A pipeline with an agent.
        queries: To choose for.
        defaults: Settings of the tree search without the agent.
    """
    config = default_search(corag.config.search, defaults)
    spent: dict[tuple[str, str], float] = {}

    def measure(key: tuple[str, str], choose: Callable[[str], Any]) -> None:
        start = time.perf_counter()
        for query in queries:
            choose(query)
        spent[key] = 1000 * (time.perf_counter() - start) / len(queries)

    def candidates(query: str) -> list[Chunk]:
        return corag.store.search(corag.embedder.encode([query])[0], corag.config.candidates)

    for name in corag.config.rerankers:
        judge: Reranker = corag.reranker(name)
        costs = {query: search_policy_tree(query, candidates(query), judge, config).cost for query in queries}
        measure((TREE, name), lambda q, judge=judge: search_policy_tree(q, candidates(q), judge, config))
        for method in ("naive_rag", "best_single", "greedy_climb"):
            way = getattr(baselines, method)
            measure((method, name), lambda q, judge=judge, way=way: way(q, candidates(q), judge, config))
        measure(
            ("naive_matched", name),
            lambda q, judge=judge, costs=costs: baselines.naive_matched(
                q, candidates(q), judge, config, tokens=costs[q]
            ),
        )
    measure((AGENT, ""), lambda q: corag.search(q))
    return spent
