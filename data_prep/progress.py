"""Progress on long work, on standard error, so that standard output stays for results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with time spent and time left.

    Yields:
        A function that is told how many more of `total` are done.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as progress:
        task = progress.add_task(what, total=total)
        try:
            yield lambda count: progress.advance(task, count)
        except BaseException:
            progress.live.transient = True  # what went wrong is said in one line, with no bar beside it
            progress.update(task, visible=False)
            raise
