"""The part of a plan that a command line asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from corag_agent.evaluation.methods import find_method
from corag_agent.evaluation.plan import Experiment, Source
from corag_search.errors import InputError
from corag_search.registry import whole


def narrowed(
    sources: Sequence[Source],
    experiments: Sequence[Experiment],
    only: Sequence[str] | None = None,
    take: Sequence[str] | None = None,
    without: Sequence[str] = (),
    limit: int | None = None,
) -> tuple[list[Source], list[Experiment]]:
    """Some of the data sets, experiments and methods, in their order.

    Args:
        sources: All data sets.
        experiments: All experiments.
        only: Names of experiments; None for all.
        take: Names of data sets, each as NAME, or as NAME=COUNT to take so many questions of it; None for all.
        without: Names of methods to leave out.
        limit: Questions of each data set and experiment at most.

    Raises:
        InputError: A name that is not there, a count that is none, or nothing left to do.
    """
    if limit is not None:
        whole("limit", limit)
    _check_named("only", "run", only or (), [experiment.name for experiment in experiments])
    counts = None if take is None else _counts(take, [source.name for source in sources])
    for method in without:
        find_method(method)
    asked = [experiment for experiment in experiments if only is None or experiment.name in only]
    left = [one for experiment in asked if (one := _narrowed(experiment, sources, counts, without, limit))]
    if asked and not left:
        raise InputError("nothing is left to do of the runs; take more data sets, or leave out fewer methods")
    if counts is None:
        return list(sources), left
    return [replace(one, limit=counts[one.name] or one.limit) for one in sources if one.name in counts], left


def _counts(take: Sequence[str], known: Sequence[str]) -> Mapping[str, int | None]:
    """How many questions of each data set to take; None where its own limit stands."""
    counts: dict[str, int | None] = {}
    for given in take:
        name, equals, count = given.rpartition("=")
        if not equals or given in known:
            counts[given] = None
        elif count.isdecimal() and int(count) > 0:
            counts[name] = int(count)
        else:
            raise InputError(f"take: questions of {name} must be a whole number, at least 1, got {count!r}")
    _check_named("take", "data set", list(counts), known)
    return counts


def _narrowed(
    experiment: Experiment,
    sources: Sequence[Source],
    counts: Mapping[str, int | None] | None,
    without: Sequence[str],
    limit: int | None,
) -> Experiment | None:
    """What is left of an experiment; None where that is nothing."""
    methods = [method for method in experiment.methods if method not in without]
    data = experiment.data
    if counts is not None:
        data = [name for name in data or [source.name for source in sources] if name in counts]
    if data == [] or not (methods or experiment.structure):
        return None
    return replace(
        experiment,
        methods=methods,
        data=data,
        options={method: own for method, own in experiment.options.items() if method in methods},
        limit=min(filter(None, (experiment.limit, limit)), default=None),
    )


def _check_named(option: str, what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"{option}: there is no {what} {name!r}; there are: {', '.join(known)}")
