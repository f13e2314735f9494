"""ROUGE: by hand, equal to the library where letters are Latin, and sensible everywhere else."""

import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from corag_search.errors import InputError
from data_prep.rouge import Rouge, UnicodeTokenizer, best_of, rouge_scores

LIBRARY = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
TOKENIZE = UnicodeTokenizer().tokenize


def library(reference: str, answer: str) -> tuple[float, ...]:
    return tuple(score.fmeasure for score in LIBRARY.score(reference, answer).values())


def test_scoring_leaves_pythons_logging_as_it_is():
    code = "import logging, data_prep.rouge as r; r.rouge_scores('a b', 'b'); print(logging.root.handlers)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (printed.stdout, printed.stderr) == ("[]\n", "")


def test_by_hand():
    # 3 of 4 and 3 of 3 words: 6/7. No pair is shared. "the tower" (or "the tall") is 2 of 4 and 2 of 3: 4/7.
    assert rouge_scores("the tower is tall", "the tall tower") == pytest.approx((6 / 7, 0, 4 / 7))
    # 光 合 of 光 合 作 用: 1 and 2/4: 2/3; pairs 1 of 3 and 1 of 1: 1/2; the subsequence as the words: 2/3.
    assert rouge_scores("光合作用", "光合") == pytest.approx((2 / 3, 1 / 2, 2 / 3))


WORD = st.text("abcdeXYZ0189", max_size=4) | st.sampled_from(["the", "THE", "tower", "café", "β-carotene", "x²"])
ENGLISH = st.lists(WORD, max_size=12).map(" ".join) | st.text(st.characters(max_codepoint=127), max_size=60)


@settings(max_examples=300, deadline=None)
@given(ENGLISH, ENGLISH)
@example("Émile Nouguier drew it.", "Emile Nouguier, β and é")
@example("330 m", "330")
@example("", "x")
def test_latin_text_scores_exactly_as_the_library(reference, answer):
    assert rouge_scores(reference, answer) == library(reference, answer)


@pytest.mark.parametrize(
    "text",
    [
        "光合作用在叶绿体内进行，先由光反应制造ATP和NADPH。",
        "これは日本語のテキストです。",
        "การสังเคราะห์ด้วยแสงเกิดขึ้นในคลอโรพลาสต์",
        "ພາສາລາວ",
        "ភាសាខ្មែរ",
        "မြန်မာဘာသာ",
        "བོད་ཡིག",
        "प्रकाश संश्लेषण की दर ४० प्रतिशत है।",
        "광합성은 엽록체에서 일어난다.",
        "Фотосинтез происходит в хлоропластах.",
        "يحدث البناء الضوئي في البلاستيدات الخضراء.",
        "Η φωτοσύνθεση γίνεται στους χλωροπλάστες.",
    ],
)
def test_equal_texts_of_any_script_score_1_and_different_ones_less(text):
    assert rouge_scores(text, text) == (1, 1, 1)
    assert library(text, text) != (1, 1, 1) or any(c.isascii() and c.isalnum() for c in text)
    half = text[: len(text) // 2]
    assert 0 < rouge_scores(text, half).rouge1 < 1


def test_tokens():
    assert TOKENIZE("光合作用 ATP-2, ＡＴＰ") == ["光", "合", "作", "用", "atp", "2", "atp"]
    assert TOKENIZE("ที่นี่") == ["ที่", "นี่"]
    assert TOKENIZE("हिन्दी में ४०") == ["हिन्दी", "में", "४०"]
    assert TOKENIZE("Ёлка и 3кг") == ["ёлка", "и", "3", "кг"]
    assert TOKENIZE("e\u0301 нет\u0301") == ["é", "нет\u0301"]
    assert TOKENIZE("\u0301 _ — …") == []
    assert TOKENIZE("می\u200cخواهم") == TOKENIZE("میخواهم")


def test_either_text_decides_the_tokenizer():
    # A Chinese reference with an English answer: 中 文 is not lost, so ROUGE-1 is not 1.
    assert rouge_scores("中文中文 ok", "ok").rouge1 == pytest.approx(2 * (1 / 5) / (6 / 5))
    assert rouge_scores("ok", "中文中文 ok").rouge1 == pytest.approx(2 * (1 / 5) / (6 / 5))


@pytest.mark.parametrize(
    ("reference", "answer", "expected"),
    [
        # nadph is 1 of 3 and 1 of 3 words, and no pair is shared.
        ("NADPH增加", "NADPH减少", (1 / 3, 0, 1 / 3)),
        ("glucose 糖", "glucose", (2 / 3, 0, 2 / 3)),
        ("glucose", "glucose ｶﾞ", (2 / 3, 0, 2 / 3)),  # kana of half width
        # 1 of 4 and 1 of 1: 2 · ¼ / (5/4).
        ("photosynthesis ไทย", "photosynthesis", (0.4, 0, 0.4)),
    ],
)
def test_a_letter_of_a_script_without_spaces_counts_among_many_latin_ones(reference, answer, expected):
    assert library(reference, answer)[0] == 1
    assert rouge_scores(reference, answer) == pytest.approx(expected)
    assert rouge_scores(answer, reference) == pytest.approx(expected)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
@example("", "")
@example("。！", "?")
@example("\ud83d", "光")
def test_any_text_scores_between_0_and_1(reference, answer):
    assert all(0 <= value <= 1 for value in rouge_scores(reference, answer))
    assert rouge_scores(reference, answer) == pytest.approx(rouge_scores(answer, reference))


def test_texts_without_words_score_0():
    for reference, answer in [("", ""), ("", "tower"), ("tower", ""), ("。", "光"), ("...", "...")]:
        assert rouge_scores(reference, answer) == Rouge(0, 0, 0)


def test_the_best_of_several_references():
    references = ["the tower is tall", "it measures 330 metres"]
    answer = "the tower measures 330 metres"
    best = LIBRARY.score_multi(references, answer)
    assert best_of(references, answer) == tuple(best[m].fmeasure for m in Rouge._fields)
    for bad in ([], "one text"):
        with pytest.raises(InputError, match="references must be a sequence"):
            best_of(bad, answer)
