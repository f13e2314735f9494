"""Runs an evaluation again and again, each time killed at a random moment, then once to its end.

    python -m tests.corag_agent.evaluation.killed_evaluation OUT KILLS

It imports once and forks for every run. Prints one JSON list: the ledger's whole lines after each kill.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from corag_agent.evaluation.job import LEDGER
from corag_agent.evaluation.plan import Experiment
from corag_agent.evaluation.records import EvaluationRun
from tests.corag_agent.evaluation.tiny_evaluation import evaluated, tiny_source

QUESTIONS = 18
HALF_A_LINE = b'{"key": "[\\"tiny\\", \\"q3\\"'
EXPERIMENT = Experiment("main", methods=["naive_rag", "naive_matched", "tree"])


def evaluate(out: Path) -> EvaluationRun:
    return evaluated(out, [EXPERIMENT], data=[tiny_source(questions=QUESTIONS)])


def lines(out: Path) -> int:
    ledger = out / LEDGER
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


def kill_once(out: Path, moments: random.Random) -> int:
    """Kill a run a little after it has written something new."""
    before = lines(out)
    child = os.fork()
    if not child:
        evaluate(out)
        os._exit(0)
    while lines(out) <= before:
        time.sleep(0.002)
    time.sleep(moments.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the run ended before it was killed"
    after = lines(out)
    if moments.random() < 0.4:  # as a write that is cut off in the middle leaves it
        with (out / LEDGER).open("ab") as file:
            file.write(HALF_A_LINE)
    return after


def main() -> None:
    out, kills = Path(sys.argv[1]), int(sys.argv[2])
    moments = random.Random(0)
    log = [kill_once(out, moments) for _ in range(kills)]
    evaluate(out).write(out)
    sys.stdout.write(json.dumps(log))


if __name__ == "__main__":
    main()
