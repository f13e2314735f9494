"""Things that are known by name and imported only when asked for."""

from __future__ import annotations

import importlib
import inspect
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import numpy as np

from corag_search.errors import InputError
from corag_search.texts import shown

E = TypeVar("E", bound=StrEnum)
_KINDS = {float: "a number", int: "a whole number", str: "a string", bool: "true or false", NoneType: "null"}


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a named thing is made.

    Attributes:
        module: Module to import; light, it imports heavy packages itself when it needs them.
        factory: Class in it. Its keyword parameters are the options; their annotations say which types are allowed.
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
        InputError: Unknown name or option, or a value of another type; the message lists what there is.
    """
    if not isinstance(name, str) or name not in entries:
        raise InputError(f"unknown {kind} {shown(name)}; there are: {', '.join(entries)}")
    entry = entries[name]
    factory = getattr(importlib.import_module(entry.module), entry.factory)
    parameters = inspect.signature(factory, eval_str=True).parameters
    allowed = [parameter for parameter in parameters if parameter not in entry.fixed]
    for option in options:
        if option not in allowed:
            raise InputError(
                f"{kind} {name!r} has no option {shown(option)}; it has: {', '.join(allowed) if allowed else 'none'}"
            )
    missing = [p for p in allowed if parameters[p].default is inspect.Parameter.empty and p not in options]
    if missing:
        raise InputError(f"{kind} {name!r} needs the option {missing[0]!r}; its options: {', '.join(allowed)}")
    values = {option: _plain(value) for option, value in options.items()}
    for option, value in values.items():
        wanted = parameters[option].annotation
        if not _fits(value, wanted):
            raise InputError(f"{kind} {name!r}: {option} must be {_described(wanted)}, got {shown(value)}")
    return factory(**entry.fixed, **values)


def whole(name: str, value: object, least: int = 1, unit: str = "", most: int | None = None) -> int:
    """The value, of any integer type, as an int.

    Args:
        name: For the message.
        value: What was given.
        least: Smallest value allowed.
        unit: What is counted, for the message: "tokens".
        most: Greatest value allowed.

    Raises:
        InputError: It is no whole number of at least `least` and at most `most`.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        counted = f"a whole number of {unit}" if unit else "a whole number"
        raise InputError(f"{name} must be {counted}, at least {least}, got {shown(value)}")
    if most is not None and number > most:
        raise InputError(f"{name} must be at most {most:,}, got {number:,}")
    return number


def one_of(name: str, value: str, kind: type[E]) -> E:
    """The member of a closed choice that has this value.

    Raises:
        InputError: There is none; the message, which begins with the name, lists what there is.
    """
    try:
        return kind(value)
    except ValueError:
        raise InputError(f"{name} must be one of {', '.join(kind)}, got {shown(value)}") from None


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own number, a path as a string."""
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value has the type that an annotation asks for; an annotation that is not known here allows all."""
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    if isinstance(value, bool) and kind in (float, int):
        return False
    if kind is float:
        return isinstance(value, int | float)
    if kind in _KINDS:
        return isinstance(value, kind)
    if get_origin(kind) is Sequence:
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str | bytes)
            and all(_fits(item, get_args(kind)[0]) for item in value)
        )
    return isinstance(value, Mapping) if get_origin(kind) is Mapping else True


def _described(kind: Any) -> str:
    """An annotation in words, as they suit a YAML file."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_described(one) for one in get_args(kind))
    if get_origin(kind) is Sequence:
        return "a list"
    return "a mapping" if get_origin(kind) is Mapping else _KINDS[kind]
