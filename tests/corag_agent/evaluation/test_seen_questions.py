"""`corag evaluate` says on how many of its questions the agent was trained; real training, export and evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from corag_agent.cli import main
from corag_search.embedders import load_embedder
from tests.corag_agent.evaluation.test_agents import CONFIG, QUICK, label_table
from tests.corag_agent.evaluation.test_evaluate_command import TOPICS, Endpoint, write_corpus
from tests.corag_search.local_server import serving

torch.set_num_threads(1)


@pytest.mark.models
def test_an_evaluation_knows_what_its_agent_has_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "corpus").mkdir()
    write_corpus(tmp_path / "corpus")
    minilm = load_embedder("minilm")
    embedder = {"name": minilm.name, "dimension": minilm.dimension, "fingerprint": minilm.fingerprint}
    labelled = TOPICS[:5]
    documents = [[f"corpus/{topic}"] for topic in labelled]
    table = label_table("corpus", embedder, list(labelled), documents, ("bm25", "cosine"))
    table.write(tmp_path / "labels.parquet")
    splits = table.questions.set_index("question_id")["split"].loc[list(labelled)].to_list()
    assert splits == ["train", "train", "val", "val", "test"]
    quick = [f"--{option}" for option in QUICK]
    labels = ["--data.labels", f"{tmp_path}/labels.parquet"]
    assert main(["fit", *labels, "--output", f"{tmp_path}/run", *quick]) == 0
    last = f"{tmp_path}/run/checkpoints/last.ckpt"
    assert main(["export", "--checkpoint", last, "--out", f"{tmp_path}/agent"]) == 0
    assert main(["crossfit", *labels, "--output", f"{tmp_path}/agents", "--folds", "3", "--set", *QUICK]) == 0

    with serving(Endpoint()) as (url, _):
        (tmp_path / "evaluate.yaml").write_text(CONFIG.format(url=url, folder=tmp_path))

        def evaluate(agent: str, *more: str) -> list[str]:
            fixed = ["--config", f"{tmp_path}/evaluate.yaml", "--resamples", "10", "--out", f"{tmp_path}/out", *more]
            capsys.readouterr()
            assert main(["evaluate", *fixed, "--agent", f"{tmp_path}/{agent}"]) == 0
            return [
                line for line in capsys.readouterr().err.splitlines() if "it was trained on" in line or "seen" in line
            ]

        (said,) = evaluate("agent")
        assert (
            f"the agent {tmp_path}/agent was trained on the splits train, val: of the 6 questions that it chose" in said
        )
        assert "it has seen 4, or others about their documents" in said and "use agents of `corag crossfit`" in said
        assert evaluate("agent", "--without", "agent") == []
        assert evaluate("agents") == []  # by their folds
        (said,) = evaluate("agents/fold-0/export")  # what it has seen stands in agents.json alone
        assert "fold-0/export does not say which questions it was trained on" in said
