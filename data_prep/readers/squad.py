"""SQuAD 1.1 and 2.0 layout: `data[].paragraphs[].{context, qas[].{id, question, answers[].{text, answer_start}}}`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag_search.errors import InputError
from data_prep.dataset import Document, Question
from data_prep.readers.faults import Faults
from data_prep.readers.json_stream import json_items
from data_prep.readers.reader import Asked, Passage
from data_prep.scripts import guess_language, word_spans

LONG_CONTEXT_WORDS = 600
WINDOW_WORDS = 150
_SPLIT_NAME = re.compile(r"\.(train|dev|val|validation|test)$")


@dataclass(frozen=True)
class Squad:
    """A file in SQuAD layout.

    An article's paragraphs, joined by blank lines, are one document, and the gold passage of a question is its
    paragraph. A context above `long_context_words` is a document of its own, and the gold passage is a window of about
    `window_words` around the answer (METHOD §6). Unanswerable questions are left out; an `answer_start` that does not
    match the answer's text is corrected to the nearest place where the text stands, and the question left out when it
    stands nowhere.

    Attributes:
        path: The file. Its name without `.json` and without the name of a split (`xquad.en.dev.json`: `xquad.en`)
            names the data set and its domain.
        long_context_words: Longest context that is taken for a paragraph. Where a script has no spaces, characters
            are counted.
        window_words: Length of the gold passage in a longer one; more when the answer itself is longer.
    """

    path: Path
    long_context_words: int = LONG_CONTEXT_WORDS
    window_words: int = WINDOW_WORDS
    repeats = False

    @property
    def name(self) -> str:
        return _SPLIT_NAME.sub("", self.path.stem) or self.path.stem

    def documents(self, faults: Faults) -> Iterator[tuple[str, Document]]:
        """As `Reader.documents`."""
        for where, article in self._articles(faults):
            for document in article.documents:
                yield where, document

    def questions(self, faults: Faults) -> Iterator[Asked]:
        """As `Reader.questions`."""
        for _, article in self._articles(faults):
            for asked in article.asked:
                yield from article.question(*asked, faults)

    def _articles(self, faults: Faults) -> Iterator[tuple[str, _Article]]:
        taken: set[str] = set()
        for number, content in enumerate(json_items(self.path, "data")):
            where = f"{self.path}, data[{number}]"
            try:
                paragraphs = _get(content, "paragraphs", list, where)
            except InputError as error:
                faults.add("articles that are not of SQuAD layout, left out", *_split(str(error), where))
                continue
            article = _Article(self, str(content.get("title") or ""), f"{self.name}-{number}", taken)
            article.read(paragraphs, where, faults)
            yield where, article


class _Article:
    """The documents of an article, and its questions with their contexts."""

    def __init__(self, reader: Squad, title: str, default_id: str, taken: set[str]) -> None:
        self.documents: list[Document] = []
        self.asked: list[tuple[str, Any, str]] = []
        self._reader, self._title, self._default_id, self._taken = reader, title, default_id, taken
        self._joined: dict[str, int] = {}  # short contexts and where they start in the article's document
        self._own: dict[str, str] = {}  # long contexts and their documents
        self._id = ""

    def read(self, paragraphs: list[Any], where: str, faults: Faults) -> None:
        length = 0
        for number, paragraph in enumerate(paragraphs):
            place = f"{where}.paragraphs[{number}]"
            try:
                context = _get(paragraph, "context", str, place)
                asked = _get(paragraph, "qas", list, place)
            except InputError as error:
                faults.add("paragraphs that are not of SQuAD layout, left out", *_split(str(error), place))
                continue
            self.asked += [(context, qa, f"{place}.qas[{n}]") for n, qa in enumerate(asked)]
            if not context.strip() or context in self._joined or context in self._own:
                continue
            if len(word_spans(context)) > self._reader.long_context_words:
                wanted = paragraph.get("document_id") or self._title or self._default_id
                self._own[context] = self._add_document(wanted, context)
            else:
                self._joined[context] = length
                length += len(context) + len("\n\n")
        if self._joined:
            first = paragraphs[0]
            alone = first.get("document_id") if len(paragraphs) == 1 and isinstance(first, dict) else None
            self._id = self._add_document(self._title or alone or self._default_id, "\n\n".join(self._joined))

    def _add_document(self, wanted_id: Any, text: str) -> str:
        document_id, number = str(wanted_id), 1
        while document_id in self._taken:
            number += 1
            document_id = f"{wanted_id}-{number}"
        self._taken.add(document_id)
        title = self._title.replace("_", " ")
        self.documents.append(Document(document_id, text, title, self._reader.name, guess_language(text)))
        return document_id

    def question(self, context: str, qa: Any, place: str, faults: Faults) -> Iterator[Asked]:
        """The question, if it can be used."""
        try:
            question_id, text = _get(qa, "id", (str, int), place), _get(qa, "question", str, place)
            answers = [_answer(a, f"{place}.answers[{n}]") for n, a in enumerate(_get(qa, "answers", list, place))]
        except InputError as error:
            faults.add("questions that are not of SQuAD layout, left out", *_split(str(error), place))
            return
        if qa.get("is_impossible") or not answers:
            faults.count("unanswerable questions, left out")
            return
        found = next(filter(None, (_locate(context, answer, start) for answer, start in answers)), None)
        if found is None:
            faults.count("questions whose answers do not stand in their contexts, left out")
            return
        start, end, moved = found
        if moved:
            faults.count("questions whose answer_start was off, corrected to the nearest place of the answer")
        own = self._own.get(context)
        if own is not None:
            gold = Passage(own, *_window(context, start, end, self._reader.window_words))
        else:
            gold = Passage(self._id, self._joined[context], self._joined[context] + len(context))
        question = Question(
            id=str(question_id),
            text=text.strip(),
            gold_passages=(),
            answers=tuple(dict.fromkeys(answer.strip() for answer, _ in answers if answer.strip())),
            domain=self._reader.name,
            language=guess_language(text),
        )
        yield Asked(question, (gold,), place)


def _split(message: str, place: str) -> tuple[str, str]:
    """Place and reason of an error of `_get`, which may lie deeper than `place`."""
    where, _, reason = message[len(place) :].partition(": ")
    return place + where, reason


def _locate(context: str, answer: str, start: int) -> tuple[int, int, bool] | None:
    """Where the answer (without space around it) stands, nearest to `start`, and whether that had to be corrected.

    None when it stands nowhere.
    """
    text = answer.strip()
    if not text:
        return None
    if start >= 0:
        indent = len(answer) - len(answer.lstrip()) if context.startswith(answer, start) else 0
        if context.startswith(text, start + indent):
            return start + indent, start + indent + len(text), False
    start = max(start, 0)
    places = [p for p in (context.rfind(text, 0, start + len(text)), context.find(text, start)) if p >= 0]
    if not places:
        return None
    nearest = min(places, key=lambda place: abs(place - start))
    return nearest, nearest + len(text), True


def _window(text: str, start: int, end: int, words: int) -> tuple[int, int]:
    """A passage of whole words, about `words` long, with the answer in its middle."""
    spans = word_spans(text)
    starts = [span[0] for span in spans]
    first, last = bisect_right(starts, start) - 1, bisect_right(starts, end - 1) - 1
    missing = max(words - (last - first + 1), 0)
    first = max(min(first - missing // 2, len(spans) - words), 0) if missing else first
    last = min(max(last, first + words - 1), len(spans) - 1)
    return spans[first][0], spans[last][1]


def _answer(answer: Any, place: str) -> tuple[str, int]:
    return _get(answer, "text", str, place), _get(answer, "answer_start", int, place)


def _get(value: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    kinds: Sequence[type] = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, dict) or not isinstance(value.get(key), tuple(kinds)) or isinstance(value[key], bool):
        expected = " or ".join(_JSON_NAMES[k] for k in kinds)
        got = f"{key!r} is {type(value[key]).__name__}" if isinstance(value, dict) and key in value else f"no {key!r}"
        raise InputError(f"{where}: {got}; SQuAD layout has {expected} there: correct it, or name another format")
    return value[key]


_JSON_NAMES: dict[type, str] = {str: "a string", int: "a whole number", list: "a list"}
