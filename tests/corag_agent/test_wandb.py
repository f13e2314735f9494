import csv
import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lightning.pytorch import Callback, LightningModule, Trainer

from corag_agent.callbacks.lineage import WandbLineage, label_record
from corag_agent.seen import table_digest
from corag_agent.training import training_cli
from corag_search.agent import ConfigurationAgent
from corag_search.errors import InputError
from corag_search.files import sha256_of
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table, write_separable_table
from tests.corag_agent.wandb_files import records

CONFIGS = Path(__file__).parents[2] / "configs"
KEY = "0123456789abcdef0123456789abcdef01234567"
REAL_HOME = str(Path.home())


class Recorded(NamedTuple):
    """What a run has left: its folder under `wandb/`, and the messages in it."""

    home: Path
    output: Path
    folder: Path
    messages: list[Any]


def fit(home: Path, output: str, *more: str, current: Path | None = None) -> Recorded:
    """Runs `corag fit` with W&B as a user whose home folder, with labels and project, is `home`."""
    project = home / "project"
    project.mkdir(parents=True)
    (home / "secret").mkdir()
    labels = write_separable_table(home / "secret")
    current = current or project
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(current)
        patch.setenv("HOME", str(home))
        patch.setenv("WANDB_API_KEY", KEY)
        patch.setenv("WANDB_MODE", "offline")  # whatever goes wrong, nothing leaves this machine
        given = ["--config", str(CONFIGS / "train_wandb.yaml"), "--data.labels", labels, "--output", output]
        training_cli(["fit", *given, "--trainer.enable_progress_bar", "false", "--trainer.max_epochs", "2", *more])
        import wandb

        assert wandb.run is None
        # A finished run's file is written by W&B's service after `finish` has returned; this waits for the service.
        wandb.teardown()
        folder = (current / output / "wandb").resolve()
    (run,) = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink()]
    (file,) = run.glob("*.wandb")
    return Recorded(home, folder.parent, run, list(records(file)))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return fit(tmp_path_factory.mktemp("user") / "home", "runs/agent")


def of_kind(recorded: Recorded, kind: str) -> list[Any]:
    return [getattr(message, kind) for message in recorded.messages if message.WhichOneof("record_type") == kind]


def config(recorded: Recorded) -> dict[str, Any]:
    return {item.key: json.loads(item.value_json) for part in of_kind(recorded, "config") for item in part.update}


def artifacts(recorded: Recorded) -> dict[str, Any]:
    return {part.type: part for part in of_kind(recorded, "artifact")}


def test_an_offline_run_is_whole(recorded: Recorded) -> None:
    assert recorded.folder.name.startswith("offline-run-")
    assert of_kind(recorded, "exit")[0].exit_code == 0


def test_the_curves(recorded: Recorded) -> None:
    values: dict[str, list[float]] = {}
    for part in of_kind(recorded, "history"):
        for item in part.item:
            values.setdefault("/".join(item.nested_key) or item.key, []).append(json.loads(item.value_json))
    assert len(values["val/regret"]) == len(values["train/loss"]) == 2
    assert all(0 <= value <= 0.6 for value in values["val/regret"])


def test_the_resolved_configuration_and_the_label_table(recorded: Recorded) -> None:
    noted = config(recorded)
    assert noted["resolved"]["trainer"]["max_epochs"] == 2
    assert noted["resolved"]["data"]["labels"] == "labels.parquet"
    assert noted["resolved"]["model"]["hidden"] == [512, 256, 128]
    added = [entry["class_path"].rpartition(".")[2] for entry in noted["resolved"]["trainer"]["callbacks"]]
    assert added == ["ConfusionMatrix", "FeatureProjection", "WandbLineage"]
    assert noted["label_table"] == label_record(separable_table())
    assert noted["label_table"]["questions"] == {"test": 9, "train": 30, "val": 9}


def test_lineage_from_the_label_table_to_the_exported_agent(recorded: Recorded) -> None:
    made = artifacts(recorded)
    assert set(made) == {"dataset", "model"}
    labels, agent = made["dataset"], made["model"]
    assert (labels.name, labels.use_after_commit) == ("label-table", True)  # the run's input
    assert (agent.name, agent.use_after_commit) == ("configuration-agent", False)  # its output
    assert json.loads(labels.metadata)["digest"] == table_digest(separable_table())
    assert [entry.path for entry in labels.manifest.contents] == ["label_table.json"]
    contents = {entry.path: entry for entry in agent.manifest.contents}
    assert set(contents) == {"README.md", "config.json", "model.safetensors"}
    for entry in contents.values():
        assert entry.local_path == f"runs/agent/export/{entry.path}"
        assert (recorded.home / "project" / entry.local_path).stat().st_size == entry.size
    exported = ConfigurationAgent.load(recorded.output / "export")
    assert exported.input_dim == 8 and "seen" not in exported.config  # ids of questions are given for scores only
    about = json.loads(agent.metadata)
    assert 0 <= about["metrics"]["val/regret"] <= 0.6
    assert about["sha256"] == sha256_of(recorded.output / "export" / "model.safetensors")


def test_the_figures_and_counts(recorded: Recorded) -> None:
    files = {entry.path for part in of_kind(recorded, "files") for entry in part.files}
    images = sorted(name for name in files if name.startswith("media/images/"))
    assert [name.split("_")[0] for name in images] == ["media/images/confusion/val", "media/images/features"]
    for name in images:
        assert (recorded.folder / "files" / name).read_bytes().startswith(b"\x89PNG")
    (noted,) = [item for part in of_kind(recorded, "summary") for item in part.update if item.key == "confusion_val"]
    counts = json.loads(noted.value_json)
    assert counts["rerankers"] == ["alpha", "beta", "gamma"]
    with (recorded.output / "confusion.val.csv").open(newline="") as file:
        assert [list(map(int, row[1:])) for row in list(csv.reader(file))[1:]] == counts["counts"]


def private_in(recorded: Recorded) -> list[tuple[str, str]]:
    files = [file for file in recorded.folder.parent.rglob("*") if file.is_file()]
    assert len(files) > 4
    words = (KEY, str(recorded.home), REAL_HOME, "secret", str(CONFIGS.parent), "answer 1")
    return [(file.name, word) for file in files for word in words if word.encode() in file.read_bytes()]


def test_no_key_no_folder_and_no_text_is_recorded(recorded: Recorded) -> None:
    assert private_in(recorded) == []


def test_an_absolute_output_below_the_current_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    recorded = fit(home, str(home / "project" / "runs"), "--trainer.callbacks.labels", "scores")
    assert private_in(recorded) == []
    contents = {entry.path: entry.local_path for entry in artifacts(recorded)["dataset"].manifest.contents}
    assert contents == {name: f"runs/{name}" for name in ("label_table.json", "label_scores.parquet")}
    uploaded = (recorded.output / "label_scores.parquet").read_bytes()
    assert b"answer 1" not in uploaded
    assert b"rougeL" in uploaded


def test_an_output_whose_record_would_name_the_home_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = tmp_path / "home"
    with caplog.at_level(logging.WARNING):
        recorded = fit(home, str(home / "elsewhere"), current=Path("/"))
    assert artifacts(recorded) == {}
    assert str(home).encode() not in next(recorded.folder.glob("*.wandb")).read_bytes()
    warned = [record.message for record in caplog.records if record.name == "corag_agent.callbacks.lineage"]
    assert [text.split(":")[0] for text in warned] == [
        "W&B gets no artifact label-table",
        "W&B gets no artifact configuration-agent",
    ]


class Fails(Callback):
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        raise RuntimeError("as it happens")


def offline(output: Path, *callbacks: Callback) -> None:
    labels = write_separable_table(output)
    given = ["--config", str(CONFIGS / "train_wandb.yaml"), "--data.labels", labels, "--output", str(output / "run")]
    training_cli(["fit", *given, "--trainer.enable_progress_bar", "false", "--trainer.max_epochs", "1"], callbacks)


def test_a_run_that_fails_is_ended_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(RuntimeError, match="as it happens"):
        offline(tmp_path, Fails())
    assert wandb.run is None
    wandb.teardown()
    (file,) = tmp_path.glob("run/wandb/offline-run-*/*.wandb")
    (code,) = [message.exit.exit_code for message in records(file) if message.WhichOneof("record_type") == "exit"]
    assert code == 1


def test_a_run_of_the_caller_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    with wandb.init(project="own", dir=tmp_path) as own:
        offline(tmp_path)
        assert wandb.run is own
        own.log({"after": 1})
    wandb.teardown()


def test_the_digest_names_what_training_takes() -> None:
    table = separable_table()
    assert table_digest(table) == table_digest(separable_table())
    moved = table.questions.assign(split=table.questions["split"].replace("test", "val"))
    worse = table.scores.assign(rougeL=table.scores["rougeL"] * 0.5)
    others = [
        LabelTable(table.scores, moved, table.fingerprint),
        LabelTable(worse, table.questions, table.fingerprint),
        LabelTable(table.scores, table.questions, {**table.fingerprint, "prompt": "another"}),
        separable_table(seed=1),
    ]
    assert len({table_digest(each) for each in [table, *others]}) == 5


def test_an_unknown_record_is_refused() -> None:
    with pytest.raises(InputError, match=r"labels of WandbLineage must be one of off, reference, scores, got 'all'"):
        WandbLineage(labels="all")
