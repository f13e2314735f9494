"""Which agent answers which question of an evaluation: one for all, or the one that did not see it in training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from corag_agent.cross_fitted import INDEX, CrossFitted
from corag_agent.evaluation.corpora import SourceData
from corag_agent.evaluation.task import Assigned
from corag_search.agent import ConfigurationAgent
from corag_search.errors import InputError
from corag_search.files import digest_of
from corag_search.weights_directory import CHECKSUM
from data_prep.dataset import Question
from data_prep.splits import shuffle_key

# Parts of an export's configuration that say how it came about: no prediction depends on them.
_HISTORY = ("metrics", "evaluation", "training", "seen", CHECKSUM)


@dataclass(frozen=True)
class Agents:
    """The agents of an evaluation. Safe to share between threads.

    Attributes:
        agents: One, or one for each fold.
        cross_fitted: What each fold holds out; None for one agent that answers all.
    """

    agents: tuple[ConfigurationAgent, ...]
    cross_fitted: CrossFitted | None = None

    @classmethod
    def load(cls, directory: Path) -> Agents:
        """Loads what `corag export` or `corag crossfit` wrote.

        Raises:
            InputError: It is neither, a fold has no agent yet, or an agent is not the one of the index.
        """
        if not (directory / INDEX).is_file():
            return cls((ConfigurationAgent.load(directory),))
        index = CrossFitted.read(directory)
        if [one.fold for one in index.agents] != list(range(index.folds)):
            raise InputError(
                f"{directory} has the agents of {len(index.agents)} of {index.folds} folds; run `corag crossfit` "
                "again, which trains those that are missing"
            )
        return cls(tuple(one.load(directory) for one in index.agents), index)

    @property
    def fingerprint(self) -> Any:
        """What they are, as plain values: SHA-256 of one agent's weights, or of each fold's and the labels' digest."""
        if self.cross_fitted is None:
            return self.agents[0].config.get("sha256")
        folds = [agent.sha256 for agent in self.cross_fitted.agents]
        return {"folds": folds, "labels": self.cross_fitted.labels["digest"]}

    def of(self, data: SourceData, question: Question) -> Assigned:
        """The agent that answers a question.

        Of cross-fitted agents it is the one of the fold that holds the question or its documents. A question of which
        no agent has seen anything may be answered by any: one is drawn by the first document, so that all agents take
        part and a document's questions stay together.

        Args:
            data: The question's data set.
            question: Which.
        """
        if self.cross_fitted is None:
            (agent,) = self.agents
            return Assigned(agent, _digest(agent, {}))
        names = names_of_documents(data, question)
        folds = self.cross_fitted.folds_of(data.dataset.name, question.id, names)
        if len(folds) > 1:
            listed = ", ".join(map(str, sorted(folds)))
            reason = f"its documents were labelled in the folds {listed}, so every agent has seen one of them"
            return Assigned(None, listed, missing=f"{reason}; use agents of labels without these documents")
        drawn = int.from_bytes(shuffle_key("agents", (names or [question.id])[0])[:8]) % len(self.agents)
        fold = folds.pop() if (held_out := bool(folds)) else drawn
        about = {"fold": fold, "held_out": held_out}
        return Assigned(self.agents[fold], _digest(self.agents[fold], about), about)


def names_of_documents(data: SourceData, question: Question) -> list[str]:
    """Of the documents of a question's gold passages, by which labels may know them."""
    documents = [data.dataset.document(gold.document) for gold in question.gold_passages]
    # A title is one document in all data sets and languages; without one, data set and id tell documents apart.
    return [name for d in documents for name in (d.title, f"{data.dataset.name}/{d.id}") if name]


def held_out_counts(records: pd.DataFrame) -> dict[str, int] | None:
    """Questions that the agent of their own fold answered (`held_out`), and those that no agent has seen (`unseen`).

    Args:
        records: Of an evaluation.

    Returns:
        None where no cross-fitted agent answered.
    """
    counts = {"held_out": 0, "unseen": 0}
    of_agents = records[records["settings"].str.contains('"agent": {', regex=False)]
    for settings in of_agents.drop_duplicates(["dataset", "question_id"])["settings"]:
        counts["held_out" if json.loads(settings)["agent"]["held_out"] else "unseen"] += 1
    return counts if len(of_agents) else None


def _digest(agent: ConfigurationAgent, about: Mapping[str, Any]) -> str:
    shaping = {name: value for name, value in agent.config.items() if name not in _HISTORY}
    return digest_of([shaping, dict(about)])[:16]
