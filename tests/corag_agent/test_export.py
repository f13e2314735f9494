import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corag_agent.export import export
from corag_agent.module import ConfigurationAgentModule
from corag_search.agent import ConfigurationAgent
from corag_search.agent_format import SETTINGS
from corag_search.errors import InputError
from corag_search.query_features import STATISTICS, QueryFeatures
from tests.corag_agent.synthetic_labels import GRID, RERANKERS
from tests.corag_agent.trained_agent import FUSED, trained

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("trained"))


@pytest.mark.parametrize(
    ("data", "options"),
    [({}, {}), (FUSED, {"settings_heads": "per_reranker", "dropout": 0.2, "hidden": (32, 16)})],
    ids=["the paper's", "fused inputs, heads of their own"],
)
def test_numpy_inference_equals_torch(tmp_path: Path, data: dict[str, Any], options: dict[str, Any]) -> None:
    checkpoint = trained(tmp_path, data, **options)
    state = torch.load(checkpoint, weights_only=True)
    # With these some of the queries below fall back and some do not.
    calibration = {"temperature": 1.3 if data else 0.5, "threshold": 0.45 if data else 0.39}
    torch.save({**state, "calibration": calibration}, checkpoint)
    module = ConfigurationAgentModule.load_from_checkpoint(checkpoint).eval()
    temperature, threshold = module.calibration
    agent = ConfigurationAgent.load(export(checkpoint, tmp_path / "agent"))
    generator = np.random.default_rng(0)
    fallen = 0
    for embedding in generator.normal(0, 1, (50, 8)).astype(np.float32):
        features = QueryFeatures(
            generator.normal(0, 9, 8).astype(np.float32), generator.normal(0, 9, len(STATISTICS)).astype(np.float32)
        )
        parts = [embedding, features.chunk_mean, features.statistics] if data else [embedding]
        with torch.no_grad():
            _, logits, scaled = module.encoder(torch.from_numpy(np.concatenate(parts)))
        prediction = agent.predict(embedding, features)
        probabilities = (logits / temperature).softmax(-1)
        np.testing.assert_allclose(list(prediction.probabilities.values()), probabilities, atol=1e-6)
        assert prediction.confidence == pytest.approx(probabilities.max().item(), abs=1e-6)
        assert prediction.fallback == (prediction.confidence < threshold)
        fallen += prediction.fallback
        if prediction.fallback:
            got = {name: getattr(prediction, name) for name in module.fallback_configuration}
            assert got == module.fallback_configuration
            continue
        best = int(logits.argmax())
        assert prediction.reranker == RERANKERS[best]
        for name, value in zip(SETTINGS, scaled[best].clamp(0, 1).tolist(), strict=True):
            low, high = GRID.ranges[name]
            wanted = low + value * (high - low)
            got = getattr(prediction, name)
            assert got == (round(wanted) if name == "iterations" else pytest.approx(wanted, abs=1e-5))
    assert 0 < fallen < 50


def test_what_is_written(checkpoint: Path, tmp_path: Path) -> None:
    out = export(checkpoint, tmp_path / "deep" / "agent", metrics={"test/rougeL": 0.6125}, licence="cc-by-4.0")
    assert sorted(file.name for file in out.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert [file.name for file in out.parent.iterdir()] == ["agent"]
    config = json.loads((out / "config.json").read_text())
    assert config["rerankers"] == list(RERANKERS)
    assert config["layers"] == [8, 512, 256, 128]
    assert config["embedder"] == {"name": "synthetic", "dimension": 8, "fingerprint": "synthetic-8"}
    assert config["grid"] == GRID.to_dict()
    assert config["labels"]["data"] == {"name": "synthetic"}
    assert config["training"]["epochs"] == 3
    assert config["training"]["optimizer"]["lr"] == 0.001
    assert config["training"]["hyperparameters"]["batch_size"] == 32
    assert config["inputs"] == ["embedding"] and config["settings_heads"] == "shared"
    state = torch.load(checkpoint, weights_only=True)
    assert config["calibration"] == {"temperature": state["calibration"]["temperature"]}
    assert config["fallback"]["threshold"] == state["calibration"]["threshold"]
    assert config["metrics"] == {**state["val_metrics"], "test/rougeL": 0.6125}
    assert config["metrics"]["val/regret"] == pytest.approx(0.6, abs=0.6)
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlicense: cc-by-4.0\n")
    for fact in ("| test/rougeL | 0.6125 |", "`synthetic-8`", "`alpha`, `beta`, `gamma`", "`iterations`: 5 to 10"):
        assert fact in card
    assert str(tmp_path) not in card + json.dumps(config)


def test_a_missing_key_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    file = export(checkpoint, tmp_path / "agent") / "config.json"
    config = json.loads(file.read_text())
    needed = {"format": "not that of a corag-agent", "format_version": "format version None", "sha256": "says None"}
    entries = (
        *("rerankers", "settings", "ranges", "layers", "inputs", "settings_heads", "embedder"),
        *("calibration", "fallback"),
    )
    for key, message in {**needed, **{key: f"config.json has no {key}; export it again" for key in entries}}.items():
        file.write_text(json.dumps({name: value for name, value in config.items() if name != key}))
        with pytest.raises(InputError, match=message) as raised:
            ConfigurationAgent.load(tmp_path / "agent")
        assert "\n" not in str(raised.value)
    # What only tells where it comes from is guarded by the checksum; an export of before there was one may lack it.
    told = ("grid", "labels", "training", "metrics", "seen")
    for name in told:
        file.write_text(json.dumps({key: value for key, value in config.items() if key != name}))
        with pytest.raises(InputError, match=r"checkpoint .*agent: config\.json was changed since it was written"):
            ConfigurationAgent.load(tmp_path / "agent")
    older = {name: value for name, value in config.items() if name not in (*told, "config_sha256")}
    file.write_text(json.dumps(older))
    assert ConfigurationAgent.load(tmp_path / "agent").rerankers == RERANKERS


def test_a_changed_value_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    file = export(checkpoint, tmp_path / "agent") / "config.json"
    written = file.read_bytes()
    silent = []
    for position in range(0, len(written), 17):
        changed = bytearray(written)
        changed[position] ^= 1
        file.write_bytes(changed)
        try:
            ConfigurationAgent.load(tmp_path / "agent")
        except InputError:
            continue
        silent.append(position)
    # What has no checksum is one of before; the name is all that a flipped bit can take.
    name = written.index(b"config_sha256")
    assert all(name <= position < name + len("config_sha256") for position in silent)
    file.write_text(json.dumps(json.loads(written), separators=(",", ":")))  # written otherwise, the same
    ConfigurationAgent.load(tmp_path / "agent")


def test_same_checkpoint_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    one, two = export(checkpoint, tmp_path / "one"), export(checkpoint, tmp_path / "two")
    for file in one.iterdir():
        assert file.read_bytes() == (two / file.name).read_bytes()


def test_a_previous_export_is_replaced(checkpoint: Path, tmp_path: Path) -> None:
    export(checkpoint, tmp_path / "agent")
    export(checkpoint, tmp_path / "agent", metrics={"val/regret": 0.5})
    assert json.loads((tmp_path / "agent" / "config.json").read_text())["metrics"]["val/regret"] == 0.5


def test_anything_else_is_not_overwritten(checkpoint: Path, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "config.json").write_text('{"format": "bert"}')
    with pytest.raises(InputError, match="is no corag-agent, so it is not overwritten"):
        export(checkpoint, thesis)
    assert [file.name for file in thesis.iterdir()] == ["config.json"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is no corag-agent, so it is not overwritten"):
        export(checkpoint, tmp_path / "file")
    (export(checkpoint, tmp_path / "agent") / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"also holds notes.txt"):
        export(checkpoint, tmp_path / "agent")


def test_unusable_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.ckpt does not exist"):
        export(tmp_path / "none.ckpt", tmp_path / "agent")
    (tmp_path / "text.ckpt").write_text("not weights")
    torch.save({"state_dict": {}}, tmp_path / "foreign.ckpt")
    torch.save({"state_dict": {"weight": torch.zeros(10_000)}}, tmp_path / "whole.ckpt")
    (tmp_path / "half.ckpt").write_bytes((tmp_path / "whole.ckpt").read_bytes()[:9_000])
    for name in ("text.ckpt", "foreign.ckpt", "half.ckpt"):
        with pytest.raises(InputError, match=f"{name} is not one that `corag fit` wrote"):
            export(tmp_path / name, tmp_path / "agent")
    assert not (tmp_path / "agent").exists()


@pytest.mark.parametrize(
    ("temperature", "threshold", "probabilities", "used"),
    [
        (
            0.524,
            0.31,
            "calibrated on the validation split (temperature 0.524)",
            "used where the confidence is below 0.31:",
        ),
        (1.0, 2.0, "not calibrated (temperature 1), for want of", "used for every query: at no confidence did the"),
        (1.0, 0.0, "not calibrated (temperature 1), for want of", "used for no query, since there were no validation"),
    ],
)
def test_the_card_says_what_the_validation_split_showed(
    checkpoint: Path, tmp_path: Path, temperature: float, threshold: float, probabilities: str, used: str
) -> None:
    state = torch.load(checkpoint, weights_only=True)
    calibration = {"temperature": temperature, "threshold": threshold}
    torch.save({**state, "calibration": calibration}, tmp_path / "set.ckpt")
    card = " ".join((export(tmp_path / "set.ckpt", tmp_path / "agent") / "README.md").read_text().split())
    assert f"The probabilities are {probabilities}" in card
    assert f"is {used}" in card
