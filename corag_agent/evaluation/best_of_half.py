"""The best reranker of each method, chosen on the half of the questions that a question is not in."""

from __future__ import annotations

import pandas as pd

from data_prep.splits import shuffle_key

BEST = "best"  # in place of a reranker's name: the best of the other half of the questions
_QUESTION = ["dataset", "question_id"]
_HALF = ["run", "dataset", "method", "chunk_size", "budget", "variant", "half"]


def half_of(dataset: str, question_id: str, seed: int = 0) -> int:
    """Which half of the questions one belongs to, 0 or 1: by a hash, so that more questions move none."""
    return shuffle_key(f"{seed}/half/{dataset}", question_id)[0] % 2


def best_choices(records: pd.DataFrame, seed: int = 0, metric: str = "rougeL") -> pd.DataFrame:
    """Which reranker of each method is best on each half of a data set's questions.

    Among equals the one that spends fewer tokens wins, then the first by name.

    Args:
        records: Of an `EvaluationRun`, none failed.
        seed: Of the halves.
        metric: That is to be great.

    Returns:
        One row for each run, dataset, method, chunk_size, budget, variant and `half`: `reranker`, and the `questions`
        of that half and their mean `score` that decided. Methods without a reranker are left out.
    """
    rows = records[records["reranker"] != ""].copy()
    rows["half"] = [half_of(d, q, seed) for d, q in rows[_QUESTION].itertuples(index=False)]
    means = rows.groupby([*_HALF, "reranker"], as_index=False).agg(
        score=(metric, "mean"), tokens=("prompt_tokens", "mean"), questions=("question_id", "nunique")
    )
    means["rounded"] = -means["score"].round(9)
    ordered = means.sort_values([*_HALF, "rounded", "tokens", "reranker"], kind="stable")
    return ordered.drop_duplicates(_HALF)[[*_HALF, "reranker", "questions", "score"]].reset_index(drop=True)


def best_rerankers(records: pd.DataFrame, seed: int = 0, metric: str = "rougeL") -> pd.DataFrame:
    """Each method with the reranker that was best on the half of the questions that a question is not in.

    So every question is reported, and none has a part in choosing for itself.

    Args:
        records: Of an `EvaluationRun`, none failed.
        seed: Of the halves.
        metric: By which it is chosen.

    Returns:
        Records whose `reranker` is `BEST`, with the column `chosen`; none where a method has only one reranker.
    """
    choices = best_choices(records, seed, metric)
    several = records[records["reranker"] != ""].groupby(["run", "dataset", "method"])["reranker"].transform("nunique")
    rows = records.loc[several[several > 1].index].copy()
    rows["half"] = [1 - half_of(d, q, seed) for d, q in rows[_QUESTION].itertuples(index=False)]
    best = rows.merge(choices[[*_HALF, "reranker"]], on=[*_HALF, "reranker"], how="inner")
    return best.drop(columns="half").assign(chosen=best["reranker"], reranker=BEST)
