"""Figures, as files and in the loggers that take images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger

from corag_search.files import replacing_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: Figure, path: Path) -> None:
    """Writes an `.svg` or `.png`, whole or not at all; the same figure gives the same bytes."""
    import matplotlib

    kind = path.suffix[1:]
    with replacing_file(path) as partial, matplotlib.rc_context({"svg.hashsalt": "corag"}):
        figure.savefig(partial, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})


def log_figure(trainer: Trainer, name: str, figure: Figure) -> None:
    """Gives the figure to W&B and TensorBoard; other loggers take no images."""
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger):
            logger.log_image(name, [pixels(figure)], step=trainer.global_step)
        elif isinstance(logger, TensorBoardLogger):
            logger.experiment.add_image(name, pixels(figure), trainer.global_step, dataformats="HWC")


def pixels(figure: Figure) -> npt.NDArray[np.uint8]:
    """The figure drawn, RGB `[height, width, 3]`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
