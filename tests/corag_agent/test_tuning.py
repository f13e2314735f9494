"""`corag tune` with real trainings, through the command."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import optuna
import pytest
import torch
import yaml
from lightning.pytorch import Callback, LightningModule, Trainer

from corag_agent.cli import main
from corag_agent.training import training_cli
from corag_agent.tuning import tune as tune_module
from corag_agent.tuning.study import TrialOutcome
from corag_agent.tuning.trial import run_trial
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import write_separable_table

torch.set_num_threads(1)
CONFIGS = Path(__file__).parents[2] / "configs"
SPACE: dict[str, Any] = {
    "model.hidden": {"type": "categorical", "choices": [[6], [8, 4]]},
    "model.optimizer.init_args.lr": {"type": "float", "low": 0.001, "high": 0.1, "log": True},
    "data.pairs_per_epoch": {"type": "int", "low": 8, "high": 32},
}


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_separable_table(tmp_path_factory.mktemp("labels"), noise=0.4)


def config(folder: Path, space: dict[str, Any] = SPACE, epochs: int = 3, **more: Any) -> str:
    fit = {"trainer": {"max_epochs": epochs}} | more.pop("fit", {})
    path = folder / "tune.yaml"
    path.write_text(yaml.safe_dump({"space": space, "fit": fit, "sampler": "random", **more}))
    return str(path)


def run(*arguments: str) -> int:
    return main(["tune", *arguments])


@pytest.fixture(scope="module")
def tuned(labels: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a study of three trials; not to be written to."""
    folder = tmp_path_factory.mktemp("tuned")
    given = ["--config", config(folder), "--data.labels", labels, "--output", str(folder / "out"), "--trials", "3"]
    assert run(*given) == 0
    return folder / "out"


def trials_of(output: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="corag", storage=f"sqlite:///{output / 'study.sqlite'}").get_trials()


def test_the_best_configuration_repeats_the_best_trial(tuned: Path, tmp_path: Path) -> None:
    best = min(trials_of(tuned), key=lambda trial: trial.value)
    quiet = ("--trainer.enable_progress_bar", "false")
    again = training_cli(["fit", "--config", str(tuned / "best.yaml"), "--output", str(tmp_path), *quiet])
    callback = again.trainer.checkpoint_callback
    assert float(callback.best_model_score) == best.value  # type: ignore[union-attr]
    kept = torch.load(tuned / "trials" / str(best.number) / "checkpoints" / "best.ckpt", weights_only=True)
    made = torch.load(tmp_path / "checkpoints" / "best.ckpt", weights_only=True)
    assert kept["epoch"] == made["epoch"] == best.user_attrs["best_epoch"]
    assert all(torch.equal(kept["state_dict"][name], weight) for name, weight in made["state_dict"].items())


def test_what_a_study_leaves(tuned: Path) -> None:
    left = {path.name for path in tuned.iterdir()} - {"study.sqlite-shm", "study.sqlite-wal"}  # of the open database
    assert left == {"best.yaml", "history.svg", "study.sqlite", "study.sqlite.locks", "trials"}
    assert [path.name for path in (tuned / "study.sqlite.locks").iterdir()] == ["study.lock"]
    assert sorted(path.name for path in (tuned / "trials").iterdir()) == ["0", "1", "2"]
    assert len(list(tuned.glob("trials/*/checkpoints"))) == 1
    for trial in (tuned / "trials").iterdir():
        assert {path.name for path in trial.iterdir()} - {"checkpoints"} == {"config.fit.yaml", "logs"}
    assert ElementTree.parse(tuned / "history.svg").getroot().tag.endswith("svg")
    best = min(trials_of(tuned), key=lambda trial: trial.value)
    written = yaml.safe_load((tuned / "best.yaml").read_text())
    assert json.dumps(written["model"]["hidden"]) == best.params["model.hidden"]
    assert written["model"]["optimizer"]["init_args"]["lr"] == best.params["model.optimizer.init_args.lr"]
    assert (written["trainer"]["max_epochs"], written["trainer"]["enable_progress_bar"]) == (3, None)
    assert "output" not in written


def test_the_same_command_goes_on(labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    given = ["--config", config(tmp_path, epochs=1), "--data.labels", labels, "--output", str(output)]
    storage = f"journal:{tmp_path / 'study.log'}"
    assert run(*given, "--storage", storage, "--trials", "1") == 0
    capsys.readouterr()
    assert run(*given, "--storage", storage, "--trials", "2", "--json") == 0
    out, err = capsys.readouterr()
    assert "trials" in err
    result = json.loads(out)
    assert {row["trial"] for row in result["trials"]} == {0, 1}
    assert result["best"]["value"] == min(row["value"] for row in result["trials"])
    assert result["best"]["config"] == str(output / "best.yaml")
    assert (result["monitor"], result["storage"]) == ("val/regret", storage)
    first = result["trials"][0]
    assert (first["state"], first["epochs"], set(first["options"])) == ("complete", 1, set(SPACE))
    assert first["options"]["model.hidden"] in ([6], [8, 4])
    assert run(*given, "--storage", storage, "--trials", "1") == 0  # there are more already
    out, _ = capsys.readouterr()
    assert "trials: 2 complete\n" in out
    assert f"best configuration: {output / 'best.yaml'}\n" in out
    assert "data.pairs_per_epoch" in out

    other = config(tmp_path, SPACE | {"model.hidden": {"type": "categorical", "choices": [[6]]}}, epochs=1)
    assert run("--config", other, *given[2:], "--storage", storage) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "differs in its space (model.hidden.choices)" in err
    config(tmp_path, epochs=1)
    assert run(*given, "--storage", storage, "--set", "model.margin=0.5") == 2
    assert "differs in its fit (model.margin)" in capsys.readouterr().err
    given[3] = write_separable_table(tmp_path, seed=1)
    assert run(*given, "--storage", storage) == 2
    assert "differs in its labels (digest)" in capsys.readouterr().err


def test_hopeless_trials_are_pruned(labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = {"model.optimizer.init_args.lr": {"type": "categorical", "choices": [0.001, 1.0]}}
    given = ["--data.labels", labels, "--output", str(tmp_path / "out"), "--trials", "5", "--startup_trials", "1"]
    fit = {"checkpoint": {"monitor": "val/loss"}, "trainer": {"max_epochs": 5}}
    assert run("--config", config(tmp_path, space, fit=fit), *given, "--warmup_epochs", "2", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["trials"]
    rates = {row["trial"]: row["options"]["model.optimizer.init_args.lr"] for row in rows}
    states = {row["trial"]: row["state"] for row in rows}
    assert len(rows) == 5
    sound = min(number for number, rate in rates.items() if rate < 1)
    for number, rate in rates.items():  # those that diverge, once there is a sound one to compare with
        assert states[number] == ("pruned" if rate == 1 and number > sound else "complete")
    assert {row["epochs"] for row in rows if row["state"] == "pruned"} == {3}  # at the first that the pruner looks at


def test_epochs_are_counted_and_not_validations(
    labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--data.labels", labels, "--trials", "1", "--json"]
    for name, every, found in (
        ("seldom", {"check_val_every_n_epoch": 2}, ([1, 3], {1, 3})),
        ("often", {"val_check_interval": 0.5}, ([0, 1, 2, 3], {0, 1, 2, 3})),
    ):
        output, fit = tmp_path / name, {"trainer": {"max_epochs": 4, **every}, "data": {"batch_size": 4}}
        assert run("--config", config(tmp_path, fit=fit), *given, "--output", str(output)) == 0
        (row,) = json.loads(capsys.readouterr().out)["trials"]
        (trial,) = trials_of(output)
        assert row["epochs"] == 4 and list(trial.intermediate_values) == found[0]
        assert trial.user_attrs["best_epoch"] in found[1]


def test_a_combination_that_fails_does_not_end_the_study(
    labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"data.minimum_gain": {"type": "categorical", "choices": [0.1, 50.0]}}
    output = tmp_path / "out"
    given = ["--data.labels", labels, "--output", str(output), "--trials", "5", "--json"]
    assert run("--config", config(tmp_path, space, epochs=1), *given) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["failed"]) + len(result["trials"]) == 5
    assert result["trials"] and result["failed"]
    for number, error in result["failed"].items():
        assert "at least 2 are needed for a pair" in error
        assert "Traceback" in (output / "trials" / number / "error.txt").read_text()
    assert yaml.safe_load((output / "best.yaml").read_text())["data"]["minimum_gain"] == 0.1


DIVERGING = {"model.optimizer.init_args.lr": {"type": "float", "low": 1e30, "high": 1e31}}


def test_when_all_trials_fail(labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--data.labels", labels, "--output", str(tmp_path / "out"), "--trials", "2"]
    assert run("--config", config(tmp_path, DIVERGING), *given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "corag tune: all 2 trials failed; the first, trial 0: the network's output for the val split is NaN" in err
    assert not (tmp_path / "out" / "best.yaml").exists()


def test_five_failures_at_the_start_stop_the_run(
    labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--data.labels", labels, "--output", str(tmp_path / "out"), "--trials", "20"]
    assert run("--config", config(tmp_path, DIVERGING, epochs=1), *given) == 2
    out, err = capsys.readouterr()
    (line,) = [line for line in err.splitlines() if line.startswith("corag")]
    assert out == ""
    assert line.startswith(
        "corag tune: stopped, since 5 trials failed in a row, the last, trial 4, with: the network's"
    )
    assert [trial.state.name for trial in trials_of(tmp_path / "out")] == ["FAIL"] * 5


@pytest.mark.parametrize(("ends", "trials"), [("1" * 19 + "01", 21), ("01" + "0" * 25, 22), ("10" * 9, 18)])
def test_many_failures_in_a_row_stop_the_run(
    labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str, trials: int
) -> None:
    left = iter(ends)

    def run_trial(*_: object) -> TrialOutcome:
        return TrialOutcome((0.5,), (0,), 0.5) if next(left) == "1" else TrialOutcome(error="the disk is full")

    monkeypatch.setattr(tune_module, "run_trial", run_trial)
    given = ["--data.labels", labels, "--output", str(tmp_path / "out"), "--trials", str(len(ends))]
    stopped = trials < len(ends)
    assert run("--config", config(tmp_path), *given) == (2 if stopped else 0)
    assert len(trials_of(tmp_path / "out")) == trials


def test_a_table_that_no_trial_could_use_is_refused_before_the_first(
    labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"data.minimum_gain": {"type": "float", "low": 50, "high": 60}}
    given = ["--data.labels", labels, "--output", str(tmp_path / "out")]
    assert run("--config", config(tmp_path, space), *given) == 2
    err = capsys.readouterr().err
    assert err.startswith("corag tune: 0 of 30 training questions have a best reranker") and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


class CtrlC(Callback):
    """Sends what Ctrl-C sends, in the second epoch of the second trial of a process."""

    trials = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        CtrlC.trials += 1

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if CtrlC.trials == 2 and trainer.current_epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)


def test_interrupted(labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    fit = {"trainer": {"max_epochs": 2, "callbacks": [{"class_path": f"{__name__}.CtrlC"}]}}
    given = ["--config", config(tmp_path, fit=fit), "--data.labels", labels, "--output", str(output), "--trials", "3"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        assert run(*given) == 130
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from the first on
    assert "interrupted; the same command goes on" in capsys.readouterr().err
    assert (output / "best.yaml").is_file()
    assert run(*given) == 0
    trials = trials_of(output)
    assert [trial.state.name for trial in trials] == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert trials[2].params == trials[1].params
    assert sorted(path.name for path in (output / "trials").iterdir()) == ["0", "2", "3"]


def test_a_table_that_changes_meanwhile_is_no_part_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, output = write_separable_table(tmp_path, noise=0.4), tmp_path / "out"
    was = LabelTable.read(labels)
    given = ["--config", config(tmp_path, epochs=1), "--data.labels", labels, "--output", str(output), "--trials", "2"]

    def run_and_change(trial: optuna.Trial, *others: Any) -> TrialOutcome:
        outcome = run_trial(trial, *others)
        scores = was.scores.assign(rougeL=was.scores["rougeL"] / 2)
        LabelTable(scores, was.questions, was.fingerprint).write(labels)
        return outcome

    monkeypatch.setattr(tune_module, "run_trial", run_and_change)
    assert run(*given) == 2
    assert "corag tune: the label table has changed since the study began; put back" in capsys.readouterr().err
    monkeypatch.undo()
    assert run(*given) == 2 and "differs in its labels (digest)" in capsys.readouterr().err
    was.write(labels)
    assert run(*given) == 0
    trials = trials_of(output)
    assert [trial.state.name for trial in trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert trials[1].value is None and trials[2].params == trials[1].params  # taken up anew


def test_no_trial_begins_after_the_time_limit(
    labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(tune_module, "monotonic", lambda: next(clock))  # ten seconds from look to look
    given = ["--data.labels", labels, "--output", str(tmp_path / "out"), "--time-limit", "25"]
    assert run("--config", config(tmp_path, epochs=1), *given) == 0
    assert "trials: 2 complete\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "space is empty"),
        ({"model.margins": {"type": "float", "low": 0, "high": 1}}, "model.margins is no option of `corag fit`"),
        ({"output": {"type": "categorical", "choices": ["a", "b"]}}, "output is no option of `corag fit`"),
        ({"model.margin": {"type": "float", "low": 2, "high": 1}}, "low of model.margin must be at most high"),
        ({"model.hidden": {"type": "categorical", "choices": [[8], "wide"]}}, "model.hidden"),
        ({"data.batch_size": {"type": "float", "low": 8, "high": 9.5}}, "data.batch_size"),
    ],
)
def test_an_unusable_space(
    labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], space: dict[str, Any], message: str
) -> None:
    assert run("--config", config(tmp_path, space), "--data.labels", labels, "--output", str(tmp_path / "out")) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.labels", "none.parquet"], "none.parquet does not exist"),
        (["--storage", "mysql:a"], "storage must be sqlite:PATH or journal:PATH, got 'mysql:a'"),
        (["--trials", "0"], "trials must be at least 1, got 0"),
        (["--trials", "many"], "trials"),
        (["--sampler", "grid"], "sampler must be one of tpe, random, got 'grid'"),
        (["--set", "checkpoint.monitor=train/loss"], "checkpoint.monitor must be of the validation split"),
        (["--set", "trainer.devices=2"], "trainer.devices must be 1 or one number in a list, got 2"),
        (["--set", "model.unknown=1"], "model has no option unknown; `corag fit --help` shows all"),
        (["--set", "model.margin=[1"], "--set model.margin=[1: the value is not YAML"),
        (["--set", "model.margin"], "--set takes KEY=VALUE, such as trainer.max_epochs=30, got 'model.margin'"),
        (["--fit.model.margin", "1"], "--fit.model.margin belongs in a file; on the command line, --set KEY=VALUE"),
        (["--fit_config", "none.yaml"], "none.yaml"),
    ],
)
def test_unusable_options(
    labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    given = ["--config", config(tmp_path), "--data.labels", labels, "--output", str(tmp_path / "out")]
    assert run(*given, *arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert not (tmp_path / "out").exists()


def test_labels_are_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert "--data.labels is required" in capsys.readouterr().err


def test_options_of_fit_come_from_files_below_those_of_the_command(labels: str, tmp_path: Path) -> None:
    (tmp_path / "fit.yaml").write_text("model: {margin: 0.25, weight_regression: 0.5}\noutput: runs/elsewhere\n")
    fit = {"trainer": {"max_epochs": 1}, "model": {"margin": 0.5, "weight_contrastive": 0.5}}
    given = ["--data.labels", labels, "--output", str(tmp_path / "out"), "--trials", "1"]
    files = ["--config", config(tmp_path, fit=fit), "--fit-config", str(tmp_path / "fit.yaml")]
    assert run(*given, *files, "--set", "model.margin=0.75", "--set", "model.weight_classification=2") == 0
    best = yaml.safe_load((tmp_path / "out" / "best.yaml").read_text())
    weights = {name: best["model"][f"weight_{name}"] for name in ("contrastive", "classification", "regression")}
    assert weights == {"contrastive": 0.5, "classification": 2.0, "regression": 0.5}
    assert (best["model"]["margin"], best["trainer"]["max_epochs"]) == (0.75, 1)
    assert not (tmp_path / "runs").exists()


def test_the_shipped_space_is_one_of_fit(labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--data.labels", labels, "--output", str(tmp_path), "--trials", "1", "--set", "trainer.max_epochs=1"]
    assert run(*given, "--json") == 0
    shipped = yaml.safe_load((CONFIGS / "tune.yaml").read_text())["space"]
    assert set(json.loads(capsys.readouterr().out)["trials"][0]["options"]) == set(shipped)


def test_without_optuna(labels: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "optuna" or "tuning" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert run("--data.labels", labels) == 2
    assert "needs the package 'optuna', which is not installed: pip install 'corag[train]'" in capsys.readouterr().err
