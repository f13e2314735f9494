"""One trial: a run of `corag fit` that is watched."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from lightning.pytorch import Callback, LightningModule, Trainer

from corag_agent.callbacks.best_model import BestModelReport
from corag_agent.fit_config import CONFIG, write_config
from corag_agent.seen import table_digest
from corag_agent.training import training_cli
from corag_agent.tuning.study import TrialOutcome
from corag_search.errors import InputError


class ChangedTableError(InputError):
    """The label table is no longer the one that the study is about."""


class TrialWatch(Callback):
    """Reports the metric after every validation, and stops the training when the pruner says so.

    Pictures of the model are left to the run that takes up the best configuration.

    Attributes:
        values: The metric after each validation.
        epochs: The epoch of each, from 0.
        pruned: Whether it was stopped.
    """

    def __init__(self, trial: optuna.Trial, monitor: str, digest: str) -> None:
        """Takes the trial, the name of the metric, and the digest of the study's label table."""
        self._trial, self._monitor, self._digest = trial, monitor, digest
        self.values: list[float] = []
        self.epochs: list[int] = []
        self.pruned = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Takes reports on the trained model out of the run.

        Raises:
            ChangedTableError: The trial has read another label table than the study is about.
        """
        if table_digest(trainer.datamodule.table) != self._digest:  # type: ignore[attr-defined]
            raise ChangedTableError(
                "the label table has changed since the study began; put back what it was and run the same command "
                "again, which goes on, or begin another study with another --output"
            )
        trainer.callbacks = [each for each in trainer.callbacks if not isinstance(each, BestModelReport)]  # type: ignore[attr-defined]

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reports; called once more before the training when `num_sanity_val_steps` is set."""
        if trainer.sanity_checking:
            return
        value = float(trainer.callback_metrics[self._monitor])
        if trainer.current_epoch not in self.epochs:  # trials are compared at the first validation of an epoch
            self._trial.report(value, step=trainer.current_epoch)
        self.values.append(value)
        self.epochs.append(trainer.current_epoch)
        if self._trial.should_prune():
            self.pruned = trainer.should_stop = True


def run_trial(trial: optuna.Trial, config: Mapping[str, Any], directory: Path, digest: str) -> TrialOutcome:
    """Trains with a configuration of `corag fit` and writes to `directory`.

    An error is part of the outcome; its traceback is written to `error.txt` there.

    Args:
        trial: Is told the metric, and may be pruned.
        config: Resolved, of `corag fit`.
        directory: Of the trial.
        digest: Of the study's label table.

    Raises:
        KeyboardInterrupt: When interrupted.
        ChangedTableError: The table is another one by now: what it gives is no result of this study.
    """
    write_config(config, directory / CONFIG)
    checkpoint = config["checkpoint"]
    watch = TrialWatch(trial, checkpoint["monitor"], digest)
    given = ["fit", "--config", str(directory / CONFIG), "--output", str(directory)]
    try:
        training_cli([*given, "--trainer.enable_progress_bar", "false"], callbacks=[watch])
    except ChangedTableError:
        raise
    except Exception as error:  # whatever is wrong with this combination, the next may do
        (directory / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        return TrialOutcome(
            error=f"{type(error).__name__}: {error}" if not isinstance(error, InputError) else str(error)
        )
    finite = [value for value in watch.values if math.isfinite(value)]
    if not finite:
        return TrialOutcome(error=f"{checkpoint['monitor']} was never a finite number")
    best = min(finite) if checkpoint["mode"] == "min" else max(finite)
    return TrialOutcome(tuple(watch.values), tuple(watch.epochs), best, watch.pruned)
