"""A study that processes share: who takes which trial, what becomes of those that a killed process left."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from corag_agent.fit_config import differences
from corag_agent.tuning.options import Pruner, Sampler, TuneOptions
from corag_agent.tuning.space import SearchSpace
from corag_agent.tuning.study_file import STUDY, FileLock, StudyFile
from corag_search.errors import InputError

# Attributes of the study and of its trials.
ERROR, EPOCHS, BEST_EPOCH = "error", "epochs", "best_epoch"
_MADE_OF, _RETAKES = "made_of", "retakes"
_MOST_KILLS = 3  # a trial that took so many processes with it has failed


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What became of a trial's training.

    Attributes:
        values: The monitored metric after each validation.
        epochs: The epoch of each, from 0.
        best: The best of them; None when none is finite.
        pruned: Whether the pruner ended it.
        error: Why it failed; None when it did not.
    """

    values: tuple[float, ...] = ()
    epochs: tuple[int, ...] = ()
    best: float | None = None
    pruned: bool = False
    error: str | None = None


class SharedStudy:
    """A study on a file; every change to its list of trials is made under the study's lock.

    A trial that runs is one whose own lock is held. So a killed process's trial is known at once, without heartbeats.

    Attributes:
        study: Optuna's.
    """

    def __init__(
        self,
        file: StudyFile,
        space: SearchSpace,
        made_of: Mapping[str, Any],
        mode: str,
        options: TuneOptions,
        output: Path,
    ) -> None:
        """Opens the study, or makes it.

        Args:
            file: Where it is kept.
            space: What is varied.
            made_of: What trials depend on, plain values in named sections; a study is continued with the same only.
            mode: min or max.
            options: How it is run.
            output: Trial N writes to `trials/N` in it.

        Raises:
            InputError: The file is of another kind, or the study was made of something else.
        """
        self._file, self._space, self._options = file, space, options
        self._trials = output / "trials"
        self._held: dict[int, FileLock] = {}
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with file.lock("study"):
            new = not file.path.exists()
            if new and self._trials.exists():
                raise InputError(
                    f"{self._trials} holds trials of a study that is not at {file}; name that with --storage, or "
                    "another --output"
                )
            self.study = optuna.create_study(
                storage=file.open(),
                study_name=STUDY,
                direction="minimize" if mode == "min" else "maximize",
                pruner=_pruner(options),
                load_if_exists=True,
            )
            self._check_made_of(made_of)

    def _check_made_of(self, made_of: Mapping[str, Any]) -> None:
        before = self.study.user_attrs.get(_MADE_OF)
        if before is None:
            if self.study.get_trials(deepcopy=False):
                raise InputError(f"storage {self._file} holds a study that is not `corag tune`'s; name another file")
            self.study.set_user_attr(_MADE_OF, dict(made_of))
            return
        for section in made_of:
            if changed := differences(before.get(section, {}), made_of[section]):
                raise InputError(
                    f"the study at {self._file} differs in its {section} ({', '.join(changed[:5])}); go on with "
                    "the same, or begin another study with another --output"
                )

    def claim(self) -> optuna.Trial | None:
        """The next trial, which is now this process's; None when the study has as many as it is to have."""
        with self._file.lock("study"):
            self._take_back_killed()
            trials = self.study.get_trials(deepcopy=False)
            if counted(trials) >= self._options.trials:
                return None
            self.study.sampler = _sampler(self._options, number=len(trials))
            trial = self.study.ask(self._space.distributions)
            lock = self._file.lock(_lock_name(trial.number))
            lock.acquire()
            self._held[trial.number] = lock
            return trial

    def finish(self, trial: optuna.Trial, outcome: TrialOutcome) -> None:
        """Records what became of a claimed trial, and removes the checkpoints of all finished ones but the best."""
        with self._file.lock("study"):
            if outcome.error is not None:
                trial.set_user_attr(ERROR, outcome.error)
                self.study.tell(trial, state=TrialState.FAIL)
            else:
                trial.set_user_attr(EPOCHS, outcome.epochs[-1] + 1)
                if outcome.pruned:
                    self.study.tell(trial, state=TrialState.PRUNED)
                else:
                    trial.set_user_attr(BEST_EPOCH, outcome.epochs[outcome.values.index(outcome.best)])
                    self.study.tell(trial, outcome.best)
            self.let_go(trial)
            self._file.drop_lock(_lock_name(trial.number))
            self._keep_best_checkpoint()

    def let_go(self, trial: optuna.Trial) -> None:
        """Gives a claimed trial up, if it still is: another process, or the next run, takes it."""
        if lock := self._held.pop(trial.number, None):
            lock.release()

    def directory(self, number: int) -> Path:
        """Where a trial writes to."""
        return self._trials / str(number)

    def _take_back_killed(self) -> None:
        trials = self.study.get_trials(deepcopy=False)
        retaken = _retaken(trials)
        for trial in trials:
            if trial.state is not TrialState.RUNNING or not self._is_abandoned(trial):
                continue
            kills = [*trial.user_attrs.get(_RETAKES, ()), trial.number]
            # First the new trial, then the old one's end: a kill in between neither loses nor doubles it.
            if len(kills) < _MOST_KILLS and trial.number not in retaken:
                self.study.enqueue_trial(trial.params, user_attrs={_RETAKES: kills})
            self.study.tell(trial.number, state=TrialState.FAIL)
            self._file.drop_lock(_lock_name(trial.number))
            shutil.rmtree(self.directory(trial.number), ignore_errors=True)

    def _is_abandoned(self, trial: FrozenTrial) -> bool:
        lock = self._file.lock(_lock_name(trial.number))
        if trial.number in self._held or not lock.acquire(wait=False):
            return False
        lock.release()
        return True

    def _keep_best_checkpoint(self) -> None:
        best = next(iter(ranked_trials(self.study)), None)
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state.is_finished() and (best is None or trial.number != best.number):
                shutil.rmtree(self.directory(trial.number) / "checkpoints", ignore_errors=True)


def ranked_trials(study: optuna.Study) -> list[FrozenTrial]:
    """The complete trials, the best first, of equals the earlier."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    sign = 1 if study.direction is StudyDirection.MINIMIZE else -1
    return sorted(trials, key=lambda trial: (sign * value_of(trial), trial.number))


def value_of(trial: FrozenTrial) -> float:
    """What a complete trial reached."""
    assert trial.value is not None
    return trial.value


def counted(trials: list[FrozenTrial]) -> int:
    """How many of them count: all but those that wait and those that were taken up anew after a kill."""
    retaken = _retaken(trials)
    return sum(trial.state is not TrialState.WAITING and trial.number not in retaken for trial in trials)


def failures(trials: list[FrozenTrial]) -> dict[int, str]:
    """Why trials failed, by number; one that is taken up anew has not."""
    retaken = _retaken(trials)
    return {
        trial.number: trial.user_attrs.get(ERROR, f"its process was killed {_MOST_KILLS} times")
        for trial in trials
        if trial.state is TrialState.FAIL and trial.number not in retaken
    }


def _retaken(trials: list[FrozenTrial]) -> set[int]:
    return {number for trial in trials for number in trial.user_attrs.get(_RETAKES, ())}


def _lock_name(number: int) -> str:
    return f"trial-{number}"


def _sampler(options: TuneOptions, number: int) -> BaseSampler:
    """A sampler whose chance depends on the seed and the trial's number alone."""
    seed = int(np.random.SeedSequence([options.seed, number]).generate_state(1)[0])
    if options.sampler is Sampler.RANDOM:
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, n_startup_trials=options.startup_trials)


def _pruner(options: TuneOptions) -> BasePruner:
    if options.pruner is Pruner.NONE:
        return NopPruner()
    return MedianPruner(n_startup_trials=options.startup_trials, n_warmup_steps=options.warmup_epochs)
