"""A whole job on real models, small: index → label → fit → test → export → search → answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corag_agent.cli import main
from corag_search import ConfigurationAgent
from data_prep.readers import read_dataset
from data_prep.table import LabelTable

pytestmark = pytest.mark.models

SMALL = [
    "--candidates", "4", "--chunk_size", "64", "--search.budget", "130", "--max_answer_tokens", "8",
    "--rerankers", "{bm25: {}, wordllama: {}}",
    "--generator", "{name: smollm2, threads: 1}",  # two wait for each other on a busy machine
]  # fmt: skip
GRID = ["--grid.exploration", "[0.1, 2.4]", "--grid.cost_coefficient", "[0.0, 0.3]", "--grid.iterations", "[2, 5]"]


def small_corpus(folder: Path) -> Path:
    """Two questions of each of four documents of two domains of the demo corpus."""
    demo = read_dataset("demo")
    chosen: dict[str, list] = {}
    for question in demo.questions:
        documents = {gold.document for gold in question.gold_passages}
        if question.domain in ("medicine", "software_documentation") and len(documents) == 1:
            (document,) = documents
            of_domain = [name for name in chosen if demo.document(name).domain == question.domain]
            if document in chosen or len(of_domain) < 4:
                chosen.setdefault(document, []).append(question)
    chosen = {name: own[:2] for name, own in chosen.items()}
    folder.mkdir()
    with (folder / "documents.jsonl").open("w", encoding="utf-8") as file:
        for name in chosen:
            document = demo.document(name)
            row = {"id": name, "text": document.text, "title": document.title, "domain": document.domain}
            file.write(json.dumps(row) + "\n")
    with (folder / "questions.jsonl").open("w", encoding="utf-8") as file:
        for question in (question for own in chosen.values() for question in own):
            gold = [{"document": g.document, "start": g.start, "end": g.end} for g in question.gold_passages]
            row = {"id": question.id, "question": question.text, "gold_passages": gold, "domain": question.domain}
            file.write(json.dumps(row) + "\n")
    return folder


def test_the_whole_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = small_corpus(tmp_path / "corpus")
    store, labels, agent = tmp_path / "store", tmp_path / "labels.parquet", tmp_path / "agent"

    def corag(*arguments: object) -> str:
        capsys.readouterr()
        assert main([str(a) for a in arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    summary = json.loads(corag("index", "--data", f"jsonl:{corpus}", "--out", store, "--chunk_size", 64, "--json"))
    assert summary["documents"] == 8
    assert summary["chunks"] > 40

    label = ["label", "--data", f"jsonl:{corpus}", "--out", labels, "--store", store, *SMALL, *GRID, "--json"]
    first = json.loads(corag(*label))
    made = labels.read_bytes()
    again = json.loads(corag(*label))  # all is in the ledger
    assert first.pop("took")["questions"] == first.pop("estimate")["questions"] == 16
    assert again.pop("took")["llm_calls"] == again.pop("estimate")["llm_calls"] == 0
    assert again == first
    assert labels.read_bytes() == made
    table = LabelTable.read(labels)
    assert len(table) == 16
    assert set(table.questions["split"]) == {"train", "val", "test"}
    assert (table.scores["prompt_tokens"] <= 130).all()

    fit = [
        "fit",
        "--config",
        "configs/train.yaml",
        "--data.labels",
        labels,
        "--output",
        agent,
        "--trainer.max_epochs",
        3,
    ]
    corag(*fit, "--data.minimum_gain", 0)
    best = agent / "checkpoints" / "best.ckpt"
    corag("test", "--config", agent / "config.fit.yaml", "--ckpt_path", best)
    corag("export", "--checkpoint", best, "--out", agent / "export")
    loaded = ConfigurationAgent.load(agent / "export")
    assert list(loaded.rerankers) == ["bm25", "wordllama"]

    ask = ["--store", store, "--agent", agent / "export", *SMALL, "--query", "Which port does Kestrel use?", "--json"]
    searched = json.loads(corag("search", *ask))
    answered = json.loads(corag("answer", *ask))
    assert searched["cost"] <= 130
    assert searched["reranker"] in loaded.rerankers
    assert 0 < searched["confidence"] <= 1
    assert answered["order"] == searched["order"]
    assert answered["answer"].strip()
    assert [c["chunk"] for c in answered["citations"]] == [c["id"] for c in searched["chunks"]]
    assert set(answered["timings"]) == {"embed", "agent", "retrieve", "search", "prompt", "generate"}
