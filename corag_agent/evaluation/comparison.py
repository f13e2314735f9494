"""Methods side by side on the questions of a label table, by looking their scores up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag_search.agent import ConfigurationAgent, Prediction
from corag_search.agent_format import CHUNK_MEAN
from corag_search.errors import InputError
from corag_search.query_features import STATISTICS, QueryFeatures
from data_prep.grid import GridPoint
from data_prep.noise import Oracle
from data_prep.table import LabelTable

TREE, AGENT = "tree", "agent"  # as `corag_agent.evaluation.methods` has them


@dataclass(frozen=True, slots=True, eq=False)
class MethodScores:
    """What a method reached, question by question.

    Attributes:
        method: As it is called in tables.
        reranker: The one it used; empty when it differs between questions.
        rouge: ROUGE-L, `[n]`.
        tokens: Tokens of the chosen chunks, `[n]`.
    """

    method: str
    reranker: str
    rouge: NDArray[np.float64]
    tokens: NDArray[np.float64]


def compare(table: LabelTable, rows: NDArray[np.intp], agent: ConfigurationAgent | None = None) -> list[MethodScores]:
    """Rivals and tree search for each reranker, the tree search with the agent, and METHOD §6's two oracles.

    Args:
        table: With rivals or without.
        rows: Positions of the questions to compare on, `[n]`.
        agent: Trained for the table's embedder; its settings are snapped to the grid.

    Raises:
        InputError: No questions, or an agent that does not fit the table.
    """
    if not len(rows):
        raise InputError("there are no questions to compare on; this split of the label table is empty")
    rouge, tokens = table.rouge()[rows], table.tokens[rows].astype(float)
    default = table.grid.index(table.grid.defaults)
    methods = list(_rivals(table, rows))
    for index, reranker in enumerate(table.rerankers):
        at = (slice(None), index, *default)
        methods.append(MethodScores(TREE, reranker, rouge[at], tokens[at]))
    if agent is not None:
        methods.append(following(table, rows, agent))
    count = len(rows)
    by_default = (slice(None), slice(None), *default)
    methods.append(MethodScores(Oracle.RERANKERS, "", *_best(rouge[by_default], tokens[by_default])))
    methods.append(MethodScores(Oracle.GRID, "", *_best(rouge.reshape(count, -1), tokens.reshape(count, -1))))
    return methods


def following(
    table: LabelTable, rows: NDArray[np.intp], agent: ConfigurationAgent, method: str = AGENT
) -> MethodScores:
    """The tree search with the agent.

    Args:
        table: For whose embedder it was trained; its settings are snapped to the grid.
        rows: Positions of the questions, `[n]`.
        agent: It is looked up what this one would choose.
        method: As it is called.

    Raises:
        InputError: The agent does not fit the table.
    """
    agent.check_embedder(*(table.embedder[key] for key in ("name", "dimension", "fingerprint")))
    _, *chosen = agent_index(table, agent_predictions(table, rows, agent))
    at = (rows, *chosen)
    return MethodScores(method, "", table.rouge()[at], table.tokens[at].astype(float))


def agent_predictions(table: LabelTable, rows: NDArray[np.intp], agent: ConfigurationAgent) -> list[Prediction]:
    """What the agent chooses for the questions at `rows`, `[n]`.

    Raises:
        InputError: The agent needs inputs that the table does not hold.
    """
    if not agent.needs_features:
        return [agent.predict(embedding) for embedding in table.embeddings[rows]]
    # What the agent does not look at stays 0.
    means, statistics = np.zeros_like(table.embeddings), np.zeros((len(table), len(STATISTICS)), np.float32)
    missing = []
    for name in agent.inputs[1:]:
        if name == CHUNK_MEAN and table.chunk_means is not None:
            means = table.chunk_means
        elif name in table.statistic_names and table.statistics is not None:
            statistics[:, STATISTICS.index(name)] = table.statistics[:, table.statistic_names.index(name)]
        else:
            missing.append(name)
    if missing:
        raise InputError(
            f"the agent was trained with {', '.join(missing)} beside the query embedding, which the label table lacks; "
            "run `corag label` again to add it (nothing is searched or answered twice)"
        )
    return [agent.predict(table.embeddings[row], QueryFeatures(means[row], statistics[row])) for row in rows]


def agent_index(table: LabelTable, predictions: Sequence[Prediction]) -> tuple[NDArray[np.intp], ...]:
    """Index of the predicted configurations into the first five axes of `LabelTable.rouge` over the same questions.

    Raises:
        InputError: A predicted reranker is not in the table.
    """
    rerankers = [prediction.reranker for prediction in predictions]
    for reranker in rerankers:
        if reranker not in table.rerankers:
            raise InputError(f"the agent chose the reranker {reranker!r}, the table has {', '.join(table.rerankers)}")
    snapped = (
        table.grid.nearest(name, [getattr(prediction, name) for prediction in predictions])
        for name in GridPoint._fields
    )
    return np.arange(len(rerankers)), np.array([table.rerankers.index(name) for name in rerankers], np.intp), *snapped


def _rivals(table: LabelTable, rows: NDArray[np.intp]) -> Iterator[MethodScores]:
    if table.rivals is None:
        return
    order = list(table.questions["question_id"].iloc[rows])
    for method in dict.fromkeys(["naive_rag", *table.rivals["method"]]):
        for reranker in table.rerankers:
            chosen = table.rivals[(table.rivals["method"] == method) & (table.rivals["reranker"] == reranker)]
            if len(chosen):
                chosen = chosen.set_index("question_id").loc[order]
                yield MethodScores(
                    method, reranker, chosen["rougeL"].to_numpy(), chosen["prompt_tokens"].to_numpy(float)
                )


def _best(rouge: NDArray[np.float64], tokens: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The best of each row, `[n, m]` → two of `[n]`; among equals the one of fewest tokens."""
    best = np.lexsort((tokens, -rouge.round(9)), axis=-1)[:, :1]
    return np.take_along_axis(rouge, best, -1)[:, 0], np.take_along_axis(tokens, best, -1)[:, 0]
