"""The report of a study whose trials are made up."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from corag_agent.tuning.options import TuneOptions
from corag_agent.tuning.report import StudyReport
from corag_agent.tuning.space import SearchSpace
from corag_agent.tuning.study import SharedStudy, TrialOutcome
from corag_agent.tuning.study_file import StudyFile
from corag_search.errors import InputError

SPACE = SearchSpace(
    {
        "model.margin": {"type": "float", "low": 0.0, "high": 1.0},
        "model.hidden": {"type": "categorical", "choices": [[8], [4, 2]]},
        "data.seed": {"type": "int", "low": 0, "high": 9},
    }
)


def report_of(folder: Path, values: list[float | str], mode: str = "min", pruned: int = 0) -> StudyReport:
    """A study with one trial for each value, the last ones pruned; text stands for an error.

    In place of a value, `margin` takes the trial's margin.
    """
    base: dict[str, Any] = {
        "model": {"margin": 0.0, "hidden": [1]}, "data": {"seed": 0},
        "checkpoint": {"monitor": "val/regret", "mode": mode},
    }  # fmt: skip
    file = StudyFile.parse(f"journal:{folder / 'study'}")
    options = TuneOptions(trials=len(values) + pruned, sampler="random")
    shared = SharedStudy(file, SPACE, {"fit": base}, mode, options, folder)
    for value in values:
        trial = shared.claim()
        assert trial is not None
        if isinstance(value, str) and value != "margin":
            shared.finish(trial, TrialOutcome(error=value))
            continue
        best = trial.params["model.margin"] if isinstance(value, str) else value
        trial.report(best, step=0)
        shared.finish(trial, TrialOutcome((best, best + 1), (0, 1), best))
    for _ in range(pruned):
        trial = shared.claim()
        assert trial is not None
        trial.report(0.9, step=0)
        shared.finish(trial, TrialOutcome((0.9,), (0,), 0.9, pruned=True))
    return StudyReport.of(shared.study, SPACE, base, file)


def texts(svg: Path) -> set[str]:
    """The texts of a drawing, which stand in comments beside the letters' outlines."""
    ElementTree.parse(svg)
    return {part.split(" -->")[0] for part in svg.read_text().split("<!-- ")[1:]}


def test_the_best_first(tmp_path: Path) -> None:
    report = report_of(tmp_path, [0.5, 0.25, "no pair", 0.75], pruned=1)
    assert [trial.number for trial in report.ranked] == [1, 0, 3]
    assert report.failed == {2: "no pair"}
    assert report.summary() == "trials: 3 complete, 1 pruned, 1 failed (first of them trial 2: no pair)"
    lines = report.table().splitlines()
    assert lines[1].split() == ["┃", "rank", "┃", "1", "┃", "2", "┃", "3", "┃"]
    assert lines[3].split() == ["│", "val/regret", "│", "0.2500", "│", "0.5000", "│", "0.7500", "│"]
    assert lines[4].split()[:6] == ["│", "at", "epoch", "│", "1", "│"]
    assert lines[5].split()[:6] == ["│", "of", "epochs", "│", "2", "│"]
    assert lines[6].split()[:4] == ["│", "trial", "│", "1"]
    report.check()


def test_the_greatest_may_be_the_best(tmp_path: Path) -> None:
    report = report_of(tmp_path, [0.5, 0.25, 0.75], mode="max")
    assert [trial.number for trial in report.ranked] == [2, 0, 1]
    best = report.to_dict(tmp_path)
    assert (best["best"]["trial"], best["best"]["value"]) == (2, 0.75)
    options = best["trials"][0]["options"]
    report.write(tmp_path)
    written = yaml.safe_load((tmp_path / "best.yaml").read_text())
    assert written["model"] == {"margin": options["model.margin"], "hidden": options["model.hidden"]}
    assert written["data"] == {"seed": options["data.seed"]}


@pytest.mark.parametrize(("mode", "values"), [("min", [0.5, 0.25, 0.25]), ("max", [0.5, 0.75, 0.75])])
def test_of_equal_trials_the_earlier_is_the_best_everywhere(tmp_path: Path, mode: str, values: list[float]) -> None:
    report = report_of(tmp_path, values, mode=mode)
    assert [trial.number for trial in report.ranked] == [1, 2, 0]
    assert report.to_dict(tmp_path)["best"]["trial"] == 1
    assert report.best_config is not None
    assert report.best_config["model"]["margin"] == report.values[1]["model.margin"] != report.values[2]["model.margin"]


def test_the_pictures(tmp_path: Path) -> None:
    report = report_of(tmp_path, ["margin"] * 12, pruned=2)
    report.write(tmp_path)
    assert {"complete", "pruned, last value", "best so far", "trial", "val/regret"} <= texts(tmp_path / "history.svg")
    assert set(SPACE.parameters) <= texts(tmp_path / "importances.svg")
    assert next(iter(report.importances)) == "model.margin"  # nothing else has a part in it
    assert report.importances["model.margin"] > 0.5
    assert sum(report.importances.values()) == pytest.approx(1)
    before = (tmp_path / "history.svg").read_bytes()
    report.write(tmp_path)
    assert (tmp_path / "history.svg").read_bytes() == before


def test_importances_need_some_trials(tmp_path: Path) -> None:
    report = report_of(tmp_path, ["margin"] * 9)
    report.write(tmp_path)
    assert report.importances == {}
    assert not (tmp_path / "importances.svg").exists()


def test_trials_that_are_all_alike(tmp_path: Path) -> None:
    report = report_of(tmp_path, [0.5] * 10)
    report.write(tmp_path)
    assert sum(report.importances.values()) == pytest.approx(1)
    assert (report.ranked[0].number, (tmp_path / "history.svg").exists()) == (0, True)


def test_nothing_worked(tmp_path: Path) -> None:
    report = report_of(tmp_path, ["no pair", "out of memory"])
    with pytest.raises(InputError, match="all 2 trials failed; the first, trial 0: no pair"):
        report.check()
    report.write(tmp_path)
    assert not (tmp_path / "best.yaml").exists()
    assert report.to_dict(tmp_path)["best"] is None
