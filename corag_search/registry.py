"""Things that are known by name and imported only when asked for."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corag_search.errors import InputError


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a named thing is made.

    Attributes:
        module: Module to import; light, it imports heavy packages itself when it needs them.
        factory: Class in it. Its keyword parameters are the options.
        fixed: Parameters that the name decides.
    """

    module: str
    factory: str
    fixed: Mapping[str, Any] = field(default_factory=dict)


def create(kind: str, entries: Mapping[str, Entry], name: str, options: Mapping[str, Any]) -> Any:
    """Make the thing called `name`.

    Args:
        kind: One word for messages: "reranker".
        entries: All names known.
        name: One of them.
        options: Keyword arguments of its factory.

    Raises:
        InputError: Unknown name or option; the message lists what there is.
    """
    if name not in entries:
        raise InputError(f"unknown {kind} {name!r}; there are: {', '.join(entries)}")
    entry = entries[name]
    factory = getattr(importlib.import_module(entry.module), entry.factory)
    parameters = inspect.signature(factory).parameters
    allowed = [parameter for parameter in parameters if parameter not in entry.fixed]
    for option in options:
        if option not in allowed:
            raise InputError(
                f"{kind} {name!r} has no option {option!r}; it has: {', '.join(allowed) if allowed else 'none'}"
            )
    missing = [p for p in allowed if parameters[p].default is inspect.Parameter.empty and p not in options]
    if missing:
        raise InputError(f"{kind} {name!r} needs the option {missing[0]!r}; its options: {', '.join(allowed)}")
    return factory(**entry.fixed, **options)


def whole(name: str, value: object, least: int = 1) -> int:
    """The value as an int.

    Raises:
        InputError: It is no whole number of at least `least`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number, at least {least}, got {value!r}")
    return value
