"""Scores of answers and of what was chosen, by hand, and F1 against SQuAD's own script."""

from __future__ import annotations

import math
import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_agent.evaluation.scoring import exact_match, gold_recall, human_rouge, token_f1
from corag_search import Chunk
from data_prep.dataset import GoldPassage


def squad_tokens(text: str) -> list[str]:
    """As evaluate-v1.1.py normalises."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def squad_f1(reference: str, answer: str) -> float:
    """Of evaluate-v1.1.py, with the empty case of evaluate-v2.0.py."""
    own, gold = squad_tokens(answer), squad_tokens(reference)
    if not own or not gold:
        return float(own == gold)
    same = sum((Counter(own) & Counter(gold)).values())
    if not same:
        return 0.0
    precision, recall = same / len(own), same / len(gold)
    return 2 * precision * recall / (precision + recall)


words = st.lists(st.sampled_from(["the", "U.S.", "tower", "a", "1,990", "don't", "$5", "-", "an", "x"])).map(" ".join)


@given(words, words)
def test_english_is_scored_as_by_squad(reference: str, answer: str) -> None:
    assert token_f1([reference], answer) == pytest.approx(squad_f1(reference, answer))
    assert exact_match([reference], answer) == float(squad_tokens(reference) == squad_tokens(answer))


@pytest.mark.parametrize(
    ("answers", "answer", "f1", "exact"),
    [
        (["308"], "The Panthers gave up 308 points.", 2 / (1 + 5), 0.0),
        (["Denver Broncos", "the Broncos"], "Broncos", 1.0, 1.0),
        (["二氧化碳"], "二氧化碳。", 1.0, 1.0),
        (["二氧化碳"], "是二氧化物", 2 * 3 / (4 + 5), 0.0),
        (["ＡＴＰ"], "atp", 1.0, 1.0),
        (["Café «Zürich»"], "cafe zürich", 0.5, 0.0),
        (["Москва"], "в Москва!", 2 / 3, 0.0),
        ([""], "", 1.0, 1.0),
        (["the"], "x", 0.0, 0.0),
    ],
)
def test_scores_worked_by_hand(answers: list[str], answer: str, f1: float, exact: float) -> None:
    assert token_f1(answers, answer) == pytest.approx(f1)
    assert exact_match(answers, answer) == exact


def test_without_human_answers_nothing_is_scored() -> None:
    assert all(math.isnan(score([], "x")) for score in (token_f1, exact_match, human_rouge))
    assert human_rouge(["a b", "c d"], "c d") == 1.0


def chunk(document: str | None, start: int, end: int) -> Chunk:
    return Chunk(f"{document}:{start}", "x", 1, {"document": document, "start": start, "end": end})


@pytest.mark.parametrize(
    ("chunks", "share"),
    [
        ([], 0.0),
        ([chunk("a", 0, 10)], 0.0),  # it ends where the passage begins
        ([chunk("a", 0, 11)], 0.5),
        ([chunk("a", 19, 30), chunk("a", 20, 30)], 0.5),
        ([chunk("b", 12, 15)], 0.0),
        ([chunk("a", 12, 13), chunk("c", 0, 99)], 1.0),
        ([Chunk("summary/1/0", "x", 1, {"kind": "summary"})], 0.0),
    ],
)
def test_gold_recall_counts_overlapped_passages(chunks: list[Chunk], share: float) -> None:
    assert gold_recall([GoldPassage("a", 10, 20), GoldPassage("c", 5, 6)], chunks) == share
    assert math.isnan(gold_recall([], chunks))
