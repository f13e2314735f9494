"""The data set's checks, its fingerprint and sample, and splits by document."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_search.errors import InputError
from data_prep.dataset import Dataset, Document, GoldPassage, Question, assign_splits

TEXT = "The tower is 330 metres tall."


def question(number: int, *documents: str, domain: str = "") -> Question:
    gold = tuple(GoldPassage(document, 0, 9) for document in documents)
    return Question(f"q{number}", f"How tall is tower {number}?", gold, domain=domain)


def dataset(*questions: Question, documents: int = 3) -> Dataset:
    return Dataset("towers", tuple(Document(f"d{n}", TEXT) for n in range(documents)), questions)


def test_a_gold_passage_is_the_slice_of_its_document():
    data = dataset(question(0, "d1"))
    assert data.document("d1").text == TEXT
    assert data.passage_text(data.questions[0].gold_passages[0]) == "The tower"


@pytest.mark.parametrize(
    ("documents", "questions", "message"),
    [
        ((), (), "has no documents"),
        ((Document("d", TEXT), Document("d", TEXT)), (), "two documents have the id 'd'"),
        ((Document("", TEXT),), (), "empty id"),
        ((Document("d", " \n"),), (), "document 'd' has no text"),
        (
            (Document("d", "half \ud83d"),),
            (),
            "document 'd': text must be a text that can be encoded as UTF-8, got half",
        ),
        ((Document("d", TEXT, domain="\ud83d"),), (), "document 'd': domain must be a text that can be encoded as UTF"),
        ((Document("d", TEXT),), (Question("q", "?", (), kind="\ud83d"),), "question 'q': kind must be a text that"),
        ((Document("d", TEXT),), (Question("q", "?", (), ("\ud83d",)),), "question 'q': an answer must be a text that"),
        ((Document("d", TEXT),), (Question("q", "  ", ()),), "question 'q' has no text"),
        ((Document("d", TEXT),), (Question("q", "?", ()), Question("q", "!", ())), "two questions have the id 'q'"),
        ((Document("d", TEXT),), (Question("q", "?", (GoldPassage("e", 0, 1),)),), "'e', which is not in the corpus"),
        ((Document("d", TEXT),), (Question("q", "?", (GoldPassage("d", 0, 30),)),), "0-30 lies outside document 'd'"),
        ((Document("d", TEXT),), (Question("q", "?", (GoldPassage("d", 4, 4),)),), "start < end <= 29"),
        ((Document("d", TEXT),), (Question("q", "?", (GoldPassage("d", -1, 4),)),), "-1-4"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(documents, questions, message):
    with pytest.raises(InputError) as error:
        Dataset("towers", documents, questions)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_an_unknown_document_is_named():
    with pytest.raises(InputError, match="'nowhere', which is not in the corpus"):
        dataset().document("nowhere")


def test_the_fingerprint_follows_the_content_and_nothing_else():
    data = dataset(question(0, "d1"))
    assert len(data.fingerprint) == 16 and int(data.fingerprint, 16) >= 0
    assert replace(data, name="other", notes=("skipped one",)).fingerprint == data.fingerprint
    changed = [
        replace(data, questions=()),
        replace(data, questions=(question(0, "d2"),)),
        replace(data, questions=(replace(data.questions[0], kind="yes_no"),)),
        replace(data, documents=tuple(replace(d, title="Tower") for d in data.documents)),
        replace(data, documents=data.documents[::-1]),
    ]
    assert len({data.fingerprint, *(c.fingerprint for c in changed)}) == 1 + len(changed)


def test_a_sample_is_repeatable_nested_and_in_order():
    data = dataset(*(question(n, "d0") for n in range(50)))
    few, more = data.select(10, seed=3), data.select(20, seed=3)
    assert few == data.select(10, seed=3) and few != data.select(10, seed=4)
    assert len(few.questions) == 10 and set(few.questions) < set(more.questions)
    assert [data.questions.index(q) for q in few.questions] == sorted(data.questions.index(q) for q in few.questions)
    assert few.documents == data.documents
    assert data.select(None) is data and data.select(50) is data and data.select(99) is data
    for limit in (0, -1, True):
        with pytest.raises(InputError, match="limit must be at least 1"):
            data.select(limit)


def test_questions_that_share_a_document_stay_together():
    # d0-d1 and d1-d2 are linked by questions, so the first three are one group; each other document is its own.
    questions = [question(0, "d0", "d1"), question(1, "d1", "d2"), question(2, "d2"), question(3, "d0")]
    questions += [question(n, f"d{n}") for n in range(4, 20)]
    splits = assign_splits(dataset(*questions, documents=20))
    assert list(splits) == [q.id for q in questions]
    assert len({splits[f"q{n}"] for n in range(4)}) == 1
    assert Counter(splits.values()) == {"train": 12, "val": 3, "test": 5}


def test_every_domain_reaches_its_fractions():
    questions = [question(n, f"d{n // 5}", domain=f"domain {n // 100}") for n in range(400)]
    data = dataset(*questions, documents=80)
    splits = assign_splits(data)
    for domain in range(4):
        counts = Counter(splits[f"q{n}"] for n in range(100 * domain, 100 * domain + 100))
        assert counts == {"train": 60, "val": 15, "test": 25}
    assert splits == assign_splits(data)
    assert splits != assign_splits(data, seed=1)


def test_other_fractions_and_questions_without_gold():
    data = dataset(*(question(n) for n in range(10)))
    assert Counter(assign_splits(data, {"train": 0.5, "test": 0.5, "val": 0.0}).values()) == {"train": 5, "test": 5}
    assert assign_splits(dataset()) == {}
    for fractions in ({}, {"train": 0.5}, {"train": 1.5, "test": -0.5}, {"train": float("nan")}):
        with pytest.raises(InputError, match="fractions must be at least 0 and sum to 1"):
            assign_splits(data, fractions)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 14), min_size=1, max_size=2), min_size=1, max_size=40), st.integers(0, 3))
def test_no_document_is_ever_in_two_splits(gold, seed):
    questions = [question(n, *(f"d{i}" for i in documents)) for n, documents in enumerate(gold)]
    splits = assign_splits(dataset(*questions, documents=15), seed=seed)
    where: dict[str, str] = {}
    for asked in questions:
        for passage in asked.gold_passages:
            assert where.setdefault(passage.document, splits[asked.id]) == splits[asked.id]
