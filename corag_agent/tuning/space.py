"""The search space: which options of `corag fit` are varied, and between what."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from corag_search.errors import InputError

_FIELDS = {
    "float": ("type", "low", "high", "log", "step"),
    "int": ("type", "low", "high", "log", "step"),
    "categorical": ("type", "choices"),
}
_EXAMPLE = "such as model.margin: {type: float, low: 0.1, high: 2.0}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One option that is varied.

    Attributes:
        key: The option's dotted name in the configuration of `corag fit`.
        distribution: What Optuna draws from. Choices that are lists or mappings stand there as JSON text.
        choices: The choices by what stands for them in the distribution; empty unless categorical.
    """

    key: str
    distribution: BaseDistribution
    choices: Mapping[Any, Any]

    @classmethod
    def from_dict(cls, key: str, given: Any) -> Parameter:
        """Reads `{type: float | int, low, high, log, step}` or `{type: categorical, choices}`.

        Raises:
            InputError: A field is missing, unknown or out of its range.
        """
        if not isinstance(key, str):
            raise InputError(f"space: {key!r} is no option of `corag fit`; name one, {_EXAMPLE}")
        kind = given.get("type") if isinstance(given, Mapping) else None
        if kind not in _FIELDS:
            raise InputError(f"space: {key} needs a type, one of {', '.join(_FIELDS)}, got {given!r}; {_EXAMPLE}")
        if unknown := [name for name in given if name not in _FIELDS[kind]]:
            raise InputError(f"space: {key} has {unknown[0]!r}; a {kind} takes {', '.join(_FIELDS[kind])}")
        if kind == "categorical":
            return _categorical(key, given.get("choices"))
        return _number(key, kind, given)

    def value(self, drawn: Any) -> Any:
        """The option's value for what was drawn."""
        return self.choices[drawn] if self.choices else drawn

    def extremes(self) -> list[Any]:
        """All choices, or the two ends of the range."""
        if self.choices:
            return list(self.choices.values())
        return [self.distribution.low, self.distribution.high]  # type: ignore[attr-defined]


def _categorical(key: str, choices: Any) -> Parameter:
    if not isinstance(choices, list) or not choices:
        raise InputError(f"space: {key} needs choices, a list of at least one, got {choices!r}")
    labelled = {json.dumps(choice) if isinstance(choice, list | dict) else choice: choice for choice in choices}
    if len(labelled) < len(choices):  # Python, like Optuna, takes 1, 1.0 and true for the same
        raise InputError(f"space: two choices of {key} are equal: {choices!r}; leave one out")
    return Parameter(key, CategoricalDistribution(list(labelled)), labelled)


def _number(key: str, kind: str, given: Mapping[str, Any]) -> Parameter:
    whole = kind == "int"
    for name in ("low", "high"):
        if not _is_number(given.get(name), whole):
            text = "a whole number" if whole else "a finite number"
            raise InputError(f"space: {name} of {key} must be {text}, got {given.get(name)!r}")
    low, high, log, step = given["low"], given["high"], given.get("log", False), given.get("step")
    if low > high:
        raise InputError(f"space: low of {key} must be at most high, got {low} and {high}")
    if not isinstance(log, bool):
        raise InputError(f"space: log of {key} must be true or false, got {log!r}")
    if log and low <= 0:
        raise InputError(f"space: low of {key} must be positive for a logarithmic scale, got {low}")
    if step is not None and (log or not _is_number(step, whole) or step <= 0):
        reason = "must be left out on a logarithmic scale" if log else "must be a positive number of its type"
        raise InputError(f"space: step of {key} {reason}, got {step!r}")
    if whole:
        return Parameter(key, IntDistribution(low, high, log=log, step=step or 1), {})
    return Parameter(key, FloatDistribution(float(low), float(high), log=log, step=step), {})


def _is_number(value: Any, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    return math.isfinite(value)


class SearchSpace:
    """All options that are varied.

    Attributes:
        parameters: By key, in the order given.
        given: As it was read, plain values.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Reads the space.

        Raises:
            InputError: It is empty or a parameter is unusable.
        """
        if not given:
            raise InputError(f"space is empty: name at least one option of `corag fit`, {_EXAMPLE}")
        self.parameters = {key: Parameter.from_dict(key, value) for key, value in given.items()}
        self.given = copy.deepcopy(dict(given))

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """What Optuna draws from, by key."""
        return {key: parameter.distribution for key, parameter in self.parameters.items()}

    def values(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """The options' values by key, for a trial's parameters."""
        return {key: self.parameters[key].value(value) for key, value in drawn.items()}

    def check_keys(self, config: Mapping[str, Any]) -> None:
        """Refuses keys that a resolved configuration does not have.

        Raises:
            InputError: There is such a key; the nearest ones are named.
        """
        known = list(_dotted(config))
        for key in self.parameters:
            if key not in known:
                near = get_close_matches(key, known, n=3, cutoff=0.4)
                hint = f"did you mean {' or '.join(near)}?" if near else "`corag fit --print_config` shows them"
                raise InputError(f"space: {key} is no option of `corag fit` with these settings; {hint}")

    def probes(self) -> list[dict[str, Any]]:
        """Few combinations, by key, in which every choice and every end of a range occurs."""
        extremes = {key: parameter.extremes() for key, parameter in self.parameters.items()}
        longest = max(map(len, extremes.values()))
        return [{key: ends[i % len(ends)] for key, ends in extremes.items()} for i in range(longest)]


def _dotted(config: Mapping[str, Any], prefix: str = "") -> list[str]:
    keys = []
    for name, value in config.items():
        keys.append(prefix + name)
        if isinstance(value, Mapping):
            keys += _dotted(value, f"{prefix}{name}.")
    return keys
