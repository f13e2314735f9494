"""How sure the agent is, and below which confidence the best fixed configuration does better; both from validation."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data_prep.selection import ENOUGH

ALWAYS = 2.0  # a threshold that no confidence reaches
_LEAST, _GREATEST = 0.5, 20.0  # temperatures: a few right predictions are no reason to be twice as sure or more
_ERRORS = 2.0  # standard errors by which the agent must lead
_STEPS = 60  # of the golden-section search; each narrows it to 0.618

Array = npt.NDArray[np.float64]


class Calibration(NamedTuple):
    """What inference does with the logits.

    Attributes:
        temperature: They are divided by it before the softmax.
        threshold: Below this confidence the fallback is used; 0 never, `ALWAYS` always.
    """

    temperature: float = 1.0
    threshold: float = 0.0


def calibrate(
    logits: Array,
    rerankers: npt.NDArray[np.intp],
    kept: npt.NDArray[np.bool_],
    followed: Array,
    fixed: Array,
) -> Calibration:
    """Chooses temperature and threshold on a validation split.

    The temperature (Guo et al. 2017) makes the best reranker of the kept questions most likely; with fewer than ten of
    them it stays 1. Questions below the threshold get the fixed configuration: of all thresholds, the one for which
    the agent's gain on the questions above it, less two standard errors of that gain, is greatest; none is trusted
    where this is nowhere above 0. Epoch and threshold are the best of many on the same few questions, so that a lead
    of one standard error is what luck gives. Among equal thresholds the greatest, so that what is less sure than
    anything seen is not trusted.

    Args:
        logits: `[n, rerankers]`.
        rerankers: Index of the best reranker, `[n]`.
        kept: Whether the question's label is clear, `[n]`.
        followed: ROUGE-L reached by following the agent, `[n]`.
        fixed: ROUGE-L of the best fixed configuration, `[n]`.
    """
    if not len(logits):
        return Calibration()
    temperature = 1.0
    if kept.sum() >= ENOUGH:
        temperature = _coolest(logits[kept].astype(np.float64), rerankers[kept])
    confidence = confidences(logits, temperature)
    return Calibration(temperature, _threshold(confidence, followed, fixed))


def confidences(logits: Array, temperature: float) -> Array:
    """The greatest probability of each row, `[n, rerankers]` → `[n]`."""
    return np.exp(_log_softmax(logits / temperature)).max(axis=1)


def calibration_error(confidence: Array, correct: npt.NDArray[np.bool_], bins: int = 10) -> float:
    """Expected calibration error: mean distance of accuracy and confidence over bins of equal width (Guo et al. 2017).

    Args:
        confidence: In [0, 1], `[n]`.
        correct: Whether the prediction was right, `[n]`.
        bins: Of equal width in [0, 1].

    Returns:
        In [0, 1]; NaN without a prediction.
    """
    if not len(confidence):
        return math.nan
    at = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs((correct[at == i] - confidence[at == i]).sum()) for i in range(bins)]
    return float(sum(gaps) / len(confidence))


def _coolest(logits: Array, rerankers: npt.NDArray[np.intp]) -> float:
    """The temperature of the least cross-entropy; its logarithm is searched by golden section."""
    rows = np.arange(len(logits))

    def entropy(log_temperature: float) -> float:
        return -float(_log_softmax(logits / math.exp(log_temperature))[rows, rerankers].mean())

    low, high = math.log(_LEAST), math.log(_GREATEST)
    golden = (math.sqrt(5) - 1) / 2
    inner, outer = high - golden * (high - low), low + golden * (high - low)
    at_inner, at_outer = entropy(inner), entropy(outer)
    for _ in range(_STEPS):
        if at_inner <= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - golden * (high - low)
            at_inner = entropy(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + golden * (high - low)
            at_outer = entropy(outer)
    return math.exp((low + high) / 2)


def _threshold(confidence: Array, followed: Array, fixed: Array) -> float:
    order = np.argsort(-confidence, kind="stable")
    values, gain = confidence[order], (followed - fixed)[order]
    count = np.arange(1, len(gain) + 1)
    total = np.cumsum(gain)
    # Of the sum over the first m: √(m · variance), which takes two at least.
    squares = np.maximum(np.cumsum(gain**2) - total**2 / count, 0.0)
    error = np.sqrt(count * squares / np.maximum(count - 1, 1))
    allowed = np.append(values[1:] < values[:-1], True) & (count > 1)  # a threshold divides different confidences only
    surely = np.where(allowed, total - _ERRORS * error, -np.inf).round(9)
    best = int(surely.argmax())
    if not surely[best] > 0:
        return ALWAYS
    return float(values[best] if best + 1 == len(values) else (values[best] + values[best + 1]) / 2)


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
