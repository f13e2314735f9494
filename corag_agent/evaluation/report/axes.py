"""Axes of a plot as SVG: scales, round ticks, and widths of texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

# Widths in pixels at the font size of the plots, 11 pixels.
_NARROW, _CHARACTER, _BROAD, _SQUARE = 4.2, 6.9, 9.2, 11.5


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels.

    Attributes:
        low: Least value.
        high: Greatest value, above `low`.
        start: Pixel of `low`.
        end: Pixel of `high`; below `start` on an axis that points up.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    @classmethod
    def over(
        cls, values: Iterable[float], start: float, end: float, ticks: int = 5, zero: bool = False
    ) -> tuple[Scale, list[float]]:
        """A scale whose ends are round and hold all finite values, and its ticks.

        Args:
            values: To be shown; what is not finite is passed over.
            start: Pixel of the least.
            end: Pixel of the greatest.
            ticks: About how many.
            zero: Begin at 0 (or end there), as bars must.

        Example:
            >>> scale, ticks = Scale.over([0.23, 0.61], 0, 100)
            >>> scale.low, scale.high, ticks
            (0.2, 0.7, [0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
        """
        finite = [value for value in values if math.isfinite(value)] + ([0.0] if zero else [])
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        if high - low < 1e-9 * max(1.0, abs(high)):
            margin = abs(high) * 0.1 or 0.5
            low, high = (low if zero and low == 0 else low - margin), high + margin
        step = _round_step((high - low) / ticks)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        marks = [round(index * step, 12) for index in range(first, last + 1)]
        return cls(marks[0], marks[-1], start, end), marks


def _round_step(rough: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def text_width(text: str) -> float:
    """About how many pixels a text takes in a plot, rather too many."""
    return sum(map(_letter_width, text))


def _letter_width(letter: str) -> float:
    if ord(letter) >= 0x2E80:  # Chinese, Japanese, Korean
        return _SQUARE
    if letter in " .,:;'|iljft()[]":
        return _NARROW
    return _BROAD if letter.isupper() or letter in "mw%" else _CHARACTER


def shortened(text: str, width: float) -> str:
    """As much of a text as fits in so many pixels, with an ellipsis where it was cut."""
    if text_width(text) <= width:
        return text
    while text and text_width(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"


def tick_text(value: float, ticks: Sequence[float]) -> str:
    """A tick with as many decimals as tell it from its neighbours."""
    step = min((b - a for a, b in pairwise(ticks)), default=1.0)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:,.{decimals}f}".replace("-", "−")


def written(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """A text element; `y` is its base line."""
    attributes = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor != "start" else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(text)}</text>'


def horizontal_axis(scale: Scale, ticks: Sequence[float], top: float, bottom: float, name: str) -> str:
    """Grid lines from `top` to `bottom`, their values, and the axis' name below."""
    parts = []
    for tick in ticks:
        x = scale(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>')
        parts.append(written(x, bottom + 14, tick_text(tick, ticks), anchor="middle"))
    parts.append(written((scale.start + scale.end) / 2, bottom + 30, name, "axis", "middle"))
    return "".join(parts)


def vertical_axis(scale: Scale, ticks: Sequence[float], left: float, right: float, name: str) -> str:
    """Grid lines from `left` to `right`, their values, and the axis' name above its upper end."""
    parts = []
    for tick in ticks:
        y = scale(tick)
        parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{right:.1f}"/>')
        parts.append(written(left - 6, y + 4, tick_text(tick, ticks), anchor="end"))
    parts.append(written(4, min(scale.start, scale.end) - 12, name, "axis"))
    return "".join(parts)


def figure_svg(width: float, height: float, spoken: str, parts: Iterable[str]) -> str:
    """The picture around its parts; `spoken` is read out instead of it."""
    return (
        f'<svg class="plot" role="img" aria-label="{escape(spoken)}" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">{"".join(parts)}</svg>'
    )
