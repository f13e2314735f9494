"""Shipped agents load, have a card, and belong to the shipped embedder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corag_search import ConfigurationAgent, InputError, load_embedder
from corag_search.shipped import find_checkpoint, shipped
from data_prep.demo_corpus import LABELS
from data_prep.table import LabelTable

NAMES = sorted(path.name for path in shipped("checkpoints").iterdir() if path.is_dir())


@pytest.mark.models
@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_agent_works_with_the_embedded_models(name: str) -> None:
    agent = ConfigurationAgent.load(find_checkpoint(name))
    embedder = load_embedder("minilm")
    agent.check_embedder(embedder.name, embedder.dimension, embedder.fingerprint)
    prediction = agent.predict(np.full(agent.input_dim, agent.input_dim**-0.5, np.float32))
    assert prediction.reranker in {"bm25", "cosine", "maxsim", "wordllama"}
    assert sum(prediction.probabilities.values()) == pytest.approx(1)
    assert (find_checkpoint(name) / "README.md").read_text(encoding="utf-8").strip()


def test_the_demo_agent_was_trained_on_the_shipped_labels() -> None:
    agent = ConfigurationAgent.load(find_checkpoint("demo"))
    assert agent.config["labels"] == LabelTable.read(LABELS).fingerprint


def test_an_unknown_name_lists_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"no agent checkpoint 'nope'.*one of the shipped: .*demo"):
        find_checkpoint("nope")
