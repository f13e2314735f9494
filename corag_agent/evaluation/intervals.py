"""Bootstrap intervals of means, of paired differences and of ratios."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corag_search.errors import InputError
from corag_search.registry import whole

RESAMPLES = 10_000
COVERAGE = 0.95
_BLOCK = 1 << 20  # draws held at a time, so that memory does not grow with questions × resamples

Values = npt.NDArray[np.float64]
Statistic = Callable[[Values, Values], Values]


@dataclass(frozen=True, slots=True)
class Interval:
    """A statistic and its percentile bootstrap interval (B. Efron, *The Annals of Statistics* 7, 1979).

    Attributes:
        mean: The statistic over all questions.
        low: Lower end; NaN where a single question (or group) is all there is.
        high: Upper end, likewise.
        questions: How many it stands on.
    """

    mean: float
    low: float
    high: float
    questions: int

    def __format__(self, form: str) -> str:
        """The statistic and its ends, each in the format given: `+0.010 [-0.028, +0.044]`."""
        return f"{self.mean:{form}} [{self.low:{form}}, {self.high:{form}}]"

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign is certain at this coverage."""
        return self.low > 0 or self.high < 0


def bootstrap_mean(
    values: npt.ArrayLike, seed: int = 0, resamples: int = RESAMPLES, groups: Sequence[Hashable] | None = None
) -> Interval:
    """95 % interval of a mean.

    Args:
        values: One for each question, `[n]`.
        seed: Of the resampling.
        resamples: How many.
        groups: What each question shares with others, such as its document, `[n]`: whole groups are drawn then. None
            draws questions.

    Raises:
        InputError: No values, NaN among them, or groups of another length.
    """
    return _interval(_columns(values), lambda sums, counts: sums[:, 0] / counts, seed, resamples, groups)


def paired_bootstrap(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    seed: int = 0,
    resamples: int = RESAMPLES,
    groups: Sequence[Hashable] | None = None,
) -> Interval:
    """95 % interval of mean(a) − mean(b) over the same questions; a question's two values are drawn together.

    Args:
        a: One value for each question, `[n]`.
        b: The other method's values for the same questions, `[n]`.
        seed: Of the resampling.
        resamples: How many.
        groups: As of `bootstrap_mean`.

    Raises:
        InputError: As `bootstrap_mean`, or arrays of unequal length.

    Example:
        >>> paired_bootstrap([0.5, 0.7, 0.9], [0.4, 0.6, 0.8]).excludes_zero
        True
    """
    one, other = _columns(a, b).T
    return bootstrap_mean(one - other, seed, resamples, groups)


def paired_ratio(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    seed: int = 0,
    resamples: int = RESAMPLES,
    groups: Sequence[Hashable] | None = None,
) -> Interval:
    """95 % interval of mean(a) / mean(b) − 1, as "30 % above NaiveRAG"; arguments as of `paired_bootstrap`.

    Raises:
        InputError: As `paired_bootstrap`, or a mean of b that is not above 0.
    """
    columns = _columns(a, b)
    if not columns[:, 1].mean() > 0:
        raise InputError(f"a ratio needs a baseline whose mean is above 0, got {columns[:, 1].mean():g}")

    def ratio(sums: Values, counts: Values) -> Values:
        # A resample of zeros only has no ratio; NaN is left out of the percentiles.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(sums[:, 1] > 0, sums[:, 0] / sums[:, 1] - 1, np.nan)

    return _interval(columns, ratio, seed, resamples, groups)


def _interval(
    columns: Values, statistic: Statistic, seed: int, resamples: int, groups: Sequence[Hashable] | None
) -> Interval:
    whole("resamples", resamples)
    sums, counts = _by_group(columns, groups)
    whole_sample = float(statistic(sums.sum(axis=0)[None], counts.sum()[None])[0])
    if len(sums) < 2:
        return Interval(whole_sample, np.nan, np.nan, len(columns))
    drawn: list[Values] = []
    generator = np.random.default_rng(seed)
    at_once = max(1, _BLOCK // len(sums))
    for start in range(0, resamples, at_once):
        picks = generator.integers(len(sums), size=(min(at_once, resamples - start), len(sums)))
        drawn.append(statistic(sums[picks].sum(axis=1), counts[picks].sum(axis=1)))
    tail = 100 * (1 - COVERAGE) / 2
    low, high = np.nanpercentile(np.concatenate(drawn), [tail, 100 - tail])
    return Interval(whole_sample, float(low), float(high), len(columns))


def _columns(*values: npt.ArrayLike) -> Values:
    """Side by side, `[n, columns]`."""
    arrays = [np.asarray(value, np.float64) for value in values]
    if any(array.ndim != 1 or array.shape != arrays[0].shape for array in arrays) or not arrays[0].size:
        shapes = " and ".join(str(list(array.shape)) for array in arrays)
        raise InputError(f"an interval needs one value for each of at least one question, got arrays of shape {shapes}")
    columns = np.stack(arrays, axis=1)
    if not np.isfinite(columns).all():
        missing = int((~np.isfinite(columns).all(axis=1)).sum())
        raise InputError(f"{missing} of {len(columns)} values are NaN or infinite; leave those questions out")
    return columns


def _by_group(columns: Values, groups: Sequence[Hashable] | None) -> tuple[Values, Values]:
    """Sum of each column and number of questions, group by group: `[g, columns]` and `[g]`."""
    if groups is None:
        return columns, np.ones(len(columns))
    if len(groups) != len(columns):
        raise InputError(f"groups must be one for each of {len(columns)} questions, got {len(groups)}")
    numbers: dict[Hashable, int] = {}
    rows = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
    sums = np.zeros((len(numbers), columns.shape[1]))
    np.add.at(sums, rows, columns)
    return sums, np.bincount(rows).astype(np.float64)
