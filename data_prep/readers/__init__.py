"""Readers of data sets: `read_dataset("FORMAT:PATH")`. The formats are described in docs/data-formats.md."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from corag_search.errors import InputError
from data_prep.dataset import Dataset, Document
from data_prep.readers.beir import Beir
from data_prep.readers.faults import Faults
from data_prep.readers.gather import gather, nothing, sound_documents
from data_prep.readers.hotpotqa import HotpotQA
from data_prep.readers.lines import unreadable
from data_prep.readers.msmarco import MsMarcoQA, MsMarcoRanking
from data_prep.readers.reader import Reader
from data_prep.readers.rows import FolderOfRows, Table
from data_prep.readers.squad import Squad
from data_prep.readers.text_files import FolderOfFiles
from data_prep.readers.wikipassageqa import WikiPassageQA

__all__ = ["FORMATS", "Format", "ReaderOptions", "iterate_documents", "open_reader", "read_dataset"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReaderOptions:
    """How a data set is read.

    Attributes:
        strict: Refuse the first fault, instead of leaving out what is faulty and counting it.
        columns: What the files of `jsonl` and `csv` call a column, by the name that it has here: `question: Frage`.
        sample: Keep a sample of this many questions and the documents that belong to them, for files larger than the
            memory; null keeps everything.
    """

    strict: bool = False
    columns: dict[str, str] = field(default_factory=dict)
    sample: int | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """One way of laying out a data set.

    Attributes:
        usage: What the user writes, for help and errors.
        reader: From path and columns to the reader.
        takes_path: Whether there is a path.
        takes_columns: Whether columns can have other names.
    """

    usage: str
    reader: Callable[[Path, Mapping[str, str]], Reader]
    takes_path: bool = True
    takes_columns: bool = False


def _rows(endings: tuple[str, ...]) -> Callable[[Path, Mapping[str, str]], Reader]:
    return lambda path, columns: Table(path, columns) if path.is_file() else FolderOfRows(path, endings, columns)


def _demo(_: Path, columns: Mapping[str, str]) -> Reader:
    return FolderOfRows(resources.files("data_prep.demo_corpus"), called="demo")


FORMATS: dict[str, Format] = {
    "squad": Format("squad:FILE.json (SQuAD 1.1 or 2.0 layout)", lambda path, _: Squad(path)),
    "wikipassageqa": Format("wikipassageqa:FOLDER (or one .tsv in it)", lambda path, _: WikiPassageQA(path)),
    "msmarco": Format("msmarco:FILE.json (MS MARCO QA v2.1, or .jsonl)", lambda path, _: MsMarcoQA(path)),
    "msmarco-ranking": Format(
        "msmarco-ranking:FOLDER (collection.tsv, queries.*.tsv, qrels.*.tsv)", lambda path, _: MsMarcoRanking(path)
    ),
    "hotpotqa": Format("hotpotqa:FILE.json (distractor layout)", lambda path, _: HotpotQA(path)),
    "beir": Format("beir:FOLDER (corpus.jsonl, queries.jsonl, qrels/*.tsv)", lambda path, _: Beir(path)),
    "jsonl": Format(
        "jsonl:FOLDER (documents.jsonl and questions.jsonl, or one .jsonl)", _rows((".jsonl",)), takes_columns=True
    ),
    "csv": Format(
        "csv:FOLDER (documents.csv and questions.csv, or one .csv)", _rows((".csv", ".tsv")), takes_columns=True
    ),
    "files": Format("files:FOLDER (.txt, .md, .html, .pdf, and questions.jsonl)", lambda path, _: FolderOfFiles(path)),
    "demo": Format("demo (the shipped corpus)", _demo, takes_path=False),
}


def read_dataset(source: str, options: ReaderOptions | None = None, *, seed: int = 0) -> Dataset:
    """Reads a data set; what had to be left out or repaired is logged as warnings and kept in its `notes`.

    >>> read_dataset("demo").document("history-silk-road").title
    'The Silk Road'

    Args:
        source: `FORMAT:PATH`; the formats are in `FORMATS`.
        options: How it is read.
        seed: Of the sample.

    Raises:
        InputError: An unknown format, a missing file, or content that is not of the format.
    """
    options = options or ReaderOptions()
    dataset = gather(open_reader(source, options), strict=options.strict, sample=options.sample, seed=seed)
    for note in dataset.notes:
        _log.warning("%s: %s", source, note)
    return dataset


def iterate_documents(source: str, options: ReaderOptions | None = None) -> Iterator[Document]:
    """The documents one at a time, for a corpus larger than the memory; what was left out is logged at the end.

    Raises:
        InputError: As `read_dataset`.
    """
    options = options or ReaderOptions()
    reader, faults = open_reader(source, options), Faults(options.strict)
    empty = True
    for document in sound_documents(reader, faults):
        empty = False
        yield document
    if empty:
        raise InputError(nothing(reader, "documents", faults))
    for note in faults.notes():
        _log.warning("%s: %s", source, note)


def open_reader(source: str, options: ReaderOptions | None = None) -> Reader:
    """The reader of `FORMAT:PATH`; nothing is read yet.

    Raises:
        InputError: An unknown format, or options that it does not have.
    """
    options = options or ReaderOptions()
    name, colon, path = source.partition(":")
    if name not in FORMATS:
        what = "names no format" if not colon or len(name) == 1 or "/" in name or "\\" in name else f"names {name!r}"
        raise InputError(f"data {source!r} {what}; write {' or '.join(f.usage for f in FORMATS.values())}")
    chosen = FORMATS[name]
    if path and not chosen.takes_path:
        raise InputError(f"data {source!r}: format {name!r} takes no path, got {path!r}; write {name!r} alone")
    if chosen.takes_path and not path.strip():
        raise InputError(f"data {source!r} has no path; write {chosen.usage}")
    if options.columns and not chosen.takes_columns:
        named = " and ".join(repr(n) for n, f in FORMATS.items() if f.takes_columns)
        raise InputError(f"data {source!r}: format {name!r} has no named columns; leave them out, or use {named}")
    return chosen.reader(_path(path), options.columns)


def _path(written: str) -> Path:
    """The path that was written, refused where no reader could ask the system about it (InputError)."""
    try:
        path = Path(written).expanduser()
        path.stat()
    except FileNotFoundError:
        pass  # each reader says what is missing
    except OSError as error:
        raise unreadable(path, error) from None
    except (RuntimeError, ValueError) as error:  # no such user, or a character that no path has
        raise InputError(f"data path {written!r} cannot be used: {error}; give the path of a file or folder") from None
    return path
