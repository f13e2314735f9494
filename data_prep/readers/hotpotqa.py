"""HotpotQA (Yang et al. 2018), distractor layout: a list of objects with `question`, `context` and `supporting_facts`.

A context is a list of `[title, [sentence, ...]]`, and a supporting fact `[title, number of the sentence]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from corag_search.texts import shown
from data_prep.dataset import Document, Question
from data_prep.readers.faults import Faults
from data_prep.readers.json_stream import json_items
from data_prep.readers.reader import Asked, Passage, id_text

__all__ = ["HotpotQA"]


@dataclass(frozen=True)
class HotpotQA:
    """A file of HotpotQA; the corpus is the union of all paragraphs.

    A paragraph's sentences joined are a document, named after its title (and its text, since a title may have several);
    each supporting sentence is a gold passage. The kind is the data set's type, `bridge` or `comparison`.

    Attributes:
        path: The file.
    """

    path: Path
    name = "hotpotqa"
    repeats = True

    def documents(self, faults: Faults) -> Iterator[tuple[str, Document]]:
        """As `Reader.documents`."""
        for place, row in self._rows(faults):
            for document, _ in _paragraphs(row, place, faults):
                yield place, document

    def questions(self, faults: Faults) -> Iterator[Asked]:
        """As `Reader.questions`."""
        for place, row in self._rows(faults):
            question_id, text, answer = (
                id_text(row.get("_id", row.get("id"))),
                row.get("question"),
                row.get("answer", ""),
            )
            if not isinstance(question_id, str) or not isinstance(text, str) or not isinstance(answer, str):
                named = f"_id {shown(question_id)}, question {shown(text)} and answer {shown(answer)}"
                faults.add("questions that cannot be read, left out", place, f"{named} must be texts; correct the item")
                continue
            paragraphs = {document.title: (document, ends) for document, ends in _paragraphs(row, place, faults)}
            gold = []
            for fact in _listed(row.get("supporting_facts"), "title", "sent_id"):
                found = _sentence(fact, paragraphs)
                if found is None:
                    reason = f"supporting fact {shown(fact)} is not in the context; correct it"
                    faults.add("gold passages that are not there, left out", place, reason)
                elif found.start < (found.end or 0):
                    gold.append(found)
            if not gold:
                faults.count("questions without supporting facts, left out")
                continue
            question = Question(
                id=question_id,
                text=text.strip(),
                gold_passages=(),
                answers=(answer.strip(),) if answer.strip() else (),
                domain=self.name,
                kind=str(row.get("type") or ""),
                language="en",
            )
            context = tuple(document.id for document, _ in paragraphs.values())
            yield Asked(question, tuple(dict.fromkeys(gold)), place, context=context)

    def _rows(self, faults: Faults) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, row in enumerate(json_items(self.path, "")):
            place = f"{self.path}, item {number}"
            if isinstance(row, dict):
                yield place, row
            else:
                reason = f"{shown(row)} is no object; correct it or export the file again"
                faults.add("items that are no object, left out", place, reason)


def _paragraphs(row: dict[str, Any], place: str, faults: Faults) -> Iterator[tuple[Document, list[int]]]:
    """Each paragraph, and where its sentences end."""
    for pair in _listed(row.get("context"), "title", "sentences"):
        title, sentences = pair if len(pair) == 2 else (None, None)
        if (
            not isinstance(title, str)
            or not isinstance(sentences, list)
            or not all(isinstance(s, str) for s in sentences)
        ):
            reason = f"{shown(pair)} is no title with its sentences; correct it or export the file again"
            faults.add("paragraphs that cannot be read, left out", place, reason)
            continue
        text = "".join(sentences)
        if not text.strip():
            faults.add("paragraphs without text, left out", place, f"the paragraph {title!r} is empty; fill it")
            continue
        ends, length = [], 0
        for sentence in sentences:
            length += len(sentence)
            ends.append(length)
        digest = sha256(text.encode(errors="replace")).hexdigest()[:8]
        yield Document(f"{title}-{digest}", text, title, HotpotQA.name, "en"), ends


def _listed(value: Any, first: str, second: str) -> list[Any]:
    """Pairs, also where an export has turned a list of pairs into a pair of lists."""
    if isinstance(value, dict) and isinstance(value.get(first), list) and isinstance(value.get(second), list):
        return [list(pair) for pair in zip(value[first], value[second], strict=False)]
    return [pair if isinstance(pair, list) else [pair] for pair in value] if isinstance(value, list) else [[value]]


def _sentence(fact: list[Any], paragraphs: dict[str, tuple[Document, list[int]]]) -> Passage | None:
    if len(fact) != 2 or not isinstance(fact[0], str) or fact[0] not in paragraphs:
        return None
    document, ends = paragraphs[fact[0]]
    if type(fact[1]) is not int or not 0 <= fact[1] < len(ends):
        return None
    start = ends[fact[1] - 1] if fact[1] else 0
    spaces = len(document.text[start : ends[fact[1]]]) - len(document.text[start : ends[fact[1]]].lstrip())
    return Passage(document.id, start + spaces, ends[fact[1]])
