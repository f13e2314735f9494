import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from lightning.pytorch import Trainer

from corag_agent.datamodule import LabelDataModule
from corag_agent.evaluation.comparison import AGENT, TREE
from corag_agent.export import export
from corag_agent.export_evaluation import FIXED, evaluate_export
from corag_agent.module import ConfigurationAgentModule
from corag_search.agent import ConfigurationAgent
from corag_search.errors import InputError
from data_prep.noise import Oracle
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import RERANKERS, fingerprint, separable_table
from tests.corag_agent.trained_agent import trained

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A label table of three test documents with a rival, a checkpoint, and its export with the evaluation."""
    folder = tmp_path_factory.mktemp("evaluated")
    trained(folder)
    table = LabelTable.read(folder / "labels.parquet")
    rivals = [
        {"question_id": question, "method": "naive_rag", "reranker": reranker, "order": [0], "prompt_tokens": 50,
         "value": 0.5, "rouge1": 0.2, "rouge2": 0.2, "rougeL": 0.2}
        for question in table.questions["question_id"]
        for reranker in RERANKERS
    ]  # fmt: skip
    LabelTable(table.scores, table.questions, table.fingerprint, pd.DataFrame(rivals)).write(folder / "labels.parquet")
    export(folder / "agent.ckpt", folder / "agent", labels=folder / "labels.parquet")
    return folder


def test_it_says_what_testing_says(folder: Path) -> None:
    config = json.loads((folder / "agent" / "config.json").read_text())
    module = ConfigurationAgentModule.load_from_checkpoint(folder / "agent.ckpt")
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)
    told = trainer.test(module, datamodule=LabelDataModule(str(folder / "labels.parquet")), verbose=False)[0]
    for name in ("test/fallback_rougeL", "test/fixed_rougeL", "test/fallback_share"):
        assert config["metrics"][name] == pytest.approx(told[name], abs=1e-6), name
    state = torch.load(folder / "agent.ckpt", weights_only=True)
    assert config["metrics"]["val/regret"] == state["val_metrics"]["val/regret"]


def test_the_methods_and_their_distance(folder: Path) -> None:
    evaluation = json.loads((folder / "agent" / "config.json").read_text())["evaluation"]
    assert (evaluation["split"], evaluation["questions"], evaluation["data"]) == ("test", 9, {"name": "synthetic"})
    methods = evaluation["methods"]
    names = [(method["method"], method["reranker"]) for method in methods]
    rivals, trees = [("naive_rag", name) for name in RERANKERS], [(TREE, name) for name in RERANKERS]
    fixed = json.loads((folder / "agent" / "config.json").read_text())["fallback"]["reranker"]
    assert names == [*rivals, *trees, (FIXED, fixed), (AGENT, ""), (Oracle.RERANKERS, ""), (Oracle.GRID, "")]
    by_name = {method["method"]: method for method in methods}
    # By construction: 0.9 at one grid point of the right reranker, 0.3 of any other reranker.
    assert by_name[Oracle.GRID]["rougeL"] == pytest.approx(0.9)
    assert by_name["naive_rag"]["rougeL"] == pytest.approx(0.2) and by_name["naive_rag"]["prompt_tokens"] == 50
    agent = by_name[AGENT]
    assert agent["agent_above"] is None
    for method in methods:
        if method is not agent:
            mean, low, high = method["agent_above"]
            assert mean == pytest.approx(agent["rougeL"] - method["rougeL"])
            assert low <= mean + 1e-9 and mean <= high + 1e-9


def test_the_card(folder: Path) -> None:
    card = (folder / "agent" / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert front["license"] == "apache-2.0" and front["library_name"] == "corag"
    assert "On the 9 questions of the test split" in card
    assert "| method | reranker | ROUGE-L | prompt tokens | agent above it |" in card
    assert "| naive_rag | `alpha` | 0.200 | 50 | +0." in card and f"| {AGENT} | – | " in card
    assert "| test/fallback_rougeL | " in card
    assert str(folder) not in card


def test_same_labels_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = export(folder / "agent.ckpt", tmp_path / "agent", labels=folder / "labels.parquet")
    for file in again.iterdir():
        assert file.read_bytes() == (folder / "agent" / file.name).read_bytes()


def test_a_single_question_has_no_interval(folder: Path, tmp_path: Path) -> None:
    table = LabelTable.read(folder / "labels.parquet")
    questions = table.questions.assign(split=["test", *["train"] * (len(table) - 1)])
    LabelTable(table.scores, questions, table.fingerprint).write(tmp_path / "one.parquet")
    agent = ConfigurationAgent.load(folder / "agent")
    evaluation = evaluate_export(agent, tmp_path / "one.parquet")
    assert evaluation.questions == 1 and all(method.agent_above is None for method in evaluation.methods)
    with pytest.raises(InputError, match="no questions to compare on"):
        evaluate_export(agent, tmp_path / "one.parquet", "val")


def test_labels_of_another_embedder_write_nothing(folder: Path, tmp_path: Path) -> None:
    table = separable_table(dimension=8)
    other = {**fingerprint(), "embedder": {"name": "other", "dimension": 8, "fingerprint": "else"}}
    LabelTable(table.scores, table.questions, other).write(tmp_path / "other.parquet")
    with pytest.raises(InputError, match=r"trained for embeddings of 8 by synthetic .* got 8 by other"):
        export(folder / "agent.ckpt", tmp_path / "agent", labels=tmp_path / "other.parquet")
    assert not (tmp_path / "agent").exists()


def test_metrics_that_are_no_number_are_left_out(folder: Path, tmp_path: Path) -> None:
    out = export(folder / "agent.ckpt", tmp_path / "agent", metrics={"test/accuracy": np.nan, "test/regret": 0.25})
    text = (out / "config.json").read_text()
    assert "NaN" not in text
    metrics = json.loads(text)["metrics"]
    assert metrics["test/regret"] == 0.25 and "test/accuracy" not in metrics
