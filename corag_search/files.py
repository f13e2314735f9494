"""Writing so that a file or directory is either whole or not there."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corag_search.errors import InputError


@contextmanager
def replacing_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary sibling to write to; on success it takes the place of `path`, on error it is removed.

    Example:
        >>> target = Path(getfixture("tmp_path")) / "a.txt"
        >>> with replacing_file(target) as partial:
        ...     _ = partial.write_text("whole")
        >>> target.read_text(), [p.name for p in target.parent.iterdir()]
        ('whole', ['a.txt'])
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def replacing_directory(path: str | os.PathLike[str], marker: str) -> Iterator[Path]:
    """A temporary sibling directory to fill; on success it takes the place of `path`, on error it is removed.

    Args:
        path: The directory to make. An existing one is replaced only when it is empty or holds `marker`,
            so that a mistyped path costs nothing.
        marker: Name of a file that tells a directory of this kind.

    Raises:
        InputError: `path` is there and is something else.
    """
    target = Path(path)
    check_replaceable(target, marker)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
    try:
        yield partial
        partial.chmod(0o755)
        if target.exists():
            old = partial.with_suffix(".old")
            target.rename(old)
            partial.rename(target)
            shutil.rmtree(old)
        else:
            partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_replaceable(path: str | os.PathLike[str], marker: str) -> None:
    """Refuse what `replacing_directory` would refuse, before work is done for it.

    Raises:
        InputError: `path` is there and is neither empty nor a directory that holds `marker`.
    """
    target = Path(path)
    if target.exists() and not (target.is_dir() and (not any(target.iterdir()) or (target / marker).is_file())):
        raise InputError(f"{target} is there and has no {marker}; name a new directory, or one made by this command")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
