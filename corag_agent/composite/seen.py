"""Which labelled questions a composite is trained on, and the record of it by which an evaluation knows them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corag_agent.composite.merged import part_of
from corag_agent.composite.sources import Source
from corag_search.errors import InputError
from corag_search.weights_directory import CONFIG_FILE
from data_prep.groups import connected
from data_prep.splits import undivided
from data_prep.table_files import SPLITS, check_splits


def of_splits(sources: Sequence[Source], splits: Sequence[str]) -> list[Source]:
    """The questions of some splits, of every source that has such.

    A group of questions that share documents has one split over all sources, as in a merged table (see `undivided`).

    Args:
        sources: With all questions.
        splits: Some of train, val and test; all of them leave the sources as they are.

    Raises:
        InputError: Another split, or no question is of these.
    """
    check_splits(splits)
    if set(splits) == set(SPLITS):
        return list(sources)
    rows = [
        (at, name, split)
        for at, source in enumerate(sources)
        for name, split in source.table.questions[["question_id", "split"]].itertuples(index=False)
    ]
    groups = connected([sources[at].documents[name] for at, name, _ in rows])
    kept: dict[int, list[str]] = {}
    for (at, name, _), split in zip(rows, undivided([split for *_, split in rows], groups), strict=True):
        if split in splits:
            kept.setdefault(at, []).append(name)
    if not kept:
        raise InputError(f"no labelled question is of the splits {', '.join(splits)}; name others or label more")
    return [replace(sources[at], table=part_of(sources[at].table, names)) for at, names in kept.items()]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a composite was trained on.

    Attributes:
        splits: Whose questions, of those that were labelled.
        tables: Digest of each label table, by name; see `table_digest`.
        questions: `DATA/ID` of each, sorted.
        documents: That hold their gold passages, as `document_names` has them, sorted.
    """

    splits: tuple[str, ...]
    tables: Mapping[str, str]
    questions: tuple[str, ...]
    documents: tuple[str, ...]

    @classmethod
    def of(cls, sources: Sequence[Source], splits: Sequence[str], tables: Mapping[str, str]) -> Seen:
        """Of sources that `of_splits` gave."""
        named = [(source, name) for source in sources for name in source.table.questions["question_id"]]
        return cls(
            splits=tuple(split for split in SPLITS if split in splits),
            tables=dict(tables),
            questions=tuple(sorted({f"{source.data}/{name}" for source, name in named})),
            documents=tuple(sorted({document for source, name in named for document in source.documents[name]})),
        )

    @classmethod
    def read(cls, composite: Path) -> Seen | None:
        """Of a composite's directory; None where it was made before that was recorded.

        Raises:
            InputError: The record is not readable.
        """
        given: Any = json.loads((composite / CONFIG_FILE).read_text(encoding="utf-8")).get("seen")
        if given is None:
            return None
        try:
            texts = {name: tuple(given[name]) for name in ("splits", "questions", "documents")}
            return cls(tables=dict(given["tables"]), **texts)
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{composite / CONFIG_FILE}: seen must have splits, tables, questions and documents, got "
                f"{str(given)[:60]}; make it again by `corag composite`"
            ) from None

    def knows(self, data: str, question_id: str, documents: Iterable[str]) -> bool:
        """Whether it was trained on the question, or on another one about one of its documents.

        Args:
            data: Name of the data set.
            question_id: Its id there.
            documents: Names of the documents, by which an article's other languages and data sets are known too.
        """
        return f"{data}/{question_id}" in self.questions or not set(self.documents).isdisjoint(documents)
