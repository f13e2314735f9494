"""Which reranker the agent chooses, by which one is best."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import WandbLogger

from corag_agent.callbacks.best_model import BestModelReport
from corag_agent.callbacks.figures import log_figure, save_figure
from corag_agent.encoder import EncoderOutput
from corag_search.files import replacing_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Counts = npt.NDArray[np.int64]


class ConfusionMatrix(BestModelReport):
    """The best reranker's confusion matrix over the kept questions of the split that was measured.

    Writes `confusion.SPLIT.csv` (counts) and `confusion.SPLIT.svg`; W&B and TensorBoard get the figure, W&B the counts
    too. Its diagonal over its sum is the metric `accuracy`.
    """

    def report(self, trainer: Trainer, output: EncoderOutput, split: str) -> None:
        """As `BestModelReport.report`."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        at = data.splits[split]
        at = at[data.best_labels.kept[at]]
        predicted = output.logits.argmax(dim=-1).numpy()
        counts = confusion_counts(data.best_labels.reranker[at], predicted[at], len(data.rerankers))
        folder = Path(trainer.default_root_dir)
        _write_counts(folder / f"confusion.{split}.csv", counts, data.rerankers)
        figure = draw_confusion(counts, data.rerankers, split)
        save_figure(figure, folder / f"confusion.{split}.svg")
        log_figure(trainer, f"confusion/{split}", figure)
        for logger in trainer.loggers:
            # No wandb.Table: the file behind it would be recorded with its place in the home folder.
            if isinstance(logger, WandbLogger):
                logger.experiment.summary.update(
                    {f"confusion_{split}": {"rerankers": list(data.rerankers), "counts": counts.tolist()}}
                )


def confusion_counts(best: npt.NDArray[np.intp], predicted: npt.NDArray[np.intp], rerankers: int) -> Counts:
    """Questions by best reranker (rows) and predicted reranker (columns), `[rerankers, rerankers]`.

    Args:
        best: Index of the best reranker of each question, `[n]`.
        predicted: Index of the predicted one, `[n]`.
        rerankers: How many there are.

    Example:
        >>> confusion_counts(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
        [[1, 1], [0, 1]]
    """
    return np.bincount(best * rerankers + predicted, minlength=rerankers**2).reshape(rerankers, rerankers)


def draw_confusion(counts: Counts, rerankers: Sequence[str], split: str) -> Figure:
    """The matrix, each row shaded by its shares; `counts` as of `confusion_counts`."""
    from matplotlib.figure import Figure

    side = 2.4 + 0.6 * len(rerankers)
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.add_subplot()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        shade = "white" if shares[row, column] > 0.5 else "black"
        axes.text(column, row, str(count), ha="center", va="center", color=shade)
    axes.set_xticks(range(len(rerankers)), rerankers, rotation=45, ha="right")
    axes.set_yticks(range(len(rerankers)), rerankers)
    axes.set_xlabel("predicted reranker")
    axes.set_ylabel("best reranker")
    axes.set_title(f"{split}: {np.trace(counts)} of {counts.sum()} kept questions right")
    return figure


def _write_counts(path: Path, counts: Counts, rerankers: Sequence[str]) -> None:
    with replacing_file(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["best", *rerankers])
        rows.writerows([name, *row] for name, row in zip(rerankers, counts.tolist(), strict=True))
