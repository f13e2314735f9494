import math

import numpy as np
import pytest

from corag_agent.calibration import ALWAYS, Calibration, calibrate, calibration_error, confidences


def logits_of(probabilities: np.ndarray) -> np.ndarray:
    return np.log(np.stack([probabilities, 1 - probabilities], axis=1))


def test_the_temperature_undoes_overconfidence() -> None:
    """10 questions at 0.8, of which 8 are right; the logits say e.g. 0.9846 (three times too sure)."""
    rerankers = np.array([0] * 8 + [1] * 2)
    honest = logits_of(np.full(10, 0.8))
    kept = np.ones(10, bool)
    for factor in (0.6, 1.0, 3.0):
        made = calibrate(honest * factor, rerankers, kept, np.zeros(10), np.zeros(10))
        assert made.temperature == pytest.approx(factor, rel=1e-6)
        assert confidences(honest * factor, made.temperature) == pytest.approx(np.full(10, 0.8))


def test_only_kept_questions_make_the_temperature_and_few_make_none() -> None:
    rerankers = np.array([0] * 8 + [1] * 2 + [1] * 10)
    logits = np.concatenate([3 * logits_of(np.full(10, 0.8)), logits_of(np.full(10, 0.9))])
    kept = np.arange(20) < 10
    assert calibrate(logits, rerankers, kept, np.zeros(20), np.zeros(20)).temperature == pytest.approx(3.0)
    assert calibrate(logits, rerankers, np.arange(20) < 9, np.zeros(20), np.zeros(20)).temperature == 1.0


def test_an_agent_that_is_always_right_is_made_as_sure_as_allowed() -> None:
    made = calibrate(logits_of(np.full(12, 0.6)), np.zeros(12, int), np.ones(12, bool), np.ones(12), np.zeros(12))
    assert made.temperature == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("gains", "threshold"),
    [
        # Least sure first. Gains above each threshold, less two standard errors (each √ of count × variance):
        ([-0.5, -0.5, 0.5, 0.5], 0.65),  # the two surest: 1.0 − 0
        ([0.2, 0.2, 0.2, 0.2], 0.55),  # all of them, but what is less sure than all would fall back
        ([-0.5, -0.5, -0.5, -0.5], ALWAYS),
        ([0.0, 0.0, 0.0, 0.0], ALWAYS),
        ([0.0, 0.0, 0.0, 0.9], ALWAYS),  # one question proves nothing; two: 0.9 − 2 · √(2 · 0.405) < 0
        ([-0.1, 0.1, 0.3, 0.5], 0.65),  # two: 0.8 − 2 · √(2 · 0.02) = 0.4; three: 0.9 − 0.69; all: 0.8 − 1.03
        ([-0.2, 0.1, 0.1, 0.5], ALWAYS),  # two lead by one error and a half: 0.6 − 2 · 0.4; three: 0.7 − 0.8
    ],
)
def test_the_threshold_by_hand(gains: list[float], threshold: float) -> None:
    confidence = np.array([0.55, 0.6, 0.7, 0.9])
    fixed = np.full(4, 0.5)
    made = calibrate(logits_of(confidence), np.zeros(4, int), np.ones(4, bool), fixed + gains, fixed)
    assert made.threshold == pytest.approx(threshold)


def test_equal_confidences_are_not_divided() -> None:
    logits = logits_of(np.full(4, 0.7))
    made = calibrate(logits, np.zeros(4, int), np.ones(4, bool), np.full(4, 0.6), np.full(4, 0.5))
    assert made.threshold == pytest.approx(0.7)


def test_the_threshold_is_the_best_of_all() -> None:
    generator = np.random.default_rng(0)
    trusted = 0
    for _ in range(50):
        logits = generator.normal(0, 1, (12, 3)).round(1)
        followed, fixed = generator.random((2, 12)).round(2)
        followed += 0.3
        made = calibrate(logits, np.zeros(12, int), np.zeros(12, bool), followed, fixed)
        sure = confidences(logits, made.temperature)

        def surely(threshold: float, sure: np.ndarray = sure, gain: np.ndarray = followed - fixed) -> float:
            own = gain[sure >= threshold]
            return own.sum() - 2 * np.sqrt(len(own) * own.var(ddof=1)) if len(own) > 1 else 0.0

        assert surely(made.threshold) == pytest.approx(max(surely(t) for t in [*sure, ALWAYS]))
        trusted += made.threshold < ALWAYS
    assert 10 < trusted < 50


def test_nothing_to_calibrate_on() -> None:
    empty = np.empty(0)
    assert calibrate(np.empty((0, 3)), empty.astype(int), empty.astype(bool), empty, empty) == Calibration(1.0, 0.0)


def test_calibration_error_by_hand() -> None:
    confidence = np.array([0.92, 0.96, 0.55, 1.0])
    correct = np.array([True, False, True, True])
    # Bins 0.5–0.6 and 0.9–1.0: |1 − 0.55| and |2 − 2.88|, over 4.
    assert calibration_error(confidence, correct) == pytest.approx((0.45 + 0.88) / 4)
    assert math.isnan(calibration_error(np.empty(0), np.empty(0, bool)))
