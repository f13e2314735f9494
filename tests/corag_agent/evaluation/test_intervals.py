"""Bootstrap intervals against their definition in plain loops, against theory, and on bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from corag_agent.evaluation.intervals import Interval, bootstrap_mean, paired_bootstrap, paired_ratio
from corag_search import InputError


def all_resamples(groups: list[list[float]]) -> list[float]:
    """The mean of every way of drawing as many groups as there are."""
    means = []
    for picks in itertools.product(range(len(groups)), repeat=len(groups)):
        values = [value for pick in picks for value in groups[pick]]
        means.append(sum(values) / len(values))
    return means


@pytest.mark.parametrize(
    ("values", "groups"),
    [([0.1, 0.5, 0.2, 0.9], None), ([0.1, 0.5, 0.2, 0.9, 0.4], ["a", "b", "a", "c", "c"])],
)
def test_the_interval_is_that_of_all_resamples(values: list[float], groups: list[str] | None) -> None:
    own = [[v] for v in values]
    if groups is not None:
        own = [[v for v, g in zip(values, groups, strict=True) if g == name] for name in dict.fromkeys(groups)]
    exact = np.percentile(all_resamples(own), [2.5, 97.5], method="inverted_cdf")
    drawn = bootstrap_mean(values, resamples=40_000, groups=groups)
    assert drawn.mean == pytest.approx(np.mean(values)) and drawn.questions == len(values)
    # The percentiles of 40,000 draws fall between neighbours of the exact ones among the few values there can be.
    assert (drawn.low, drawn.high) == pytest.approx(tuple(exact), abs=0.04)


def test_a_pair_stays_together() -> None:
    noise = np.random.default_rng(0).normal(size=200)
    # The methods' own spread is great, their difference always the same: only a paired interval knows.
    interval = paired_bootstrap(noise + 0.01, noise)
    assert (interval.low, interval.high) == pytest.approx((0.01, 0.01)) and interval.excludes_zero
    assert not paired_bootstrap(noise, -noise).excludes_zero


def test_the_width_is_what_theory_says() -> None:
    values = np.random.default_rng(1).normal(size=400)
    interval = bootstrap_mean(values, seed=3)
    half = 1.96 * values.std() / np.sqrt(400)
    assert interval.high - interval.mean == pytest.approx(half, rel=0.06)
    assert interval.mean - interval.low == pytest.approx(half, rel=0.06)


def test_groups_of_equal_questions_widen_the_interval() -> None:
    values = np.random.default_rng(2).normal(size=50)
    alone = bootstrap_mean(values)
    four_times = bootstrap_mean(np.repeat(values, 4), groups=[i // 4 for i in range(200)])
    assert (four_times.low, four_times.high) == pytest.approx((alone.low, alone.high))
    assert bootstrap_mean(np.repeat(values, 4)).high < four_times.high  # as if they were 200 questions


def test_a_ratio_is_of_means() -> None:
    interval = paired_ratio([0.2, 0.4], [0.1, 0.2])
    assert (interval.mean, interval.low, interval.high) == pytest.approx((1.0, 1.0, 1.0))
    mixed = paired_ratio([0.3, 0.3, 0.0], [0.1, 0.2, 0.3])
    assert mixed.mean == pytest.approx(0.0) and mixed.low < 0 < mixed.high
    # Some resamples draw zeros only; the others still give an interval.
    sparse = paired_ratio([1.0, 1.0, 1.0], [0.0, 0.0, 1.0], resamples=2000)
    assert sparse.mean == pytest.approx(2.0) and np.isfinite([sparse.low, sparse.high]).all()


def test_one_question_has_no_interval() -> None:
    for interval in (paired_bootstrap([0.5], [0.1]), bootstrap_mean([0.4, 0.4], groups=["d", "d"])):
        assert interval.mean == pytest.approx(0.4) and np.isnan([interval.low, interval.high]).all()
        assert not interval.excludes_zero


def test_an_interval_is_written_with_both_ends() -> None:
    interval = Interval(0.0104, -0.028, 0.0436, 98)
    assert (f"{interval:+.3f}", f"{interval:.0%}") == ("+0.010 [-0.028, +0.044]", "1% [-3%, 4%]")


def test_many_questions_do_not_change_with_the_block() -> None:
    values = np.random.default_rng(4).random(3000)
    first, again = bootstrap_mean(values, resamples=2000), bootstrap_mean(values, resamples=2000)
    assert first == again and first != bootstrap_mean(values, seed=1, resamples=2000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_mean([]), "at least one question"),
        (lambda: bootstrap_mean([0.1, float("nan")]), "1 of 2 values are NaN"),
        (lambda: paired_bootstrap([0.1, 0.2], [0.1]), "shape"),
        (lambda: paired_ratio([0.1], [0.0]), "baseline whose mean is above 0"),
        (lambda: bootstrap_mean([0.1, 0.2], groups=["a"]), "one for each of 2"),
        (lambda: bootstrap_mean([0.1], resamples=0), "resamples"),
    ],
)
def test_unusable_values_are_refused(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
