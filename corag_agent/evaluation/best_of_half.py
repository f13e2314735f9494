"""The best reranker of each method, chosen on the half of the questions that a question is not in, nor its document."""

from __future__ import annotations

from collections import defaultdict

import pandas as pd

from corag_agent.evaluation.records import QUESTION
from data_prep.groups import connected
from data_prep.splits import shuffle_key

BEST = "best"  # in place of a reranker's name: the best of the other half of the questions
HALVINGS = 20  # over which means are taken
Halves = dict[tuple[str, str], int]
Inseparable = dict[str, list[tuple[str, list[str]]]]
_HALF = ["run", "dataset", "method", "chunk_size", "budget", "variant", "half"]


def halves_of(records: pd.DataFrame, seed: int = 0) -> Halves:
    """Which half of its data set's questions each is in, 0 or 1, by data set and question id.

    Questions that share a document, directly or through others, are in one half. Documents are ordered by a hash and
    parted where that comes nearest to the middle of the questions. Where all questions share one, each is alone.

    Args:
        records: With the `documents` of each question; one without any is alone.
        seed: Another one, another order.
    """
    return _halves(_inseparable(records), seed)


def _inseparable(records: pd.DataFrame) -> Inseparable:
    """The questions of each data set that come into one half, with the name by which they are ordered."""
    found: Inseparable = {}
    for dataset, asked in records.drop_duplicates(QUESTION).groupby("dataset"):
        groups: dict[int, list[str]] = defaultdict(list)
        names: dict[int, list[str]] = defaultdict(list)
        numbers = connected(asked["documents"].tolist()).tolist()
        for number, question, documents in zip(numbers, asked["question_id"], asked["documents"], strict=True):
            groups[number].append(question)
            names[number] += list(documents) or [question]
        alone = [(question, [question]) for question in asked["question_id"]]
        together = [(min(names[number]), questions) for number, questions in groups.items()]
        found[str(dataset)] = together if len(together) > 1 else alone
    return found


def _halves(inseparable: Inseparable, seed: int) -> Halves:
    halves: Halves = {}
    for dataset, groups in inseparable.items():
        asked, before = sum(len(questions) for _, questions in groups), 0
        for _, questions in sorted(groups, key=lambda group: shuffle_key(f"{seed}/half/{dataset}", group[0])):
            size = len(questions)
            halves |= {(dataset, question): int(2 * before + size > asked) for question in questions}
            before += size
    return halves


def best_choices(records: pd.DataFrame, seed: int = 0, metric: str = "rougeL") -> pd.DataFrame:
    """Which reranker of each method is best on each half of a data set's questions.

    Among equals the one that spends fewer tokens wins, then the first by name. They are compared on the questions of
    the half that all of them have; on those that each has, where there is no such question.

    Args:
        records: Of an `EvaluationRun`, none failed.
        seed: Of the halves.
        metric: That is to be great.

    Returns:
        One row for each run, dataset, method, chunk_size, budget, variant and `half`: `reranker`, and the `questions`
        of that half and their mean `score` that decided. Methods without a reranker are left out.
    """
    rows = records[records["reranker"] != ""]
    return _choices(_halved(rows, halves_of(rows, seed)), metric)


def _choices(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """As `best_choices`, of halved rows."""
    of_half, had = (rows.groupby(key)["reranker"].transform("nunique") for key in (_HALF, [*_HALF, "question_id"]))
    shared = had == of_half
    rows = rows[shared | ~shared.groupby([rows[name] for name in _HALF]).transform("any")]
    means = rows.groupby([*_HALF, "reranker"], as_index=False).agg(
        score=(metric, "mean"), tokens=("prompt_tokens", "mean"), questions=("question_id", "nunique")
    )
    means["rounded"] = -means["score"].round(9)
    ordered = means.sort_values([*_HALF, "rounded", "tokens", "reranker"], kind="stable")
    return ordered.drop_duplicates(_HALF)[[*_HALF, "reranker", "questions", "score"]].reset_index(drop=True)


def best_rerankers(records: pd.DataFrame, seed: int = 0, metric: str = "rougeL", halvings: int = 1) -> pd.DataFrame:
    """Each method with the reranker that was best on the half of the questions that a question is not in.

    So every question is reported, and none has a part in choosing for itself. Where rerankers are nearly equal, what a
    half prefers is luck, and one halving may be a lucky or an unlucky one; several even that out.

    Args:
        records: Of an `EvaluationRun`, none failed.
        seed: Of the halves.
        metric: By which it is chosen.
        halvings: Numbers (scores, tokens, seconds) are means over so many, the rest is of the first with the question.

    Returns:
        Records whose `reranker` is `BEST`, with the column `chosen`; none where a method has only one reranker.
    """
    several = records[records["reranker"] != ""].groupby(["run", "dataset", "method"])["reranker"].transform("nunique")
    rows = records.loc[several[several > 1].index]
    inseparable = _inseparable(rows)
    halves = (_halves(inseparable, seed * halvings + number) for number in range(halvings))
    made = pd.concat([_by_halves(_halved(rows, own), metric) for own in halves])
    if halvings == 1:
        return made
    key = [*_HALF[:-1], "question_id"]
    numbers = [name for name in made.select_dtypes("number").columns if name not in key]
    first = made.drop_duplicates(key).set_index(key)
    first[numbers] = made.groupby(key)[numbers].mean().reindex(first.index)
    return first.reset_index()[list(made.columns)]


def _by_halves(halved: pd.DataFrame, metric: str) -> pd.DataFrame:
    choices = _choices(halved, metric)
    best = halved.assign(half=1 - halved["half"]).merge(
        choices[[*_HALF, "reranker"]], on=[*_HALF, "reranker"], how="inner"
    )
    return best.drop(columns="half").assign(chosen=best["reranker"], reranker=BEST)


def _halved(rows: pd.DataFrame, halves: Halves) -> pd.DataFrame:
    """Rows with the `half` of their question."""
    return rows.assign(half=[halves[key] for key in zip(rows["dataset"], rows["question_id"], strict=True)])
