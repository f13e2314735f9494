"""The prompt and the way back from its numbers."""

from __future__ import annotations

import pytest

from corag_search import Chunk, InputError, PromptTemplate
from corag_search.prompt import citations


def test_chunks_are_numbered_in_the_found_order() -> None:
    prompt = PromptTemplate().fill("为什么?", ["因素。", " process\n"])
    assert "\n\n[1] 因素。\n\n[2] process\n\n" in prompt
    assert "Question: 为什么?" in prompt


def test_braces_in_texts_are_no_fields() -> None:
    template = PromptTemplate(prompt="{passages}\n{question}\n{question}")
    assert template.fill("{passages} {text}?", ["{question} {number}"]) == (
        "[1] {question} {number}\n{passages} {text}?\n{passages} {text}?"
    )


def test_template_without_a_field_is_refused() -> None:
    with pytest.raises(InputError, match=r"prompt must contain \{question\}, got 'x \{passages\}'"):
        PromptTemplate(prompt="x {passages}")


def test_an_answer_may_go_on_in_digits() -> None:
    (citation,) = citations("[" + "1" * 5000 + "] [0001]", [Chunk("a", "x", 1)])
    assert citation.cited


def test_fingerprint_tells_wordings_apart() -> None:
    assert PromptTemplate().fingerprint != PromptTemplate(passage="{number}: {text}").fingerprint
    assert PromptTemplate().fingerprint == PromptTemplate().fingerprint


@pytest.mark.parametrize(
    ("answer", "cited"),
    [
        ("It is 330 m [2].", [False, True, False]),
        ("Both [1, 3].", [True, False, True]),
        ("两者【1】【3】。", [True, False, True]),
        ("In [4] and [x] and (1).", [False, False, False]),
        ("", [False, False, False]),
    ],
)
def test_numbers_lead_back_to_document_and_offsets(answer: str, cited: list[bool]) -> None:
    chunks = [Chunk(f"d:{i}", "t", 1, {"document": "d", "start": 10 * i, "end": 10 * i + 9}) for i in range(3)]
    found = citations(answer, chunks)
    assert [c.cited for c in found] == cited
    assert [(c.number, c.chunk, c.document, c.start, c.end) for c in found] == [
        (i + 1, f"d:{i}", "d", 10 * i, 10 * i + 9) for i in range(3)
    ]
