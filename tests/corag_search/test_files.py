"""Files and directories are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from corag_search.errors import InputError
from corag_search.files import replacing_directory, replacing_file


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), replacing_file(target) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_failed_directory_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "store"
    with replacing_directory(target, "mark") as partial:
        (partial / "mark").write_text("1")
        assert not target.exists()
    with pytest.raises(RuntimeError), replacing_directory(target, "mark") as partial:
        (partial / "mark").write_text("2")
        raise RuntimeError
    assert (target / "mark").read_text() == "1"
    with replacing_directory(target, "mark") as partial:
        (partial / "mark").write_text("3")
    assert (target / "mark").read_text() == "3"
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


def test_a_directory_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is there and has no mark"), replacing_directory(tmp_path, "mark"):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
