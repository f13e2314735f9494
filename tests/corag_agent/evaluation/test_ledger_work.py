"""What is written of a run in which everything fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corag_agent.evaluation.ledger_work import Recorder
from corag_search.errors import InputError
from data_prep.ledger import Ledger

REFERENCE = ("reference d q1 0", "It is 330 metres tall.")


def test_a_run_in_which_all_but_references_fails_has_recorded_no_failure(tmp_path: Path) -> None:
    """So the same command takes it up again; a reference is no outcome."""
    with Ledger(tmp_path / "ledger.jsonl", {}) as ledger:
        recorder = Recorder(ledger, False, lambda _: None)
        recorder.keep_reference(*REFERENCE)
        recorder.fail("tree", "the reranker is not there", "d/q1")
        with pytest.raises(
            InputError, match=r"1 question\(s\) failed in a row, the last at tree, with: the reranker is not there"
        ):
            recorder.finish()
    with Ledger(tmp_path / "ledger.jsonl", {}) as ledger:
        assert dict(ledger.done) == dict([REFERENCE]) and not ledger.failed
        assert Recorder(ledger, False, lambda _: None).pending("tree")


@pytest.mark.parametrize("earlier", [True, False])
def test_failures_beside_an_outcome_are_kept(tmp_path: Path, earlier: bool) -> None:
    record: dict[str, Any] = {"rougeL": 0.5}
    with Ledger(tmp_path / "ledger.jsonl", {}) as ledger:
        if earlier:
            ledger.append("naive_rag", record)
        recorder = Recorder(ledger, False, lambda _: None)
        recorder.keep_reference(*REFERENCE)
        recorder.fail("tree", "the reranker is not there", "d/q1")
        if not earlier:
            recorder.add("naive_rag", record)
        recorder.finish()
        assert dict(ledger.failed) == {"tree": "the reranker is not there"} and ledger.done["naive_rag"] == record
