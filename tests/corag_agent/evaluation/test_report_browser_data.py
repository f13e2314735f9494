"""The question browser's data where not all questions are shown."""

from __future__ import annotations

import json

from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.browser import browser_data
from tests.corag_agent.evaluation.report_runs import Experiment, made_run


def test_the_setting_that_is_shown_first_is_among_those_shown() -> None:
    """The one that the agent's labels cover has the last questions only, and the browser shows the first."""
    methods = ("tree", "naive_rag")
    run = made_run({"a": 6}, [Experiment("off", methods, chunk_sizes=(128,)), Experiment("covered", methods)])
    records = run.records[(run.records["run"] == "off") | (run.records["question_id"] >= "q0004")]
    records = records.assign(on_distribution=records["run"] == "covered")
    run = EvaluationRun(records, run.questions, run.answers, run.chunks, run.settings)
    few, every = (json.loads(browser_data(run, limit)) for limit in (1, None))
    assert (few["settings"], few["start"]) == ([["off", 128, 300]], 0)
    assert every["settings"][every["start"]] == ["covered", 96, 300]
