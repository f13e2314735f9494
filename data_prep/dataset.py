"""A data set: documents, questions about them, and where in the documents the answers stand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.texts import check_text
from data_prep.splits import COMPOUND, assign_splits, shuffle_key

__all__ = [
    "COMPOUND",
    "SYNTHETIC",
    "Dataset",
    "Document",
    "GoldPassage",
    "Question",
    "assign_splits",
    "check_document",
    "check_question",
]

SYNTHETIC = "synthetic"  # kind of the questions that `synthesise_questions` makes


@dataclass(frozen=True, slots=True)
class Document:
    """One text of the corpus.

    Attributes:
        id: Unique in its data set.
        text: As it is cut into chunks; gold passages' offsets refer to it.
        title: For display; no part of `text`.
        domain: What kind of corpus it belongs to; empty when unknown.
        language: As a BCP 47 tag (`en`, `zh`); empty when unknown.
    """

    id: str
    text: str
    title: str = ""
    domain: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True)
class GoldPassage:
    """Where an answer, or a part of it, stands.

    Attributes:
        document: Id of the document.
        start: First character of the passage in the document's text.
        end: One past its last character.
    """

    document: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question and what answers it.

    Attributes:
        id: Unique in its data set.
        text: As a user would ask it.
        gold_passages: The passages that answer it together; none when the data set names none.
        answers: Reference answers by humans, each complete in itself; may be empty.
        domain: As the documents'; where a data set names none, its readers put that of the gold documents here.
        kind: As the data set sorts its questions (`explanation`, `yes_no`); empty when it does not.
        language: As the documents'.
    """

    id: str
    text: str
    gold_passages: tuple[GoldPassage, ...]
    answers: tuple[str, ...] = ()
    domain: str = ""
    kind: str = ""
    language: str = ""


@dataclass(frozen=True)
class Dataset:
    """Documents and questions that refer to them; checked when it is made.

    Attributes:
        name: For display and file names.
        documents: The corpus, at least one.
        questions: May be empty, for a corpus to ask questions of.
        notes: What a reader skipped or repaired, one line each; no part of the content.

    Raises:
        InputError: An empty corpus, a duplicate id, empty text, or a gold passage outside the corpus.
    """

    name: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.documents:
            raise InputError(f"data set {self.name!r} has no documents; at least one is needed")
        by_id: dict[str, Document] = {}
        for document in self.documents:
            check_document(document, by_id)
            by_id[document.id] = document
        seen: set[str] = set()
        for question in self.questions:
            check_question(question, by_id, seen)
            seen.add(question.id)

    @cached_property
    def _by_id(self) -> dict[str, Document]:
        return {document.id: document for document in self.documents}

    def document(self, document_id: str) -> Document:
        """The document of that id.

        Raises:
            InputError: There is none.
        """
        try:
            return self._by_id[document_id]
        except KeyError:
            raise InputError(_no_document(document_id, self._by_id)) from None

    @property
    def with_gold(self) -> tuple[Question, ...]:
        """The questions that name a gold passage."""
        return tuple(question for question in self.questions if question.gold_passages)

    def passage_text(self, gold: GoldPassage) -> str:
        """The text of a gold passage."""
        return self.document(gold.document).text[gold.start : gold.end]

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any document or question (not with the name)."""
        digest = hashlib.sha256()
        for document in self.documents:
            digest.update(json.dumps(["document", asdict(document)], sort_keys=True).encode() + b"\n")
        for question in self.questions:
            digest.update(json.dumps(["question", asdict(question)], sort_keys=True).encode() + b"\n")
        return digest.hexdigest()[:16]

    def check_chunks(self, chunks: Iterable[Chunk]) -> set[str]:
        """Refuse chunks that were not cut from these very texts; those of documents that are not here may be any.

        Returns:
            Ids of the documents here that the chunks are of.

        Raises:
            InputError: A chunk's text is not what its document holds there.
        """
        seen: set[str] = set()
        for chunk in chunks:
            document, start, end = (chunk.metadata.get(key) for key in ("document", "start", "end"))
            if document not in self._by_id:
                continue
            seen.add(str(document))
            if self._by_id[document].text[start:end] != chunk.text:
                raise InputError(
                    f"the store's chunk {chunk.id!r} is not what document {document!r} of {self.name} holds there; "
                    "build the store anew with `corag index`"
                )
        return seen

    def select(self, limit: int | None, seed: int = 0) -> Dataset:
        """A sample of the questions, in their order here; all documents stay.

        The same seed draws nested samples: those of a smaller limit are among those of a greater one.

        Args:
            limit: Questions to keep, at least 1; None, or as many as there are, keeps all.
            seed: Another seed, another sample.
        """
        if limit is None:
            return self
        if isinstance(limit, bool) or limit < 1:
            raise InputError(f"limit must be at least 1 question, got {limit!r}; leave it out for all of them")
        if limit >= len(self.questions):
            return self
        drawn = {q.id for q in sorted(self.questions, key=lambda q: shuffle_key(seed, q.id))[:limit]}
        return Dataset(self.name, self.documents, tuple(q for q in self.questions if q.id in drawn), self.notes)


def check_document(document: Document, others: Mapping[str, Document]) -> None:
    """Refuses a document that cannot join the others (InputError)."""
    if not document.id:
        raise InputError(f"a document has an empty id (its text begins {document.text[:30]!r}); give each a unique one")
    if document.id in others:
        raise InputError(f"two documents have the id {document.id!r}; ids must be unique: rename or remove one")
    if not document.text.strip():
        raise InputError(f"document {document.id!r} has no text; fill it or remove it")
    for name in ("id", "text", "title", "domain", "language"):
        check_text(f"document {document.id!r}: {name}", getattr(document, name))


def check_question(question: Question, documents: Mapping[str, Document], others: Iterable[str]) -> None:
    """Refuses a question that cannot join the others, or whose gold is not in the documents (InputError)."""
    if not question.id:
        raise InputError(f"a question has an empty id ({question.text[:30]!r}); give each a unique one")
    if question.id in others:
        raise InputError(f"two questions have the id {question.id!r}; ids must be unique: rename or remove one")
    if not question.text.strip():
        raise InputError(f"question {question.id!r} has no text; fill it or remove it")
    for name in ("id", "text", "domain", "kind", "language"):
        check_text(f"question {question.id!r}: {name}", getattr(question, name))
    for answer in question.answers:
        check_text(f"question {question.id!r}: an answer", answer)
    for gold in question.gold_passages:
        if gold.document not in documents:
            raise InputError(f"question {question.id!r}: gold passage in {_no_document(gold.document, documents)}")
        length = len(documents[gold.document].text)
        if not 0 <= gold.start < gold.end <= length:
            raise InputError(
                f"question {question.id!r}: gold passage {gold.start}-{gold.end} lies outside document "
                f"{gold.document!r}; offsets must satisfy 0 <= start < end <= {length} (its length in characters)"
            )


def _no_document(document_id: str, documents: Mapping[str, Document]) -> str:
    first = next(iter(documents), None)
    return f"document {document_id!r}, which is not in the corpus ({len(documents)} documents, the first is {first!r})"
