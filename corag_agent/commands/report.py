"""`corag report`: an evaluation run as a page of HTML and as Markdown."""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Set
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json, check_about
from corag_agent.evaluation.intervals import RESAMPLES
from corag_search.errors import InputError
from corag_search.files import replacing_file
from corag_search.registry import whole

EXAMPLE = """  corag report --run runs/evaluation --out report.html
  corag report --run runs/evaluation --out report.html --markdown report.md
  corag report --run runs/evaluation --out report.html --questions 200
  corag report --run runs/evaluation --out report.html --splits test"""

LARGE = 20_000_000  # bytes above which a page is slow to open on a phone


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--run", type=Path | None, default=None, help="Directory that `corag evaluate` wrote.")
    parser.add_argument("--out", type=Path | None, default=None, help="The page, ending in .html.")
    parser.add_argument("--markdown", type=Path | None, default=None, help="The same tables, ending in .md.")
    parser.add_argument(
        "--questions", type=int | None, default=None, help="At most so many in the question browser; null for all."
    )
    parser.add_argument(
        "--splits", type=str | None, default=None, help="Only questions of these splits, such as test, or val,test."
    )
    parser.add_argument("--resamples", type=int, default=RESAMPLES, help="Of the bootstrap of each interval.")
    add_json(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    page, markdown = _targets(arguments)
    check_about(arguments, named, {"questions": ("out",)})
    from corag_agent.evaluation.records import EvaluationRun
    from corag_agent.evaluation.report import contents_of, report_markdown, report_page

    evaluation = EvaluationRun.read(arguments.run)
    if evaluation.records.empty and evaluation.structure is None:
        raise InputError(f"{arguments.run} has no records; run `corag evaluate` first")
    if arguments.splits is not None:
        evaluation = evaluation.of_splits([name.strip() for name in arguments.splits.split(",")])
    contents = contents_of(evaluation, arguments.resamples)
    written = {}
    if page is not None:
        written[page] = report_page(evaluation, arguments.questions, contents)
    if markdown is not None:
        written[markdown] = report_markdown(evaluation, contents)
    for path, text in written.items():
        with replacing_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
    _tell(written, arguments.json)


def _targets(arguments: argparse.Namespace) -> tuple[Path | None, Path | None]:
    """Where the page and the Markdown go.

    Raises:
        InputError: An option is missing, or names a file of another kind.
    """
    if arguments.run is None:
        raise InputError("--run is required; `corag report --help` shows examples")
    if arguments.out is None and arguments.markdown is None:
        raise InputError("nothing to write; give --out report.html, --markdown report.md, or both")
    for name, ending in (("out", ".html"), ("markdown", ".md")):
        path = getattr(arguments, name)
        if path is not None and path.suffix != ending:
            raise InputError(f"{name} must end in {ending}, got {str(path)!r}")
    if arguments.questions is not None and arguments.questions < 1:
        raise InputError(f"questions must be at least 1, got {arguments.questions}; leave it out for all")
    whole("resamples", arguments.resamples)
    return arguments.out, arguments.markdown


def _tell(written: dict[Path, str], as_json: bool) -> None:
    sizes = {path: len(text.encode()) for path, text in written.items()}
    for path, size in sizes.items():
        if size > LARGE:
            warnings.warn(
                f"{path} has {size / 1e6:.0f} MB, slow to open on a phone; --questions 200 keeps fewer in the browser",
                stacklevel=2,
            )
    if as_json:
        print_json({"written": {str(path): size for path, size in sizes.items()}})
        return
    for path, size in sizes.items():
        print_out(f"{path} ({_told(size)})")


def _told(size: int) -> str:
    """Bytes in MB; in kB, rounded up, below one of those."""
    return f"{size / 1e6:.1f} MB" if size >= 1_000_000 else f"{math.ceil(size / 1000)} kB"
