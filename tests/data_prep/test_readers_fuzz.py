"""Damaged files of every format: a data set with notes, or one line that names the file; never another error."""

import json
import os
import re
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_search.errors import InputError
from data_prep.readers import FORMATS, ReaderOptions, iterate_documents, json_stream, read_dataset
from tests.data_prep.test_readers_formats import HEAD, PASSAGES, as_columns, hotpot, marco_rows, pdf, write

SQUAD = {
    "data": [
        {
            "title": "T",
            "paragraphs": [
                {
                    "context": "A tower.",
                    "qas": [{"id": "1", "question": "?", "answers": [{"text": "tower", "answer_start": 2}]}],
                }
            ],
        }
    ]
}
ROWS = {
    "documents__jsonl": [{"id": "d", "text": "One tower."}, {"id": "e", "text": "Two."}],
    "questions__jsonl": [
        {"id": "q", "question": "?", "gold_passages": [{"document": "d", "text": "One"}], "answers": ["x"]}
    ],
}
# What is written, and what is read; `FOLDER` stands for where it is.
SETS = {
    "squad:FOLDER/a.json": {"a__json": SQUAD},
    "msmarco:FOLDER/a.json": {"a__json": as_columns(marco_rows())},
    "msmarco:FOLDER/a.jsonl": {"a__jsonl": marco_rows()},
    "hotpotqa:FOLDER/a.json": {"a__json": [hotpot(), hotpot(_id="h2")]},
    "wikipassageqa:FOLDER": {"document_passages__json": PASSAGES, "train__tsv": HEAD + "1\tWho?\t7\tS\t0,1\n"},
    "msmarco-ranking:FOLDER": {
        "collection__tsv": "0\tZ\n1\tO\n",
        "queries__a__tsv": "9\t?\n",
        "qrels__a__tsv": "9\t0\t1\t1\n",
    },
    "beir:FOLDER": {
        "corpus__jsonl": [{"_id": "4", "title": "", "text": "Cells."}],
        "queries__jsonl": [{"_id": "1", "text": "Do cells?"}],
        "qrels___test__tsv": "query-id\tcorpus-id\tscore\n1\t4\t1\n",
    },
    "jsonl:FOLDER": ROWS,
    "csv:FOLDER": {
        "documents__csv": 'id,text\nd,"One, two"\n',
        "questions__csv": "id,question,document,passage\nq,?,d,One\n",
    },
    "files:FOLDER": {
        "a__html": "<p>One",
        "b__md": "# Two",
        "questions__jsonl": [{"id": "q", "question": "?", "gold_passages": [{"document": "a.html", "text": "One"}]}],
    },
}


def check(source: str, folder: Path, strict: bool) -> None:
    try:
        data = read_dataset(source.replace("FOLDER", str(folder)), ReaderOptions(strict=strict))
    except InputError as error:
        assert "\n" not in str(error)
        assert str(folder) in str(error), "names the file"
    else:
        assert data.documents and all("\n" not in note for note in data.notes)


def damaged(content: bytes, place: float, kind: str, junk: bytes) -> bytes:
    at = int(place * len(content))
    if kind == "cut":
        return content[:at]
    if kind == "appended":
        return content + junk
    return content[:at] + junk + content[at + (len(junk) if kind == "overwritten" else 0) :]


@pytest.mark.parametrize("source", SETS)
@pytest.mark.parametrize("streamed", [False, True])
def test_damaged_bytes(source, streamed, monkeypatch):
    if streamed:
        if not any(name.endswith("__json") for name in SETS[source]):
            pytest.skip("no file of this format is streamed as JSON")
        monkeypatch.setattr(json_stream, "WHOLE", 0)

    @settings(max_examples=600, deadline=None)
    @given(
        st.data(),
        st.floats(0, 1),
        st.sampled_from(["cut", "appended", "inserted", "overwritten"]),
        st.one_of(
            st.binary(min_size=1, max_size=6), st.sampled_from([b"\n", b'"', b"\x00", b"\r", b"{", b"\t", b"\xff\xfe"])
        ),
        st.booleans(),
    )
    def damage(data, place, kind, junk, strict):
        with TemporaryDirectory() as name:
            folder = write(Path(name), **SETS[source])
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            file = data.draw(st.sampled_from(files))
            file.write_bytes(damaged(file.read_bytes(), place, kind, junk))
            check(source, folder, strict)

    damage()


VALUES = st.sampled_from([None, True, 7, 1.5, "", "text", [], {}, [None], [["x"]], {"x": 1}, [[1, 2]], "\ud83d", -1])


def leaves(value: object, path: tuple = ()) -> list[tuple]:
    """Paths to everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, member in items for deeper in leaves(member, (*path, key)))]


def replaced(value: object, path: tuple, new: object) -> object:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("source", [s for s in SETS if any("json" in name for name in SETS[s])])
def test_wrong_types(source):
    @settings(max_examples=80, deadline=None)
    @given(st.data(), VALUES, st.booleans())
    def mistype(data, value, strict):
        name = data.draw(st.sampled_from(sorted(n for n in SETS[source] if "json" in n)))
        content = SETS[source][name]
        path = data.draw(st.sampled_from(leaves(content)))
        changed = replaced(content, path, value)
        with TemporaryDirectory() as folder:
            write(
                Path(folder),
                **{**SETS[source], name: changed if isinstance(changed, list | dict) else json.dumps(changed)},
            )
            check(source, Path(folder), strict)

    mistype()


def test_damaged_pdf(tmp_path):
    good = pdf("One tower.")
    write(tmp_path, a__txt="Text.")

    @settings(max_examples=60, deadline=None)
    @given(st.floats(0, 1), st.sampled_from(["cut", "inserted", "overwritten"]), st.binary(min_size=1, max_size=40))
    def damage(place, kind, junk):
        (tmp_path / "b.pdf").write_bytes(damaged(good, place, kind, junk))
        check("files:FOLDER", tmp_path, strict=False)

    damage()


@pytest.mark.parametrize("source", SETS)
def test_undamaged_they_are_read_without_a_note(source, tmp_path):
    data = read_dataset(source.replace("FOLDER", str(write(tmp_path, **SETS[source]))))
    assert data.documents
    expected = ("without", "nearly so", "several splits", "name no gold", "not there")
    assert all(re.search("|".join(expected), note) for note in data.notes), data.notes


def test_crlf_and_byte_order_marks_change_nothing(tmp_path):
    for number, (source, files) in enumerate(SETS.items()):
        plain, marked = (write(tmp_path / name / f"{number}", **files) for name in ("plain", "marked"))
        for file in marked.rglob("*"):
            if file.is_file():
                file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
        one, other = (read_dataset(source.replace("FOLDER", str(folder))) for folder in (plain, marked))
        assert (one.documents, one.questions) == (other.documents, other.questions), source


def test_the_first_fault_is_refused_when_strict(tmp_path):
    read = partial(read_dataset, f"jsonl:{tmp_path}")
    lines = [json.dumps(row) for row in ROWS["documents__jsonl"]]
    write(tmp_path, **ROWS)
    (tmp_path / "documents.jsonl").write_bytes(
        f"{lines[0]}\n".encode() + b'{"id": "\xff"}\n{broken\n' + lines[1].encode()
    )
    data = read()
    assert [d.id for d in data.documents] == ["d", "e"]
    assert [note.split(";")[0] for note in data.notes] == [
        "lines that are not UTF-8, left out: 1",
        "lines that are no JSON object, left out: 1",
    ]
    assert "documents.jsonl, line 2: byte 0xff is not UTF-8 (byte 9 of the line)" in data.notes[0]
    assert "documents.jsonl, line 3: not valid JSON" in data.notes[1]
    with pytest.raises(InputError, match=r"documents\.jsonl, line 2: byte 0xff"):
        read(ReaderOptions(strict=True))


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.takes_path])
@pytest.mark.parametrize("path", ["x" * 300, "a\0b", "~nosuchuserhere/x", "loop", "\udcff"])
def test_paths_that_no_system_has(name, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    for read in (read_dataset, lambda source: list(iterate_documents(source))):
        with pytest.raises(InputError) as error:
            read(f"{name}:{path}")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("special", ["folder", "loop", "closed"])
@pytest.mark.parametrize("source", SETS)
def test_what_is_no_file_in_the_place_of_one(source, special, tmp_path):
    if special == "closed" and os.geteuid() == 0:
        pytest.skip("root may read every file")
    for number, name in enumerate(SETS[source]):
        folder = write(tmp_path / str(number), **SETS[source])
        file = folder / name.replace("___", "/").replace("__", ".")
        if special == "closed":
            file.chmod(0)
        else:
            file.unlink()
            file.mkdir() if special == "folder" else file.symlink_to(file)
        check(source, folder, strict=False)
        check(source, folder, strict=True)


@pytest.mark.parametrize("relevance", ["-1", "0", "0.0", "nan", "much", "0x1"])
def test_relevance_that_is_not_above_zero(relevance, tmp_path):
    files = SETS["msmarco-ranking:FOLDER"] | {"qrels__a__tsv": f"9\t0\t0\t{relevance}\n9\t0\t1\t1\n"}
    data = read_dataset(f"msmarco-ranking:{write(tmp_path, **files)}")
    assert [gold.document for gold in data.questions[0].gold_passages] == ["1"]
    noted = f"qrels.a.tsv, line 1: the relevance '{relevance}' is no number" in "\n".join(data.notes)
    assert noted == (relevance in ("much", "0x1"))


@pytest.mark.parametrize("order", ["Frage,question", "question,Frage"])
def test_a_named_column_counts_before_one_that_has_the_name_itself(order, tmp_path):
    (tmp_path / "t.csv").write_text(f"{order},text\n{order},A text.\n")
    data = read_dataset(f"csv:{tmp_path / 't.csv'}", ReaderOptions(columns={"question": "Frage"}))
    assert [question.text for question in data.questions] == ["Frage"]


def test_true_is_no_number_and_a_carriage_return_ends_no_line(tmp_path):
    for path, value in ((("answers", 0, "answer_start"), True), (("id",), True)):
        changed = replaced(SQUAD, ("data", 0, "paragraphs", 0, "qas", 0, *path), value)
        write(tmp_path, a__json=changed)
        with pytest.raises(InputError, match=rf"{path[-1]}' is bool; SQuAD layout has"):
            read_dataset(f"squad:{tmp_path / 'a.json'}")
    (tmp_path / "t.csv").write_bytes(b"question,text\rq,t\r")
    with pytest.raises(InputError, match="line 1: a carriage return that ends no line; end lines with LF or CRLF"):
        read_dataset(f"csv:{tmp_path / 't.csv'}")
