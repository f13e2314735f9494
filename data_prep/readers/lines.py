"""JSON from files, with errors that name the file and the line."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from corag_search.errors import InputError

Source = Path | Traversable


def read_bytes(path: Source) -> bytes:
    """A file's content without its byte-order mark.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise _unreadable(path, error) from None


def json_lines(path: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON-lines file with their line numbers, from 1; blank lines are skipped.

    Raises:
        InputError: The file cannot be read, or a line is not UTF-8, not JSON or not an object.
    """
    try:
        with path.open("rb") as file:
            # By line feed alone: JSON strings may contain the other characters that str.splitlines would cut at.
            for number, line in enumerate(file, start=1):
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if line.strip():
                    yield number, _parsed_object(line, f"{path}, line {number}")
    except OSError as error:
        raise _unreadable(path, error) from None


def parsed(content: bytes, where: str) -> Any:
    """The value of a JSON text; `where` begins the message of the error."""
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start)
        place = f", line {line + 1}" if line else ""
        raise InputError(
            f"{where}{place}: byte {content[error.start]:#04x} is not UTF-8 "
            f"(byte {error.start - content.rfind(bytes([10]), 0, error.start)} of the line); save the file as UTF-8"
        ) from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply to be read; flatten it") from None
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        place = f", line {line}" if line > 1 else ""
        raise InputError(
            f"{where}{place}: not valid JSON: {getattr(error, 'msg', error)} (character {getattr(error, 'colno', 1)} "
            "of the line); correct it or export the file again"
        ) from None


def _parsed_object(line: bytes, where: str) -> dict[str, Any]:
    value = parsed(line.rstrip(b"\r\n"), where)
    if not isinstance(value, dict):
        raise InputError(f"{where}: a {type(value).__name__}; every line must be a JSON object, {{...}}")
    return value


def _unreadable(path: Source, error: OSError) -> InputError:
    reason = error.strerror or str(error)
    return InputError(f"cannot read {path}: {reason}; give the path of an existing file that you may read")
