"""Plots: everything in its place by the numbers, and labels that stand apart."""

from __future__ import annotations

import math
import random
import re
import xml.etree.ElementTree as ElementTree
from importlib import resources
from itertools import combinations, pairwise

import pytest

from corag_agent.evaluation.report.axes import Scale, shortened, text_width, tick_text
from corag_agent.evaluation.report.placement import HEIGHT, Box, place_labels
from corag_agent.evaluation.report.plots import (
    SERIES,
    WIDTH,
    LabelledPoint,
    Line,
    Measured,
    best_points,
    interval_plot,
    line_plot,
    mark,
    point_plot,
    series_class,
    stacked_bars,
)

NAN = math.nan


def parsed(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img" and root.get("aria-label")
    assert not re.search(r"\b(nan|inf)\b", svg, re.IGNORECASE)
    return root


def having(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if kind in (element.get("class") or "").split()]


def place(element: ElementTree.Element) -> tuple[float, float]:
    x, y = re.findall(r"[-\d.]+", element.get("transform") or "")
    return float(x), float(y)


# ---- axes ----


@pytest.mark.parametrize(
    ("values", "zero", "ticks"),
    [
        ([3.0, 98.0], False, [0, 20, 40, 60, 80, 100]),
        ([0.31, 0.33], False, [0.31, 0.315, 0.32, 0.325, 0.33]),
        ([-0.2, 0.3], False, [-0.2, -0.1, 0, 0.1, 0.2, 0.3]),
        ([0.7, 1.9], True, [0, 0.5, 1, 1.5, 2]),
        ([0.5], False, [0.44, 0.46, 0.48, 0.5, 0.52, 0.54, 0.56]),
        ([0.0, 0.0], True, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ([NAN], False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ends_are_round_and_hold_the_values(values: list[float], zero: bool, ticks: list[float]) -> None:
    scale, found = Scale.over(values, 10, 110, zero=zero)
    assert found == pytest.approx(ticks)
    assert (scale(found[0]), scale(found[-1])) == pytest.approx((10, 110))
    middle = (found[0] + found[-1]) / 2
    assert scale(middle) == pytest.approx(60)


def test_ticks_are_told_apart() -> None:
    rng = random.Random(0)
    for _ in range(300):
        size = 10 ** rng.uniform(-5, 6)
        _, ticks = Scale.over([rng.uniform(-size, size) for _ in range(3)], 0, 1)
        texts = [tick_text(tick, ticks) for tick in ticks]
        assert len(set(texts)) == len(texts) and 3 <= len(ticks) <= 12
        assert [float(text.replace(",", "").replace("−", "-")) for text in texts] == pytest.approx(ticks)


def test_a_text_is_cut_to_what_fits() -> None:
    assert shortened("tree search", 200) == "tree search"
    cut = shortened("a very long name of a reranker", 90)
    assert cut.endswith("…") and text_width(cut) <= 90 < text_width(cut[:-1] + "abc")
    assert text_width("光合") > text_width("ab")


# ---- intervals ----


def test_a_mean_stands_between_the_ends_of_its_line() -> None:
    rows = [("one", [Measured(0.5, 0.4, 0.6)]), ("two", [Measured(0.7, 0.6, 0.8, 1), Measured(0.2, NAN, NAN, 2)])]
    root = parsed(interval_plot(rows, "ROUGE-L", "spoken"))
    marks, whiskers = having(root, "mark"), having(root, "whisker")
    assert (len(marks), len(whiskers)) == (3, 2)
    for point, line in zip(marks, whiskers, strict=False):
        start, y, end = map(float, re.findall(r"[\d.]+", line.get("d") or ""))
        assert place(point) == pytest.approx(((start + end) / 2, y), abs=0.11)
    # 0.2 on the axis: 0.5 is as far from 0.2 as 0.8 is from 0.5.
    x = [place(point)[0] for point in marks]
    assert x[0] - x[2] == pytest.approx(1.5 * (x[1] - x[0]), abs=0.3)
    assert [point.get("d") for point in marks] == [ElementTree.fromstring(mark(0, 0, s)).get("d") for s in (0, 1, 2)]


def test_rows_and_marks_do_not_touch() -> None:
    rows = [(f"row {i}", [Measured(0.1 * j, series=j) for j in range(5)]) for i in range(4)]
    heights = [place(point)[1] for point in having(parsed(interval_plot(rows, "x", "s")), "mark")]
    assert heights == sorted(heights)
    assert min(b - a for a, b in pairwise(heights)) >= 9


def test_what_has_no_value_is_not_drawn() -> None:
    rows = [("nothing", [Measured(NAN)]), ("something", [Measured(0.3)])]
    assert len(having(parsed(interval_plot(rows, "x", "s", reference=0)), "mark")) == 1
    line = Line("a", (1.0, 2.0), (Measured(NAN), Measured(NAN)))
    assert not having(parsed(line_plot([line], "x", "y", "s")), "line")


def test_texts_in_plots_are_escaped() -> None:
    name = "<script>\"&'</script>"
    drawn = [
        interval_plot([(name, [Measured(1.0)])], name, name),
        line_plot([Line(name, (1.0,), (Measured(1.0),))], name, name, name),
        point_plot([LabelledPoint(name, 1, 1)], name, name, name),
        stacked_bars([(name, [1.0])], [name], name, name),
    ]
    for svg in drawn:
        assert "<script" not in svg
        assert any(name in (element.text or "") for element in parsed(svg).iter("title"))
        assert parsed(svg).get("aria-label") == name


# ---- lines ----


def test_the_budget_is_a_diagonal() -> None:
    line = Line("a", (100.0, 200.0, 400.0), (Measured(100.0), Measured(200.0), Measured(400.0)))
    root = parsed(line_plot([line], "budget", "tokens", "s", zero=True, diagonal=True))
    (reference,) = having(root, "reference")
    ends = [float(number) for number in re.findall(r"[\d.]+", reference.get("d") or "")]
    points = [place(point) for point in having(root, "mark")]
    assert ends == pytest.approx([*points[0], *points[-1]], abs=0.11)  # all of the budget was spent
    assert points[1][0] - points[0][0] == pytest.approx((points[2][0] - points[1][0]) / 2, abs=0.2)


def test_equal_ratios_are_equally_far_apart() -> None:
    line = Line("a", (1000.0, 10_000.0, 1_000_000.0), (Measured(1.0), Measured(2.0), Measured(3.0)))
    root = parsed(line_plot([line], "chunks", "ms", "s", logarithmic=True))
    across = [place(point)[0] for point in having(root, "mark")]
    assert across[2] - across[1] == pytest.approx(2 * (across[1] - across[0]), abs=0.2)
    texts = [element.text for element in root.iter("text") if element.get("y") == "234.0"]
    assert texts == ["1,000", "10,000", "1,000,000"]


def test_values_of_a_setting_stand_inside_the_picture() -> None:
    line = Line("a", (1000.0, 1_000_000.0), (Measured(1.0), Measured(2.0)))
    root = parsed(line_plot([line], "chunks", "ms", "s", logarithmic=True))
    (last,) = (element for element in root.iter("text") if element.text == "1,000,000")
    assert last.get("text-anchor") == "middle"
    assert float(last.get("x") or 0) + text_width("1,000,000") / 2 <= WIDTH


def test_many_lines_stay_near_the_values_of_their_setting() -> None:
    for count in (3, 17):
        lines = [Line(f"way {i}", (100.0, 300.0, 1000.0), (Measured(0.1),) * 3) for i in range(count)]
        root = parsed(line_plot(lines, "budget", "y", "s"))
        ticks = [float((tick.get("d") or "").split()[0][1:]) for tick in having(root, "tick")]
        across = [place(point)[0] for point in having(root, "mark")]
        assert max(min(abs(x - tick) for tick in ticks) for x in across) <= 12
        assert min(b - a for a, b in pairwise(sorted(across))) > 1


def test_values_of_a_setting_that_would_touch_have_no_text() -> None:
    line = Line("a", (0.0, 0.001, 1.0), (Measured(1.0), Measured(2.0), Measured(3.0)))
    root = parsed(line_plot([line], "c", "y", "s"))
    below = [element.text for element in root.iter("text") if element.get("y") == "234.0"]
    assert below == ["0", "1"]
    assert len(having(root, "tick")) == 3


# ---- points ----


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@pytest.mark.parametrize("seed", range(8))
def test_labels_stand_apart_inside_the_frame(seed: int) -> None:
    rng = random.Random(seed)
    points = [(rng.uniform(60, 380), rng.uniform(40, 290)) for _ in range(8)]
    labels = [rng.choice(["Upper", "NaiveRAG, same tokens", "HyDE", "greedy climb"]) for _ in points]
    frame = (54.0, 24.0, WIDTH - 2, 298.0)
    boxes = place_labels(points, labels, frame)
    for box, label in zip(boxes, labels, strict=True):
        assert (box[2] - box[0], box[3] - box[1]) == pytest.approx((text_width(label), HEIGHT))
        assert box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]


def test_a_cluster_of_points_keeps_its_labels_apart() -> None:
    points = [(200.0 + 3 * i, 150.0 + 2 * i) for i in range(6)]
    boxes = place_labels(points, ["tree search"] * 6, (54, 24, 398, 298))
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]


def test_the_best_points_are_those_that_none_beats() -> None:
    rng = random.Random(1)
    points = [(float(rng.randint(1, 9)), rng.randint(1, 9) / 10) for _ in range(30)]
    best = {points[index] for index in best_points(points)}
    unbeaten = {p for p in points if not any(q != p and q[0] <= p[0] and q[1] >= p[1] for q in points)}
    assert best == unbeaten


# ---- bars ----


def test_parts_of_a_bar_follow_each_other() -> None:
    root = parsed(stacked_bars([("a", [1.0, NAN, 3.0, 0.0]), ("b", [2.0, 2.0])], list("wxyz"), "seconds", "s"))
    bars = having(root, "bar")
    starts = [float(bar.get("x") or 0) for bar in bars]
    widths = [float(bar.get("width") or 0) for bar in bars]
    assert len(bars) == 4
    assert starts[1] == pytest.approx(starts[0] + widths[0], abs=0.02)
    assert widths[1] == pytest.approx(3 * widths[0], abs=0.03)
    assert widths[0] + widths[1] == pytest.approx(widths[2] + widths[3], abs=0.04)
    assert [bar.get("class") for bar in bars] == ["bar c0", "bar c2", "bar c0", "bar c1"]


def test_many_series_are_told_apart() -> None:
    """By shape among the first, by colour and shape among all, and from those of the same colour by what is drawn."""
    assert len({mark(0, 0, series) for series in range(SERIES)}) == SERIES
    drawn = [(series_class(series), mark(0, 0, series)) for series in range(SERIES**2)]
    assert len({(kind.split()[0], shape) for kind, shape in drawn}) == SERIES**2
    assert len({kind for kind, _ in drawn[: 4 * SERIES]}) == 4 * SERIES


def test_lines_and_marks_of_colours_that_come_again_look_otherwise() -> None:
    lines = [Line(f"way {i}", (1.0, 2.0), (Measured(0.1 * i), Measured(0.2 * i))) for i in range(SERIES + 2)]
    root = parsed(line_plot(lines, "x", "y", "s"))
    kinds = [(group.get("class") or "").split() for group in having(root, "c0") + having(root, "c1")]
    assert kinds == [["c0"], ["c0", "r1"], ["c1"], ["c1", "r1"]]
    style = (resources.files("corag_agent.evaluation.report") / "page.css").read_text(encoding="utf-8")
    for kind in {series_class(series).partition(" ")[2] for series in range(SERIES**2)} - {""}:
        assert re.search(rf"\.{kind} \.line {{ stroke-dasharray: ", style) and f".{kind} .mark" in style
