"""The agent's network as an ONNX graph, for runtimes without Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corag_search.agent_format import SETTINGS, AgentFormat, Array
from corag_search.packaged import require

OPSET, IR_VERSION = 17, 8  # of ONNX 1.12: what runtimes have read since 2022


def onnx_model(tensors: Mapping[str, Array], config: Mapping[str, Any]) -> bytes:
    """The network with its calibration, as `model.onnx` holds it; the same agent gives the same bytes.

    Input: `input`, float32 `[batch, inputs]`, in the order of the configuration's `inputs`. Outputs: `probabilities`,
    `[batch, rerankers]`, and `settings`, `[batch, 3]`, those of the most probable reranker in their own units and in
    the order of `SETTINGS`; iterations are to be rounded. Names, settings and fallback stand in the model's metadata
    as JSON; the fallback is for the caller to apply, where the greatest probability is below its threshold.

    Args:
        tensors: Of the checkpoint.
        config: Its `config.json`.

    Raises:
        InputError: The package `onnx` is not installed.
    """
    onnx = require("onnx", "onnx", "an ONNX model")
    form = AgentFormat.of(config)
    heads = len(tensors["settings_head.bias"]) // len(SETTINGS)
    low, high = np.array([form.ranges[name] for name in SETTINGS], np.float32).T
    constants = {
        **tensors,
        "temperature": np.array(form.temperature, np.float32),
        "zero": np.array(0, np.float32),
        "one": np.array(1, np.float32),
        "low": low,
        "width": high - low,
        "settings_shape": np.array([-1, heads, len(SETTINGS)], np.int64),
        "heads": np.array(heads, np.int64),
    }
    nodes = [
        onnx.helper.make_node(operator, inputs, [output], **options)
        for operator, inputs, output, options in _steps(form.depth)
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "corag-agent",
        [_floats(onnx, "input", form.layers[0])],
        [_floats(onnx, "probabilities", len(form.rerankers)), _floats(onnx, "settings", len(SETTINGS))],
        [onnx.numpy_helper.from_array(value, name) for name, value in sorted(constants.items())],
    )
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(graph, producer_name="corag", opset_imports=[opset], ir_version=IR_VERSION)
    told = {"inputs": form.inputs, "rerankers": form.rerankers, "settings": SETTINGS, "fallback": config["fallback"]}
    onnx.helper.set_model_props(model, {name: json.dumps(value, ensure_ascii=False) for name, value in told.items()})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def _steps(depth: int) -> Sequence[tuple[str, list[str], str, dict[str, Any]]]:
    """Operator, inputs, output and options of each step."""
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Sub", ["input", "input_shift"], "shifted", {}),
        ("Mul", ["shifted", "input_scale"], "features_0", {}),
    ]
    for i in range(depth):
        steps.append(_linear(f"features_{i}", f"layers.{i}", f"linear_{i}"))
        steps.append(("Relu", [f"linear_{i}"], f"features_{i + 1}", {}))
    return [
        *steps,
        _linear(f"features_{depth}", "reranker_head", "logits"),
        ("Div", ["logits", "temperature"], "cooled", {}),
        ("Softmax", ["cooled"], "probabilities", {"axis": -1}),
        _linear(f"features_{depth}", "settings_head", "scaled"),
        ("Clip", ["scaled", "zero", "one"], "clipped", {}),
        ("Reshape", ["clipped", "settings_shape"], "by_head", {}),
        ("ArgMax", ["logits"], "best", {"axis": -1, "keepdims": 1}),
        ("Mod", ["best", "heads"], "head", {}),  # a shared head stands for every reranker
        ("GatherND", ["by_head", "head"], "chosen", {"batch_dims": 1}),
        ("Mul", ["chosen", "width"], "risen", {}),
        ("Add", ["risen", "low"], "settings", {}),
    ]


def _linear(inputs: str, name: str, output: str) -> tuple[str, list[str], str, dict[str, Any]]:
    return "Gemm", [inputs, f"{name}.weight", f"{name}.bias"], output, {"transB": 1}


def _floats(onnx: Any, name: str, width: int) -> Any:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width])
