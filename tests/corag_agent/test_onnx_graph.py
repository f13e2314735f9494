import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corag_agent.export import export
from corag_agent.onnx_graph import onnx_model
from corag_search import packaged
from corag_search.agent import ConfigurationAgent
from corag_search.agent_format import AGENT, SETTINGS
from corag_search.errors import InputError
from corag_search.query_features import STATISTICS, QueryFeatures
from corag_search.weights_directory import read_weights
from tests.corag_agent.synthetic_labels import GRID, RERANKERS
from tests.corag_agent.trained_agent import FUSED, trained

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("data", "options"),
    [({}, {}), (FUSED, {"settings_heads": "per_reranker", "hidden": (32, 16)})],
    ids=["the paper's", "fused inputs, heads of their own"],
)
def test_the_runtime_agrees_with_numpy(tmp_path: Path, data: dict[str, Any], options: dict[str, Any]) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    out = export(trained(tmp_path, data, **options), tmp_path / "agent", onnx=True)
    config = json.loads((out / "config.json").read_text())
    config["calibration"]["temperature"] = 0.7
    config["fallback"]["threshold"] = 0.0
    tensors, _ = read_weights(out, AGENT)
    tensors["settings_head.bias"] = tensors["settings_head.bias"] + np.float32(0.4)  # so that some are clipped
    agent = ConfigurationAgent(tensors, config)
    session = runtime.InferenceSession(onnx_model(tensors, config), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    embeddings, means = generator.normal(0, 1.5, (2, 64, 8)).astype(np.float32)
    statistics = generator.normal(0, 3, (64, len(STATISTICS))).astype(np.float32)
    inputs = np.concatenate([embeddings, means, statistics], axis=1) if data else embeddings
    probabilities, settings = session.run(["probabilities", "settings"], {"input": inputs})
    chosen = set()
    for row in range(64):
        prediction = agent.predict(embeddings[row], QueryFeatures(means[row], statistics[row]))
        chosen.add(prediction.reranker)
        np.testing.assert_allclose(probabilities[row], list(prediction.probabilities.values()), atol=1e-5)
        for name, value in zip(SETTINGS, settings[row], strict=True):
            low, high = GRID.ranges[name]
            if name == "iterations":
                assert abs(value - prediction.iterations) <= 0.5 + 1e-5
            else:
                assert value == pytest.approx(getattr(prediction, name), abs=1e-5 * (high - low))
    assert chosen == set(RERANKERS)
    assert (settings[:, 0] == 10).any() and (settings[:, 0] < 10).any()


def test_what_the_file_holds(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    checkpoint = trained(tmp_path)
    one, two = export(checkpoint, tmp_path / "one", onnx=True), export(checkpoint, tmp_path / "two", onnx=True)
    assert (one / "model.onnx").read_bytes() == (two / "model.onnx").read_bytes()
    model = onnx.load(one / "model.onnx")
    assert [value.name for value in model.graph.input] == ["input"]
    assert [value.name for value in model.graph.output] == ["probabilities", "settings"]
    config = json.loads((one / "config.json").read_text())
    told = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert told == {name: config[name] for name in ("inputs", "rerankers", "settings", "fallback")}
    assert "## ONNX" in (one / "README.md").read_text()
    # without the option, an export in the same place has none again
    export(checkpoint, one)
    assert sorted(file.name for file in one.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert "ONNX" not in (one / "README.md").read_text()


def test_without_the_package_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    checkpoint = trained(tmp_path)
    monkeypatch.setattr(packaged.importlib, "import_module", absent)
    with pytest.raises(InputError, match=r"an ONNX model.*corag\[onnx\]"):
        export(checkpoint, tmp_path / "agent", onnx=True)
    assert not (tmp_path / "agent").exists()
