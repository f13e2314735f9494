"""Compound questions: two or three questions of one document in one, as in the paper's Figure 1.

A single question over a short passage is mostly answered by one chunk; a compound one needs several together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corag_search.errors import InputError
from corag_search.registry import whole
from data_prep.dataset import COMPOUND, Dataset, GoldPassage, Question
from data_prep.scripts import word_spans
from data_prep.splits import shuffle_key

__all__ = ["compose_questions"]

_ROUNDS = 4  # a question is part of at most this many compound ones
_NEIGHBOURS = 40  # partners looked at for each question
_MOST_WORDS = 30  # of a part; longer ones make a sentence that nobody would ask
_SIMILAR = 0.5  # share of common words from which two questions ask nearly the same
_APART = 600  # characters between passages that are taken for different ones where no paragraph ends


@dataclass(frozen=True, slots=True)
class _Joint:
    """How a language joins questions.

    Attributes:
        comma: Between all parts but the last two.
        last: Between the last two.
        answers: Between the parts' answers.
        end: Of the whole.
    """

    comma: str
    last: str
    answers: str
    end: str


_ENGLISH = _Joint(comma=", ", last=", and ", answers="; ", end="?")
_CHINESE = _Joint(comma="，", last="，以及", answers="；", end="？")

_ASKING = r"\b(?:what|who|whom|whose|when|where|which|why|how)\b"
_BEFORE = "in at on by from for to during under of with about into after before since until"
_ASKS = re.compile(_ASKING, re.IGNORECASE)
# How a later part may begin; in lower case none of these becomes another word, as a name would.
_OPENING = re.compile(rf"(?:(?:{_BEFORE.replace(' ', '|')}) )?{_ASKING}(?= )", re.IGNORECASE)
_SEVERAL = re.compile(", and |[;；]")  # a question that is compound already
_POINTING = re.compile(r"\b(it|its|they|their|them|he|his|him|she|her|this|these|those|such)\b", re.IGNORECASE)
_POINTING_CHINESE = re.compile("[他她它]|这[个些种]|那[个些种]|其(?![他它中余实])")


def compose_questions(dataset: Dataset, count: int, seed: int = 0) -> tuple[Question, ...]:
    """Compound questions out of a data set's own.

    Each joins two parts, every third one three, that stand in the same document, ask about different things and read
    as one question; parts with passages in different paragraphs come first, and all documents take turns. The gold is
    the union of the parts' gold, and each reference answers every part in order. Of the same seed, fewer are the first
    of more. The kind is `compound` and the id is that of the parts, joined by `+`.

    Args:
        dataset: English and Chinese questions with gold passages are used; those of other languages are not.
        count: Compound questions, at least 1.
        seed: Another seed, other combinations.

    Raises:
        InputError: The data set has no material for so many.
    """
    whole("compose", count, unit="compound questions")
    by_document: dict[str, list[Question]] = defaultdict(list)
    for question in dataset.questions:
        if question.gold_passages and question.kind != COMPOUND and _joint(question) is not None:
            by_document[question.gold_passages[0].document].append(question)
    documents = sorted(by_document, key=lambda document: shuffle_key(seed, document))
    made: dict[frozenset[str], Question] = {}
    for apart in (True, False):
        # Taking turns, so that a few long documents do not make up most of them.
        turns = [_of_document(dataset, by_document[document], seed, apart) for document in documents]
        while turns:
            for turn in list(turns):
                parts = next(turn, None)
                if parts is None:
                    turns.remove(turn)
                    continue
                made.setdefault(frozenset(part.id for part in parts), _compound(parts))
                if len(made) == count:
                    return tuple(made.values())
    raise InputError(
        f"{dataset.name} gives {len(made)} compound questions, {count} were asked for; compose at most {len(made)}, or "
        "give documents with more questions each"
        if made
        else f"no compound questions can be composed from {dataset.name}: no document has two English or Chinese "
        "questions that can be joined; leave --compose out"
    )


def _of_document(
    dataset: Dataset, questions: Sequence[Question], seed: int, apart: bool
) -> Iterator[tuple[Question, ...]]:
    """Sets of parts; in each round over the questions, everyone is used once."""
    for turn in range(_ROUNDS):
        left = sorted(questions, key=lambda question: shuffle_key(f"{seed}/{turn}", question.id))
        while len(left) > 1:
            parts = [left.pop(0)]
            size = 3 if shuffle_key(f"{seed}/{turn}/size", parts[0].id)[0] % 3 == 0 else 2
            for other in left[:_NEIGHBOURS]:
                if len(parts) < size and all(_suits(dataset, part, other, apart) for part in parts):
                    parts.append(other)
            left = [question for question in left if question not in parts]
            if len(parts) > 1:
                yield tuple(parts)


def _suits(dataset: Dataset, part: Question, other: Question, apart: bool) -> bool:
    """Whether `other` can follow in a compound question that has `part`; both can be joined, by their language."""
    if part.language != other.language or not _can_follow(other):
        return False
    words, others = _words(part.text), _words(other.text)
    if len(words & others) >= _SIMILAR * len(words | others) or set(part.answers) & set(other.answers):
        return False
    pairs = [(one, two) for one in part.gold_passages for two in other.gold_passages]
    return not apart or all(_are_apart(dataset, one, two) for one, two in pairs)


def _are_apart(dataset: Dataset, one: GoldPassage, two: GoldPassage) -> bool:
    if one.document != two.document:
        return True
    first, second = sorted((one, two), key=lambda gold: gold.start)
    between = dataset.document(one.document).text[first.end : max(second.start, first.end)]
    return second.start >= first.end and (len(between) >= _APART or "\n\n" in between)


def _joint(question: Question) -> _Joint | None:
    """How the question is joined with others; None when it cannot be part of a readable whole."""
    text = question.text.strip()
    if text[-1:] not in ("?", "？") or len(re.findall("[?？]", text)) > 1 or len(word_spans(text)) > _MOST_WORDS:
        return None
    if _SEVERAL.search(text):
        return None
    if question.language.startswith("zh"):
        return _CHINESE
    if question.language and not question.language.startswith("en"):
        return None
    return _ENGLISH if _ASKS.search(text) else None


def _can_follow(question: Question) -> bool:
    # A pronoun would point into the part before it.
    if question.language.startswith("zh"):
        return not _POINTING_CHINESE.search(question.text)
    return bool(_OPENING.match(_stripped(question.text))) and not _POINTING.search(question.text)


def _stripped(text: str) -> str:
    """The question without its mark, and in one line."""
    return " ".join(text.rstrip("?？ \n").split())


def _words(text: str) -> set[str]:
    return {text[start:end].strip("?？,.，。\"'").lower() for start, end in word_spans(text)}


def _compound(parts: Sequence[Question]) -> Question:
    joint = _joint(parts[0])
    assert joint is not None
    texts = [_stripped(part.text) for part in parts]
    if joint is _ENGLISH:
        texts[1:] = [text[0].lower() + text[1:] for text in texts[1:]]
    return Question(
        id="+".join(part.id for part in parts),
        text=joint.comma.join(texts[:-1]) + joint.last + texts[-1] + joint.end,
        gold_passages=_united([gold for part in parts for gold in part.gold_passages]),
        # As many references as the part with the fewest has; none when one part has none.
        answers=tuple(
            joint.answers.join(answer.strip().rstrip(".。;；") for answer in answers)
            for answers in zip(*(part.answers for part in parts), strict=False)
        ),
        domain=parts[0].domain,
        kind=COMPOUND,
        language=parts[0].language,
    )


def _united(passages: Sequence[GoldPassage]) -> tuple[GoldPassage, ...]:
    """The passages in their order, those that overlap as one."""
    united: list[GoldPassage] = []
    for passage in passages:
        overlapping = [
            g for g in united if g.document == passage.document and g.start < passage.end and passage.start < g.end
        ]
        if overlapping:
            place = united.index(overlapping[0])
            group = [*overlapping, passage]
            united = [g for g in united if g not in overlapping[1:]]
            start, end = min(g.start for g in group), max(g.end for g in group)
            united[place] = GoldPassage(passage.document, start, end)
        else:
            united.append(passage)
    return tuple(united)
