"""MS MARCO: question answering v2.1 (one JSON object by column, or JSON lines), and the passage ranking files."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag_search.errors import InputError
from corag_search.texts import shown
from data_prep.dataset import Document, Question
from data_prep.readers.faults import Faults
from data_prep.readers.json_stream import json_items, json_pairs, top_level
from data_prep.readers.lines import json_lines, tab_rows
from data_prep.readers.reader import Asked, Passage

__all__ = ["MsMarcoQA", "MsMarcoRanking"]

NO_ANSWER = "No Answer Present."
_COLUMNS = ("passages", "query", "query_id", "query_type", "answers", "wellFormedAnswers")


@dataclass(frozen=True)
class MsMarcoQA:
    """A file of MS MARCO QA v2.1.

    The official file is `{column: {row: value}}`, columns after one another: each is read by its own pass through the
    file, all in step, so that a row is whole without the file being in memory. A converted one has an object a line,
    or a list of objects.

    The corpus is the union of all passages; a passage's id is made from its text. A question's gold are its selected
    passages; without one, or answered by `No Answer Present.`, it is left out. Well-formed answers stand before the
    others.

    Attributes:
        path: The file.
    """

    path: Path
    name = "msmarco"
    repeats = True

    def documents(self, faults: Faults) -> Iterator[tuple[str, Document]]:
        """As `Reader.documents`."""
        for place, row in self._rows(("passages",), faults):
            for _, document in _passages(row, place, faults):
                yield place, document

    def questions(self, faults: Faults) -> Iterator[Asked]:
        """As `Reader.questions`."""
        for place, row in self._rows(_COLUMNS, faults):
            passages = _passages(row, place, faults)
            gold = tuple(dict.fromkeys(Passage(document.id) for selected, document in passages if selected))
            try:
                well_formed, plain = _answers(row, "wellFormedAnswers"), _answers(row, "answers")
                question = Question(
                    id=str(_scalar(row, "query_id")),
                    text=_scalar(row, "query").strip(),
                    gold_passages=(),
                    answers=tuple(dict.fromkeys(well_formed + plain)),
                    domain=self.name,
                    kind=str(row.get("query_type") or "").lower(),
                    language="en",
                )
            except InputError as error:
                faults.add("questions that cannot be read, left out", place, str(error))
                continue
            if not gold or not question.answers:
                faults.count("questions without an answer or a selected passage, left out")
                continue
            yield Asked(question, gold, place, context=tuple(document.id for _, document in passages))

    def _rows(self, columns: tuple[str, ...], faults: Faults) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if self.path.suffix == ".jsonl" or not (first := top_level(self.path)):
            yield from ((f"{self.path}, line {number}", row) for number, row in json_lines(self.path, faults))
        elif first == "[":
            for number, item in enumerate(json_items(self.path, "")):
                if isinstance(item, dict):
                    yield f"{self.path}, item {number}", item
                else:
                    reason = f"{shown(item)} is no object; correct it or export the file again"
                    faults.add("rows that are no object, left out", f"{self.path}, item {number}", reason)
        else:
            yield from self._zipped(columns)

    def _zipped(self, columns: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        with ExitStack() as stack:
            members = [stack.enter_context(closing(json_pairs(self.path, column))) for column in columns]
            while True:
                row = [next(member, None) for member in members]
                if row.count(None) == len(row):
                    return
                names = [None if cell is None else cell[0] for cell in row]
                if len(set(names)) > 1:
                    raise InputError(
                        f"{self.path}: row {names[0]!r} of {columns[0]!r} stands beside row "
                        f"{next(n for n in names if n != names[0])!r} of another column; all columns must have the "
                        "same rows in the same order: export the file again"
                    )
                values = {column: cell[1] for column, cell in zip(columns, row, strict=True) if cell is not None}
                yield f"{self.path}, row {names[0]!r}", values


def _passages(row: Mapping[str, Any], place: str, faults: Faults) -> list[tuple[bool, Document]]:
    """Whether each passage was selected, and the passage."""
    passages = row.get("passages")
    if isinstance(passages, dict) and isinstance(passages.get("passage_text"), list):  # columns again, as some exports
        selected = passages.get("is_selected")
        flags = selected if isinstance(selected, list) else []
        texts = passages["passage_text"]
        passages = [
            {"passage_text": text, "is_selected": flag}
            for text, flag in zip(texts, flags + [0] * len(texts), strict=False)
        ]
    found = []
    for passage in passages if isinstance(passages, list) else [passages]:
        passage = passage if isinstance(passage, dict) else {}
        text = passage.get("passage_text")
        if not isinstance(text, str):
            reason = f"passage {shown(passage)} has no 'passage_text'; correct it or export the file again"
            faults.add("passages that cannot be read, left out", place, reason)
        elif not text.strip():
            faults.add("passages without text, left out", place, "a passage has an empty text; fill it")
        else:
            document_id = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
            document = Document(document_id, text, domain=MsMarcoQA.name, language="en")
            found.append((passage.get("is_selected") in (1, True, "1"), document))
    return found


def _answers(row: Mapping[str, Any], column: str) -> tuple[str, ...]:
    answers = row.get(column)
    if answers in (None, "[]", ""):  # how the file spells that there is none
        return ()
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise InputError(f"{column!r} is {shown(answers)}; a list of texts is expected: correct it")
    return tuple(answer.strip() for answer in answers if answer.strip() not in ("", NO_ANSWER))


def _scalar(row: Mapping[str, Any], column: str) -> Any:
    kinds = (str, int) if column == "query_id" else (str,)
    value = row.get(column)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise InputError(f"{column!r} is {shown(value)}; a text is expected: correct it")
    return value


@dataclass(frozen=True)
class MsMarcoRanking:
    """A folder with `collection.tsv`, `queries.*.tsv` and `qrels.*.tsv`.

    `collection.tsv` has a passage a line (id, text), `queries.*.tsv` a query (id, text), and `qrels.*.tsv` the
    relevant pairs (query, 0, passage, relevance). The gold passages are those of relevance above 0; queries that have
    none are left out. There are no human answers.

    Attributes:
        path: The folder, or one queries file for the queries of that file alone.
    """

    path: Path
    name = "msmarco-ranking"
    repeats = False

    @property
    def _folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def documents(self, faults: Faults) -> Iterator[tuple[str, Document]]:
        """As `Reader.documents`."""
        path = self._folder / "collection.tsv"
        for number, (passage, *texts) in tab_rows(path, faults, 2):
            text = " ".join(texts).strip()
            yield f"{path}, line {number}", Document(passage.strip(), text, domain=self.name, language="en")

    def questions(self, faults: Faults) -> Iterator[Asked]:
        """As `Reader.questions`."""
        for split, queries, qrels in self._split_files():
            relevant: dict[str, list[str]] = defaultdict(list)
            for number, cells in tab_rows(qrels, faults, 1):
                cells = "\t".join(cells).split()  # some are separated by spaces
                if len(cells) != 4:
                    reason = f"{len(cells)} cells; query, 0, passage and relevance are expected: correct the line"
                    faults.add("relevance lines that cannot be read, left out", f"{qrels}, line {number}", reason)
                    continue
                try:
                    if float(cells[3]) > 0:
                        relevant[cells[0]].append(cells[2])
                except ValueError:
                    reason = f"the relevance {shown(cells[3])} is no number; correct it"
                    faults.add("relevance lines that cannot be read, left out", f"{qrels}, line {number}", reason)
            for number, (query, *texts) in tab_rows(queries, faults, 2):
                gold = tuple(Passage(passage) for passage in relevant.get(query.strip(), ()))
                if gold:
                    question = Question(query.strip(), " ".join(texts).strip(), (), domain=self.name, language="en")
                    yield Asked(question, gold, f"{queries}, line {number}", split=split)
                else:
                    faults.count("questions without a relevant passage, left out")

    def _split_files(self) -> Iterator[tuple[str, Path, Path]]:
        """Each split with its files: `queries.dev.small.tsv` belongs to `qrels.dev.small.tsv`."""
        found = False
        for queries in sorted(self.path.glob("queries.*.tsv")) if self.path.is_dir() else [self.path]:
            split = queries.name.removeprefix("queries.").removesuffix(".tsv")
            qrels = self._folder / f"qrels.{split}.tsv"
            if queries.is_file() and qrels.is_file():
                found = True
                yield split, queries, qrels
        if not found:
            raise InputError(
                f"{self.path} has no queries.*.tsv with its qrels.*.tsv (the same word for the star); give a folder of "
                "both"
            )
