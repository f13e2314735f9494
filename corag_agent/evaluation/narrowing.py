"""The part of a plan that a command line asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from corag_agent.evaluation.methods import find_method
from corag_agent.evaluation.plan import Experiment, Source
from corag_search.errors import InputError


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
    _check_named("only", "run", only or (), [experiment.name for experiment in experiments])
    counts = _counts(take, sources)
    for method in without:
        find_method(method)
    kept = [_narrowed(one, sources, counts, without, limit) for one in experiments if only is None or one.name in only]
    left = [experiment for experiment in kept if experiment.data != [] and (experiment.methods or experiment.structure)]
    if experiments and not left:
        raise InputError("nothing is left to do of the runs; take more data sets, or leave out fewer methods")
    taken = [replace(one, limit=counts[one.name] or one.limit) for one in sources if one.name in counts]
    return taken, left


def _counts(take: Sequence[str] | None, sources: Sequence[Source]) -> Mapping[str, int | None]:
    """How many questions of each data set to take; None where its own limit stands."""
    known = [source.name for source in sources]
    if take is None:
        return dict.fromkeys(known)
    counts: dict[str, int | None] = {}
    for given in take:
        # A data set's name may hold "=" itself.
        name, _, count = (given, "", "") if given in known else given.rpartition("=")
        if count and not (count.isdecimal() and int(count) > 0):
            raise InputError(f"take: questions of {name} must be a whole number, at least 1, got {count!r}")
        counts[name or given] = int(count) if count else None
    _check_named("take", "data set", list(counts), known)
    return counts


def _narrowed(
    experiment: Experiment,
    sources: Sequence[Source],
    counts: Mapping[str, int | None],
    without: Sequence[str],
    limit: int | None,
) -> Experiment:
    names = experiment.data or [source.name for source in sources]
    return replace(
        experiment,
        methods=[method for method in experiment.methods if method not in without],
        structure=experiment.structure,
        data=[name for name in names if name in counts],
        options={method: own for method, own in experiment.options.items() if method not in without},
        limit=min(filter(None, (experiment.limit, limit)), default=None),
    )


def _check_named(option: str, what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"{option}: there is no {what} {name!r}; there are: {', '.join(known)}")
