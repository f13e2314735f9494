"""How a reranker's benefits behave: additive or not, monotone or not (METHOD §1 says they are neither)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from corag_search.baselines import upper_bound
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.rerankers.base import Reranker

TOLERANCE = 0.01  # benefits nearer than this count as equal
LIMIT = 20_000  # combinations that the optimum may take


@dataclass(frozen=True, slots=True)
class Structure:
    """Counts over one question's candidates.

    Attributes:
        pairs: Affordable ordered pairs of candidates.
        additive: Those whose benefit is the sum of their members' benefits, up to `TOLERANCE`.
        worse_than_best: Those whose benefit is below that of their better member by more than `TOLERANCE`.
        order_matters: Those whose reverse has another benefit, up to `TOLERANCE`.
        best_chunks: Chunks in the affordable combination of the greatest benefit; among equals the cheapest.
        best_is_largest: Whether no further chunk fits into the budget, and into `max_chunks`, beside those.
    """

    pairs: int
    additive: int
    worse_than_best: int
    order_matters: int
    best_chunks: int
    best_is_largest: bool


def measure_structure(query: str, candidates: Sequence[Chunk], judge: Reranker, config: SearchConfig) -> Structure:
    """Score all pairs, and find the combination of the greatest benefit by scoring everything.

    Args:
        query: The question.
        candidates: So few that all their affordable combinations can be scored.
        judge: The reranker.
        config: Its budget and `max_chunks` are used.

    Raises:
        InputError: More combinations than `LIMIT`, or unusable scores.
        RerankerError: The reranker failed.
    """
    count = len(candidates)
    affordable = [
        (a, b)
        for a, b in itertools.permutations(range(count), 2)
        if candidates[a].cost + candidates[b].cost <= config.budget
    ]
    combinations = [[candidates[i]] for i in range(count)]
    combinations += [[candidates[a], candidates[b]] for a, b in affordable]
    scores = judge.score(query, combinations).tolist()
    single, joint = scores[:count], dict(zip(affordable, scores[count:], strict=True))
    best = upper_bound(query, candidates, judge, replace(config, cost_coefficient=0.0), limit=LIMIT)
    room = config.budget - best.cost
    full = config.max_chunks is not None and len(best.order) >= config.max_chunks
    unused = [candidates[i].cost for i in range(count) if i not in best.order]
    return Structure(
        pairs=len(joint),
        additive=sum(abs(value - single[a] - single[b]) <= TOLERANCE for (a, b), value in joint.items()),
        worse_than_best=sum(value < max(single[a], single[b]) - TOLERANCE for (a, b), value in joint.items()),
        order_matters=sum(abs(value - joint[b, a]) > TOLERANCE for (a, b), value in joint.items()),
        best_chunks=len(best.order),
        best_is_largest=full or all(cost > room for cost in unused),
    )
