"""What a reranker is, and how any callable becomes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.registry import whole
from corag_search.texts import shown

Combinations = Sequence[Sequence[Chunk]]
Scores = NDArray[np.float64]


class RerankerError(RuntimeError):
    """A reranker or its server failed while it ran. The message is one line: who, what happened, the remedy."""


@runtime_checkable
class Reranker(Protocol):
    """Gives a chunk combination a benefit for a query.

    Two optional abilities are used when present:
    `score_pairs(queries, combinations)`, one query per combination, for searches in lockstep;
    `open(query, candidates) -> Session`, which may keep state between the batches of one query.
    A third, `count_tokens(texts) -> list[int]`, tells lengths in the reranker's own tokens, for `max_tokens`.

    Attributes:
        name: As `load_reranker` knows it.
        order_sensitive: False when permutations of a combination always score the same.
        max_tokens: Longest input (query and combination together), in the reranker's tokens; None for no limit.
    """

    name: str
    order_sensitive: bool
    max_tokens: int | None

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits in [0, 1], `[n]` for n combinations.

        Raises:
            RerankerError: The model or its server failed.
        """
        ...


class Session(Protocol):
    """One query with its candidates."""

    def score(self, orders: Sequence[tuple[int, ...]]) -> Scores:
        """Benefits in [0, 1], `[n]`; orders are indices into the candidates."""
        ...


class _FunctionReranker:
    """A plain function with the signature of `Reranker.score`; nothing is known of it, so order may matter."""

    order_sensitive = True
    max_tokens: int | None = None

    def __init__(self, function: Callable[[str, Combinations], Any]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function

    def score(self, query: str, combinations: Combinations) -> Scores:
        return self._function(query, combinations)


def as_reranker(reranker: Any) -> Reranker:
    """The reranker itself, or a plain function wrapped as one.

    Raises:
        InputError: It is neither, a class instead of its instance, or its limit is no whole number of tokens.
    """
    if isinstance(reranker, type):
        raise InputError(f"reranker must be an instance, got the class {reranker.__name__}; make one of it")
    if callable(getattr(reranker, "score", None)):
        missing = [a for a in ("name", "order_sensitive", "max_tokens") if not hasattr(reranker, a)]
        if missing:
            raise InputError(f"reranker {reranker!r} lacks the attribute {missing[0]!r} of corag_search.Reranker")
        if reranker.max_tokens is not None:
            whole(f"reranker {reranker.name!r}: max_tokens", reranker.max_tokens, unit="tokens")
        return reranker
    if callable(reranker):
        return _FunctionReranker(reranker)
    raise InputError(
        f"reranker must have a score(query, combinations) method or be such a function, got {reranker!r}; "
        "names are loaded with load_reranker"
    )


def checked_scores(scores: Any, count: int, name: str) -> Scores:
    """Scores as `[count]` float64 in [0, 1].

    Raises:
        InputError: No numbers, wrong shape, NaN or infinity, or outside [0, 1] (c and λ have no meaning for such
            benefits).
    """
    values = _numbers(scores)
    if values is None:
        raise InputError(
            f"reranker {name!r} returned {shown(scores)} for {count} combinations; "
            f"it must return one number each, shape [{count}]"
        )
    if values.shape != (count,):
        raise InputError(
            f"reranker {name!r} returned scores of shape {list(values.shape)} for {count} combinations; "
            f"it must return one score each, shape [{count}]"
        )
    if not count:
        return values
    low, high = values.min(), values.max()  # NaN passes through min and max
    if not (np.isfinite(low) and np.isfinite(high)):
        bad = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InputError(
            f"reranker {name!r} scored {values[bad]} for combination {bad} of {count}; scores must be finite: "
            "check its input for empty text and its weights for overflow"
        )
    if low < -1e-6 or high > 1 + 1e-6:
        raise InputError(
            f"reranker {name!r} scored {low if low < 0 else high:g}; scores must lie in [0, 1]: "
            "put logits through a sigmoid, and cut cosines at 0"
        )
    return np.clip(values, 0.0, 1.0)


def _numbers(scores: Any) -> Scores | None:
    """Scores as an array, or None when they are no numbers or a ragged list; digits in a string are no number."""
    try:
        values = np.asarray(scores)
        return values.astype(np.float64) if values.dtype.kind in "fiubO" else None
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last from torch, for a tensor with a gradient
        return None
