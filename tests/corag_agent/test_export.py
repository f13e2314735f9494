import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer, seed_everything

from corag_agent.datamodule import LabelDataModule
from corag_agent.export import export
from corag_agent.module import ConfigurationAgentModule
from corag_search.agent import SETTINGS, ConfigurationAgent
from corag_search.errors import InputError
from tests.corag_agent.synthetic_labels import GRID, RERANKERS, write_separable_table

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the paper's width, trained for a few epochs."""
    directory = tmp_path_factory.mktemp("trained")
    seed_everything(0, verbose=False)
    data = LabelDataModule(write_separable_table(directory))
    linked: dict[str, Any] = {
        name: getattr(data, name) for name in ("input_dim", "rerankers", "grid", "embedder", "label_fingerprint")
    }
    module = ConfigurationAgentModule(**linked)
    trainer = Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    trainer.save_checkpoint(directory / "agent.ckpt")
    return directory / "agent.ckpt"


def test_numpy_inference_equals_torch(checkpoint: Path, tmp_path: Path) -> None:
    agent = ConfigurationAgent.load(export(checkpoint, tmp_path / "agent"))
    encoder = ConfigurationAgentModule.load_from_checkpoint(checkpoint).encoder.eval()
    generator = np.random.default_rng(0)
    for embedding in generator.normal(0, 1, (50, 8)).astype(np.float32):
        with torch.no_grad():
            _, logits, scaled = encoder(torch.from_numpy(embedding))
        prediction = agent.predict(embedding)
        np.testing.assert_allclose(list(prediction.probabilities.values()), logits.softmax(-1), atol=1e-6)
        assert prediction.reranker == RERANKERS[int(logits.argmax())]
        for name, value in zip(SETTINGS, scaled.clamp(0, 1).tolist(), strict=True):
            low, high = GRID.ranges[name]
            wanted = low + value * (high - low)
            got = getattr(prediction, name)
            assert got == (round(wanted) if name == "iterations" else pytest.approx(wanted, abs=1e-5))


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
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlicense: cc-by-4.0\n")
    for fact in ("| test/rougeL | 0.6125 |", "`synthetic-8`", "`alpha`, `beta`, `gamma`", "`iterations`: 5 to 10"):
        assert fact in card
    assert str(tmp_path) not in card + json.dumps(config)


def test_same_checkpoint_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    one, two = export(checkpoint, tmp_path / "one"), export(checkpoint, tmp_path / "two")
    for file in one.iterdir():
        assert file.read_bytes() == (two / file.name).read_bytes()


def test_a_previous_export_is_replaced(checkpoint: Path, tmp_path: Path) -> None:
    export(checkpoint, tmp_path / "agent")
    export(checkpoint, tmp_path / "agent", metrics={"val/regret": 0.5})
    assert json.loads((tmp_path / "agent" / "config.json").read_text())["metrics"] == {"val/regret": 0.5}


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
    for name in ("text.ckpt", "foreign.ckpt"):
        with pytest.raises(InputError, match=f"{name} is not one that `corag fit` wrote"):
            export(tmp_path / name, tmp_path / "agent")
    assert not (tmp_path / "agent").exists()
