"""Questions of an evaluation that its composite reranker was trained on."""

from __future__ import annotations

import warnings
from pathlib import Path

from corag_agent.composite.seen import Seen
from corag_agent.evaluation.agents import names_of_documents
from corag_agent.evaluation.job import Job
from corag_agent.evaluation.records import EvaluationRun
from corag_search.rerankers.composite_model import NAME


def warn_of_seen(job: Job, shown: EvaluationRun) -> None:
    """Warn, in a line, where a composite chose chunks for questions that it was trained on, or may have been.

    Args:
        job: With the configured rerankers and the data.
        shown: The records that tables are made of.

    Raises:
        InputError: The composite's record of what it has seen is not readable.
    """
    options = job.evaluator.components.config.rerankers.get(NAME)
    records = shown.records
    # An agent may choose it too.
    chosen = records["settings"].str.contains(f'"reranker": "{NAME}"', regex=False) | (records["reranker"] == NAME)
    asked = records.loc[chosen, ["dataset", "question_id"]].drop_duplicates()
    if options is None or asked.empty:
        return
    directory = Path(options["path"])
    seen = Seen.read(directory)
    if seen is None:
        warnings.warn(
            f"the composite {directory.name} does not say which questions it was trained on, so what it chose may be "
            "flattered; make it again by `corag composite --splits train val`, and show the test split: --splits test",
            stacklevel=2,
        )
        return
    known = sum(_knows(seen, job, *key) for key in asked.itertuples(index=False))
    if known:
        warnings.warn(
            f"the composite {directory.name} was trained on the splits {', '.join(seen.splits)}: of the {len(asked)} "
            f"questions that it chose for, it has seen {known}, or others about their documents, which flatters it; "
            "train it by `corag composite --splits train val`, and show the test split only: --splits test",
            stacklevel=2,
        )


def _knows(seen: Seen, job: Job, dataset: str, question_id: str) -> bool:
    data = job.data[dataset]
    (question,) = (one for one in data.questions if one.id == question_id)
    return seen.knows(data.dataset.name, question_id, names_of_documents(data, question))
