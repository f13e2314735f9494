"""Files that travel with the code: configurations and agent checkpoints."""

from __future__ import annotations

from pathlib import Path

from corag_search.errors import InputError

_PACKAGE = Path(__file__).parent


def shipped(folder: str) -> Path:
    """The folder `configs` or `checkpoints`: inside the package in a wheel, beside it in a checkout."""
    inside = _PACKAGE / folder
    return inside if inside.is_dir() else _PACKAGE.parent / folder


def find_checkpoint(name: str) -> Path:
    """A directory of that path, or else the shipped checkpoint of that name.

    Raises:
        InputError: Neither is there.
    """
    if Path(name).is_dir():
        return Path(name)
    folder = shipped("checkpoints")
    if (folder / name).is_dir():
        return folder / name
    there = sorted(path.name for path in folder.glob("*") if path.is_dir()) if folder.is_dir() else []
    raise InputError(
        f"there is no agent checkpoint {name!r}; give the directory that `corag export` wrote, "
        f"or one of the shipped: {', '.join(there) or 'none'}"
    )
