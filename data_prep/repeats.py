"""Repeated scores of the label table: one for each reference and sample, where there are several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from corag_search.errors import InputError
from data_prep.table_files import METRICS, check_fractions, refuse_repeated

_KEY = ["question_id", "order_key", "reference", "sample"]
_TOLERANCE = 1e-6


def ordered_repeats(repeats: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """The repeats in one order: by question, order, reference and sample.

    Raises:
        InputError: A score is not in [0, 1], a row is repeated, an order lacks a reference or sample that others have,
            or a score is not the mean of its repeats.
    """
    keyed = repeats.assign(order_key=_order_keys(repeats["order"])).sort_values(_KEY, kind="stable", ignore_index=True)
    check_fractions(keyed, METRICS, "repeats")
    refuse_repeated(keyed, _KEY, "repeats")
    kinds = keyed["reference"].nunique() * keyed["sample"].nunique()
    sizes = keyed.groupby(["question_id", "order_key"]).size()
    if kinds < 2 or (sizes != kinds).any():
        raise InputError(
            f"repeats: every order needs a score for each of at least 2 references or samples, there are {kinds} and "
            f"an order with {int(sizes.min())}; label again"
        )
    at = pd.MultiIndex.from_frame(keyed[["question_id", "order_key"]])[::kinds].get_indexer(_pairs(scores))
    if (at < 0).any():
        row = scores.iloc[int(np.argmax(at < 0))]
        raise InputError(f"repeats: order {row['order'].tolist()} of question {row['question_id']!r} is missing")
    for measure in METRICS:
        means = keyed[measure].to_numpy().reshape(-1, kinds).mean(axis=1)
        off = np.abs(means[at] - scores[measure].to_numpy()) > _TOLERANCE
        if off.any():
            row = scores.iloc[int(np.argmax(off))]
            raise InputError(
                f"repeats: {measure} of question {row['question_id']!r}, order {row['order'].tolist()} is "
                f"{row[measure]:g}, which is not the mean of its repeats; label again"
            )
    return keyed.drop(columns="order_key")


def repeated_scores(repeats: pd.DataFrame, scores: pd.DataFrame, measure: str) -> npt.NDArray[np.float64]:
    """What each row of the scores reached in each repeat, `[repeats, rows]`; both frames in the table's order.

    Args:
        repeats: As `ordered_repeats` gives them.
        scores: The table's scores.
        measure: rouge1, rouge2 or rougeL.
    """
    pairs = _pairs(repeats)
    kinds = len(repeats) // len(pairs.unique())
    at = pairs[::kinds].get_indexer(_pairs(scores))  # the rows of an order stand together
    return repeats[measure].to_numpy().reshape(-1, kinds)[at].T


def _pairs(frame: pd.DataFrame) -> pd.MultiIndex:
    return pd.MultiIndex.from_arrays([frame["question_id"], _order_keys(frame["order"])])


def _order_keys(orders: Iterable[Sequence[int]]) -> list[str]:
    return [" ".join(map(str, order)) for order in orders]
