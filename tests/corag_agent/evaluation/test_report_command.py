"""`corag report`: what it writes and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import corag_agent.commands.report
from corag_agent.cli import main
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.cases import NO_CASES
from tests.corag_agent.evaluation.report_runs import Experiment, made_run


@pytest.fixture(scope="module")
def made() -> EvaluationRun:
    return made_run({"d": 6}, [Experiment(methods=("naive_rag", "tree"), rerankers=("bm25",))])


@pytest.fixture
def here(made: EvaluationRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the run `ev`."""
    monkeypatch.chdir(tmp_path)
    made.write("ev")
    return tmp_path


def report(*options: str) -> int:
    """The command with few resamples."""
    return main(["report", "--run", "ev", "--resamples", "100", *options])


def test_page_and_markdown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("--out", "out/r.html", "--markdown", "r.md", "--json") == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert written == {name: Path(name).stat().st_size for name in ("out/r.html", "r.md")}
    page = Path("out/r.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "q0005" in page
    assert "## Headline" in Path("r.md").read_text(encoding="utf-8")


def test_sizes_in_kilobytes_below_a_megabyte(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("--markdown", "r.md") == 0
    size = Path("r.md").stat().st_size
    assert capsys.readouterr().out == f"r.md ({-(-size // 1000)} kB)\n" and 1000 < size < 1_000_000
    told = corag_agent.commands.report._told
    assert [told(size) for size in (1, 1000, 1001, 999_999, 1_000_000)] == ["1 kB", "1 kB", "2 kB", "1000 kB", "1.0 MB"]


def test_fewer_questions_and_some_splits(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("--out", "r.html", "--questions", "2") == 0
    assert "2 of 6 questions" in Path("r.html").read_text(encoding="utf-8")
    assert report("--out", "r.html", "--splits", "test") == 0
    page = Path("r.html").read_text(encoding="utf-8")
    assert "d (4 questions)" in page and "q0003" not in page
    assert report("--out", "r.html", "--splits", "train, test") == 0
    assert "d (6 questions)" in Path("r.html").read_text(encoding="utf-8")
    assert report("--out", "r.html", "--splits", "val") == 2
    assert "has train, test" in capsys.readouterr().err.replace("test, train", "train, test")


def test_a_published_run_has_no_texts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("--markdown", "with.md") == 0
    whole = EvaluationRun.read("ev")
    for part in ("questions", "answers", "chunks"):
        Path(f"ev/{part}.parquet").unlink()
    bare = EvaluationRun.read("ev")
    assert bare.records.equals(whole.records)
    assert set(bare.questions["question"]) == set(bare.answers["answer"]) == set(bare.chunks["text"]) == {""}
    assert report("--markdown", "without.md", "--out", "r.html") == 0
    texts = [Path(name).read_text(encoding="utf-8").split("## Cases") for name in ("with.md", "without.md")]
    assert texts[0][0] == texts[1][0] and "How tall" in texts[0][1]
    assert texts[1][1].strip() == NO_CASES and NO_CASES in Path("r.html").read_text(encoding="utf-8")
    whole.write("ev")
    Path("ev/answers.parquet").unlink()  # that one alone is a loss
    assert report("--out", "r.html") == 2
    assert "answers.parquet does not exist" in capsys.readouterr().err


def test_structure_without_records_is_reported(
    here: Path, made: EvaluationRun, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"pairs": 20, "additive": 5, "worse_than_best": 4, "order_matters": 10, "best_chunks": 2}
    key = {"run": "structure", "reranker": "bm25", "chunk_size": 96, "budget": 300, "candidates": 5}
    asked = made.questions[["dataset", "question_id"]].assign(**key, **counts, best_is_largest=False)
    parts = (made.records[:0], made.questions, made.answers[:0], made.chunks[:0])
    EvaluationRun(*parts, made.settings, asked).write("ev")
    assert report("--markdown", "r.md", "--out", "r.html", "--splits", "test") == 0
    text, page = (Path(name).read_text(encoding="utf-8") for name in ("r.md", "r.html"))
    assert "data: d (4 questions); methods: 0; chunk sizes: 96; budgets: 300; records: 0" in text
    assert "| bm25 | 4 | 75.0 % | 20.0 % | 50.0 % |" in text
    assert "corag evaluation · d" in page and "Rerankers as judges" in page
    for part in ("questions", "answers", "chunks"):  # published without its texts
        Path(f"ev/{part}.parquet").unlink()
    assert report("--markdown", "bare.md", "--out", "bare.html") == 0
    assert "d (6 questions)" in Path("bare.md").read_text(encoding="utf-8")
    assert "corag evaluation · d" in Path("bare.html").read_text(encoding="utf-8")
    EvaluationRun(*parts, made.settings).write("ev")
    assert report("--out", "none.html") == 2
    assert "ev has no records; run `corag evaluate` first" in capsys.readouterr().err


def test_a_large_page_is_warned_of(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(corag_agent.commands.report, "LARGE", 1000)
    assert report("--out", "r.html") == 0
    assert "--questions 200" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "r.html"], "--run is required"),
        (["--run", "ev"], "--out report.html"),
        (["--run", "ev", "--out", "r.pdf"], "out must end in .html, got 'r.pdf'"),
        (["--run", "ev", "--markdown", "r.txt"], "markdown must end in .md, got 'r.txt'"),
        (["--run", "ev", "--out", "r.html", "--questions", "0"], "questions must be at least 1, got 0"),
        (["--run", "ev", "--out", "r.html", "--resamples", "0"], "resamples must be a whole number, at least 1, got 0"),
        (["--run", "nowhere", "--out", "r.html"], "nowhere/run.json does not exist"),
    ],
)
def test_unusable_input(here: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *arguments]) == 2
    captured = capsys.readouterr().err
    assert message in captured and captured.count("\n") == 1
    assert not Path("r.html").exists()
