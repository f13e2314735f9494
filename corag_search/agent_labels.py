"""What an agent's labels were made with, and where its use differs from that."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SEARCH = ("retrieval", "candidates", "budget", "max_chunks", "selection", "final_rule")


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting in which an agent is used otherwise than its labels were made.

    Attributes:
        setting: Its name, as `label_settings` has it.
        labels: What the labels were made with; None where that is not recorded.
        used: What the agent is used with.
        recorded: Whether the agent records the setting.
    """

    setting: str
    labels: Any
    used: Any
    recorded: bool

    def __str__(self) -> str:
        return f"{self.setting} {_shown(self.labels)} (here {_shown(self.used)})"


def label_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What an agent records of how its labels were made.

    Args:
        config: Its `config.json`.

    Returns:
        Values of retrieval, candidates, budget, max_chunks, selection, final_rule, chunk_size (tokens), tokenizer,
        prompt, generator and generator_fingerprint; those alone that are recorded.
    """
    labels = _part(config, "labels")
    search, chunking, generator = (_part(labels, name) for name in ("search", "chunking", "generator"))
    if "candidates" in search:
        search = {"retrieval": "dense", **search}  # `corag label` leaves it out for dense candidates
    settings = {name: search[name] for name in _SEARCH if name in search}
    rest = {
        "chunk_size": chunking.get("chunk_size"),
        "tokenizer": chunking.get("tokenizer"),
        "prompt": labels.get("prompt"),
        "generator": generator.get("name"),
        "generator_fingerprint": generator.get("fingerprint"),
    }
    return settings | {name: value for name, value in rest.items() if value is not None}


def off_distribution(config: Mapping[str, Any], used: Mapping[str, Any]) -> list[Difference]:
    """In which settings a use differs from the labels; a setting that the agent does not record differs from any.

    Args:
        config: The agent's `config.json`.
        used: Values by the names of `label_settings`.

    Example:
        >>> config = {"labels": {"search": {"retrieval": "hybrid", "candidates": 20, "budget": 300}}}
        >>> for difference in off_distribution(config, {"retrieval": "dense", "budget": 300}):
        ...     print(difference)
        retrieval hybrid (here dense)
    """
    made_with = label_settings(config)
    return [
        Difference(name, made_with.get(name), value, name in made_with)
        for name, value in used.items()
        if name not in made_with or made_with[name] != value
    ]


class LabelWatch:
    """Warns, once, of an agent that is used otherwise than its labels were made. Safe to share between threads."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Watch over the agent with this `config.json`."""
        self._config = config
        self._told = False
        self._telling = threading.Lock()

    def compare(self, used: Mapping[str, Any], stacklevel: int = 1) -> None:
        """Warn where a use differs from what the agent records; what it does not record is not compared.

        Args:
            used: As of `off_distribution`.
            stacklevel: Of the warning, 1 being the caller.
        """
        differing = [] if self._told else [one for one in off_distribution(self._config, used) if one.recorded]
        with self._telling:
            if not differing or self._told:
                return
            self._told = True
        warnings.warn(
            f"the agent's labels were made with {', '.join(map(str, differing))}; what it predicts was not measured "
            "here: set what its labels had, or label and train an agent with your settings (said once)",
            stacklevel=1 + stacklevel,
        )


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = values.get(name)
    return part if isinstance(part, Mapping) else {}


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
