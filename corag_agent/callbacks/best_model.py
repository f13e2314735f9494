"""Reports on the best model of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from corag_agent.checkpoint import load_checkpoint
from corag_agent.encoder import EncoderOutput


class BestModelReport(Callback, ABC):
    """Reports once: after fit on the best checkpoint, after test on the model that was tested.

    Nothing is reported by a `fast_dev_run`, and by the first process only.
    """

    @abstractmethod
    def report(self, trainer: Trainer, output: EncoderOutput, split: str) -> None:
        """Writes the report.

        Args:
            trainer: Its `datamodule` holds the label table, its `default_root_dir` is where files go.
            output: Of all questions of the table, in its order, on the CPU in single precision.
            split: What the run has measured: val after fit, test after test.
        """

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reports on the best checkpoint, or on the present model where none was written."""
        if _reports(trainer):
            best = best_checkpoint(trainer)
            module: LightningModule = load_checkpoint(best)[0] if best else pl_module
            self.report(trainer, encode_all(module, trainer), "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reports on the model that was tested."""
        if _reports(trainer):
            self.report(trainer, encode_all(pl_module, trainer), "test")


def best_checkpoint(trainer: Trainer) -> Path | None:
    """The best checkpoint of this run; None where none was written."""
    path = getattr(trainer.checkpoint_callback, "best_model_path", "")
    return Path(path) if path and Path(path).is_file() else None


def encode_all(module: LightningModule, trainer: Trainer) -> EncoderOutput:
    """What the module's encoder makes of all questions of the label table, on the CPU in single precision."""
    data: Any = trainer.datamodule  # type: ignore[attr-defined]
    encoder: Any = module.eval().encoder
    with torch.no_grad():
        output = encoder(data.inputs.to(module.device))
    return EncoderOutput(*(part.float().cpu() for part in output))


def _reports(trainer: Trainer) -> bool:
    return trainer.is_global_zero and not trainer.fast_dev_run  # type: ignore[attr-defined]
