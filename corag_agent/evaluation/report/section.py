"""A section of the report: tables, and plots with their legends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from corag_agent.evaluation.report.plots import mark, series_class
from corag_agent.evaluation.report.report_table import ReportTable, table_html


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture and what it needs beside it.

    Attributes:
        title: What it shows.
        svg: The picture.
        legend: Names of its series, by their number; empty for a single one.
        bars: Whether the series are filled areas rather than marks.
    """

    title: str
    svg: str
    legend: tuple[tuple[int, str], ...] = ()
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Part of the report.

    Attributes:
        anchor: Its name in links.
        title: Above it.
        text: What to know before reading it; empty without.
        plots: Shown side by side where there is room.
        tables: Below them.
    """

    anchor: str
    title: str
    text: str
    plots: tuple[Plot, ...]
    tables: tuple[ReportTable, ...]


def section_html(section: Section) -> str:
    """The section as part of a page."""
    text = f'<p class="note">{escape(section.text)}</p>' if section.text else ""
    plots = f'<div class="plots">{"".join(map(plot_html, section.plots))}</div>' if section.plots else ""
    tables = "".join(map(table_html, section.tables))
    heading = f'<h2 id="{section.anchor}-title">{escape(section.title)}</h2>'
    opened = f'<section id="{section.anchor}" aria-labelledby="{section.anchor}-title">'
    return f"{opened}{heading}{text}{plots}{tables}</section>"


def plot_html(plot: Plot) -> str:
    """The picture with its title and its legend."""
    keys = "".join(_key(series, name, plot.bars) for series, name in plot.legend)
    legend = f'<p class="legend">{keys}</p>' if keys else ""
    return f"<figure><figcaption>{escape(plot.title)}</figcaption>{legend}{plot.svg}</figure>"


def _key(series: int, name: str, bars: bool) -> str:
    shape = '<rect class="bar" x="1" y="2" width="14" height="10"/>' if bars else mark(8, 7, series)
    picture = f'<svg class="key {series_class(series)}" viewBox="0 0 16 14" aria-hidden="true">{shape}</svg>'
    return f"<span>{picture} {escape(name)}</span>"


def legend_of(names: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """Legend of the series in their order; none where there is only one."""
    return tuple(enumerate(names)) if len(names) > 1 else ()
