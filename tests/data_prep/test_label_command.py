"""`corag label` with an endpoint: the dry run, failures in summary and exit code, and taking them up again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from corag_agent.cli import main
from corag_search.chunk import Chunk
from corag_search.embedders.base import Embedder
from data_prep import corpus
from data_prep.table import LabelTable
from tests.corag_search.local_server import Reply, serving

TOPICS = ("tower", "river", "glacier", "harbour")


class Endpoint:
    """Says how long the prompt is; refuses what is asked about some topics."""

    def __init__(self) -> None:
        self.refused: set[str] = set()

    def __call__(self, _: str, body: dict) -> Reply:
        prompt = body["messages"][0]["content"]
        if any(f"How old is the {topic}?" in prompt for topic in self.refused):
            return Reply({"error": {"message": "too hot"}}, status=400)
        usage = {"prompt_tokens": 1000, "completion_tokens": 10}
        text = f"It is {len(prompt)} years old."
        return Reply({"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage})


@pytest.mark.models
def test_a_job_from_its_estimate_to_its_last_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[int] = []
    embed = corpus._embedded

    def counted(chunks: Sequence[Chunk], embedder: Embedder) -> NDArray[np.float32]:
        embedded.append(len(chunks))
        return embed(chunks, embedder)

    monkeypatch.setattr(corpus, "_embedded", counted)
    (tmp_path / "documents.jsonl").write_text(
        "".join(
            json.dumps({"id": topic, "text": f"The {topic} is old. " + f"Much of the {topic} is stone. " * 12}) + "\n"
            for topic in TOPICS
        )
    )
    (tmp_path / "questions.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "id": topic,
                    "question": f"How old is the {topic}?",
                    "gold_passages": [{"document": topic, "text": f"The {topic} is old."}],
                }
            )
            + "\n"
            for topic in TOPICS
        )
    )
    endpoint = Endpoint()
    out = tmp_path / "labels.parquet"
    errors: list[str] = []
    with serving(endpoint) as (url, requests):

        def label(*options: str) -> tuple[int, str]:
            code = main(
                [
                    *("label", "--data", f"jsonl:{tmp_path}", "--out", str(out)),
                    *("--rerankers", "{bm25: {}}", "--candidates", "4", "--chunk-size", "32"),
                    *("--generator", json.dumps({"name": "openai", "base_url": f"{url}/v1", "model": "m"})),
                    *("--grid.iterations", "[2]", "--grid.exploration", "[0.5]", "--grid.cost_coefficient", "[0.1]"),
                    *options,
                ]
            )
            captured = capsys.readouterr()
            errors.append(captured.err)
            return code, captured.out

        prices = ("--price.prompt", "1000", "--price.answer", "10000")
        code, printed = label("--dry-run", "--probe", "1", "--json", *prices)
        estimate = json.loads(printed)["estimate"]
        asked = len(requests)
        warned = (
            "corag: warning: rerankers names only bm25, so an agent trained on these labels has no reranker to choose"
        )
        assert errors[0].count(warned) == 1
        assert code == 0 and not out.exists()
        assert (estimate["questions"], estimate["searches"]) == (3, 3)
        assert estimate["llm_calls"] == 3 * asked and estimate["prompt_tokens"] == 3 * asked * 1000
        assert estimate["price"] == pytest.approx(3 * asked * (1.0 + 0.1))
        code, printed = label("--dry-run", "--probe", "1")  # where standard output is no terminal
        assert code == 0 and "left to do" in printed and f"{estimate['prompt_tokens']:,}" in printed
        assert len(requests) == asked

        endpoint.refused = {"glacier"}
        code, printed = label("--llm-concurrency", "4")
        assert code == 1
        assert "failed: glacier: " in printed and "answered 400 (too hot)" in printed
        assert "3 questions, 1 failed (--retry-failed takes them up)" in printed
        assert "this run" in printed and "estimate" in printed and "took" in printed
        assert set(LabelTable.read(out).questions["question_id"]) == {"tower", "river", "harbour"}

        asked = len(requests)
        code, printed = label("--json")
        assert code == 1 and list(json.loads(printed)["failed"]) == ["glacier"] and len(requests) == asked
        assert json.loads(printed)["took"]["questions"] == json.loads(printed)["estimate"]["questions"] == 0

        endpoint.refused = set()
        code, printed = label("--retry-failed", "--json", *prices)
        done = json.loads(printed)
        assert code == 0 and done["failed"] == {} and done["questions"] == 4
        calls = len(requests) - asked
        took = {"questions": 1, "llm_calls": calls, "prompt_tokens": 1000 * calls, "answer_tokens": 10 * calls}
        assert took.items() <= done["took"].items() and done["took"]["price"] == pytest.approx(1.1 * calls)
        assert done["estimate"].keys() == done["took"].keys() == estimate.keys()
        per_question = {name: estimate[name] / 3 for name in ("searches", "price")}  # of the probe, which is one of two
        assert done["estimate"]["questions"] == 1 and done["estimate"]["searches"] == per_question["searches"]
        assert done["estimate"]["llm_calls"] > 0 and done["estimate"]["price"] > 0.5 * per_question["price"]

        asked = len(requests)
        splits = {}
        for by in ("document", "domain"):  # the questions have four documents and one domain
            assert label("--split-by", by)[0] == 0
            splits[by] = set(LabelTable.read(out).questions["split"])
        assert len(splits["document"]) > 1 and len(splits["domain"]) == 1 and len(requests) == asked

        # The corpus was embedded once, and is not for what the ledger refuses.
        assert len(embedded) == 1
        for options, differs in ((("--chunk-size", "48"), "chunking"), (("--search.budget", "64"), "search")):
            code, printed = label(*options)
            assert (code, printed) == (2, "") and f"belongs to another run ({differs} was " in errors[-1]
        (tmp_path / "documents.jsonl").open("a").write(json.dumps({"id": "dune", "text": "The dune is new."}) + "\n")
        assert label()[0] == 2 and "belongs to another run (data was " in errors[-1]
        assert len(embedded) == 1
        # Without the ledger there is nothing to go on with: the store follows the data.
        out.with_name("labels.ledger.jsonl").unlink()
        assert label()[0] == 0 and embedded[1:] == [embedded[0] + 1]

        # Labelled in two parts, each without knowing the other's ledger, it is the same table.
        one, rest, both = (tmp_path / f"{name}.parquet" for name in ("one", "rest", "both"))
        assert label()[0] == label("--out", str(one), "--limit", "1")[0] == 0
        assert label("--out", str(rest), "--skip", str(one), "--json")[0] == 0
        assert len(LabelTable.read(one)) == 1 and len(LabelTable.read(rest)) == 3
        assert main(["label", "--merge", str(one), str(rest), "--out", str(both)]) == 0
        capsys.readouterr()
        assert both.read_bytes() == out.read_bytes()
        code, printed = label("--out", str(tmp_path / "none.parquet"), "--skip", str(one), str(rest))
        assert (code, printed) == (2, "") and "skip leaves nothing to label: its tables have all 4 que" in errors[-1]
