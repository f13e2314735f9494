"""BEIR folders (Thakur et al. 2021): `corpus.jsonl`, `queries.jsonl`, `qrels/*.tsv`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corag_search.errors import InputError
from corag_search.texts import shown
from data_prep.dataset import Document, Question
from data_prep.readers.faults import Faults
from data_prep.readers.lines import json_lines, tab_rows
from data_prep.readers.reader import Asked, Passage, id_text
from data_prep.scripts import guess_language

__all__ = ["Beir"]


@dataclass(frozen=True)
class Beir:
    """A folder in BEIR layout.

    The title is no part of the text. The gold passages of a query are its whole documents of a score above 0; queries
    that have none are left out. There are no human answers, and the folder's name is the domain.

    Attributes:
        path: The folder, or one of its qrels files for the queries of that split alone.
    """

    path: Path
    repeats = False

    @property
    def name(self) -> str:
        return self._folder.resolve().name

    @property
    def _folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent.parent

    def documents(self, faults: Faults) -> Iterator[tuple[str, Document]]:
        """As `Reader.documents`."""
        path = self._folder / "corpus.jsonl"
        for number, row in json_lines(path, faults):
            place = f"{path}, line {number}"
            document_id, text, title = id_text(row.get("_id")), row.get("text"), row.get("title") or ""
            if isinstance(document_id, str) and isinstance(text, str) and isinstance(title, str):
                yield place, Document(document_id, text, title, self.name, guess_language(text))
            else:
                reason = (
                    f"_id {shown(document_id)}, text {shown(text)} and title {shown(title)} must be texts; correct them"
                )
                faults.add("documents that cannot be read, left out", place, reason)

    def questions(self, faults: Faults) -> Iterator[Asked]:
        """As `Reader.questions`."""
        split_of, gold = self._relevant(faults)
        path = self._folder / "queries.jsonl"
        for number, row in json_lines(path, faults):
            place = f"{path}, line {number}"
            query, text = id_text(row.get("_id")), row.get("text")
            if not isinstance(query, str) or not isinstance(text, str):
                reason = f"_id {shown(query)} and text {shown(text)} must be texts; correct them"
                faults.add("questions that cannot be read, left out", place, reason)
            elif query not in gold:
                # Of another split, where one qrels file was named.
                if self.path.is_dir():
                    faults.count("questions without a relevant document, left out")
            else:
                passages = tuple(Passage(document) for document in dict.fromkeys(gold[query]))
                question = Question(query, text.strip(), (), domain=self.name, language=guess_language(text))
                yield Asked(question, passages, place, split=split_of[query])

    def _relevant(self, faults: Faults) -> tuple[dict[str, str], dict[str, list[str]]]:
        """The split of each query, and its documents of a score above 0."""
        split_of: dict[str, str] = {}
        gold: dict[str, list[str]] = defaultdict(list)
        files = sorted((self._folder / "qrels").glob("*.tsv")) if self.path.is_dir() else [self.path]
        if not files:
            raise InputError(f"{self.path} has no qrels/*.tsv; give a folder in BEIR layout")
        for file in files:
            for number, (query, document, score, *_) in tab_rows(file, faults, 3):
                try:
                    relevant = float(score) > 0
                except ValueError:
                    if number > 1:  # the names of the columns
                        reason = f"the score {score!r} is no number; correct it"
                        faults.add("relevance lines that cannot be read, left out", f"{file}, line {number}", reason)
                    continue
                if relevant:
                    split_of.setdefault(query, file.stem)
                    gold[query].append(document)
        return split_of, gold
