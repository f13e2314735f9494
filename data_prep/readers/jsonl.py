"""A folder with `documents.jsonl` and `questions.jsonl`, one JSON object a line. Unknown keys are passed over.

A document has `id` and `text`, and may have `title`, `domain` and `language`. A question has `id` and `question`, and
may have `gold_passages`, `answers`, `domain`, `kind` and `language`; a gold passage is `{"document", "text"}`, the text
standing exactly once in the document, or `{"document", "start", "end"}` in characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corag_search.errors import InputError
from data_prep.dataset import Dataset, Document, GoldPassage, Question, check_document, check_question
from data_prep.readers.lines import Source, json_lines


def read_jsonl(folder: Source, name: str | None = None) -> Dataset:
    """Reads such a folder.

    Args:
        folder: Where both files are.
        name: Of the data set; the folder's by default.

    Raises:
        InputError: A missing file, or a line that is not as described; the message names file and line.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder; format jsonl takes the folder that contains documents.jsonl and questions.jsonl"
        )
    documents = _read_documents(folder / "documents.jsonl")
    questions = _read_questions(folder / "questions.jsonl", documents)
    without_gold = sum(not q.gold_passages for q in questions.values())
    notes = (f"{without_gold} of {len(questions)} questions name no gold passage",) if without_gold else ()
    name = name or (folder.resolve().name if isinstance(folder, Path) else folder.name)
    return Dataset(name, tuple(documents.values()), tuple(questions.values()), notes)


def _read_documents(path: Source) -> dict[str, Document]:
    documents: dict[str, Document] = {}
    for number, row in json_lines(path):
        try:
            document = Document(
                id=_string(row, "id"),
                text=_string(row, "text"),
                **{key: _string(row, key, "") for key in ("title", "domain", "language")},
            )
            check_document(document, documents)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        documents[document.id] = document
    if not documents:
        raise InputError(f"{path} has no documents; write at least one, one JSON object a line")
    return documents


def _read_questions(path: Source, documents: Mapping[str, Document]) -> dict[str, Question]:
    questions: dict[str, Question] = {}
    for number, row in json_lines(path):
        try:
            question = Question(
                id=_string(row, "id"),
                text=_string(row, "question"),
                gold_passages=tuple(_gold_passage(gold, documents) for gold in _list(row, "gold_passages")),
                answers=tuple(_answer(answer) for answer in _list(row, "answers")),
                **{key: _string(row, key, "") for key in ("domain", "kind", "language")},
            )
            check_question(question, documents, questions)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        questions[question.id] = question
    return questions


def _gold_passage(gold: Any, documents: Mapping[str, Document]) -> GoldPassage:
    if not isinstance(gold, dict):
        raise InputError(f"gold passage {gold!r} is no object; write {_GOLD_FORMS}")
    document_id = _string(gold, "document")
    if "text" not in gold:
        start, end = gold.get("start"), gold.get("end")
        if type(start) is not int or type(end) is not int:
            raise InputError(f"gold passage has start {start!r} and end {end!r}; write {_GOLD_FORMS}")
        return GoldPassage(document_id, start, end)
    text = _string(gold, "text")
    document = documents.get(document_id)
    if document is None or not text:
        return GoldPassage(document_id, 0, len(text))  # refused with the question
    start = document.text.find(text)
    if start < 0 or document.text.find(text, start + 1) >= 0:
        times = "does not stand" if start < 0 else "stands more than once"
        raise InputError(
            f"gold passage {_short(text)} {times} in document {document_id!r}; it must stand there exactly once: "
            "copy it letter by letter and make it long enough, or give start and end"
        )
    return GoldPassage(document_id, start, start + len(text))


_GOLD_FORMS = '{"document": ID, "text": TEXT} or {"document": ID, "start": N, "end": N}'


def _string(row: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if value is None and default is not None:
        return default  # null stands for an optional value left out
    if not isinstance(value, str):
        got = f"got {value!r}" if key in row else f"the keys are {', '.join(map(repr, row)) or 'none'}"
        raise InputError(f"{key!r} must be a string, {got}; add it or put it in quotation marks")
    return value


def _list(row: Mapping[str, Any], key: str) -> list[Any]:
    value = row.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError(f"{key!r} must be a list, got {_short(value)}; put it in square brackets")
    return value


def _answer(answer: Any) -> str:
    if not isinstance(answer, str) or not answer.strip():
        raise InputError(f"an answer must be a string with text, got {_short(answer)}; correct it or remove it")
    return answer


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
