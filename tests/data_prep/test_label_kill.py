"""A labelling run that is killed at random moments loses no finished question and ends in the same table."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from data_prep.label_run import ledger_path
from tests.data_prep.killed_labelling import QUESTIONS, label

KILLS = 20


def test_kills_at_random_moments_end_in_the_same_table(tmp_path: Path) -> None:
    out = tmp_path / "killed.parquet"
    command = [sys.executable, "-m", "tests.data_prep.killed_labelling", str(out), str(KILLS)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert process.returncode == 0, process.stderr
    log = json.loads(process.stdout)
    for before, after, reported, _ in log:
        # All that was reported is there; at most the one in flight besides.
        assert before + reported <= after <= before + reported + 1
    for (_, after, _, _), (before, _, _, _) in pairwise(log):
        assert before >= after
    keys = [json.loads(line)["key"] for line in ledger_path(out).read_bytes().splitlines()[1:]]
    assert len(keys) == len(set(keys)) == QUESTIONS  # none was labelled twice
    label(tmp_path / "whole.parquet", progress=lambda _: None)
    for part in ("", ".questions", ".rivals"):
        killed, whole = tmp_path / f"killed{part}.parquet", tmp_path / f"whole{part}.parquet"
        assert killed.read_bytes() == whole.read_bytes()
    torn = sum(torn for *_, torn in log)
    assert len(log) == KILLS and torn > 0
    sys.stdout.write(
        f"{KILLS} kills and {torn} torn lines while {log[-1][1]} of {QUESTIONS} questions were labelled; "
        "each was labelled once, and the table equals an uninterrupted one byte for byte\n"
    )
