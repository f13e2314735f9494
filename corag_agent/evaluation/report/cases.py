"""Cases in full: for each data set a typical question, the greatest gain, and the greatest loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from corag_agent.evaluation.best_of_half import BEST
from corag_agent.evaluation.records import KEY, EvaluationRun
from corag_agent.evaluation.report.browser import SCORES, has_texts, overlaps
from corag_agent.evaluation.report.main_setting import Settings, chosen_reranker
from corag_agent.evaluation.report.wording import NAIVE, TREE, way_name

CASES_RULE = (
    "Chosen by rule, not by eye: of each data set, in the setting that has both for the most questions, the question "
    "of the median gain in ROUGE-L of the tree search over NaiveRAG, that of the greatest gain, and that of the "
    "greatest loss (of the least gain where none lost). Both have the reranker that is best on the half of the "
    "questions that a question is not in. Of an even number the lower of the middle two is the median; of equals the "
    "first by its id is taken."
)
NO_CASES = "This run has no texts: it was published without them, so there are no cases to show."


@dataclass(frozen=True, slots=True)
class CaseChunk:
    """A chunk of a prompt.

    Attributes:
        name: Its id.
        text: Of it.
        cost: Tokens.
        gold: Whether it shares text with a gold passage.
    """

    name: str
    text: str
    cost: int
    gold: bool


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    """What one method did with a question.

    Attributes:
        way: The method and its reranker, for people.
        chunks: In the prompt's order.
        answer: The LLM's.
        scores: ROUGE-L against the reference and against the human answers, token F1, gold recall; NaN where there is
            nothing to compare with.
        tokens: Of the chunks.
    """

    way: str
    chunks: tuple[CaseChunk, ...]
    answer: str
    scores: Mapping[str, float]
    tokens: int


@dataclass(frozen=True, slots=True)
class Case:
    """A question with what both methods made of it.

    Attributes:
        what: Which question of its data set it is, such as "greatest gain".
        dataset: Name.
        setting: Run, chunk size and budget, in words.
        question: Its text.
        question_id: Its id.
        reference: What answers are scored against.
        gain: ROUGE-L of the tree search less that of NaiveRAG.
        answers: Of the tree search, then of NaiveRAG.
    """

    what: str
    dataset: str
    setting: str
    question: str
    question_id: str
    reference: str
    gain: float
    answers: tuple[CaseAnswer, CaseAnswer]


@dataclass(frozen=True, slots=True)
class Cases:
    """What the section on cases says.

    Attributes:
        note: The rule, or why there are none.
        cases: Data set by data set.
    """

    note: str
    cases: tuple[Case, ...] = ()


def cases_of(run: EvaluationRun) -> Cases | None:
    """The cases by `CASES_RULE`; None where no data set compares the tree search with NaiveRAG."""
    if not has_texts(run):
        return Cases(NO_CASES)
    datasets = sorted(run.succeeded["dataset"].unique())
    cases = tuple(case for dataset in datasets for case in _of_dataset(run, dataset))
    return Cases(CASES_RULE, cases) if cases else None


def chosen_cases(gains: Mapping[str, float]) -> list[tuple[str, str]]:
    """What each case is, and its question; none twice: with few questions the loss stays, then the gain.

    Args:
        gains: By the questions' ids.

    Example:
        >>> chosen_cases({"a": 0.1, "b": -0.2, "c": 0.4, "d": 0.3})
        [('median gain', 'a'), ('greatest gain', 'c'), ('greatest loss', 'b')]
    """
    if not gains:
        return []
    # Rounded, so that sums in another order do not part equals.
    rising = sorted(gains, key=lambda question: (round(gains[question], 9), question))
    greatest = min(gains, key=lambda question: (-round(gains[question], 9), question))
    least = "greatest loss" if gains[rising[0]] < 0 else "least gain"
    wanted = [("median gain", rising[(len(rising) - 1) // 2]), ("greatest gain", greatest), (least, rising[0])]
    last = {question: what for what, question in wanted}
    return [(what, question) for what, question in wanted if last[question] == what]


def _of_dataset(run: EvaluationRun, dataset: str) -> Iterator[Case]:
    rows = Settings(run, dataset, halvings=1).first_with(TREE, NAIVE)  # of many there is no one answer to show
    if rows is None:
        return
    sides = [rows[(rows["method"] == way) & (rows["reranker"] == chosen_reranker(rows, way))] for way in (TREE, NAIVE)]
    tree, naive = (side.set_index("question_id") for side in sides)
    gains = {str(name): float(gain) for name, gain in (tree["rougeL"] - naive["rougeL"]).dropna().items()}
    told = run.questions[run.questions["dataset"] == dataset].set_index("question_id").to_dict("index")
    for what, question_id in chosen_cases(gains):
        question = told[question_id]
        records: list[dict[str, Any]] = [
            {**side.loc[question_id], "question_id": question_id} for side in (tree, naive)
        ]
        own, other = (_answer(run, record, list(question["gold"])) for record in records)
        yield Case(
            what=what,
            dataset=dataset,
            setting=f"chunks of {records[0]['chunk_size']}, budget {records[0]['budget']} ({records[0]['run']})",
            question=question["question"],
            question_id=question_id,
            reference=question["reference"],
            gain=gains[question_id],
            answers=(own, other),
        )


def _answer(run: EvaluationRun, record: Mapping[str, Any], gold: list[str]) -> CaseAnswer:
    reranker = record["chosen"] if record["reranker"] == BEST else record["reranker"]
    key = {**{name: record[name] for name in KEY}, "reranker": reranker}
    same = pd.concat([run.answers[name] == value for name, value in key.items()], axis=1).all(axis=1)
    of_size = run.chunks[(run.chunks["dataset"] == key["dataset"]) & (run.chunks["chunk_size"] == key["chunk_size"])]
    chunks = of_size.set_index("chunk_id")
    passages = [" ".join(passage.split()) for passage in gold]
    return CaseAnswer(
        way=way_name(record["method"], reranker),
        chunks=tuple(_chunk(name, chunks.loc[name], passages) for name in record["chunk_ids"]),
        answer=run.answers.loc[same, "answer"].iloc[0],
        scores={name: float(record[name]) for name in SCORES},
        tokens=int(record["prompt_tokens"]),
    )


def _chunk(name: str, row: pd.Series, passages: list[str]) -> CaseChunk:
    text = " ".join(row["text"].split())
    return CaseChunk(name, row["text"], int(row["cost"]), any(overlaps(text, passage) for passage in passages))
