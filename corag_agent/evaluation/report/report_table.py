"""A table of the report, and how it is written as HTML and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        name: Its title.
        group: Title above those of neighbours with the same group; empty without.
        numeric: Aligned to the right.
    """

    name: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """A row.

    Attributes:
        cells: Texts, one for each column; the first one names the row.
        section: Rows that follow each other with the same section stand together; empty without.
        best: Columns whose cell is emphasised.
    """

    cells: tuple[str, ...]
    section: str = ""
    best: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Texts in rows and columns.

    Attributes:
        caption: What the table shows.
        columns: The first one has the rows' names.
        rows: In order.
        note: What must be known to read it; empty without.
        folded: Shown on demand only.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    folded: bool = False


def table_html(table: ReportTable) -> str:
    """The table in a pane that scrolls sideways where the screen is narrow."""
    body = "".join(_section_html(table, section, list(rows)) for section, rows in groupby(table.rows, _section))
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    caption = escape(table.caption)
    pane = (
        f'<div class="pane" role="region" aria-label="{caption}" tabindex="0"><table><caption>{caption}</caption>'
        f"<thead>{_head_html(table.columns)}</thead>{body}</table></div>{note}"
    )
    if not table.folded:
        return pane
    return f'<details class="folded"><summary>{caption}</summary>{pane}</details>'


def _section(row: Row) -> str:
    return row.section


def _head_html(columns: Sequence[Column]) -> str:
    if not any(column.group for column in columns):
        return f"<tr>{''.join(_title_html(column) for column in columns)}</tr>"
    upper, lower = [], []
    for group, members in groupby(columns, lambda column: column.group):
        names = list(members)
        if group:
            upper.append(f'<th scope="colgroup" colspan="{len(names)}">{escape(group)}</th>')
            lower += [_title_html(column) for column in names]
        else:
            upper += [_title_html(column, ' rowspan="2"') for column in names]
    return f"<tr>{''.join(upper)}</tr><tr>{''.join(lower)}</tr>"


def _title_html(column: Column, span: str = "") -> str:
    kind = ' class="number"' if column.numeric else ""
    return f'<th scope="col"{kind}{span}>{escape(column.name)}</th>'


def _section_html(table: ReportTable, section: str, rows: Sequence[Row]) -> str:
    lines = []
    if section:
        title = f'<span class="stay">{escape(section)}</span>'
        lines.append(f'<tr class="section"><th scope="rowgroup" colspan="{len(table.columns)}">{title}</th></tr>')
    for row in rows:
        first, *rest = _cells_html(table, row)
        lines.append(f'<tr><th scope="row">{first}</th>{"".join(rest)}</tr>')
    return f"<tbody>{''.join(lines)}</tbody>"


def _cells_html(table: ReportTable, row: Row) -> Iterator[str]:
    yield escape(row.cells[0])
    for index, (column, cell) in enumerate(zip(table.columns[1:], row.cells[1:], strict=True), 1):
        text = f"<strong>{escape(cell)}</strong>" if index in row.best else escape(cell)
        yield f'<td class="number">{text}</td>' if column.numeric else f"<td>{text}</td>"


def table_markdown(table: ReportTable) -> str:
    """The table as GitHub shows it; sections become a first column's text, and groups part of the titles."""
    names = [f"{column.group} {column.name}".strip() for column in table.columns]
    lines = [_line(names), _line(["---:" if column.numeric else "---" for column in table.columns])]
    for section, rows in groupby(table.rows, _section):
        if section:
            lines.append(_line([f"**{markdown_text(section)}**", *[""] * (len(names) - 1)]))
        for row in rows:
            cells = [markdown_text(cell) for cell in row.cells]
            lines.append(_line([f"**{cell}**" if index in row.best else cell for index, cell in enumerate(cells)]))
    note = f"\n\n{markdown_text(table.note)}" if table.note else ""
    text = "\n".join(lines) + note
    if table.folded:
        return f"<details><summary>{escape(table.caption)}</summary>\n\n{text}\n\n</details>"
    return f"**{markdown_text(table.caption)}**\n\n{text}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown_text(text: str) -> str:
    """A text that means itself in Markdown, also in a cell: on one line, with nothing that would be markup."""
    return re.sub(r"([\\`*_|<>\[\]~$#])", r"\\\1", " ".join(text.split()))
