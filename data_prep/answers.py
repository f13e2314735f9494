"""Answers kept on disk, so that no prompt is answered twice by the same generator."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from corag_search.errors import InputError
from corag_search.generators.base import Generation

if TYPE_CHECKING:
    from corag_search.generators.base import Generator

_APPLICATION_ID = 0x434F5241  # "CORA", in the file's header
_VERSION = 1
_SCHEMA = """
CREATE TABLE answers (
    key TEXT PRIMARY KEY,
    text TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    answer_tokens INTEGER NOT NULL
) WITHOUT ROWID
"""


class AnswerCache:
    """Generations by generator, prompt and limit, in an SQLite file. Safe to share between threads and processes.

    Args:
        path: The file; made, with its folders, when it is not there. None keeps the answers in memory.

    Raises:
        InputError: The file is something else, or is damaged.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()  # one connection for all threads: a look-up takes microseconds
        with self._refusing():
            self._connect()
            while self.path is not None and not self.path.exists():  # removed as empty while it was opened
                self._connection.close()
                self._connect()

    @staticmethod
    def key(fingerprint: str, prompt: str, max_tokens: int) -> str:
        """SHA-256 of what decides an answer."""
        return hashlib.sha256(json.dumps([fingerprint, prompt, max_tokens]).encode()).hexdigest()

    def get(self, key: str) -> Generation | None:
        """The answer stored under the key, or None."""
        with self._lock, self._refusing():
            row = self._connection.execute(
                "SELECT text, prompt_tokens, answer_tokens FROM answers WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else Generation(*row)

    def put(self, key: str, generation: Generation) -> None:
        """Stores an answer; one that is there already stays (it was given out before)."""
        row = (key, generation.text, generation.prompt_tokens, generation.answer_tokens)
        with self._lock, self._refusing():
            self._connection.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", row)

    def take_over(self, path: str | Path) -> None:
        """Copies what another cache has; what is here already stays.

        Raises:
            InputError: The other file is something else, or is damaged.
        """
        AnswerCache(path).close()  # refuses what is no cache
        with self._lock, self._refusing():
            self._connection.execute("ATTACH DATABASE ? AS other", (str(path),))
            try:
                self._connection.execute("INSERT OR IGNORE INTO answers SELECT * FROM other.answers")
            finally:
                self._connection.execute("DETACH DATABASE other")

    def remove_if_empty(self) -> None:
        """Removes the file if it holds nothing and no other connection has it open; to be closed after this."""
        with self._lock, self._refusing():
            execute = self._connection.execute
            if self.path is None or execute("SELECT 1 FROM answers").fetchone() is not None:
                return
            execute("PRAGMA busy_timeout = 0")
            execute("PRAGMA locking_mode = EXCLUSIVE")
            try:
                execute("PRAGMA journal_mode = DELETE")  # refused while others have the file open
                execute("BEGIN EXCLUSIVE")
                empty = execute("SELECT 1 FROM answers").fetchone() is None
            except sqlite3.OperationalError as error:
                if _primary(error) != sqlite3.SQLITE_BUSY:
                    raise
                return
            if empty:  # nobody can begin to use it before this ends
                self.path.unlink()

    def __len__(self) -> int:
        with self._lock, self._refusing():
            return int(self._connection.execute("SELECT count(*) FROM answers").fetchone()[0])

    def close(self) -> None:
        """Closes the file; again does nothing."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> AnswerCache:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _connect(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(
            ":memory:" if self.path is None else self.path,
            timeout=60,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")  # of two processes that make the file at once, one waits
        if self._pragma("application_id") == _APPLICATION_ID:
            if self._pragma("user_version") != _VERSION:
                raise InputError(
                    f"answer cache {self.path} has format {self._pragma('user_version')}, this version reads "
                    f"{_VERSION}; give another path"
                )
        elif execute("SELECT 1 FROM sqlite_master").fetchone() is None and not self._pragma("application_id"):
            execute(_SCHEMA)
            execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            execute(f"PRAGMA user_version = {_VERSION}")
        else:
            raise InputError(f"{self.path} is an SQLite file, but no answer cache; give another path")
        execute("COMMIT")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = NORMAL")  # a power cut may lose the last answers, never damage the file

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"cannot make the folder of answer cache {self.path}: {error.strerror}; give another path"
            ) from None
        except sqlite3.DatabaseError as error:
            match _primary(error):
                case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY:
                    message = f"cannot open answer cache {self.path}: {error}; give a path where you may write a file"
                case sqlite3.SQLITE_BUSY:
                    message = f"answer cache {self.path} is held by another run ({error}); wait until that ends"
                case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
                    message = (
                        f"{self.path} is no answer cache, or a damaged one ({error}); give another path, or delete the "
                        "file"
                    )
                case _:  # a full disk and the like: no fault of the file
                    error.args = (f"answer cache {self.path}: {error}",)
                    raise
            raise InputError(message) from None


def _primary(error: sqlite3.Error) -> int:
    """The code of an error without what the system adds to it; 0 where the database has given none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _storable(answer: Generation) -> Generation:
    """An answer as files can hold it.

    Half a surrogate pair, as an answer that was cut off may end in, becomes U+FFFD, and a number of tokens that SQLite
    has no integer for is taken for not told.
    """
    text = answer.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return Generation(text, *(n if n < 1 << 63 else 0 for n in (answer.prompt_tokens, answer.answer_tokens)))


class Answers(Protocol):
    """Where answers are kept: an `AnswerCache`, or one in another process."""

    def get(self, key: str) -> Generation | None: ...

    def put(self, key: str, generation: Generation) -> None: ...


class CachedGenerator:
    """A generator that looks into a cache first.

    Of several threads that ask the same at once, one asks the generator and the others wait for its answer.

    Attributes:
        name: The generator's, as are the next two.
        context_length: Tokens, or None.
        fingerprint: Part of every key.
        hits: Answers given without asking the generator.
        calls: Answers that the generator was asked for.
    """

    def __init__(self, generator: Generator, cache: Answers) -> None:
        self.name = generator.name
        self.fingerprint = generator.fingerprint
        self.context_length = generator.context_length
        self.hits = 0
        self.calls = 0
        self._generator = generator
        self._cache = cache
        self._lock = threading.Lock()
        self._in_flight: dict[str, Future[Generation]] = {}

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        """As the generator's `generate`."""
        key = AnswerCache.key(self.fingerprint, prompt, max_tokens)
        with self._lock:
            others = self._in_flight.get(key)
            if others is None:
                ours = self._in_flight[key] = Future()
        if others is not None:
            answer = others.result()
            self._count(hit=True)
            return answer
        try:
            found = self._cache.get(key)
            self._count(hit=found is not None)
            if found is None:
                found = _storable(self._generator.generate(prompt, max_tokens))
                self._cache.put(key, found)
        except BaseException as error:
            ours.set_exception(error)
            raise
        else:
            ours.set_result(found)
            return found
        finally:
            with self._lock:
                del self._in_flight[key]

    def stream(self, prompt: str, max_tokens: int) -> Iterator[str]:
        """The same answer, in one piece: an answer can be kept only once it is whole."""
        yield self.generate(prompt, max_tokens).text

    def close(self) -> None:
        """Closes the generator; the cache, which others may share, stays open."""
        self._generator.close()

    def _count(self, hit: bool) -> None:
        with self._lock:
            self.hits += hit
            self.calls += not hit
