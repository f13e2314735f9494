"""The agent against rivals whose reranker is chosen on the other half of the questions, averaged over many halvings.

    python benchmarks/halvings.py benchmarks/evaluation

`corag report` halves the questions once; with rerankers that are nearly as good as one another, which of them a half
prefers is luck, and so is, in part, what they reach on the other half. Here a rival's score of a question is the mean
over 100 halvings. Beside it stands the rival's best reranker in hindsight, which flatters the rival. The argument is a
directory that `corag evaluate` wrote; `records.parquet` and `run.json` suffice.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from corag_agent.card import markdown_table
from corag_agent.evaluation.best_of_half import half_of
from corag_agent.evaluation.intervals import paired_ratio
from corag_agent.evaluation.records import EvaluationRun

RIVALS = ("naive_rag", "best_single")
HALVINGS = 100


def over_halvings(dataset: str, scores: pd.DataFrame) -> np.ndarray:
    """What the reranker that is best on the other half reaches for each question, the mean over halvings.

    Args:
        dataset: Its name.
        scores: `[questions, rerankers]`.

    Returns:
        `[questions]`.
    """
    values, questions = scores.to_numpy(), list(scores.index)
    reached = np.zeros(len(questions))
    for seed in range(HALVINGS):
        halves = np.array([half_of(dataset, question, seed) for question in questions])
        for half in (0, 1):
            own = halves == half
            reached[own] += values[own, values[~own].mean(axis=0).argmax()] / HALVINGS
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--experiment", default="rerankers")
    arguments = parser.parse_args()
    records = EvaluationRun.read(arguments.run).succeeded
    records = records[records["run"] == arguments.experiment]
    rows = []
    for dataset, part in records.groupby("dataset"):
        agent = part[part["method"] == "agent"].set_index("question_id")["rougeL"]
        for rival in RIVALS:
            scores = part[part["method"] == rival].pivot(index="question_id", columns="reranker", values="rougeL")
            scores = scores.dropna()
            own = agent.loc[scores.index].to_numpy()
            halved, best = over_halvings(str(dataset), scores), scores.mean().idxmax()
            hindsight = scores[best].to_numpy()
            rows.append(
                (
                    f"{dataset} ({len(own)})",
                    rival,
                    f"{own.mean():.3f}",
                    f"{halved.mean():.3f}",
                    f"{paired_ratio(own, halved):+.0%}",
                    f"{hindsight.mean():.3f} ({best})",
                    f"{paired_ratio(own, hindsight):+.0%}",
                )
            )
    titles = ("data set", "rival", "agent", "rival, halvings", "agent above", "rival, hindsight", "agent above it")
    print(markdown_table(titles, rows))


if __name__ == "__main__":
    main()
