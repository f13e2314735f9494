"""A labelling run: questions through an engine into a ledger, and from there into the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag_search.errors import InputError
from data_prep.dataset import Dataset, Question
from data_prep.engines import Engine
from data_prep.ledger import Ledger
from data_prep.record_table import has_features, scoring_of, table_of
from data_prep.scoring import HUMAN, LLM
from data_prep.splits import SplitBy, assign_splits
from data_prep.table import LabelTable
from data_prep.table_files import OPTIONAL

# After so many failures without a success between them the fault lies elsewhere than in the questions; sooner where
# nothing has succeeded yet.
PATIENCE = 20
PATIENCE_AT_START = 5

Progress = Callable[[str], None]


@dataclass(frozen=True)
class LabelRun:
    """What a run ended in.

    Attributes:
        table: Every question of the ledger that was labelled, in this run or an earlier one.
        failures: Error by id of the wanted questions that have no labels.
        records: The ledger's record of every wanted question that has labels, oldest first.
        labelled: Ids of those that this run labelled.
        seconds: That this run took.
    """

    table: LabelTable
    failures: Mapping[str, str]
    records: Mapping[str, dict[str, Any]]
    labelled: tuple[str, ...]
    seconds: float

    @property
    def evaluations(self) -> int:
        """Combinations that the rerankers scored, over all wanted questions."""
        return sum(sum(record["evaluations"].values()) for record in self.records.values())

    @property
    def answers(self) -> int:
        """Distinct orders that were answered from, over all wanted questions."""
        return sum(record["answers"] for record in self.records.values())


def label_questions(
    engine: Engine,
    dataset: Dataset,
    questions: Iterable[Question],
    out: Path,
    *,
    seed: int = 0,
    split_by: str = SplitBy.DOCUMENT,
    retry_failed: bool = False,
    progress: Progress = lambda question_id: None,
) -> LabelRun:
    """Label questions into a table, resuming what an earlier run of the same settings finished.

    Each finished question is one durable record in the ledger `OUT.ledger.jsonl`, kept beside the table so that more
    questions can be added later. A question that fails is recorded with its error, and the run goes on.

    Args:
        engine: Labels them.
        dataset: The questions', which the splits are made over.
        questions: Out of the data set.
        out: The table's path, ending in `.parquet`.
        seed: Of the splits.
        split_by: "document" or "domain", as of `assign_splits`.
        retry_failed: Take up the questions that failed before, which are passed over otherwise, and no others.
        progress: Called with the id after each question, also for those already done.

    Raises:
        InputError: No question, the ledger belongs to other settings, or nothing but failures: the first 5, 20 in a
            row, or all.
    """
    wanted = list(questions)
    start = time.perf_counter()
    fingerprint = engine.fingerprint()
    check_job(wanted, out, scoring_of(fingerprint)["references"])
    with _opened(out, fingerprint) as ledger:
        pending = [question for question in wanted if _is_pending(ledger, question, retry_failed)]
        for question in wanted:
            if not _is_pending(ledger, question, retry_failed):
                progress(question.id)
        _complete(ledger, engine, dataset)
        labelled = _work(ledger, engine, pending, progress)
        records, failed = dict(ledger.done), dict(ledger.failed)
    if not records:
        raise InputError("no question is labelled yet, so none can have failed; leave retry_failed out")
    table = table_of(dataset, records, assign_splits(dataset, seed=seed, by=split_by), fingerprint)
    table.write(out)
    asked = {question.id for question in wanted}
    return LabelRun(
        table=table,
        failures={name: error for name, error in failed.items() if name in asked},
        records={name: record for name, record in records.items() if name in asked},
        labelled=labelled,
        seconds=time.perf_counter() - start,
    )


def probe_questions(
    engine: Engine,
    questions: Iterable[Question],
    out: Path,
    count: int,
    *,
    retry_failed: bool = False,
    progress: Progress = lambda question_id: None,
) -> tuple[dict[str, dict[str, Any]], int]:
    """Label a few questions into the ledger of a table, where the run will find them.

    Args:
        engine: Labels them.
        questions: Those that the run is to label.
        out: The table's path; no table is written.
        count: Questions that must be done; they are spread evenly over those that are not.
        retry_failed: As of `label_questions`.
        progress: Called with the id after each question.

    Returns:
        The records of all questions that are done, oldest first, and how many questions are left to label.

    Raises:
        InputError: As `label_questions`.
    """
    wanted = list(questions)
    fingerprint = engine.fingerprint()
    check_job(wanted, out, scoring_of(fingerprint)["references"])
    with _opened(out, fingerprint) as ledger:
        pending = [question for question in wanted if _is_pending(ledger, question, retry_failed)]
        measured = sum("usage" in record for record in ledger.done.values())
        missing = min(max(count - measured, 0), len(pending))
        chosen = [pending[i * len(pending) // missing] for i in range(missing)]
        labelled = set(_work(ledger, engine, chosen, progress))
        ids = {question.id for question in wanted}
        done = {name: record for name, record in ledger.done.items() if name in ids}
    return done, len(pending) - len(labelled)


@contextmanager
def _opened(out: Path, fingerprint: Mapping[str, Any]) -> Iterator[Ledger]:
    """The ledger of a table; a run that ends before anything is finished leaves none."""
    with Ledger(ledger_path(out), fingerprint) as ledger:
        try:
            yield ledger
        finally:
            if not ledger.done and not ledger.failed:  # still locked: nobody else can have begun to write it
                ledger.path.unlink(missing_ok=True)


def _is_pending(ledger: Ledger, question: Question, retry_failed: bool) -> bool:
    if retry_failed:
        return question.id in ledger.failed
    return question.id not in ledger.done and question.id not in ledger.failed


def _work(ledger: Ledger, engine: Engine, pending: Sequence[Question], progress: Progress) -> tuple[str, ...]:
    """Label into the ledger; ids of those that were labelled.

    Failures are written only once a later question succeeds, or at the end: a run that is stopped because everything
    fails has recorded none of it, and the same command takes those questions up again.
    """
    labelled: list[str] = []
    failures: dict[str, str] = {}
    with closing(engine.label(pending)) as outcomes:
        for outcome in outcomes:
            if outcome.record is None:
                failures[outcome.question_id] = outcome.error
                if len(failures) == (PATIENCE if labelled else PATIENCE_AT_START):
                    raise _nothing_but_failures(failures)
            else:
                failures = _recorded(ledger, failures)
                ledger.append(outcome.question_id, outcome.record)
                labelled.append(outcome.question_id)
            progress(outcome.question_id)
    if failures and not ledger.done:
        raise _nothing_but_failures(failures)
    _recorded(ledger, failures)
    return tuple(labelled)


def _complete(ledger: Ledger, engine: Engine, dataset: Dataset) -> None:
    """Add what records of an earlier version lack; nothing is searched or answered for it."""
    lacking = [q for q in dataset.questions if q.id in ledger.done and not has_features(ledger.done[q.id])]
    for question, record in engine.complete([(question, ledger.done[question.id]) for question in lacking]):
        ledger.append(question.id, record)


def _recorded(ledger: Ledger, failures: Mapping[str, str]) -> dict[str, str]:
    for question_id, error in failures.items():
        ledger.fail(question_id, error)
    return {}


def _nothing_but_failures(failures: Mapping[str, str]) -> InputError:
    name, error = list(failures.items())[-1]
    return InputError(
        f"stopped, since {len(failures)} questions failed in a row, the last, {name!r}, with: {error}; set that right "
        "and run the same command again, which takes them up"
    )


def check_job(wanted: Sequence[Question], out: Path, references: Sequence[str]) -> None:
    """Refuse what cannot be labelled, before anything is loaded or written.

    Args:
        wanted: The questions.
        out: The table's path.
        references: As of `Labeller`.

    Raises:
        InputError: No question, one that lacks what its references are made of, or a table's name that does not end in
            `.parquet`.
    """
    if not wanted:
        raise InputError(
            "there are no questions to label; give a data set that has some (beside documents: questions.jsonl), or "
            "let the language model write some with --synthesise N"
        )
    without_gold = [question.id for question in wanted if not question.gold_passages]
    if LLM in references and without_gold:
        raise InputError(
            f"{len(without_gold)} of {len(wanted)} questions have no gold passage to write a reference answer from, "
            f"the first is {without_gold[0]!r}; leave them out of the data set"
        )
    unanswered = [question.id for question in wanted if not question.answers]
    if HUMAN in references and unanswered:
        raise InputError(
            f"{len(unanswered)} of {len(wanted)} questions have no human answer to be scored against, the first is "
            f"{unanswered[0]!r}; leave them out of the data set, or 'human' out of the references"
        )
    check_table_name(out)


def check_table_name(out: Path) -> None:
    """Refuse a table's name that does not end in `.parquet`, or is a directory's or another file's (InputError)."""
    if out.suffix != ".parquet":
        raise InputError(f"the label table's name must end in .parquet, got {str(out)!r}")
    if (part := out.stem.rpartition(".")[2]) in ("questions", *OPTIONAL) and part != out.stem:
        raise InputError(f"{out} is the name of a part of another label table; give a name without .{part}")
    if out.is_dir():
        raise InputError(f"the label table {out} is a directory; name a file, such as {out / 'labels.parquet'}")


def ledger_path(out: Path) -> Path:
    """Where the ledger of a table lies."""
    return out.with_name(f"{out.stem}.ledger.jsonl")
