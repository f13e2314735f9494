"""Settings of one search."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from numbers import Real
from typing import Any

from corag_search.chunk import MOST_TOKENS
from corag_search.errors import InputError
from corag_search.registry import one_of, whole
from corag_search.texts import shown


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


_WHOLE = {
    "iterations": "expansions",
    "budget": "tokens",
    "max_chunks": "chunks",
    "expansion_width": "children",
    "root_width": "children",
}
_MOST = {"iterations": 1_000_000, "budget": MOST_TOKENS}  # a result tells the best after each iteration
_GREATEST = 1e100  # its products with costs and visits are finite
_OPTIONAL = ("max_chunks", "expansion_width", "root_width")


@dataclass(frozen=True)
class SearchConfig:
    """Settings of a policy-tree search.

    The paper's (arXiv:2411.00744) are `selection="uct", exploration=2.4`. With benefits in [0, 1] those search almost
    breadth-first; the defaults find the optimum with fewer evaluations (benchmarks/RESULTS.md, "Search").

    Attributes:
        iterations: Expansions at most (the search stops early when the tree is exhausted).
        exploration: c of Definition 4.2, at least 0. What is a good value depends on `selection`.
        cost_coefficient: λ of Definition 4.2, at least 0.
        budget: B, tokens that the chosen chunks may cost together.
        max_chunks: Longest combination, in chunks; None for no limit but the budget's.
        final_rule: Which evaluated combination is returned, that of the greatest: objective, utility, average (V/N) or
            reward (R).
        selection: How a child is chosen on the way down: uct (V/N as it is, Definition 4.2) or scaled (V/N relative to
            the least and greatest in the tree).
        expansion_width: Children that an expansion scores at most, the best by the search's prior; None for all.
        root_width: As `expansion_width`, for the root, whose children are the single chunks.
        time_limit: Seconds after which no further expansion begins, above 0; None for no limit. The root's is always
            made, so that there is something to return.
    """

    iterations: int = 10
    exploration: float = 0.2
    cost_coefficient: float = 0.1
    budget: int = 1024
    max_chunks: int | None = 5
    final_rule: FinalRule | str = FinalRule.OBJECTIVE
    selection: Selection | str = Selection.SCALED
    expansion_width: int | None = None
    root_width: int | None = None
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name, unit in _WHOLE.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, whole(name, value, unit=unit, most=_MOST.get(name)))
        for name in ("exploration", "cost_coefficient", "time_limit"):
            value = getattr(self, name)
            if value is not None or name != "time_limit":
                object.__setattr__(self, name, _not_negative(name, value))
        if self.time_limit == 0:
            raise InputError("time_limit must be above 0 seconds, or None for no limit, got 0")
        object.__setattr__(self, "final_rule", one_of("final_rule", self.final_rule, FinalRule))
        object.__setattr__(self, "selection", one_of("selection", self.selection, Selection))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a YAML file holds them."""
        return asdict(self) | {"final_rule": str(self.final_rule), "selection": str(self.selection)}

    @property
    def narrows(self) -> bool:
        """Whether a prior chooses among the children."""
        return self.expansion_width is not None or self.root_width is not None


def check_config(config: object) -> None:
    """Refuse settings that are none, such as a mapping of them.

    Raises:
        InputError: It is no `SearchConfig`.
    """
    if not isinstance(config, SearchConfig):
        raise InputError(f"config must be a SearchConfig, such as SearchConfig(budget=300), got {shown(config)}")


def _not_negative(name: str, value: object) -> float:
    """The value, of any real type, as Python's own number."""
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise InputError(f"{name} must be a finite number, at least 0, got {shown(value)}")
    if number > _GREATEST:
        raise InputError(f"{name} must be at most {_GREATEST:g}, got {number:g}")
    return value if isinstance(value, int) else number
