"""`corag composite` on a small labelled corpus: what it writes and prints, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corag_agent.cli import main
from corag_agent.seen import digest_of_name, table_digest
from corag_search import Corag, load_reranker
from corag_search.rerankers.composite import CompositeReranker
from corag_search.store import VectorStore
from data_prep.table import LabelTable
from tests.corag_search.local_server import Reply, serving

TOPICS = ("tower", "river", "glacier", "harbour", "castle")
pytestmark = pytest.mark.models


def write_corpus(folder: Path, topics: Sequence[str] = TOPICS) -> None:
    """A document on each topic with two questions about it."""
    folder.mkdir()
    with (folder / "documents.jsonl").open("w") as documents, (folder / "questions.jsonl").open("w") as questions:
        for number, topic in enumerate(topics):
            age = f"The {topic} is {100 + number} years old."
            filler = f"Much of the {topic} is stone, and its keeper writes about stone every day. " * 8
            owner = f"The {topic} belongs to the town of {'ABCDE'[number]}ton."
            documents.write(json.dumps({"id": topic, "text": f"{age} {filler}{owner}"}) + "\n")
            for what, text, gold in (
                ("age", f"How old is the {topic}?", age),
                ("owner", f"Whose is the {topic}?", owner),
            ):
                passages = [{"document": topic, "text": gold}]
                question = {"id": f"{topic}-{what}", "question": text, "gold_passages": passages}
                questions.write(json.dumps(question) + "\n")


def echo(_: str, body: dict) -> Reply:
    """Answers with the prompt, so that the answer is as near to the reference as its chunks to the gold."""
    text = body["messages"][0]["content"]
    return Reply({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})


PIPELINE = ("--chunk-size", "32", "--candidates", "6", "--search.budget", "96", "--search.max_chunks", "3")
GRID = ("--grid.iterations", "[4]", "--grid.exploration", "[0.5]", "--grid.cost_coefficient", "[0.0]")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serving(echo) as (url, _):
        yield url


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory, endpoint: str) -> Path:
    """A folder with a corpus, its store, and labels of BM25."""
    folder = tmp_path_factory.mktemp("labelled")
    write_corpus(folder / "corpus")
    assert main(["index", "--data", f"jsonl:{folder}/corpus", "--out", f"{folder}/store", "--chunk-size", "32"]) == 0
    label(folder, endpoint, "labels", "{bm25: {}}")
    return folder


def label(folder: Path, url: str, out: str, rerankers: str, corpus: str = "corpus", store: str = "store") -> None:
    generator = json.dumps({"name": "openai", "base_url": f"{url}/v1", "model": "m"})
    given = ("--store", f"{folder}/{store}", "--rerankers", rerankers, "--generator", generator, *PIPELINE, *GRID)
    assert main(["label", "--data", f"jsonl:{folder}/{corpus}", "--out", f"{folder}/{out}.parquet", *given]) == 0


@pytest.fixture(scope="module")
def merged(labelled: Path, endpoint: str) -> Path:
    """The same folder with a second corpus, its store and labels, and both tables merged."""
    write_corpus(labelled / "annex", ("lighthouse", "quarry"))
    data, store = f"jsonl:{labelled}/annex", f"{labelled}/annex.store"
    assert main(["index", "--data", data, "--out", store, "--chunk-size", "32"]) == 0
    label(labelled, endpoint, "annex", "{bm25: {}}", "annex", "annex.store")
    tables = [f"{labelled}/{name}.parquet" for name in ("labels", "annex")]
    assert main(["label", "--merge", *tables, "--out", f"{labelled}/merged.parquet"]) == 0
    return labelled


@contextmanager
def capturing(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., tuple[int, str, str]]]:
    def run(folder: Path, out: Path, **changes: Any) -> tuple[int, str, str]:
        options = {
            "labels": [folder / "labels.parquet"],
            "data": [f"jsonl:{folder}/corpus"],
            "store": [folder / "store"],
            "rerankers": ["{bm25: {}}"],
            "folds": [3],
            "out": [out],
        } | changes
        if "stores" in changes:
            del options["store"]
        capsys.readouterr()
        words = [str(word) for name, values in options.items() for word in (f"--{name}", *values)]
        code = main(["composite", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield run


def test_from_labels_to_a_search(labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with capturing(capsys) as run:
        code, out, err = run(labelled, tmp_path / "composite", json=[])
        assert code == 0, err
        printed = json.loads(out)
        table = LabelTable.read(labelled / "labels.parquet")
        assert table.rivals is not None
        orders = {
            (name, tuple(order))
            for frame in (table.scores, table.rivals)
            for name, order in zip(frame["question_id"], frame["order"], strict=True)
        }
        assert (printed["questions"], printed["orders"]) == (10, len(orders))
        assert set(printed["weights"]) == {"bm25.score", "bm25.best", "bm25.mean", "log_cost", "redundancy"}
        rows = {row["chosen by"]: row for row in printed["held_out"]}
        # What the tree search chose is in the table: its mean must be that.
        assert float(rows["bm25: its tree search"]["ROUGE-L"]) == pytest.approx(table.scores["rougeL"].mean(), abs=6e-4)
        least, most = (float(rows[name]["ROUGE-L"]) for name in ("composite (held out)", "the best of all (oracle)"))
        assert least <= most

        code, out, err = run(labelled, tmp_path / "again")
        assert code == 0 and "10 questions" in out and "held out by document" in out and "composite (held out)" in out
    for file in ("model.safetensors", "config.json", "README.md"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "composite" / file).read_bytes()

    config = {"store": str(labelled / "store"), "rerankers": {"composite": {"path": str(tmp_path / "composite")}}}
    corag = Corag.from_config(config | {"reranker": "composite", "search": {"cost_coefficient": 0.0, "budget": 96}})
    selected = corag.search("How old is the castle?")
    assert selected.reranker == "composite" and 0 < selected.value <= 1
    judge = load_reranker("composite", path=tmp_path / "composite")
    assert isinstance(judge, CompositeReranker)
    score = judge.open("How old is the castle?", selected.candidates).score([selected.order])
    np.testing.assert_array_equal(score, [selected.value])


def test_several_tables_and_labelling_with_the_composite_again(
    labelled: Path, endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capturing(capsys) as run:
        assert run(labelled, tmp_path / "composite")[0] == 0
        rerankers = f"{{bm25: {{}}, composite: {{path: {tmp_path}/composite}}}}"
        label(labelled, endpoint, "second", rerankers)
        labels = [labelled / "labels.parquet", labelled / "second.parquet"]
        # The composite is no part of the next one; one data set and one store serve both tables.
        code, out, err = run(labelled, tmp_path / "next", labels=labels, rerankers=[rerankers], json=[])
        assert code == 0, err
        assert json.loads(out)["questions"] == 20 and "composite.score" not in json.loads(out)["weights"]
        config = json.loads((tmp_path / "next" / "config.json").read_text())
        assert list(config["labels"]) == ["labels", "second"] and config["training"]["groups"] == 5
        assert [part["name"] for part in config["parts"]] == ["bm25"]
        card = (tmp_path / "next" / "README.md").read_text()
        assert "On `labels` alone" in card and "On `second` alone" in card


def test_an_evaluation_knows_what_its_composite_has_seen(
    labelled: Path, endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = LabelTable.read(labelled / "labels.parquet")
    with capturing(capsys) as run:
        code, out, err = run(labelled, tmp_path / "part", splits=["train", "val"], folds=[2], json=[])
        assert code == 0, err
        assert run(labelled, tmp_path / "all")[0] == 0
    questions = table.questions
    trained_on = questions.loc[questions["split"] != "test", "question_id"]
    assert json.loads(out)["questions"] == len(trained_on) < len(table)
    config = json.loads((tmp_path / "part" / "config.json").read_text())
    assert config["seen"]["questions"] == sorted(digest_of_name(f"corpus/{name}") for name in trained_on)
    assert config["seen"]["tables"] == {"labels": table_digest(table)}
    # An older one differs in the record alone.
    shutil.copytree(tmp_path / "all", tmp_path / "old")
    config = json.loads((tmp_path / "old" / "config.json").read_text())
    del config["seen"]
    del config["config_sha256"]
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))

    def evaluate(composite: str, reranker: str = "composite", *more: str) -> list[str]:
        rerankers = f"{{bm25: {{}}, composite: {{path: {tmp_path}/{composite}}}}}"
        data = json.dumps([{"name": "mine", "data": f"jsonl:{labelled}/corpus", "stores": {32: f"{labelled}/store"}}])
        runs = json.dumps([{"name": "main", "methods": ["naive_rag", "tree"], "rerankers": [reranker]}])
        generator = json.dumps({"name": "openai", "base_url": f"{endpoint}/v1", "model": "m"})
        given = ("--rerankers", rerankers, "--generator", generator, "--data", data, "--runs", runs, *PIPELINE)
        capsys.readouterr()
        assert main(["evaluate", *given, "--out", f"{tmp_path}/{composite}-run", "--resamples", "10", *more]) == 0
        return [line for line in capsys.readouterr().err.splitlines() if "warning" in line]

    count = len(questions)
    (said,) = evaluate("all")
    assert "composite all was trained on the splits train, val, test" in said
    assert f"of the {count} questions that it chose for, it has seen {count}" in said
    assert len(evaluate("all", "composite", "--splits", "test")) == 1
    (said,) = evaluate("part")
    assert f"of the {count} questions that it chose for, it has seen {len(trained_on)}" in said
    assert evaluate("part", "composite", "--splits", "test") == []
    (said,) = evaluate("old")
    assert "composite old does not say which questions it was trained on" in said
    assert evaluate("old", "bm25") == []  # configured, but nothing is chosen by it


def both(folder: Path, **more: Any) -> dict[str, Any]:
    data = [f"jsonl:{folder}/{name}" for name in ("annex", "corpus")]
    return {"data": data, "stores": [folder / "annex.store", folder / "store"], **more}


def test_a_merged_table_teaches_what_its_parts_do(
    merged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capturing(capsys) as run:
        parts = [merged / "annex.parquet", merged / "labels.parquet"]
        for out, labels in (("parts", parts), ("whole", [merged / "merged.parquet"])):
            code, printed, err = run(merged, tmp_path / out, **both(merged, labels=labels, json=[]))
            assert code == 0, err
            assert json.loads(printed)["questions"] == 14
    weights = [(tmp_path / out / "model.safetensors").read_bytes() for out in ("parts", "whole")]
    assert weights[0] == weights[1]
    assert list(json.loads((tmp_path / "whole" / "config.json").read_text())["labels"]) == ["annex", "corpus"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"data": ["jsonl:{folder}/corpus"], "stores": ["{folder}/store"]},
            "is merged: 4 of its 14 questions are in none of the data with its store, the first is 'annex/",
        ),
        ({"stores": ["{folder}/store", "{folder}/annex.store"]}, "has no question of annex whose candidates are in"),
        (
            {"labels": ["{folder}/labels.parquet", "{folder}/merged.parquet"]},
            "merged.parquet is merged of several data",
        ),
        (
            {"stores": ["{folder}/store"] * 3},
            "data must be one for all 3 data sets of the merged table or one for each",
        ),
    ],
)
def test_a_merged_table_needs_all_its_data_and_stores(
    merged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, list[str]], message: str
) -> None:
    given = {name: [value.format(folder=merged) for value in values] for name, values in change.items()}
    with capturing(capsys) as run:
        code, out, err = run(merged, tmp_path / "composite", **both(merged, labels=[merged / "merged.parquet"]) | given)
    assert (code, out) == (2, "") and message in err.splitlines()[-1]
    assert not (tmp_path / "composite").exists()


def spoilt_table(labelled: Path, out: Path, **columns: Any) -> Path:
    """The labels with other columns in scores and questions; None drops one."""
    table = LabelTable.read(labelled / "labels.parquet")
    scores, questions = table.scores.copy(), table.questions.copy()
    for name, value in columns.items():
        frame = scores if name in scores else questions
        if value is None:
            frame.drop(columns=name, inplace=True)
        else:
            frame[name] = value(frame[name])
    LabelTable(scores, questions, table.fingerprint).write(out)
    return out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rerankers": ["{bm25: {k1: 2.0}}"]}, "labelled with 'bm25' of the options {}, configured are {'k1': 2.0}"),
        ({"rerankers": ["{maxsim: {}}"]}, "was labelled with bm25, not with 'maxsim'"),
        ({"rerankers": ["{composite: {path: x}}"]}, "rerankers must name the parts of the composite, at least one"),
        ({"folds": [6]}, "folds must be from 2 to the number of groups"),
        ({"strength": [0]}, "strength must be a finite number above 0, got 0.0"),
        ({"labels": ["missing.parquet"]}, "missing.parquet does not exist"),
        ({"data": ["demo"]}, "10 of 10 questions are not in demo, the first is 'castle-age'"),
        ({"data": ["demo", "demo"]}, "data must be one for all 1 label tables or one for each, got 2"),
        ({"store": ["missing"]}, "missing"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    labelled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with capturing(capsys) as run:
        code, out, err = run(labelled, tmp_path / "composite", **change)
    assert (code, out) == (2, "") and message in err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": lambda v: 1 - v}, "'bm25' gave an order of question"),
        ({"prompt_tokens": lambda v: v + 1}, "tokens when it was labelled, by this store"),
        ({"candidates": lambda v: [["nowhere:0", *own[1:]] for own in v]}, "candidate 'nowhere:0' of question"),
        ({"candidates": None}, "does not name the candidates of its questions"),
    ],
)
def test_labels_that_do_not_fit(
    labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: dict[str, Any], message: str
) -> None:
    labels = spoilt_table(labelled, tmp_path / "spoilt.parquet", **columns)
    with capturing(capsys) as run:
        code, _, err = run(labelled, tmp_path / "composite", labels=[labels])
    assert code == 2 and message in err.splitlines()[-1]
    assert not (tmp_path / "composite").exists()


def test_another_store_or_another_directory(labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = VectorStore.load(labelled / "store")
    other = VectorStore.from_embeddings(
        list(store.chunks),
        np.eye(len(store), 384, dtype=np.float32),
        store.embedder,
        tokenizer="smollm2",
        chunk_size=64,
    )
    other.save(tmp_path / "other")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with capturing(capsys) as run:
        code, _, err = run(labelled, tmp_path / "composite", store=[tmp_path / "other"])
        assert code == 2 and "with a store of the chunk_size 32, this one has 64" in err
        code, _, err = run(labelled, tmp_path / "mine")
        assert code == 2 and "is no corag-composite" in err
