"""From a training checkpoint to the directory that inference loads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from corag_agent.card import model_card
from corag_agent.checkpoint import load_checkpoint
from corag_agent.export_evaluation import evaluate_export
from corag_agent.module import OF_DATA, ConfigurationAgentModule
from corag_agent.onnx_graph import onnx_model
from corag_search.agent import ConfigurationAgent
from corag_search.agent_format import AGENT, ONNX_FILE, SETTINGS
from corag_search.files import check_replaceable
from corag_search.weights_directory import write_weights


def export(
    checkpoint: str | Path,
    out: str | Path,
    metrics: Mapping[str, float] | None = None,
    licence: str = "apache-2.0",
    *,
    labels: str | Path | None = None,
    split: str = "test",
    onnx: bool = False,
    seen: bool = True,
) -> Path:
    """Writes `model.safetensors`, `config.json` and a model card, all or nothing.

    The same checkpoint, measured on the same labels, gives the same bytes.

    Args:
        checkpoint: A `.ckpt` of `corag fit`.
        out: Directory to make; a previous export there is replaced.
        metrics: Results to put on the card, such as `{"test/rougeL": 0.61}`, beside those on the validation split that
            the checkpoint holds.
        licence: Of the weights, as an SPDX name in lower case.
        labels: A label table; what is exported is compared on it with rivals and oracles, for the card.
        split: Of the table, to compare on.
        onnx: Whether to write `model.onnx` too (`corag_agent.onnx_graph`).
        seen: Whether to record which questions the agent was trained on (`corag_agent.seen`), where that is known.

    Returns:
        The directory.

    Raises:
        InputError: When the checkpoint is missing or not one of ours, the labels do not fit it, or `out` is anything
            but a previous export.
    """
    checkpoint, out = Path(checkpoint), Path(out)
    check_replaceable(out, AGENT.directory)  # before the work, not only at its end
    module, state = load_checkpoint(checkpoint)
    tensors = {name: tensor.contiguous() for name, tensor in sorted(module.encoder.state_dict().items())}
    config = _config(module, state, metrics)
    if seen and module.seen is not None:
        config["seen"] = module.seen.to_dict()
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    if labels is not None:
        evaluation = evaluate_export(ConfigurationAgent(arrays, config), labels, split)
        config["metrics"] |= evaluation.metrics
        config["evaluation"] = evaluation.to_dict()
    further = {ONNX_FILE: onnx_model(arrays, config)} if onnx else {}
    card = model_card(config, licence, further)
    write_weights(out, AGENT, save(tensors), config, card, check=ConfigurationAgent.load, further=further)
    return out


def _config(
    module: ConfigurationAgentModule, state: Mapping[str, Any], metrics: Mapping[str, float] | None
) -> dict[str, Any]:
    given = module.hparams
    hyperparameters = {
        key: value
        for key, value in {**state.get("datamodule_hyper_parameters", {}), **given}.items()
        if key not in OF_DATA and not key.startswith("_")
    }
    return {
        "rerankers": list(given["rerankers"]),
        "settings": list(SETTINGS),
        "ranges": {name: list(module.ranges[name]) for name in SETTINGS},
        "layers": module.encoder.widths,
        "inputs": list(given["input_names"]),
        "settings_heads": given["settings_heads"],
        "embedder": given["embedder"],
        "calibration": {"temperature": module.calibration.temperature},
        "fallback": {"threshold": module.calibration.threshold, **module.fallback_configuration},
        "grid": given["grid"],
        "labels": given["label_fingerprint"],
        "training": {
            "epochs": _epochs(state),
            "steps": state["global_step"],
            "optimizer": _optimizer(state),
            "hyperparameters": hyperparameters,
            "lightning": state["pytorch-lightning_version"],
            "torch": str(torch.__version__),
        },
        "metrics": {
            name: value
            for name, value in {**state.get("val_metrics", {}), **(metrics or {})}.items()
            if math.isfinite(value)  # JSON has no NaN
        },
    }


def _epochs(state: Mapping[str, Any]) -> int:
    """Epochs begun: unlike `state["epoch"]`, the same whether saved within the last one or after it."""
    loops = state.get("loops")  # absent when only weights were saved
    return loops["fit_loop"]["epoch_progress"]["current"]["ready"] if loops else state["epoch"] + 1


def _optimizer(state: Mapping[str, Any]) -> dict[str, Any]:
    """Learning rate and the like, as the first parameter group has them."""
    optimizers = state.get("optimizer_states")
    group: dict[str, Any] = optimizers[0]["param_groups"][0] if optimizers else {}
    plain = (bool, int, float, str)
    return {key: value for key, value in group.items() if key != "params" and isinstance(value, plain)}
