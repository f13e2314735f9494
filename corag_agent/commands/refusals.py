"""What a user reads of a mistyped option or value: a line that names it, and what would do."""

from __future__ import annotations

import re
from argparse import SUPPRESS
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from difflib import SequenceMatcher
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from jsonargparse import ArgumentParser

_ALIKE = 0.7  # share of equal letters from which a name may be meant
_SHOWN = 60  # characters of a value that are told
_LISTED = 12  # options at most that are listed where none is alike
_ONE: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    Path: "a path",
    NoneType: "null",
    dict: "names with values, as in {name: value}",
}
_MANY: Mapping[Any, str] = {int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}
_CLASS = "a class {class_path: NAME}"


def refusal(message: str, parser: ArgumentParser) -> str:
    """A message of the parser's library in our words; one that is of no known form stays.

    Args:
        message: Why arguments or a file were refused.
        parser: That refused them.
    """
    for form, told in _FORMS.items():
        if found := re.fullmatch(form, message.strip(), re.DOTALL):
            return told(parser, *found.groups())
    return message


def expected(kind: Any) -> str:
    """What a value of a type looks like.

    Example:
        >>> expected(int | None), expected(list[str]), expected(Literal["int8", "float16"])
        ('a whole number or null', 'a list of texts', 'int8 or float16')
    """
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        told = " or ".join(map(expected, parts))
        return " or ".join(dict.fromkeys(told.split(" or ")))
    if origin is Literal:
        return " or ".join(map(str, parts))
    if origin in (list, tuple, Iterable):
        several = "groups of options" if parts and is_dataclass(parts[0]) else "classes"
        return f"a list of {_MANY.get(parts[0], several)}" if parts else "a list"
    return "a group of options" if is_dataclass(kind) else _ONE.get(origin, _CLASS)


def _unknown_argument(parser: ArgumentParser, word: str) -> str:
    if word.startswith("-"):
        return f"there is no option {word.split('=')[0]}; {_instead(parser, word, '--')}"
    return (
        f"{word!r} belongs to no option: flags take no value, and a text with spaces needs quotes; {_all_shown(parser)}"
    )


def _unknown_key(parser: ArgumentParser, key: str) -> str:
    return f"there is no option {key}; {_instead(parser, key)}"


def _unknown_in_group(parser: ArgumentParser, group: str, key: str) -> str:
    return f"{group} has no option {key}; {_instead(parser, f'{group}.{key}')}"


def _instead(parser: ArgumentParser, word: str, sign: str = "") -> str:
    """The options that may be meant; where none is alike those of its group, if they are few."""
    names = [action.dest for action in parser._actions if action.help != SUPPRESS]
    meant = word.split("=")[0].lstrip("-").replace("-", "_")
    likeness = {name: _likeness(meant, name) for name in names}
    best = max(likeness.values(), default=0)
    if best >= _ALIKE:
        return f"did you mean {' or '.join(sign + name for name, own in likeness.items() if own == best)}?"
    group = meant.rpartition(".")[0]
    own = [sign + name for name in names if name.rpartition(".")[0] == group]
    return f"there are: {', '.join(own)}" if 0 < len(own) <= _LISTED else _all_shown(parser)


def _all_shown(parser: ArgumentParser) -> str:
    program = parser.prog.replace("[options] ", "")  # which jsonargparse puts before a subcommand
    return f"`{program} --help` shows all"


def _likeness(word: str, name: str) -> float:
    """Of the last parts, as `budget` may stand for `search.budget`, and a little more in the same group."""
    (group, _, own), (other_group, _, other) = word.rpartition("."), name.rpartition(".")
    return SequenceMatcher(None, own, other).ratio() + (0.01 if group == other_group else 0)


def _needs_value(parser: ArgumentParser, option: str) -> str:
    return f"{option} needs a value; one that begins with a dash is written {option}=VALUE"


def _takes_none(parser: ArgumentParser, option: str, value: str) -> str:
    return f"{option} is a flag and takes no value, got {value}"


def _unusable(parser: ArgumentParser, key: str, reason: str) -> str:
    """A value that is refused, of an option or of one within it."""
    if inner := re.search(_OF_CLASS, reason, re.MULTILINE):
        return f"{key}: " + re.sub("the following arguments are required: (.+)", r"\1 is missing", inner[1])
    if inner := re.search(
        r'^\s*- (Parser key "[^"]+":\s*(?!Unable to load config).+)', reason, re.DOTALL | re.MULTILINE
    ):
        return refusal(inner[1], parser)  # of a file that holds a group of options
    if loaded := re.match(r"Unable to load config (\S+)", reason):
        return no_group(key, loaded[1].strip("'\""))
    if missing := re.match(r"File does not exist: '(.+)'", reason):
        return f"{key}: there is no file {missing[1]}"
    kind = next((getattr(own, "_typehint", None) for own in parser._actions if own.dest == key), None)
    got = next(filter(None, (re.search(f"{name}: (.*)", reason, re.DOTALL) for name in _GIVEN)), None)
    if kind is None or got is None:
        return f"{key}: {reason}"
    return not_of_kind(key, expected(kind), got[1])


def not_of_kind(key: str, kind: str, value: Any) -> str:
    """That an option must be something else than `value`, which may be its text."""
    text = "null" if value in (None, "None") else str(value)
    plain = text == "null" or re.fullmatch(r"[\[{].*|[-+]?[\d.]+", text, re.DOTALL)
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return f"{key} must be {kind}, got {shown if plain else repr(shown)}"


def no_group(key: str, value: Any) -> str:
    """That an option is a group of options, and no single value."""
    return not_of_kind(key, "a group of options, as in {name: value}, or the name of such a file", value)


def _no_yaml(parser: ArgumentParser, reason: str) -> str:
    places = re.findall(r"line \d+, column \d+", reason)
    (*_, problem) = (line for line in reason.splitlines() if not line.lstrip().startswith("in "))
    return f"not readable as YAML: {problem.strip()}{f' ({places[-1]})' if places else ''}"


def _no_options(parser: ArgumentParser, content: str) -> str:
    if not content:
        return "it is empty; it must hold options by name, as in `name: value`"
    return not_of_kind("a configuration", "options by name, as in `name: value`", " ".join(content.split()))


# Before what is refused of a class: by a parser of its own, whose message is in our words, or by Python.
_OF_CLASS = (
    r"(?:Problem with given class_path '[^']+':|expects a function or a callable class:(?! Expected))"
    r"\s*(.+?)(?:\. Got value: .*)?$"
)
_GIVEN = ("Got value", "Given value", "Expected a dot import path string")  # before the value

_Told = Callable[..., str]
# Of jsonargparse and argparse.
_FORMS: Mapping[str, _Told] = {
    r"unrecognized arguments: (\S+).*": _unknown_argument,
    r"Option '([^']+)' is not accepted": _unknown_key,
    r"Group '([^']+)' does not accept option '([^']+)'": _unknown_in_group,
    r"argument (--\S+): expected (?:one|at least one) argument": _needs_value,
    r"argument (--\S+): ignored explicit argument (.+)": _takes_none,
    r'Parser key "([^"]+)"(?: element \d+)?:\s*(.+)': _unusable,
    r"Problems parsing config: (.+)": _no_yaml,
    r"Unexpected config:\s*(.*)": _no_options,
}
