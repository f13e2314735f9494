"""Configurations of `corag fit`, nested as in its YAML files, for commands that run it several times."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from corag_agent.training import training_cli
from corag_search.errors import InputError
from corag_search.files import replacing_file

CONFIG = "config.fit.yaml"  # as `corag fit` calls the one that it writes


def resolved_config(files: Sequence[str], config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that `corag fit` resolves to, without its `output`.

    Args:
        files: Configuration files of `corag fit`, a later one above an earlier one.
        config: What stands above them, nested.

    Raises:
        InputError: `corag fit` would refuse it.
    """
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        above = Path(folder) / CONFIG
        write_config(config, above)
        given = [word for path in (*files, str(above)) for word in ("--config", path)]
        try:
            training_cli(["fit", *given, "--print_config"])
        except InputError as error:  # the file is ours: the user gave what is in it
            raise InputError(str(error).removeprefix(f"{above}: ")) from error
    resolved = yaml.safe_load(printed.getvalue())
    del resolved["output"]
    return resolved


def check_one_device(config: Mapping[str, Any], what: str) -> None:
    """Refuses a resolved configuration that trains on several devices (InputError); `what` trains on one."""
    devices = config["trainer"]["devices"]
    if devices not in (1, "1") and not (isinstance(devices, list) and len(devices) == 1):
        raise InputError(
            f"trainer.devices must be 1 or one number in a list, got {devices!r}: {what} trains on one device"
        )


def write_config(config: Mapping[str, Any], path: Path) -> None:
    """Writes a configuration of `corag fit`."""
    with replacing_file(path) as partial:
        partial.write_text(yaml.safe_dump(dict(config), sort_keys=False), encoding="utf-8")


@contextlib.contextmanager
def without_repeated_warnings() -> Iterator[None]:
    """What the data or the options give cause to warn of is said once, though the figures in it differ by trial."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        new = record.msg not in said
        said.add(record.msg)
        return new

    loggers = [logging.getLogger(name) for name in ("corag_agent.datamodule", "corag_agent.module")]
    for logger in loggers:
        logger.addFilter(is_new)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_new)


def overridden(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the nested configuration with the values of dotted keys; sections that are missing are made.

    Raises:
        InputError: A key is said to be within another one that has a value of its own.
    """
    result = copy.deepcopy(dict(config))
    for key, value in values.items():
        *sections, name = key.split(".")
        section = result
        for each in sections:
            section = section.setdefault(each, {})
            if not isinstance(section, dict):
                raise InputError(f"{key} cannot be set, since {each} is {section!r}; leave one of the two out")
        section[name] = copy.deepcopy(value)
    return result


def leaves(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a nested configuration by dotted keys; an empty section is a value."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        nested = isinstance(value, Mapping) and value
        flat |= leaves(value, f"{prefix}{name}.") if nested else {prefix + name: value}
    return flat


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    """Dotted keys at which two nested configurations differ."""
    first, second = leaves(left), leaves(right)
    return [key for key in {**first, **second} if key not in first or key not in second or first[key] != second[key]]
