"""What an agent has seen: in its checkpoints, through what it was started from, and in its export."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from corag_agent.datamodule import LabelDataModule
from corag_agent.export import export
from corag_agent.module import ConfigurationAgentModule
from corag_agent.seen import Seen, digest_of_name, table_digest
from corag_agent.training import training_cli
from corag_search.agent import ConfigurationAgent
from corag_search.errors import InputError
from data_prep.merge import merge_tables
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table, write_separable_table

torch.set_num_threads(1)
QUICK = ("--model.hidden", "[6]", "--trainer.max_epochs", "1", "--trainer.callbacks", "[]", "--trainer.logger", "false")


def labelled(path: Path, data: str, documents: dict[str, list[str]], splits: dict[str, str]) -> str:
    """A table of questions q000, q001 … about these documents and of these splits."""
    table = separable_table(len(documents), noise=0.4)
    questions = table.questions.assign(documents=list(documents.values()), split=list(splits.values()))
    LabelTable(table.scores, questions, {**table.fingerprint, "data": {"name": data}}).write(path)
    return str(path)


@pytest.fixture
def labels(tmp_path: Path) -> str:
    """Questions 0 to 7 train, 8 to 11 validate, 12 to 15 test; two questions on each document."""
    names = [f"q{i:03}" for i in range(16)]
    splits = ["train"] * 8 + ["val"] * 4 + ["test"] * 4
    documents = {name: [f"D{i // 2}"] for i, name in enumerate(names)}
    return labelled(tmp_path / "mine.parquet", "en", documents, dict(zip(names, splits, strict=True)))


def fit(labels: str, output: Path, *more: str) -> Path:
    given = ["--data.labels", labels, "--output", str(output), "--trainer.enable_progress_bar", "false"]
    training_cli(["fit", *given, *QUICK, *more])
    return output / "checkpoints" / "last.ckpt"


def seen_by(checkpoint: Path, out: Path) -> dict[str, Any] | None:
    return ConfigurationAgent.load(export(checkpoint, out)).config.get("seen")


def digests(*names: str) -> list[str]:
    return sorted(map(digest_of_name, names))


def ids(*numbers: int) -> list[str]:
    return digests(*(f"en/q{i:03}" for i in numbers))


def test_of_names_there_are_digests_only() -> None:
    seen = Seen.of(["val", "train"], {"t": "1"}, ["en/q1", "en/q1"], ["Plan 2031"])
    # printf '"en/q1"' | sha256sum, and of '"Plan 2031"'
    assert seen == Seen(("train", "val"), {"t": "1"}, frozenset({"e1c5df24d8afce09"}), frozenset({"5de41feae75b10b4"}))
    assert seen.knows("en", "q1", []) and seen.knows("en", "q2", ["Plan 2031"]) and not seen.knows("en", "q2", ["Plan"])


def test_an_export_says_what_trained_and_what_validated(labels: str, tmp_path: Path) -> None:
    checkpoint = fit(labels, tmp_path / "run")
    assert seen_by(checkpoint, tmp_path / "agent") == {
        "splits": ["train", "val"],
        "tables": {"mine": table_digest(LabelTable.read(labels))},
        "questions": ids(*range(12)),
        "documents": digests("D0", "D1", "D2", "D3", "D4", "D5"),
    }
    config = tmp_path / "agent" / "config.json"
    text = config.read_text()
    assert "answer 1" not in text and str(tmp_path) not in text and "q003" not in text and "D3" not in text
    config.write_text(text.replace(*ids(3), *ids(13)))
    with pytest.raises(InputError, match=r"config\.json was changed since it was written"):
        ConfigurationAgent.load(tmp_path / "agent")
    assert "seen" not in json.loads((export(checkpoint, tmp_path / "agent", seen=False) / "config.json").read_text())


def test_of_a_limit_and_of_folds_only_what_they_leave(labels: str) -> None:
    limited = LabelDataModule(labels, limit=3)
    assert len(limited.seen.questions) == 3 + 4 and set(ids(8, 9, 10, 11)) < limited.seen.questions
    folded = LabelDataModule(labels, folds=4, fold=1)
    held = folded.table.questions["question_id"].iloc[folded.splits["test"]]
    assert set(ids(*range(16))) - folded.seen.questions == set(digests(*(f"en/{name}" for name in held)))
    assert folded.seen.documents.isdisjoint(digests(*(f"D{int(name[1:]) // 2}" for name in held)))


def test_ids_of_a_merged_table_name_their_data(tmp_path: Path) -> None:
    splits = dict.fromkeys(("q000", "q001", "q002", "q003"), "train")
    for name in ("en", "zh"):
        labelled(tmp_path / f"{name}.parquet", name, {one: [f"{name}{one}"] for one in splits}, splits)
    merge_tables([LabelTable.read(tmp_path / f"{name}.parquet") for name in ("en", "zh")]).write(tmp_path / "m.parquet")
    seen = LabelDataModule(str(tmp_path / "m.parquet")).seen
    assert sorted(seen.questions) == digests(*(f"{data}/q00{i}" for data in ("en", "zh") for i in range(4)))
    assert seen.knows("zh", "q001", []) and not seen.knows("de", "q001", []) and seen.knows("de", "q9", ["enq000"])


def test_documents_that_a_table_does_not_name(tmp_path: Path) -> None:
    seen = LabelDataModule(write_separable_table(tmp_path)).seen
    assert not seen.documents and seen.knows("synthetic", "q000", ["d"]) and not seen.knows("synthetic", "q0", ["d"])


@pytest.mark.parametrize("how", ["--model.init_from", "--ckpt_path"])
def test_what_weights_were_started_from_is_seen_too(labels: str, tmp_path: Path, how: str) -> None:
    first = fit(labels, tmp_path / "first")
    splits = {"q000": "train", "q001": "train", "q002": "train", "q003": "val", "q004": "test"}
    other = labelled(
        tmp_path / "other.parquet", "zh", {name: ["D7" if name == "q003" else name] for name in splits}, splits
    )
    second = fit(other, tmp_path / "second", how, str(first), "--trainer.max_epochs", "2")
    seen = seen_by(second, tmp_path / "agent")
    assert seen is not None
    assert seen["questions"] == sorted(ids(*range(12)) + digests("zh/q000", "zh/q001", "zh/q002", "zh/q003"))
    assert seen["documents"] == digests("D0", "D1", "D2", "D3", "D4", "D5", "D7", "q000", "q001", "q002")
    assert set(seen["tables"]) == {"mine", "other"}
    # What a checkpoint from before the record has seen is not known, nor then what is made of it.
    state = torch.load(first, weights_only=True)
    del state["seen"]
    torch.save(state, tmp_path / "old.ckpt")
    assert seen_by(tmp_path / "old.ckpt", tmp_path / "agent") is None
    third = fit(other, tmp_path / "third", how, str(tmp_path / "old.ckpt"), "--trainer.max_epochs", "2")
    assert seen_by(third, tmp_path / "agent") is None


def test_what_is_started_from_is_read_once(labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = fit(labels, tmp_path / "first")
    read, loaded = [], []
    read_bytes, load = Path.read_bytes, ConfigurationAgentModule.load_from_checkpoint
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or read_bytes(path))
    monkeypatch.setattr(
        ConfigurationAgentModule,
        "load_from_checkpoint",
        lambda file, **given: loaded.append(type(file)) or load(file, **given),
    )
    fit(labels, tmp_path / "second", "--model.init_from", str(start))
    assert read.count(start) == 1 and loaded == [io.BytesIO]


def test_a_record_of_names_in_the_clear_as_the_first_composites_have_it() -> None:
    given = {"splits": ["train"], "tables": {"t": "1"}, "questions": ["en/q1"], "documents": ["A", digest_of_name("B")]}
    read = Seen.in_config({"seen": given}, "config.json", "corag composite")
    assert read == Seen.of(["train"], {"t": "1"}, ["en/q1"], ["A", "B"]) and read.knows("en", "q1", [])


@pytest.mark.parametrize(
    "given", [{"splits": ["train"]}, {"splits": [], "tables": {}, "questions": [1], "documents": []}]
)
def test_a_record_that_is_not_readable(given: dict) -> None:
    with pytest.raises(InputError, match=r"config.json: seen must have splits, .* make it again by `corag export`"):
        Seen.in_config({"seen": given}, "config.json", "corag export")
