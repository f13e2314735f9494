"""Outcomes on their way into the ledger: what is pending, when to stop, and how far the work is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from corag_search.errors import InputError
from data_prep.label_run import PATIENCE, PATIENCE_AT_START
from data_prep.ledger import Ledger


class Recorder:
    """Keeps outcomes durably. Safe to share between threads.

    Failures are written only once something later succeeds, or at `finish`: a run that is stopped because everything
    fails has recorded none of it, and the same command takes it up again.
    """

    def __init__(self, ledger: Ledger, retry_failed: bool, progress: Callable[[int], None]) -> None:
        """Prepare.

        Args:
            ledger: Where they go.
            retry_failed: Whether what failed before is pending.
            progress: Told of each outcome.
        """
        self.ledger = ledger
        self._succeeded = False
        self._retry_failed, self._progress = retry_failed, progress
        self._waiting: dict[str, str] = {}
        self._questions: set[str] = set()
        self._lock = threading.Lock()

    def pending(self, key: str) -> bool:
        """Whether this is still to be done."""
        return key not in self.ledger.done and (self._retry_failed or key not in self.ledger.failed)

    def add(self, key: str, record: Any) -> None:
        """Keep a record."""
        with self._lock:
            self._write_failures()
            self.ledger.append(key, record)
            self._succeeded = True
            self._progress(1)

    def keep_reference(self, key: str, text: str) -> None:
        """Keep what a question is scored against."""
        with self._lock:
            self.ledger.append(key, text)

    def fail(self, key: str, error: str, question: str) -> None:
        """Keep an error.

        Args:
            key: What failed.
            error: Why, in one line.
            question: Which question's it is; several failures of one question count once.

        Raises:
            InputError: Nothing but failures: the first few questions, or many in a row.
        """
        with self._lock:
            self._waiting[key] = error
            self._questions.add(question)
            if len(self._questions) >= (PATIENCE if self._succeeded else PATIENCE_AT_START):
                raise self._nothing_but_failures()
            self._progress(1)

    def finish(self) -> None:
        """Write what is left.

        Raises:
            InputError: Nothing ever succeeded.
        """
        with self._lock:
            # References, which are texts, are written before anything is done with them.
            if self._waiting and not any(isinstance(record, Mapping) for record in self.ledger.done.values()):
                raise self._nothing_but_failures()
            self._write_failures()

    def _write_failures(self) -> None:
        for key, error in self._waiting.items():
            self.ledger.fail(key, error)
        self._waiting = {}
        self._questions.clear()

    def _nothing_but_failures(self) -> InputError:
        key, error = list(self._waiting.items())[-1]
        return InputError(
            f"stopped, since {len(self._questions)} question(s) failed in a row, the last at {key}, with: {error}; set "
            "that right and run the same command again, which takes them up"
        )
