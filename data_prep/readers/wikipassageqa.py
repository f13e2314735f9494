"""WikiPassageQA (Cohen et al. 2018): `document_passages.json`, and `train.tsv`, `dev.tsv`, `test.tsv` beside it.

The JSON is an object of objects, `{DocumentID: {PassageID: text}}`; a row names the passages of one document that
answer the question: QID, Question, DocumentID, DocumentName, RelevantPassages (`12,13`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corag_search.errors import InputError
from corag_search.texts import shown
from data_prep.dataset import Document, Question
from data_prep.readers.faults import Faults
from data_prep.readers.json_stream import json_pairs
from data_prep.readers.lines import tab_rows
from data_prep.readers.reader import Asked, Passage

__all__ = ["WikiPassageQA"]

PASSAGES = "document_passages.json"
SPLITS = ("train", "dev", "test")
_COLUMNS = ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages")


@dataclass(frozen=True)
class WikiPassageQA:
    """The folder, or one of its question files for the questions of that split alone.

    A document's passages, joined by blank lines, are its text; each relevant passage is a gold passage. There are no
    human answers.

    Attributes:
        path: The folder or a `.tsv` file.
    """

    path: Path
    name = "wikipassageqa"
    repeats = False

    @property
    def _folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def documents(self, faults: Faults) -> Iterator[tuple[str, Document]]:
        """As `Reader.documents`."""
        for place, document_id, passages in self._passages(faults):
            yield place, Document(document_id, "\n\n".join(passages.values()), domain=self.name, language="en")

    def questions(self, faults: Faults) -> Iterator[Asked]:
        """As `Reader.questions`."""
        places = {document_id: _places(passages) for _, document_id, passages in self._passages(faults)}
        files = [self.path] if self.path.suffix == ".tsv" else [self._folder / f"{split}.tsv" for split in SPLITS]
        if not any(file.is_file() for file in files):
            raise InputError(
                f"{self._folder} has no {' or '.join(file.name for file in files)}; give the folder of both"
            )
        for file in filter(Path.is_file, files):
            for number, cells in tab_rows(file, faults, len(_COLUMNS)):
                if tuple(cell.strip() for cell in cells[: len(_COLUMNS)]) != _COLUMNS:
                    yield from self._question(cells, f"{file}, line {number}", file.stem, places, faults)

    def _passages(self, faults: Faults) -> Iterator[tuple[str, str, dict[str, str]]]:
        path = self._folder / PASSAGES
        for document_id, passages in json_pairs(path, ""):
            place = f"{path}, document {document_id!r}"
            if isinstance(passages, dict) and all(isinstance(text, str) for text in passages.values()):
                kept = {passage: text for passage, text in passages.items() if text.strip()}
                for passage in passages.keys() - kept.keys():
                    faults.add("passages without text, left out", place, f"passage {passage!r} is empty; fill it")
                yield place, document_id, kept
            else:
                reason = f"{shown(passages)} is no object of texts by passage; correct it or export the file again"
                faults.add("documents that cannot be read, left out", place, reason)

    def _question(
        self,
        cells: list[str],
        place: str,
        split: str,
        places: dict[str, dict[str, tuple[int, int]]],
        faults: Faults,
    ) -> Iterator[Asked]:
        question_id, text, document_id, _, relevant = (cell.strip() for cell in cells[: len(_COLUMNS)])
        of_document = places.get(document_id, {})
        named = re.findall(r"[^\s,;\[\]\"']+", relevant)
        missing = [passage for passage in named if passage not in of_document]
        if missing:
            reason = f"passage {missing[0]!r} of document {document_id!r} is not in {PASSAGES}; correct one of them"
            faults.add("gold passages that are not there, left out", place, reason)
        gold = tuple(Passage(document_id, *of_document[passage]) for passage in named if passage in of_document)
        if not gold:
            faults.count("questions without gold passages, left out")
            return
        question = Question(question_id, text, (), domain=self.name, language="en")
        yield Asked(question, gold, place, split=split)


def _places(passages: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Where each passage starts and ends in the document's text."""
    places, start = {}, 0
    for passage, text in passages.items():
        places[passage] = (start, start + len(text))
        start += len(text) + len("\n\n")
    return places
