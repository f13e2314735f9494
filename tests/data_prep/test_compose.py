"""Compound questions: how they read, what their gold and answers are, and where they come in the splits."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from corag_agent.cli import main
from corag_search.errors import InputError
from data_prep.compose import compose_questions
from data_prep.dataset import COMPOUND, Dataset, Document, GoldPassage, Question, assign_splits
from data_prep.readers import read_dataset
from data_prep.table import LabelTable

SHARED = Path(__file__).parents[3] / "shared" / "data"
PARAGRAPHS = ("The tower is 330 metres tall.", "It was built in 1889.", "Maurice Koechlin drew it first.")
TEXT = "\n\n".join(PARAGRAPHS)


def gold(number: int, document: str = "d") -> GoldPassage:
    start = TEXT.index(PARAGRAPHS[number])
    return GoldPassage(document, start, start + len(PARAGRAPHS[number]))


def question(identity: str, text: str, *passages: GoldPassage, answers: tuple[str, ...] = (), language: str = ""):
    return Question(identity, text, passages or (gold(0),), answers, "towers", language=language)


def dataset(*questions: Question, text: str = TEXT) -> Dataset:
    return Dataset("towers", tuple(Document(name, text) for name in ("d", "e")), questions)


HEIGHT = question("h", "How tall is the Eiffel tower?", gold(0), answers=("330 metres.", "A third of a kilometre"))
YEAR = question("y", " When was it  built? ", gold(1), answers=("In 1889", "1889"))
DRAWN = question("w", "Who drew the first plan?", gold(2), answers=("Maurice Koechlin",))


def test_two_questions_become_one():
    # YEAR's pronoun needs the part before it to stay what it was, so it can only come first.
    (made,) = compose_questions(dataset(HEIGHT, YEAR), 1)
    assert made == Question(
        id="y+h",
        text="When was it built, and how tall is the Eiffel tower?",
        gold_passages=(gold(1), gold(0)),
        answers=("In 1889; 330 metres", "1889; A third of a kilometre"),
        domain="towers",
        kind=COMPOUND,
    )


def test_three_parts_one_of_which_has_one_answer_only():
    made = compose_questions(dataset(HEIGHT, replace(YEAR, text="When was the tower built?"), DRAWN), 3)
    sizes = {len(q.id.split("+")): q for q in made}
    assert set(sizes) == {2, 3}
    three = sizes[3]
    assert len(three.answers) == 1 and set(three.answers[0].split("; ")) == {
        "330 metres",
        "In 1889",
        "Maurice Koechlin",
    }
    assert re.fullmatch(r"\w.+[^?], \w.+[^?], and \w.+\?", three.text)
    assert set(three.gold_passages) == {gold(0), gold(1), gold(2)}


def test_chinese_joins_with_its_own_words():
    texts = ("埃菲尔铁塔有多高？", "谁画了第一张图纸?")
    asked = [question(str(n), text, gold(2 * n), answers=(text[0],), language="zh") for n, text in enumerate(texts)]
    (made,) = compose_questions(dataset(*asked), 1)
    assert made.text in ("埃菲尔铁塔有多高，以及谁画了第一张图纸？", "谁画了第一张图纸，以及埃菲尔铁塔有多高？")
    assert set(made.answers[0].split("；")) == {"埃", "谁"} and made.language == "zh"


def test_a_name_keeps_its_capital_and_a_statement_is_never_joined_on():
    asked = (question("k", "Koechlin drew what?", gold(2)), question("n", "In 1889, the tower was what?", gold(1)))
    with pytest.raises(InputError, match="no document has two"):
        compose_questions(dataset(*asked), 1)
    (made,) = compose_questions(dataset(*asked, question("p", "In which city does Koechlin live?")), 1)
    assert made.text.endswith(", and in which city does Koechlin live?")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How tall is the tower?", "How tall is that tower?"),
        ("How tall is the tower?", "Name the architect."),
        ("How tall is the tower?", "Who drew it first?"),
        ("How tall is the tower?", "Who? And when was the tower built?"),
        ("How tall is the tower?", "Who drew the tower, and when was that?"),
        ("Quelle est la hauteur de la tour?", "Qui a construit la tour?"),
        ("How tall is the tower?", "谁画了第一张图纸？"),
    ],
)
def test_what_does_not_read_as_one_question_is_not_joined(one, other):
    # The other way round the pronoun must not be able to follow either.
    asked = dataset(question("a", one, gold(0)), question("b", other, gold(1)))
    try:
        made = compose_questions(asked, 1)
    except InputError:
        return
    assert made[0].text == "Who drew it first, and how tall is the tower?"


def test_questions_of_different_documents_or_with_one_answer_are_not_joined():
    for other in (
        replace(DRAWN, gold_passages=(gold(2, "e"),)),
        replace(DRAWN, gold_passages=()),
        replace(DRAWN, answers=HEIGHT.answers),
        replace(DRAWN, kind=COMPOUND),
        replace(DRAWN, language="fr"),
    ):
        with pytest.raises(InputError, match="no document has two English or Chinese questions"):
            compose_questions(dataset(HEIGHT, other), 1)


def test_passages_in_different_paragraphs_come_first_and_overlapping_ones_become_one():
    near = question("n", "Why is the spire so thin?", GoldPassage("d", 4, 29), answers=("Wind",))
    for seed in range(8):
        (first,) = compose_questions(dataset(HEIGHT, near, DRAWN), 1, seed)
        assert {g.start < 30 for g in first.gold_passages} == {True, False}, "one of each paragraph"
    (joined,) = compose_questions(dataset(HEIGHT, near), 1)
    assert joined.gold_passages == (GoldPassage("d", 0, 29),)
    apart = (
        replace(near, gold_passages=(GoldPassage("d", 4, 9),)),
        replace(HEIGHT, gold_passages=(GoldPassage("d", 20, 28),)),
    )
    (joined,) = compose_questions(dataset(*apart), 1)
    assert {(g.start, g.end) for g in joined.gold_passages} == {(4, 9), (20, 28)}


def test_fewer_are_the_first_of_more_and_the_seed_decides():
    demo = read_dataset("demo")
    made = compose_questions(demo, 40)
    assert made[:15] == compose_questions(demo, 15) == compose_questions(demo, 15, seed=0)
    assert made[:15] != compose_questions(demo, 15, seed=1)
    assert len({q.id for q in made}) == len({frozenset(q.id.split("+")) for q in made}) == 40
    with pytest.raises(InputError, match=r"demo gives \d+ compound questions, 9999 were asked for; compose at most"):
        compose_questions(demo, 9999)
    for count in (0, -1, True):
        with pytest.raises(InputError, match="compose must be a whole number of compound questions, at least 1"):
            compose_questions(demo, count)


def test_parts_and_whole_are_in_one_split_and_change_no_other():
    demo = read_dataset("demo")
    made = compose_questions(demo, 60)
    splits = assign_splits(replace(demo, questions=demo.questions + made))
    for whole in made:
        assert {splits[whole.id]} == {splits[part] for part in whole.id.split("+")}
    alone = assign_splits(demo)
    assert {name: splits[name] for name in alone} == alone


@pytest.mark.parametrize(("name", "count"), [("xquad.en.dev.json", 100), ("covidqa.dev.json", 100)])
def test_real_files_give_enough(name, count):
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is no part of the project; it is read where shared/data lies beside the repository")
    data = read_dataset(f"squad:{SHARED / name}")
    by_id = {q.id: q for q in data.questions}
    made = compose_questions(data, count)
    assert len({q.gold_passages[0].document for q in made}) >= min(len(data.documents), count) - 8
    for whole in made:
        parts = [by_id[part] for part in whole.id.split("+")]
        assert len(parts) in (2, 3) and whole.text.count("?") == 1
        assert len({g.document for part in parts for g in part.gold_passages}) == 1
        # All from different passages: nothing overlaps, so the union is all of them.
        assert [g for part in parts for g in part.gold_passages] == list(whole.gold_passages)
        for answers in whole.answers:
            assert all(any(a.strip().rstrip(".") in answers for a in part.answers) for part in parts)
    with_all = replace(data, questions=data.questions + made)  # checks ids and offsets
    assert len(with_all.questions) == len(data.questions) + count


@pytest.mark.models
def test_the_command_labels_compound_questions_alone(tmp_path, capsys):
    folder = tmp_path / "towers"
    folder.mkdir()
    (folder / "documents.jsonl").write_text(f'{{"id": "d", "text": "{TEXT}"}}'.replace("\n", "\\n"))
    rows = (("h", "How tall is the tower?", 0), ("y", "When was the tower built?", 1), ("w", "Who drew the plan?", 2))
    (folder / "questions.jsonl").write_text(
        "\n".join(
            f'{{"id": "{i}", "question": "{text}", "gold_passages": [{{"document": "d", "text": "{PARAGRAPHS[n]}"}}]}}'
            for i, text, n in rows
        )
    )
    arguments = ["label", "--data", f"jsonl:{folder}", "--out", str(tmp_path / "l.parquet"), "--compose", "2"]
    arguments += ["--rerankers", "{bm25: {}}", "--max_answer_tokens", "8", "--limit", "1"]
    arguments += ["--grid.iterations", "[5]", "--grid.exploration", "[2.4]", "--grid.cost_coefficient", "[0.1]"]
    assert main(arguments) == 0
    table = LabelTable.read(tmp_path / "l.parquet")
    assert list(table.questions["kind"]) == [COMPOUND] and "+" in table.questions["question_id"][0]
    assert main([*arguments[:-2], "--compose", "99"]) == 2
    assert "towers gives" in capsys.readouterr().err
