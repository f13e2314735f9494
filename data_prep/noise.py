"""How much of an oracle's lead is noise: chosen by one half of the repeated scores, scored by the other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from corag_search.errors import InputError
from data_prep.selection import best_fixed, rank_configurations, splits_in_half
from data_prep.table import LabelTable

Values = npt.NDArray[np.float64]


class Oracle(StrEnum):
    """What is chosen for each question."""

    RERANKERS = "oracle over rerankers"  # the reranker, at the grid's defaults
    GRID = "oracle over all grid points"  # reranker and settings


class Halves(StrEnum):
    """What the repeated scores are divided by."""

    REFERENCES = "references"  # the same answers, against other references
    SAMPLES = "samples"  # other answers, against the same references


@dataclass(frozen=True, slots=True, eq=False)
class OracleGain:
    """What an oracle and the best fixed configuration reach, question by question, in ROUGE-L.

    Naive: chosen and scored by the mean of all repeated scores. The greatest of many noisy scores is biased upwards, so
    this oracle's lead is above what any agent could have. Honest: chosen by one half of them and scored by the other,
    both ways, averaged over the splits in half. Half of the evidence chooses worse than all of it, so the lead of an
    agent that knew what to expect of each configuration lies between the two.

    Attributes:
        oracle: What is chosen for each question.
        halves: What the scores are divided by.
        naive: The oracle, `[m]`.
        naive_fixed: The best fixed configuration of these questions, `[m]`.
        honest: The oracle, `[m]`.
        honest_fixed: The best fixed configuration of these questions, `[m]`.
    """

    oracle: Oracle
    halves: Halves
    naive: Values
    naive_fixed: Values
    honest: Values
    honest_fixed: Values


def oracle_gains(table: LabelTable, rows: npt.NDArray[np.intp] | None = None) -> list[OracleGain]:
    """The lead of both oracles of METHOD §6, for each way in which the table's repeated scores can be divided.

    Several samples are divided into halves of whole samples, each scored against all references, so nothing of an
    answer's luck is in both halves. References are divided with all samples in both halves: what is lucky about an
    answer may be in both, what is lucky about a reference is not. Ties are broken as in `choose_labels`.

    Args:
        table: With repeated scores.
        rows: Positions of the questions, `[m]`; None for all.

    Raises:
        InputError: The table has one score of each answer, or there is no question.
    """
    repeated = table.repeated()
    if repeated is None or table.repeats is None:
        raise InputError(
            "noise cannot be told from one score of each answer; score the table anew, such as with `corag label "
            "--rescore TABLE.parquet --references llm,human`"
        )
    rows = np.arange(len(table)) if rows is None else rows
    if not len(rows):
        raise InputError("there is no question to tell an oracle's gain for")
    references = table.repeats["reference"].nunique()
    flat = repeated[:, rows].reshape(references, -1, len(rows), len(table.rerankers), len(table.grid))
    by = {Halves.REFERENCES: flat.mean(axis=1), Halves.SAMPLES: flat.mean(axis=0)}
    return [
        _gain(table, rows, scores, oracle, halves)
        for halves, scores in by.items()
        for oracle in Oracle
        if len(scores) > 1
    ]


def _gain(table: LabelTable, rows: npt.NDArray[np.intp], scores: Values, oracle: Oracle, halves: Halves) -> OracleGain:
    """Of repeats `[k, m, rerankers, points]`."""

    def reached(by: Values, on: Values) -> tuple[Values, Values]:
        chosen = _chosen(table, rows, by, oracle)
        fixed = np.ravel_multi_index(best_fixed(table, rows, by), (len(table.rerankers), *table.grid.shape))
        flat = on.reshape(len(rows), -1)
        return flat[np.arange(len(rows)), chosen], flat[:, fixed]

    naive, naive_fixed = reached(scores.mean(axis=0), scores.mean(axis=0))
    honest = []
    for inside in splits_in_half(len(scores)):
        one, other = scores[inside].mean(axis=0), scores[~inside].mean(axis=0)
        honest += [reached(one, other), reached(other, one)]
    mean, mean_fixed = (np.mean(values, axis=0) for values in zip(*honest, strict=True))
    return OracleGain(oracle, halves, naive, naive_fixed, mean, mean_fixed)


def _chosen(table: LabelTable, rows: npt.NDArray[np.intp], scores: Values, oracle: Oracle) -> npt.NDArray[np.intp]:
    """The best configuration of each question, `[m]`, as an index into rerankers × points."""
    if oracle is Oracle.RERANKERS:
        default = np.ravel_multi_index(table.grid.index(table.grid.defaults), table.grid.shape)
        elsewhere = np.arange(scores.shape[-1]) != default
        scores = np.where(elsewhere, -1.0, scores)  # below every ROUGE
    tokens = table.tokens[rows].reshape(scores.shape).astype(np.float64)
    best_point, _, ranking = rank_configurations(table, scores, tokens)
    best = ranking[:, 0]
    return best * scores.shape[-1] + best_point[np.arange(len(best)), best]
