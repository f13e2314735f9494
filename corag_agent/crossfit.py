"""Cross-fitting: an agent for each fold of a label table, trained on the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corag_agent.callbacks.best_model import best_checkpoint
from corag_agent.callbacks.lineage import EXPORT_FOLDER
from corag_agent.cross_fitted import INDEX, CrossFitted, HeldOut
from corag_agent.evaluation.comparison import following
from corag_agent.export import export
from corag_agent.fit_config import (
    CONFIG,
    check_one_device,
    leaves,
    overridden,
    resolved_config,
    without_repeated_warnings,
    write_config,
)
from corag_agent.folds import fixed_of_other_folds, fold_of
from corag_agent.seen import table_digest
from corag_agent.training import training_cli
from corag_search.errors import InputError
from corag_search.files import changing_alone, sha256_of
from corag_search.weights_directory import CONFIG_FILE
from data_prep.privacy import without_folders
from data_prep.progress import progress_bar
from data_prep.table import LabelTable

Positions = npt.NDArray[np.intp]

# Options of `corag fit` that are this command's own: folds are by document, which no agent may have seen.
OWN = ("output", "data.labels", "data.folds", "data.fold", "data.split_by")
# What brings in weights that may have seen the questions that are held out.
_STARTING = ("model.init_from", "ckpt_path")


@dataclass(frozen=True)
class CrossFit:
    """What cross-fitting has come to.

    Attributes:
        index: As it was written.
        trained: Folds whose agents were trained now; the others were there.
        rougeL: Mean over the questions of what their own fold's agent reaches, its settings snapped to the grid.
        fixed_rougeL: Likewise of the configuration that is best for all other folds.
    """

    index: CrossFitted
    trained: tuple[int, ...]
    rougeL: float
    fixed_rougeL: float

    @property
    def questions(self) -> int:
        """That were labelled."""
        return sum(len(agent.questions) for agent in self.index.agents)


def crossfit(
    labels: str,
    output: Path,
    folds: int = 5,
    fit_files: Sequence[str] = (),
    fit: Mapping[str, Any] | None = None,
) -> CrossFit:
    """Trains and exports an agent for each fold, and writes which questions each has not seen.

    Fold by fold as `corag fit --data.folds FOLDS --data.fold K` does it: one fold is held out, the next one validates.
    Agents that are there, of the same table and configuration, are kept; others are replaced.

    Args:
        labels: Path of the label table; it names the documents of its questions.
        output: Directory: `agents.json`, and for each fold what `corag fit` writes and the export.
        folds: How many.
        fit_files: Configuration files of `corag fit`.
        fit: Options of `corag fit` by dotted key, above the files.

    Raises:
        InputError: Something is unusable, or a fold cannot be trained on.
    """
    config = _fit_config(labels, folds, fit_files, fit or {})
    table = LabelTable.read(labels)
    of = fold_of(table, folds, config["data"]["seed"])
    wanted = CrossFitted(folds, {"digest": table_digest(table), "fingerprint": table.fingerprint}, _recorded(config))
    output.mkdir(parents=True, exist_ok=True)
    trained = []
    with changing_alone(output), progress_bar("folds", folds) as advance, without_repeated_warnings():
        there = _agents_there(output, wanted)
        for fold in range(folds):
            if fold not in there:
                there[fold] = _train(config, output, fold, table, wanted.labels["digest"], of)
                replace(wanted, agents=tuple(there[number] for number in sorted(there))).write(output)
                trained.append(fold)
            advance(1)
        index = replace(wanted, agents=tuple(there[fold] for fold in range(folds)))
        return CrossFit(index, tuple(trained), *_held_out_means(table, of, index, output))


def _fit_config(labels: str, folds: int, files: Sequence[str], fit: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that all folds share."""
    fit = leaves(fit)
    for name, value in fit.items():
        if name in OWN:
            raise InputError(f"{name} is set for each fold by `corag crossfit` itself, got {value!r}; leave it out")
    own = {"data.labels": labels, "data.folds": folds, "data.fold": 0, "data.split_by": "document"}
    config = resolved_config(files, overridden({}, {**fit, **own}))
    check_one_device(config, "a fold")
    given = leaves(config)
    for name in _STARTING:
        if given[name] is not None:
            raise InputError(
                f"{name} is {given[name]!r}: an agent that starts from another may have seen what is held out; leave "
                "it out"
            )
    config["trainer"]["enable_progress_bar"] = False
    return config


def _recorded(config: Mapping[str, Any]) -> dict[str, Any]:
    """What all agents depend on but the table; as JSON has it."""
    data = {name: value for name, value in config["data"].items() if name not in ("labels", "fold")}
    return without_folders({**config, "data": data})


def _agents_there(output: Path, wanted: CrossFitted) -> dict[int, HeldOut]:
    """Agents of an earlier run that are what this one would train."""
    if not (output / INDEX).is_file():
        return {}
    index = CrossFitted.read(output)
    if replace(index, agents=()) != wanted:
        return {}
    return {agent.fold: agent for agent in index.agents if _is_there(output, agent)}


def _is_there(output: Path, agent: HeldOut) -> bool:
    try:
        agent.load(output)
    except InputError:
        return False
    return True


def _train(
    config: Mapping[str, Any], output: Path, fold: int, table: LabelTable, digest: str, of: Positions
) -> HeldOut:
    """Trains and exports one agent."""
    folder = output / f"fold-{fold}"
    path = folder / EXPORT_FOLDER
    write_config(overridden(config, {"data.fold": fold}), folder / CONFIG)
    try:
        cli = training_cli(["fit", "--config", str(folder / CONFIG), "--output", str(folder)])
        # Of another table the folds are others: the agent may have seen what this index would say it has not.
        if table_digest(cli.datamodule.table) != digest:
            raise InputError("the label table has changed since this run began; run it again once nothing writes there")
        best = best_checkpoint(cli.trainer)
        if best is None:
            raise InputError("training left no checkpoint; leave out trainer.fast_dev_run, and what turns them off")
        export(best, path, seen=False)  # the index says it
    except InputError as error:
        raise InputError(f"fold {fold} of {config['data']['folds']}: {error}") from error
    held = np.flatnonzero(of == fold)
    assert table.documents is not None, "folds are made by them"
    return HeldOut(
        fold=fold,
        directory=path.relative_to(output).as_posix(),
        sha256=sha256_of(path / CONFIG_FILE),
        questions=tuple(table.questions["question_id"].iloc[held]),
        documents=tuple(sorted({name for at in held for name in table.documents[at]})),
    )


def _held_out_means(table: LabelTable, of: Positions, index: CrossFitted, output: Path) -> tuple[float, float]:
    """ROUGE-L of the agents, and of the best fixed configurations, each where it has seen nothing."""
    every, reached = np.arange(len(table)), np.empty(len(table))
    for held in index.agents:
        test = np.flatnonzero(of == held.fold)
        reached[test] = following(table, test, held.load(output)).rouge
    fixed = table.rouge()[(every, *fixed_of_other_folds(table, every, of).T)]
    return float(reached.mean()), float(fixed.mean())
