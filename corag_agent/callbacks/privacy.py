"""What a logger may be told of this machine: names, but no folders."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any


def without_folders(value: Any) -> Any:
    """The value with each absolute path in it cut to its last part, and the home folder elsewhere to `~`.

    Args:
        value: Plain JSON or YAML values.

    Example:
        >>> without_folders({"labels": "/data/private/a.parquet", "output": "runs/agent", "epochs": 60})
        {'labels': 'a.parquet', 'output': 'runs/agent', 'epochs': 60}
    """
    if isinstance(value, dict):
        return {key: without_folders(part) for key, part in value.items()}
    if isinstance(value, list):
        return [without_folders(part) for part in value]
    if not isinstance(value, str):
        return value
    for flavour in (PurePosixPath, PureWindowsPath):
        path = flavour(value)
        if path.is_absolute() or value.startswith("~"):
            return path.name
    home = str(Path.home())
    return value.replace(home, "~") if len(home) > 1 else value


def recordable(path: Path) -> Path | None:
    """The path relative to the current folder, as a record may name it; None where even that names the home folder.

    Whatever reads the record, as `wandb sync` does, finds the file from the same current folder.
    """
    relative = os.path.relpath(path)
    return None if str(Path.home()) in f"{os.sep}{relative}" else Path(relative)
