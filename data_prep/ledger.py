"""A ledger of finished work: one durable record per key, so that a killed run goes on where it was."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from corag_search.errors import InputError
from corag_search.files import is_at

_FORMAT = 1  # of the file; raise it when older ledgers can no longer be read


class Ledger:
    """An append-only JSON-lines file: the run's header, then one record per finished key, or the error of a failed one.

    Invariants: bytes before `_end` are whole lines, known to the disk; whatever stands behind it was torn by a kill or
    a full disk and is cut off. One process at a time holds the file (an advisory lock, which dies with the process);
    its threads may append at once. A key's last record counts; its last error does only while it has no record.

    Attributes:
        path: The file; made, with its folders, when it is not there.
        recovered: Bytes of a torn last record that were cut off on opening; 0 normally.

    Raises:
        InputError: The file was written by a run with another header, is in use, is damaged before its last record,
            or is no ledger.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.recovered = 0
        self._end = 0
        self._file = -1
        self._done: dict[str, Any] = {}
        self._failed: dict[str, str] = {}
        self._append_lock = threading.Lock()
        first = _line({"corag_ledger": _FORMAT, "header": header})
        while True:
            self._open()
            try:
                self._lock_file()
                if is_at(self._file, self.path):
                    self._load(first)
                    return
            except BaseException:
                os.close(self._file)
                raise
            os.close(self._file)  # whoever held it removed it before this run had the lock

    @property
    def done(self) -> Mapping[str, Any]:
        """The record of every finished key, as JSON gives it back; it grows with `append`."""
        return MappingProxyType(self._done)

    @property
    def failed(self) -> Mapping[str, str]:
        """The last error of every key that was tried and is not finished."""
        return MappingProxyType(self._failed)

    def append(self, key: str, record: Any) -> None:
        """Writes a record and waits until the disk has it.

        Args:
            key: What is finished.
            record: Anything JSON can say (no NaN, no infinity).

        Raises:
            OSError: The disk is full or failing; the ledger is as it was before, and `append` may be tried again.
        """
        self._append({"key": key, "record": record})

    def fail(self, key: str, error: str) -> None:
        """Writes that a key was tried in vain, and waits until the disk has it.

        Args:
            key: What failed.
            error: Why, in one line.

        Raises:
            OSError: As `append`.
        """
        self._append({"key": key, "error": error})

    def close(self) -> None:
        """Gives up the file; again does nothing."""
        with self._append_lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = _line(entry)
        with self._append_lock:
            if self._file < 0:
                raise ValueError(f"ledger {self.path} is closed")
            self._write(line)
            self._keep(json.loads(line))

    def _keep(self, entry: Mapping[str, Any]) -> None:
        key = entry["key"]
        if "record" in entry:
            self._done[key] = entry["record"]
            self._failed.pop(key, None)
        elif key not in self._done:
            self._failed[key] = entry["error"]

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(
                f"cannot open ledger {self.path}: {error.strerror}; give a path where you may write a file"
            ) from None

    def _lock_file(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"ledger {self.path} is in use by another run; wait until that ends, or give this run another path"
            ) from None

    def _load(self, first: bytes) -> None:
        with open(self._file, "rb", closefd=False) as file:
            start = file.readline()
            if start.endswith(b"\n"):
                self._check_header(start, first)
                self._end = len(start)
                for number, line in enumerate(file, start=2):
                    if not line.endswith(b"\n"):
                        break
                    self._take(line, number)
                    self._end += len(line)
            elif not first.startswith(start):  # neither new nor killed while the header was written
                raise _no_ledger(self.path)
        self.recovered = os.fstat(self._file).st_size - self._end
        if self.recovered:
            os.ftruncate(self._file, self._end)
        if not self._end:
            self._write(first)
            _sync_folder(self.path.parent)

    def _check_header(self, start: bytes, first: bytes) -> None:
        header, ours = _header(self.path, start), json.loads(first)["header"]
        _compare(self.path, header, ours, {**ours, **header})

    def _take(self, line: bytes, number: int) -> None:
        try:
            entry = json.loads(line)
            if not isinstance(entry["key"], str) or ("record" not in entry and not isinstance(entry["error"], str)):
                raise TypeError
            self._keep(entry)
        except (ValueError, TypeError, KeyError):
            raise InputError(
                f"ledger {self.path}, line {number} is damaged ({line[:40]!r}); delete that line (its work is done "
                "again) or restore the file from a copy"
            ) from None

    def _write(self, line: bytes) -> None:
        try:
            if os.fstat(self._file).st_size != self._end:
                os.ftruncate(self._file, self._end)  # what a failed write before this one could not take back
            done = 0
            while done < len(line):
                done += os.pwrite(self._file, line[done:], self._end + done)
            os.fsync(self._file)
        except BaseException as error:
            with contextlib.suppress(OSError):  # else the next write, or the next run, cuts it off
                os.ftruncate(self._file, self._end)
            if isinstance(error, OSError):
                error.filename = str(self.path)
            raise
        self._end += len(line)


def check_known(path: Path, known: Mapping[str, Any]) -> None:
    """Refuse a ledger of another run, where that shows in a part of the header, before the rest of it is known.

    Args:
        path: Where the ledger lies, if there is one yet.
        known: That part.

    Raises:
        InputError: As `Ledger`, of another header, another format or no ledger.
    """
    try:
        with path.open("rb") as file:
            start = file.readline()
    except OSError:
        return  # whoever opens it for writing makes it, or says why not
    if start.endswith(b"\n"):  # else it was killed while the header was written
        _compare(path, _header(path, start), json.loads(_line(known)), known)


def _header(path: Path, start: bytes) -> dict[str, Any]:
    """The header in a ledger's first line."""
    try:
        found = json.loads(start)
        version, header = found["corag_ledger"], found["header"]
    except (ValueError, TypeError, KeyError):
        raise _no_ledger(path) from None
    if version != _FORMAT:
        raise InputError(
            f"ledger {path} has format {version!r}, this version writes {_FORMAT}; finish that run with the version "
            "that began it, or give another path"
        )
    if not isinstance(header, dict):
        raise _no_ledger(path)
    return header


def _compare(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any], keys: Iterable[str]) -> None:
    missing = object()
    differing = [k for k in keys if theirs.get(k, missing) != ours.get(k, missing)]
    if not differing:
        return
    differences = "; ".join(
        f"{k} was {json.dumps(theirs[k]) if k in theirs else 'not set'}, "
        f"is now {json.dumps(ours[k]) if k in ours else 'not set'}"
        for k in differing
    )
    raise InputError(
        f"ledger {path} belongs to another run ({differences}); go on with the settings of that run, give another "
        "path, or delete the file to begin anew"
    )


def _no_ledger(path: Path) -> InputError:
    return InputError(f"{path} is no ledger, its first line is not a ledger's header; give another path")


def _line(value: Mapping[str, Any]) -> bytes:
    # ASCII, so that no text can hold a line break or half of a surrogate pair.
    return json.dumps(value, allow_nan=False, default=_as_dict).encode("ascii") + b"\n"


def _as_dict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a ledger's records are JSON, which has no {type(value).__name__}; got {value!r}")


def _sync_folder(folder: Path) -> None:
    # Makes the new file's name durable, not only its content.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
