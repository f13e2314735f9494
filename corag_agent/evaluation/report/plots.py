"""Plots as SVG: values with intervals, lines, labelled points, stacked bars.

Colours and line styles stand in the page's style sheet, by `series_class`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from corag_agent.evaluation.report.axes import (
    Scale,
    figure_svg,
    horizontal_axis,
    shortened,
    text_width,
    vertical_axis,
    written,
)
from corag_agent.evaluation.report.placement import place_labels
from corag_agent.evaluation.report.wording import number

WIDTH = 400.0  # pixels; about that of a phone, so that letters there are as large as on a desk
SERIES = 7  # colours and shapes; further series have them in other pairs, with hollow marks and broken lines
_BROKEN = 3  # ways in which the style sheet breaks lines
_RIGHT = 14.0
_LABELS = 172.0  # pixels at most for the names of rows
_FOOT = 38.0  # below a horizontal axis
_SPREAD = 24.0  # pixels for the intervals of all lines at one value of a setting

Across = Callable[[float], float]  # from a setting to its pixel


@dataclass(frozen=True, slots=True)
class Measured:
    """A mean with its interval.

    Attributes:
        mean: NaN where there is none; nothing is drawn then.
        low: Lower end of the 95 % interval; NaN without one.
        high: Upper end.
        series: Number of its series: colour and shape.
    """

    mean: float
    low: float = math.nan
    high: float = math.nan
    series: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a plot.

    Attributes:
        name: As in the legend.
        x: Rising, `[n]`.
        y: Means with intervals, `[n]`.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class LabelledPoint:
    """A point with its name beside it."""

    name: str
    x: float
    y: float
    series: int = 0


def interval_plot(
    rows: Sequence[tuple[str, Sequence[Measured]]], axis: str, spoken: str, reference: float | None = None
) -> str:
    """Rows of means, each with a line over its interval.

    Args:
        rows: Names, and what stands beside each, one below the other.
        axis: What the values are.
        spoken: What the plot shows, in words.
        reference: A value with a line of its own, such as 0 for differences.
    """
    left = 10 + min(_LABELS, max(text_width(name) for name, _ in rows))
    shown = [value for _, means in rows for mean in means for value in (mean.mean, mean.low, mean.high)]
    scale, ticks = Scale.over([*shown, *([] if reference is None else [reference])], left, WIDTH - _RIGHT)
    heights = [max(20.0, 9.0 * len(means) + 8) for _, means in rows]
    bottom = 8 + sum(heights)
    parts = [horizontal_axis(scale, ticks, 4, bottom, axis)]
    if reference is not None:
        parts.append(f'<path class="reference" d="M{scale(reference):.1f} 4V{bottom:.1f}"/>')
    top = 8.0
    for (name, means), height in zip(rows, heights, strict=True):
        label = shortened(name, left - 8)
        parts.append(
            f"<g><title>{escape(name)}</title>{written(left - 8, top + height / 2 + 4, label, 'row', 'end')}</g>"
        )
        first = top + height / 2 - 4.5 * (len(means) - 1)
        parts += [_measured(name, mean, scale, first + 9 * index) for index, mean in enumerate(means)]
        top += height
    return figure_svg(WIDTH, bottom + _FOOT, spoken, parts)


def _measured(name: str, mean: Measured, scale: Scale, y: float) -> str:
    if not math.isfinite(mean.mean):
        return ""
    line = ""
    if math.isfinite(mean.low) and math.isfinite(mean.high):
        line = f'<path class="whisker" d="M{scale(mean.low):.1f} {y:.1f}H{scale(mean.high):.1f}"/>'
    return (
        f'<g class="{series_class(mean.series)}"><title>{escape(name)}: {_interval_text(mean)}</title>{line}'
        f"{mark(scale(mean.mean), y, mean.series)}</g>"
    )


def _interval_text(mean: Measured) -> str:
    if not math.isfinite(mean.low):
        return number(mean.mean)
    return f"{number(mean.mean)}, 95 % {number(mean.low)} to {number(mean.high)}"


def series_class(series: int) -> str:
    """What the style sheet knows a series by: `c0` to `c6` for its colour, and `r1`, `r2` or `r3` when that repeats."""
    again = series // SERIES
    return f"c{series % SERIES}" + (f" r{(again - 1) % _BROKEN + 1}" if again else "")


def mark(x: float, y: float, series: int) -> str:
    """A point of a series; its shape tells it apart without its colour, and from the others of its colour."""
    shapes = (
        "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z",
        "M-3.6 -3.6H3.6V3.6H-3.6Z",
        "M0 -4.8L4.6 3.4H-4.6Z",
        "M0 -5L5 0L0 5L-5 0Z",
        "M0 4.8L4.6 -3.4H-4.6Z",
        "M-1.5 -4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
        "M-4.5 -2.5L-2.5 -4.5L0 -2L2.5 -4.5L4.5 -2.5L2 0L4.5 2.5L2.5 4.5L0 2L-2.5 4.5L-4.5 2.5L-2 0Z",
    )
    shape = shapes[(series + series // SERIES) % SERIES]
    return f'<path class="mark" transform="translate({x:.1f} {y:.1f})" d="{shape}"/>'


def line_plot(
    lines: Sequence[Line],
    x_axis: str,
    y_axis: str,
    spoken: str,
    zero: bool = False,
    diagonal: bool = False,
    logarithmic: bool = False,
) -> str:
    """Lines over a numeric setting, which has a tick at each of its values.

    Args:
        lines: One for each series, in the order of the legend.
        x_axis: What the setting is.
        y_axis: What the values are.
        spoken: What the plot shows, in words.
        zero: Begin the vertical axis at 0.
        diagonal: Draw where y equals x, as a limit that must not be passed.
        logarithmic: Equal ratios of the setting, whose values are above 0 then, are equally far apart.
    """
    left, top, bottom = 52.0, 30.0, 220.0
    places = sorted({x for line in lines for x in line.x})
    measure = math.log10 if logarithmic else float
    scale, _ = Scale.over(map(measure, places), left + 12, WIDTH - 22)

    def x(value: float) -> float:
        return scale(measure(value))

    shown = [value for line in lines for mean in line.y for value in (mean.mean, mean.low, mean.high)]
    y, ticks = Scale.over([*shown, *(places if diagonal else [])], bottom, top, zero=zero)
    parts = [vertical_axis(y, ticks, left, WIDTH - _RIGHT, y_axis), *_places(places, x, bottom)]
    parts.append(written((scale.start + scale.end) / 2, bottom + 30, x_axis, "axis", "middle"))
    if diagonal:
        ends = f"M{x(places[0]):.1f} {y(places[0]):.1f}L{x(places[-1]):.1f} {y(places[-1]):.1f}"
        parts.append(f'<path class="reference" d="{ends}"/>')
    parts += [_line(line, series, len(lines), x, y) for series, line in enumerate(lines)]
    return figure_svg(WIDTH, bottom + _FOOT, spoken, parts)


def _places(places: Sequence[float], x: Across, bottom: float) -> Iterator[str]:
    """Values of the setting, inside the picture; one that would touch the one before is left out."""
    end = -math.inf
    for place in places:
        text = _setting_text(place)
        half = text_width(text) / 2
        middle = min(x(place), WIDTH - half)
        if middle - half > end:
            yield written(middle, bottom + 14, text, anchor="middle")
            end = middle + half + 4
        yield f'<path class="tick" d="M{x(place):.1f} {bottom:.1f}v4"/>'


def _setting_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 1e6 else f"{value:,g}"


def _line(line: Line, series: int, count: int, x: Across, y: Scale) -> str:
    """A line whose intervals stand a little beside those of the other lines."""
    known = [(at, mean) for at, mean in zip(line.x, line.y, strict=True) if math.isfinite(mean.mean)]
    shift = min(4.0, _SPREAD / count) * (series - (count - 1) / 2)
    path = "L".join(f"{x(at) + shift:.1f} {y(mean.mean):.1f}" for at, mean in known)
    parts = [f'<path class="line" d="M{path}"/>' if known else ""]
    for at, mean in known:
        across = x(at) + shift
        whisker = ""
        if math.isfinite(mean.low) and math.isfinite(mean.high):
            whisker = f'<path class="whisker" d="M{across:.1f} {y(mean.low):.1f}V{y(mean.high):.1f}"/>'
        title = f"<title>{escape(line.name)}, {_setting_text(at)}: {_interval_text(mean)}</title>"
        parts.append(f"<g>{title}{whisker}{mark(across, y(mean.mean), series)}</g>")
    return f'<g class="{series_class(series)}">{"".join(parts)}</g>'


def point_plot(points: Sequence[LabelledPoint], x_axis: str, y_axis: str, spoken: str) -> str:
    """Points with their names; the dashed stair joins those that no other point beats (fewer on x and more on y)."""
    left, top, bottom = 52.0, 30.0, 300.0
    x, across = Scale.over([point.x for point in points], left, WIDTH - _RIGHT)
    y, up = Scale.over([point.y for point in points], bottom, top)
    places = [(x(point.x), y(point.y)) for point in points]
    names = [shortened(point.name, 170) for point in points]
    boxes = place_labels(places, names, (left + 2, top - 6, WIDTH - 2, bottom - 2))
    parts = [vertical_axis(y, up, left, WIDTH - _RIGHT, y_axis), horizontal_axis(x, across, top, bottom, x_axis)]
    best = best_points([(point.x, point.y) for point in points])
    stair = f"M{places[best[0]][0]:.1f} {places[best[0]][1]:.1f}"
    stair += "".join(f"H{places[index][0]:.1f}V{places[index][1]:.1f}" for index in best[1:])
    parts.append(f'<path class="reference" d="{stair}"/>')
    for point, place, name, box in zip(points, places, names, boxes, strict=True):
        title = f"<title>{escape(point.name)}: {number(point.y)} at {point.x:,.0f}</title>"
        parts.append(
            f'<g class="{series_class(point.series)}">{title}{_leader(place, box)}{mark(*place, point.series)}'
        )
        parts.append(f"{written(box[0], box[3] - 3, name, 'row')}</g>")
    return figure_svg(WIDTH, bottom + _FOOT, spoken, parts)


def _leader(place: tuple[float, float], box: tuple[float, float, float, float]) -> str:
    """A thin line from a point to its label, when that is not right beside it."""
    x = min(max(place[0], box[0]), box[2])
    y = min(max(place[1], box[1]), box[3])
    if math.dist(place, (x, y)) < 14:
        return ""
    return f'<path class="leader" d="M{place[0]:.1f} {place[1]:.1f}L{x:.1f} {y:.1f}"/>'


def best_points(points: Sequence[tuple[float, float]]) -> list[int]:
    """Positions of the points that no other one beats, by rising x; of equals the first.

    Example:
        >>> best_points([(3, 0.5), (1, 0.4), (2, 0.3), (4, 0.5)])
        [1, 0]
    """
    best: list[int] = []
    for index in sorted(range(len(points)), key=lambda index: (points[index][0], -points[index][1])):
        if not best or points[index][1] > points[best[-1]][1]:
            best.append(index)
    return best


def stacked_bars(rows: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], axis: str, spoken: str) -> str:
    """A bar for each row, made of its parts.

    Args:
        rows: Names, and a length for each part, not below 0; NaN has none.
        names: Of the parts, in the order of the legend.
        axis: What the lengths are.
        spoken: What the plot shows, in words.
    """
    left = 10 + min(_LABELS, max(text_width(name) for name, _ in rows))
    sums = [sum(value for value in lengths if math.isfinite(value)) for _, lengths in rows]
    scale, ticks = Scale.over(sums, left, WIDTH - _RIGHT, zero=True)
    bottom = 8 + 24.0 * len(rows)
    parts = [horizontal_axis(scale, ticks, 4, bottom, axis)]
    for index, (name, lengths) in enumerate(rows):
        top = 8 + 24.0 * index
        label = written(left - 8, top + 15, shortened(name, left - 8), "row", "end")
        parts.append(f"<g><title>{escape(name)}</title>{label}</g>")
        at = 0.0
        for series, length in enumerate(lengths):
            if math.isfinite(length) and length > 0:
                title = f"<title>{escape(name)}, {escape(names[series])}: {length:.3f} s</title>"
                box = f'x="{scale(at):.2f}" y="{top + 4:.1f}" width="{scale(at + length) - scale(at):.2f}" height="16"'
                parts.append(f'<rect class="bar {series_class(series)}" {box}>{title}</rect>')
                at += length
    return figure_svg(WIDTH, bottom + _FOOT, spoken, parts)
