"""Which labelled questions a composite is trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from corag_agent.composite.merged import part_of
from corag_agent.composite.sources import Source
from corag_agent.seen import Seen
from corag_search.errors import InputError
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


def seen_of(sources: Sequence[Source], splits: Sequence[str], tables: Mapping[str, str]) -> Seen:
    """What a composite has seen that is trained on sources that `of_splits` gave.

    Args:
        sources: Those.
        splits: As of `of_splits`.
        tables: Digest of each label table, by name.
    """
    named = [(source, name) for source in sources for name in source.table.questions["question_id"]]
    questions = (f"{source.data}/{name}" for source, name in named)
    return Seen.of(splits, tables, questions, (one for source, name in named for one in source.documents[name]))
