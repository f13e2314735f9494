"""Lines of a file: text, JSON objects or cells, with errors that name the file and the line."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from corag_search.errors import InputError
from data_prep.readers.faults import Faults

__all__ = ["Source", "csv_rows", "json_lines", "parsed", "read_bytes", "tab_rows", "text_lines", "unreadable"]

Source = Path | Traversable

_NOT_UTF8 = "lines that are not UTF-8, left out"
_NOT_JSON = "lines that are no JSON object, left out"
_NOT_CSV = "rows that are not CSV, left out"
_LONGEST_CELL = 1 << 26  # characters; without a limit, an unclosed quotation mark takes the whole file into memory


def read_bytes(path: Source) -> bytes:
    """A file's content without its byte-order mark.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise unreadable(path, error) from None


def text_lines(path: Source, faults: Faults) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, from 1, each ending in a line feed; a byte-order mark is no part of the first.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            # By line feed alone: JSON strings may contain the other characters that str.splitlines would cut at.
            for number, line in enumerate(file, start=1):
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                try:
                    text = line.rstrip(b"\r\n").decode("utf-8")
                except UnicodeDecodeError as error:
                    faults.add(_NOT_UTF8, f"{path}, line {number}", _no_utf8(line, error))
                else:
                    yield number, text + "\n"
    except OSError as error:
        raise unreadable(path, error) from None


def json_lines(path: Source, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON-lines file with their line numbers, from 1; blank lines are passed over.

    Raises:
        InputError: The file cannot be read.
    """
    for number, line in text_lines(path, faults):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            value = parsed(line.rstrip("\n").encode("utf-8", "surrogatepass"), "")
        except InputError as error:
            faults.add(_NOT_JSON, place, str(error).removeprefix(": "))
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            faults.add(
                _NOT_JSON, place, f"a {type(value).__name__}; every line must be a JSON object, {{...}}: correct it"
            )


def csv_rows(path: Source, faults: Faults, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, which may stand in quotation marks, with the number of the row's last line, from 1.

    Empty rows are passed over.

    Raises:
        InputError: The file cannot be read.
    """
    number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in text_lines(path, faults):  # noqa: B007
            yield line

    csv.field_size_limit(_LONGEST_CELL)
    rows = csv.reader(lines(), delimiter=delimiter, strict=True)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            reason = f"{error}; close the quotation mark, double those inside a cell, or export the file again"
            if "new-line character" in str(error):
                reason = "a carriage return that ends no line; end lines with LF or CRLF, or export the file again"
            faults.add(_NOT_CSV, f"{path}, line {number}", reason)
            continue
        if any(cell.strip() for cell in row):
            yield number, row


def tab_rows(path: Source, faults: Faults, least: int) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line, between tabs, with its number, from 1; blank lines are passed over.

    Args:
        path: The file.
        faults: Where lines with too few cells are counted.
        least: Cells that a line must have.

    Raises:
        InputError: The file cannot be read.
    """
    for number, line in text_lines(path, faults):
        cells = line.rstrip("\n").split("\t")
        if len(cells) >= least:
            yield number, cells
        elif line.strip():
            reason = f"{len(cells)} cells where {least} are expected, separated by tabs: correct the line"
            faults.add("lines with too few cells, left out", f"{path}, line {number}", reason)


def parsed(content: bytes, where: str) -> Any:
    """The value of a JSON text; `where` begins the message of the error."""
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start)
        place = f", line {line + 1}" if line else ""
        raise InputError(f"{where}{place}: {_no_utf8(content, error)}") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply to be read; flatten it") from None
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        place = f", line {line}" if line > 1 else ""
        raise InputError(
            f"{where}{place}: not valid JSON: {getattr(error, 'msg', error)} (character {getattr(error, 'colno', 1)} "
            "of the line); correct it or export the file again"
        ) from None


def _no_utf8(content: bytes, error: UnicodeDecodeError) -> str:
    column = error.start - content.rfind(b"\n", 0, error.start)
    return f"byte {content[error.start]:#04x} is not UTF-8 (byte {column} of the line); save the file as UTF-8"


def unreadable(path: Source, error: OSError) -> InputError:
    """The error of a file that cannot be opened or read."""
    reason = error.strerror or str(error)
    return InputError(f"cannot read {path}: {reason}; give the path of an existing file that you may read")
