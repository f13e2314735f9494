"""Writing so that a file or directory is either whole or not there."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from corag_search.errors import InputError

T = TypeVar("T")
_READING_TRIES = 10


@dataclass(frozen=True, slots=True)
class DirectoryFormat:
    """A kind of directory that we write.

    Attributes:
        name: Stands as `format` in its manifest.
        manifest: The JSON file in it that tells what it is.
        files: All files that belong to it, the manifest among them.
    """

    name: str
    manifest: str
    files: tuple[str, ...]


@contextmanager
def replacing_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary sibling to write to; on success it takes the place of `path`, on error it is removed.

    A link stays, and what it points to is replaced.

    Example:
        >>> target = Path(getfixture("tmp_path")) / "a.txt"
        >>> with replacing_file(target) as partial:
        ...     _ = partial.write_text("whole")
        >>> target.read_text(), [p.name for p in target.parent.iterdir()]
        ('whole', ['a.txt'])
    """
    target = _behind_links(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    with _named(target):
        handle, name = tempfile.mkstemp(prefix=_prefix(target), suffix=".partial", dir=target.parent)
    os.close(handle)
    partial = Path(name)
    try:
        with _named(target):
            yield partial
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.chmod(0o644)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def replacing_directory(path: str | os.PathLike[str], kind: DirectoryFormat) -> Iterator[Path]:
    """A temporary sibling directory to fill; on success it takes the place of `path`, on error it is removed.

    On Linux that is one step: at any moment one of the two is there whole. A process that is killed leaves the
    temporary one behind, `.{name}.….partial`. A link stays, and what it points to is replaced.

    Raises:
        InputError: As `check_replaceable`.
    """
    check_replaceable(path, kind)
    target = _behind_links(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _named(target):
        partial = Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=".partial", dir=target.parent))
    try:
        with _named(target):
            yield partial
            partial.chmod(0o755)
        if not target.exists():
            partial.rename(target)
            return
        if _exchanged(partial, target):
            return
        old = partial.with_suffix(".old")
        target.rename(old)
        try:
            partial.rename(target)
        except OSError:
            old.rename(target)
            raise
        shutil.rmtree(old)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _named(target: Path) -> Iterator[None]:
    """Errors of the system name what was to be written, where they name nothing or the temporary sibling."""
    temporary = str(target.with_name(_prefix(target)))
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or str(error.filename).startswith(temporary)):
            error.filename = str(target)
        raise


def _prefix(target: Path) -> str:
    """What the name of a temporary sibling begins with."""
    return f".{target.name}."


def _behind_links(path: str | os.PathLike[str]) -> Path:
    """Where something is, or will be: to rename over a link would leave what it points to as it was."""
    return Path(os.path.realpath(path))


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two directories in one step; False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (OSError, TypeError, AttributeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


@contextmanager
def changing_alone(path: str | os.PathLike[str]) -> Iterator[None]:
    """Around reading, changing and replacing a directory, so that no other process does so at the same time.

    The system ends it with the process. Where it has no such locks, nothing is done.

    Raises:
        InputError: Another process does so now.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    while True:
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError:  # not there: whoever reads it will say so
            yield
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_at(handle, path):  # replaced since it was opened
                continue
            yield
            return
        except BlockingIOError:
            raise InputError(f"another process is changing {path} now; wait until it has finished") from None
        finally:
            os.close(handle)


def is_at(handle: int, path: str | os.PathLike[str]) -> bool:
    """Whether an open file or directory is still the one that lies there."""
    try:
        return os.path.samestat(os.fstat(handle), Path(path).stat())
    except FileNotFoundError:
        return False


def read_unless_replaced(read: Callable[[], T], directory: Path, manifest: str) -> T:
    """Read a directory that `replacing_directory` writes; anew where it is replaced meanwhile.

    Its files are opened one after the other, so that without this some could be of the old one and some of the new.

    Args:
        read: Reads it, and raises what says that it is not whole.
        directory: Where it lies.
        manifest: Name of its manifest.

    Raises:
        InputError: It was replaced each time, or as `read`.
    """
    for _ in range(_READING_TRIES):
        written = _when_written(directory / manifest)
        try:
            found = read()
        except (InputError, FileNotFoundError):
            if _when_written(directory / manifest) == written:
                raise
        else:
            if _when_written(directory / manifest) == written:
                return found
    raise InputError(f"{directory} was replaced again and again while it was read; try again")


def _when_written(manifest: Path) -> tuple[int, int] | None:
    """What tells whether another directory took the place of the one that was there; None where there is none."""
    try:
        status = manifest.stat()
    except (OSError, ValueError):  # ValueError: a path with a null
        return None
    return status.st_ino, status.st_mtime_ns


def check_replaceable(path: str | os.PathLike[str], kind: DirectoryFormat) -> None:
    """Refuse to write over anything but an empty directory or one of this kind with nothing else in it.

    Raises:
        InputError: `path` is there and is something else, or holds further files, which would be lost.
    """
    target = Path(path)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        ours = json.loads((target / kind.manifest).read_text(encoding="utf-8")).get("format") == kind.name
    except (OSError, ValueError, AttributeError, RecursionError):
        ours = False
    if not ours:
        raise InputError(f"{target} is there and is no {kind.name}, so it is not overwritten; name another directory")
    foreign = sorted({file.name for file in target.iterdir()} - set(kind.files))
    if foreign:
        raise InputError(f"{target} also holds {', '.join(foreign)}, which would be lost; move that or name another")


def digest_of(values: object) -> str:
    """SHA-256 of plain values, in whatever order their keys stand."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
