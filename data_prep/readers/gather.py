"""From a reader to a data set: everything, or a sample that fits into memory when the files do not."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from corag_search.errors import InputError
from corag_search.registry import whole
from data_prep.dataset import Dataset, Document, GoldPassage, Question, check_document, check_question
from data_prep.duplicates import duplicate_groups
from data_prep.readers.faults import Faults
from data_prep.readers.reader import Asked, Reader
from data_prep.readers.seen import SeenIds
from data_prep.splits import shuffle_key

__all__ = ["gather", "nothing", "sound_documents"]


def gather(reader: Reader, *, strict: bool = False, sample: int | None = None, seed: int = 0) -> Dataset:
    """Reads a data set; what was left out is in its `notes`.

    Args:
        reader: Of the data set.
        strict: Refuse the first fault, instead of leaving out what is faulty.
        sample: Keep this many questions, the ones that `Dataset.select` draws with the same seed, and the documents
            that belong to them; None keeps everything. Memory is needed for what is kept.
        seed: Of the sample.

    Raises:
        InputError: A file that cannot be read, no documents, or nothing but faulty questions.
    """
    faults, of_documents = Faults(strict), Faults(strict)
    asked = _drawn(reader, faults, None if sample is None else whole("sample", sample, unit="questions"), seed)
    wanted = None if sample is None else {i for a in asked for i in (*a.context, *(g.document for g in a.gold))}
    if wanted is not None and not wanted:
        raise InputError(f"{reader.path} has no question with gold to take a sample of; leave the sample out")
    documents = {document.id: document for document in sound_documents(reader, of_documents, wanted)}
    if not documents:
        raise InputError(nothing(reader, "documents", of_documents))
    questions: dict[str, Question] = {}
    for one in asked:
        try:
            gold = tuple(_resolved(one, documents))
            question = replace(one.question, gold_passages=gold)
            check_question(question, documents, questions)
        except InputError as error:
            twice = one.question.id in questions
            what = "questions with an id that another has" if twice else "questions whose gold passage is not there"
            faults.add(f"{what}, left out", one.place, str(error))
        else:
            questions[question.id] = _in_domain(question, documents)
    if not questions and faults.first:
        raise InputError(nothing(reader, "questions", faults))
    faults.merge(of_documents)
    notes = list(faults.notes())
    if without := sum(not question.gold_passages for question in questions.values()):
        notes.append(f"{without} of {len(questions)} questions name no gold passage")
    if sample is not None and not reader.repeats:
        notes.append(
            f"the corpus is the {len(documents)} documents that belong to the sample; for a search among all of them, "
            "index the data with `corag index` and give that store"
        )
    notes += _duplicates([one for one in asked if one.question.id in questions])
    return Dataset(reader.name, tuple(documents.values()), tuple(questions.values()), tuple(notes))


def sound_documents(reader: Reader, faults: Faults, wanted: Container[str] | None = None) -> Iterator[Document]:
    """The reader's documents without those that are faulty or came before, one at a time.

    Args:
        reader: Of the data set.
        faults: Where the others are counted.
        wanted: Ids of those to give; None gives all.
    """
    seen = SeenIds()
    for place, document in reader.documents(faults):
        if wanted is not None and document.id not in wanted:
            continue
        try:
            check_document(document, {})
        except InputError as error:
            what = "documents that cannot be used" if document.text.strip() else "documents without text"
            faults.add(f"{what}, left out", place, str(error))
            continue
        if seen.add(document.id):
            yield document
        elif not reader.repeats:
            reason = f"two documents have the id {document.id!r}; ids must be unique: rename or remove one"
            faults.add("documents with an id that another has, left out", place, reason)


def _drawn(reader: Reader, faults: Faults, sample: int | None, seed: int) -> list[Asked]:
    """The questions of the sample in their order; all without one."""
    if sample is None:
        return list(_sound(reader, faults))
    drawn: list[tuple[int, int, Asked]] = []  # a heap: the one that would be drawn last is at its top
    keys: set[int] = set()
    for number, one in enumerate(_sound(reader, faults)):
        key = int.from_bytes(shuffle_key(seed, one.question.id), "big")
        if key in keys or (len(drawn) == sample and key > -drawn[0][0]):
            continue
        heapq.heappush(drawn, (-key, number, one))
        keys.add(key)
        if len(drawn) > sample:
            keys.discard(-heapq.heappop(drawn)[0])
    return [one for _, _, one in sorted(drawn, key=lambda item: item[1])]


def _sound(reader: Reader, faults: Faults) -> Iterator[Asked]:
    """The reader's questions without those that have no text and the like."""
    for one in reader.questions(faults):
        try:
            check_question(one.question, {}, ())
        except InputError as error:
            what = "questions that cannot be used" if one.question.text.strip() else "questions without text"
            faults.add(f"{what}, left out", one.place, str(error))
        else:
            yield one


def _resolved(one: Asked, documents: dict[str, Document]) -> Iterator[GoldPassage]:
    for passage in one.gold:
        document = documents.get(passage.document)
        if document is None:
            yield GoldPassage(passage.document, 0, 1)  # refused with the question
        else:
            yield passage.within(document)


def _in_domain(question: Question, documents: Mapping[str, Document]) -> Question:
    """The question in the domain of its gold documents, where it names none and they have one in common."""
    domains = {documents[gold.document].domain for gold in question.gold_passages}
    return replace(question, domain=domains.pop()) if not question.domain and len(domains) == 1 else question


def nothing(reader: Reader, what: str, faults: Faults) -> str:
    """The message for a data set that has none of `what`."""
    if faults.first:
        return f"{reader.path} has no {what} that can be used; the first fault: {faults.first}"
    return f"{reader.path} has no {what}; write at least one"


def _duplicates(asked: list[Asked]) -> list[str]:
    """Notes on questions that stand there twice, and on those that stand in the files of several splits."""
    groups = duplicate_groups([one.question.text for one in asked])
    notes = []
    if groups:
        one, other = (asked[index] for index in groups[0][:2])
        notes.append(
            f"questions that are the same as another, or nearly so: {sum(map(len, groups)) - len(groups)}; the first: "
            f"{one.question.text!r} ({one.place}; {other.place}); they come into one split"
        )
    crossing = [group for group in groups if len({asked[index].split for index in group}) > 1]
    if crossing:
        splits = " and ".join(sorted({asked[index].split for index in crossing[0]}))
        notes.append(
            f"questions that stand in the files of several splits, the same or nearly so: {len(crossing)}; the first: "
            f"{asked[crossing[0][0]].question.text!r} in {splits}"
        )
    return notes
