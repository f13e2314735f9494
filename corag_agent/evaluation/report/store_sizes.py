"""Which data sets are one among more and more made-up chunks, and how large their stores are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pandas as pd

from corag_agent.evaluation.records import SECONDS, EvaluationRun
from corag_agent.evaluation.report.cells import groups_of, in_method_order


def store_size(run: EvaluationRun, dataset: str, chunk_size: int) -> int | None:
    """Number of chunks in a data set's store; None where the run's settings do not tell."""
    about = run.settings.get("data", {}).get(dataset, {})
    size: int | None = about.get("chunks", {}).get(str(chunk_size))
    return size


def larger_stores(run: EvaluationRun) -> dict[str, set[str]]:
    """By data set, those that were timed as the same one with more made-up chunks in its store."""
    found: dict[str, set[str]] = {}
    for family, _, part in timed_families(run):
        found.setdefault(family[0], set()).update(set(part["dataset"]) - {family[0]})
    return found


def timed_families(run: EvaluationRun) -> Iterator[tuple[list[str], str, pd.DataFrame]]:
    """Families of which several were timed, where, and the records of it with `chunks`, `before` and `total`."""
    rows = run.timed
    rows = rows[rows["variant"] == ""]
    total = rows[list(SECONDS)].sum(axis=1)
    rows = rows.assign(total=total, before=total - rows["seconds_generate"])
    for family in _families(run):
        own = rows[rows["dataset"].isin(family)]
        for (name, size, budget), part in groups_of(own, ["run", "chunk_size", "budget"]):
            if part["dataset"].nunique() > 1:
                stores = {dataset: store_size(run, dataset, size) for dataset in family}
                where = f"{family[0]}, chunks of {size}, budget {budget} ({name})"
                yield family, where, in_method_order(part.assign(chunks=part["dataset"].map(stores)))


def _families(run: EvaluationRun) -> list[list[str]]:
    """Names of data sets of the same documents and questions that differ in their stores, the smallest store first."""
    there = run.records["dataset"].unique()
    known = [(name, about) for name, about in run.settings.get("data", {}).items() if name in there]
    known.sort(key=lambda one: (one[1]["fingerprint"], one[1]["compose"] or 0, one[1]["distractors"]))
    families = itertools.groupby(known, lambda one: (one[1]["fingerprint"], one[1]["compose"]))
    return [names for _, family in families if len(names := _of_distinct_sizes(family)) > 1]


def _of_distinct_sizes(family: Iterator[tuple[str, dict[str, int]]]) -> list[str]:
    """Of data sets with equally many made-up chunks the first."""
    return [next(same)[0] for _, same in itertools.groupby(family, lambda one: one[1]["distractors"])]
