"""Readers of data sets: `read_dataset("FORMAT:PATH")`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from corag_search.errors import InputError
from data_prep.dataset import Dataset
from data_prep.readers.jsonl import read_jsonl
from data_prep.readers.squad import read_squad

__all__ = ["FORMATS", "Format", "read_dataset", "read_jsonl", "read_squad"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Format:
    """One way of laying out a data set.

    Attributes:
        usage: What the user writes, for help and errors.
        read: From the path to the data set; None when the format takes no path.
        shipped: The data set, of a format that takes no path.
    """

    usage: str
    read: Callable[[Path], Dataset] | None = None
    shipped: Callable[[], Dataset] | None = None


def _read_demo() -> Dataset:
    return read_jsonl(resources.files("data_prep.demo_corpus"), name="demo")


FORMATS: dict[str, Format] = {
    "squad": Format("squad:FILE.json (SQuAD 1.1 or 2.0 layout)", read=read_squad),
    "jsonl": Format("jsonl:FOLDER (documents.jsonl and questions.jsonl)", read=read_jsonl),
    "demo": Format("demo (the shipped corpus)", shipped=_read_demo),
}


def read_dataset(source: str) -> Dataset:
    """Reads a data set; what had to be skipped or repaired is logged as warnings and kept in its `notes`.

    >>> read_dataset("demo").document("history-silk-road").title
    'The Silk Road'

    Args:
        source: `FORMAT:PATH`; the formats are in `FORMATS`.

    Raises:
        InputError: An unknown format, a missing file, or content that is not of the format.
    """
    name, colon, path = source.partition(":")
    if name not in FORMATS:
        what = "names no format" if not colon or len(name) == 1 or "/" in name or "\\" in name else f"names {name!r}"
        raise InputError(f"data {source!r} {what}; write {' or '.join(f.usage for f in FORMATS.values())}")
    chosen = FORMATS[name]
    if chosen.read is None:
        if path:
            raise InputError(f"data {source!r}: format {name!r} takes no path, got {path!r}; write {name!r} alone")
        assert chosen.shipped is not None
        dataset = chosen.shipped()
    elif not path.strip():
        raise InputError(f"data {source!r} has no path; write {chosen.usage}")
    else:
        dataset = chosen.read(Path(path).expanduser())
    for note in dataset.notes:
        _log.warning("%s: %s", source, note)
    return dataset
