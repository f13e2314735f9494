"""Pictures of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from optuna.trial import FrozenTrial

from corag_agent.callbacks.figures import save_figure


def draw_history(
    complete: Sequence[FrozenTrial], pruned: Sequence[FrozenTrial], monitor: str, minimised: bool, path: Path
) -> None:
    """The value of each trial by its number, and the best so far.

    Args:
        complete: Complete trials, at least one, in any order.
        pruned: Those that were stopped, drawn at their last value.
        monitor: Name of the metric.
        minimised: Whether less of it is better.
        path: The SVG to write.
    """
    numbers, values = _points(complete)
    better = min if minimised else max
    best = list(accumulate(values, lambda so_far, value: better(so_far, value)))
    end = max(trial.number for trial in (*complete, *pruned))
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(numbers, values, s=18, label="complete", zorder=3)
    if pruned:
        axes.scatter(*_points(pruned), s=18, marker="x", color="0.6", label="pruned, last value")
    axes.step([*numbers, end], [*best, best[-1]], where="post", color="tab:red", label="best so far")
    axes.set(xlabel="trial", ylabel=monitor)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    save_figure(figure, path)


def draw_importances(importances: Mapping[str, float], monitor: str, path: Path) -> None:
    """The importance of each option, as bars.

    Args:
        importances: By key, the greatest first.
        monitor: Name of the metric.
        path: The SVG to write.
    """
    figure = Figure(figsize=(7, 1.2 + 0.35 * len(importances)), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.barh(list(importances), list(importances.values()))
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set(xlabel=f"importance for {monitor} (PED-ANOVA, arXiv:2304.10255)")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    save_figure(figure, path)


def _points(trials: Sequence[FrozenTrial]) -> tuple[list[int], list[float]]:
    """Numbers and values in the order of the numbers; a trial that was stopped has the value of its last epoch."""
    points = sorted((trial.number, trial.value) for trial in trials if trial.value is not None)
    return [number for number, _ in points], [value for _, value in points]
