"""An evaluation that is killed at random moments does nothing twice and ends in the same records."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd

from corag_agent.evaluation.job import LEDGER
from corag_agent.evaluation.records import EvaluationRun
from tests.corag_agent.evaluation.killed_evaluation import QUESTIONS, evaluate

KILLS = 3


def test_kills_at_random_moments_end_in_the_same_records(tmp_path: Path) -> None:
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.corag_agent.evaluation.killed_evaluation", str(out), str(KILLS)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert process.returncode == 0, process.stderr
    log = json.loads(process.stdout)
    assert log == sorted(set(log)) and len(log) == KILLS  # each run went on where the last one was killed
    keys = [json.loads(line)["key"] for line in (out / LEDGER).read_bytes().splitlines()[1:]]
    assert len(keys) == len(set(keys)) == QUESTIONS * (3 * 2 + 1)  # no unit and no reference twice
    killed, whole = EvaluationRun.read(out), evaluate(tmp_path / "whole")
    spent = [name for name in whole.records if name.startswith("seconds_")]
    pd.testing.assert_frame_equal(killed.records.drop(columns=spent), whole.records.drop(columns=spent))
    pd.testing.assert_frame_equal(killed.answers, whole.answers)
    pd.testing.assert_frame_equal(killed.questions, whole.questions)
