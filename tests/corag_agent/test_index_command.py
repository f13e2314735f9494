"""`corag index` on a store that is there: documents added, removed, replaced, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corag_agent.cli import main
from corag_search import VectorStore
from corag_search.store import FlatIndex, HNSWIndex

pytestmark = pytest.mark.models


def corpus(folder: Path, **texts: str) -> str:
    folder.mkdir()
    lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()]
    (folder / "documents.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "questions.jsonl").write_text("", encoding="utf-8")
    return f"jsonl:{folder}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two corpora, and a store `s` of the first."""
    monkeypatch.chdir(tmp_path)
    corpus(Path("first"), a="The tower is 330 metres tall.", b="The bridge is made of iron.")
    corpus(Path("second"), c="A cat sat on the mat.", a="The tower is 331 metres tall now.")
    assert main(["index", "--data", "jsonl:first", "--out", "s"]) == 0
    return tmp_path


def ids_and_texts(directory: str) -> dict[str, str]:
    return {chunk.id: chunk.text for chunk in VectorStore.load(directory).chunks}


def test_documents_are_removed_added_and_replaced(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = VectorStore.load("s").embeddings()
    assert main(["index", "--data", "jsonl:second", "--add", "--remove", "a", "--out", "s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {
        "store": "s",
        "documents": 3,
        "chunks": 3,
        "tokens": sum(chunk.cost for chunk in VectorStore.load("s").chunks),
    }
    assert ids_and_texts("s") == {
        "b:0": "The bridge is made of iron.",
        "c:0": "A cat sat on the mat.",
        "a:0": "The tower is 331 metres tall now.",
    }
    assert (VectorStore.load("s").embeddings([0]) == before[1]).all()  # b was not embedded again
    assert main(["index", "--remove", "c", "b", "--out", "s"]) == 0
    assert list(ids_and_texts("s")) == ["a:0"]


def test_kind_and_lexical_index_stay(here: Path) -> None:
    made = ["--index.kind", "hnsw", "--index.M", "8", "--retrieval", "hybrid"]
    assert main(["index", "--data", "jsonl:first", "--out", "s", *made]) == 0
    assert main(["index", "--remove", "a", "--out", "s"]) == 0
    assert main(["index", "--data", "jsonl:second", "--add", "--out", "s"]) == 0
    store = VectorStore.load("s")
    assert store.info.index == HNSWIndex(M=8)
    assert store._lexical is not None and store.lexical.search("cat", 3) == [1]
    assert main(["index", "--data", "jsonl:first", "--out", "s"]) == 0  # without --add the store is replaced
    store = VectorStore.load("s")
    assert (store.info.index, store._lexical) == (FlatIndex(), None)
    assert list(ids_and_texts("s")) == ["a:0", "b:0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--data jsonl:second --add",
            "the chunk 'a:0' is in the store already; remove its document first (`corag index",
        ),
        (
            "--data jsonl:second --add --chunk_size 32",
            "the store was built with chunk_size 96, the configured one is 32",
        ),
        (
            "--data jsonl:second --add --tokenizer minilm",
            "built with tokenizer 'smollm2', the configured one is 'minilm'",
        ),
        (
            "--data jsonl:second --add --index.kind hnsw",
            "the store was built with index {'kind': 'flat'}, the configured",
        ),
        ("--remove a --chunk_size 32", "the store was built with chunk_size 96, the configured one is 32"),
        ("--remove a z", "the store has no document 'z'"),
        ("--remove a b", "no chunk would be left in the store"),
        ("--remove a --data jsonl:second", "--remove with --data needs --add"),
        ("--add", "--data is required; name the documents"),
        ("--add --remove a", "--add needs --data"),
        ("--data jsonl:first --index.kind ivfpq", "index ivfpq needs at least 256 chunks to train on"),
        ("--data jsonl:first --index.kind ivfpq --index.m 7", "index ivfpq: m must divide the dimension 384, got 7"),
    ],
)
def test_refused_and_left_as_it_was(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    before = {file.name: file.read_bytes() for file in Path("s").iterdir()}
    capsys.readouterr()
    assert main(["index", *arguments.split(), "--out", "s"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and message in err
    assert {file.name: file.read_bytes() for file in Path("s").iterdir()} == before


def test_a_store_of_another_embedder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads(Path("s/manifest.json").read_text())
    manifest["embedder"]["fingerprint"] = "other"
    del manifest["manifest_sha256"]
    Path("s/manifest.json").write_text(json.dumps(manifest))
    assert main(["index", "--data", "jsonl:second", "--add", "--remove", "a", "--out", "s"]) == 2
    assert "the store was built with the embedder minilm (384 dimensions, other)" in capsys.readouterr().err
    assert list(ids_and_texts("s")) == ["a:0", "b:0"]
