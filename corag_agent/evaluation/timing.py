"""How long each way of choosing chunks takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from corag_agent.evaluation.comparison import AGENT, TREE
from corag_search.baselines import best_single, greedy_climb, naive_matched, naive_rag
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.pipeline import Corag
from corag_search.policy_tree import search_policy_tree
from corag_search.rerankers.base import Reranker
from data_prep.grid import GridPoint
from data_prep.labelling import default_search
from data_prep.progress import progress_bar

Choose = Callable[[str, Sequence[Chunk], Reranker, SearchConfig], Any]


def selection_milliseconds(corag: Corag, queries: Sequence[str], defaults: GridPoint) -> dict[tuple[str, str], float]:
    """Mean milliseconds from a query to its chosen chunks (embed, retrieve, choose), by (method, reranker).

    Nothing is shared between methods: each scores for itself what it needs. Models are loaded before the clock starts.

    Args:
        corag: A pipeline with an agent.
        queries: To choose for.
        defaults: Settings of the tree search without the agent.
    """
    config = default_search(corag.config.search, defaults)
    spent: dict[tuple[str, str], float] = {}
    costs: dict[tuple[str, str], int] = {}

    def tree(query: str, candidates: Sequence[Chunk], judge: Reranker, config: SearchConfig) -> None:
        costs[judge.name, query] = search_policy_tree(query, candidates, judge, config).cost

    def matched(query: str, candidates: Sequence[Chunk], judge: Reranker, config: SearchConfig) -> None:
        naive_matched(query, candidates, judge, config, tokens=costs[judge.name, query])

    methods: dict[str, Choose] = {
        TREE: tree,
        "naive_rag": naive_rag,
        "best_single": best_single,
        "naive_matched": matched,
        "greedy_climb": greedy_climb,
    }
    with progress_bar("time the methods", len(corag.config.rerankers) * len(methods) + 1) as advance:
        for name in corag.config.rerankers:
            judge = corag.reranker(name)
            best_single(queries[0], corag.store.chunks[:1], judge, replace(config, budget=corag.config.chunk_size))
            for method, choose in methods.items():
                start = time.perf_counter()
                for query in queries:
                    embedding = corag.embedder.encode([query])[0]
                    choose(query, corag.store.search(embedding, corag.config.candidates), judge, config)
                spent[method, name] = 1000 * (time.perf_counter() - start) / len(queries)
                advance(1)
        start = time.perf_counter()
        for query in queries:
            corag.search(query)
        spent[AGENT, ""] = 1000 * (time.perf_counter() - start) / len(queries)
        advance(1)
    return spent
