"""Each format, from files written by hand: documents, gold, answers and what is left out."""

import codecs
import json
import zlib
from pathlib import Path

import pytest

from corag_search.errors import InputError
from data_prep.dataset import Dataset
from data_prep.readers import ReaderOptions, iterate_documents, json_stream, read_dataset


def write(folder: Path, **files: object) -> Path:
    """Files by name, `__` for the dot and `___` for the slash: text, JSON, or a list of JSON lines."""
    for name, content in files.items():
        path = folder / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list) and path.suffix == ".jsonl":
            content = "".join(json.dumps(row) + "\n" for row in content)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def gold(data: Dataset) -> dict[str, list[str]]:
    return {q.id: [data.passage_text(passage) for passage in q.gold_passages] for q in data.questions}


@pytest.fixture(params=["whole", "streamed"])
def _either_way(request, monkeypatch):
    """JSON files parsed at once and streamed."""
    if request.param == "streamed":
        monkeypatch.setattr(json_stream, "WHOLE", 0)


# --- WikiPassageQA

PASSAGES = {"7": {"0": "One.", "1": "Two.", "2": ""}, "8": {"0": "Three."}, "9": {}}
HEAD = "QID\tQuestion\tDocumentID\tDocumentName\tRelevantPassages\r\n"


@pytest.mark.usefixtures("_either_way")
def test_wikipassageqa(tmp_path):
    train = (
        HEAD + "1\tWho?\t7\tSeven.html\t0,1\r\n2\tWhat?\t8\tEight.html\t0\n\n3\tWhere?\t8\tEight.html\t5\n4\tbroken\n"
    )
    write(tmp_path, document_passages__json=PASSAGES, train__tsv=train, test__tsv=HEAD + "5\twho\t7\tSeven.html\t1\n")
    data = read_dataset(f"wikipassageqa:{tmp_path}")
    assert {d.id: d.text for d in data.documents} == {"7": "One.\n\nTwo.", "8": "Three."}
    assert gold(data) == {"1": ["One.", "Two."], "2": ["Three."], "5": ["Two."]}
    assert data.name == "wikipassageqa" and {q.domain for q in data.questions} == {"wikipassageqa"}
    notes = "\n".join(data.notes)
    assert "gold passages that are not there, left out: 1" in notes and "passage '5' of document '8'" in notes
    assert "lines with too few cells, left out: 1; the first" in notes and "train.tsv, line 6" in notes
    assert "passages without text, left out: 1" in notes and "documents without text, left out: 1" in notes
    assert "questions without gold passages, left out: 1" in notes
    assert "in the files of several splits, the same or nearly so: 1" in notes and "'Who?'" in notes
    alone = read_dataset(f"wikipassageqa:{tmp_path / 'test.tsv'}")
    assert gold(alone) == {"5": ["Two."]} and len(alone.documents) == 2


def test_wikipassageqa_without_questions(tmp_path):
    write(tmp_path, document_passages__json=PASSAGES)
    with pytest.raises(InputError, match=r"has no train\.tsv or dev\.tsv or test\.tsv"):
        read_dataset(f"wikipassageqa:{tmp_path}")


# --- MS MARCO QA


def marco_rows() -> list[dict]:
    def passages(*pairs):
        return [{"is_selected": selected, "passage_text": text, "url": "u"} for text, selected in pairs]

    return [
        {
            "answers": ["A corporation.", "A firm."],
            "passages": passages(("A corporation is a firm.", 1), ("Bees.", 0)),
            "query": "what is a corporation?",
            "query_id": 1102432,
            "query_type": "DESCRIPTION",
            "wellFormedAnswers": "[]",
        },
        {
            "answers": ["No Answer Present."],
            "passages": passages(("Cats.", 0), ("Bees.", 0)),
            "query": "why is cold",
            "query_id": 2,
            "query_type": "DESCRIPTION",
            "wellFormedAnswers": "[]",
        },
        {
            "answers": ["Bees do"],
            "passages": passages(("Bees.", 1), ("Bees make honey.", 1)),
            "query": " who makes honey",
            "query_id": 3,
            "query_type": "PERSON",
            "wellFormedAnswers": ["Bees make honey.", ""],
        },
    ]


def as_columns(rows: list[dict]) -> dict:
    return {column: {str(n): row[column] for n, row in enumerate(rows)} for column in sorted(rows[0])}


def check_marco(data: Dataset) -> None:
    assert gold(data) == {"1102432": ["A corporation is a firm."], "3": ["Bees.", "Bees make honey."]}
    assert sorted(d.text for d in data.documents) == ["A corporation is a firm.", "Bees make honey.", "Bees.", "Cats."]
    assert [q.answers for q in data.questions] == [("A corporation.", "A firm."), ("Bees make honey.", "Bees do")]
    assert [(q.text, q.kind) for q in data.questions][1] == ("who makes honey", "person")
    assert data.notes == ("questions without an answer or a selected passage, left out: 1",)


@pytest.mark.usefixtures("_either_way")
def test_msmarco_by_columns_by_lines_and_as_a_list(tmp_path):
    rows = marco_rows()
    write(tmp_path, a__json=as_columns(rows), b__jsonl=rows, c__json=rows)
    for row in rows:
        texts, selected = zip(*((p["passage_text"], p["is_selected"]) for p in row["passages"]), strict=True)
        row["passages"] = {"passage_text": list(texts), "is_selected": list(selected)}
        row["wellFormedAnswers"] = row["wellFormedAnswers"] if row["wellFormedAnswers"] != "[]" else []
    write(tmp_path, d__jsonl=rows)
    for name in ("a.json", "b.jsonl", "c.json", "d.jsonl"):
        check_marco(read_dataset(f"msmarco:{tmp_path / name}"))


@pytest.mark.usefixtures("_either_way")
def test_msmarco_columns_out_of_step_are_refused(tmp_path):
    columns = as_columns(marco_rows())
    columns["query"] = dict(reversed(columns["query"].items()))
    write(tmp_path, a__json=columns)
    with pytest.raises(InputError, match="row '0' of 'passages' stands beside row '2' of another column"):
        read_dataset(f"msmarco:{tmp_path / 'a.json'}")
    del columns["query"]
    write(tmp_path, a__json=columns)
    with pytest.raises(InputError, match=r"a\.json.*'query'"):
        read_dataset(f"msmarco:{tmp_path / 'a.json'}")


def test_msmarco_rows_of_wrong_types_are_left_out(tmp_path):
    rows = marco_rows()
    bad = [{**rows[0], "query": 7}, {**rows[0], "passages": "none"}, {**rows[0], "answers": [1]}, rows[2]]
    data = read_dataset(f"msmarco:{write(tmp_path, a__jsonl=bad) / 'a.jsonl'}")
    assert list(gold(data)) == ["3"]
    assert any("questions that cannot be read, left out: 2" in n and "line 1: 'query' is 7" in n for n in data.notes)
    with pytest.raises(InputError, match="line 1: 'query' is 7"):
        read_dataset(f"msmarco:{tmp_path / 'a.jsonl'}", ReaderOptions(strict=True))


def test_msmarco_ranking(tmp_path):
    write(
        tmp_path,
        collection__tsv="0\tZero.\n1\tOne\twith a tab.\r\n1\tOne again.\n2\t \n3\tThree.\n",
        queries__train__tsv="10\twho is one\n11\twhat is two\n12\tnobody knows\n",
        qrels__train__tsv="10\t0\t1\t1\n10 0 3 1\n11\t0\t2\t1\n12\t0\t0\t0\n",
        queries__dev__small__tsv="20\tWho is three?\n",
        qrels__dev__small__tsv="20\t0\t3\t1\nbroken\n",
        queries__eval__tsv="30\tno relevance file\n",
    )
    data = read_dataset(f"msmarco-ranking:{tmp_path}")
    assert {d.id: d.text for d in data.documents} == {"0": "Zero.", "1": "One with a tab.", "3": "Three."}
    assert gold(data) == {"20": ["Three."], "10": ["One with a tab.", "Three."]}
    notes = "\n".join(data.notes)
    assert "documents without text, left out: 1" in notes and "an id that another has, left out: 1" in notes
    assert "collection.tsv, line 3: two documents have the id '1'" in notes
    assert "questions whose gold passage is not there, left out: 1" in notes
    assert "questions without a relevant passage, left out: 1" in notes and "qrels.dev.small.tsv, line 2" in notes
    assert list(gold(read_dataset(f"msmarco-ranking:{tmp_path / 'queries.train.tsv'}"))) == ["10"]
    with pytest.raises(InputError, match=r"has no queries\.\*\.tsv with its qrels\.\*\.tsv"):
        read_dataset(f"msmarco-ranking:{tmp_path / 'queries.eval.tsv'}")


# --- HotpotQA


def hotpot(**changes: object) -> dict:
    context = [["Paris", ["Paris is a city.", " It has a tower."]], ["Rome", ["Rome is older."]], ["Empty", []]]
    row = {"_id": "h1", "question": "Which is older?", "answer": "Rome", "type": "comparison", "level": "hard"}
    return {**row, "context": context, "supporting_facts": [["Paris", 1], ["Rome", 0]], **changes}


@pytest.mark.usefixtures("_either_way")
def test_hotpotqa(tmp_path):
    rows = [
        hotpot(),
        hotpot(
            _id="h2",
            context=[["Rome", ["Rome is older."]], ["Rome", ["Another Rome."]]],
            supporting_facts=[["Rome", 0]],
        ),
        hotpot(_id="h3", supporting_facts=[["Paris", 9], ["Oslo", 0]]),
        hotpot(
            _id="h4",
            context={"title": ["Oslo"], "sentences": [["Oslo is north."]]},
            supporting_facts={"title": ["Oslo"], "sent_id": [0]},
        ),
        ["no object"],
        hotpot(_id=5, question="Is Rome older than it?"),
        hotpot(_id=5.0),
    ]
    data = read_dataset(f"hotpotqa:{write(tmp_path, dev__json=rows) / 'dev.json'}")
    assert gold(data) == {
        "h1": ["It has a tower.", "Rome is older."],
        "h2": ["Another Rome."],
        "h4": ["Oslo is north."],
        "5": ["It has a tower.", "Rome is older."],
    }
    assert [d.title for d in data.documents] == ["Paris", "Rome", "Rome", "Oslo"]
    assert data.documents[0].text == "Paris is a city. It has a tower."
    assert data.questions[0].answers == ("Rome",) and data.questions[0].kind == "comparison"
    notes = "\n".join(data.notes)
    assert "gold passages that are not there, left out: 2" in notes and "item 2: supporting fact ['Paris', 9]" in notes
    assert "item 6: _id 5.0, question" in notes
    assert "items that are no object, left out: 1" in notes and "paragraphs without text" in notes


# --- BEIR


def test_beir(tmp_path):
    folder = write(
        tmp_path / "scifact",
        corpus__jsonl=[
            {"_id": "4", "title": "Cells", "text": "Cells divide."},
            {"_id": 5, "text": "光合作用制造糖。"},
            {"_id": "6"},
        ],
        queries__jsonl=[
            {"_id": "1", "text": "Do cells divide?"},
            {"_id": "2", "text": "do cells divide"},
            {"_id": "3", "text": "?"},
        ],
        qrels___train__tsv="query-id\tcorpus-id\tscore\n1\t4\t1\n1\t5\t0\n",
        qrels___test__tsv="query-id\tcorpus-id\tscore\n2\t4\t1\n2\t5\t2\n2\t4\tx\n",
    )
    data = read_dataset(f"beir:{folder}")
    assert [(d.id, d.title, d.language, d.domain) for d in data.documents] == [
        ("4", "Cells", "", "scifact"),
        ("5", "", "zh", "scifact"),
    ]
    assert gold(data) == {"1": ["Cells divide."], "2": ["Cells divide.", "光合作用制造糖。"]}
    notes = "\n".join(data.notes)
    assert "documents that cannot be read, left out: 1" in notes and "corpus.jsonl, line 3" in notes
    assert "test.tsv, line 4: the score 'x' is no number" in notes
    assert "questions without a relevant document, left out: 1" in notes
    assert "in the files of several splits, the same or nearly so: 1" in notes and "test and train" in notes
    alone = read_dataset(f"beir:{folder / 'qrels' / 'train.tsv'}")
    assert list(gold(alone)) == ["1"] and len(alone.documents) == 2 and alone.name == "scifact"


# --- CSV, and one table


def test_a_folder_of_csv_with_columns_of_other_names(tmp_path):
    write(
        tmp_path,
        documents__csv='Nummer,text\r\nd,"One tower,\ntall. One river."\r\ne,Two\r\ne,Twice\r\n,\r\n',
        questions__csv="id,Frage,answer,document,passage,gold_passages\n"
        "q1,Which river?,One,d,One river.,\n"
        'q2,And both?,,,,"[{""document"": ""d"", ""start"": 0, ""end"": 9}, {""document"": ""e"", ""text"": ""Two""}]"\n'  # noqa: E501
        "q3,Too,many,cells,here,and,there\n"
        'q4,"broken" quote,x\n'
        "q5,Which list?,,,,[broken\n",
    )
    columns = {"id": "Nummer", "question": "Frage"}
    with pytest.raises(InputError, match=r"line 2: 'question' must be a string, the keys are 'id', 'Frage'"):
        read_dataset(f"csv:{tmp_path}", ReaderOptions(strict=True))
    content = (tmp_path / "questions.csv").read_bytes()
    (tmp_path / "questions.csv").write_bytes(codecs.BOM_UTF8 + content)
    data = read_dataset(f"csv:{tmp_path}", ReaderOptions(columns=columns))
    assert [d.text for d in data.documents] == ["One tower,\ntall. One river.", "Two"]
    assert gold(data) == {"q1": ["One river."], "q2": ["One tower", "Two"]}
    assert data.questions[0].answers == ("One",)
    notes = "\n".join(data.notes)
    assert "documents.csv, line 5: two documents have the id 'e'" in notes
    assert "questions.csv, line 4: 7 cells under 6 columns" in notes and "questions.csv, line 5: " in notes
    assert "questions.csv, line 6: 'gold_passages' must be a list" in notes


def test_one_table_of_questions_with_their_texts(tmp_path):
    rows = [
        {"question": "Who?", "text": "One tower.", "answer": "One"},
        {"question": "What?", "text": "One tower.", "answers": ["Tower", "A tower"], "passage": "tower"},
        {"question": "Where?", "text": "Elsewhere.", "document": "e", "id": "w"},
        {"question": "How?"},
        {"question": "Whence?", "text": "From there.", "document": 0, "id": 9},
    ]
    write(tmp_path, t__jsonl=rows, t__tsv="question\ttext\tanswer\nWho?\tOne tower.\tOne\nWhat?\tOne tower.\t\n")
    data = read_dataset(f"jsonl:{tmp_path / 't.jsonl'}")
    assert gold(data) == {"t-1": ["One tower."], "t-2": ["tower"], "w": ["Elsewhere."], "9": ["From there."]}
    assert [d.text for d in data.documents] == ["One tower.", "Elsewhere.", "From there."]
    assert [d.id for d in data.documents[1:]] == ["e", "0"]
    assert data.questions[1].answers == ("Tower", "A tower")
    assert "line 4: 'text' must be a string" in "\n".join(data.notes)
    assert gold(read_dataset(f"csv:{tmp_path / 't.tsv'}")) == {"t-2": ["One tower."], "t-3": ["One tower."]}


def test_columns_are_for_rows_and_each_has_its_own_name(tmp_path):
    with pytest.raises(InputError, match=r"format 'squad' has no named columns.*'jsonl' and 'csv'"):
        read_dataset("squad:x.json", ReaderOptions(columns={"question": "q"}))
    write(tmp_path, t__csv="question,text,text\na,b,c\n")
    with pytest.raises(InputError, match="line 1: columns question, text, text; each must have its own name"):
        read_dataset(f"csv:{tmp_path / 't.csv'}")


# --- a folder of documents


def pdf(*pages: str) -> bytes:
    """A PDF of one line of text a page, written by hand (ISO 32000, 7.5)."""
    contents = [zlib.compress(f"BT /F1 12 Tf 72 700 Td ({page}) Tj ET".encode()) for page in pages]
    first = 4
    kids = " ".join(f"{first + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {len(pages)}/Kids[{kids}]>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for n, content in enumerate(contents):
        page = f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents {first + 2 * n + 1} 0 R"
        objects.append(f"{page}/Resources<</Font<</F1 3 0 R>>>>>>".encode())
        objects.append(f"<</Length {len(content)}/Filter/FlateDecode>>stream\n".encode() + content + b"\nendstream")
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj".encode() + body + b"endobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer<</Size {len(objects) + 1}/Root 1 0 R>>\n"
    return bytes(out) + f"{end}startxref\n{len(out)}\n%%EOF".encode()


PAGE = """<!DOCTYPE html><html><head><title>The  tower</title><style>p {}</style></head><body>
<nav>Menu</nav><h1>Height</h1><p>It is <b>330</b>&nbsp;metres<br>tall.<script>let x = "<p>"</script>
<ul><li>iron<li>paint</ul></body></html>"""


def test_a_folder_of_documents(tmp_path):
    write(
        tmp_path,
        a__txt="\ufeffPlain text.\r\nTwo lines.\n",
        guide___b__md="# The guide\n\nSome *marked* text.",
        guide___c__html=PAGE,
        guide___ignored__docx="x",
        _hidden__txt="left alone, since it is no hidden file",
        questions__jsonl=[
            {"id": "q", "question": "How tall?", "gold_passages": [{"document": "d.pdf", "text": "330 metres"}]},
            {"id": "g", "question": "And this?", "gold_passages": [{"document": "guide/b.md", "text": "marked"}]},
        ],
    )
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.txt").write_text("hidden")
    (tmp_path / "d.pdf").write_bytes(pdf("The tower is 330 metres tall.", "Second page."))
    (tmp_path / "e.pdf").write_bytes(b"%PDF-1.4 broken")
    (tmp_path / "f.txt").write_bytes(b"fine\n\xff\nfine too\n")
    data = read_dataset(f"files:{tmp_path}")
    texts = {d.id: d.text for d in data.documents}
    assert texts == {
        "_hidden.txt": "left alone, since it is no hidden file",
        "a.txt": "Plain text.\nTwo lines.",
        "d.pdf": "The tower is 330 metres tall.\n\nSecond page.",
        "f.txt": "fine\nfine too",
        "guide/b.md": "# The guide\n\nSome *marked* text.",
        "guide/c.html": "Height\n\nIt is 330 metres tall.\n\niron\n\npaint",
    }
    assert [(d.title, d.domain) for d in data.documents][-2:] == [("The guide", "guide"), ("The tower", "guide")]
    assert gold(data) == {"q": ["330 metres"], "g": ["marked"]}
    assert [q.domain for q in data.questions] == ["", "guide"]
    notes = "\n".join(data.notes)
    assert "files that cannot be read, left out: 1" in notes and "e.pdf: no readable PDF" in notes
    assert "lines that are not UTF-8, left out: 1" in notes and "f.txt, line 2: byte 0xff" in notes
    with pytest.raises(InputError, match=r"e\.pdf: no readable PDF"):
        read_dataset(f"files:{tmp_path}", ReaderOptions(strict=True))


def test_a_folder_without_documents_or_questions(tmp_path):
    with pytest.raises(InputError, match="has no documents"):
        read_dataset(f"files:{tmp_path}")
    with pytest.raises(InputError, match="is not a folder"):
        read_dataset(f"files:{tmp_path / 'nowhere'}")
    write(tmp_path, a__txt="Text.")
    assert read_dataset(f"files:{tmp_path}").questions == ()


# --- samples


def test_a_sample_is_what_select_draws_with_the_documents_that_belong_to_it(tmp_path):
    rows = [
        {"id": f"q{n}", "question": f"Which is number {n}?", "gold_passages": [{"document": f"d{n % 7}", "text": "x"}]}
        for n in range(50)
    ]
    write(
        tmp_path,
        documents__jsonl=[{"id": f"d{n}", "text": f"x{n}"} for n in range(9)],
        questions__jsonl=[*rows, rows[3]],
    )
    whole = read_dataset(f"jsonl:{tmp_path}")
    for count, seed in ((1, 0), (10, 0), (10, 5), (49, 1), (50, 0), (99, 0)):
        data = read_dataset(f"jsonl:{tmp_path}", ReaderOptions(sample=count), seed=seed)
        assert data.questions == whole.select(count, seed).questions
        assert {d.id for d in data.documents} == {g.document for q in data.questions for g in q.gold_passages}
        assert any("the corpus is the" in note for note in data.notes)
    for bad in (0, -1):
        with pytest.raises(InputError, match="sample must be a whole number of questions, at least 1"):
            read_dataset(f"jsonl:{tmp_path}", ReaderOptions(sample=bad))


def test_a_sample_of_msmarco_brings_all_passages_of_its_questions(tmp_path):
    folder = write(tmp_path, a__json=as_columns(marco_rows()))
    data = read_dataset(f"msmarco:{folder / 'a.json'}", ReaderOptions(sample=1))
    (question,) = data.questions
    wanted = {"1102432": {"A corporation is a firm.", "Bees."}, "3": {"Bees.", "Bees make honey."}}[question.id]
    assert {d.text for d in data.documents} == wanted


def test_documents_one_at_a_time(tmp_path, caplog):
    write(
        tmp_path,
        documents__jsonl=[{"id": "d", "text": "x"}, {"id": "d", "text": "y"}, {"id": "e", "text": "z"}],
        questions__jsonl=[],
    )
    assert [(d.id, d.text) for d in iterate_documents(f"jsonl:{tmp_path}")] == [("d", "x"), ("e", "z")]
    assert "an id that another has, left out: 1" in caplog.text
    write(tmp_path, documents__jsonl=[{"id": "d", "text": " "}])
    with pytest.raises(InputError, match=r"has no documents that can be used; the first fault: .*'d' has no text"):
        list(iterate_documents(f"jsonl:{tmp_path}"))
