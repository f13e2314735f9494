"""Answers are asked for once, and kept."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from corag_search.errors import InputError
from corag_search.generators.base import Generation, Generator
from data_prep.answers import AnswerCache, CachedGenerator


class Scripted:
    """Answers with the prompt's words, slowly if told so."""

    name = "scripted"
    context_length = 512

    def __init__(self, fingerprint: str = "scripted-1") -> None:
        self.fingerprint = fingerprint
        self.prompts: list[str] = []
        self.gate: threading.Event | None = None
        self.closed = False

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        self.prompts.append(prompt)
        if self.gate:
            self.gate.wait(10)
        if prompt == "fail":
            raise ConnectionError("no route")
        return Generation(" ".join(prompt.split()[:max_tokens]), len(prompt.split()), max_tokens)

    def stream(self, prompt: str, max_tokens: int) -> Iterator[str]:
        yield from self.generate(prompt, max_tokens).text

    def close(self) -> None:
        self.closed = True


def test_it_stands_in_for_its_generator():
    inner = Scripted()
    with AnswerCache(None) as cache:
        generator = CachedGenerator(inner, cache)
        assert isinstance(generator, Generator)
        assert list(generator.stream("a b", 1)) == ["a"] == [generator.generate("a b", 1).text]
        assert (generator.calls, generator.hits) == (1, 1)
        generator.close()
        assert inner.closed and len(cache) == 1


def test_the_same_prompt_is_answered_once(tmp_path):
    with AnswerCache(tmp_path / "runs" / "answers.sqlite") as cache:
        inner = Scripted()
        generator = CachedGenerator(inner, cache)
        assert (generator.name, generator.fingerprint, generator.context_length) == ("scripted", "scripted-1", 512)
        first = generator.generate("光合作用 is what?", 2)
        assert first == Generation("光合作用 is", 3, 2) == generator.generate("光合作用 is what?", 2)
        assert (generator.calls, generator.hits, len(inner.prompts), len(cache)) == (1, 1, 1, 1)
        generator.generate("光合作用 is what?", 3)
        CachedGenerator(Scripted("scripted-2"), cache).generate("光合作用 is what?", 2)
        assert len(cache) == 3
    again = Scripted()
    with AnswerCache(tmp_path / "runs" / "answers.sqlite") as cache:
        assert CachedGenerator(again, cache).generate("光合作用 is what?", 2) == first
    assert again.prompts == []


def test_what_another_cache_has_is_taken_over_and_what_is_there_stays(tmp_path):
    one, other = tmp_path / "one.sqlite", tmp_path / "other.sqlite"
    with AnswerCache(one) as cache:
        cache.put("both", Generation("ours", 1, 1))
    with AnswerCache(other) as cache:
        cache.put("both", Generation("theirs", 1, 1))
        cache.put("new", Generation("new", 2, 3))
    with AnswerCache(one) as cache:
        for _ in range(2):
            cache.take_over(other)
            assert len(cache) == 2
        assert (cache.get("both"), cache.get("new")) == (Generation("ours", 1, 1), Generation("new", 2, 3))
        (tmp_path / "text.sqlite").write_text("no database at all, but a longer text\n" * 99)
        with pytest.raises(InputError, match=r"text\.sqlite is no answer cache"):
            cache.take_over(tmp_path / "text.sqlite")
        cache.put("later", Generation("still open", 1, 1))
    with AnswerCache(other) as cache:
        assert len(cache) == 2 and cache.get("both") == Generation("theirs", 1, 1)


def test_in_memory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with AnswerCache(None) as cache:
        generator = CachedGenerator(Scripted(), cache)
        assert generator.generate("a b", 1) == generator.generate("a b", 1)
        assert (generator.calls, generator.hits) == (1, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_not_kept():
    inner = Scripted()
    with AnswerCache(None) as cache:
        generator = CachedGenerator(inner, cache)
        for _ in range(2):
            with pytest.raises(ConnectionError):
                generator.generate("fail", 1)
        assert len(inner.prompts) == 2 and len(cache) == 0


def test_threads_that_ask_the_same_at_once_share_one_call():
    inner = Scripted()
    inner.gate = threading.Event()
    with AnswerCache(None) as cache, ThreadPoolExecutor(8) as pool:
        generator = CachedGenerator(inner, cache)
        futures = [pool.submit(generator.generate, "a b", 1) for _ in range(8)]
        inner.gate.set()
        assert {f.result() for f in futures} == {Generation("a", 2, 1)}
        assert (generator.calls, generator.hits, len(inner.prompts)) == (1, 7, 1)


def test_many_threads_and_two_processes_share_a_file(tmp_path):
    path = tmp_path / "answers.sqlite"
    script = (
        "import sys\nfrom data_prep.answers import AnswerCache\nfrom corag_search.generators.base import Generation\n"
        "with AnswerCache(sys.argv[1]) as cache:\n"
        "    for n in range(100): cache.put(f'other {n}', Generation(str(n), n, n))\n"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(path)])
    with AnswerCache(path) as cache, ThreadPoolExecutor(4) as pool:
        generator = CachedGenerator(Scripted(), cache)
        answers = list(pool.map(lambda n: generator.generate(f"{n % 50} x", 1).text, range(200)))
        assert answers == [str(n % 50) for n in range(200)]
        assert (generator.calls, generator.hits) == (50, 150)
        assert other.wait(20) == 0
        assert len(cache) == 150 and cache.get("other 7") == Generation("7", 7, 7)


def test_an_answer_given_out_stays(tmp_path):
    with AnswerCache(None) as cache:
        cache.put("key", Generation("first", 1, 1))
        cache.put("key", Generation("second", 1, 1))
        assert cache.get("key") == Generation("first", 1, 1) and cache.get("none") is None


def test_what_is_no_cache_is_refused_and_left_alone(tmp_path):
    text, foreign, newer = tmp_path / "x.txt", tmp_path / "x.sqlite", tmp_path / "newer.sqlite"
    text.write_text("no database at all, " * 100)
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    AnswerCache(newer).close()
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    for path, message in (
        (text, "no answer cache"),
        (foreign, "but no answer cache"),
        (newer, "has format 9"),
        (tmp_path, "cannot open answer cache"),
        (text / "below", "cannot make the folder"),
    ):
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(InputError, match=message) as error:
            AnswerCache(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)
        assert before == (path.read_bytes() if path.is_file() else None)


def test_what_files_cannot_hold_is_mended_before_it_is_given_out(tmp_path):
    class Odd(Scripted):
        def generate(self, prompt: str, max_tokens: int) -> Generation:
            return Generation("\ud83d\ude00 cut \ud83d", 10**23, 5)

    with AnswerCache(tmp_path / "answers.sqlite") as cache:
        generator = CachedGenerator(Odd(), cache)
        given = [generator.generate("a", 1), generator.generate("a", 1)]
        assert given == [Generation("😀 cut \ufffd", 0, 5)] * 2 and generator.hits == 1


def test_an_empty_cache_is_removed_but_not_under_others(tmp_path):
    path = tmp_path / "answers.sqlite"
    with AnswerCache(path) as ours, AnswerCache(path) as theirs:
        ours.remove_if_empty()
        assert path.exists()
        ours.close()
        theirs.put("key", Generation("kept", 1, 1))
    with AnswerCache(path) as cache:
        cache.remove_if_empty()
        assert cache.get("key") == Generation("kept", 1, 1) and path.exists()
    with AnswerCache(tmp_path / "other.sqlite") as cache:
        cache.remove_if_empty()
    assert [file.name for file in tmp_path.iterdir()] == ["answers.sqlite"]
    with AnswerCache(None) as cache:
        cache.remove_if_empty()


def test_a_cache_that_is_removed_while_it_is_opened_is_made_anew(tmp_path, monkeypatch):
    path = tmp_path / "answers.sqlite"
    prepare = AnswerCache._prepare
    removed = []

    def removed_meanwhile(self: AnswerCache) -> None:
        prepare(self)
        if not removed:
            path.unlink()
            removed.append(path)

    monkeypatch.setattr(AnswerCache, "_prepare", removed_meanwhile)
    with AnswerCache(path) as cache:
        cache.put("key", Generation("kept", 1, 1))
    with AnswerCache(path) as cache:
        assert removed and cache.get("key") == Generation("kept", 1, 1)


def test_errors_of_the_disk_and_of_others_name_the_file(tmp_path):
    path = tmp_path / "answers.sqlite"
    with AnswerCache(path) as cache:
        with pytest.raises(sqlite3.OperationalError, match=r"answer cache .*answers\.sqlite: database or disk is full"):
            cache._connection.execute("PRAGMA max_page_count = 1")
            cache.put("key", Generation("x" * 10_000, 1, 1))
        cache._connection.execute("PRAGMA busy_timeout = 0")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match=r"answers\.sqlite is held by another run"):
            cache.put("key", Generation("y", 1, 1))
        other.close()
