"""What a study has come to: the table of its trials, the best one's configuration, pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.importance import get_param_importances
from optuna.trial import FrozenTrial, TrialState

from corag_agent.evaluation.text_table import text_table
from corag_agent.fit_config import overridden, write_config
from corag_agent.tuning.plots import draw_history, draw_importances
from corag_agent.tuning.space import SearchSpace
from corag_agent.tuning.study import BEST_EPOCH, EPOCHS, failures, ranked_trials, value_of
from corag_agent.tuning.study_file import StudyFile
from corag_search.errors import InputError

BEST, HISTORY, IMPORTANCES = "best.yaml", "history.svg", "importances.svg"
_FEWEST_FOR_IMPORTANCES = 10  # complete trials


@dataclass(frozen=True, slots=True)
class StudyReport:
    """Results of a study.

    Attributes:
        storage: Where the study is kept, KIND:PATH.
        monitor: The metric.
        minimised: Whether less of it is better.
        ranked: Complete trials, the best first.
        pruned: Trials that the pruner ended.
        failed: Why trials failed, by number.
        running: Trials that other processes are at.
        keys: The options that were varied.
        values: The options' values of each ranked and pruned trial, by number and key.
        best_config: The configuration of `corag fit` of the best trial, without `output`; None without one.
        importances: Share of each option in what tells the best tenth of the trials from the others, the greatest
            first; empty with too few trials.
    """

    storage: str
    monitor: str
    minimised: bool
    ranked: tuple[FrozenTrial, ...]
    pruned: tuple[FrozenTrial, ...]
    failed: Mapping[int, str]
    running: int
    keys: tuple[str, ...]
    values: Mapping[int, Mapping[str, Any]]
    best_config: Mapping[str, Any] | None
    importances: Mapping[str, float]

    @classmethod
    def of(cls, study: optuna.Study, space: SearchSpace, base: Mapping[str, Any], file: StudyFile) -> StudyReport:
        """Gathers the results of a study."""
        trials = study.get_trials(deepcopy=False)
        minimised = base["checkpoint"]["mode"] == "min"
        ranked = ranked_trials(study)
        pruned = tuple(trial for trial in trials if trial.state is TrialState.PRUNED)
        return cls(
            str(file),
            base["checkpoint"]["monitor"],
            minimised,
            tuple(ranked),
            pruned,
            failures(trials),
            sum(trial.state is TrialState.RUNNING for trial in trials),
            tuple(space.parameters),
            {trial.number: space.values(trial.params) for trial in (*ranked, *pruned)},
            overridden(base, space.values(ranked[0].params)) if ranked else None,
            get_param_importances(study) if len(ranked) >= _FEWEST_FOR_IMPORTANCES else {},
        )

    def write(self, output: Path) -> None:
        """Writes the best configuration and the pictures, in place of earlier ones."""
        if self.best_config is None:
            return
        write_config(self.best_config, output / BEST)
        draw_history(self.ranked, self.pruned, self.monitor, self.minimised, output / HISTORY)
        if self.importances:
            draw_importances(self.importances, self.monitor, output / IMPORTANCES)

    def table(self, columns: int = 5) -> str:
        """The best trials side by side, for people."""
        shown = self.ranked[:columns]
        rows: dict[str, list[str]] = {
            self.monitor: [f"{value_of(trial):.4f}" for trial in shown],
            "at epoch": [str(trial.user_attrs[BEST_EPOCH] + 1) for trial in shown],
            "of epochs": [str(trial.user_attrs[EPOCHS]) for trial in shown],
            "trial": [str(trial.number) for trial in shown],
        }
        options = {key: [_text(self.values[trial.number][key]) for trial in shown] for key in self.keys}
        header = ("rank", *map(str, range(1, len(shown) + 1)))
        return text_table(header, [[name, *cells] for name, cells in (rows | options).items()])

    def check(self) -> None:
        """Refuses a study in which nothing worked.

        Raises:
            InputError: Every trial failed.
        """
        if self.failed and not (self.ranked or self.pruned or self.running):
            number, error = next(iter(self.failed.items()))
            raise InputError(f"all {len(self.failed)} trials failed; the first, trial {number}: {error}")

    def summary(self) -> str:
        """How the trials ended, in one line."""
        counts = ((len(self.ranked), "complete"), (len(self.pruned), "pruned"), (len(self.failed), "failed"))
        more = [f"{count} {name}" for count, name in (*counts, (self.running, "running elsewhere")) if count]
        line = f"trials: {', '.join(more) or 'none'}"
        if self.failed:
            number, error = next(iter(self.failed.items()))
            line += f" (first of them trial {number}: {error})"
        return line

    def to_dict(self, output: Path) -> dict[str, Any]:
        """Everything, for programs."""
        found = self.ranked[0] if self.ranked else None
        return {
            "storage": self.storage,
            "monitor": self.monitor,
            "best": found and {"trial": found.number, "value": found.value, "config": str(output / BEST)},
            "trials": [self._row(trial) for trial in (*self.ranked, *self.pruned)],
            "failed": {str(number): error for number, error in self.failed.items()},
            "running": self.running,
            "importances": dict(self.importances),
        }

    def _row(self, trial: FrozenTrial) -> dict[str, Any]:
        return {
            "trial": trial.number,
            "state": trial.state.name.lower(),
            "value": trial.value,
            "epochs": trial.user_attrs[EPOCHS],
            "options": dict(self.values[trial.number]),
        }


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return value if isinstance(value, str) else json.dumps(value)
