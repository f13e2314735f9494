"""The best label of each question, chosen as METHOD §6 says."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from corag_search.errors import InputError
from data_prep.grid import LabelGrid
from data_prep.table import LabelTable

# Scores closer than this are the same outcome: F-measures of equal overlap differ in their last bits.
_DECIMALS = 9


class GainMode(StrEnum):
    """How the lead of the best reranker over the runner-up is measured."""

    RELATIVE = "relative"  # as a share of the runner-up's score, the paper's
    ABSOLUTE = "absolute"  # in points of ROUGE-L


class Reason(StrEnum):
    """Why a question is kept for training, or why not."""

    KEPT = "kept"
    ZERO = "no reranker scores above 0"
    TIE = "the best two rerankers are equal"
    SMALL = "the best reranker leads by too little"


@dataclass(frozen=True, slots=True, eq=False)
class BestLabels:
    """Best labels, one entry per question of the table, in its order.

    Attributes:
        question_ids: `[n]`.
        domains: `[n]`.
        rerankers: Names that the indices below point into.
        reranker: Index of the best reranker, `[n]`.
        runner_up: Index of the second best, `[n]`; −1 where the table has one reranker only.
        exploration: c of the best reranker's best grid point, `[n]`.
        cost_coefficient: λ of it, `[n]`.
        iterations: Iterations of it, `[n]`.
        score: ROUGE-L there, `[n]`.
        runner_up_score: ROUGE-L of the runner-up at its own best grid point, `[n]`; 0 without one.
        kept: Whether the question is used for training, `[n]`.
        reasons: Why, `[n]`.
    """

    question_ids: tuple[str, ...]
    domains: tuple[str, ...]
    rerankers: tuple[str, ...]
    reranker: npt.NDArray[np.intp]
    runner_up: npt.NDArray[np.intp]
    exploration: npt.NDArray[np.float64]
    cost_coefficient: npt.NDArray[np.float64]
    iterations: npt.NDArray[np.int64]
    score: npt.NDArray[np.float64]
    runner_up_score: npt.NDArray[np.float64]
    kept: npt.NDArray[np.bool_]
    reasons: tuple[Reason, ...]

    def summary(self) -> list[tuple[str, str, str]]:
        """Rows of a table to print: (what, which, "count (share)").

        First how many questions are kept and why the others fell out, then the best rerankers of the kept ones by
        domain.
        """
        total = len(self.question_ids)
        counts = Counter(self.reasons)
        rows = [("questions", "", str(total))]
        rows += [
            ("kept" if reason is Reason.KEPT else "fell out", "" if reason is Reason.KEPT else reason.value, text)
            for reason in Reason
            if (text := _share(counts[reason], total)) and (counts[reason] or reason is Reason.KEPT)
        ]
        for domain in sorted(set(self.domains)):
            best = [self.reranker[i] for i in np.flatnonzero(self.kept) if self.domains[i] == domain]
            for index, name in enumerate(self.rerankers):
                rows.append((f"best in {domain}", name, _share(best.count(index), len(best))))
        return rows


def choose_labels(table: LabelTable, minimum_gain: float = 0.1, mode: GainMode | str = GainMode.RELATIVE) -> BestLabels:
    """Chooses the best reranker and settings of each question, and which questions to train on.

    Among equal scores go first: fewer prompt tokens, fewer iterations, settings closest to the defaults, the grid's
    order, the rerankers' order (METHOD §6). A question is kept when the best reranker's score exceeds the runner-up's,
    each at its own best settings, by more than `minimum_gain`; relative to a runner-up of 0, any positive score does.
    With one reranker in the table the runner-up counts as 0.

    Args:
        table: The label table.
        minimum_gain: Least lead, at least 0: a share of the runner-up's score, or points of ROUGE-L.
        mode: relative or absolute.

    Raises:
        InputError: When `minimum_gain` or `mode` is unusable.
    """
    if not math.isfinite(minimum_gain) or minimum_gain < 0:
        raise InputError(f"minimum_gain must be a finite number, at least 0, got {minimum_gain!r}")
    if mode not in list(GainMode):
        raise InputError(f"gain mode must be one of {', '.join(GainMode)}, got {mode!r}")
    questions, rerankers, points = len(table), len(table.rerankers), len(table.grid)
    scores = table.rouge().reshape(questions, rerankers, points).round(_DECIMALS)
    tokens = table.tokens.reshape(questions, rerankers, points)
    grid = np.array(list(table.grid))  # [points, 3], columns as in GridPoint
    iterations, distance = grid[:, 2], _distance_from_defaults(table.grid, grid)

    best_point = _first(scores, tokens, iterations, distance)[..., 0]  # [questions, rerankers]
    at_best = (np.arange(questions)[:, None], np.arange(rerankers)[None], best_point)
    score_of = scores[at_best]
    ranking = _first(score_of, tokens[at_best], iterations[best_point], distance[best_point], best_point)
    rows = np.arange(questions)
    best = ranking[:, 0]
    runner_up = ranking[:, 1] if rerankers > 1 else np.full(questions, -1)
    score = score_of[rows, best]
    rival = score_of[rows, runner_up] if rerankers > 1 else np.zeros(questions)
    needed = minimum_gain * rival if mode == GainMode.RELATIVE else minimum_gain
    kept = (score - rival - needed > 10.0**-_DECIMALS) & (score > 0)
    settings = grid[best_point[rows, best]]
    return BestLabels(
        question_ids=tuple(table.questions["question_id"]),
        domains=tuple(table.questions["domain"]),
        rerankers=tuple(table.rerankers),
        reranker=best,
        runner_up=runner_up,
        exploration=settings[:, 0],
        cost_coefficient=settings[:, 1],
        iterations=settings[:, 2].astype(np.int64),
        score=score,
        runner_up_score=rival,
        kept=kept,
        reasons=tuple(_reason(*row) for row in zip(kept, score, rival, strict=True)),
    )


def _first(score: npt.NDArray[Any], *lower_first: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Positions along the last axis, best first: the highest score, then the lowest of each further key, then order."""
    keys = [np.broadcast_to(key, score.shape) for key in reversed(lower_first)]
    return np.lexsort((*keys, -score), axis=-1)


def _distance_from_defaults(grid: LabelGrid, points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Squared Euclidean distance of each point from the defaults, settings scaled to [0, 1] by their ranges."""
    defaults = grid.defaults
    widths = np.array([high - low for low, high in (grid.ranges[name] for name in defaults._fields)])
    scaled = (points - np.array(defaults)) / np.where(widths > 0, widths, 1.0)
    # Rounded, so that one step down and one step up are equally far.
    return (scaled**2).sum(axis=-1).round(_DECIMALS)


def _reason(kept: bool, score: float, runner_up: float) -> Reason:
    if kept:
        return Reason.KEPT
    if score <= 0:
        return Reason.ZERO
    return Reason.TIE if score == runner_up else Reason.SMALL


def _share(count: int, total: int) -> str:
    return f"{count} ({count / total:.0%})" if total else "0"
