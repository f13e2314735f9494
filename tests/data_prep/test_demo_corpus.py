"""The shipped corpus is what the demo needs: enough, of all kinds, and sound."""

import re
import unicodedata
from collections import Counter

import pytest

from data_prep.dataset import Dataset, assign_splits
from data_prep.readers import read_dataset

DOMAINS = [
    "natural_science",
    "history",
    "regulations",
    "software_documentation",
    "product_handbook",
    "medicine",
    "chinese",
]
KINDS = {"explicit_fact", "implicit_fact", "explanation", "keyword", "yes_no"}


@pytest.fixture(scope="module")
def demo() -> Dataset:
    return read_dataset("demo")


def length(text: str, language: str) -> int:
    """Words; in Chinese, characters without punctuation."""
    if language == "zh":
        return sum(unicodedata.category(c)[0] in "LN" for c in text)
    return len(text.split())


def test_enough_documents_of_the_right_length(demo):
    short = [d for d in demo.documents if d.id.startswith("zh-photosynthesis-chunk-")]
    long = [d for d in demo.documents if d not in short]
    assert len(long) >= 40 and len(short) == 5
    assert {d.id: n for d in long if not 200 <= (n := length(d.text, d.language)) <= 600} == {}
    assert list(dict.fromkeys(d.domain for d in demo.documents)) == DOMAINS
    assert {d.language for d in demo.documents if d.domain == "chinese"} == {"zh"}
    assert all(d.title for d in demo.documents)


def test_enough_questions_of_every_kind_in_every_domain(demo):
    assert len(demo.questions) >= 200
    for domain in DOMAINS:
        kinds = Counter(q.kind for q in demo.questions if q.domain == domain)
        assert set(kinds) == KINDS and min(kinds.values()) >= 4, domain
    assert len({q.text for q in demo.questions}) == len(demo.questions)


def test_every_question_has_gold_and_an_answer(demo):
    for question in demo.questions:
        assert question.gold_passages and question.answers, question.id
        assert {demo.document(g.document).domain for g in question.gold_passages} == {question.domain}, question.id
        if question.kind == "explanation":
            assert 2 <= len(question.gold_passages) <= 3, question.id


def test_numbers_of_an_answer_stand_in_its_gold(demo):
    for question in demo.questions:
        if question.kind == "implicit_fact":
            continue  # some of these are worked out
        gold = " ".join(map(demo.passage_text, question.gold_passages))
        for number in re.findall(r"\d(?:[\d.,:]*\d)?", " ".join(question.answers)):
            assert number in gold, (question.id, number)


def test_the_photosynthesis_example(demo):
    # METHOD §7: the factors and the process are needed, the two chunks beside them are filler.
    (question,) = [q for q in demo.questions if q.text == "请解释光合作用的过程，并列出影响其效率的因素。"]
    assert {g.document for g in question.gold_passages} == {f"zh-photosynthesis-chunk-{n}" for n in (1, 2, 3)}
    for gold in question.gold_passages:
        assert demo.passage_text(gold) == demo.document(gold.document).text


def test_every_domain_can_be_held_out_from(demo):
    splits = assign_splits(demo)
    counts = Counter((q.domain, splits[q.id]) for q in demo.questions)
    assert all(counts[domain, split] for domain in DOMAINS for split in ("train", "test"))
    in_all = Counter(splits.values())
    assert all(abs(in_all[s] / len(splits) - f) < 0.05 for s, f in (("train", 0.6), ("val", 0.15), ("test", 0.25)))
