"""What is wrong with a file: counted and passed over, or refused at once."""

from __future__ import annotations

from collections import Counter

from corag_search.errors import InputError

__all__ = ["Faults"]


class Faults:
    """The faults of one pass over a data set's files.

    Args:
        strict: Refuse the first fault, instead of counting it and going on without what is faulty.
    """

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, what: str, place: str, reason: str) -> None:
        """A fault: what was passed over is left out.

        Args:
            what: Of which kind, in the plural: "documents without text".
            place: File and line or row.
            reason: What is wrong there, and the remedy.

        Raises:
            InputError: Faults are not to be passed over.
        """
        if self.strict:
            raise InputError(f"{place}: {reason}")
        self._counts[what] += 1
        self._first.setdefault(what, f"{place}: {reason}")

    def count(self, what: str) -> None:
        """Something that the data set is known to have, and no fault: an unanswerable question."""
        self._counts[what] += 1

    @property
    def first(self) -> str:
        """The first fault with its place; empty when there is none."""
        return next(iter(self._first.values()), "")

    def merge(self, other: Faults) -> None:
        """Adds those of another pass; a kind that both passes met is counted once."""
        for what, count in other._counts.items():
            self._counts[what] = max(self._counts[what], count)
        self._first = {**self._first, **{w: p for w, p in other._first.items() if w not in self._first}}

    def notes(self) -> tuple[str, ...]:
        """One line for each kind: how many, and where the first one is."""
        return tuple(
            f"{what}: {count}" + (f"; the first: {self._first[what]}" if what in self._first else "")
            for what, count in self._counts.items()
        )
