"""Options of the optimizer and scheduler, refused by name: torch's own messages name neither option nor remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from corag_search.errors import InputError

if TYPE_CHECKING:
    from corag_agent.module import ConfigurationAgentModule

_AT_LEAST_0 = ("lr", "eps", "weight_decay", "momentum", "lr_decay")
_OF_GROUPS = {"params", "initial_lr"}  # of a parameter group, and no option of the optimizer


def check_optimizer_options(optimizer: Any) -> None:
    """Refuses values that torch's optimizers do not take, or that make every weight infinite.

    Args:
        optimizer: As configured: `init_args` hold the options. Those of other names are not looked at.

    Raises:
        InputError: There is such a value.
    """
    options = dict(getattr(optimizer, "init_args", None) or {})
    for name in _AT_LEAST_0:
        value = options.get(name)
        if isinstance(value, int | float) and not 0 <= value < math.inf:
            raise InputError(f"model.optimizer.init_args.{name} must be a finite number, at least 0, got {value!r}")
    betas = options.get("betas")
    if isinstance(betas, list | tuple) and not all(0 <= value < 1 for value in betas):
        raise InputError(f"model.optimizer.init_args.betas must be numbers from 0 to below 1, got {list(betas)!r}")


def check_optimizer(model: ConfigurationAgentModule, checkpoint: Mapping[str, Any] | None = None) -> None:
    """Makes optimizer and scheduler once before anything is written.

    Args:
        model: With both configured.
        checkpoint: That training is to go on from; its optimizer's state fits no other kind.

    Raises:
        InputError: They refuse their options, or the checkpoint has the state of another optimizer.
    """
    try:
        made = model.configure_optimizers()
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"model.optimizer or model.scheduler refuses its options: {error}") from error
    optimizer = made["optimizer"] if isinstance(made, dict) else made
    for state in (checkpoint or {}).get("optimizer_states", ())[:1]:
        there, here = (set(one["param_groups"][0]) - _OF_GROUPS for one in (state, optimizer.state_dict()))
        if there != here:
            own, other = (", ".join(sorted(one)) or "no more" for one in (here - there, there - here))
            raise InputError(
                f"model.optimizer is {type(optimizer).__name__}, with {own}; the checkpoint has the state of another "
                f"one, with {other}: name that, or begin anew from those weights with --model.init_from in place of "
                "--ckpt_path"
            )
