"""Time of one prediction by an exported agent, beside the same network in torch and in an ONNX runtime.

    python benchmarks/agent_latency.py

Random weights, one query at a time, one thread: the median of 1,000 calls after 100 that are not counted, as Markdown.
The ONNX column needs the packages `onnx` and `onnxruntime`, and is left empty without them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from corag_agent.encoder import ConfigurationEncoder
from corag_agent.onnx_graph import onnx_model
from corag_search import ConfigurationAgent
from corag_search.agent_format import EMBEDDING, SETTINGS, SHARED

WIDTHS = {"the paper's (BGE-M3)": 1024, "embedded (MiniLM)": 384}
HIDDEN, RERANKERS = (512, 256, 128), 6
WARMING, CALLS = 100, 1_000


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| input | layers | NumPy, µs | torch, µs | ONNX, µs |\n| --- | --- | --- | --- | --- |")
    for name, width in WIDTHS.items():
        encoder = ConfigurationEncoder(width, RERANKERS, HIDDEN).eval()
        tensors = {key: value.numpy() for key, value in encoder.state_dict().items()}
        config = agent_config(encoder.widths)
        embedding = np.random.default_rng(0).normal(0, width**-0.5, width).astype(np.float32)
        agent = ConfigurationAgent(tensors, config)
        times = [
            microseconds(partial(agent.predict, embedding)),
            microseconds(partial(inferred, encoder, torch.from_numpy(embedding))),
            onnx_microseconds(tensors, config, embedding),
        ]
        shown = ("–" if spent is None else f"{spent:.0f}" for spent in times)
        print(f"| {name} | {' → '.join(map(str, encoder.widths))} | {' | '.join(shown)} |")


def agent_config(widths: list[int]) -> dict[str, Any]:
    """What an export of these widths has, with a fallback that is never used."""
    ranges = {"iterations": [5, 25], "cost_coefficient": [0.0, 0.3], "exploration": [0.0, 2.4]}
    return {
        "rerankers": [f"reranker {i}" for i in range(RERANKERS)],
        "settings": list(SETTINGS),
        "ranges": ranges,
        "layers": widths,
        "inputs": [EMBEDDING],
        "settings_heads": SHARED,
        "embedder": {"name": "random", "dimension": widths[0], "fingerprint": "0"},
        "calibration": {"temperature": 1.0},
        "fallback": None,
    }


def microseconds(call: Callable[[], Any]) -> float:
    """Median of the calls."""
    times = []
    for _ in range(WARMING + CALLS):
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) / 1000)
    return statistics.median(times[WARMING:])


def inferred(encoder: ConfigurationEncoder, query: torch.Tensor) -> Any:
    """The network alone, without softmax and settings."""
    with torch.inference_mode():
        return encoder(query)


def onnx_microseconds(tensors: dict[str, Any], config: dict[str, Any], embedding: np.ndarray) -> float | None:
    """None without the packages."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx_model(tensors, config), options, providers=["CPUExecutionProvider"])
    return microseconds(lambda: session.run(None, {"input": embedding[None]}))


if __name__ == "__main__":
    main()
