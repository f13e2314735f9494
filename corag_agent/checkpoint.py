"""Reading the `.ckpt` files that `corag fit` writes."""

from __future__ import annotations

import io
from contextvars import Context
from pathlib import Path
from typing import Any

import torch

from corag_agent.module import ConfigurationAgentModule
from corag_search.errors import InputError

_ENTRIES = ("state_dict", "hyper_parameters", "epoch", "global_step", "pytorch-lightning_version")


def load_checkpoint(path: str | Path) -> tuple[ConfigurationAgentModule, dict[str, Any]]:
    """The trained module, and everything that the file holds. No code of the file runs.

    Raises:
        InputError: When the file is missing or not one that `corag fit` wrote.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"checkpoint {path} is a directory; name a file in it, such as checkpoints/best.ckpt")
    if not path.exists():
        raise InputError(f"checkpoint {path} does not exist; `corag fit` makes one")
    content = io.BytesIO(path.read_bytes())  # once: another file may take its place meanwhile
    try:
        state = torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:
        # Bytes of another kind make the reader fail in any way, and its advice is not ours.
        raise _foreign(path, "it is damaged or of another format") from error
    missing = [name for name in _ENTRIES if not isinstance(state, dict) or name not in state]
    if missing:
        raise _foreign(path, f"it has no {missing[0]}")
    try:
        # In a context of its own: while Lightning's command line makes a module, any other one that is made takes that
        # one's hyperparameters for its own.
        load = ConfigurationAgentModule.load_from_checkpoint
        content.seek(0)
        module = Context().run(load, content, map_location="cpu", weights_only=True)
    except (RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _foreign(path, "its weights and hyperparameters are not a configuration agent's") from error
    return module, state


def _foreign(path: Path, reason: str) -> InputError:
    return InputError(
        f"checkpoint {path} is not one that `corag fit` wrote: {reason}; name a file that it left, such as best.ckpt"
    )
