"""A labelling run that meets a full disk says so in one line, loses no finished question and ends in the same table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from data_prep.label_job import answers_path, store_path
from data_prep.label_run import ledger_path
from data_prep.table_files import file_of
from tests.corag_search.local_server import Reply, serving

TOPICS = tuple(f"{size} {thing}" for size in ("old", "new", "great") for thing in ("tower", "river", "harbour"))
PARTS = ("scores", "questions", "rivals")


def answer(_: str, body: dict) -> Reply:
    text = f"It is {len(body['messages'][0]['content'])} years old."
    return Reply({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})


def data_of(folder: Path) -> str:
    folder.mkdir()
    documents = [{"id": t, "text": f"The {t} is old. " + f"Much of the {t} is stone. " * 12} for t in TOPICS]
    questions = [
        {"id": t, "question": f"How old is the {t}?", "gold_passages": [{"document": t, "text": f"The {t} is old."}]}
        for t in TOPICS
    ]
    for name, rows in (("documents", documents), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"jsonl:{folder}"


def arguments(data: str, url: str, out: Path) -> list[str]:
    return [
        *("--data", data, "--out", str(out), "--json", "--tokenizer", "minilm", "--llm_concurrency", "2"),
        *("--rerankers", "{bm25: {}, cosine: {}}", "--candidates", "4", "--chunk_size", "32"),
        *("--generator", json.dumps({"name": "openai", "base_url": f"{url}/v1", "model": "m"})),
        *("--grid.iterations", "[2]", "--grid.exploration", "[0.5]", "--grid.cost_coefficient", "[0.1]"),
    ]


@contextmanager
def labelling() -> Iterator[Callable[[int | None, Sequence[str]], tuple[int, str]]]:
    """What runs `corag label` with a limit for its files: exit code, and what was printed."""
    alone = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # a fork has none of its parent's threads
    command = [sys.executable, "-m", "tests.data_prep.labelling_on_full_disk"]
    folder = Path(__file__).parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=os.environ | alone
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        sent, answered = process.stdin, process.stdout

        def run(limit: int | None, label: Sequence[str]) -> tuple[int, str]:
            sent.write(json.dumps([limit, label]) + "\n")
            sent.flush()
            code, printed = json.loads(answered.readline())
            return code, printed

        yield run


def refused(result: tuple[int, str], path: Path) -> None:
    """The run ended with exit code 2 and one line that names the file and the remedy."""
    code, printed = result
    said = [line for line in printed.replace("\r", "\n").splitlines() if line.startswith("corag")]
    assert code == 2 and "Traceback" not in printed, printed
    assert len(said) == 1 and f"{path}: " in said[0] and "free some space or name another place" in said[0], printed


def contents(out: Path) -> list[bytes]:
    return [file_of(out, part).read_bytes() for part in PARTS]


@pytest.mark.models
def test_a_full_disk_costs_a_run_nothing_that_was_finished(tmp_path: Path) -> None:
    whole, cold, warm, last = (tmp_path / f"{name}.parquet" for name in ("whole", "cold", "warm", "last"))
    with serving(answer) as (url, requests), labelling() as run:
        data = data_of(tmp_path / "data")
        label = {out: arguments(data, url, out) for out in (whole, cold, warm, last)}
        code, printed = run(None, label[whole])
        assert code == 0, printed
        asked = len(requests)
        half = ledger_path(whole).stat().st_size // 2

        # Answers and records grow together, and the answers are the first that find no space.
        refused(run(half, label[cold]), answers_path(cold))
        # All answers are there; half of the records have found space.
        shutil.copy(answers_path(whole), answers_path(warm))
        refused(run(half, label[warm]), ledger_path(warm))
        # All but the table is there.
        shutil.copy(answers_path(whole), answers_path(last))
        shutil.copy(ledger_path(whole), ledger_path(last))
        shutil.copytree(store_path(whole), store_path(last))
        refused(run(file_of(whole, "questions").stat().st_size - 1, label[last]), file_of(last, "questions"))

        again = len(requests)
        finished = {out: ledger_path(out).read_bytes() for out in (cold, warm, last)}
        for out, records in finished.items():
            assert records.endswith(b"\n") and 1 < records.count(b"\n") <= 1 + len(TOPICS)
            assert not out.exists() and not list(tmp_path.glob(".*.partial"))
            code, printed = run(None, label[out])
            assert code == 0, printed
            assert ledger_path(out).read_bytes().startswith(records)
            keys = [json.loads(line)["key"] for line in ledger_path(out).read_bytes().splitlines()[1:]]
            assert sorted(keys) == sorted(TOPICS)  # each was recorded once
            assert contents(out) == contents(whole)
    # Answers that had found space were not asked for again; a few were under way when there was none left.
    assert asked < again < 2 * asked and len(requests) <= 2 * asked + 8
