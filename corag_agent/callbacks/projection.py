"""The feature map in two dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from lightning.pytorch import Trainer

from corag_agent.callbacks.best_model import BestModelReport
from corag_agent.callbacks.figures import log_figure, save_figure
from corag_agent.encoder import EncoderOutput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = {"train": "o", "val": "^", "test": "s"}
_LEFT_OUT = "lightgrey"


class Plane(NamedTuple):
    """A projection.

    Attributes:
        points: Coordinates on the first two principal axes, `[n, 2]`.
        shares: Share of the variance on each of them, in [0, 1], `[2]`.
    """

    points: npt.NDArray[np.float64]
    shares: npt.NDArray[np.float64]


class FeatureProjection(BestModelReport):
    """Writes `features.png`: the feature map on its first two principal axes, coloured by best reranker.

    The axes are those of the training split, so the picture after test is the one after fit with the test split added.
    Questions that are not kept are small and grey. W&B and TensorBoard get the figure too.
    """

    def report(self, trainer: Trainer, output: EncoderOutput, split: str) -> None:
        """As `BestModelReport.report`."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        plane = principal_plane(output.features.double().numpy(), data.splits["train"])
        shown = ["train", "val"] if split == "val" else list(_MARKERS)
        figure = draw_features(plane, data, {name: data.splits[name] for name in shown})
        save_figure(figure, Path(trainer.default_root_dir) / "features.png")
        log_figure(trainer, "features", figure)


def principal_plane(features: npt.NDArray[np.float64], fitted: npt.NDArray[np.intp]) -> Plane:
    """Projects on the first two principal axes of some of the rows.

    The entry of greatest magnitude of each axis is positive, so equal features give equal points.

    Args:
        features: `[n, feature]`.
        fitted: Positions of the rows that centre and axes are computed from; all rows where there is none.
    """
    basis = features[fitted] if len(fitted) else features
    centre = basis.mean(axis=0)
    _, spread, axes = np.linalg.svd(basis - centre, full_matrices=False)
    axes, power = axes[:2], (spread**2)[:2]
    greatest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1, keepdims=True), axis=1)
    points = (features - centre) @ (axes * np.where(greatest < 0, -1.0, 1.0)).T
    shares = power / (spread**2).sum() if power.any() else np.zeros_like(power)
    # A feature map, or a split, may be too small for two axes.
    missing = 2 - len(axes)
    return Plane(np.pad(points, ((0, 0), (0, missing))), np.pad(shares, (0, missing)))


def draw_features(plane: Plane, data: Any, splits: dict[str, npt.NDArray[np.intp]]) -> Figure:
    """The plane; `data` is the data module, `splits` the positions of each split shown."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    colours = [matplotlib.colormaps["tab10"](index % 10) for index in range(len(data.rerankers))]
    for name, at in splits.items():
        kept = data.best_labels.kept[at]
        shades = [colours[index] for index in data.best_labels.reranker[at[kept]]]
        x, y = plane.points[at].T
        axes.scatter(x[~kept], y[~kept], s=8, color=_LEFT_OUT, marker=_MARKERS[name], zorder=1)
        axes.scatter(x[kept], y[kept], s=28, color=shades, marker=_MARKERS[name], alpha=0.8, zorder=2)
    entries = [
        *(Line2D([], [], ls="", marker="o", color=c, label=n) for n, c in zip(data.rerankers, colours, strict=True)),
        Line2D([], [], ls="", marker="o", color=_LEFT_OUT, label="not kept"),
        *(Line2D([], [], ls="", marker=_MARKERS[name], color="dimgrey", label=name) for name in splits),
    ]
    figure.legend(handles=entries, loc="outside right upper", frameon=False)
    axes.set_xlabel(f"first principal axis ({plane.shares[0]:.0%} of the training split's variance)")
    axes.set_ylabel(f"second ({plane.shares[1]:.0%})")
    axes.set_title("feature map, by best reranker")
    return figure
