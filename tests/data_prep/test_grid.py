import math

import pytest

from corag_search.errors import InputError
from data_prep.grid import GridPoint, LabelGrid


def test_defaults_are_the_papers_and_in_the_grid() -> None:
    defaults = LabelGrid().defaults
    assert defaults == GridPoint(exploration=2.4, cost_coefficient=0.1, iterations=10)
    assert defaults in list(LabelGrid())


def test_defaults_are_snapped_when_absent() -> None:
    grid = LabelGrid(exploration=(0, 1), cost_coefficient=(0, 0.25), iterations=(8, 12))
    assert grid.defaults == GridPoint(1.0, 0.0, 8)


def test_axes_are_sorted_and_distinct() -> None:
    grid = LabelGrid(exploration=(1, 0, 1), iterations=[10, 5])  # type: ignore[arg-type]
    assert grid.exploration == (0.0, 1.0)
    assert grid.iterations == (5, 10)
    assert all(isinstance(value, int) for value in grid.iterations)
    assert grid.ranges == {"exploration": (0, 1), "cost_coefficient": (0, 0.3), "iterations": (5, 10)}


def test_points_run_through_iterations_first() -> None:
    grid = LabelGrid(exploration=(0, 1), cost_coefficient=(0, 0.1), iterations=(5, 10))
    points = list(grid)
    assert len(points) == len(grid) == math.prod(grid.shape) == 8
    assert points[:3] == [(0, 0, 5), (0, 0, 10), (0, 0.1, 5)]


@pytest.mark.parametrize(("value", "nearest"), [(-3, 5), (7.5, 5), (7.51, 10), (24, 25), (900, 25)])
def test_snap(value: float, nearest: int) -> None:
    assert LabelGrid().snap("iterations", value) == nearest


def test_dict_and_back() -> None:
    grid = LabelGrid(iterations=(3,))
    assert LabelGrid.from_dict(grid.to_dict()) == grid


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"exploration": ()}, "exploration must be a list"),
        ({"exploration": (-0.1,)}, "at least 0, got -0.1"),
        ({"cost_coefficient": (math.nan,)}, "finite numbers, at least 0, got nan"),
        ({"cost_coefficient": ("0.1",)}, "got '0.1'"),
        ({"iterations": (0,)}, "at least 1"),
        ({"iterations": (2.5,)}, "whole numbers"),
        ({"iterations": (True,)}, "got True"),
        ({"iterations": (5, 10**9)}, "grid: iterations must be at most 1,000,000, got 1,000,000,000"),
        ({"exploration": (1e300, 0.0)}, r"grid: exploration must be at most 1e\+100, got 1e\+300"),
        ({"cost_coefficient": (0.1, 1e101)}, r"grid: cost_coefficient must be at most 1e\+100"),
        ({"iterations": (10**400,)}, r"iterations must hold finite numbers, at least 0, got 1000.*\.\.\.$"),
    ],
)
def test_unusable_axes(axes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelGrid(**axes)


def test_unusable_requests() -> None:
    with pytest.raises(InputError, match="setting must be one of exploration, cost_coefficient, iterations, got 'c'"):
        LabelGrid().snap("c", 1)
    with pytest.raises(InputError, match="got nan"):
        LabelGrid().snap("exploration", math.nan)
    with pytest.raises(InputError, match="grid must name exactly"):
        LabelGrid.from_dict({"exploration": [0]})


def test_scaling_and_places_by_hand() -> None:
    grid = LabelGrid(exploration=(0.5, 2.5), cost_coefficient=(0.1,), iterations=(5, 10, 25))
    assert grid.scaled("iterations", [5, 10, 25]).tolist() == [0.0, 0.25, 1.0]
    assert grid.scaled("exploration", 1.0) == 0.25
    assert grid.scaled("cost_coefficient", [0.1]).tolist() == [0.0]
    assert grid.index(GridPoint(2.5, 0.1, 10)) == (1, 0, 1)
    with pytest.raises(InputError, match=r"iterations 15 is not in the grid, which has \[5, 10, 25\]"):
        grid.index(GridPoint(2.5, 0.1, 15))
