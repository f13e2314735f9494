"""Questions of an evaluation that its agent or its composite reranker was trained on."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd

from corag_agent.evaluation.agents import names_of_documents
from corag_agent.evaluation.job import Job
from corag_agent.evaluation.methods import find_method, list_methods
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.seen import Seen
from corag_search.rerankers.composite_model import NAME
from corag_search.weights_directory import CONFIG_FILE


def warn_of_seen(job: Job, shown: EvaluationRun) -> None:
    """Warn, in a line each, where an agent or a composite chose for questions that it was or may have been trained on.

    Cross-fitted agents are asked what they have not seen.

    Args:
        job: With agents, the configured rerankers and the data.
        shown: The records that tables are made of.

    Raises:
        InputError: The record of what was seen is not readable.
    """
    config, records = job.evaluator.components.config, shown.records
    if job.agents is not None and job.agents.cross_fitted is None:
        (agent,) = job.agents.agents
        _warn(
            job,
            records[records["method"].isin([name for name in list_methods() if find_method(name).follows_agent])],
            f"the agent {config.agent}",
            Seen.in_config(agent.config, CONFIG_FILE, "corag export"),
            unknown="train it by `corag fit` and export it again, and show the test split: --splits test",
            known="show the test split only: --splits test, or use agents of `corag crossfit`",
        )
    if (options := config.rerankers.get(NAME)) is not None:
        directory = Path(options["path"])
        # An agent may choose it too.
        by_name = records["settings"].str.contains(f'"reranker": "{NAME}"', regex=False)
        _warn(
            job,
            records[by_name | (records["reranker"] == NAME)],
            f"the composite {directory.name}",
            Seen.read(directory),
            unknown="make it again by `corag composite --splits train val`, and show the test split: --splits test",
            known="train it by `corag composite --splits train val`, and show the test split only: --splits test",
        )


def _warn(job: Job, chosen: pd.DataFrame, what: str, seen: Seen | None, *, unknown: str, known: str) -> None:
    """Warn of one of them.

    Args:
        job: As of `warn_of_seen`.
        chosen: Its records.
        what: It is called.
        seen: What it has seen; None where it does not say.
        unknown: What to do then.
        known: What to do where it has seen something.
    """
    asked = chosen[["dataset", "question_id"]].drop_duplicates()
    if asked.empty:
        return
    if seen is None:
        warnings.warn(
            f"{what} does not say which questions it was trained on, so what it chose may be flattered; {unknown}",
            stacklevel=3,
        )
        return
    questions = {(name, question.id): question for name, data in job.data.items() for question in data.questions}
    count = 0
    for name, question_id in asked.itertuples(index=False):
        data, question = job.data[name], questions[name, question_id]
        count += seen.knows(data.dataset.name, question.id, names_of_documents(data, question))
    if count:
        warnings.warn(
            f"{what} was trained on the splits {', '.join(seen.splits)}: of the {len(asked)} questions that it chose "
            f"for, it has seen {count}, or others about their documents, which flatters it; {known}",
            stacklevel=3,
        )
