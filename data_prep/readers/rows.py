"""Documents and questions in rows with named columns: JSON lines or CSV, two files in a folder or one table.

A folder has `documents` and `questions` (`.jsonl`, `.csv` or `.tsv`). A document has `id` and `text`, and may have
`title`, `domain` and `language`. A question has `id` and `question`, and may have `gold_passages`, `answers`, `domain`,
`kind` and `language`; a gold passage is `{"document", "text"}`, the text standing exactly once in the document, or
`{"document", "start", "end"}` in characters. In CSV a cell with several values holds JSON; `answer`, `document` and
`passage` are for single ones. In one table each row has a question and the `text` that answers it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from corag_search.errors import InputError
from corag_search.texts import shown
from data_prep.dataset import Document, Question
from data_prep.readers.faults import Faults
from data_prep.readers.lines import Source, csv_rows, json_lines
from data_prep.readers.reader import Asked, Passage, id_text

__all__ = ["FolderOfRows", "Table"]

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_BAD_DOCUMENT = "documents that cannot be read, left out"
_BAD_QUESTION = "questions that cannot be read, left out"


@dataclass(frozen=True)
class FolderOfRows:
    """A folder with a file of documents and one of questions.

    Attributes:
        path: The folder where both are.
        endings: Of the files, in the order in which they are looked for.
        columns: What the file calls a column, by the name that it has here.
        called: Name of the data set; the folder's when empty.
    """

    path: Source
    endings: tuple[str, ...] = (".jsonl",)
    columns: Mapping[str, str] = field(default_factory=dict)
    called: str = ""
    repeats = False

    @property
    def name(self) -> str:
        return self.called or (self.path.resolve().name if isinstance(self.path, Path) else self.path.name)

    def documents(self, faults: Faults) -> Iterator[tuple[str, Document]]:
        """As `Reader.documents`."""
        path = self._file("documents")
        empty = True
        for number, row in _rows(path, faults, self.columns):
            empty = False
            place = f"{path}, line {number}"
            try:
                yield place, _document(row, _id(row, "id"))
            except InputError as error:
                faults.add(_BAD_DOCUMENT, place, str(error))
        if empty and not faults.first:
            raise InputError(f"{path} has no documents; write at least one, {_each(path)}")

    def questions(self, faults: Faults) -> Iterator[Asked]:
        """As `Reader.questions`."""
        path = self._file("questions")
        for number, row in _rows(path, faults, self.columns):
            place = f"{path}, line {number}"
            try:
                yield Asked(_question(row, _id(row, "id")), _gold(row), place)
            except InputError as error:
                faults.add(_BAD_QUESTION, place, str(error))

    def _file(self, stem: str) -> Source:
        if not self.path.is_dir():
            raise InputError(
                f"{self.path} is not a folder; the format takes the folder that contains "
                f"documents{self.endings[0]} and questions{self.endings[0]}"
            )
        paths = [self.path / f"{stem}{ending}" for ending in self.endings]
        found = next((path for path in paths if path.is_file()), None)
        if found is None:
            raise InputError(
                f"{self.path} has no {paths[0].name}; write one, or name another format, such as files:FOLDER for "
                "text, Markdown, HTML and PDF"
            )
        return found


@dataclass(frozen=True)
class Table:
    """One file, each row of which has a question and the text that answers it; the texts are the corpus.

    Attributes:
        path: The file.
        columns: As those of `FolderOfRows`.
    """

    path: Path
    columns: Mapping[str, str] = field(default_factory=dict)
    repeats = True

    @cached_property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    def documents(self, faults: Faults) -> Iterator[tuple[str, Document]]:
        """As `Reader.documents`."""
        for number, row in _rows(self.path, faults, self.columns):
            place = f"{self.path}, line {number}"
            try:
                yield place, _document(row, _document_of(row))
            except InputError as error:
                faults.add(_BAD_DOCUMENT, place, str(error))

    def questions(self, faults: Faults) -> Iterator[Asked]:
        """As `Reader.questions`."""
        for number, row in _rows(self.path, faults, self.columns):
            place = f"{self.path}, line {number}"
            try:
                question = _question(row, _id(row, "id", f"{self.name}-{number}"))
                gold = _gold({**row, "document": _document_of(row)}) or (Passage(_document_of(row)),)
                yield Asked(question, gold, place)
            except InputError as error:
                faults.add(_BAD_QUESTION, place, str(error))


def _rows(path: Source, faults: Faults, columns: Mapping[str, str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows under the names that columns have here; where a row has a name of its own too, the one given counts."""
    renamed = {theirs: ours for ours, theirs in columns.items()}
    rows = json_lines(path, faults) if path.name.endswith(".jsonl") else _csv_objects(path, faults)
    if not renamed:
        yield from rows
        return
    for number, row in rows:
        own = {name: value for name, value in row.items() if name not in renamed}
        yield number, own | {renamed[name]: value for name, value in row.items() if name in renamed}


def _csv_objects(path: Source, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = csv_rows(path, faults, _DELIMITERS.get(Path(path.name).suffix, ","))
    _, names = next(rows, (0, []))
    names = [name.strip() for name in names]
    if len(set(names)) < len(names):
        raise InputError(f"{path}, line 1: columns {', '.join(names)}; each must have its own name: rename one")
    for number, cells in rows:
        if len(cells) > len(names):
            reason = f"{len(cells)} cells under {len(names)} columns; put cells with commas in quotation marks"
            faults.add("rows with more cells than columns, left out", f"{path}, line {number}", reason)
            continue
        row: dict[str, Any] = {name: cell for name, cell in zip(names, cells, strict=False) if cell.strip()}
        for name in ("answers", "gold_passages"):
            if row.get(name, "").lstrip().startswith("["):
                try:
                    row[name] = json.loads(row[name])
                except (ValueError, RecursionError):
                    continue  # refused with the row, as no list
            elif name == "answers" and name in row:
                row[name] = [row[name]]
        yield number, row


def _document(row: Mapping[str, Any], document_id: str) -> Document:
    labels = {key: _string(row, key, "") for key in ("title", "domain", "language")}
    return Document(id=document_id, text=_string(row, "text"), **labels)


def _document_of(row: Mapping[str, Any]) -> str:
    """The id of a table's text: its own, or one made from the text."""
    return _id(row, "document", "") or hashlib.sha256(_string(row, "text").encode(errors="replace")).hexdigest()[:16]


def _question(row: Mapping[str, Any], question_id: str) -> Question:
    answers = [*_list(row, "answers"), *([] if row.get("answer") is None else [row["answer"]])]
    return Question(
        id=question_id,
        text=_string(row, "question"),
        gold_passages=(),
        answers=tuple(dict.fromkeys(map(_answer, answers))),
        **{key: _string(row, key, "") for key in ("domain", "kind", "language")},
    )


def _gold(row: Mapping[str, Any]) -> tuple[Passage, ...]:
    gold = [_passage(one) for one in _list(row, "gold_passages")]
    if row.get("passage") is not None:
        gold.append(Passage(_id(row, "document"), text=_string(row, "passage")))
    return tuple(gold)


def _passage(gold: Any) -> Passage:
    if not isinstance(gold, dict):
        raise InputError(f"gold passage {shown(gold)} is no object; write {_GOLD_FORMS}")
    document = _id(gold, "document")
    if "text" in gold:
        text = _string(gold, "text")
        return Passage(document, text=text) if text else Passage(document, 0, 0)  # refused with the question
    start, end = gold.get("start"), gold.get("end")
    if type(start) is not int or type(end) is not int:
        raise InputError(f"gold passage has start {shown(start)} and end {shown(end)}; write {_GOLD_FORMS}")
    return Passage(document, start, end)


_GOLD_FORMS = '{"document": ID, "text": TEXT} or {"document": ID, "start": N, "end": N}'


def _id(row: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """An id, or a reference to one."""
    return _text(row, key, id_text(row.get(key)), default, "a string or a whole number")


def _string(row: Mapping[str, Any], key: str, default: str | None = None) -> str:
    return _text(row, key, row.get(key), default, "a string")


def _text(row: Mapping[str, Any], key: str, value: object, default: str | None, wanted: str) -> str:
    if value is None and default is not None:
        return default  # null stands for an optional value left out
    if not isinstance(value, str):
        got = f"got {shown(value)}" if key in row else f"the keys are {', '.join(map(repr, row)) or 'none'}"
        raise InputError(f"{key!r} must be {wanted}, {got}; add it or put it in quotation marks")
    return value


def _list(row: Mapping[str, Any], key: str) -> list[Any]:
    value = row.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError(f"{key!r} must be a list, got {shown(value)}; put it in square brackets")
    return value


def _answer(answer: Any) -> str:
    if not isinstance(answer, str) or not answer.strip():
        raise InputError(f"an answer must be a string with text, got {shown(answer)}; correct it or remove it")
    return answer


def _each(path: Source) -> str:
    return "one JSON object a line" if path.name.endswith(".jsonl") else "one row each below the names of the columns"
