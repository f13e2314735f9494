"""Folds of a label table for cross-validation, by document or by domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from corag_search.errors import InputError
from data_prep.groups import connected
from data_prep.selection import best_fixed
from data_prep.splits import SplitBy, check_split_by
from data_prep.table import LabelTable

Positions = npt.NDArray[np.intp]
# Options of `LabelDataModule` that divide a table into folds.
_DIVISION = ("folds", "fold", "split_by", "seed")


def fold_of(table: LabelTable, folds: int, seed: int = 0, by: SplitBy | str = SplitBy.DOCUMENT) -> Positions:
    """The fold of each question, `[n]`.

    Questions that share a document, directly or through others, stand in one fold: an article's questions in all
    languages with it; by domain, those of a domain too. Larger groups are placed first, each in the fold that has the
    fewest questions of its domain.

    Args:
        table: With the documents of its questions.
        folds: At least 3, so that one can validate and one test.
        seed: Of the order among groups of one size.
        by: document or domain, what is never divided.

    Raises:
        InputError: The table does not name documents, or has fewer groups than folds, or `by` is something else.
    """
    check_split_by(by)
    if folds < 3:
        raise InputError(f"folds must be at least 3 (one tests, one validates, the others train), got {folds}")
    if table.groups is None:
        raise InputError(
            "the label table does not name the documents of its questions, which folds are made by; run `corag label` "
            "again to add them (nothing is searched or answered twice)"
        )
    domains, groups = table.questions["domain"].to_numpy(), table.groups
    if by == SplitBy.DOMAIN:
        groups = connected([(f"group {group}", f"domain {name}") for group, name in zip(groups, domains, strict=True)])
    numbers, sizes = np.unique(groups, return_counts=True)
    if len(numbers) < folds:
        raise InputError(f"{folds} folds need as many {by}s, the label table has {len(numbers)} groups of them")
    chance = np.random.default_rng(seed).permutation(len(numbers))
    of = np.empty(len(table), dtype=np.intp)
    _, domain_of = np.unique(domains, return_inverse=True)
    filled = np.zeros((folds, domain_of.max() + 1))
    for position in np.lexsort((chance, -sizes)):
        own = np.flatnonzero(groups == numbers[position])
        counts = np.bincount(domain_of[own], minlength=filled.shape[1])
        main = int(counts.argmax())
        fold = min(range(folds), key=lambda f: (filled[f, main], filled[f].sum(), f))
        filled[fold] += counts
        of[own] = fold
    return of


def fixed_of_other_folds(table: LabelTable, rows: Positions, folds: Positions) -> Positions:
    """For each question the configuration that is best for those of the other folds.

    Args:
        table: The label table.
        rows: Positions of the questions that take part, `[m]`, of two folds at least.
        folds: The fold of each, `[m]`.

    Returns:
        Index into the last four axes of `LabelTable.rouge`, `[m, 4]`.

    Raises:
        InputError: All questions are of one fold.
    """
    chosen = np.empty((len(rows), 4), np.intp)
    for fold in np.unique(folds):
        chosen[folds == fold] = best_fixed(table, rows[folds != fold])
    return chosen


def split_by_folds(
    table: LabelTable, folds: int, fold: int, seed: int = 0, by: SplitBy | str = SplitBy.DOCUMENT
) -> dict[str, Positions]:
    """Positions of the questions of each split: `fold` tests, the next one validates, the others train.

    Args:
        table: As of `fold_of`.
        folds: Likewise.
        fold: From 0 to folds − 1.
        seed: As of `fold_of`.
        by: Likewise.

    Raises:
        InputError: As `fold_of`, or there is no such fold.
    """
    of = fold_of(table, folds, seed, by)
    if not 0 <= fold < folds:
        raise InputError(f"fold must be from 0 to {folds - 1} (folds − 1), got {fold}")
    parts = {"test": of == fold, "val": of == (fold + 1) % folds}
    parts["train"] = ~(parts["test"] | parts["val"])
    return {name: np.flatnonzero(part) for name, part in parts.items()}


def division_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the data module's options that divide a table; none where the table's own splits are used."""
    return {} if options.get("folds") is None else {name: options[name] for name in _DIVISION}


def check_division(trained: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuses an agent of the same labels that were divided in another way: it has seen what is held out now.

    Args:
        trained: Options of the data module that it was trained with.
        own: Those of the present one.

    Raises:
        InputError: They divide the table differently.
    """
    before, now = division_of(trained), division_of(own)
    if before != now:
        options = ", ".join(f"data.{name} {value}" for name, value in before.items())
        wanted = f"set {options} as then" if before else "leave data.folds out"
        raise InputError(
            f"the checkpoint was trained with {_named(before)} of these labels, this run has {_named(now)}, so it has "
            f"seen questions that are held out now; {wanted}, or train anew"
        )


def _named(division: Mapping[str, Any]) -> str:
    if not division:
        return "the splits"
    return f"fold {division['fold']} of {division['folds']} (by {division['split_by']}, seed {division['seed']})"
