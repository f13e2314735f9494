"""Where a study is kept, and the locks by which processes share it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from corag_search.errors import InputError

STUDY = "corag"
_PATIENCE = 60.0  # seconds that SQLite waits for another process's write
_JOURNAL_START = b'{"op_code":'


class FileLock:
    """An exclusive lock on a file, which the system takes back when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        """Takes the path; the file is made when needed."""
        self._path = path
        self._file = -1

    def acquire(self, wait: bool = True) -> bool:
        """Takes the lock; without `wait`, returns False where another holds it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(file)
            return False
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return True

    def release(self) -> None:
        """Gives it back."""
        os.close(self._file)
        self._file = -1

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class _Connection(sqlite3.Connection):
    """Waits for the disk at checkpoints of the database only; a kill loses nothing, a power cut the last writes."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = NORMAL")


class StorageKind(StrEnum):
    """What keeps the study: an SQLite database, or Optuna's journal, which also works on shared folders."""

    SQLITE = "sqlite"
    JOURNAL = "journal"


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A file that keeps one study.

    Attributes:
        kind: Of the file.
        path: Of the file; locks lie beside it in `NAME.locks`, for all processes that share the study.
    """

    kind: StorageKind
    path: Path

    @classmethod
    def parse(cls, text: str) -> StudyFile:
        """Reads KIND:PATH.

        Raises:
            InputError: It is of another form, or a directory.
        """
        kind, _, path = text.partition(":")
        if kind not in list(StorageKind) or not path or path.startswith("//"):
            raise InputError(f"storage must be sqlite:PATH or journal:PATH, got {text!r}")
        if Path(path).is_dir():
            raise InputError(f"storage {path} is a directory; name a file in it")
        return cls(StorageKind(kind), Path(path))

    def __str__(self) -> str:
        return f"{self.kind}:{self.path}"

    def lock(self, name: str) -> FileLock:
        """A lock that all processes of the study know by this name."""
        return FileLock(self._locks / f"{name}.lock")

    def drop_lock(self, name: str) -> None:
        """Removes a lock's file; only under the study's own lock, or two could hold it."""
        (self._locks / f"{name}.lock").unlink(missing_ok=True)

    @property
    def _locks(self) -> Path:
        return self.path.with_name(f"{self.path.name}.locks")

    def open(self) -> BaseStorage:
        """Opens it, or makes it; only under the study's lock.

        Raises:
            InputError: The file is there and is no study of this kind that `corag tune` made.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.kind is StorageKind.SQLITE:
            self._check_database()
            options = {"timeout": _PATIENCE, "factory": _Connection}
            return RDBStorage(f"sqlite:///{self.path}", engine_kwargs={"connect_args": options})
        # Optuna's own lock outlives a kill for half a minute.
        with self.lock("journal"):
            self._mend_journal()
        backend = JournalFileBackend(str(self.path), lock_obj=self.lock("journal"))  # type: ignore[arg-type]
        return JournalStorage(backend)

    def _check_database(self) -> None:
        if not self.path.exists() or not self.path.stat().st_size:
            return
        try:
            uri = f"{self.path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE)) as database:
                tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                holds_studies = "studies" in tables
                query = "SELECT study_name FROM studies" if holds_studies else ""
                others = [name for (name,) in database.execute(query) if name != STUDY] if holds_studies else tables
        except sqlite3.DatabaseError as error:
            raise self._foreign(str(error)) from error
        if others:
            raise self._foreign(f"it holds {', '.join(others[:3])}")

    def _mend_journal(self) -> None:
        """Checks that it is a journal, and cuts off what a full disk or a power cut left of its last line."""
        if not self.path.exists():
            return
        with self.path.open("rb+") as file:
            start = file.read(len(_JOURNAL_START))
            if not _JOURNAL_START.startswith(start):
                raise self._foreign("its first line is no entry of Optuna's journal")
            size = end = file.seek(0, os.SEEK_END)
            while end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                end -= 1
            if end < size:
                file.truncate(end)

    def _foreign(self, why: str) -> InputError:
        return InputError(
            f"storage {self.path} is there and is no {self.kind} study of `corag tune` ({why}); name another file"
        )
