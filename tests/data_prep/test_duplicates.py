"""Near-duplicate questions: exactly what comparing all pairs finds, and never divided between splits."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_search.errors import InputError
from data_prep.dataset import Dataset, Document, GoldPassage, Question, assign_splits
from data_prep.duplicates import SIMILAR, duplicate_groups, word_set
from data_prep.splits import SplitBy


def by_brute_force(texts: list[str], similar: float) -> list[list[int]]:
    """Connected components over all pairs, by repeated merging."""
    groups = [{index} for index in range(len(texts))]
    for one, other in combinations(range(len(texts)), 2):
        a, b = word_set(texts[one]), word_set(texts[other])
        if len(a & b) / len(a | b) >= similar - 1e-12:
            first, second = (next(group for group in groups if index in group) for index in (one, other))
            if first is not second:
                groups.remove(second)
                first |= second
    return sorted(sorted(group) for group in groups if len(group) > 1)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=0, max_size=9).map(" ".join), max_size=25),
    st.sampled_from([0.5, 0.6, 0.75, 0.8, SIMILAR, 1.0]),
)
def test_the_groups_are_those_of_all_pairs(texts, similar):
    assert duplicate_groups(texts, similar) == by_brute_force(texts, similar)


def test_case_punctuation_and_width_do_not_count():
    texts = [
        "What is “ATP”?",
        "what is atp",
        "Ｗhat is ATP？",
        "光合作用是什么？",
        "光合作用是什么",
        "?",
        "!",
        "What is ADP?",
    ]
    assert duplicate_groups(texts) == [[0, 1, 2], [3, 4]]


def test_one_word_more_is_nearly_the_same_and_another_subject_is_not():
    texts = [
        "When did the Broncos win the Super Bowl game?",
        "When did the Broncos first win the Super Bowl game?",
        "When did the Panthers win the Super Bowl game?",
    ]
    assert duplicate_groups(texts) == [[0, 1]]


def test_many_copies_and_many_different_ones():
    texts = [f"Which is number {n % 3000}?" for n in range(9000)] + ["same"] * 3000
    groups = duplicate_groups(texts)
    assert Counter(map(len, groups)) == {3: 3000, 3000: 1}


def towers(count: int, text: str, *, domains: int = 3) -> Dataset:
    documents = tuple(Document(f"d{n}", "A tower.") for n in range(count))
    questions = tuple(
        Question(f"q{n}", text.format(n=n), (GoldPassage(f"d{n}", 0, 8),), domain=f"domain {n % domains}")
        for n in range(count)
    )
    return Dataset("towers", documents, questions)


def test_near_duplicates_of_different_documents_come_into_one_split():
    apart = towers(60, "Which one is tower {n}?")
    twins = tuple(
        Question(f"twin {q.id}", q.text.lower().replace("?", " ?"), (GoldPassage(f"e{n}", 0, 8),), domain=q.domain)
        for n, q in enumerate(apart.questions)
    )
    documents = apart.documents + tuple(Document(f"e{n}", "A tower.") for n in range(60))
    splits = assign_splits(Dataset("twins", documents, apart.questions + twins))
    assert all(splits[q.id] == splits[f"twin {q.id}"] for q in apart.questions)
    assert Counter(splits.values()) == {"train": 72, "val": 18, "test": 30}


def test_by_domain_no_domain_is_divided():
    data = towers(200, "Which one is tower {n}?", domains=20)
    splits = assign_splits(data, by="domain")
    found = {q.domain: splits[q.id] for q in data.questions}
    assert all(splits[q.id] == found[q.domain] for q in data.questions)
    assert Counter(found.values()) == {"train": 12, "val": 3, "test": 5}
    assert assign_splits(data, by=SplitBy.DOCUMENT) == assign_splits(data) != splits
    with pytest.raises(InputError, match="splits can be by document or by domain, got 'question'"):
        assign_splits(data, by="question")
