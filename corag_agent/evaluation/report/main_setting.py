"""The settings of a data set: in which of them methods are compared."""

from __future__ import annotations

import pandas as pd

from corag_agent.evaluation.best_of_half import BEST, HALVINGS, best_rerankers
from corag_agent.evaluation.records import SECONDS, EvaluationRun
from corag_agent.evaluation.summary import experiments


class Settings:
    """The settings of a data set: experiment, chunk size and budget.

    The ones with the most methods come first, of equals the first experiment, then the smallest chunks and budget.
    """

    def __init__(self, run: EvaluationRun, dataset: str, measured: bool = False, halvings: int = HALVINGS) -> None:
        """Sort them.

        Args:
            run: To look in.
            dataset: Whose records.
            measured: Only those whose time was measured.
            halvings: For the best rerankers.
        """
        rows = run.timed if measured else run.succeeded
        rows = rows[(rows["dataset"] == dataset) & (rows["variant"] == "")]
        rows = rows.assign(seconds=rows[list(SECONDS)].sum(axis=1))
        rows["place"] = rows["run"].map(experiments(run).index)
        self._bare = [part for _, part in rows.groupby(["place", "chunk_size", "budget"])]
        self._bare.sort(key=lambda part: -part["method"].nunique())
        self._covered = [bool(part["on_distribution"].all()) for part in self._bare]
        self._asked = [part.groupby("method")["question_id"].agg(set).to_dict() for part in self._bare]
        self._halvings = halvings
        self._with_best: dict[int, pd.DataFrame] = {}

    def first_with(self, *methods: str) -> pd.DataFrame | None:
        """Records of the setting that has all these methods for the most questions, the first of equals.

        One that the agent's labels cover goes before others.

        Returns:
            None that failed or varies a setting; those of each method's best reranker among them; `seconds` is the sum
            over the stages. None where no setting has all.
        """
        everyone = [set().union(*own.values()) for own in self._asked]
        shared = [
            len(asked.intersection(*(own.get(name, set()) for name in methods)))
            for own, asked in zip(self._asked, everyone, strict=True)
        ]
        if not any(shared):
            return None
        place = max(range(len(shared)), key=lambda at: (shared[at] > 0 and self._covered[at], shared[at]))
        if place not in self._with_best:
            bare = self._bare[place]
            self._with_best[place] = pd.concat([bare, best_rerankers(bare, halvings=self._halvings)], ignore_index=True)
        return self._with_best[place]


def chosen_reranker(rows: pd.DataFrame, method: str) -> str:
    """`BEST` where the method has that; else its only one, or the first by name where too few questions tell."""
    names = rows.loc[rows["method"] == method, "reranker"]
    return BEST if (names == BEST).any() else str(names.min())
