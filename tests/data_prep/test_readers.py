"""Readers: what they make of good files, and what they say about bad ones."""

import codecs
import json
import logging
import re
from pathlib import Path

import pytest

from corag_search.errors import InputError
from data_prep.readers import FORMATS, ReaderOptions, read_dataset
from data_prep.readers.gather import gather
from data_prep.readers.seen import SeenIds
from data_prep.readers.squad import Squad

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def write_squad(path: Path, *articles: dict) -> Path:
    path.write_text(json.dumps({"version": "1.1", "data": articles}, ensure_ascii=False), "utf-8")
    return path


def paragraph(context: str, *asked: tuple[str, str, int], **keys: object) -> dict:
    qas = [
        {"id": f"{context[:5]}-{n}", "question": text, "answers": [{"text": answer, "answer_start": start}]}
        for n, (text, answer, start) in enumerate(asked)
    ]
    return {"context": context, "qas": qas, **keys}


def write_jsonl(folder: Path, documents: str | bytes, questions: str | bytes = "") -> Path:
    for name, content in (("documents.jsonl", documents), ("questions.jsonl", questions)):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


DOCUMENT = '{"id": "d", "text": "One tower. One river.", "title": "Paris", "source": "unknown keys are passed over"}\n'


# --- read_dataset


@pytest.mark.parametrize("source", ["", "corpus.json", "C:\\data\\x.json", "/data/x:y", "xml:x", "SQUAD:x"])
def test_an_unknown_format_is_answered_with_the_list(source):
    with pytest.raises(InputError) as error:
        read_dataset(source)
    assert all(known.usage in str(error.value) for known in FORMATS.values()) and repr(source) in str(error.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("squad:", "has no path"),
        ("demo:somewhere", "takes no path"),
        ("squad:missing.json", "cannot read missing.json: No such file"),
        ("jsonl:missing", "missing is not a folder"),
    ],
)
def test_a_wrong_path_is_named(source, message):
    with pytest.raises(InputError, match=message):
        read_dataset(source)


def test_a_colon_in_the_path_and_the_demo_without_one(tmp_path):
    folder = tmp_path / "a:b"
    folder.mkdir()
    assert read_dataset(f"jsonl:{write_jsonl(folder, DOCUMENT)}").name == "a:b"
    assert read_dataset("demo").name == "demo" == read_dataset("demo:").name


# --- squad


def test_paragraphs_of_an_article_are_one_document(tmp_path):
    first, second = "The tower is tall.", "The river is long."
    path = write_squad(
        tmp_path / "xquad.en.dev.json",
        {"title": "Paris_(city)", "paragraphs": [paragraph(first, ("What is tall?", "tower", 4)), paragraph(second)]},
        {"paragraphs": [paragraph("Kein Titel.", ("Was?", "Titel", 5))]},
    )
    data = read_dataset(f"squad:{path}")
    assert (data.name, data.documents[0].domain, data.questions[0].domain) == ("xquad.en",) * 3
    assert data.documents[0].text == f"{first}\n\n{second}"
    assert [(d.id, d.title) for d in data.documents] == [("Paris_(city)", "Paris (city)"), ("xquad.en-1", "")]
    assert data.passage_text(data.questions[0].gold_passages[0]) == first
    assert data.questions[0].answers == ("tower",)
    assert data.notes == ()


def test_the_gold_of_the_second_paragraph_is_that_paragraph(tmp_path):
    contexts = ["Paragraph one.", "Paragraph two.", "Paragraph one."]  # one context given twice is one passage
    paragraphs = [paragraph(context, ("Which?", context[10:13], 10)) for context in contexts]
    for number, item in enumerate(paragraphs):
        item["qas"][0]["id"] = number  # COVID-QA has numbers for ids
    data = gather(Squad(write_squad(tmp_path / "x.json", {"title": "T", "paragraphs": paragraphs})))
    assert data.documents[0].text == "Paragraph one.\n\nParagraph two."
    assert [data.passage_text(q.gold_passages[0]) for q in data.questions] == contexts
    assert [q.id for q in data.questions] == ["0", "1", "2"]


@pytest.mark.parametrize("position", [0, 3, 350, 696, 699])
def test_in_a_long_article_the_gold_is_a_window_around_the_answer(tmp_path, position):
    words = [f"word{n}" for n in range(700)]
    context = " ".join(words)
    start = len(" ".join([*words[:position], ""]))
    item = paragraph(context, ("Which word?", words[position], start), document_id=42)
    short = paragraph("A short one.", ("Which?", "short", 2))
    data = gather(Squad(write_squad(tmp_path / "covidqa.dev.json", {"paragraphs": [item, short]})))
    assert {d.id: d.text for d in data.documents} == {"42": context, "covidqa-0": "A short one."}
    window = data.passage_text(data.questions[0].gold_passages[0]).split()
    assert len(window) == 150 and words[position] in window
    assert context.split()[int(window[0][4:]) :][:150] == window, "whole words"
    if position == 350:
        assert 70 < window.index(words[position]) < 80
    assert data.passage_text(data.questions[1].gold_passages[0]) == "A short one."


def test_a_long_answer_makes_the_window_longer_and_chinese_counts_characters(tmp_path):
    context = "中" * 400 + "这是一个很长的答案" * 20 + "国" * 400
    answer = "这是一个很长的答案" * 20
    path = write_squad(tmp_path / "x.json", {"paragraphs": [paragraph(context, ("什么？", answer, 400))]})
    data = gather(Squad(path))
    assert data.passage_text(data.questions[0].gold_passages[0]) == answer
    data = gather(Squad(path, window_words=200))
    assert data.passage_text(data.questions[0].gold_passages[0]) == "中" * 10 + answer + "国" * 10
    assert (data.documents[0].language, data.questions[0].language) == ("zh", "zh")


def test_wrong_offsets_are_corrected_and_told(tmp_path, caplog):
    context = "A river, a tower and a river again."
    item = paragraph(
        context,
        ("right", "river", 2),
        ("off by three, nearest to the end", "river", 20),
        ("space before, offset without it", " tower", 11),
        ("space before and offset with it", " tower", 10),
        ("negative", "river", -40),
        ("not there", "mountain", 4),
        ("only space", " ", 1),
    )
    path = write_squad(tmp_path / "x.json", {"title": "T", "paragraphs": [item]})
    with caplog.at_level(logging.WARNING):
        data = read_dataset(f"squad:{path}")
    assert [q.text.split()[0] for q in data.questions] == ["right", "off", "space", "space", "negative"]
    assert data.notes == (
        "questions whose answer_start was off, corrected to the nearest place of the answer: 2",
        "questions whose answers do not stand in their contexts, left out: 2",
    )
    assert all(note in caplog.text for note in data.notes)


def test_an_offset_is_corrected_to_the_nearest_place(tmp_path):
    words = " ".join(f"w{n}" for n in range(1000))
    context = f"target {words} target {words} target"
    item = paragraph(context, ("Which?", "target", context.rindex(" target ") - 5))
    data = gather(Squad(write_squad(tmp_path / "x.json", {"paragraphs": [item]})))
    gold = data.questions[0].gold_passages[0]
    assert gold.start < context.rindex(" target ") < gold.end


def test_unanswerable_questions_are_skipped_and_counted(tmp_path):
    item = paragraph("A tower.", ("Answerable?", "tower", 2))
    item["qas"] += [
        {"id": "2.0", "question": "Where?", "answers": [], "is_impossible": True},
        {"id": "empty", "question": "Where?", "answers": []},
    ]
    data = gather(Squad(write_squad(tmp_path / "x.json", {"title": "T", "paragraphs": [item]})))
    assert len(data.questions) == 1 and data.notes == ("unanswerable questions, left out: 2",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b'{"data":\n\n[}', "line 3: not valid JSON"),
        (b'{"data": [{"title": "\xff"}]}', "byte 0xff is not UTF-8"),
        (b'{"data":\n"\xff"}', r"line 2: byte 0xff is not UTF-8 \(byte 2 of the line\)"),
        (b"[]", "no 'data'"),
        (b'{"data": {}}', "'data' is dict"),
        (b'{"data": []}', "has no documents"),
        (b'{"data": [{"paragraphs": [{"context": "x"}]}]}', r"data\[0\].paragraphs\[0\]: no 'qas'"),
        (b'{"data": [{"paragraphs": [{"context": "x", "qas": [{"id": 1}]}]}]}', r"qas\[0\]: no 'question'"),
        (b'{"data": [7]}', r"data\[0\]: no 'paragraphs'"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_squad_file_is_refused_with_its_place(tmp_path, content, message):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        gather(Squad(tmp_path / "x.json"))
    assert "x.json" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "documents", "questions", "notes"),
    [("xquad.en.dev.json", 32, 822, 1), ("xquad.zh.dev.json", 8, 234, 1), ("covidqa.dev.json", 56, 860, 2)],
)
def test_real_files(name, documents, questions, notes):
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is no part of the project; it is read where shared/data lies beside the repository")
    data = gather(Squad(SHARED / name))
    assert (len(data.documents), len(data.questions), len(data.notes)) == (documents, questions, notes)
    for question in data.questions:
        assert question.answers[0] in data.passage_text(question.gold_passages[0])
        assert len(data.passage_text(question.gold_passages[0])) < 6000


# --- jsonl


def test_a_folder_of_json_lines(tmp_path):
    asked = [
        {"id": "q1", "question": "Which tower?", "gold_passages": [{"document": "d", "text": "One tower."}]},
        {
            "id": "q2",
            "question": "Which river?",
            "gold_passages": [{"document": "d", "start": 11, "end": 21}, {"document": "d", "text": "tower"}],
            "answers": ["One."],
            "kind": "explicit_fact",
            "domain": "towns",
            "language": "en",
            "title": None,
        },
        {"id": "q3", "question": "And without gold?", "domain": None},
    ]
    write_jsonl(tmp_path, DOCUMENT, "\n".join(json.dumps(q) for q in asked))
    data = read_dataset(f"jsonl:{tmp_path}")
    assert data.documents[0].title == "Paris" and data.documents[0].domain == ""
    gold = [data.passage_text(g) for q in data.questions for g in q.gold_passages]
    assert gold == ["One tower.", "One river.", "tower"]
    q2 = data.questions[1]
    assert (q2.answers, q2.kind, q2.domain, q2.language) == (("One.",), "explicit_fact", "towns", "en")
    assert data.notes == ("1 of 3 questions name no gold passage",)


def test_whole_numbers_are_ids_and_references_to_documents(tmp_path):
    asked = [
        {"id": 0, "question": "Which tower?", "gold_passages": [{"document": 7, "text": "One tower."}]},
        {"id": "1", "question": "Which river?", "gold_passages": [{"document": "7", "start": 11, "end": 21}]},
        {"id": 1, "question": "Whose id came before?"},
    ]
    document = {"id": 7, "text": "One tower. One river."}
    data = read_dataset(f"jsonl:{write_jsonl(tmp_path, json.dumps(document), chr(10).join(map(json.dumps, asked)))}")
    assert [d.id for d in data.documents] == ["7"]
    assert [(q.id, q.gold_passages[0].document) for q in data.questions] == [("0", "7"), ("1", "7")]
    assert "two questions have the id '1'" in data.notes[0]


def test_a_question_is_of_the_one_domain_of_its_gold_documents(tmp_path):
    documents = [
        {"id": d, "text": f"Text {d}.", "domain": domain}
        for d, domain in (("a", "en"), ("b", "en"), ("c", "de"), ("d", ""))
    ]
    gold = {"one": "a", "both": "ab", "two domains": "bc", "none": "d", "partly": "ad", "without gold": ""}
    asked = [
        {
            "id": name,
            "question": f"What of {name}?",
            "gold_passages": [{"document": d, "text": f"Text {d}."} for d in ids],
        }
        for name, ids in gold.items()
    ]
    asked.append({**asked[0], "id": "own", "question": "And its own?", "domain": "mine"})
    lines = ["\n".join(json.dumps(row) for row in rows) for rows in (documents, asked)]
    data = read_dataset(f"jsonl:{write_jsonl(tmp_path, *lines)}")
    assert {q.id: q.domain for q in data.questions} == {
        "one": "en", "both": "en", "two domains": "", "none": "", "partly": "", "without gold": "", "own": "mine"
    }  # fmt: skip


def test_bom_crlf_blank_lines_and_line_separators_inside_strings(tmp_path):
    line = DOCUMENT.replace("One river.", "One\u2028river.").replace("\n", "\r\n").encode()
    write_jsonl(tmp_path, codecs.BOM_UTF8 + line + b"  \r\n\r\n")
    data = read_dataset(f"jsonl:{tmp_path}")
    assert data.documents[0].text == "One tower. One\u2028river."


GOOD = '{"id": "q0", "question": "?"}\n\n'


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"id": "q", "question": "?"', "not valid JSON"),
        ('["q"]', "a list; every line must be a JSON object"),
        ('{"question": "?"}', "'id' must be a string or a whole number, the keys are 'question'"),
        ('{"id": true, "question": "?"}', "'id' must be a string or a whole number, got True"),
        ('{"id": 7.0, "question": "?"}', "'id' must be a string or a whole number, got 7.0"),
        ('{"id": null, "question": "?"}', "'id' must be a string or a whole number, got None"),
        (
            '{"id": "q", "question": "?", "gold_passages": [{"document": false, "text": "x"}]}',
            "'document' must be a string or a whole number, got False",
        ),
        ('{"id": "q", "question": " "}', "question 'q' has no text"),
        ('{"id": "q0", "question": "?"}', "two questions have the id 'q0'"),
        ('{"id": "q", "question": "?", "answers": "yes"}', "'answers' must be a list, got 'yes'"),
        ('{"id": "q", "question": "?", "answers": [""]}', "an answer must be a string with text"),
        ('{"id": "q", "question": "?", "gold_passages": ["d"]}', "gold passage 'd' is no object"),
        ('{"id": "q", "question": "?", "gold_passages": [{"document": "d"}]}', "start None and end None"),
        ('{"id": "q", "question": "?", "gold_passages": [{"document": "e", "text": "x"}]}', "not in the corpus"),
        ('{"id": "q", "question": "?", "gold_passages": [{"document": "d", "text": "Two"}]}', "'Two' does not stand"),
        ('{"id": "q", "question": "?", "gold_passages": [{"document": "d", "text": "One"}]}', "stands more than once"),
        ('{"id": "q", "question": "?", "gold_passages": [{"document": "d", "text": ""}]}', "0-0 lies outside"),
        ('{"id": "q", "question": "?", "gold_passages": [{"document": "d", "start": 5, "end": 99}]}', "5-99 lies"),
        ('{"id": "q", "question": "half \\ud83d"}', "surrogate"),
        ('{"id": "q", "question": "\xff"}', "byte 0xff is not UTF-8"),
    ],
)
def test_a_bad_line_is_refused_with_file_and_line(tmp_path, row, message):
    questions = (GOOD + row).encode("latin-1")
    source = f"jsonl:{write_jsonl(tmp_path, DOCUMENT, questions)}"
    with pytest.raises(InputError) as error:
        read_dataset(source, ReaderOptions(strict=True))
    assert message in str(error.value) and "questions.jsonl, line 3: " in str(error.value)
    assert "\n" not in str(error.value)
    # By default the question is left out, and the note says so.
    data = read_dataset(source)
    assert [q.id for q in data.questions] == ["q0"]
    assert re.search(r": 1; the first: .*questions\.jsonl, line 3: ", data.notes[0]) and message in data.notes[0]
    # Where nothing is left, the first fault is the error.
    write_jsonl(tmp_path, DOCUMENT, row.replace('"q0"', '""').encode("latin-1"))
    with pytest.raises(InputError, match=r"has no questions that can be used; the first fault: .*line 1: "):
        read_dataset(source)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("", "has no documents"),
        (DOCUMENT + DOCUMENT, "line 2: two documents have the id 'd'"),
        ('{"id": "d", "text": ""}', "line 1: document 'd' has no text"),
        ('{"id": "d"}', "line 1: 'text' must be a string"),
    ],
)
def test_a_bad_corpus_is_refused(tmp_path, documents, message):
    with pytest.raises(InputError, match=message):
        read_dataset(f"jsonl:{write_jsonl(tmp_path, documents)}", ReaderOptions(strict=True))


def test_the_first_of_two_documents_stays_and_no_questions_are_needed(tmp_path):
    data = read_dataset(f"jsonl:{write_jsonl(tmp_path, DOCUMENT + DOCUMENT)}")
    assert (len(data.documents), data.questions) == (1, ())
    assert "line 2: two documents have the id 'd'" in data.notes[0]
    with pytest.raises(InputError, match="has no question with gold to take a sample of"):
        read_dataset(f"jsonl:{tmp_path}", ReaderOptions(sample=5))


def test_a_missing_questions_file_is_named(tmp_path):
    (tmp_path / "documents.jsonl").write_text(DOCUMENT)
    with pytest.raises(InputError, match=r"has no questions\.jsonl; write one"):
        read_dataset(f"jsonl:{tmp_path}")


def test_seen_ids_are_those_of_a_set_while_the_table_grows():
    seen, names = SeenIds(), set()
    for number in range(5000):
        name = f"document {number * number % 3001}"
        assert seen.add(name) == (name not in names)
        names.add(name)
    assert len(names) > 1024, "larger than the first table"


def test_every_format_is_documented():
    text = (Path(__file__).resolve().parents[2] / "docs" / "data-formats.md").read_text()
    assert all(f"| `{name}` |" in text for name in FORMATS)
    assert all(f"`--reader.{option}" in text for option in ReaderOptions.__dataclass_fields__)
