"""Settings of one search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from corag_search.errors import InputError
from corag_search.registry import whole

E = TypeVar("E", bound=StrEnum)


class FinalRule(StrEnum):
    """Which of all evaluated combinations is returned."""

    OBJECTIVE = "objective"  # greatest R(v) − λ·cost(v)/B, the default
    UTILITY = "utility"  # greatest U(v), arXiv:2411.00744v1
    AVERAGE = "average"  # greatest V(v)/N(v), arXiv:2411.00744v2
    REWARD = "reward"  # greatest R(v), the authors' program


class Selection(StrEnum):
    """How a child is chosen on the way down."""

    UCT = "uct"  # Definition 4.2: V/N as it is
    SCALED = "scaled"  # V/N relative to the least and greatest seen in the tree, as MuZero does


@dataclass(frozen=True)
class SearchConfig:
    """Settings of a policy-tree search. The defaults are the paper's (arXiv:2411.00744).

    Attributes:
        iterations: Expansions at most (the search stops early when the tree is exhausted).
        exploration: c of Definition 4.2, at least 0.
        cost_coefficient: λ of Definition 4.2, at least 0.
        budget: B, tokens that the chosen chunks may cost together.
        max_chunks: Longest combination, in chunks; None for no limit but the budget's.
        final_rule: Which evaluated combination is returned.
        selection: How a child is chosen on the way down.
    """

    iterations: int = 10
    exploration: float = 2.4
    cost_coefficient: float = 0.1
    budget: int = 1024
    max_chunks: int | None = 5
    final_rule: FinalRule | str = FinalRule.OBJECTIVE
    selection: Selection | str = Selection.UCT

    def __post_init__(self) -> None:
        for name, unit in (("iterations", "expansions"), ("budget", "tokens"), ("max_chunks", "chunks")):
            if name != "max_chunks" or self.max_chunks is not None:
                object.__setattr__(self, name, whole(name, getattr(self, name), unit=unit))
        _not_negative("exploration", self.exploration)
        _not_negative("cost_coefficient", self.cost_coefficient)
        object.__setattr__(self, "final_rule", _member(FinalRule, "final_rule", self.final_rule))
        object.__setattr__(self, "selection", _member(Selection, "selection", self.selection))


def _not_negative(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise InputError(f"{name} must be a finite number, at least 0, got {value!r}")


def _member(kind: type[E], name: str, value: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise InputError(f"{name} must be one of {', '.join(kind)}, got {value!r}") from None
