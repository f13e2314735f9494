"""Files and directories are whole or not there, and nothing of others is lost."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from corag_search.errors import InputError
from corag_search.files import (
    DirectoryFormat,
    changing_alone,
    check_replaceable,
    replacing_directory,
    replacing_file,
)

KIND = DirectoryFormat("corag-thing", "manifest.json", ("manifest.json", "data"))


def fill(directory: Path, data: str) -> None:
    (directory / "manifest.json").write_text(json.dumps({"format": "corag-thing"}))
    (directory / "data").write_text(data)


def test_a_directory_is_refused_by_its_own_name_before_anything_is_written(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.mkdir()
    with pytest.raises(IsADirectoryError) as caught, replacing_file(target):
        pytest.fail("entered")
    assert caught.value.filename == str(target)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), replacing_file(target) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("replacing", [replacing_file, lambda path: replacing_directory(path, KIND)])
def test_an_error_of_the_system_names_what_was_to_be_written(tmp_path: Path, replacing: Any) -> None:
    target = tmp_path / "results"
    with pytest.raises(OSError, match=r"results'$") as raised, replacing(target):
        raise OSError(errno.ENOSPC, "No space left on device")  # as a library does that is given an open file
    assert raised.value.filename == str(target)
    with pytest.raises((FileNotFoundError, NotADirectoryError)) as raised, replacing(target) as partial:
        (partial / "sub" / "file").write_text("x")
    assert raised.value.filename == str(target)
    with pytest.raises(FileNotFoundError) as raised, replacing(target):
        (tmp_path / "source").read_bytes()
    assert raised.value.filename == str(tmp_path / "source")
    with pytest.raises(OSError, match="no number") as raised, replacing(target):
        raise OSError("no number")
    assert raised.value.filename is None


@pytest.mark.parametrize("replacing", [replacing_file, lambda path: replacing_directory(path, KIND)])
def test_an_error_before_or_after_the_writing_names_it_too(tmp_path: Path, replacing: Any) -> None:
    long = tmp_path / ("a" * 250)  # its temporary sibling's name is longer than a name can be
    with pytest.raises(OSError, match="too long") as raised, replacing(long):
        pytest.fail("entered")
    assert raised.value.filename == str(long)
    with pytest.raises(FileNotFoundError) as raised, replacing(tmp_path / "results") as partial:
        partial.rename(tmp_path / "elsewhere")
    assert raised.value.filename == str(tmp_path / "results")


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a.txt")
    for text in ("new", "newer"):
        with replacing_file(tmp_path / "link") as partial:
            partial.write_text(text)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "a.txt").read_text() == text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "link"]


def test_a_failed_directory_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "store"
    with replacing_directory(target, KIND) as partial:
        fill(partial, "1")
        assert not target.exists()
    with pytest.raises(RuntimeError), replacing_directory(target, KIND) as partial:
        fill(partial, "2")
        raise RuntimeError
    assert (target / "data").read_text() == "1"
    with replacing_directory(target, KIND) as partial:
        fill(partial, "3")
    assert (target / "data").read_text() == "3"
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


def test_a_rename_that_fails_puts_the_old_directory_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "store"
    with replacing_directory(target, KIND) as partial:
        fill(partial, "old")
    rename = Path.rename
    monkeypatch.setattr("corag_search.files._exchanged", lambda one, other: False)  # as where the system cannot

    def failing(self: Path, to: Path) -> Path:
        if self.name.endswith(".partial"):
            raise OSError(28, "No space left on device")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="No space left"), replacing_directory(target, KIND) as partial:
        fill(partial, "new")
    assert (target / "data").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


@pytest.mark.skipif(sys.platform != "linux", reason="in one step on Linux only")
def test_the_directory_is_there_at_any_moment(tmp_path: Path) -> None:
    target = tmp_path / "store"
    with replacing_directory(target, KIND) as partial:
        fill(partial, "0")
    missed, done = [], threading.Event()

    def look() -> None:
        while not done.is_set():
            missed.extend([] if (target / "manifest.json").exists() else ["gone"])

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(200):
        with replacing_directory(target, KIND) as partial:
            fill(partial, str(number))
    done.set()
    looking.join()
    assert (missed, (target / "data").read_text()) == ([], "199")
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


def test_one_process_at_a_time_changes_a_directory(tmp_path: Path) -> None:
    target = tmp_path / "store"
    with changing_alone(target), replacing_directory(target, KIND) as partial:  # nothing is there yet
        fill(partial, "1")
    program = "import sys; from corag_search.files import changing_alone\n"
    program += "with changing_alone(sys.argv[1]): print('mine', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(target)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"mine\n"
        with pytest.raises(InputError, match=r"another process is changing .*store now; wait"), changing_alone(target):
            pass
        os.kill(other.pid, signal.SIGKILL)  # what it held is free with it
    with changing_alone(target), replacing_directory(target, KIND) as partial:
        fill(partial, "2")
    with changing_alone(target):
        assert (target / "data").read_text() == "2"


@pytest.mark.parametrize("manifest", [None, "{}", "[]", "{", '{"format": "web app"}'])
def test_a_directory_of_another_kind_is_left_alone(tmp_path: Path, manifest: str | None) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(InputError, match="is no corag-thing, so it is not overwritten"):
        check_replaceable(tmp_path, KIND)
    with pytest.raises(InputError), replacing_directory(tmp_path, KIND):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_files_of_others_in_our_directory_are_not_lost(tmp_path: Path) -> None:
    fill(tmp_path, "1")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"also holds notes\.txt, which would be lost"):
        check_replaceable(tmp_path, KIND)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(InputError, match="is no corag-thing"):
        check_replaceable(tmp_path / "a", KIND)
