"""Files that travel with the code: configurations and agent checkpoints."""

from __future__ import annotations

from pathlib import Path

from corag_search.errors import InputError
from corag_search.hub import fetch_agent

HUB = "hub:"
_PACKAGE = Path(__file__).parent


def shipped(folder: str) -> Path:
    """The folder `configs` or `checkpoints`: inside the package in a wheel, beside it in a checkout."""
    inside = _PACKAGE / folder
    return inside if inside.is_dir() else _PACKAGE.parent / folder


def find_checkpoint(name: str) -> Path:
    """A directory of that path, or else the shipped checkpoint of that name, or what stands on the model hub.

    Args:
        name: A path, a name, or hub:OWNER/NAME with @REVISION or without.

    Raises:
        InputError: None of them is there.
    """
    if name.startswith(HUB):
        repository, _, revision = name.removeprefix(HUB).partition("@")
        return fetch_agent(repository, revision or None)
    if Path(name).is_dir():
        return Path(name)
    folder = shipped("checkpoints")
    if (folder / name).is_dir():
        return folder / name
    there = sorted(path.name for path in folder.glob("*") if path.is_dir()) if folder.is_dir() else []
    raise InputError(
        f"there is no agent checkpoint {name!r}; give the directory that `corag export` wrote, {HUB}OWNER/NAME, "
        f"or one of the shipped: {', '.join(there) or 'none'}"
    )
