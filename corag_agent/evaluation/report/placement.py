"""Where the labels of points go, so that none covers another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from corag_agent.evaluation.report.axes import text_width

HEIGHT = 13.0  # of a label, in pixels
_NEAR = 9.0  # from a point to its label
_RINGS = (0.0, 12.0, 26.0, 42.0, 60.0)  # farther and farther tries

Box = tuple[float, float, float, float]  # left, top, right, bottom


def place_labels(points: Sequence[tuple[float, float]], labels: Sequence[str], frame: Box) -> list[Box]:
    """A box for each label inside the frame, near its point, clear of other labels and of all points where that can be.

    Args:
        points: Pixels of the points' middles, `[n]`.
        labels: Their texts, `[n]`.
        frame: Where labels may stand.

    Returns:
        Boxes, `[n]`. Labels take their places in order, so the first ones get the best.
    """
    dots = [(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    taken: list[Box] = []
    for (x, y), label in zip(points, labels, strict=True):
        tries = [box for box in _around(x, y, text_width(label)) if _inside(box, frame)]
        tries = tries or [_moved_into(next(_around(x, y, text_width(label))), frame)]
        # min keeps the first of equals, which is the nearest.
        taken.append(min(tries, key=lambda box: sum(_overlap(box, other) for other in [*taken, *dots])))
    return taken


def _around(x: float, y: float, width: float) -> Iterator[Box]:
    """Right, left, above, below, and between these; ring after ring."""
    for ring in _RINGS:
        away = _NEAR + ring
        for turn in (0, 4, 6, 2, 7, 1, 5, 3):
            across, down = math.cos(turn * math.pi / 4), math.sin(turn * math.pi / 4)
            share = 0.0 if across > 0.1 else 1.0 if across < -0.1 else 0.5  # of the label, left of where it points to
            left = x + away * across - share * width
            top = y + away * down - HEIGHT / 2
            yield left, top, left + width, top + HEIGHT


def _inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _moved_into(box: Box, frame: Box) -> Box:
    across = max(frame[0] - box[0], 0) or min(frame[2] - box[2], 0)
    down = max(frame[1] - box[1], 0) or min(frame[3] - box[3], 0)
    return box[0] + across, box[1] + down, box[2] + across, box[3] + down


def _overlap(one: Box, other: Box) -> float:
    """Pixels that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0
