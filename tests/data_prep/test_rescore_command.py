"""`corag label --rescore` and what `--select` then says of noise, with an endpoint that counts what it is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corag_agent.cli import main
from data_prep import table_files
from data_prep.table import LabelTable
from tests.corag_search.local_server import Reply, serving

TOPICS = ("tower", "river", "glacier", "harbour")


def endpoint(_: str, body: dict) -> Reply:
    """Answers with every third word of the prompt's end."""
    words = body["messages"][0]["content"].split()[-60::3]
    usage = {"prompt_tokens": 100, "completion_tokens": 20}
    return Reply({"choices": [{"message": {"content": " ".join(words)}, "finish_reason": "stop"}], "usage": usage})


def write_data(folder: Path) -> None:
    documents, questions = [], []
    for number, topic in enumerate(TOPICS):
        text = f"The {topic} is {number} years old. " + f"Much of the {topic} is stone, but not all. " * 12
        documents.append({"id": topic, "text": text})
        gold = [{"document": topic, "text": f"The {topic} is {number} years old."}]
        question = {"id": topic, "question": f"How old is the {topic}?", "gold_passages": gold}
        questions.append({**question, "answers": [f"{number} years", f"the stone {topic}"]})
    for name, rows in (("documents", documents), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("nothing is embedded, searched or reranked for new scores")


@pytest.mark.models
def test_new_references_cost_no_search_and_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path)
    # In a file, as here, settings of the search may stand for a new score too: the table's are meant.
    config = tmp_path / "labels.yaml"
    grid = {"iterations": [1, 3], "exploration": [0.5], "cost_coefficient": [0.0]}
    config.write_text(json.dumps({"rerankers": {"bm25": {}, "cosine": {}}, "candidates": 4, "grid": grid}))
    plain, start, anew = (tmp_path / f"{name}.parquet" for name in ("plain", "start", "anew"))
    with serving(endpoint) as (url, requests):
        generator = {"name": "openai", "base_url": f"{url}/v1", "model": "m"}

        def label(out: Path, *options: str, **of_generator: object) -> tuple[int, str, str]:
            code = main(
                [
                    *("label", "--data", f"jsonl:{tmp_path}", "--out", str(out)),
                    *("--config", str(config), "--chunk-size", "32"),
                    *("--tokenizer", "minilm"),  # no model beside MiniLM is loaded
                    *("--generator", json.dumps({**generator, **of_generator})),
                    *options,
                ]
            )
            return code, *capsys.readouterr()

        code, _, errors = label(plain)
        assert code == 0 and "rerankers names only" not in errors
        assert label(start, "--references", "llm,human")[0] == 0
        asked = len(requests)
        for name in ("load_embedder", "load_reranker", "kept_store"):
            monkeypatch.setattr(f"data_prep.label_job.{name}", refuse)
        monkeypatch.setattr("data_prep.labelling.search_policy_trees", refuse)

        options = ("--rescore", str(plain), "--references", "llm,human")
        code, printed, _ = label(anew, *options, "--dry-run", "--json")
        estimate = json.loads(printed)["estimate"]
        assert code == 0 and (estimate["questions"], estimate["searches"]) == (2, 0) and not anew.exists()
        read = []

        def read_part(path: Path, part: str) -> tuple:
            read.append(path)
            return table_files.read_part(path, part)

        monkeypatch.setattr("data_prep.table.read_part", read_part)
        code, printed, errors = label(anew, *options)
        assert read.count(plain) == 1
        assert code == 0 and "4 questions, 0 evaluations, " in printed and "answered with another" not in errors
        assert len(requests) == asked
        for part in ("", ".questions", ".rivals", ".repeats"):
            ours, theirs = (path.with_name(f"{path.stem}{part}.parquet") for path in (anew, start))
            assert ours.read_bytes() == theirs.read_bytes()

        # Scored in two parts, each without knowing the other's ledger, it is the same table.
        one, rest, both = (tmp_path / f"{name}.parquet" for name in ("one", "rest", "both"))
        assert label(one, *options, "--limit", "1")[0] == label(rest, *options, "--skip", str(one))[0] == 0
        assert len(LabelTable.read(one)) == 1 and len(LabelTable.read(rest)) == 3
        assert main(["label", "--merge", str(one), str(rest), "--out", str(both)]) == 0
        assert both.read_bytes() == anew.read_bytes()
        capsys.readouterr()
        refused = label(tmp_path / "x.parquet", *options, "--skip", str(plain))
        assert refused[0] == 2 and "skip leaves nothing to label: its tables have all 4 questions" in refused[2]
        assert len(requests) == asked

        sampled = tmp_path / "sampled.parquet"
        options = ("--rescore", str(plain), "--samples", "2", "--limit", "3")
        config.write_text("rerankers: {bm25: {}}")  # is not looked at, so nothing is said of their number
        code, _, errors = label(sampled, *options, temperature=0.7, seed=0)
        assert (
            code == 0
            and "rerankers names only" not in errors
            and "the label table was answered with another generator, so none of its answers" in errors
        )
        assert len(requests) > asked and len(LabelTable.read(sampled)) == 3

        refused = label(plain, "--rescore", str(plain))
        assert refused[0] == 2 and "plain.parquet would be scored into itself" in refused[2]
        coarser = label(tmp_path / "x.parquet", "--rescore", str(plain), "--chunk-size", "48")
        assert coarser[0] == 2 and "chunking was" in coarser[2] and len(coarser[2].splitlines()) == 1
        assert not list(tmp_path.glob("x.*"))

    assert main(["label", "--select", str(anew)]) == 0
    assert "honest" in capsys.readouterr().out
    assert main(["label", "--select", str(anew), "--json"]) == 0
    noise = json.loads(capsys.readouterr().out)["noise"]
    assert [(line["oracle"], line["halves"], line["questions"]) for line in noise] == [
        ("oracle over rerankers", "references", 4),
        ("oracle over all grid points", "references", 4),
    ]
    assert main(["label", "--select", str(plain), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["noise"] == []
