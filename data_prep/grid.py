"""The grid of search settings that labelling tries."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.texts import shown


class GridPoint(NamedTuple):
    """One choice of settings, in the order of the grid's axes."""

    exploration: float
    cost_coefficient: float
    iterations: int


PAPER = GridPoint(exploration=2.4, cost_coefficient=0.1, iterations=10)


@dataclass(frozen=True, slots=True)
class LabelGrid:
    """The settings that are tried for every question and reranker.

    Duplicates are dropped and each axis is sorted, so equal grids compare equal.

    Attributes:
        exploration: Values of c of Definition 4.2, arXiv:2411.00744.
        cost_coefficient: Values of λ of Definition 4.2.
        iterations: Expansions of the policy tree.

    Example:
        >>> grid = LabelGrid(iterations=(20, 5))
        >>> grid.ranges["iterations"], grid.snap("exploration", 0.4), grid.defaults
        ((5.0, 20.0), 0.5, GridPoint(exploration=2.4, cost_coefficient=0.1, iterations=5))
    """

    exploration: tuple[float, ...] = (0.0, 0.1, 0.5, 1.0, 2.4)
    cost_coefficient: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3)
    iterations: tuple[int, ...] = (5, 10, 15, 20, 25)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exploration", _axis("exploration", self.exploration))
        object.__setattr__(self, "cost_coefficient", _axis("cost_coefficient", self.cost_coefficient))
        whole = _axis("iterations", self.iterations)
        if any(value < 1 or not value.is_integer() for value in whole):
            raise InputError(f"grid: iterations must be whole numbers, at least 1, got {list(self.iterations)}")
        object.__setattr__(self, "iterations", tuple(int(value) for value in whole))
        greatest = GridPoint(self.exploration[-1], self.cost_coefficient[-1], self.iterations[-1])
        try:
            SearchConfig(**greatest._asdict())  # no search could be made with a greater value than it allows
        except InputError as error:
            raise InputError(f"grid: {error}") from None

    @classmethod
    def from_dict(cls, axes: Mapping[str, Any]) -> LabelGrid:
        """Builds a grid from `to_dict`'s form.

        Raises:
            InputError: When an axis is missing, unknown or unusable.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(axes, Mapping) or set(axes) != set(names):
            got = list(axes) if isinstance(axes, Mapping) else axes
            raise InputError(f"grid must name exactly {', '.join(names)}, got {got!r}")
        return cls(**axes)

    def to_dict(self) -> dict[str, list[float]]:
        """The grid as plain lists, for JSON and for hyperparameters."""
        return {field.name: list(getattr(self, field.name)) for field in fields(self)}

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of values of each axis: exploration, cost_coefficient, iterations."""
        return len(self.exploration), len(self.cost_coefficient), len(self.iterations)

    def __len__(self) -> int:
        return math.prod(self.shape)

    def __iter__(self) -> Iterator[GridPoint]:
        """The points in grid order: iterations change fastest, exploration slowest."""
        for point in itertools.product(self.exploration, self.cost_coefficient, self.iterations):
            yield GridPoint(*point)

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Least and greatest value of each setting."""
        return {name: (float(values[0]), float(values[-1])) for name, values in self._axes().items()}

    @property
    def defaults(self) -> GridPoint:
        """The paper's settings (arXiv:2411.00744), each snapped to the grid."""
        snapped = {name: self.snap(name, getattr(PAPER, name)) for name in self._axes()}
        return GridPoint(snapped["exploration"], snapped["cost_coefficient"], int(snapped["iterations"]))

    def index(self, point: GridPoint) -> tuple[int, int, int]:
        """Place of a point of the grid along its axes.

        Raises:
            InputError: When it is not in the grid.
        """
        places = []
        for name, value in point._asdict().items():
            axis = getattr(self, name)
            if value not in axis:
                raise InputError(f"{name} {value!r} is not in the grid, which has {list(axis)}")
            places.append(axis.index(value))
        return places[0], places[1], places[2]

    def snap(self, setting: str, value: float) -> float:
        """The grid's value nearest to `value`; halfway between two, the smaller.

        Raises:
            InputError: When the setting is unknown or the value is not a number.
        """
        axes = self._axes()
        if setting not in axes:
            raise InputError(f"setting must be one of {', '.join(axes)}, got {setting!r}")
        if math.isnan(value):
            raise InputError(f"{setting} must be a number to be snapped to {list(axes[setting])}, got {value!r}")
        return axes[setting][int(self.nearest(setting, value))]

    def scaled(self, setting: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Values of a setting scaled to [0, 1] by its range; 0 where the grid has one value only.

        Args:
            setting: One of the grid's fields.
            values: `[...]`.
        """
        low, high = self.ranges[setting]
        return (np.asarray(values, dtype=np.float64) - low) / ((high - low) or 1.0)

    def nearest(self, setting: str, values: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Positions along an axis of the grid's values nearest to `values`; halfway between two, the smaller's.

        Args:
            setting: One of the grid's fields.
            values: `[...]`.
        """
        axis = np.array(getattr(self, setting), dtype=np.float64)
        return np.abs(np.asarray(values, dtype=np.float64)[..., None] - axis).argmin(axis=-1)

    def _axes(self) -> dict[str, Sequence[float]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _axis(name: str, values: object) -> tuple[float, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values:
        raise InputError(f"grid: {name} must be a list of at least one number, got {values!r}")
    for value in values:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= sys.float_info.max:  # beyond it a whole number is no float
            raise InputError(f"grid: {name} must hold finite numbers, at least 0, got {shown(value)}")
    return tuple(sorted({float(value) for value in values}))
