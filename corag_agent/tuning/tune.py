"""A run of `corag tune`: trials one after the other, until the study has enough of them or the time is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from corag_agent.datamodule import LabelDataModule
from corag_agent.fit_config import check_one_device, leaves, overridden, resolved_config, without_repeated_warnings
from corag_agent.seen import table_digest
from corag_agent.tuning.options import TuneOptions
from corag_agent.tuning.report import StudyReport
from corag_agent.tuning.space import SearchSpace
from corag_agent.tuning.study import SharedStudy, counted
from corag_agent.tuning.study_file import StudyFile
from corag_agent.tuning.trial import run_trial
from corag_search.errors import InputError
from data_prep.label_run import PATIENCE, PATIENCE_AT_START
from data_prep.progress import progress_bar
from data_prep.table import LabelTable


def tune(
    space: Mapping[str, Any],
    fit: Mapping[str, Any],
    output: Path,
    options: TuneOptions,
    storage: str | None = None,
    fit_files: Sequence[str] = (),
) -> StudyReport:
    """Searches for options of `corag fit`; several processes may do so on one study at once.

    Args:
        space: Dotted options of `corag fit`, with what each is drawn from.
        fit: Configuration of `corag fit` that all trials share, nested; its keys may be dotted.
        output: Directory of trials and results.
        options: How the study is run.
        storage: Where it is kept, sqlite:PATH or journal:PATH; None for `study.sqlite` in `output`.
        fit_files: Configuration files below `fit`.

    Returns:
        What the study has come to; written to `output` as well.

    Raises:
        InputError: Something is unusable, the label table changes meanwhile, or nothing but failures: all trials, the
            first few of this run, or many of it in a row.
    """
    searched = SearchSpace(space)
    file = StudyFile.parse(f"sqlite:{output / 'study.sqlite'}" if storage is None else storage)
    base = _base_config(searched, fit_files, overridden({}, leaves(fit)))
    digest = table_digest(_usable_table(searched, base))
    made_of = {"space": searched.given, "fit": _without_paths(base), "labels": {"digest": digest}}
    shared = SharedStudy(file, searched, made_of, base["checkpoint"]["mode"], options, output)
    try:
        _run_trials(shared, searched, base, options, digest)
    finally:  # after Ctrl-C too
        report = StudyReport.of(shared.study, searched, base, file)
        report.write(output)
    report.check()
    return report


def _base_config(space: SearchSpace, files: Sequence[str], config: Mapping[str, Any]) -> dict[str, Any]:
    """What all trials share, checked with every choice and every end of a range."""
    base = resolved_config(files, config)
    monitor = base["checkpoint"]["monitor"]
    if not str(monitor).startswith("val/"):
        raise InputError(f"checkpoint.monitor must be of the validation split, such as val/regret, got {monitor!r}")
    check_one_device(base, "a trial")
    space.check_keys(base)
    for values in space.probes():
        resolved_config((), overridden(base, values))
    return base


def _usable_table(space: SearchSpace, base: Mapping[str, Any]) -> LabelTable:
    """The label table, if with any of the space's probes it can be trained on.

    Raises:
        InputError: With none; it says what is wrong with the first.
    """
    refusals = []
    for values in space.probes():
        try:
            data = LabelDataModule(**overridden(base, values)["data"])
            data.check("fit")
            return data.table
        except InputError as error:
            refusals.append(error)
    raise refusals[0]


def _without_paths(base: Mapping[str, Any]) -> dict[str, Any]:
    return {**base, "data": {name: value for name, value in base["data"].items() if name != "labels"}}


def _run_trials(
    shared: SharedStudy, space: SearchSpace, base: Mapping[str, Any], options: TuneOptions, digest: str
) -> None:
    start, failures, succeeded = monotonic(), 0, False
    with _bar_of_study(shared, options.trials) as show, without_repeated_warnings():
        while options.time_limit is None or monotonic() - start < options.time_limit:
            trial = shared.claim()
            if trial is None:
                break
            try:
                config = overridden(base, space.values(trial.params))
                outcome = run_trial(trial, config, shared.directory(trial.number), digest)
                shared.finish(trial, outcome)
            finally:
                shared.let_go(trial)
            show()
            failures, succeeded = (failures + 1, succeeded) if outcome.error else (0, True)
            if failures == (PATIENCE if succeeded else PATIENCE_AT_START):
                raise InputError(
                    f"stopped, since {failures} trials failed in a row, the last, trial {trial.number}, with: "
                    f"{outcome.error}; set that right and run the same command again, which goes on"
                )


@contextmanager
def _bar_of_study(shared: SharedStudy, trials: int) -> Iterator[Any]:
    """A bar over the trials that were missing at the start, those of parallel processes among them.

    Yields:
        A function to call when a trial has ended.
    """

    def finished() -> int:
        there = shared.study.get_trials(deepcopy=False)
        return counted(there) - sum(not trial.state.is_finished() for trial in there)

    done = finished()
    with progress_bar("trials", max(trials - done, 0)) as advance:

        def show() -> None:
            nonlocal done
            before, done = done, finished()
            advance(done - before)

        yield show
