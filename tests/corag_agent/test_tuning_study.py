"""The shared study, without training: who gets which trial, kills, resuming, files that are not ours."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from corag_agent.tuning.options import TuneOptions
from corag_agent.tuning.space import SearchSpace
from corag_agent.tuning.study import SharedStudy, TrialOutcome, counted, failures, ranked_trials
from corag_agent.tuning.study_file import FileLock, StudyFile
from corag_search.errors import InputError

SPACE = {
    "model.margin": {"type": "float", "low": 0.0, "high": 1.0},
    "model.hidden": {"type": "categorical", "choices": [[8], [4, 2]]},
}
OPTIONS = TuneOptions(trials=8, startup_trials=3)
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "journal"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> StudyFile:
    return StudyFile.parse(f"{request.param}:{tmp_path / 'study'}")


@pytest.fixture
def journal(tmp_path: Path) -> StudyFile:
    return StudyFile.parse(f"journal:{tmp_path / 'study'}")


def opened(file: StudyFile, options: TuneOptions = OPTIONS, **made_of: Any) -> SharedStudy:
    sections: dict[str, Any] = {"space": SPACE, "fit": {"seed_everything": 0}} | made_of
    return SharedStudy(file, SearchSpace(SPACE), sections, "min", options, file.path.parent)


def outcome_of(trial: optuna.Trial) -> TrialOutcome:
    """Best at a margin of 0.3; reached in the second of two epochs."""
    value = abs(trial.params["model.margin"] - 0.3)
    return TrialOutcome((value + 1, value), (0, 1), value)


def work(shared: SharedStudy, outcome: Callable[[optuna.Trial], TrialOutcome] = outcome_of) -> None:
    while (trial := shared.claim()) is not None:
        shared.finish(trial, outcome(trial))


def drawn(shared: SharedStudy) -> list[dict[str, Any]]:
    return [trial.params for trial in shared.study.get_trials()]


def test_a_study_that_stops_in_between_draws_the_same_trials(file: StudyFile, tmp_path: Path) -> None:
    whole = opened(StudyFile.parse(f"{file.kind}:{tmp_path / 'whole' / 'study'}"))
    work(whole)
    for trials in (2, 5, 8):
        work(opened(file, replace(OPTIONS, trials=trials)))
    parts = opened(file)
    assert drawn(parts) == drawn(whole)
    assert len({trial["model.margin"] for trial in drawn(parts)}) == 8
    other = opened(StudyFile.parse(f"{file.kind}:{tmp_path / 'other' / 'study'}"), replace(OPTIONS, seed=1))
    work(other)
    assert not {trial["model.margin"] for trial in drawn(other)} & {trial["model.margin"] for trial in drawn(whole)}
    values = [abs(trial["model.margin"] - 0.3) for trial in drawn(parts)]
    best = ranked_trials(parts.study)[0]
    assert (best.number, best.value) == (values.index(min(values)), min(values))
    assert (best.user_attrs["epochs"], best.user_attrs["best_epoch"]) == (2, 1)


def test_the_sampler_learns_after_its_start(journal: StudyFile, tmp_path: Path) -> None:
    options = replace(OPTIONS, trials=25, startup_trials=5)
    shared = opened(journal, options)
    work(shared)
    distances = [abs(trial["model.margin"] - 0.3) for trial in drawn(shared)]
    assert sum(distances[15:]) / 10 < 0.5 * sum(distances[:5]) / 5
    by_chance = opened(StudyFile.parse(f"journal:{tmp_path / 'chance' / 'study'}"), replace(options, sampler="random"))
    work(by_chance)
    assert drawn(by_chance)[:5] == drawn(shared)[:5]
    assert drawn(by_chance)[5:] != drawn(shared)[5:]


def test_a_trial_given_up_is_taken_anew_with_the_same_parameters(file: StudyFile) -> None:
    first = opened(file)
    trial = first.claim()
    assert trial is not None
    (first.directory(trial.number) / "logs").mkdir(parents=True)
    first.let_go(trial)  # as the system does at a kill
    second = opened(file)
    again = second.claim()
    assert again is not None
    assert (again.number, again.params) == (1, trial.params)
    assert [each.state for each in second.study.get_trials()] == [TrialState.FAIL, TrialState.RUNNING]
    assert not first.directory(trial.number).exists()
    second.finish(again, outcome_of(again))
    work(second)
    trials = second.study.get_trials()
    assert (len(trials), counted(trials), failures(trials)) == (9, 8, {})


def test_a_trial_that_runs_is_left_alone(journal: StudyFile) -> None:
    first, second = opened(journal), opened(journal)
    running = first.claim()
    assert running is not None
    work(second)
    states = [trial.state for trial in second.study.get_trials()]
    assert states == [TrialState.RUNNING, *[TrialState.COMPLETE] * 7]  # eight are enough, also with one elsewhere
    first.finish(running, outcome_of(running))
    assert first.claim() is None


def test_a_trial_that_kills_again_and_again_has_failed(journal: StudyFile) -> None:
    options = replace(OPTIONS, trials=2)
    for _ in range(3):
        shared = opened(journal, options)
        trial = shared.claim()
        assert trial is not None
        shared.let_go(trial)
    work(opened(journal, options))
    trials = opened(journal, options).study.get_trials()
    assert [trial.state for trial in trials] == [TrialState.FAIL] * 3 + [TrialState.COMPLETE]
    assert failures(trials) == {2: "its process was killed 3 times"}
    assert counted(trials) == 2


@pytest.mark.parametrize("step", ["ask", "enqueue_trial", "tell"])
def test_a_kill_at_the_worst_moment(journal: StudyFile, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after each write to the list of trials, while the study's lock is held."""
    shared = opened(journal)
    trial = shared.claim()
    assert trial is not None
    if step != "tell":
        shared.let_go(trial)
    write = getattr(optuna.Study, step)

    def last_act(*given: Any, **named: Any) -> None:
        write(*given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(optuna.Study, step, last_act)
        shared.finish(trial, outcome_of(trial)) if step == "tell" else shared.claim()
    shared.let_go(trial)
    work(opened(journal))
    trials = shared.study.get_trials()
    assert (counted(trials), failures(trials)) == (8, {})
    assert sum(each.state is TrialState.COMPLETE for each in trials) == 8


WORKER = """
import os, signal, sys
from pathlib import Path
from tests.corag_agent.test_tuning_study import OPTIONS, drawn, opened, outcome_of, replace, work
from corag_agent.tuning.study_file import StudyFile

shared = opened(StudyFile.parse(sys.argv[1]), replace(OPTIONS, trials=20))
print("ready", flush=True)
sys.stdin.readline()
if sys.argv[2] == "die":
    print(shared.claim().number, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
work(shared)
"""


def begun(file: StudyFile, end: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(file), end]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_several_processes_work_on_one_study(file: StudyFile) -> None:
    workers = [begun(file, end) for end in ("die", "work", "work")]
    try:
        for worker in workers:
            assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
        for worker in workers:
            worker.communicate("go\n")  # the first dies before the others begin
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert [worker.returncode for worker in workers] == [-signal.SIGKILL, 0, 0]
    trials = opened(file).study.get_trials()
    assert [trial.state for trial in trials] == [TrialState.FAIL, *[TrialState.COMPLETE] * 20]
    assert trials[1].params == trials[0].params
    assert counted(trials) == 20
    assert len({trial.params["model.margin"] for trial in trials}) == 20


def test_only_the_best_keeps_its_checkpoint(journal: StudyFile) -> None:
    shared = opened(journal, replace(OPTIONS, trials=4))
    for value in (0.5, 0.7, 0.2, None):
        trial = shared.claim()
        assert trial is not None
        (shared.directory(trial.number) / "checkpoints").mkdir(parents=True)
        shared.finish(trial, TrialOutcome((value,), (0,), value) if value else TrialOutcome(error="out of memory"))
    kept = [path.parent.name for path in journal.path.parent.glob("trials/*/checkpoints")]
    assert kept == ["2"]
    assert failures(shared.study.get_trials()) == {3: "out of memory"}
    assert shared.claim() is None


def test_a_study_of_something_else_is_refused(file: StudyFile) -> None:
    opened(file)
    other = {"model.margin": {"type": "float", "low": 0.0, "high": 2.0}, "model.hidden": SPACE["model.hidden"]}
    with pytest.raises(InputError, match=r"differs in its space \(model.margin.high\); go on with the same"):
        opened(file, space=other)
    with pytest.raises(InputError, match=r"differs in its fit \(seed_everything\)"):
        opened(file, fit={"seed_everything": 1})


def test_trials_whose_study_is_gone(journal: StudyFile) -> None:
    (journal.path.parent / "trials" / "0").mkdir(parents=True)
    with pytest.raises(InputError, match="trials holds trials of a study that is not at"):
        opened(journal)


def test_the_last_line_of_a_journal_may_be_torn(journal: StudyFile) -> None:
    work(opened(journal, replace(OPTIONS, trials=4)))
    before = drawn(opened(journal))
    with journal.path.open("ab") as lines:
        lines.write(b'{"op_code":4,"worker')
    work(opened(journal))
    assert drawn(opened(journal))[:4] == before
    assert all(json.loads(line) for line in journal.path.read_text().splitlines())
    journal.path.write_bytes(b'{"op_c')
    assert drawn(opened(journal, fit={})) == []  # nothing of it was there yet


@pytest.mark.parametrize("content", [b"notes of mine\n", b"notes", b'{"a": 1}\n', b"\x00\x01\x02"])
def test_a_file_that_is_no_study(file: StudyFile, content: bytes) -> None:
    file.path.write_bytes(content)
    with pytest.raises(InputError, match=f"study is there and is no {file.kind} study of `corag tune`"):
        opened(file)
    assert file.path.read_bytes() == content


def test_a_database_of_something_else(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "notes") as database:
        database.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(InputError, match=r"is no sqlite study of `corag tune` \(it holds notes\)"):
        opened(StudyFile.parse(f"sqlite:{tmp_path / 'notes'}"))
    optuna.create_study(storage=f"sqlite:///{tmp_path / 'mine'}", study_name="mine")
    with pytest.raises(InputError, match=r"is no sqlite study of `corag tune` \(it holds mine\)"):
        opened(StudyFile.parse(f"sqlite:{tmp_path / 'mine'}"))


def test_a_study_of_the_same_name_that_is_not_ours(tmp_path: Path) -> None:
    theirs = optuna.create_study(storage=f"sqlite:///{tmp_path / 'study'}", study_name="corag")
    theirs.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(InputError, match="holds a study that is not `corag tune`'s"):
        opened(StudyFile.parse(f"sqlite:{tmp_path / 'study'}"))


@pytest.mark.parametrize("text", ["study.sqlite", "sqlite:", "postgresql://host/study", "sqlite:///study", "redis:a"])
def test_unknown_storage(text: str) -> None:
    with pytest.raises(InputError, match="storage must be sqlite:PATH or journal:PATH, got"):
        StudyFile.parse(text)


def test_a_directory_is_no_storage(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory; name a file in it"):
        StudyFile.parse(f"sqlite:{tmp_path}")


def test_a_lock_is_exclusive(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    with first:
        assert not second.acquire(wait=False)
    assert second.acquire(wait=False)
    second.release()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"startup_trials": 0}, "startup_trials must be at least 1, got 0"),
        ({"warmup_epochs": -1}, "warmup_epochs must be at least 0, got -1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"time_limit": 0.0}, "time_limit must be a positive number of seconds, got 0.0"),
        ({"time_limit": float("nan")}, "time_limit must be a positive number of seconds, got nan"),
        ({"sampler": "grid"}, "sampler must be one of tpe, random, got 'grid'"),
        ({"pruner": "hyperband"}, "pruner must be one of median, none, got 'hyperband'"),
    ],
)
def test_unusable_options(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TuneOptions(**given)
