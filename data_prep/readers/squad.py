"""SQuAD 1.1 and 2.0 layout: `data[].paragraphs[].{context, qas[].{id, question, answers[].{text, answer_start}}}`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corag_search.errors import InputError
from data_prep.dataset import Dataset, Document, GoldPassage, Question
from data_prep.readers.lines import parsed, read_bytes
from data_prep.scripts import guess_language, word_spans

LONG_CONTEXT_WORDS = 600
WINDOW_WORDS = 150
_SPLIT_NAME = re.compile(r"\.(train|dev|val|validation|test)$")


def read_squad(path: Path, long_context_words: int = LONG_CONTEXT_WORDS, window_words: int = WINDOW_WORDS) -> Dataset:
    """Reads a file in SQuAD layout.

    An article's paragraphs, joined by blank lines, are one document, and the gold passage of a question is its
    paragraph. A context above `long_context_words` is a document of its own, and the gold passage is a window of about
    `window_words` around the answer (METHOD §6). Unanswerable questions are skipped; an `answer_start` that does not
    match the answer's text is corrected to the nearest place where the text stands, and the question skipped when it
    stands nowhere. What was skipped or corrected is counted in the data set's `notes`.

    Args:
        path: The file. Its name without `.json` and without the name of a split (`xquad.en.dev.json`: `xquad.en`)
            names the data set and its domain.
        long_context_words: Longest context that is taken for a paragraph. Where a script has no spaces, characters
            are counted.
        window_words: Length of the gold passage in a longer one; more when the answer itself is longer.

    Raises:
        InputError: The file cannot be read, or is not of this layout.
    """
    reader = _Reader(path, _SPLIT_NAME.sub("", path.stem) or path.stem, long_context_words, window_words)
    content = parsed(read_bytes(path), str(path))
    for number, article in enumerate(_get(content, "data", list, f"{path}")):
        reader.add_article(article, f"{path}, data[{number}]", f"{reader.domain}-{number}")
    try:
        return Dataset(reader.domain, tuple(reader.documents), tuple(reader.questions), tuple(reader.notes()))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


@dataclass
class _Reader:
    path: Path
    domain: str
    long_context_words: int
    window_words: int
    documents: list[Document] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    taken: set[str] = field(default_factory=set)

    def add_article(self, article: Any, where: str, default_id: str) -> None:
        paragraphs = _get(article, "paragraphs", list, where)
        title = str(article.get("title") or "")
        joined: dict[str, int] = {}  # short contexts and where they start in the article's document
        length = 0
        own: dict[str, str] = {}  # long contexts and their documents
        asked: list[tuple[str, Any, str]] = []
        for number, paragraph in enumerate(paragraphs):
            place = f"{where}.paragraphs[{number}]"
            context = _get(paragraph, "context", str, place)
            asked += [(context, qa, f"{place}.qas[{n}]") for n, qa in enumerate(_get(paragraph, "qas", list, place))]
            if not context.strip() or context in joined or context in own:
                continue
            if len(word_spans(context)) > self.long_context_words:
                own[context] = self._add_document(paragraph.get("document_id") or title or default_id, context, title)
            else:
                joined[context] = length
                length += len(context) + len("\n\n")
        article_id = ""
        if joined:
            alone = paragraphs[0].get("document_id") if len(paragraphs) == 1 else None
            article_id = self._add_document(title or alone or default_id, "\n\n".join(joined), title)
        for context, qa, place in asked:
            self._add_question(context, qa, place, own.get(context), article_id, joined.get(context, 0))

    def _add_document(self, wanted_id: Any, text: str, title: str) -> str:
        document_id, number = str(wanted_id), 1
        while document_id in self.taken:
            number += 1
            document_id = f"{wanted_id}-{number}"
        self.taken.add(document_id)
        self.documents.append(Document(document_id, text, title.replace("_", " "), self.domain, guess_language(text)))
        return document_id

    def _add_question(self, context: str, qa: Any, place: str, own: str | None, article: str, offset: int) -> None:
        question_id, text = _get(qa, "id", (str, int), place), _get(qa, "question", str, place)
        answers = [_answer(a, f"{place}.answers[{n}]") for n, a in enumerate(_get(qa, "answers", list, place))]
        if qa.get("is_impossible") or not answers:
            self.counts["unanswerable"] += 1
            return
        found = next(filter(None, (_locate(context, answer, start) for answer, start in answers)), None)
        if found is None:
            self.counts["absent"] += 1
            return
        start, end, moved = found
        self.counts["moved"] += moved
        if own is not None:
            start, end = _window(context, start, end, self.window_words)
            gold = GoldPassage(own, start, end)
        else:
            gold = GoldPassage(article, offset, offset + len(context))
        self.questions.append(
            Question(
                id=str(question_id),
                text=text.strip(),
                gold_passages=(gold,),
                answers=tuple(dict.fromkeys(answer.strip() for answer, _ in answers if answer.strip())),
                domain=self.domain,
                language=guess_language(text),
            )
        )

    def notes(self) -> list[str]:
        lines = {
            "unanswerable": "{} unanswerable questions skipped",
            "absent": "{} questions skipped, because their answers do not stand in their contexts",
            "moved": "{} questions whose answer_start was off: corrected to the nearest place where the answer stands",
        }
        return [line.format(self.counts[key]) for key, line in lines.items() if self.counts[key]]


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
    if not isinstance(value, dict) or not isinstance(value.get(key), tuple(kinds)):
        expected = " or ".join(_JSON_NAMES[k] for k in kinds)
        got = f"{key!r} is {type(value[key]).__name__}" if isinstance(value, dict) and key in value else f"no {key!r}"
        raise InputError(f"{where}: {got}; SQuAD layout has {expected} there: correct it, or name another format")
    return value[key]


_JSON_NAMES: dict[type, str] = {str: "a string", int: "a whole number", list: "a list"}
