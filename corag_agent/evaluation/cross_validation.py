"""Out-of-fold choices over a label table: what an agent, or a rival to it, reaches on questions it has not seen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint

from corag_agent.datamodule import LabelDataModule
from corag_agent.evaluation.comparison import agent_index, agent_predictions
from corag_agent.export import export
from corag_agent.folds import split_by_folds
from corag_agent.module import ConfigurationAgentModule
from corag_agent.training import quiet
from corag_search.agent import ConfigurationAgent
from data_prep.selection import best_fixed
from data_prep.table import LabelTable

Positions = npt.NDArray[np.intp]
# A configuration for each question: index into the last four axes of `LabelTable.rouge`, `[m, 4]`.
Choices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Fold:
    """One fold of a cross-validation.

    Attributes:
        table: The label table.
        path: Where it lies.
        folds: In all.
        number: Of the fold that tests, from 0.
        splits: Positions of the questions of train, val and test.
        seed: Of the folds and of training.
        split_by: document or domain, which no fold divides.
    """

    table: LabelTable
    path: str
    folds: int
    number: int
    splits: dict[str, Positions]
    seed: int
    split_by: str = "document"

    @property
    def seen(self) -> Positions:
        """Everything but the test questions, `[m]`."""
        return np.concatenate([self.splits["train"], self.splits["val"]])


# Chooses configurations for a fold's test questions without looking at their scores, `[m, 4]`.
Chooser = Callable[[Fold], Choices]


def out_of_fold(
    path: str,
    table: LabelTable,
    chooser: Chooser,
    folds: int = 5,
    seeds: Sequence[int] = (0,),
    split_by: str = "document",
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """ROUGE-L and prompt tokens that a chooser reaches, every question tested once for each seed.

    Args:
        path: Of the label table.
        table: What lies there.
        chooser: Is shown one fold at a time.
        folds: How many; an article's languages stand in one.
        seeds: Of folds and training.
        split_by: document, or domain for questions of a domain that was not seen.

    Returns:
        Two of `[seeds, n]`.
    """
    rouge, tokens = table.rouge(), table.tokens
    reached = np.full((2, len(seeds), len(table)), np.nan)
    for at, seed in enumerate(seeds):
        for fold in folds_of(path, table, folds, seed, split_by):
            test = fold.splits["test"]
            chosen = (test, *chooser(fold).T)
            reached[:, at, test] = rouge[chosen], tokens[chosen]
    return reached[0], reached[1]


def folds_of(path: str, table: LabelTable, folds: int, seed: int, split_by: str = "document") -> Iterator[Fold]:
    """The folds of a cross-validation in turn."""
    for number in range(folds):
        splits = split_by_folds(table, folds, number, seed, split_by)
        yield Fold(table, path, folds, number, splits, seed, split_by)


def fixed_chooser(fold: Fold) -> Choices:
    """The best fixed configuration of everything but the test fold."""
    return np.tile(best_fixed(fold.table, fold.seen), (len(fold.splits["test"]), 1)).astype(np.intp)


def agent_chooser(
    data: Mapping[str, Any] | None = None, model: Mapping[str, Any] | None = None, epochs: int = 60
) -> Chooser:
    """Trains an agent on the fold, takes the epoch of the least regret on its validation questions, and exports it.

    Args:
        data: Options of `LabelDataModule`.
        model: Options of `ConfigurationAgentModule`.
        epochs: Of training.
    """

    def choose(fold: Fold) -> Choices:
        with tempfile.TemporaryDirectory() as directory:
            agent = train_agent(fold, directory, data or {}, model or {}, epochs)
        test = fold.splits["test"]
        _, *chosen = agent_index(fold.table, agent_predictions(fold.table, test, agent))
        return np.stack(chosen, axis=1)

    return choose


def train_agent(
    fold: Fold, directory: str, data: Mapping[str, Any], model: Mapping[str, Any], epochs: int
) -> ConfigurationAgent:
    """The exported agent of a fold; arguments as of `agent_chooser`, `directory` for its files."""
    with quiet():
        seed_everything(fold.seed, verbose=False)
        same: dict[str, Any] = {"folds": fold.folds, "fold": fold.number, "split_by": fold.split_by, "seed": fold.seed}
        labels = LabelDataModule(fold.path, **same, **data)
        module = ConfigurationAgentModule.for_data(labels, **model)
        best = ModelCheckpoint(directory, "best", "val/regret", mode="min")
        trainer = Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            logger=False,
            callbacks=[best],
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(module, datamodule=labels)
        return ConfigurationAgent.load(export(best.best_model_path, Path(directory) / "export"))
