"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> str:
    """A table as text; columns that hold numbers only are aligned to the right.

    Args:
        header: Column titles.
        rows: Cells as text; an empty row draws a line.
        title: Above the table.
    """
    cells = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold")
    for column, name in enumerate(header):
        values = [row[column] for row in cells if row and row[column] not in ("", "–")]
        table.add_column(name, justify="right" if values and all(_is_number(value) for value in values) else "left")
    for row in cells:
        if row:
            table.add_row(*row)
        else:
            table.add_section()
    console = Console(width=130, no_color=True, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip("\n")


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").split(" ")[0])
    except ValueError:
        return False
    return True
