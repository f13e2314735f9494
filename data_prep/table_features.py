"""What a label table tells of a question beside its embedding, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from corag_search.errors import InputError


def check_features(questions: pd.DataFrame, names: Any, dimension: int) -> None:
    """Refuse statistics and means that are not of one width and finite.

    Args:
        questions: With or without the columns `statistics` and `chunk_mean`.
        names: Of the statistics, as the fingerprint has them; None without.
        dimension: Of the embedder.

    Raises:
        InputError: Names without statistics or the reverse, or a row of another width or that is not finite.
    """
    if (names is None) != ("statistics" not in questions):
        raise InputError(
            f"statistics of the questions and their names in the fingerprint belong together, got names {names!r} "
            f"{'and' if names is None else 'without'} the column; give both or neither"
        )
    if names is not None:
        check_names("statistics", names)
        check_rows(questions, "statistics", len(names), "the fingerprint names so many")
    if "chunk_mean" in questions:
        check_rows(questions, "chunk_mean", dimension, "the embedder's dimension")


def check_names(part: str, names: Any) -> None:
    """Refuse a part of the fingerprint that is no list of distinct names (InputError)."""
    usable = isinstance(names, list) and names and all(isinstance(name, str) and name for name in names)
    if not usable or len(set(names)) < len(names):
        raise InputError(f"fingerprint: {part} must be a list of distinct names, got {names!r}")


def check_rows(questions: pd.DataFrame, column: str, width: int, why: str) -> None:
    """Refuse vectors that are not of one width and finite.

    Args:
        questions: With the column.
        column: Of the vectors.
        width: Their length.
        why: They have it.

    Raises:
        InputError: A vector of another length or that is not finite.
    """
    for name, values in zip(questions["question_id"], questions[column], strict=True):
        if len(values) != width or not np.isfinite(values).all():
            raise InputError(
                f"questions: {column} of {name!r} must be {width} finite numbers ({why}), got {len(values)} of which "
                f"{int(np.isfinite(values).sum())} finite"
            )
