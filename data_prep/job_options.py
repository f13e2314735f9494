"""How a labelling job is run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from corag_search.errors import InputError
from corag_search.registry import one_of, whole
from data_prep.scoring import LLM, check_references
from data_prep.splits import SplitBy, check_split_by

if TYPE_CHECKING:
    from data_prep.table import LabelTable


MOST_SAMPLES = 1000  # each has a generator of its own


class EngineName(StrEnum):
    """Where questions are labelled."""

    LOCAL = "local"  # in threads of this process
    RAY = "ray"  # in the actors of a Ray cluster


@dataclass(frozen=True)
class JobOptions:
    """How a job is run. What answers are scored against shapes the labels, `seed` and `split_by` the splits.

    Attributes:
        references: "llm" (the generator's own answer from the gold passages), "human" (the data set's), or both.
        samples: Answers sampled for each prompt, by as many seeds; more than one needs a temperature.
        workers: Questions that search at a time; with Ray, its actors.
        llm_concurrency: Answers that the generator is asked for at a time.
        retry_failed: Take up the questions that failed before, and no others.
        seed: Of the splits.
        split_by: "document" or "domain": what is never divided between train, val and test.
        engine: "local" or "ray".
        ray_address: Of the cluster; None starts Ray on this machine.
        worker_cpus: Cores that each Ray worker reserves.
        worker_gpus: GPUs that each Ray worker reserves; may be a fraction.
        rescore: Search nothing; score the orders of this label table anew, with the references, samples, prompt and
            generator of this job. Answers are taken from the cache beside it where it has them.

    Raises:
        InputError: An unusable value.
    """

    references: tuple[str, ...] = (LLM,)
    samples: int = 1
    workers: int = 1
    llm_concurrency: int = 1
    retry_failed: bool = False
    seed: int = 0
    split_by: str = SplitBy.DOCUMENT
    engine: str = EngineName.LOCAL
    ray_address: str | None = None
    worker_cpus: float = 1.0
    worker_gpus: float = 0.0
    rescore: Path | None = None

    def __post_init__(self) -> None:
        check_references(self.references)
        whole("samples", self.samples, most=MOST_SAMPLES)
        for name in ("workers", "llm_concurrency"):
            whole(name, getattr(self, name))
        check_split_by(self.split_by)
        engine = one_of("engine", self.engine, EngineName)
        for name in ("worker_cpus", "worker_gpus"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(f"{name} must be a number, at least 0, got {getattr(self, name)!r}")
        for name in ("ray_address", "worker_cpus", "worker_gpus"):
            value = getattr(self, name)
            if engine is EngineName.LOCAL and value != getattr(JobOptions, name):
                raise InputError(f"{name}={value!r} is for engine=ray, got engine=local; set engine to ray")

    @cached_property
    def rescored(self) -> LabelTable | None:
        """The table that `rescore` names, read once; None without.

        Raises:
            InputError: It cannot be read.
        """
        from data_prep.table import LabelTable

        return None if self.rescore is None else LabelTable.read(self.rescore)

    @property
    def in_flight(self) -> int:
        """Questions under way at a time."""
        if self.engine == EngineName.RAY:
            return self.workers * max(1, self.llm_concurrency // self.workers)
        return self.workers + self.llm_concurrency - 1
