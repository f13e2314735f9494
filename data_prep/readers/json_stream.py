"""The members of one large JSON value, one at a time."""

from __future__ import annotations

import codecs
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from corag_search.errors import InputError
from data_prep.readers.lines import parsed, read_bytes, unreadable

__all__ = ["json_items", "json_pairs", "top_level"]

WHOLE = 1 << 24  # bytes; smaller files are parsed at once, faster and with errors that name the line


def json_items(path: Path, key: str) -> Iterator[Any]:
    """The items of a list.

    Args:
        path: The file; one above 16 MiB is streamed and needs the package `ijson`.
        key: Of the list in the object at the top; empty when the list is at the top itself.

    Raises:
        InputError: The file cannot be read, is not JSON, or has no such list.
    """
    if _is_small(path):
        yield from _member(path, key, list)
    else:
        yield from _streamed(path, "items", f"{key}.item" if key else "item")


def json_pairs(path: Path, key: str) -> Generator[tuple[str, Any], None, None]:
    """The names and values of an object; otherwise as `json_items`."""
    if _is_small(path):
        yield from _member(path, key, dict).items()
    else:
        yield from _streamed(path, "kvitems", key)


def top_level(path: Path) -> str:
    """The first character of the file that is no white space: `{` or `[` where it is JSON.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(4096).removeprefix(codecs.BOM_UTF8).lstrip()[:1].decode("latin-1")
    except OSError as error:
        raise unreadable(path, error) from None


def _is_small(path: Path) -> bool:
    try:
        return path.stat().st_size <= WHOLE
    except OSError as error:
        raise unreadable(path, error) from None


def _member(path: Path, key: str, kind: type) -> Any:
    value = parsed(read_bytes(path), str(path))
    name = "a list" if kind is list else "an object"
    if key:
        if not isinstance(value, dict) or key not in value:
            raise InputError(f"{path}: no {key!r}; {name} is expected there: correct it, or name another format")
        value = value[key]
    if not isinstance(value, kind):
        what = f"{key!r} is {type(value).__name__}" if key else f"the file is a {type(value).__name__}"
        raise InputError(f"{path}: {what}; {name} is expected there: correct it, or name another format")
    return value


def _streamed(path: Path, function: str, prefix: str) -> Iterator[Any]:
    try:
        import ijson
    except ImportError:
        raise InputError(
            f"{path} is larger than {WHOLE >> 20} MiB and has to be streamed, which needs the package ijson; install "
            "it with: pip install 'corag[train]'"
        ) from None
    found = False
    try:
        with path.open("rb") as file:
            if file.read(3) != codecs.BOM_UTF8:
                file.seek(0)
            try:
                for item in getattr(ijson, function)(file, prefix, use_float=True):
                    found = True
                    yield item
            except (ijson.JSONError, UnicodeDecodeError, ValueError) as error:
                reason = " ".join(str(error).splitlines()[:1]).rstrip(".")
                raise InputError(
                    f"{path}, before byte {file.tell():,}: not valid JSON: {reason}; correct it or export the file "
                    "again"
                ) from None
    except OSError as error:
        raise unreadable(path, error) from None
    if not found:
        name = prefix.removesuffix("item").rstrip(".") or "top level"
        raise InputError(f"{path}: nothing at {name!r}; correct it, or name another format")
