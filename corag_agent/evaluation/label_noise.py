"""What oracles gain over the best fixed configuration, naively and honestly, with intervals over documents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag_agent.evaluation.intervals import Interval, paired_bootstrap, paired_ratio
from data_prep.noise import OracleGain, oracle_gains
from data_prep.table import LabelTable

NOISE_HEADER = ("", "halves by", "best fixed", "naive oracle", "honest oracle", "naive gain", "honest gain", "noise")


def noise_of(table: LabelTable, parts: Mapping[str, NDArray[np.intp]] | None = None) -> list[dict[str, Any]]:
    """The gains of `data_prep.noise.oracle_gains` as plain values, with 95 % bootstrap intervals.

    Args:
        table: With repeated scores.
        parts: Positions of the questions of parts of the table, by name; each part has a best fixed configuration of
            its own. None for the whole table.

    Returns:
        For each part, way to divide the scores, and oracle: `part`, `questions`, `oracle`, `halves`, the means `fixed`
        (honest), `naive` and `honest`, the leads `naive_gain` and `honest_gain` and `noise`, the share of the naive
        lead that is not honest: each `[mean, low, high]`, drawn by document where the table names documents. `noise`
        is None where there is no naive lead, an interval's ends where a single document is all there is.

    Raises:
        InputError: As `oracle_gains`.
    """
    whole = {"all questions": np.arange(len(table))}
    return [
        {"part": name, "questions": len(rows), **_measured(gain, None if table.groups is None else table.groups[rows])}
        for name, rows in (whole if parts is None else parts).items()
        for gain in oracle_gains(table, rows)
    ]


def noise_rows(noise: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Lines under `NOISE_HEADER`."""
    rows = []
    for line in noise:
        share = "–" if line["noise"] is None else _text(line["noise"], ".0%")
        means = [f"{line[name]:.3f}" for name in ("fixed", "naive", "honest")]
        gains = [_text(line[name], "+.3f") for name in ("naive_gain", "honest_gain")]
        name = f"{line['part']} ({line['questions']}): {line['oracle']}"
        rows.append((name, line["halves"], *means, *gains, share))
    return rows


def _measured(gain: OracleGain, groups: NDArray[np.intp] | None) -> dict[str, Any]:
    drawn = None if groups is None else groups.tolist()
    naive, honest = gain.naive - gain.naive_fixed, gain.honest - gain.honest_fixed
    noise = None
    if naive.mean() > 0:
        ratio = paired_ratio(honest, naive, groups=drawn)
        noise = _plain(Interval(-ratio.mean, -ratio.high, -ratio.low, ratio.questions))
    return {
        "oracle": str(gain.oracle),
        "halves": str(gain.halves),
        "fixed": float(gain.honest_fixed.mean()),
        "naive": float(gain.naive.mean()),
        "honest": float(gain.honest.mean()),
        "naive_gain": _plain(paired_bootstrap(gain.naive, gain.naive_fixed, groups=drawn)),
        "honest_gain": _plain(paired_bootstrap(gain.honest, gain.honest_fixed, groups=drawn)),
        "noise": noise,
    }


def _plain(interval: Interval) -> list[float | None]:
    return [interval.mean, *(None if math.isnan(end) else end for end in (interval.low, interval.high))]


def _text(values: list[float | None], form: str) -> str:
    mean, low, high = ("–" if value is None else format(value, form) for value in values)
    return f"{mean} [{low}, {high}]"
