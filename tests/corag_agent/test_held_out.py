"""An agent of one fold is measured on what it has not seen, by every command that could do otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from corag_agent.cli import main
from corag_agent.evaluation.comparison import AGENT, following
from corag_agent.export_evaluation import evaluate_export
from corag_agent.folds import fold_of
from corag_search.agent import ConfigurationAgent
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table

torch.set_num_threads(1)
FOLD = ("--data.folds", "4", "--data.fold", "1")
LAST = Path("agent") / "checkpoints" / "last.ckpt"


def table_of(questions: int = 32, name: str = "synthetic") -> LabelTable:
    """Question i is about document i mod 8; its own splits have nothing to do with any fold."""
    table = separable_table(questions, noise=0.4)
    documents = [[f"d{i % 8}"] for i in range(questions)]
    return LabelTable(
        table.scores, table.questions.assign(documents=documents), {**table.fingerprint, "data": {"name": name}}
    )


def command(subcommand: str, labels: Path, output: Path, *more: str) -> int:
    quick = ("--trainer.max_epochs", "2", "--trainer.callbacks", "[]", "--trainer.logger", "false")
    given = ["--data.labels", str(labels), "--output", str(output), "--trainer.enable_progress_bar", "false"]
    return main([subcommand, *given, "--model.hidden", "[6]", *quick, *more])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and an agent of its second fold; not to be written to."""
    folder = tmp_path_factory.mktemp("held_out")
    table_of().write(folder / "labels.parquet")
    assert command("fit", folder / "labels.parquet", folder / "agent", *FOLD) == 0
    return folder


@pytest.mark.parametrize(
    ("given", "has"),
    [
        (("test", "--ckpt_path"), ()),
        (("test", "--ckpt_path"), ("--data.folds", "4", "--data.fold", "0")),
        (("test", "--ckpt_path"), (*FOLD, "--data.seed", "3")),
        (("fit", "--trainer.max_epochs", "4", "--ckpt_path"), ()),
        (("fit", "--model.init_from"), ("--data.folds", "4", "--data.fold", "2")),
    ],
)
def test_what_it_has_seen_is_not_held_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], has: tuple[str, ...]
) -> None:
    subcommand, *more = given
    assert command(subcommand, folder / "labels.parquet", tmp_path / "new", *has, *more, str(folder / LAST)) == 2
    said = capsys.readouterr().err
    assert "was trained with fold 1 of 4 (by document, seed 0) of these labels" in said and said.count("\n") == 1
    assert "set data.folds 4, data.fold 1, data.split_by document, data.seed 0 as then" in said
    assert not (tmp_path / "new").exists()


def test_its_own_fold_and_other_labels_are_measured(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--ckpt_path", str(folder / LAST))
    assert command("test", folder / "labels.parquet", tmp_path / "own", *FOLD, *given) == 0
    table_of(name="another").write(tmp_path / "other.parquet")
    assert command("test", tmp_path / "other.parquet", tmp_path / "other", *given) == 0
    assert command("fit", folder / "labels.parquet", tmp_path / "split") == 0
    capsys.readouterr()
    given = ("--ckpt_path", str(tmp_path / "split" / "checkpoints" / "last.ckpt"))
    assert command("test", folder / "labels.parquet", tmp_path / "split", *FOLD, *given) == 2
    assert "was trained with the splits of these labels, this run has fold 1 of 4" in capsys.readouterr().err


def test_the_card_is_about_its_own_fold(folder: Path, tmp_path: Path) -> None:
    labels = folder / "labels.parquet"
    given = ["export", "--checkpoint", str(folder / LAST), "--out", str(tmp_path / "agent"), "--labels", str(labels)]
    assert main(given) == 0
    agent, table = ConfigurationAgent.load(tmp_path / "agent"), LabelTable.read(labels)
    held_out = (fold_of(table, 4) == 1).nonzero()[0]
    reached = {one["method"]: one["rougeL"] for one in agent.config["evaluation"]["methods"]}
    assert agent.config["evaluation"]["questions"] == len(held_out) == 8
    assert reached[AGENT] == pytest.approx(following(table, held_out, agent).rouge.mean())
    assert "On the 8 questions of the test split (fold 1 of 4, by document)," in (
        tmp_path / "agent" / "README.md"
    ).read_text(encoding="utf-8")
    table_of(name="another").write(tmp_path / "other.parquet")
    other = evaluate_export(agent, tmp_path / "other.parquet")
    assert other.questions == len(table.split("test")) and "division" not in other.to_dict()
