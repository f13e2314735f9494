"""`corag label --select` and `--merge`: finished tables, nothing labelled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corag_agent.cli import main
from data_prep.demo_corpus import LABELS
from data_prep.selection import choose_labels
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table, write_separable_table


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["label", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_what_is_kept_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = choose_labels(LabelTable.read(LABELS))
    code, out, err = run(capsys, "--select", LABELS)
    assert (code, err) == (0, "")
    lines = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in out.splitlines() if "│" in line]
    assert [tuple(line) for line in lines] == chosen.summary()
    code, out, _ = run(capsys, "--select", LABELS, "--json", "--gain_mode", "absolute", "--minimum_gain", 0.3)
    strict = choose_labels(LabelTable.read(LABELS), 0.3, "absolute")
    assert json.loads(out)["kept"] == int(strict.kept.sum()) < int(chosen.kept.sum())
    assert sum(json.loads(out)["best"].values()) == json.loads(out)["kept"]


def test_few_examples_are_warned_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    separable_table(questions=29).write(tmp_path / "l.parquet")
    code, _, err = run(capsys, "--select", tmp_path / "l.parquet")
    assert code == 0
    assert "fewer than ten questions that are kept have the best reranker gamma (9);" in err
    assert err.count("\n") == 1


def test_tables_are_joined(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "all.parquet"
    labels = write_separable_table(tmp_path)
    code, text, _ = run(capsys, "--merge", labels, labels, "--out", out, "--json")
    assert code == 0
    assert json.loads(text)["questions"] == len(LabelTable.read(out)) == len(separable_table())
    assert out.read_bytes() == (tmp_path / "labels.parquet").read_bytes()
    code, _, err = run(capsys, "--merge", labels, LABELS, "--out", tmp_path / "no.parquet")
    assert code == 2
    assert "label table 2 cannot join the first: their fingerprints differ in embedder, grid, rerankers" in err
    assert not (tmp_path / "no.parquet").exists()


def test_a_table_without_texts_for_publishing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    labels = write_separable_table(tmp_path)
    out = tmp_path / "published" / "l.parquet"
    code, _, _ = run(capsys, "--merge", labels, "--without_texts", "--out", out, "--json")
    assert code == 0
    before, after = LabelTable.read(labels), LabelTable.read(out)
    assert before.questions["reference"].notna().any() and after.questions["reference"].isna().all()
    assert (after.rouge() == before.rouge()).all() and (after.embeddings == before.embeddings).all()
    assert sorted(file.name for file in out.parent.iterdir()) == ["l.parquet", "l.questions.parquet"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "l.parquet"], "--data is required to label"),
        (["--data", "demo"], "--out is required to label"),
        (["--merge", "a.parquet", "b.parquet"], "merge needs a name for the new table"),
        (["--merge", "a.parquet", "--out", "l.csv"], "must end in .parquet"),
        (["--merge", "a.parquet", "--select", "b.parquet"], "select and merge were both given"),
        (["--merge", "a.parquet", "--rescore", "b.parquet"], "merge and rescore were both given"),
        (["--select", "a.parquet", "--rescore", "b.parquet"], "select and rescore were both given"),
        (["--merge", LABELS, "--out", "l.questions.parquet"], "is the name of a part of another label table"),
        (["--without-texts", "--out", "a.parquet"], "without_texts writes a new table; name the old one with --merge"),
        (["--data", "demo", "--out", "l.parquet", "--noise", "drop"], "--noise says something about --select or"),
        (["--out", "l.parquet", "--gain-mode=absolute"], "--gain_mode says something about --select or --merge, which"),
        (["--rescore", "a.parquet", "--minimum_gain", "0.3"], "--minimum_gain says something about --select or"),
        (["--data", "demo", "--out", "l.parquet", "--probe", "3"], "--probe says something about --dry_run, which was"),
        (["--select", LABELS, "--limit", "3"], "--limit has no effect beside --select, which labels nothing; leave it"),
        (["--select", LABELS, "--data", "demo"], "--data has no effect beside --select, which labels nothing"),
        (["--select", LABELS, "--out", "l.parquet"], "--out has no effect beside --select, which labels nothing"),
        (["--select", LABELS, "--dry-run", "--json"], "--dry_run has no effect beside --select"),
        (["--select", LABELS, "--grid.iterations", "[5]"], "--grid.iterations has no effect beside --select"),
        (
            ["--merge", LABELS, "--out", "l.parquet", "--compose=9"],
            "--compose has no effect beside --merge, which label",
        ),
        (["--merge", LABELS, "--out", "l.parquet", "--skip", LABELS], "--skip has no effect beside --merge"),
        (["--merge", LABELS, "--out", "l.parquet", "--rerankers.bm25.k1=1"], "--rerankers.bm25.k1 has no effect besid"),
        (["--select", "missing.parquet"], "missing.parquet does not exist"),
        (["--select", Path(LABELS).parent], "is a directory; name a file in it, NAME.parquet"),
        (["--select", LABELS, "--noise", "drop"], "noise cannot be 'drop'"),
        (["--select", LABELS, "--gain_mode", "percent"], "gain mode must be one of relative, absolute"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[object],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_what_a_file_says_of_labelling_is_passed_over(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One file may serve the whole of a user's work: only what is said on the command line must have an effect."""
    config = tmp_path / "labels.yaml"
    config.write_text("data: demo\nlimit: 3\ngrid: {iterations: [5]}\nout: l.parquet\nrerankers: {bm25: {}}\n")
    alone, beside = run(capsys, "--select", LABELS), run(capsys, "--config", config, "--select", LABELS)
    assert alone == beside and alone[0] == 0


def test_a_table_cannot_take_a_directory_s_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "all.parquet").mkdir()
    code, out, err = run(capsys, "--merge", LABELS, "--out", tmp_path / "all.parquet")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "all.parquet is a directory; name a file, such as" in err
    assert [path.name for path in tmp_path.rglob("*")] == ["all.parquet"]
