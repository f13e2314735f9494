"""The evaluation that stands on a model card: an exported agent beside its rivals, looked up in a label table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corag_agent.evaluation.comparison import AGENT, MethodScores, agent_index, agent_predictions, compare
from corag_agent.evaluation.intervals import paired_bootstrap
from corag_agent.folds import division_of, split_by_folds
from corag_search.agent import ConfigurationAgent, Prediction
from data_prep.table import LabelTable

FIXED = "best fixed configuration"


@dataclass(frozen=True, slots=True)
class EvaluatedMethod:
    """What a method reached, on average.

    Attributes:
        method: As it is called in tables.
        reranker: The one it used; empty when it differs between questions.
        rougeL: Mean ROUGE-L.
        prompt_tokens: Mean tokens of the chosen chunks.
        agent_above: How far the agent's ROUGE-L lies above it, with the 95 % interval (paired bootstrap over groups of
            questions that share no document): mean, low, high; None for the agent, or for a single such group.
    """

    method: str
    reranker: str
    rougeL: float
    prompt_tokens: float
    agent_above: tuple[float, float, float] | None


@dataclass(frozen=True, slots=True)
class ExportEvaluation:
    """An exported agent on a split of a label table.

    Attributes:
        data: As the table's fingerprint names it.
        split: Of the table, or of the folds that the agent was trained with.
        division: Those folds; empty where the table's own splits are used.
        questions: In it.
        fallback_share: Of them, for which the agent fell back.
        methods: Rivals, fixed rerankers at the default settings, the best fixed configuration of the agent's training
            and validation questions, the agent, which falls back to that, and the oracles.
    """

    data: Mapping[str, Any] | None
    split: str
    questions: int
    fallback_share: float
    methods: tuple[EvaluatedMethod, ...]
    division: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, float]:
        """By name, as `corag test` calls them."""
        reached = {method.method: method.rougeL for method in self.methods}
        values = {
            "fallback_rougeL": reached[AGENT],
            "fixed_rougeL": reached[FIXED],
            "fallback_share": self.fallback_share,
        }
        return {f"{self.split}/{name}": value for name, value in values.items()}

    def to_dict(self) -> dict[str, Any]:
        """As it stands in `config.json`."""
        return {name: value for name, value in asdict(self).items() if name != "division" or value}


def evaluate_export(agent: ConfigurationAgent, labels: str | Path, split: str = "test") -> ExportEvaluation:
    """Compares an agent with all that the label table knows.

    Where it was trained on folds of these labels, the split is that of its fold: the table's own has what it has seen.

    Args:
        agent: With a fallback.
        labels: The table; its embedder and rerankers must be the agent's.
        split: train, val or test.

    Raises:
        InputError: The table cannot be read, has no question in the split, or does not fit the agent.
    """
    table = LabelTable.read(Path(labels))
    of_training = agent.config.get("training", {}).get("hyperparameters", {})
    division = division_of(of_training) if agent.config.get("labels") == table.fingerprint else {}
    rows = table.split(split)
    if division:
        rows = split_by_folds(table, division["folds"], division["fold"], division["seed"], division["split_by"])[split]
    compared = compare(table, rows, agent)
    fallback = {name: value for name, value in agent.config["fallback"].items() if name != "threshold"}
    always = Prediction(**fallback, probabilities={}, confidence=0.0, fallback=True)
    at = agent_index(table, [always] * len(rows))
    fixed = MethodScores(FIXED, always.reranker, table.rouge()[rows][at], table.tokens[rows][at].astype(float))
    place = next(i for i, scores in enumerate(compared) if scores.method == AGENT)
    agents = compared[place]
    groups = None if table.groups is None else table.groups[rows].tolist()

    def evaluated(scores: MethodScores) -> EvaluatedMethod:
        above = None
        if scores is not agents:
            interval = paired_bootstrap(agents.rouge, scores.rouge, groups=groups)
            above = (interval.mean, interval.low, interval.high) if math.isfinite(interval.low) else None
        means = (float(scores.rouge.mean()), float(scores.tokens.mean()))
        return EvaluatedMethod(scores.method, scores.reranker, *means, above)

    return ExportEvaluation(
        data=table.fingerprint.get("data"),
        split=split,
        questions=len(rows),
        fallback_share=float(np.mean([prediction.fallback for prediction in agent_predictions(table, rows, agent)])),
        methods=tuple(map(evaluated, [*compared[:place], fixed, *compared[place:]])),
        division=division,
    )
