"""Label table → run → exported agent, in Weights & Biases."""

from __future__ import annotations

import json
import logging
from enum import StrEnum
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from corag_agent.callbacks.best_model import best_checkpoint
from corag_agent.export import export
from corag_agent.seen import table_digest
from corag_search.agent_format import CONFIG_FILE
from corag_search.errors import InputError
from corag_search.files import replacing_file
from data_prep.privacy import recordable, without_folders
from data_prep.table import LabelTable

logger = logging.getLogger(__name__)

LABELS, AGENT = "label-table", "configuration-agent"  # names of the artifacts
RECORD_FILE, SCORES_FILE, EXPORT_FOLDER = "label_table.json", "label_scores.parquet", "export"


class LabelRecord(StrEnum):
    """What W&B is given of the label table."""

    OFF = "off"  # its digest and fingerprint in the run's configuration, no artifact
    REFERENCE = "reference"  # an input artifact with digest, fingerprint and counts
    SCORES = "scores"  # the same with every score: question ids and numbers, no text, no embedding


class WandbLineage(Callback):
    """Declares the label table as the run's input and the exported agent as its output; idle without W&B.

    Files of artifacts lie under `output` (`label_table.json`, `export/`) and are recorded by their path relative to the
    current folder, so `wandb sync` must be run from there. Where that path names the home folder, as from `/`, the
    artifact is left out with a warning.
    """

    def __init__(self, labels: str = "reference", export: bool = True) -> None:
        """Takes what to record.

        Args:
            labels: off, reference (digest, fingerprint and counts) or scores (the table of scores too; it has no text).
            export: Whether to export the best checkpoint into `output/export` and record that.

        Raises:
            InputError: When `labels` is none of these.
        """
        if labels not in list(LabelRecord):
            raise InputError(f"labels of WandbLineage must be one of {', '.join(LabelRecord)}, got {labels!r}")
        self._labels, self._export = LabelRecord(labels), export

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Records what the run learns from."""
        for run in wandb_runs(trainer):
            table = trainer.datamodule.table  # type: ignore[attr-defined]
            record = label_record(table)
            run.config.update({"label_table": record}, allow_val_change=True)
            if self._labels is not LabelRecord.OFF:
                files = _write_labels(table, record, Path(trainer.default_root_dir), self._labels)
                artifact = _artifact(LABELS, "dataset", record, files)
                if artifact is not None:
                    _use(run, artifact)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Exports the best checkpoint and records it as what the run has made; W&B is not told of single questions."""
        best = best_checkpoint(trainer)
        if not self._export or best is None:
            return
        for run in wandb_runs(trainer):
            try:
                folder = export(best, Path(trainer.default_root_dir) / EXPORT_FOLDER, seen=False)
            except InputError as error:
                logger.warning("the agent is not exported, so W&B has no artifact of it: %s", error)
                return
            config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
            about = {name: config[name] for name in ("metrics", "sha256")}
            artifact = _artifact(AGENT, "model", about, sorted(folder.iterdir()))
            if artifact is not None:
                run.log_artifact(artifact)


def wandb_runs(trainer: Trainer) -> list[Any]:
    """The W&B runs that this process logs to; none but in the first process, none in a `fast_dev_run`."""
    if not trainer.is_global_zero:
        return []
    runs = [each.experiment for each in trainer.loggers if isinstance(each, WandbLogger)]
    return [run for run in runs if not run.disabled]


def label_record(table: LabelTable) -> dict[str, Any]:
    """Digest, fingerprint and counts of a label table; neither text nor question ids nor folders."""
    return {
        "digest": table_digest(table),
        "fingerprint": without_folders(table.fingerprint),
        "questions": table.questions["split"].value_counts().sort_index().to_dict(),
    }


def _write_labels(table: LabelTable, record: dict[str, Any], folder: Path, kind: LabelRecord) -> list[Path]:
    files = [folder / RECORD_FILE]
    with replacing_file(files[0]) as partial:
        partial.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if kind is LabelRecord.SCORES:
        files.append(folder / SCORES_FILE)
        with replacing_file(files[1]) as partial:
            table.scores.to_parquet(partial)
    return files


def _artifact(name: str, kind: str, metadata: dict[str, Any], files: list[Path]) -> Any:
    """An artifact of files where they lie: W&B's own copies of them would be recorded with the home folder."""
    import wandb

    artifact = wandb.Artifact(name, type=kind, metadata=metadata)
    for file in files:
        place = recordable(file)
        if place is None:
            logger.warning(
                "W&B gets no artifact %s: its record would name your home folder; run from a folder in it",
                name,
            )
            return None
        artifact.add_file(str(place), name=file.name, policy="immutable", skip_cache=True)
    return artifact


def _use(run: Any, artifact: Any) -> None:
    if run.offline:
        # `use_artifact` refuses to work offline; this is what it does online, and `wandb sync` makes up for it.
        run._log_artifact(artifact, is_user_created=True, use_after_commit=True)
    else:
        run.use_artifact(artifact)
