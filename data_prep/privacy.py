"""What a logger or a published result may be told of this machine: names, but no folders."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

_KIND = re.compile(r"[\w.+-]+:")


def without_folders(value: Any) -> Any:
    """The value with each absolute path in it cut to its last part, and the home folder elsewhere to `~`.

    A path may stand behind a kind, as in `squad:/data/dev.json`; URLs stay.

    Args:
        value: Plain JSON or YAML values; tuples become lists.

    Example:
        >>> without_folders({"labels": "/data/private/a.parquet", "data": "jsonl:/data/corpus", "output": "runs/agent"})
        {'labels': 'a.parquet', 'data': 'jsonl:corpus', 'output': 'runs/agent'}
    """
    if isinstance(value, Mapping):
        return {key: without_folders(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(part) for part in value]
    return _without_folders(value) if isinstance(value, str) else value


def _without_folders(text: str) -> str:
    if text.startswith("~") or PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute():
        return PureWindowsPath(text).name  # it splits at both kinds of slashes
    if (behind := _KIND.match(text)) and not text.startswith("//", behind.end()):
        return behind[0] + _without_folders(text[behind.end() :])
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def recordable(path: Path) -> Path | None:
    """The path relative to the current folder, as a record may name it; None where even that names the home folder.

    Whatever reads the record, as `wandb sync` does, finds the file from the same current folder.
    """
    relative = os.path.relpath(path)
    return None if str(Path.home()) in f"{os.sep}{relative}" else Path(relative)
