"""`corag crossfit`: each agent has seen everything but its own fold, and what is there is not made again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from corag_agent.cli import main
from corag_agent.cross_fitted import INDEX, CrossFitted, HeldOut
from corag_agent.datamodule import LabelDataModule
from corag_agent.evaluation.comparison import agent_index, agent_predictions
from corag_search.agent import ConfigurationAgent
from corag_search.errors import InputError
from data_prep.merge import merge_tables
from data_prep.selection import best_fixed
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table, with_features

torch.set_num_threads(1)
FOLDS = 3
QUICK = ("model.hidden=[6]", "trainer.max_epochs=2", "trainer.callbacks=[]", "trainer.logger=false")


def table_of(name: str, titles: list[str], questions: int = 24, seed: int = 0) -> LabelTable:
    """A table of one data set, question i about document i mod the number of titles."""
    table = with_features(separable_table(questions, seed=seed, noise=0.4))
    documents = [[titles[i % len(titles)]] for i in range(questions)]
    fingerprint = {**table.fingerprint, "data": {"name": name, "fingerprint": name}}
    return LabelTable(table.scores, table.questions.assign(documents=documents), fingerprint)


def merged_table() -> LabelTable:
    """Two languages of the same articles, with the same ids, and another data set; one question bridges two papers."""
    english, chinese = table_of("wiki.en", ["A", "B", "C", "D"]), table_of("wiki.zh", ["A", "B", "E"], seed=1)
    other = table_of("papers", [f"papers/{i}" for i in range(5)], seed=2)
    questions = other.questions.copy()
    questions.at[0, "documents"] = ["papers/0", "papers/1"]
    return merge_tables([english, chinese, LabelTable(other.scores, questions, other.fingerprint)])


def crossfit(labels: Path, output: Path, *more: str, settings: tuple[str, ...] = QUICK) -> int:
    given = ["--data.labels", str(labels), "--output", str(output), "--folds", str(FOLDS)]
    return main(["crossfit", *given, "--set", *settings, *more])


def index_of(output: Path) -> dict[str, Any]:
    return json.loads((output / INDEX).read_text(encoding="utf-8"))


def digests_of(output: Path) -> list[str]:
    return [agent["sha256"] for agent in index_of(output)["agents"]]


def trained_now(capsys: pytest.CaptureFixture[str]) -> list[int]:
    return json.loads(capsys.readouterr().out)["trained"]


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labels") / "labels.parquet"
    merged_table().write(path)
    return path


@pytest.fixture(scope="module")
def fitted(labels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cross-fitted agents; not to be written to."""
    output = tmp_path_factory.mktemp("fitted") / "agents"
    assert crossfit(labels, output) == 0
    return output


def test_no_agent_has_seen_a_document_of_its_own_fold(labels: Path, fitted: Path) -> None:
    """By the folds that each export says it was trained with, and by the table's documents."""
    table = merged_table()
    of_question = dict(zip(table.questions["question_id"], table.questions["documents"], strict=True))
    held_out = []
    for number, held in enumerate(index_of(fitted)["agents"]):
        agent = ConfigurationAgent.load(fitted / held["directory"])
        trained = agent.config["training"]["hyperparameters"]
        assert (held["fold"], trained["folds"], trained["fold"]) == (number, FOLDS, number)
        data = LabelDataModule(str(labels), folds=trained["folds"], fold=trained["fold"], seed=trained["seed"])
        seen = np.concatenate([data.splits["train"], data.splits["val"]])
        seen_documents = {name for documents in table.questions["documents"].iloc[seen] for name in documents}
        asked = {name for question in held["questions"] for name in of_question[question]}
        assert asked == set(held["documents"]) and not asked & seen_documents
        assert not set(held["questions"]) & set(table.questions["question_id"].iloc[seen])
        held_out += held["questions"]
    assert sorted(held_out) == sorted(of_question)


def test_languages_and_bridged_documents_stand_in_one_fold(fitted: Path) -> None:
    agents = index_of(fitted)["agents"]
    fold_of = {name: agent["fold"] for agent in agents for name in agent["questions"]}
    assert fold_of["wiki.en/q000"] == fold_of["wiki.zh/q000"]  # both about A
    assert fold_of["wiki.en/q001"] == fold_of["wiki.zh/q001"]
    assert fold_of["papers/q000"] == fold_of["papers/q001"] == fold_of["papers/q005"]  # 0 and 1 are bridged


def test_the_labels_of_a_fold_have_no_say_in_its_agent(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other scores and inputs of a fold's questions: its agent, trained anew, is the same to the bit; others change."""
    table = merged_table()
    changed = table.questions["question_id"].isin(index_of(fitted)["agents"][1]["questions"]).to_numpy()
    random = np.random.default_rng(0)
    scores = table.scores.copy()
    rows = scores["question_id"].isin(table.questions["question_id"][changed]).to_numpy()
    scores.loc[rows, "rougeL"] = random.random(rows.sum())
    embeddings = [
        random.normal(size=8).astype(np.float32) if other else own
        for own, other in zip(table.questions["embedding"], changed, strict=True)
    ]
    LabelTable(scores, table.questions.assign(embedding=embeddings), table.fingerprint).write(tmp_path / "l.parquet")
    copy = shutil.copytree(fitted, tmp_path / "agents")
    assert crossfit(tmp_path / "l.parquet", copy, "--json") == 0
    assert trained_now(capsys) == [0, 1, 2]  # it is another table
    assert index_of(copy)["labels"]["digest"] != index_of(fitted)["labels"]["digest"]
    same = [one == other for one, other in zip(digests_of(fitted), digests_of(copy), strict=True)]
    assert same == [False, True, False]


def test_what_is_printed_is_what_the_agents_reach_unseen(
    labels: Path, fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(fitted, tmp_path / "agents")
    assert crossfit(labels, copy, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    table, index = merged_table(), index_of(fitted)
    at = {name: row for row, name in enumerate(table.questions["question_id"])}
    reached, fixed = [], []
    for held in index["agents"]:
        rows = np.array([at[name] for name in held["questions"]])
        agent = ConfigurationAgent.load(fitted / held["directory"])
        followed = agent_index(table, agent_predictions(table, rows, agent))
        reached += table.rouge()[rows][followed].tolist()
        rest = np.setdiff1d(np.arange(len(table)), rows)
        fixed += table.rouge()[(rows, *best_fixed(table, rest))].tolist()
    assert (printed["folds"], printed["trained"], printed["questions"]) == (FOLDS, [], len(table))
    assert printed["rougeL"] == pytest.approx(np.mean(reached)) and printed["rougeL"] > 0.3
    assert printed["fixed_rougeL"] == pytest.approx(np.mean(fixed))


def test_only_what_is_missing_is_trained_and_comes_out_the_same(
    labels: Path, fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(fitted, tmp_path / "agents")
    index = index_of(copy)
    whole = index["agents"]
    index["agents"] = whole[:2]  # as a run leaves it that is killed in its last training
    (copy / INDEX).write_text(json.dumps(index), encoding="utf-8")
    shutil.rmtree(copy / whole[2]["directory"])
    assert crossfit(labels, copy, "--json") == 0
    assert trained_now(capsys) == [2] and index_of(copy) == index_of(fitted)
    weights = copy / whole[0]["directory"] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    assert crossfit(labels, copy, "--json") == 0
    assert trained_now(capsys) == [0] and digests_of(copy) == digests_of(fitted)


class Rewriting(Callback):
    """Writes another table over the labels while an agent is trained, as a labelling job does that goes on."""

    def __init__(self, other: str, labels: str) -> None:
        self._other, self._labels = other, labels

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        LabelTable.read(self._other).write(self._labels)


def test_a_table_that_changes_meanwhile_ends_the_run(
    labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folds are others, so an agent of them may have seen what the index would say is held out."""
    table = LabelTable.read(labels)
    table.write(tmp_path / "labels.parquet")
    documents = table.questions["documents"].to_list()
    other = table.questions.assign(documents=documents[1:] + documents[:1])
    LabelTable(table.scores, other, table.fingerprint).write(tmp_path / "other.parquet")
    files = {name: f"{tmp_path}/{name}.parquet" for name in ("labels", "other")}
    rewriting = json.dumps([{"class_path": f"{__name__}.Rewriting", "init_args": files}])
    settings = [one for one in QUICK if not one.startswith("trainer.callbacks")]
    given = (*settings, f"trainer.callbacks={rewriting}")
    assert crossfit(tmp_path / "labels.parquet", tmp_path / "agents", settings=given) == 2
    assert "fold 1 of 3: the label table has changed since this run began" in capsys.readouterr().err
    assert [agent["fold"] for agent in index_of(tmp_path / "agents")["agents"]] == [0]


def test_another_configuration_is_trained_anew(
    labels: Path, fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(fitted, tmp_path / "agents")
    assert crossfit(labels, copy, "--json", settings=(*QUICK, "model.margin=0.5")) == 0
    assert trained_now(capsys) == [0, 1, 2] and set(digests_of(copy)).isdisjoint(digests_of(fitted))
    assert index_of(copy)["training"]["model"]["margin"] == 0.5 and str(tmp_path) not in (copy / INDEX).read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--folds", "2"], "folds must be at least 3"),
        (["--folds", "40"], "40 folds need as many documents, the label table has 9 groups of them"),
        (["--set", "data.fold=1"], "data.fold is set for each fold by `corag crossfit` itself, got 1"),
        (["--set", "data.split_by=domain"], "data.split_by is set for each fold by `corag crossfit` itself"),
        (["--set", "model.init_from=a.ckpt"], "an agent that starts from another may have seen what is held out"),
        (["--set", "ckpt_path=a.ckpt"], "ckpt_path is 'a.ckpt': an agent that starts from another"),
        (["--set", "trainer.devices=2"], "trainer.devices must be 1 or one number in a list, got 2: a fold trains on"),
        (["--set", "data={fold: 1}"], "data.fold is set for each fold by `corag crossfit` itself, got 1"),
        (["--set", "data=5"], "data.labels cannot be set, since data is 5; leave one of the two out"),
        (["--set", "trainer=null"], "trainer must be a group of options, as in {name: value}, or the name"),
        (["--set", "early_stopping=null"], "early_stopping must be a group of options, as in {name: value}, or"),
        (["--set", "data.trian_on=all"], "data has no option trian_on; did you mean data.train_on?"),
        (["--set", "data.minimum_gain=9"], "fold 0 of 3: 0 of "),
        (["--set", "trainer.fast_dev_run=true"], "fold 0 of 3: training left no checkpoint"),
        (["--fit-config", "missing.yaml"], "missing.yaml"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    given = ["--data.labels", str(labels), "--output", str(tmp_path / "agents"), "--folds", str(FOLDS)]
    assert main(["crossfit", *given, "--set", *QUICK, *options]) == 2
    out, err = capsys.readouterr()
    (line,) = (line for line in err.splitlines() if line.startswith("corag crossfit: "))
    assert message in line and out == ""
    assert not (tmp_path / "agents" / INDEX).exists()


def test_a_table_without_documents_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    separable_table().write(tmp_path / "labels.parquet")
    assert crossfit(tmp_path / "labels.parquet", tmp_path / "agents") == 2
    assert "does not name the documents of its questions" in capsys.readouterr().err
    assert main(["crossfit", "--output", str(tmp_path / "agents")]) == 2
    assert "--data.labels is required" in capsys.readouterr().err
    assert not (tmp_path / "agents").exists()


# ------------------------------------------------------------ the index


def index(data: dict[str, Any] | None, **held: tuple[tuple[str, ...], tuple[str, ...]]) -> CrossFitted:
    agents = tuple(HeldOut(fold, name, "s", *held[name]) for fold, name in enumerate(held))
    return CrossFitted(len(agents), {"digest": "d", "fingerprint": {"data": data} if data else {}}, {}, agents)


def test_a_question_is_found_by_its_documents_and_its_id() -> None:
    several = {"name": "wiki.en+papers", "parts": [{"name": "wiki.en"}, {"name": "papers"}]}
    made = index(several, a=(("wiki.en/q1", "papers/q1"), ("A", "papers/7")), b=(("wiki.en/q2",), ("B",)))
    assert made.folds_of("wiki.en", "q1", []) == {0} and made.folds_of("wiki.en", "q2", []) == {1}
    assert made.folds_of("wiki.zh", "q2", ["B", "wiki.zh/5"]) == {1}  # a translation, by its article
    assert made.folds_of("wiki.zh", "q2", ["wiki.zh/5"]) == set() and made.folds_of("wiki.en", "q3", ["C"]) == set()
    assert made.folds_of("wiki.en", "q9", ["A", "B"]) == {0, 1}
    assert made.folds_of("wiki.en", "q2", ["papers/7"]) == {0, 1}


@pytest.mark.parametrize(("labelled", "found"), [({"name": "wiki"}, True), (None, True), ({"name": "other"}, False)])
def test_ids_of_another_data_set_say_nothing(labelled: dict[str, Any] | None, found: bool) -> None:
    made = index(labelled, a=(("q1",), ()), b=(("q2",), ()))
    assert made.folds_of("wiki", "q2", []) == ({1} if found else set())


def test_the_index_is_read_as_it_was_written_or_refused(tmp_path: Path) -> None:
    made = index({"name": "wiki"}, a=(("q1",), ("A",)), b=(("q2",), ("B",)))
    made.write(tmp_path)
    assert CrossFitted.read(tmp_path) == made
    given = index_of(tmp_path)
    one, other = given["agents"]
    of_other_types = (
        *({**given, "agents": [one, {**other, **by}]} for by in ({"fold": 2}, {"directory": 5}, {"documents": [1]})),
        *({**given, name: value} for name, value in (("labels", 3), ("labels", {"digest": "d"}), ("folds", "2"))),
    )
    unreadable = ({**given, "format_version": 2}, {**given, "more": 1}, {**given, "agents": [{"fold": 0}]}, [], 1)
    for changed in (*unreadable, *of_other_types):
        (tmp_path / INDEX).write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(InputError, match="is not readable as version 1"):
            CrossFitted.read(tmp_path)
    given["agents"][1]["documents"] = ["A"]
    (tmp_path / INDEX).write_text(json.dumps(given), encoding="utf-8")
    with pytest.raises(InputError, match="documents has 'A' twice, so every agent has seen it"):
        CrossFitted.read(tmp_path)
    with pytest.raises(InputError, match="does not exist; `corag crossfit` makes it"):
        CrossFitted.read(tmp_path / "none")
