"""What is to be evaluated: data sets and experiments as a YAML file names them, and the units of work they come to."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corag_agent.evaluation.methods import find_method
from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.pipeline_config import PipelineConfig
from corag_search.registry import whole
from data_prep.table_files import SPLITS


@dataclass(frozen=True)
class Source:
    """A data set to evaluate on.

    Attributes:
        name: In records and tables.
        data: `FORMAT:PATH`, as for `corag label --data`.
        limit: Questions to take; of one seed, a smaller sample is part of a greater one, and those that
            `corag label --limit` took come first.
        compose: Make this many compound questions out of its own and evaluate on those, as `corag label --compose`.
        splits: Take only questions of these splits (train, val, test), as `corag label` splits a data set by document:
            what an agent was trained on says nothing about it.
        domain: In place of the questions' own.
        stores: Directory of a store by chunk size, such as `{96: runs/store}`; made under the output where not given.
        distractors: Made-up chunks that are mixed into the store, to see how it scales.
    """

    name: str
    data: str
    limit: int | None = None
    compose: int | None = None
    splits: list[str] | None = None
    domain: str = ""
    stores: dict[int, str] = field(default_factory=dict)
    distractors: int = 0

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError(f"data: every data set needs a name, {self.data!r} has none")
        for name, least in (("limit", 1), ("compose", 1), ("distractors", 0)):
            if getattr(self, name) is not None:
                whole(f"data {self.name}: {name}", getattr(self, name), least=least)
        unknown = sorted(set(self.splits or []) - set(SPLITS))
        if unknown:
            raise InputError(f"data {self.name}: splits are {', '.join(SPLITS)}, got {unknown[0]!r}")


@dataclass(frozen=True)
class Experiment:
    """Methods on data sets, over chunk sizes, budgets and settings.

    Attributes:
        name: In records and tables.
        methods: Names out of `list_methods()`.
        rerankers: For the methods that use one; null for all of the pipeline's.
        chunk_sizes: Tokens; null for the pipeline's.
        budgets: Tokens; null for the pipeline's.
        data: Names of data sets; null for all.
        limit: Questions of each data set, where that is fewer than the data set's own limit.
        candidates: Chunks retrieved; null for the pipeline's.
        settings: Of the search, in place of the pipeline's.
        sweep: Values by setting of the search; each combination is a variant of every method. They also take precedence
            over the agent.
        options: Options of a method, by its name.
        timing: Measure: every method embeds, retrieves, scores and generates anew, one question at a time.
        structure: Also measure how far the rerankers are from additive and from monotone (`structure.parquet`).
    """

    name: str
    methods: list[str] = field(default_factory=list)
    rerankers: list[str] | None = None
    chunk_sizes: list[int] | None = None
    budgets: list[int] | None = None
    data: list[str] | None = None
    limit: int | None = None
    candidates: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    timing: bool = False
    structure: bool = False

    def __post_init__(self) -> None:
        where = f"runs: {self.name or 'a run without a name'}"
        if not self.name:
            raise InputError("runs: every run needs a name")
        if not self.methods and not self.structure:
            raise InputError(f"{where}: names no method; give methods, or structure: true")
        for method in self.methods:
            find_method(method)
        for name in ("methods", "rerankers", "chunk_sizes", "budgets", "data"):
            given = getattr(self, name)
            if given is not None and len(set(given)) < len(given):
                raise InputError(f"{where}: {name} names one twice, got {given}")
            if given == [] and name in ("rerankers", "chunk_sizes", "budgets"):
                raise InputError(f"{where}: {name} is empty; name at least one, or leave it out for the pipeline's")
        for name in ("limit", "candidates"):
            if getattr(self, name) is not None:
                whole(f"{where}: {name}", getattr(self, name))
        known = [setting.name for setting in dataclasses.fields(SearchConfig) if setting.name != "budget"]
        for setting in (*self.settings, *self.sweep):
            if setting not in known:
                raise InputError(f"{where}: unknown setting {setting!r}; allowed are {', '.join(known)}")
        for setting, values in self.sweep.items():
            if not values:
                raise InputError(f"{where}: sweep: {setting} has no values; give at least one, or leave it out")
        for method, options in self.options.items():
            if method not in self.methods:
                raise InputError(f"{where}: options are for {method!r}, which is none of its methods")
            find_method(method).check_options(options)

    def variants(self) -> list[dict[str, Any]]:
        """The combinations of the sweep's values; a single empty one without a sweep."""
        return [dict(zip(self.sweep, values, strict=True)) for values in itertools.product(*self.sweep.values())]


@dataclass(frozen=True)
class Unit:
    """One method at one setting, for every question of a data set.

    Attributes:
        run: The experiment's name.
        method: Its name.
        reranker: Name; "" where the method uses none of its own.
        chunk_size: Tokens.
        variant: What the sweep sets, as text.
        candidates: Chunks retrieved.
        config: Settings of the search, the budget among them.
        fixed: What the sweep sets: it takes precedence over the agent.
        options: Of the method.
        timing: Whether nothing may be shared or come from a cache.
    """

    run: str
    method: str
    reranker: str
    chunk_size: int
    variant: str
    candidates: int
    config: SearchConfig
    fixed: Mapping[str, Any]
    options: Mapping[str, Any]
    timing: bool

    @property
    def budget(self) -> int:
        """Tokens."""
        return self.config.budget

    def settings(self) -> dict[str, Any]:
        """What shapes the choice, as plain values."""
        search = {name: value for name, value in plain_search(self.config).items() if value is not None}
        options = {"options": dict(self.options)} if self.options else {}
        return search | {"candidates": self.candidates} | options


def plain_search(config: SearchConfig) -> dict[str, Any]:
    """Settings of a search as plain values."""
    values = dataclasses.asdict(config)
    return values | {"final_rule": str(config.final_rule), "selection": str(config.selection)}


def units(experiment: Experiment, pipeline: PipelineConfig) -> list[Unit]:
    """Everything an experiment does for one question.

    Raises:
        InputError: A reranker that the pipeline does not configure, or an unusable setting.
    """
    rerankers = list(pipeline.rerankers) if experiment.rerankers is None else experiment.rerankers
    for reranker in rerankers:
        if reranker not in pipeline.rerankers:
            raise InputError(
                f"runs: {experiment.name}: the reranker {reranker!r} is not among those configured "
                f"({', '.join(pipeline.rerankers)}); add it to rerankers"
            )
    return list(_units(experiment, pipeline, rerankers))


def _units(experiment: Experiment, pipeline: PipelineConfig, rerankers: Sequence[str]) -> Iterator[Unit]:
    for chunk_size in experiment.chunk_sizes or [pipeline.chunk_size]:
        for budget in experiment.budgets or [pipeline.search.budget]:
            for fixed in experiment.variants():
                config = dataclasses.replace(pipeline.search, **{**experiment.settings, **fixed, "budget": budget})
                for method in experiment.methods:
                    for reranker in rerankers if find_method(method).reranks else [""]:
                        yield Unit(
                            run=experiment.name,
                            method=method,
                            reranker=reranker,
                            chunk_size=whole("chunk_sizes", chunk_size, unit="tokens"),
                            variant=",".join(f"{name}={value}" for name, value in fixed.items()),
                            candidates=experiment.candidates or pipeline.candidates,
                            config=config,
                            fixed=fixed,
                            options=experiment.options.get(method, {}),
                            timing=experiment.timing,
                        )


def check_plan(sources: Sequence[Source], experiments: Sequence[Experiment]) -> None:
    """Refuse what makes no plan, before anything is loaded.

    Raises:
        InputError: No data set or experiment, a name twice, or a data set that an experiment names and that is not
            there.
    """
    for what, given in (("data", sources), ("runs", experiments)):
        names = [one.name for one in given]
        if not names:
            raise InputError(f"{what} is empty; configs/evaluate.yaml shows what stands there")
        if len(set(names)) < len(names):
            raise InputError(f"{what}: the names must be distinct, got {', '.join(names)}")
    known = [source.name for source in sources]
    for experiment in experiments:
        for name in experiment.data or []:
            if name not in known:
                raise InputError(f"runs: {experiment.name}: there is no data set {name!r}; data has {', '.join(known)}")
