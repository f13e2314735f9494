"""How a study is run: options of `corag tune` beside the search space and what is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from corag_search.errors import InputError


class Sampler(StrEnum):
    """What proposes the next trial: Optuna's tree-structured Parzen estimator, or chance alone."""

    TPE = "tpe"
    RANDOM = "random"


class Pruner(StrEnum):
    """What ends a trial early: being worse than the median of the others at the same epoch, or nothing."""

    MEDIAN = "median"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Options of a study's run.

    Attributes:
        trials: Trials that the study is to have when it ends, those of earlier and parallel runs among them.
        time_limit: Seconds after which this run begins no further trial; None for no limit.
        sampler: tpe or random.
        pruner: median or none.
        startup_trials: Complete trials, drawn by chance, before the sampler learns from them and the pruner compares.
        warmup_epochs: Epochs of each trial that are not pruned.
        seed: Of the sampler; each trial draws from (seed, its number), so that a resumed study repeats none.
    """

    trials: int = 50
    time_limit: float | None = None
    sampler: Sampler | str = Sampler.TPE
    pruner: Pruner | str = Pruner.MEDIAN
    startup_trials: int = 10
    warmup_epochs: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            InputError: One is out of its range.
        """
        for name, least in (("trials", 1), ("startup_trials", 1), ("warmup_epochs", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.time_limit is not None and not 0 < self.time_limit < math.inf:
            raise InputError(f"time_limit must be a positive number of seconds, got {self.time_limit}")
        kinds: tuple[tuple[str, type[StrEnum]], ...] = (("sampler", Sampler), ("pruner", Pruner))
        for name, kind in kinds:
            value = getattr(self, name)
            if value not in list(kind):
                raise InputError(f"{name} must be one of {', '.join(kind)}, got {value!r}")
            object.__setattr__(self, name, kind(value))
