import csv
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch import Callback, LightningModule, Trainer

from corag_agent.cli import main
from corag_agent.export import export
from corag_agent.training import training_cli
from corag_search.agent import ConfigurationAgent
from corag_search.errors import InputError
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table, write_separable_table

torch.set_num_threads(1)
CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_separable_table(tmp_path_factory.mktemp("labels"))


@pytest.fixture(scope="module")
def trained(labels: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training's checkpoints; not to be written to."""
    output = tmp_path_factory.mktemp("trained")
    run(labels, output)
    return output / "checkpoints"


def run(labels: str, output: Path, *more: str, subcommand: str = "fit", config: str = "train.yaml") -> Any:
    given = ["--config", str(CONFIGS / config), "--data.labels", labels, "--output", str(output)]
    return training_cli(
        [subcommand, *given, "--trainer.enable_progress_bar", "false", "--trainer.max_epochs", "2", *more]
    )


def test_fit_test_export(labels: str, tmp_path: Path) -> None:
    cli = run(labels, tmp_path)
    assert cli.model.hparams["input_dim"] == 8
    checkpoints = tmp_path / "checkpoints"
    assert sorted(file.name for file in checkpoints.iterdir()) == ["best.ckpt", "last.ckpt"]
    with (tmp_path / "logs" / "version_0" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {"train/loss_contrastive", "val/regret", "val/rougeL", "val/accuracy"} <= set(rows[0])
    resolved = yaml.safe_load((tmp_path / "config.fit.yaml").read_text())
    assert resolved["model"]["hidden"] == [512, 256, 128]
    assert resolved["trainer"]["max_epochs"] == 2

    best = str(checkpoints / "best.ckpt")
    tested = run(labels, tmp_path, "--ckpt_path", best, subcommand="test")
    assert 0 <= tested.trainer.callback_metrics["test/regret"] <= 0.6
    metrics = {name: float(value) for name, value in tested.trainer.callback_metrics.items()}
    agent = ConfigurationAgent.load(export(best, tmp_path / "agent", metrics))
    assert agent.predict([0.0, 1.0] + [0.0] * 6).iterations in range(5, 11)


def test_splits_of_a_single_question(labels: str, tmp_path: Path) -> None:
    table = LabelTable.read(labels)
    splits = ["val", "test", *["train"] * (len(table) - 2)]
    LabelTable(table.scores, table.questions.assign(split=splits), table.fingerprint).write(tmp_path / "one.parquet")
    fitted = run(str(tmp_path / "one.parquet"), tmp_path)
    given = ("--ckpt_path", str(tmp_path / "checkpoints" / "best.ckpt"))
    tested = run(str(tmp_path / "one.parquet"), tmp_path, *given, subcommand="test")
    for stage, cli in (("val", fitted), ("test", tested)):
        assert 0 <= cli.trainer.callback_metrics[f"{stage}/regret"] <= 0.6


def test_from_an_agent_for_other_rerankers(trained: Path, tmp_path: Path) -> None:
    """Under the command line too, which makes every module with the hyperparameters of the one that it is making."""
    fewer = write_separable_table(tmp_path, rerankers=("gamma", "alpha"))
    start = ("--model.init_from", str(trained / "best.ckpt"), "--model.optimizer.lr", "0.0")
    encoder = run(fewer, tmp_path / "new", *start).model.encoder
    old = torch.load(trained / "best.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(encoder.layers[0].weight, old["encoder.layers.0.weight"])
    assert torch.equal(encoder.reranker_head.weight, old["encoder.reranker_head.weight"][[2, 0]])
    narrower = write_separable_table(tmp_path, dimension=6)
    with pytest.raises(InputError, match="init_from: the checkpoint was trained with embedder"):
        run(narrower, tmp_path / "narrower", *start)


def test_the_resolved_config_repeats_the_run(labels: str, tmp_path: Path) -> None:
    first = run(labels, tmp_path / "one", "--model.margin", "0.7")
    second = training_cli(
        ["fit", "--config", str(tmp_path / "one" / "config.fit.yaml"), "--output", str(tmp_path / "two")]
    )
    assert second.model.hparams["margin"] == 0.7
    for left, right in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(left, right)


def printed_config(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    with pytest.raises(SystemExit):
        training_cli(["fit", "--data.labels", "a.parquet", *arguments, "--print_config"])
    out, err = capsys.readouterr()
    assert err == ""
    return yaml.safe_load(out)


def test_the_defaults_are_those_of_the_shipped_file(capsys: pytest.CaptureFixture[str]) -> None:
    default = printed_config(capsys)
    assert default == printed_config(capsys, "--config", str(CONFIGS / "train.yaml"))
    assert (default["trainer"]["max_epochs"], default["trainer"]["deterministic"]) == (60, True)
    assert default["checkpoint"]["monitor"] == "val/regret"


def test_a_configuration_overrides_the_defaults(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("trainer: {max_epochs: 7}\nmodel: {margin: 0.5}\n")
    default = printed_config(capsys)
    default["trainer"]["max_epochs"], default["model"]["margin"] = 7, 0.5
    assert printed_config(capsys, "--config", str(tmp_path / "mine.yaml")) == default


def test_without_a_configuration_a_run_is_the_same(
    labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = run(labels, tmp_path / "one")
    monkeypatch.chdir(tmp_path)
    quiet = ("--trainer.enable_progress_bar", "false")
    capsys.readouterr()
    assert main(["fit", "--data.labels", labels, "--trainer.max_epochs", "2", *quiet]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")  # the best checkpoint
    left = torch.load(tmp_path / "runs" / "agent" / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(left[name], tensor) for name, tensor in whole.model.state_dict().items())
    assert main(["test", "--data.labels", labels, "--ckpt_path", "best", *quiet]) == 0
    assert "test/regret" in capsys.readouterr().out


def test_the_best_checkpoint_is_named_with_the_metric_it_was_chosen_by(
    labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ("--trainer.max_epochs", "1", "--trainer.enable_progress_bar", "false", "--trainer.callbacks", "[]")
    chosen_by = ("--checkpoint.monitor", "val/rougeL", "--checkpoint.mode", "max")
    assert main(["fit", "--data.labels", labels, "--output", str(tmp_path), *quick, *chosen_by]) == 0
    with (tmp_path / "logs" / "version_0" / "metrics.csv").open() as file:
        (reached,) = (row["val/rougeL"] for row in csv.DictReader(file) if row["val/rougeL"])
    assert capsys.readouterr().out.startswith(f"best checkpoint (val/rougeL {float(reached):.4f}): ")


def test_fit_shows_its_progress(labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training_cli(["fit", "--data.labels", labels, "--output", str(tmp_path), "--trainer.max_epochs", "1"])
    assert "Epoch 0" in capsys.readouterr().out


def test_again_into_the_same_directory(labels: str, tmp_path: Path) -> None:
    run(labels, tmp_path)
    run(labels, tmp_path, "--model.margin", "0.5")
    assert yaml.safe_load((tmp_path / "config.fit.yaml").read_text())["model"]["margin"] == 0.5
    assert sorted(file.name for file in (tmp_path / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]


def test_resume_continues_exactly(labels: str, tmp_path: Path) -> None:
    whole = run(labels, tmp_path / "whole", "--trainer.max_epochs", "4")
    run(labels, tmp_path / "parts")
    resumed = run(labels, tmp_path / "parts", "--trainer.max_epochs", "4", "--ckpt_path", "last")
    assert resumed.trainer.current_epoch == 4
    for left, right in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(
    ("begun", "given", "message"),
    [
        (
            (),
            ("--model.margin", "0.25"),
            "model.margin is 0.25, but checkpoint .*last.ckpt was trained with 0.7, which",
        ),
        ((), ("--model.margin", "1"), "model.margin is 1.0, .* trained with 0.7"),  # the default, named
        ((), ("--model.hidden=[16, 8]",), r"model.hidden is \[16, 8\], .* trained with \[512, 256, 128\]"),
        ((), ("--model.optimizer.lr", "0.1"), "model.optimizer.init_args.lr is 0.1, .* trained with 0.005, which"),
        (
            ("--model.scheduler", "StepLR", "--model.scheduler.step_size", "1"),
            ("--model.scheduler", "StepLR", "--model.scheduler.step_size", "2"),
            "model.scheduler.init_args.step_size is 2, .* trained with 1, which",
        ),
    ],
)
def test_an_option_that_the_checkpoint_settles_otherwise_is_refused(
    labels: str, tmp_path: Path, begun: tuple[str, ...], given: tuple[str, ...], message: str
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("model: {margin: 0.7, optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.005}}}\n")
    run(labels, tmp_path, "--config", str(mine), *begun)
    (tmp_path / "config.fit.yaml").unlink()
    with pytest.raises(InputError, match=f"{message}.* --model.init_from .*last.ckpt in place of --ckpt_path") as found:
        run(labels, tmp_path, "--ckpt_path", "last", "--trainer.max_epochs", "3", *given)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "config.fit.yaml").exists()


def test_another_optimizer_than_the_checkpoint_has_is_refused(labels: str, tmp_path: Path) -> None:
    run(labels, tmp_path)
    (tmp_path / "config.fit.yaml").unlink()
    with pytest.raises(InputError, match=r"model.optimizer is SGD, with dampening, .* one, with amsgrad, .*init_from"):
        run(labels, tmp_path, "--ckpt_path", "last", "--trainer.max_epochs", "3", "--model.optimizer", "SGD")
    assert not (tmp_path / "config.fit.yaml").exists()


def test_options_as_the_checkpoint_has_them_or_left_out_are_taken(labels: str, tmp_path: Path) -> None:
    stepped = ("--model.scheduler", "StepLR", "--model.scheduler.step_size", "1")
    equal = ("--model.margin", "0.7", "--model.optimizer.lr", "0.005", "--model.hidden", "[512, 256, 128]", *stepped)
    run(labels, tmp_path, *equal)
    for epochs, given in (("3", equal), ("4", ())):  # the scheduler has lowered the rate meanwhile
        resumed = run(labels, tmp_path, "--ckpt_path", "last", "--trainer.max_epochs", epochs, *given)
        assert resumed.model.hparams["margin"] == 0.7
    repeated = ("fit", "--config", str(tmp_path / "config.fit.yaml"), "--trainer.max_epochs", "5")
    assert training_cli([*repeated, "--ckpt_path", "last"]).trainer.current_epoch == 5
    other = tmp_path / "other.yaml"
    other.write_text("model: {margin: 0.5}\n")
    with pytest.raises(InputError, match=r"model.margin is 0.5, .* trained with 0.7"):
        run(labels, tmp_path, "--ckpt_path", "best", "--config", str(other), subcommand="test")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--model.optimizer.init_args.lr", "-1"), "init_args.lr must be a finite number, at least 0, got -1.0$"),
        (("--model.optimizer.eps=-1e-8",), "init_args.eps must be a finite number, at least 0, got -1e-08$"),
        (("--model.optimizer.weight_decay", "-2"), "init_args.weight_decay must be a finite number, .* got -2.0$"),
        (("--model.optimizer.betas", "[0.9, 1]"), r"init_args.betas must be numbers from 0 to below 1, got \[0.9, 1"),
        (("--model.optimizer.betas", "[-0.1, 0.9]"), r"init_args.betas must be .* got \[-0.1, 0.9\]$"),
        (
            ("--model.optimizer", "SGD", "--model.optimizer.lr", "0.1", "--model.optimizer.momentum", "-0.5"),
            "init_args.momentum must be a finite number, at least 0, got -0.5$",
        ),
        (
            ("--model.optimizer", "SGD", "--model.optimizer.lr", "0.1", "--model.optimizer.nesterov", "true"),
            "model.optimizer or model.scheduler refuses its options: Nesterov momentum requires",
        ),
    ],
)
def test_an_optimizer_that_cannot_be_made_leaves_nothing_behind(
    labels: str, tmp_path: Path, given: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(labels, tmp_path / "out", *given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "value"), [("lr", math.nan), ("lr", math.inf), ("eps", math.inf)])
def test_a_file_may_name_numbers_that_are_none(labels: str, tmp_path: Path, name: str, value: float) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(yaml.safe_dump({"model": {"optimizer": {"init_args": {name: value}}}}))
    with pytest.raises(InputError, match=f"init_args.{name} must be a finite number, at least 0, got {value}"):
        run(labels, tmp_path / "out", "--config", str(mine))
    assert not (tmp_path / "out").exists()


def test_the_best_checkpoint_is_named_from_where_one_stands(
    labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    quick = ("--trainer.max_epochs", "1", "--trainer.enable_progress_bar", "false", "--trainer.callbacks", "[]")
    beside = tmp_path / "beside"
    for output, told in (("agent", "agent/checkpoints/best.ckpt"), (beside, beside / "checkpoints" / "best.ckpt")):
        assert main(["fit", "--data.labels", labels, "--output", str(output), *quick]) == 0
        assert capsys.readouterr().out.split("): ")[1] == f"{told}\n"


def test_the_last_checkpoint_is_of_the_last_epoch_and_the_best_is_not(labels: str, tmp_path: Path) -> None:
    run(labels, tmp_path, "--trainer.max_epochs", "5", "--model.optimizer.init_args.lr", "0")
    epochs = {
        name: torch.load(tmp_path / "checkpoints" / f"{name}.ckpt", weights_only=True)["epoch"]
        for name in ("best", "last")
    }
    assert epochs == {"best": 0, "last": 4}
    resumed = run(labels, tmp_path, "--trainer.max_epochs", "7", "--ckpt_path", "last")
    assert resumed.trainer.global_step == 7  # one batch an epoch


def test_the_last_checkpoint_needs_no_validation(labels: str, tmp_path: Path) -> None:
    seldom = ("--trainer.check_val_every_n_epoch", "3", "--early_stopping.patience", "9")
    whole = run(labels, tmp_path / "whole", *seldom, "--trainer.max_epochs", "6").model
    run(labels, tmp_path / "half", *seldom, "--trainer.max_epochs", "4")
    last = tmp_path / "half" / "checkpoints" / "last.ckpt"
    assert torch.load(last, weights_only=True)["epoch"] == 3
    more = ("--trainer.max_epochs", "6", "--ckpt_path", "last")
    resumed = run(labels, tmp_path / "half", *seldom, *more).model
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
    assert whole.calibration == resumed.calibration


def test_early_stopping_and_going_on_with_more_patience(labels: str, tmp_path: Path) -> None:
    still = ("--trainer.max_epochs", "9", "--model.optimizer.init_args.lr", "0")
    stopped = run(labels, tmp_path, *still, "--early_stopping.patience", "2")
    assert stopped.trainer.current_epoch == 3  # the first one and two without a better one
    on = run(labels, tmp_path, *still, "--early_stopping.patience", "4", "--ckpt_path", "last")
    assert on.trainer.current_epoch == 5


def test_gpu_config(labels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, paper = printed_config(capsys, "--config", str(CONFIGS / "train_gpu.yaml")), printed_config(capsys)
    assert config["trainer"]["deterministic"] is True
    paper["trainer"].update(accelerator="gpu", precision="16-mixed")
    assert config == paper
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match=r"trainer.accelerator is 'gpu'.*configs/train.yaml"):
            run(labels, tmp_path, config="train_gpu.yaml")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.labels", "none.parquet"], r"none.parquet does not exist"),
        (["--data.batch_size", "many"], r"data.batch_size.*many"),
        (["--data.batch_size", "0"], "batch_size must be at least 1, got 0"),
        (["--data.minimum_gain", "50"], "0 of 30 training questions"),
        (["--model.unknown", "1"], "there is no option --model.unknown"),
        (["--model.hidden", "[0]"], "hidden widths must be whole numbers"),
        (["--config", "none.yaml"], r"none.yaml"),
        (["--ckpt_path", "none.ckpt"], r"none.ckpt"),
        (["--ckpt_path", "last"], r"checkpoints/last.ckpt does not exist; `corag fit` makes one"),
        (["--checkpoint.monitor", "val/nothing"], r"monitor must be one of train/loss.*, got 'val/nothing'"),
        (["--early_stopping.monitor", "val/nothing"], r"early_stopping.monitor must be one of .*, got 'val/nothing'"),
        (["--early_stopping.patience", "-1"], "early_stopping.patience must be at least 1 epoch, got -1"),
    ],
)
def test_unusable_input_is_one_line_and_leaves_nothing(
    labels: str, tmp_path: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        run(labels, tmp_path / "output", *arguments)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("subcommand", "split"), [("fit", "train"), ("fit", "val"), ("test", "test")])
def test_an_empty_split_leaves_nothing(trained: Path, tmp_path: Path, subcommand: str, split: str) -> None:
    table = separable_table()
    splits = table.questions["split"].replace(split, "val" if split == "train" else "train")
    LabelTable(table.scores, table.questions.assign(split=splits), table.fingerprint).write(tmp_path / "l.parquet")
    given = [] if subcommand == "fit" else ["--ckpt_path", str(trained / "best.ckpt")]
    with pytest.raises(InputError, match=f"no question in split '{split}', which {subcommand} needs"):
        run(str(tmp_path / "l.parquet"), tmp_path / "output", *given, subcommand=subcommand)
    assert not (tmp_path / "output").exists()


def test_a_checkpoint_that_training_cannot_go_on_from_leaves_nothing(
    labels: str, trained: Path, tmp_path: Path
) -> None:
    last = str(trained / "last.ckpt")
    with pytest.raises(InputError, match=r"max_epochs must be at least 2, the epochs that .*last.ckpt has had, got 1"):
        run(labels, tmp_path / "output", "--ckpt_path", last, "--trainer.max_epochs", "1")
    other = write_separable_table(tmp_path, rerankers=("delta", "beta", "gamma"))
    with pytest.raises(InputError, match="trained with rerankers"):
        run(other, tmp_path / "output", "--ckpt_path", last)
    state = torch.load(last, weights_only=True)
    del state["optimizer_states"]
    torch.save(state, tmp_path / "weights.ckpt")
    with pytest.raises(InputError, match=r"weights.ckpt holds weights only"):
        run(labels, tmp_path / "output", "--ckpt_path", str(tmp_path / "weights.ckpt"))
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("subcommand", ["fit", "test"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.ckpt", "does not exist; `corag fit` makes one"),
        ("text.ckpt", "is not one that `corag fit` wrote: it is damaged or of another format; name"),
        ("cut.ckpt", "is not one that `corag fit` wrote: it is damaged or of another format; name"),
        ("code.ckpt", "is not one that `corag fit` wrote: it is damaged or of another format; name"),
        ("foreign.ckpt", "is not one that `corag fit` wrote: it has no hyper_parameters; name"),
        ("folder.ckpt", "is a directory; name a file in it"),
    ],
)
def test_what_is_no_checkpoint(
    labels: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    subcommand: str, name: str, message: str,
) -> None:  # fmt: skip
    (tmp_path / "text.ckpt").write_text("not weights")
    (tmp_path / "cut.ckpt").write_bytes((trained / "best.ckpt").read_bytes()[:1000])
    torch.save({"state_dict": {}, "path": tmp_path}, tmp_path / "code.ckpt")  # a Path is an object that code makes
    torch.save({"state_dict": {}}, tmp_path / "foreign.ckpt")
    (tmp_path / "folder.ckpt").mkdir()
    given = ["--data.labels", labels, "--output", str(tmp_path / "output"), "--ckpt_path", str(tmp_path / name)]
    assert main([subcommand, *given]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"{name} {message}" in err
    assert "weights_only" not in err
    assert not (tmp_path / "output").exists()


def test_test_needs_a_checkpoint(
    labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["test", "--data.labels", labels]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "--ckpt_path is not set" in err
    assert list(tmp_path.iterdir()) == []


def test_best_is_that_of_the_output(labels: str, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "checkpoints")
    named = run(labels, tmp_path, "--ckpt_path", "best", subcommand="test").trainer.callback_metrics
    given = run(labels, tmp_path, "--ckpt_path", str(trained / "best.ckpt"), subcommand="test").trainer.callback_metrics
    assert named == given


def test_labels_of_other_rerankers_are_refused(labels: str, tmp_path: Path) -> None:
    run(labels, tmp_path)
    other = write_separable_table(tmp_path, rerankers=("delta", "beta", "gamma"))
    with pytest.raises(InputError, match=r"trained with rerankers .*'alpha'.* the label table has .*'delta'"):
        run(other, tmp_path, "--ckpt_path", str(tmp_path / "checkpoints" / "best.ckpt"), subcommand="test")


class CtrlC(Callback):
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interruption_is_one_for_the_demo_too(labels: str, tmp_path: Path) -> None:
    """Lightning would end the process, without a word."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    given = ["--data.labels", labels, "--output", str(tmp_path), "--trainer.enable_progress_bar", "false"]
    try:
        with pytest.raises(KeyboardInterrupt):
            training_cli(["fit", *given], [CtrlC()])
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from the first on


@pytest.mark.parametrize("arguments", [[], ["train"], ["validate"], ["predict"]])
def test_unknown_subcommands(arguments: list[str]) -> None:
    with pytest.raises(InputError, match=r"fit.*test"):
        training_cli(arguments)


@pytest.mark.parametrize("subcommand", ["fit", "test"])
def test_help_has_an_example(subcommand: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        training_cli([subcommand, "--help"])
    assert caught.value.code == 0
    assert f"Example: corag {subcommand} --data.labels labels.parquet" in " ".join(capsys.readouterr().out.split())
