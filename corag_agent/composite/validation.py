"""Cross-validation by document: what a composite would choose among the orders that have an outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from corag_agent.composite.examples import Example
from corag_agent.composite.fitting import fit_composite
from corag_agent.evaluation.intervals import Interval, paired_bootstrap
from corag_search.errors import InputError
from data_prep.groups import connected

Values = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

COMPOSITE = "composite (held out)"


@dataclass(frozen=True, slots=True, eq=False)
class Chooser:
    """One way of choosing among a question's orders.

    Attributes:
        name: As it is called in tables.
        rouge: ROUGE-L of what it chose, `[questions]`.
        cost: Tokens of it, `[questions]`.
        correlation: Spearman's, of its scores with ROUGE-L within a question, mean over the questions where both vary;
            NaN without scores.
        lead: How far the composite lies above it in ROUGE-L, with the interval over groups of documents.
    """

    name: str
    rouge: Values
    cost: Values
    correlation: float
    lead: Interval


def held_out_predictions(
    examples: Sequence[Example], groups: Positions, folds: int, strength: float, seed: int
) -> list[Values]:
    """Predicted ROUGE-L of each example's orders by a composite that saw no question of its group.

    Args:
        examples: n questions.
        groups: Of them, `[n]`; see `groups_of`.
        folds: At least 2.
        strength: As of `fit_composite`.
        seed: Of the folds.

    Raises:
        InputError: Fewer groups than folds, or fewer than 2 folds.
    """
    fold_of = _folds(groups, folds, seed)
    predictions: list[Values] = [np.empty(0)] * len(examples)
    for fold in range(folds):
        model = fit_composite([e for e, own in zip(examples, fold_of, strict=True) if own != fold], strength)
        for at in np.flatnonzero(fold_of == fold).tolist():
            predictions[at] = model.predict(examples[at].features)
    return predictions


def groups_of(examples: Sequence[Example]) -> Positions:
    """A number for each question, `[n]`: the same where two share a document, directly or through others."""
    return connected([example.documents for example in examples])


def _folds(groups: Positions, folds: int, seed: int) -> Positions:
    """Fold of each question, `[n]`: the largest groups first, each into the fold with the fewest questions."""
    numbers, sizes = np.unique(groups, return_counts=True)
    if not 2 <= folds <= len(numbers):
        raise InputError(
            f"folds must be from 2 to the number of groups of questions that share no document, {len(numbers)}, got "
            f"{folds}"
        )
    chance = np.random.default_rng(seed).permutation(len(numbers))
    filled = np.zeros(folds, np.intp)
    of = np.empty(len(groups), np.intp)
    for position in np.lexsort((chance, -sizes)):
        fold = int(filled.argmin())
        filled[fold] += sizes[position]
        of[groups == numbers[position]] = fold
    return of


def compare_choosers(
    examples: Sequence[Example], predictions: Sequence[Values], parts: Sequence[str], groups: Positions, seed: int = 0
) -> list[Chooser]:
    """The composite, what each part's tree search chose at the default settings, each part's favourite, and bounds.

    Args:
        examples: n questions.
        predictions: Of the composite, for the orders of each.
        parts: Names, in the order of the examples' scores.
        groups: As of `held_out_predictions`.
        seed: Of the intervals.
    """
    rows = {COMPOSITE: [_best(example, own) for example, own in zip(examples, predictions, strict=True)]}
    correlations = {COMPOSITE: _correlation(examples, predictions)}
    for column, part in enumerate(parts):
        scores = [example.scores[:, column] for example in examples]
        search, favourite = f"{part}: its tree search", f"{part}: its highest score"
        rows[search] = [example.searched[part] for example in examples]
        rows[favourite] = [_best(example, own) for example, own in zip(examples, scores, strict=True)]
        correlations[favourite] = _correlation(examples, scores)
    rows["the fewest tokens"] = [_best(example, -example.cost) for example in examples]
    rows["the best of all (oracle)"] = [_best(example, example.rouge) for example in examples]
    rouge = {name: _taken(examples, own, lambda e: e.rouge) for name, own in rows.items()}
    rouge["any, on average"] = np.array([example.rouge.mean() for example in examples])
    cost = {name: _taken(examples, own, lambda e: e.cost) for name, own in rows.items()}
    cost["any, on average"] = np.array([example.cost.mean() for example in examples])
    return [
        Chooser(
            name,
            own,
            cost[name],
            correlations.get(name, np.nan),
            paired_bootstrap(rouge[COMPOSITE], own, seed, groups=groups.tolist()),
        )
        for name, own in rouge.items()
    ]


def _taken(examples: Sequence[Example], rows: Sequence[int], values: Callable[[Example], npt.NDArray]) -> Values:
    return np.array([values(example)[row] for example, row in zip(examples, rows, strict=True)], np.float64)


def _best(example: Example, worth: npt.NDArray) -> int:
    """Row of the greatest worth; ties as everywhere: lower cost, then shorter, then retrieval order (METHOD §3)."""
    return min(
        np.flatnonzero(worth == worth.max()).tolist(),
        key=lambda row: (example.cost[row], len(example.orders[row]), example.orders[row]),
    )


def _correlation(examples: Sequence[Example], scores: Sequence[Values]) -> float:
    """Spearman's rank correlation within a question, mean over the questions in which both vary."""
    found = []
    for example, own in zip(examples, scores, strict=True):
        ranks = pd.DataFrame({"own": own, "rouge": example.rouge}).rank()
        if (ranks.std() > 0).all():
            found.append(float(np.corrcoef(ranks["own"], ranks["rouge"])[0, 1]))
    return float(np.mean(found)) if found else float("nan")
