"""Evaluation with cross-fitted agents: who answers which question, and what the ledger makes of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corag_agent.cli import main
from corag_agent.cross_fitted import INDEX
from corag_agent.datamodule import LabelDataModule
from corag_agent.evaluation.agents import Agents, held_out_counts
from corag_agent.evaluation.corpora import SourceData
from corag_agent.evaluation.estimate import estimate_job
from corag_agent.evaluation.job import LEDGER
from corag_agent.evaluation.plan import Experiment
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.export import export
from corag_search.agent import ConfigurationAgent
from corag_search.embedders import load_embedder
from corag_search.errors import InputError
from data_prep.dataset import Dataset, Document, GoldPassage, Question
from data_prep.table import LabelTable
from tests.corag_agent.evaluation.test_evaluate_command import TOPICS, Endpoint, write_corpus
from tests.corag_agent.evaluation.tiny_evaluation import evaluated, tiny_job, tiny_source
from tests.corag_agent.synthetic_labels import separable_table, with_features
from tests.corag_search.local_server import serving

torch.set_num_threads(1)
LABELLED = 4  # questions of the tiny data set, about d0 to d3; d4 was not labelled
QUICK = ["model.hidden=[6]", "trainer.max_epochs=1", "trainer.callbacks=[]", "trainer.logger=false"]
MAIN = Experiment("main", methods=["agent", "naive_rag"], rerankers=["one"])


def label_table(
    data: str, embedder: dict[str, Any], names: list[str], documents: list[list[str]], rerankers: tuple[str, ...]
) -> LabelTable:
    """Made-up labels of these questions, and of others about other documents."""
    table = with_features(
        separable_table(36, dimension=embedder["dimension"], rerankers=rerankers, noise=0.3), ["agreement"]
    )
    others = [f"other{i}" for i in range(len(names), len(table))]
    renamed = dict(zip(table.questions["question_id"], [*names, *others], strict=True))
    fingerprint = {**table.fingerprint, "embedder": embedder, "data": {"name": data}}
    return LabelTable(
        table.scores.assign(question_id=table.scores["question_id"].map(renamed)),
        table.questions.assign(
            question_id=table.questions["question_id"].map(renamed),
            documents=[*documents, *([f"{data}/{name}"] for name in others)],
        ),
        fingerprint,
    )


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labels") / "labels.parquet"
    embedder = {"name": "hash", "dimension": 8, "fingerprint": "f"}
    names, documents = [f"q{i}" for i in range(LABELLED)], [[f"tiny/d{i}"] for i in range(LABELLED)]
    label_table("tiny", embedder, names, documents, ("one", "two")).write(path)
    return path


@pytest.fixture(scope="module")
def agents(labels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cross-fitted agents; not to be written to."""
    output = tmp_path_factory.mktemp("agents") / "agents"
    given = ["--data.labels", str(labels), "--output", str(output), "--folds", "3", "--set", *QUICK]
    assert main(["crossfit", *given]) == 0
    return output


def seen_documents(labels: Path, agent: ConfigurationAgent) -> set[str]:
    """What an agent was trained and validated on, by the folds that its export names."""
    trained = agent.config["training"]["hyperparameters"]
    options = {name: trained[name] for name in ("folds", "fold", "seed", "split_by")}
    data = LabelDataModule(str(labels), **options)
    rows = np.concatenate([data.splits["train"], data.splits["val"]])
    return {name for documents in data.table.questions["documents"].iloc[rows] for name in documents}


def test_no_question_meets_an_agent_that_saw_its_document(labels: Path, agents: Path, tmp_path: Path) -> None:
    loaded, data = Agents.load(agents), tiny_source(questions=12)
    run = evaluated(tmp_path, [MAIN], agent=loaded, data=[data])
    assert (run.records["error"] == "").all()
    records = run.records[run.records["method"] == "agent"].set_index("question_id")
    seen = [seen_documents(labels, agent) for agent in loaded.agents]
    for question in data.questions:
        document = f"tiny/{question.gold_passages[0].document}"
        settings = json.loads(records.loc[question.id, "settings"])
        about = settings["agent"]
        assert document not in seen[about["fold"]]
        assert about["held_out"] == any(document in one for one in seen) == (document != "tiny/d4")
        assert sum(document in one for one in seen) == (2 if about["held_out"] else 0)
        with tiny_job(tmp_path / "alone", [MAIN]) as job:
            embedding = job.evaluator.components.embedder.encode([question.text])[0]
        prediction = loaded.agents[about["fold"]].predict(embedding)
        assert (settings["reranker"], settings["iterations"]) == (prediction.reranker, prediction.iterations)
    assert held_out_counts(run.records) == {"held_out": 10, "unseen": 2}
    assert run.settings["fingerprints"]["agent"]["labels"] == loaded.cross_fitted.labels["digest"]  # type: ignore[union-attr]
    others = run.records.loc[run.records["method"] != "agent", "settings"]
    assert not others.str.contains("held_out").any()


def with_questions(*questions: Question, name: str = "tiny") -> SourceData:
    """The tiny data set with other questions, and a document with a title."""
    data = tiny_source()
    documents = (*data.dataset.documents, Document("d9", "w1 w2 w3", title="An article"))
    dataset = Dataset(name, documents, questions)
    return replace(data, dataset=dataset, split_of={question.id: "test" for question in questions})


def about(text: str, *documents: str) -> Question:
    return Question(text, f"what about {text} ?", tuple(GoldPassage(name, 0, 5) for name in documents), ("w1",))


def test_questions_that_no_agent_has_seen_are_shared_out_by_document(agents: Path) -> None:
    loaded = Agents.load(agents)
    unlabelled = [about(f"new{i}", "d4") for i in range(5)]
    folds = {loaded.of(with_questions(*unlabelled), question).about["fold"] for question in unlabelled}
    assert len(folds) == 1
    bare = [about(f"bare{i}") for i in range(40)]
    drawn = [loaded.of(with_questions(*bare), question).about for question in bare]
    assert {one["fold"] for one in drawn} == {0, 1, 2} and not any(one["held_out"] for one in drawn)
    titled = [loaded.of(with_questions(about("t", "d9"), name=name), about("t", "d9")).about for name in ("en", "zh")]
    assert titled[0] == titled[1]  # an article's languages meet the same agent
    labelled = about("q2")  # by its id, where nothing is known of its documents
    assert loaded.of(with_questions(labelled), labelled).about["held_out"]
    assert not loaded.of(with_questions(labelled, name="elsewhere"), labelled).about["held_out"]


def test_what_an_export_says_of_its_training_asks_nothing_anew(agents: Path, tmp_path: Path) -> None:
    last = agents / "fold-0" / "checkpoints" / "last.ckpt"
    asked = {}
    for name, metrics in (("one", {"val/rouge_l": 0.25}), ("other", {"val/rouge_l": 0.5})):
        loaded = Agents.load(export(last, tmp_path / name, metrics))
        asked[name] = loaded.of(with_questions(about("q")), about("q")).key
    assert asked["one"] == asked["other"]
    assert (tmp_path / "one/config.json").read_bytes() != (tmp_path / "other/config.json").read_bytes()


def test_a_question_that_every_agent_has_seen_fails_and_the_rest_goes_on(agents: Path, tmp_path: Path) -> None:
    loaded = Agents.load(agents)
    fold_of = {f"d{i}": loaded.of(tiny_source(), about(f"x{i}", f"d{i}")).about["fold"] for i in range(LABELLED)}
    one, other = next((a, b) for a in fold_of for b in fold_of if fold_of[a] < fold_of[b])
    data = with_questions(about("fine", one), about("both", one, other), about("new", "d4", one))
    run = evaluated(tmp_path, [MAIN], agent=loaded, data=[data])
    failed = run.records[run.records["error"] != ""]
    assert failed[["question_id", "method"]].to_numpy().tolist() == [["both", "agent"]]
    listed = f"{fold_of[one]}, {fold_of[other]}"
    assert f"its documents were labelled in the folds {listed}, so every agent has seen" in failed["error"].iloc[0]
    assert held_out_counts(run.records) == {"held_out": 2, "unseen": 0}


def test_other_agents_answer_anew_and_nothing_else_is_done_again(labels: Path, agents: Path, tmp_path: Path) -> None:
    def lines() -> int:
        return (tmp_path / LEDGER).read_bytes().count(b"\n")

    loaded = Agents.load(agents)
    evaluated(tmp_path, [MAIN], agent=loaded)
    before = lines()
    evaluated(tmp_path, [MAIN], agent=Agents.load(agents))
    assert lines() == before
    with tiny_job(tmp_path, [MAIN], agent=loaded) as job:
        assert estimate_job(job, 1) == []
    changed = loaded.agents[0].config["fallback"] | {"threshold": 1.1}  # the same weights, followed never
    fold = replace(loaded, agents=(_with_fallback(agents / "fold-0" / "export", changed), *loaded.agents[1:]))
    run = evaluated(tmp_path, [MAIN], agent=fold)
    records = run.records[run.records["method"] == "agent"]
    own = [json.loads(settings)["agent"]["fold"] == 0 for settings in records["settings"]]
    assert 0 < sum(own) < len(own) and lines() == before + sum(own)
    # One agent for all is other work too; its records say nothing of folds.
    alone = evaluated(tmp_path, [MAIN], agent=loaded.agents[1])
    assert lines() == before + sum(own) + len(own) and held_out_counts(alone.records) is None


def _with_fallback(directory: Path, fallback: dict[str, Any]) -> ConfigurationAgent:
    from safetensors.numpy import load_file

    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return ConfigurationAgent(load_file(directory / "model.safetensors"), {**config, "fallback": fallback})


def test_agents_of_which_it_is_not_known_what_they_saw_are_refused(agents: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(agents, tmp_path / "swapped")
    for old, new in (("fold-0", "kept"), ("fold-1", "fold-0"), ("kept", "fold-1")):
        (copy / old).rename(copy / new)
    with pytest.raises(InputError, match=r"fold-0/export is not the agent that agents\.json names"):
        Agents.load(copy)
    copy = shutil.copytree(agents, tmp_path / "half")
    index = json.loads((copy / INDEX).read_text(encoding="utf-8"))
    index["agents"] = index["agents"][1:]
    (copy / INDEX).write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(InputError, match="has the agents of 2 of 3 folds; run `corag crossfit` again"):
        Agents.load(copy)
    for name in ("model.safetensors", "config.json"):
        (copy := shutil.copytree(agents, tmp_path / f"without {name}")).joinpath("fold-1/export", name).unlink()
        with pytest.raises(InputError, match=f"fold-1/export has no {name}; run `corag crossfit` again"):
            Agents.load(copy)
    with pytest.raises(InputError, match=r"has no config\.json; make one with `corag export`"):
        Agents.load(tmp_path)


CONFIG = """
tokenizer: minilm
candidates: 4
chunk_size: 32
rerankers: {{bm25: {{}}, cosine: {{}}}}
generator: {{name: openai, base_url: "{url}/v1", model: m, retries: 0}}
search: {{budget: 80, max_chunks: 2, iterations: 3}}
data: [{{name: old, data: "jsonl:{folder}/corpus"}}]
runs: [{{name: main, methods: [agent, naive_rag], rerankers: [bm25]}}]
"""


@pytest.mark.models
def test_from_labels_to_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both commands; the data set is read from its file, as `corag label` reads it."""
    (tmp_path / "corpus").mkdir()
    write_corpus(tmp_path / "corpus")
    minilm = load_embedder("minilm")
    embedder = {"name": minilm.name, "dimension": minilm.dimension, "fingerprint": minilm.fingerprint}
    labelled = TOPICS[:4]
    table = label_table(
        "corpus", embedder, list(labelled), [[f"corpus/{topic}"] for topic in labelled], ("bm25", "cosine")
    )
    table.write(tmp_path / "labels.parquet")
    given = ["--data.labels", str(tmp_path / "labels.parquet"), "--output", str(tmp_path / "agents"), "--folds", "3"]
    assert main(["crossfit", *given, "--set", *QUICK]) == 0
    capsys.readouterr()
    with serving(Endpoint()) as (url, _):
        (tmp_path / "evaluate.yaml").write_text(CONFIG.format(url=url, folder=tmp_path))
        fixed = ["--config", str(tmp_path / "evaluate.yaml"), "--resamples", "50", "--out", str(tmp_path / "out")]
        assert main(["evaluate", *fixed, "--agent", str(tmp_path / "agents")]) == 0
        assert "agents: 4 questions by the one of their own fold, 2 that none has seen" in capsys.readouterr().out
        assert main(["evaluate", *fixed, "--agent", str(tmp_path / "agents"), "--collect", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["agents"] == {"held_out": 4, "unseen": 2}
    run = EvaluationRun.read(tmp_path / "out")
    index = json.loads((tmp_path / "agents" / INDEX).read_text(encoding="utf-8"))
    for _, row in run.records[run.records["method"] == "agent"].iterrows():
        fold = json.loads(row["settings"])["agent"]["fold"]
        rest = [name for agent in index["agents"] if agent["fold"] != fold for name in agent["questions"]]
        assert row["question_id"] not in rest
    assert str(tmp_path) not in (tmp_path / "out" / "run.json").read_text()
