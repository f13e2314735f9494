"""The best label of each question, chosen as METHOD §6 says."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from corag_search.errors import InputError
from corag_search.registry import one_of
from data_prep.grid import GridPoint, LabelGrid
from data_prep.table import LabelTable

# Scores closer than this are the same outcome: F-measures of equal overlap differ in their last bits.
_DECIMALS = 9
ENOUGH = 10  # kept questions of one best reranker, below which there is a warning
_SPLITS = 20  # of repeated scores in half
_ALL_SPLITS = 100_000  # from which those are drawn


class GainMode(StrEnum):
    """How the lead of the best reranker over the runner-up is measured."""

    RELATIVE = "relative"  # as a share of the runner-up's score, the paper's
    ABSOLUTE = "absolute"  # in points of ROUGE-L


class Noise(StrEnum):
    """What becomes of a question whose repeated scores disagree about the best reranker."""

    KEEP = "keep"  # nothing
    WEIGHT = "weight"  # it counts by the share of splits in half whose halves agree
    DROP = "drop"  # it is kept only when they agree more often than not


class Reason(StrEnum):
    """Why a question is kept for training, or why not."""

    KEPT = "kept"
    ZERO = "no reranker scores above 0"
    TIE = "the best two rerankers are equal"
    SMALL = "the best reranker leads by too little"
    NOISE = "repeated scores disagree about the best reranker"


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
        distinct: Whether some reranker scores above another, so that there is a best one, `[n]`; true of a single one.
        sure: Whether noise leaves the question in, `[n]`; true unless it is to be dropped.
        kept: Whether the question is used for training, `[n]`.
        reasons: Why, `[n]`.
        agreement: How often both halves of the repeated scores name the same best reranker, in [0, 1], `[n]`; None
            where the table has no repeated scores.
        weight: What a kept question counts in training, in [0, 1], `[n]`; 1 unless noise is weighted.
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
    distinct: npt.NDArray[np.bool_]
    sure: npt.NDArray[np.bool_]
    kept: npt.NDArray[np.bool_]
    reasons: tuple[Reason, ...]
    agreement: npt.NDArray[np.float64] | None
    weight: npt.NDArray[np.float64]

    def rare(self, least: int = ENOUGH) -> dict[str, int]:
        """Rerankers that are the best of fewer than `least` kept questions, with their number of these."""
        counts = np.bincount(self.reranker[self.kept], minlength=len(self.rerankers))
        return {name: int(count) for name, count in zip(self.rerankers, counts, strict=True) if count < least}

    def summary(self) -> list[tuple[str, str, str]]:
        """Rows of a table to print: (what, which, "count (share)").

        First how many questions are kept and why the others fell out, how often the halves of repeated scores agree,
        then the best rerankers and their settings of the kept ones by domain.
        """
        total = len(self.question_ids)
        counts = Counter(self.reasons)
        rows = [("questions", "", str(total)), ("kept", "", _share(counts.pop(Reason.KEPT, 0), total))]
        rows += [("fell out", reason.value, _share(counts[reason], total)) for reason in Reason if counts[reason]]
        if self.agreement is not None:
            rows.append(("same best reranker in both halves", "of all", f"{self.agreement.mean():.0%}"))
            if self.kept.any():
                rows.append(("", "of the kept", f"{self.agreement[self.kept].mean():.0%}"))
                rows.append(("", "weight of the kept", f"{self.weight[self.kept].sum():.1f}"))
        for domain in sorted(set(self.domains)):
            own = np.flatnonzero(self.kept & (np.array(self.domains) == domain))
            best = self.reranker[own].tolist()
            where = f" in {domain}" if domain else ""
            for index, name in enumerate(self.rerankers):
                rows.append((f"best{where}", name, _share(best.count(index), len(best))))
            for setting in GridPoint._fields:
                values = sorted(Counter(getattr(self, setting)[own].tolist()).items())
                rows.append((f"settings{where}", setting, ", ".join(f"{v:g} × {n}" for v, n in values) or "–"))
        return rows


def choose_labels(
    table: LabelTable,
    minimum_gain: float = 0.1,
    mode: GainMode | str = GainMode.RELATIVE,
    noise: Noise | str = Noise.KEEP,
) -> BestLabels:
    """Chooses the best reranker and settings of each question, and which questions to train on.

    Among equal scores go first: fewer prompt tokens, fewer iterations, settings closest to the defaults, the grid's
    order, the rerankers' order (METHOD §6). A question is kept when the best reranker's score exceeds the runner-up's,
    each at its own best settings, by more than `minimum_gain`; relative to a runner-up of 0, any positive score does.
    With one reranker in the table the runner-up counts as 0.

    Args:
        table: The label table.
        minimum_gain: Least lead, at least 0: a share of the runner-up's score, or points of ROUGE-L.
        mode: relative or absolute.
        noise: keep, weight or drop, for questions whose repeated scores disagree.

    Raises:
        InputError: When an argument is unusable, or noise is to be weighted or dropped and nothing was scored twice.
    """
    if not math.isfinite(minimum_gain) or minimum_gain < 0:
        raise InputError(f"minimum_gain must be a finite number, at least 0, got {minimum_gain!r}")
    one_of("gain mode", mode, GainMode)
    one_of("noise", noise, Noise)
    agreement = half_agreement(table)
    if noise != Noise.KEEP and agreement is None:
        raise InputError(
            f"noise cannot be {noise!r}: the table has one score of each answer; label with several --samples or "
            "--references, or keep"
        )
    questions, rerankers, points = len(table), len(table.rerankers), len(table.grid)
    scores = table.rouge().reshape(questions, rerankers, points)
    best_point, score_of, ranking = rank_configurations(table, scores)
    rows = np.arange(questions)
    best = ranking[:, 0]
    runner_up = ranking[:, 1] if rerankers > 1 else np.full(questions, -1)
    score = score_of[rows, best]
    rival = score_of[rows, runner_up] if rerankers > 1 else np.zeros(questions)
    needed = minimum_gain * rival if mode == GainMode.RELATIVE else minimum_gain
    clear = (score - rival - needed > 10.0**-_DECIMALS) & (score > 0)
    sure = np.ones(questions, bool) if noise != Noise.DROP or agreement is None else agreement > 0.5
    settings = np.array(list(table.grid))[best_point[rows, best]]
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
        distinct=(score_of.max(axis=1) > score_of.min(axis=1)) | (rerankers == 1),
        sure=sure,
        kept=clear & sure,
        reasons=tuple(_reason(*row) for row in zip(clear, sure, score, rival, strict=True)),
        agreement=agreement,
        weight=np.ones(questions) if noise != Noise.WEIGHT or agreement is None else agreement,
    )


def best_settings(table: LabelTable) -> npt.NDArray[np.float64]:
    """Each reranker's own best settings for each question, ties broken as in `choose_labels`.

    Returns:
        Columns as in `GridPoint`, `[n, rerankers, 3]`.
    """
    scores = table.rouge().reshape(len(table), len(table.rerankers), len(table.grid))
    return np.array(list(table.grid), dtype=np.float64)[rank_configurations(table, scores)[0]]


def best_fixed(
    table: LabelTable, rows: npt.NDArray[np.intp], scores: npt.NDArray[np.float64] | None = None
) -> tuple[int, int, int, int]:
    """The one configuration that reaches the greatest mean ROUGE-L; ties are broken as in `choose_labels`.

    Args:
        table: The label table.
        rows: Positions of the questions it is chosen for, at least one, kept or not.
        scores: By which it is chosen, `[m, rerankers, …]`, in place of the table's.

    Returns:
        Index into the last four axes of `LabelTable.rouge`.

    Raises:
        InputError: When there is no question.
    """
    if not len(rows):
        raise InputError("there is no question to choose a fixed configuration for; this split of the table is empty")
    shape = (1, len(table.rerankers), len(table.grid))
    scores = (table.rouge()[rows] if scores is None else scores).mean(axis=0).reshape(shape)
    tokens = table.tokens[rows].mean(axis=0).reshape(shape)
    best_point, _, ranking = rank_configurations(table, scores, tokens)
    reranker = int(ranking[0, 0])
    exploration, cost_coefficient, iterations = np.unravel_index(best_point[0, reranker], table.grid.shape)
    return reranker, int(exploration), int(cost_coefficient), int(iterations)


def soft_targets(table: LabelTable, temperature: float = 0.05) -> npt.NDArray[np.float64]:
    """How good each reranker is for each question, as a distribution: what a soft cross-entropy aims at.

    The softmax of each reranker's ROUGE-L at its own best settings, divided by the temperature. The full score vectors
    are `LabelTable.rouge`.

    Args:
        table: The label table.
        temperature: In points of ROUGE-L, above 0: towards 0 it becomes the hard label, ties shared evenly.

    Returns:
        `[n, rerankers]`; each row sums to 1.

    Raises:
        InputError: An unusable temperature.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise InputError(f"temperature must be a finite number above 0, got {temperature!r}")
    best = table.rouge().max(axis=(2, 3, 4)).round(_DECIMALS)
    weights = np.exp((best - best.max(axis=1, keepdims=True)) / temperature)
    return weights / weights.sum(axis=1, keepdims=True)


def half_agreement(table: LabelTable) -> npt.NDArray[np.float64] | None:
    """How often the best reranker is the same in both halves of a question's repeated scores.

    The repeats (references × samples) are split in half in up to 20 ways; each half's mean chooses a best reranker as
    `choose_labels` does.

    Returns:
        Share of the splits in which both agree, `[n]`; None without repeated scores.
    """
    repeated = table.repeated()
    if repeated is None:
        return None
    repeats = repeated.reshape(len(repeated), len(table), len(table.rerankers), len(table.grid))
    ways = splits_in_half(len(repeats))
    agreed = np.zeros(len(table))
    for inside in ways:
        one, other = (rank_configurations(table, repeats[part].mean(axis=0))[2][:, 0] for part in (inside, ~inside))
        agreed += one == other
    return agreed / len(ways)


def splits_in_half(count: int) -> list[npt.NDArray[np.bool_]]:
    """Up to 20 ways to split repeats in half, each saying which are in the first, smaller or equal, half, `[count]`.

    Of equal halves the one with the first repeat is the first, so that no way comes twice.
    """
    halves = (half for half in itertools.combinations(range(count), count // 2) if count % 2 or 0 in half)
    ways = list(itertools.islice(halves, _ALL_SPLITS))
    if len(ways) > _SPLITS:
        chosen = np.random.default_rng(0).choice(len(ways), _SPLITS, replace=False)
        ways = [ways[i] for i in chosen]
    return [np.isin(np.arange(count), half) for half in ways]


def rank_configurations(
    table: LabelTable, scores: npt.NDArray[np.float64], tokens: npt.NDArray[np.float64] | None = None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """Each reranker's best grid point, its score there, and the rerankers' ranking, each `[n, rerankers]`.

    Ties are broken as `choose_labels` says.

    Args:
        table: Gives the grid, and the prompt tokens of all its questions when these are not given.
        scores: `[n, rerankers, points]`.
        tokens: Prompt tokens, of the same shape.
    """
    scores = scores.round(_DECIMALS)
    if tokens is None:
        tokens = table.tokens.reshape(scores.shape).astype(np.float64)
    grid = np.array(list(table.grid))  # [points, 3], columns as in GridPoint
    iterations, distance = grid[:, 2], _distance_from_defaults(table.grid, grid)
    best_point = _first(scores, tokens, iterations, distance)[..., 0]
    at_best = (np.arange(scores.shape[0])[:, None], np.arange(scores.shape[1])[None], best_point)
    score_of = scores[at_best]
    ranking = _first(score_of, tokens[at_best], iterations[best_point], distance[best_point], best_point)
    return best_point, score_of, ranking


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


def _reason(clear: bool, sure: bool, score: float, runner_up: float) -> Reason:
    if clear:
        return Reason.KEPT if sure else Reason.NOISE
    if score <= 0:
        return Reason.ZERO
    return Reason.TIE if score == runner_up else Reason.SMALL


def _share(count: int, total: int) -> str:
    return f"{count} ({count / total:.0%})" if total else "0"
