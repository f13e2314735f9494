"""The ledger survives kills, torn records and full disks, and tells apart what it must not mix."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from corag_search.errors import InputError
from data_prep.ledger import Ledger, check_known

HEADER = {"data": "demo", "grid": [0, 0.1], "chunk_size": 96}

WRITER = """
import sys
from data_prep.ledger import Ledger
with Ledger(sys.argv[1], {"data": "demo"}) as ledger:
    print("ready", flush=True)
    for number in range(int(sys.argv[2])):
        key = f"query {number}"
        if key not in ledger.done:
            ledger.append(key, {"order": list(range(number % 7)), "text": "x" * 300})
            print(key, flush=True)
"""


def writer(path, count=100_000):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(count)], stdout=subprocess.PIPE, text=True)


def test_records_come_back_as_json_gives_them(tmp_path):
    path = tmp_path / "runs" / "ledger.jsonl"
    with Ledger(path, HEADER) as ledger:
        assert ledger.done == {} and ledger.recovered == 0
        ledger.append("q1", {"order": (1, 2), "text": "光\n\ud83d"})
        ledger.append("q2", None)
        ledger.append("q2", {"error": "timeout"})
        assert ledger.done["q1"] == {"order": [1, 2], "text": "光\n\ud83d"}
        written = dict(ledger.done)
    with Ledger(path, HEADER) as ledger:
        assert ledger.done == written and ledger.done["q2"] == {"error": "timeout"}
        assert ledger.recovered == 0
    lines = path.read_text().splitlines()
    assert len(lines) == 4 and json.loads(lines[0])["header"] == HEADER


def test_what_json_cannot_say_changes_nothing(tmp_path):
    with Ledger(tmp_path / "l", HEADER) as ledger:
        size = ledger.path.stat().st_size
        for record in (float("nan"), {"x": float("inf")}, object(), {1, 2}):
            with pytest.raises((TypeError, ValueError)):
                ledger.append("q", record)
        assert ledger.path.stat().st_size == size and ledger.done == {}


def test_a_closed_ledger_takes_nothing(tmp_path):
    ledger = Ledger(tmp_path / "l", HEADER)
    ledger.close()
    ledger.close()
    with pytest.raises(ValueError, match="is closed"):
        ledger.append("q", 1)


def test_another_header_is_refused_with_the_differences(tmp_path):
    Ledger(tmp_path / "l", HEADER).close()
    with pytest.raises(InputError) as error:
        Ledger(tmp_path / "l", {"data": "demo", "grid": [0, 0.2], "budget": 300})
    message = str(error.value)
    assert "grid was [0, 0.1], is now [0, 0.2]" in message and "chunk_size was 96, is now not set" in message
    assert "budget was not set, is now 300" in message and "data was" not in message
    assert "another path" in message and "\n" not in message
    Ledger(tmp_path / "l", dict(reversed(HEADER.items()))).close()  # the order of keys says nothing


def test_another_run_shows_in_a_part_of_its_header(tmp_path):
    path = tmp_path / "l.jsonl"
    check_known(path, {"data": "demo"})  # none yet
    assert not path.exists()
    with Ledger(path, HEADER) as ledger:
        ledger.append("q1", 1)
        written = path.read_bytes()
        check_known(path, {"grid": (0, 0.1), "data": "demo"})  # as JSON has it, and while a run writes it
    with pytest.raises(
        InputError, match=r"another run \(data was \"demo\", is now \"mine\"; x was not set, is now 1\)"
    ):
        check_known(path, {"data": "mine", "chunk_size": 96, "x": 1})
    assert path.read_bytes() == written
    for foreign in (b"notes\n", b'{"corag_ledger": 1, "header": 3}\n'):
        path.write_bytes(foreign)
        with pytest.raises(InputError, match="is no ledger"):
            check_known(path, HEADER)
    path.write_bytes(written[:9])  # killed while the header was written
    check_known(path, {"data": "mine"})


def test_a_torn_record_is_cut_off_at_every_length(tmp_path):
    path = tmp_path / "l"
    with Ledger(path, HEADER) as ledger:
        ledger.append("q1", {"value": 1})
        whole = path.read_bytes()
        ledger.append("q2", {"value": 2})
    full = path.read_bytes()
    for size in range(len(whole), len(full)):
        path.write_bytes(full[:size])
        with Ledger(path, HEADER) as ledger:
            assert list(ledger.done) == ["q1"] and ledger.recovered == size - len(whole)
            assert path.read_bytes() == whole
            ledger.append("q2", {"value": 2})
        assert path.read_bytes() == full


def test_a_torn_header_begins_anew_but_a_foreign_file_is_left_alone(tmp_path):
    path = tmp_path / "l"
    Ledger(path, HEADER).close()
    header = path.read_bytes()
    for size in (0, 1, 20, len(header) - 1):
        path.write_bytes(header[:size])
        Ledger(path, HEADER).close()
        assert path.read_bytes() == header
    for foreign in (b"my thesis", b"my thesis\n", b'{"key": 1}\n', b"[]\n", b"\xff\n", header[:20] + b"!"):
        path.write_bytes(foreign)
        with pytest.raises(InputError, match="is no ledger"):
            Ledger(path, HEADER)
        assert path.read_bytes() == foreign


@pytest.mark.parametrize("damaged", [b'{"key": "q2", "rec', b"\0\0", b"[]", b"", b'{"key": 7, "record": 1}', b"\xff"])
def test_damage_in_the_middle_is_refused_with_its_line(tmp_path, damaged):
    path = tmp_path / "l"
    with Ledger(path, HEADER) as ledger:
        for key in ("q1", "q2", "q3"):
            ledger.append(key, 1)
    lines = path.read_bytes().split(b"\n")
    lines[2] = damaged
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError, match="line 3 is damaged"):
        Ledger(path, HEADER)
    assert path.read_bytes() == b"\n".join(lines)


def test_another_format_is_refused(tmp_path):
    (tmp_path / "l").write_text('{"corag_ledger": 99, "header": {}}\n')
    with pytest.raises(InputError, match="has format 99"):
        Ledger(tmp_path / "l", HEADER)


def test_two_runs_cannot_write_one_ledger(tmp_path):
    other = writer(tmp_path / "l")
    try:
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(InputError, match="in use by another run"):
            Ledger(tmp_path / "l", {"data": "demo"})
    finally:
        other.kill()
        other.communicate()
    Ledger(tmp_path / "l", {"data": "demo"}).close()  # the lock died with its holder


def test_a_folder_is_no_ledger(tmp_path):
    with pytest.raises(InputError, match="cannot open ledger"):
        Ledger(tmp_path, HEADER)


def test_kills_at_random_moments_lose_no_finished_record(tmp_path):
    path, moments = tmp_path / "l", random.Random(0)
    reported: list[str] = []
    for _ in range(5):
        process = writer(path)
        assert process.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        reported += process.communicate()[0].splitlines()
        with Ledger(path, {"data": "demo"}) as ledger:
            done = list(ledger.done)
        # All that was reported is there; at most the one in flight besides, once for each kill.
        assert set(reported) <= set(done) and len(done) <= len(reported) + 5
        assert done == [f"query {n}" for n in range(len(done))]
    assert len(reported) == len(set(reported)) > 0
    finished = writer(path, len(done) + 5)
    assert len(finished.communicate()[0].splitlines()) == 1 + 5
    with Ledger(path, {"data": "demo"}) as ledger, Ledger(tmp_path / "whole", {"data": "demo"}) as whole:
        for number in range(len(done) + 5):
            whole.append(f"query {number}", {"order": list(range(number % 7)), "text": "x" * 300})
        assert ledger.done == whole.done


def test_a_full_disk_leaves_what_was_written(tmp_path):
    script = """
        import resource, sys
        from data_prep.ledger import Ledger
        with Ledger(sys.argv[1], {"data": "demo"}) as ledger:
            ledger.append("small", "x" * 50)
            good = ledger.path.read_bytes()
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(good) + 100, resource.RLIM_INFINITY))
            for attempt in range(2):
                try:
                    ledger.append("great", "x" * 500)
                except OSError as error:
                    assert error.filename == sys.argv[1], error
                else:
                    raise SystemExit("the disk was not full")
                assert ledger.path.read_bytes() == good and list(ledger.done) == ["small"]
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            ledger.append("great", "x" * 500)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "l")], check=True)
    with Ledger(tmp_path / "l", {"data": "demo"}) as ledger:
        assert list(ledger.done) == ["small", "great"] and ledger.recovered == 0


def test_a_disk_that_cannot_even_cut_off_is_repaired_by_the_next_write(tmp_path, monkeypatch):
    with Ledger(tmp_path / "l", HEADER) as ledger:
        ledger.append("q1", 1)

        def fails(*_: object) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            patch.setattr(os, "ftruncate", fails)
            with pytest.raises(OSError, match="Input/output error"):
                ledger.append("lost", "x" * 100)
        ledger.append("q2", 2)
    with Ledger(tmp_path / "l", HEADER) as ledger:
        assert ledger.done == {"q1": 1, "q2": 2}


def test_threads_may_append_at_once(tmp_path):
    with Ledger(tmp_path / "l", HEADER) as ledger, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: ledger.append(f"{n % 4}-{n // 4}", n // 4), range(80)))
    with Ledger(tmp_path / "l", HEADER) as ledger:
        assert len(ledger.done) == 80 and ledger.done["3-19"] == 19


def test_a_ledger_that_is_removed_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    path, lock = tmp_path / "l", Ledger._lock_file
    removed = []

    def removed_meanwhile(self):
        if not removed:
            path.unlink()
            removed.append(path)
        lock(self)

    monkeypatch.setattr(Ledger, "_lock_file", removed_meanwhile)
    with Ledger(path, HEADER) as ledger:
        ledger.append("q", 1)
    with Ledger(path, HEADER) as ledger:
        assert removed and ledger.done == {"q": 1}
