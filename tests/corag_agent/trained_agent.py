"""A checkpoint trained in a moment, for tests of what is made from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer, seed_everything

from corag_agent.datamodule import LabelDataModule
from corag_agent.module import ConfigurationAgentModule
from tests.corag_agent.synthetic_labels import separable_table, with_features

FUSED = {"extra_inputs": ["chunk_mean", "statistics"], "standardise": True}


def trained(directory: Path, data: dict[str, Any] | None = None, **options: Any) -> Path:
    """A checkpoint of the paper's width, trained for a few epochs on a table with features."""
    seed_everything(0, verbose=False)
    with_features(separable_table()).write(directory / "labels.parquet")
    module_data = LabelDataModule(str(directory / "labels.parquet"), **(data or {}))
    module = ConfigurationAgentModule.for_data(module_data, **options)
    trainer = Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, datamodule=module_data)
    trainer.save_checkpoint(directory / "agent.ckpt")
    return directory / "agent.ckpt"
