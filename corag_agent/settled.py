"""Options of the model that a checkpoint settles: what is said otherwise of them would be passed over."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from corag_search.errors import InputError

_PLAIN = (bool, int, float, str)  # what a scheduler keeps as it was given; None it may have worked out
_PROGRESS = ("last_epoch",)


def check_settled(
    path: str,
    checkpoint: Mapping[str, Any],
    resolved: Mapping[str, Any],
    defaults: Mapping[str, Any],
    named: Collection[str],
) -> None:
    """Refuses options that were given and that the checkpoint has with another value.

    Args:
        path: Of the checkpoint.
        checkpoint: What it holds.
        resolved: Options of the model by dotted key, such as `optimizer.init_args.lr`.
        defaults: The same before anything was given; a file that repeats them gives nothing.
        named: Keys that stand on the command line, with or without `init_args`.

    Raises:
        InputError: There is such an option.
    """
    settled = _settled(checkpoint)
    for key, value in resolved.items():
        given = value != defaults.get(key) or not {key, key.replace(".init_args.", ".")}.isdisjoint(named)
        if value is None or not given or key not in settled:
            continue
        if _comparable(value) != _comparable(settled[key]):
            raise InputError(
                f"model.{key} is {value!r}, but checkpoint {path} was trained with {settled[key]!r}, which holds: "
                f"leave it out, or begin anew from those weights with --model.init_from {path} in place of --ckpt_path"
            )


def _settled(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """What is taken over from a checkpoint, keys as of the options."""
    found = dict(checkpoint["hyper_parameters"])
    for state in checkpoint.get("optimizer_states", ())[:1]:
        group = state["param_groups"][0]
        begun = {**group, "lr": group.get("initial_lr", group["lr"])}  # a scheduler has changed the rate since
        found |= {f"optimizer.init_args.{name}": value for name, value in begun.items()}
    for state in checkpoint.get("lr_schedulers", ())[:1]:
        kept = {name: value for name, value in state.items() if isinstance(value, _PLAIN) and name not in _PROGRESS}
        found |= {f"scheduler.init_args.{name}": value for name, value in kept.items()}
    return found


def _comparable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
