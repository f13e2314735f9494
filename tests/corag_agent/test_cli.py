"""The command line: help, and bad input in one line with exit code 2."""

from __future__ import annotations

import errno
import importlib
import os
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from corag_agent.cli import COMMANDS, READER_GONE, _underscored, main
from corag_agent.commands.parser import make_parser
from corag_search.shipped import shipped
from data_prep.demo_corpus import LABELS

RESCORE = ("label", "--rescore", LABELS)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, err = run(capsys, command, "--help")
    assert (code, err) == (0, "")
    assert "xample" in out
    assert f"corag {command} " in " ".join(out.split())


def examples(command: str) -> list[list[str]]:
    """The words of each example after `corag COMMAND`."""
    module = importlib.import_module(f"corag_agent.commands.{command}")
    lines = getattr(module, "EXAMPLE", "").replace("\\\n", " ").splitlines()
    given = [shlex.split(line, comments=True) for line in lines if line.startswith(f"  corag {command} ")]
    return [words[2:] for words in given]


@pytest.mark.parametrize(
    ("command", "words"),
    [(command, words) for command in COMMANDS for words in examples(command)],
    ids=lambda given: given if isinstance(given, str) else " ".join(given),
)
def test_the_examples_can_be_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: list[str]
) -> None:
    """With the configurations that ship; those that the user is to write are empty."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(shipped("configs"))
    for word in words:
        if word.endswith(".yaml") and not Path(word).exists():
            Path(word).write_text("{}", encoding="utf-8")
    module = importlib.import_module(f"corag_agent.commands.{command}")
    parser = make_parser(f"corag {command}", COMMANDS[command], module.EXAMPLE, getattr(module, "DEFAULTS", ()))
    module.add_arguments(parser)
    parser.parse_args([_underscored(word) for word in words])


def test_every_command_of_ours_has_an_example() -> None:
    of_lightning = {"fit", "test"}
    assert {command for command in COMMANDS if not examples(command)} == of_lightning


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "full"), "No space left on device; free some space"),
        (OSError(errno.EFBIG, "big", "a.txt"), "a.txt: File too large; free some space"),
        (OSError(errno.ENOSPC, "full", "/tmp/from", None, "to.ckpt"), "to.ckpt: No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "a.txt"), "a.txt: Permission denied; check the path"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_disk_that_takes_nothing_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
    message: str,
    wrapped: bool,
) -> None:
    def fails(*_: object) -> int:
        if wrapped and error.errno != errno.EACCES:
            raise RuntimeError("cannot write") from error
        raise error

    monkeypatch.setattr("corag_agent.commands.report.run", fails)
    code, out, err = run(capsys, "report")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"corag report: {message}")


def test_a_reader_that_has_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "corag_agent.cli", "--help"], stdout=write, stderr=subprocess.PIPE
        )
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (READER_GONE, b"")


def test_a_full_database_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fills(*_: object) -> None:
        with closing(sqlite3.connect(tmp_path / "full.sqlite")) as database:
            database.execute("PRAGMA max_page_count = 1")
            database.execute("CREATE TABLE a (b)")

    monkeypatch.setattr("corag_agent.commands.report.run", fills)
    code, _, err = run(capsys, "report")
    assert (code, err.count("\n")) == (2, 1)
    assert "database or disk is full; free some space" in err


def test_an_error_of_the_program_is_not_taken_for_one_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise RuntimeError("a fault")

    monkeypatch.setattr("corag_agent.commands.report.run", fails)
    with pytest.raises(RuntimeError, match="a fault"):
        main(["report"])


@pytest.mark.parametrize("command", ["fit", "test"])
def test_a_training_that_is_interrupted_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise SystemExit(1)  # as Lightning ends the process

    monkeypatch.setattr("corag_agent.training.AgentCLI", interrupted)
    code, _, err = run(capsys, command)
    assert (code, err.count("\n")) == (130, 1)
    assert err.startswith(f"corag {command}: interrupted")


def test_overview_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"  {command} " in out for command in COMMANDS)
    assert run(capsys)[0] == 2
    assert run(capsys, "--version")[1].startswith("corag 0.")


@pytest.mark.parametrize(
    ("command", "package"), [("label", "pandas"), ("fit", "torch"), ("export", "torch"), ("demo", "pandas")]
)
def test_a_missing_extra_is_named(tmp_path: Path, command: str, package: str) -> None:
    """In a process of its own, where the package cannot be found."""
    arguments = {
        "label": ["--data", "demo", "--out", "l.parquet"],
        "fit": ["--data.labels", "l.parquet"],
        "export": ["--checkpoint", "c", "--out", "o"],
        "demo": [],
    }[command]
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from corag_agent.cli import main
sys.exit(main({[command, *arguments]!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        f"corag {command}: needs the package {package!r}, which is not installed: pip install 'corag[train]'\n"
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "documents.jsonl").write_text('{"id": "d", "text": "The tower is 330 metres tall."}\n', encoding="utf-8")
    (folder / "questions.jsonl").write_text(
        '{"id": "q", "question": "How tall?", "gold_passages": [{"document": "nope", "text": "tower"}]}\n',
        encoding="utf-8",
    )
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serch"], "unknown command 'serch'; there are: demo, index"),
        (["search", "--store", "nowhere", "--query", "q"], "nowhere is not a store (no manifest.json)"),
        (["search", "--query", "q"], "store is not set"),
        (["search", "--store", "s"], "give either --query TEXT or --queries FILE"),
        (["search", "--store", "s", "--query", " "], "query must be a text that is not empty, got ' '"),
        (["search", "--store", "s", "--queries", "missing.txt"], "missing.txt: No such file or directory"),
        (["answer", "--query", "q", "--search.budget", "few"], "search.budget must be a whole number, got 'few'"),
        (["answer", "--query", "q", "--search.budget", "0"], "budget must be a whole number of tokens, at least 1"),
        (["answer", "--query", "q", "--config", "missing.yaml"], "config: there is no file"),
        (["answer", "--query", "q", "--bugdet", "3"], "there is no option --bugdet; did you mean --search.budget?"),
        (["index", "--out", "s"], "--data is required"),
        (["index", "--data", "my_corpus", "--out", "s"], "data 'my_corpus' names no format; write squad:FILE.json"),
        (["index", "--data", "jsonl:missing", "--out", "s"], "missing is not a folder"),
        (["index", "--data", "squad:missing.json", "--out", "s"], "cannot read missing.json"),
        (["label", "--data", "demo", "--out", "l.parquet", "--grid.iterations", "[0]"], "iterations must be whole"),
        (["label", "--data", "demo", "--out", "l.parquet", "--limit", "0"], "limit must be at least 1 question, got 0"),
        (["fit", "--data.labels", "missing.parquet"], "missing.parquet does not exist; make it with `corag label`"),
        (["fit", "--data.lables", "x"], "there is no option --data.lables; did you mean --data.labels?"),
        (["fit"], "arguments are required: --data.labels"),
        (["composite", "--labels", "l.parquet", "--out", "c"], "arguments are required: --data"),
        (
            [*["composite", "--labels", "l.parquet", "--data", "demo", "--out", "c"], "--store", "s", "--stores", "t"],
            "--store has no effect beside --stores; leave it out",
        ),
        (["index", "--data", "demo", "--out", "s", "--store", "t"], "--store has no effect beside --out, which names"),
        (["index", "--remove", "d", "--out", "s", "--retrieval=hybrid"], "--retrieval has no effect beside --remove"),
        (["demo", "--store", "s"], "--store has no effect on the demo, which makes its own"),
        (["evaluate", "--out", "e", "--probe", "3"], "--probe says something about --dry_run, which was not given"),
        (["evaluate", "--out", "e", "--collect", "--dry-run"], "--dry_run has no effect beside --collect, which eval"),
        (["evaluate", "--out", "e", "--collect", "--retry-failed"], "--retry_failed has no effect beside --collect"),
        (["report", "--run", "e", "--markdown", "r.md", "--questions", "9"], "--questions says something about --out"),
        (["export", "--checkpoint", "missing.ckpt", "--out", "a"], "missing.ckpt does not exist"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["search", "--store", "nowhere", "--query", "q", "--prior", "bm25"],
            "--prior has no effect without --search.e",
        ),
        (["evaluate", "--out", "nowhere", "--reranker", "bm25"], "--reranker has no effect on an evaluation, whose me"),
        (["label", "--data", "demo", "--reranker", "bm25"], "--reranker has no effect on labels, which compare all of"),
        (["label", "--data", "demo", "--search.iterations", "5"], "--search.iterations has no effect on labels"),
        (
            [*RESCORE, "--grid.iterations", "[5]"],
            "--grid.iterations has no effect beside --rescore, whose table settles",
        ),
        ([*RESCORE, "--grid", "{iterations: [5]}"], "--grid has no effect beside --rescore, whose table settles it"),
        ([*RESCORE, "--rerankers", "{bm25: {}}"], "--rerankers has no effect beside --rescore"),
        ([*RESCORE, "--search.budget", "99"], "--search.budget has no effect beside --rescore"),
        ([*RESCORE, "--candidates", "9"], "--candidates has no effect beside --rescore"),
    ],
)
def test_settings_of_the_pipeline_without_effect_are_warned_of(
    capsys: pytest.CaptureFixture[str], arguments: list[object], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 2)  # the second says what else is missing
    assert err.startswith(f"corag: warning: {message}")


def test_a_gold_passage_outside_the_corpus_names_file_and_line(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path
) -> None:
    code, _, err = run(capsys, "label", "--data", f"jsonl:{corpus}", "--out", tmp_path / "l.parquet")
    assert code == 2
    assert err.count("\n") == 1
    assert "questions.jsonl" in err and "nope" in err
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_an_empty_corpus(capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path) -> None:
    (corpus / "documents.jsonl").write_text("\n", encoding="utf-8")
    (corpus / "questions.jsonl").write_text("", encoding="utf-8")
    code, _, err = run(capsys, "index", "--data", f"jsonl:{corpus}", "--out", tmp_path / "s")
    assert (code, err.count("\n")) == (2, 1)
    assert "documents.jsonl has no documents; write at least one, one JSON object a line" in err


@pytest.mark.models
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "labels.csv"], "must end in .parquet, got 'labels.csv'"),
        (["--out", "l.parquet", "--rerankers", "{nope: {}}"], "unknown reranker 'nope'"),
        (["--out", "l.parquet", "--search.budget", "2"], "budget must be at least the smallest chunk's cost"),
        (["--out", "l.parquet", "--workers", "0"], "workers must be a whole number, at least 1, got 0"),
    ],
)
def test_a_refused_label_job_leaves_nothing(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    corpus: Path,
    arguments: list[str],
    message: str,
) -> None:
    (corpus / "questions.jsonl").write_text(
        '{"id": "q", "question": "How tall?", "gold_passages": [{"document": "d", "text": "tower"}]}\n'
    )
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "label", "--data", f"jsonl:{corpus}", *arguments)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


@pytest.mark.models
def test_what_does_not_fit_a_store(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (corpus / "questions.jsonl").write_text("", encoding="utf-8")
    assert run(capsys, "index", "--data", f"jsonl:{corpus}", "--out", "s", "--json")[0] == 0
    code, out, err = run(capsys, "search", "--store", "s", "--query", "How tall?", "--search.budget", 2)
    assert (code, out) == (2, "")
    assert "budget must be at least the smallest candidate's cost" in err
    assert err.count("\n") == 1
    # Of its own chunks a store is asked for no others; a file may say what is for the next one.
    asked = ("--store", "s", "--query", "How tall?")
    for command in ("search", "answer"):
        code, out, err = run(capsys, command, *asked, "--chunk-size", 48)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "the store was built with chunk_size 96, the configured one is 48; leave it out, or build" in err
    code, _, err = run(
        capsys, "label", "--data", f"jsonl:{corpus}", "--store", "s", "--out", "l.parquet", "--index.kind", "hnsw"
    )
    assert (code, err.count("\n")) == (2, 1) and "the store was built with index {'kind': 'flat'}, the" in err
    Path("next.yaml").write_text("chunk_size: 48\n", encoding="utf-8")
    assert run(capsys, "search", "--config", "next.yaml", *asked, "--chunk-size", 96)[0] == 0
    assert run(capsys, "search", *asked, "--config", "next.yaml")[0] == 0


@pytest.mark.models
def test_index_does_not_replace_what_is_no_store(
    capsys: pytest.CaptureFixture[str], corpus: Path, tmp_path: Path
) -> None:
    (corpus / "questions.jsonl").write_text("", encoding="utf-8")
    code, _, err = run(capsys, "index", "--data", f"jsonl:{corpus}", "--out", corpus)
    assert code == 2
    assert "is no corag-store, so it is not overwritten" in err
    assert (corpus / "documents.jsonl").exists()
