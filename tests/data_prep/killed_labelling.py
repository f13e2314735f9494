"""Runs a labelling job again and again, each time killed at a random moment, then once to its end.

    python -m tests.data_prep.killed_labelling OUT.parquet KILLS

It imports once and forks for every run, so that many runs cost what they do and not what imports take. Prints one JSON
list: for each kill how many questions were finished before and after it, how many new ones the run reported, and
whether the ledger was then left with half a line.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from data_prep.answers import AnswerCache, CachedGenerator
from data_prep.engines import LocalEngine
from data_prep.label_run import label_questions, ledger_path
from data_prep.labelling import Labeller
from tests.data_prep.test_labelling import make_labeller

QUESTIONS = 36  # more than are finished between the kills
HALF_A_LINE = b'{"key": "q3", "record": {"reference": "w1'


def make_job() -> Labeller:
    """A labeller whose job takes long enough to be killed in many times."""
    labeller = make_labeller()
    own = labeller.dataset.questions
    questions = tuple(replace(own[i % len(own)], id=f"q{i}", text=f"what about w{i} ?") for i in range(QUESTIONS))
    return replace(labeller, dataset=replace(labeller.dataset, questions=questions))


def label(out: Path, progress: Callable[[str], None]) -> None:
    labeller = make_job()
    with AnswerCache(out.with_suffix(".answers.sqlite")) as cache:
        labeller = replace(labeller, generator=CachedGenerator(labeller.generator, cache))
        label_questions(LocalEngine(labeller), labeller.dataset, labeller.dataset.questions, out, progress=progress)


def start(out: Path, leave: int) -> tuple[int, int]:
    """A run in a process of its own, which waits for its end after one question more than it has leave for.

    Returns:
        Its id, and a pipe that gets one byte for each question.
    """
    (reading, writing), (tickets, office) = os.pipe(), os.pipe()
    os.write(office, b"." * leave)
    child = os.fork()
    if child:
        os.close(writing)
        os.close(tickets)
        os.close(office)
        return child, reading
    os.close(reading)

    def progress(_: str) -> None:
        os.write(writing, b".")
        os.read(tickets, 1)  # its own end of the office is open, so this waits

    try:
        label(out, progress)
        os._exit(0)
    finally:
        os._exit(1)


def read_all(pipe: int) -> int:
    """Bytes until the other end is closed."""
    count = 0
    while piece := os.read(pipe, 4096):
        count += len(piece)
    os.close(pipe)
    return count


def finished(out: Path) -> int:
    """Questions whose line in the ledger is whole."""
    ledger = ledger_path(out)
    return max(0, ledger.read_bytes().count(b"\n") - 1) if ledger.exists() else 0


def kill_once(out: Path, moments: random.Random, finish: int) -> list[int]:
    """Kill a run somewhere in the question after the next `finish` ones."""
    before = finished(out)
    child, pipe = start(out, before + finish)
    reported = 0
    while reported < before + finish:
        byte = os.read(pipe, 1)
        assert byte, "the run ended by itself"
        reported += len(byte)
    time.sleep(moments.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the run ended before it was killed"
    reported += read_all(pipe)
    after = finished(out)
    torn = moments.random() < 0.3 and after > 0
    if torn:  # as a write that is cut off in the middle leaves it
        with ledger_path(out).open("ab") as file:
            file.write(HALF_A_LINE)
    return [before, after, max(0, reported - before), int(torn)]


def main() -> None:
    out, kills = Path(sys.argv[1]), int(sys.argv[2])
    moments = random.Random(0)
    log = [kill_once(out, moments, number % 2) for number in range(kills)]
    child, pipe = start(out, QUESTIONS)
    read_all(pipe)
    assert os.waitpid(child, 0)[1] == 0, "the last run failed"
    sys.stdout.write(json.dumps(log))


if __name__ == "__main__":
    main()
