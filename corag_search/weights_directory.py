"""A directory of weights that inference loads: safetensors, JSON and a card; no code in it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from corag_search.errors import InputError
from corag_search.files import DirectoryFormat, digest_of, read_unless_replaced, replacing_directory

WEIGHTS_FILE, CONFIG_FILE, CARD_FILE = "model.safetensors", "config.json", "README.md"
CHECKSUM = "config_sha256"  # of the other entries of a configuration; those of before it was added lack it


@dataclass(frozen=True, slots=True)
class WeightsFormat:
    """A kind of such a directory.

    Attributes:
        name: Stands as `format` in its `config.json`.
        versions: Of the format, readable; the last one is written.
        what: It is called in messages: "checkpoint".
        command: That makes one: "corag export".
        further: Files that may lie beside weights, configuration and card; inference leaves them unread.
    """

    name: str
    versions: tuple[int, ...]
    what: str
    command: str
    further: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """All that may lie in one."""
        return (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE, *self.further)

    @property
    def directory(self) -> DirectoryFormat:
        """How such a directory is told from others when it is replaced."""
        return DirectoryFormat(self.name, CONFIG_FILE, self.files)


def read_weights(path: str | Path, kind: WeightsFormat) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors by name, and the configuration; anew where another process replaces the directory meanwhile.

    Raises:
        InputError: A file is missing, unreadable or changed since it was written, or the format is another.
    """
    root = Path(path)
    return read_unless_replaced(lambda: _read(root, kind), root, CONFIG_FILE)


def _read(path: Path, kind: WeightsFormat) -> tuple[dict[str, Any], dict[str, Any]]:
    files = {name: path / name for name in (CONFIG_FILE, WEIGHTS_FILE)}
    for name, file in files.items():
        if not file.is_file():
            raise InputError(f"{kind.what} {path} has no {name}; make one with `{kind.command}`")
    try:
        config = json.loads(files[CONFIG_FILE].read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{kind.what} {path}: {CONFIG_FILE} is not JSON ({error}); export it again") from None
    if not isinstance(config, dict) or config.get("format") != kind.name:
        raise InputError(f"{kind.what} {path}: {CONFIG_FILE} is not that of a {kind.name}; export one")
    if config.get("format_version") not in kind.versions:
        raise InputError(
            f"{kind.what} {path} has format version {config.get('format_version')!r}, readable are "
            f"{', '.join(map(str, kind.versions))}; export it again with this version of corag"
        )
    weights = files[WEIGHTS_FILE].read_bytes()
    checksum = hashlib.sha256(weights).hexdigest()
    if checksum != config.get("sha256"):
        raise InputError(
            f"{kind.what} {path}: {WEIGHTS_FILE} has SHA-256 {checksum[:12]}…, {CONFIG_FILE} says "
            f"{str(config.get('sha256'))[:12]}…; the file is damaged or of another export, fetch it again"
        )
    try:
        return load_tensors(weights), config
    except (SafetensorError, KeyError) as error:  # KeyError: a type of number that NumPy does not have
        raise InputError(f"{kind.what} {path}: {WEIGHTS_FILE} cannot be read ({error}); export it again") from error


def check_unchanged(config: Mapping[str, Any]) -> None:
    """Refuses a configuration that was changed since it was written; last, since other messages say more.

    Raises:
        InputError: Its checksum is of other entries.
    """
    if CHECKSUM in config and config[CHECKSUM] != _checksum(config):
        raise InputError(f"{CONFIG_FILE} was changed since it was written ({CHECKSUM} differs); fetch or make it again")


def _checksum(config: Mapping[str, Any]) -> str:
    return digest_of({name: value for name, value in config.items() if name != CHECKSUM})


def write_weights(
    path: str | Path,
    kind: WeightsFormat,
    weights: bytes,
    config: Mapping[str, Any],
    card: str,
    check: Callable[[Path], object],
    further: Mapping[str, bytes] | None = None,
) -> None:
    """Writes a directory, all or nothing.

    Args:
        path: The directory; one of this kind that is there is replaced.
        kind: Of it.
        weights: As safetensors saves them.
        config: The rest of `config.json`.
        card: What the directory is, as Markdown.
        check: Loads it as inference does: what that would refuse is never put in place.
        further: Content of the format's further files that are to be written, by name.

    Raises:
        InputError: `path` is something else.
    """
    head = {"format": kind.name, "format_version": kind.versions[-1]}
    whole = {**head, **config, "sha256": hashlib.sha256(weights).hexdigest()}
    whole[CHECKSUM] = _checksum(json.loads(json.dumps(whole)))
    with replacing_directory(path, kind.directory) as partial:
        (partial / WEIGHTS_FILE).write_bytes(weights)
        (partial / CONFIG_FILE).write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (partial / CARD_FILE).write_text(card, encoding="utf-8")
        for name, content in (further or {}).items():
            (partial / name).write_bytes(content)
        check(partial)
