"""An evaluation run survives writing and reading, and refuses what does not fit together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corag_agent.evaluation.best_of_half import halves_of
from corag_agent.evaluation.plan import Experiment
from corag_agent.evaluation.records import KEY, SCHEMAS, EvaluationRun
from corag_search import InputError
from tests.corag_agent.evaluation.tiny_evaluation import evaluated

EXPERIMENT = Experiment("main", methods=["naive_rag", "tree"], structure=True, candidates=3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> EvaluationRun:
    return evaluated(tmp_path_factory.mktemp("run"), [EXPERIMENT])


def rebuilt(run: EvaluationRun, **changed: pd.DataFrame) -> EvaluationRun:
    frames = {part: getattr(run, part) for part in SCHEMAS}
    return EvaluationRun(**(frames | changed), settings=run.settings)


def test_what_is_read_is_what_was_written(run: EvaluationRun, tmp_path: Path) -> None:
    run.write(tmp_path)
    read = EvaluationRun.read(tmp_path)
    for part in SCHEMAS:
        pd.testing.assert_frame_equal(getattr(read, part), getattr(run, part))
    assert read.settings == run.settings and len(read) == 6 * 2 * 2
    assert pq.read_schema(tmp_path / "records.parquet").names[: len(KEY)] == list(KEY)
    assert not list(tmp_path.glob(".*"))  # no partial file stays


def test_rows_are_in_one_order_whatever_order_they_come_in(run: EvaluationRun, tmp_path: Path) -> None:
    shuffled = rebuilt(run, records=run.records.sample(frac=1, random_state=0))
    pd.testing.assert_frame_equal(shuffled.records, run.records)
    for name, one in (("a", run), ("b", shuffled)):
        one.write(tmp_path / name)
    assert (tmp_path / "a/records.parquet").read_bytes() == (tmp_path / "b/records.parquet").read_bytes()


def test_structure_may_be_missing(run: EvaluationRun, tmp_path: Path) -> None:
    run.write(tmp_path)
    frames = {part: getattr(run, part) for part in SCHEMAS if part != "structure"}
    EvaluationRun(**frames, settings=run.settings).write(tmp_path)
    assert EvaluationRun.read(tmp_path).structure is None  # that of the run before does not stay


def test_what_is_published_without_texts_keeps_documents_together(run: EvaluationRun, tmp_path: Path) -> None:
    run.write(tmp_path)
    for part in ("questions", "answers", "chunks"):
        (tmp_path / f"{part}.parquet").unlink()
    bare = EvaluationRun.read(tmp_path)
    half = halves_of(bare.records)
    assert half == halves_of(run.records) and half["tiny", "q0"] == half["tiny", "q5"]  # both about d0
    assert bare.questions["documents"].map(list).tolist() == run.questions["documents"].map(list).tolist()
    earlier = pq.read_table(tmp_path / "records.parquet").drop_columns(["documents"])
    pq.write_table(earlier, tmp_path / "records.parquet")
    assert not any(map(len, EvaluationRun.read(tmp_path).records["documents"]))


def test_of_splits_keeps_what_belongs_to_their_questions(run: EvaluationRun) -> None:
    part = run.of_splits(["test"])
    for name in ("records", "answers", "questions", "structure"):
        assert set(getattr(part, name)["question_id"]) == {"q0"}, name
    with pytest.raises(InputError, match="no question of this evaluation is of the splits val; it has"):
        run.of_splits(["val"])
    with pytest.raises(InputError, match="splits must be some of train, val, test, got 'tset'"):
        run.of_splits(["test", "tset"])


Change = Callable[[EvaluationRun], dict[str, pd.DataFrame]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: {"records": r.records.drop(columns="rougeL")}, "column rougeL is missing"),
        (lambda r: {"records": pd.concat([r.records, r.records[:1]])}, "1 repeated row"),
        (lambda r: {"records": r.records.assign(rougeL=np.nan)}, "rougeL must be a finite number"),
        (lambda r: {"records": r.records.assign(method=None)}, "column method has 24 null"),
        (lambda r: {"records": r.records.assign(budget="many")}, "records: "),
        (lambda r: {"questions": r.questions[1:]}, "the question of .* is not there"),
        (lambda r: {"answers": r.answers[1:]}, "the answer of .* is not there"),
        (lambda r: {"chunks": r.chunks[1:]}, "the chunk of .* is not there"),
    ],
)
def test_frames_that_do_not_fit_are_refused(run: EvaluationRun, change: Change, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rebuilt(run, **change(run))


def test_a_failed_record_needs_no_scores_and_no_answer(run: EvaluationRun) -> None:
    records = run.records.copy()
    records.loc[0, ["rouge1", "rouge2", "rougeL", "value", "objective"]] = np.nan
    records.loc[0, "error"] = "the generator failed"
    gone = (run.answers[list(KEY)] == run.records.loc[0, list(KEY)]).all(axis=1)
    failed = rebuilt(run, records=records, answers=run.answers[~gone])
    assert len(failed.succeeded) == len(run) - 1


def _leave_records_of_another_kind(directory: Path) -> None:
    """Beside no texts, as in a published run: those would be made out of the records."""
    for part in ("questions", "answers", "chunks"):
        (directory / f"{part}.parquet").unlink()
    pq.write_table(pa.table({"question_id": ["q"]}), directory / "records.parquet")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: (d / "run.json").unlink(), "run.json does not exist"),
        (lambda d: (d / "run.json").write_text("[1]"), "no settings file of an evaluation"),
        (lambda d: (d / "run.json").write_text('{"corag_evaluation": 99}'), "schema version 99"),
        (lambda d: (d / "answers.parquet").unlink(), "answers.parquet does not exist"),
        (lambda d: (d / "answers.parquet").write_bytes(b"PAR1"), "not a readable parquet file"),
        (lambda d: _leave_records_of_another_kind(d), "records.parquet has no column dataset, so it is not what"),
    ],
)
def test_spoilt_directories_are_refused(
    run: EvaluationRun, tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    run.write(tmp_path)
    spoil(tmp_path)
    with pytest.raises(InputError, match=message):
        EvaluationRun.read(tmp_path)
