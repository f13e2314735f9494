"""What a reader gives: documents and questions one at a time, in any number of passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from corag_search.errors import InputError
from corag_search.texts import shown
from data_prep.dataset import Document, GoldPassage, Question
from data_prep.readers.faults import Faults
from data_prep.readers.lines import Source

__all__ = ["Asked", "Passage", "Reader", "id_text"]


@dataclass(frozen=True, slots=True)
class Passage:
    """A gold passage before its document is at hand.

    Attributes:
        document: Id of the document.
        start: First character.
        end: One past the last; None for the document's end.
        text: The passage, to be looked up; start and end do not count then.
    """

    document: str
    start: int = 0
    end: int | None = None
    text: str | None = None

    def within(self, document: Document) -> GoldPassage:
        """The passage's place.

        Raises:
            InputError: Its text does not stand in the document, or more than once.
        """
        if self.text is None:
            return GoldPassage(self.document, self.start, len(document.text) if self.end is None else self.end)
        start = document.text.find(self.text)
        if start < 0 or document.text.find(self.text, start + 1) >= 0:
            times = "does not stand" if start < 0 else "stands more than once"
            raise InputError(
                f"gold passage {shown(self.text)} {times} in document {document.id!r}; it must stand there exactly "
                "once: copy it letter by letter and make it long enough, or give start and end"
            )
        return GoldPassage(self.document, start, start + len(self.text))


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it was read.

    Attributes:
        question: Without its gold passages.
        gold: Where they are to be found.
        place: File and line or row.
        context: Ids of the documents that come with it, beside those of `gold`.
        split: Of the file it is from: `train`, `dev`, `test`; empty when the file is not of one.
    """

    question: Question
    gold: tuple[Passage, ...]
    place: str
    context: tuple[str, ...] = ()
    split: str = ""


class Reader(Protocol):
    """One data set on disk. Each pass opens its files anew and holds a row or an article at a time.

    Attributes:
        path: Its file or folder.
        name: Of the data set.
        repeats: Whether the same document may come again and again, with the questions that it belongs to.
    """

    @property
    def path(self) -> Source: ...
    @property
    def name(self) -> str: ...
    @property
    def repeats(self) -> bool: ...

    def documents(self, faults: Faults) -> Iterator[tuple[str, Document]]:
        """Each document with its place: file and line or row.

        Raises:
            InputError: A file that cannot be read, or is not of the layout at all.
        """

    def questions(self, faults: Faults) -> Iterator[Asked]:
        """Each question.

        Raises:
            InputError: As `documents`.
        """


def id_text(value: object) -> object:
    """An id as text: of a whole number its digits; anything else as it is, for the reader to refuse.

    >>> id_text(7), id_text("007"), id_text(True)
    ('7', '007', True)
    """
    return str(value) if type(value) is int else value
