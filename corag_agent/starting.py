"""Starting a new agent from a trained one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from corag_agent.encoder_inputs import check_inputs
from corag_search.agent_format import PER_RERANKER, SETTINGS, SHARED
from corag_search.errors import InputError

if TYPE_CHECKING:
    from corag_agent.module import ConfigurationAgentModule


def start_from(path: str, module: ConfigurationAgentModule) -> dict[str, Any]:
    """Takes weights over from a checkpoint: layers of equal shape, and in the heads the rows of the same rerankers.

    Settings that a head predicted it predicts still, though the new table's grid has another range.

    Args:
        path: A .ckpt file that `corag fit` wrote.
        module: To be changed in place.

    Returns:
        The hyperparameters that the checkpoint holds: those of the module, and those of its data.

    Raises:
        InputError: The file is no such checkpoint, or its agent takes other inputs or another embedder's vectors.
    """
    from corag_agent.checkpoint import load_checkpoint  # which needs the module's class

    trained, state = load_checkpoint(path)
    if trained.hparams["embedder"] != module.hparams["embedder"]:
        raise InputError(
            f"init_from: the checkpoint was trained with embedder {trained.hparams['embedder']!r}, this agent has "
            f"{module.hparams['embedder']!r}; start from one for the same embedder, or leave init_from out"
        )
    check_inputs(trained.hparams["input_names"], module.hparams["input_names"])
    old, new = trained.encoder.state_dict(), module.encoder.state_dict()
    old |= _rescaled(old, trained.ranges, module.ranges)
    taken = {name: value for name, value in old.items() if name in new and value.shape == new[name].shape}
    if not any(name.startswith("layers.") and name.endswith(".weight") for name in taken):
        raise InputError(
            f"init_from: no layer of the checkpoint (hidden {trained.hparams['hidden']}) is as wide as this agent's "
            f"(hidden {module.hparams['hidden']}); use the same model.hidden, or leave init_from out"
        )
    before, after = trained.hparams["rerankers"], module.hparams["rerankers"]
    if before != after:
        kinds = {trained.hparams["settings_heads"], module.hparams["settings_heads"]}
        by_name = {"reranker_head": 1}
        if kinds != {SHARED}:  # its rows are some reranker's, not the same one's
            taken = {name: value for name, value in taken.items() if not name.startswith("settings_head")}
        if kinds == {PER_RERANKER}:
            by_name["settings_head"] = len(SETTINGS)
        for head, rows in by_name.items():
            for name in (f"{head}.weight", f"{head}.bias"):
                taken[name] = _rows_by_name(old[name], new[name], before, after, rows)
    module.encoder.load_state_dict({**new, **taken})
    module.seen = trained.seen
    return {name: value for name, value in state.items() if name.endswith("hyper_parameters")}


def _rescaled(
    old: Mapping[str, torch.Tensor],
    before: Mapping[str, tuple[float, float]],
    after: Mapping[str, tuple[float, float]],
) -> dict[str, torch.Tensor]:
    """The settings head for other ranges: its outputs are the settings scaled to [0, 1] by them."""
    (low, high), (new_low, new_high) = (
        torch.tensor([ranges[name] for name in SETTINGS], dtype=torch.float64).T for ranges in (before, after)
    )
    span = torch.where(new_high > new_low, new_high - new_low, 1.0)  # as of LabelGrid.scaled
    factor, shift = (high - low) / span, (low - new_low) / span
    weight, bias = (old[f"settings_head.{part}"].unflatten(0, (-1, len(SETTINGS))) for part in ("weight", "bias"))
    changed = {"weight": weight * factor[:, None], "bias": bias * factor + shift}
    return {f"settings_head.{part}": value.flatten(0, 1).float() for part, value in changed.items()}


def _rows_by_name(old: torch.Tensor, new: torch.Tensor, before: list[str], after: list[str], rows: int) -> torch.Tensor:
    """The new head, with the rows of the rerankers that the old one has too, where the widths agree."""
    made = new.clone()
    if old.shape[1:] == new.shape[1:]:
        for at, name in enumerate(after):
            if name in before:
                made[at * rows : (at + 1) * rows] = old[before.index(name) * rows : (before.index(name) + 1) * rows]
    return made
