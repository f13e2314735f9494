"""What a search gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from corag_search.chunk import Chunk

if TYPE_CHECKING:
    from corag_search.policy_tree.trace import SearchTrace


@dataclass(frozen=True, slots=True)
class Combination:
    """An evaluated chunk combination.

    Attributes:
        order: Indices into the candidates, in the order of the prompt.
        value: The reranker's benefit R, in [0, 1].
        objective: R − λ·cost/B.
        cost: Tokens of its chunks together.
    """

    order: tuple[int, ...]
    value: float
    objective: float
    cost: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The chosen combination and how it was found.

    Attributes:
        order: Indices into the candidates, in the order of the prompt.
        chunks: The candidates at `order`.
        value: The reranker's benefit R of the combination, in [0, 1].
        objective: R − λ·cost/B.
        cost: Tokens of the chunks together; at most the budget.
        evaluations: Distinct combinations that the reranker scored for this search.
        best_after: The best combination after each iteration, one entry per configured iteration.
        iterations: Expansions that were made; fewer than configured when the tree was explored or time was up.
        trace: The whole tree, where it was asked for.
    """

    order: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    value: float
    objective: float
    cost: int
    evaluations: int
    best_after: tuple[Combination, ...] = ()
    iterations: int = 0
    trace: SearchTrace | None = None
