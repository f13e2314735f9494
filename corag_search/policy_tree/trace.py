"""A search that explains itself: its tree as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.policy_tree.selection import utility
from corag_search.policy_tree.tree import ROOT, Order, PolicyTree, objective
from corag_search.result import Combination


@dataclass(frozen=True, slots=True)
class TraceNode:
    """An evaluated combination at the end of the search.

    Attributes:
        order: Indices into the candidates, as first found.
        parents: Positions in `SearchTrace.nodes` of the nodes that it extends, in the order of their expansion; -1 is
            the root. More than one only for a reranker that ignores order.
        iteration: In which it was scored, from 1.
        expanded: In which its children were made; None when they were not.
        score: R, the benefit of that very combination.
        cost: Tokens.
        objective: R − λ·cost/B.
        visits: N(v) of Definition 4.2, arXiv:2411.00744.
        average: V(v)/N(v).
        utility: U(v).
    """

    order: Order
    parents: tuple[int, ...]
    iteration: int
    expanded: int | None
    score: float
    cost: int
    objective: float
    visits: int
    average: float
    utility: float


@dataclass(frozen=True, slots=True)
class SearchTrace:
    """The tree of one search.

    Attributes:
        query: The question.
        reranker: Name of the judge.
        config: Settings.
        candidates: Retrieved chunks, best first.
        nodes: Evaluated combinations, as they were found; the empty root is not among them.
        chosen: Position in `nodes` of the combination that was returned.
        order: Indices of that combination, in the order of the prompt.
    """

    query: str
    reranker: str
    config: SearchConfig
    candidates: tuple[Chunk, ...]
    nodes: tuple[TraceNode, ...]
    chosen: int
    order: Order

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "query": self.query,
            "reranker": self.reranker,
            "config": self.config.to_dict(),
            "candidates": [
                {"id": chunk.id, "text": chunk.text, "cost": chunk.cost, "metadata": dict(chunk.metadata)}
                for chunk in self.candidates
            ],
            "nodes": [dataclasses.asdict(node) for node in self.nodes],
            "chosen": self.chosen,
            "order": self.order,
        }


def trace_of(
    tree: PolicyTree, query: str, candidates: Sequence[Chunk], reranker: str, chosen: Combination
) -> SearchTrace:
    """Read a finished tree.

    Args:
        tree: The tree.
        query: The question.
        candidates: Its candidates.
        reranker: Name of the judge.
        chosen: What the search returned.
    """
    count = len(tree)
    rows = slice(1, count)
    expanded: dict[int, int] = {}
    found_in = [0] * count
    parents: list[list[int]] = [[] for _ in range(count)]
    start = 1
    for iteration, (row, stop) in enumerate(tree.expanded, 1):
        expanded[row] = iteration
        found_in[start:stop] = [iteration] * (stop - start)
        start = stop
        children = tree.children[row]
        assert children is not None, "it was expanded"
        for child in children.tolist():
            parents[child].append(row - 1)
    config = tree.problem.config
    utilities = utility(tree, rows)
    objectives = objective(tree.score[rows], tree.cost[rows], config)
    members = sum(1 << i for i in chosen.order)
    same = chosen.order if tree.problem.order_sensitive else members
    kept = tree.orders if tree.problem.order_sensitive else tree.members
    return SearchTrace(
        query=query,
        reranker=reranker,
        config=config,
        candidates=tuple(candidates),
        nodes=tuple(
            TraceNode(
                order=tree.orders[row],
                parents=tuple(parents[row]),
                iteration=found_in[row],
                expanded=expanded.get(row),
                score=float(tree.score[row]),
                cost=int(tree.cost[row]),
                objective=float(objectives[row - 1]),
                visits=int(tree.visits[row]),
                average=float(tree.value_sum[row] / tree.visits[row]),
                utility=float(utilities[row - 1]),
            )
            for row in range(ROOT + 1, count)
        ),
        chosen=kept.index(same) - 1,  # type: ignore[arg-type]
        order=chosen.order,
    )
