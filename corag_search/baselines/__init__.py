"""Other ways of choosing chunks, to measure the policy tree against. All return a `SearchResult`.

On the objective of the search: `best_single`, `greedy_climb`, `beam`, `upper_bound`. By relevance until the budget is
spent: `naive_rag`, `naive_matched`, `mmr`, `adagres`. With a generator: `hyde`, and `raptor` over a `RaptorTree`.
"""

from __future__ import annotations

from corag_search.baselines.adaptive_redundancy import adagres, adaptive_trade_off
from corag_search.baselines.beam_search import beam
from corag_search.baselines.climb import greedy_climb
from corag_search.baselines.exhaustive import upper_bound
from corag_search.baselines.hypothetical import hyde
from corag_search.baselines.marginal_relevance import mmr
from corag_search.baselines.naive import best_single, naive_matched, naive_rag
from corag_search.baselines.summary_tree import RaptorConfig, RaptorTree, raptor

__all__ = [
    "RaptorConfig",
    "RaptorTree",
    "adagres",
    "adaptive_trade_off",
    "beam",
    "best_single",
    "greedy_climb",
    "hyde",
    "mmr",
    "naive_matched",
    "naive_rag",
    "raptor",
    "upper_bound",
]
