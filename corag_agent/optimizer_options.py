"""Options of the optimizer and scheduler, refused by name: torch's own messages name neither option nor remedy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from corag_search.errors import InputError

if TYPE_CHECKING:
    from corag_agent.module import ConfigurationAgentModule

_AT_LEAST_0 = ("lr", "eps", "weight_decay", "momentum", "lr_decay")
_SHARES = ("betas",)  # of what was, kept at every step


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
    for name in _SHARES:
        values = options.get(name)
        if isinstance(values, list | tuple) and not all(0 <= value < 1 for value in values):
            raise InputError(
                f"model.optimizer.init_args.{name} must be numbers from 0 to below 1, got {list(values)!r}"
            )


def check_optimizer(model: ConfigurationAgentModule) -> None:
    """Makes optimizer and scheduler once before anything is written.

    Raises:
        InputError: They refuse their options.
    """
    try:
        model.configure_optimizers()
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"model.optimizer or model.scheduler refuses its options: {error}") from error
