import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_search.errors import InputError
from data_prep.grid import LabelGrid
from data_prep.groups import connected
from data_prep.table import LabelTable

GRID = LabelGrid(exploration=(0, 1), cost_coefficient=(0.1,), iterations=(5, 10))
FINGERPRINT: dict[str, Any] = {
    "embedder": {"name": "toy", "dimension": 2, "fingerprint": "abc"},
    "grid": GRID.to_dict(),
    "rerankers": ["zeta", "alpha"],
    "prompt": "p1",
}


def outcome(score: float) -> dict[str, Any]:
    return {"order": [2, 0], "prompt_tokens": 7, "value": 0.5, "rouge1": score, "rouge2": score, "rougeL": score}


def scores_frame() -> pd.DataFrame:
    rows = []
    for q, question in enumerate(("b", "a")):
        for r, reranker in enumerate(FINGERPRINT["rerankers"]):
            for p, point in enumerate(GRID):
                score = (8 * q + 4 * r + p) / 16
                rows.append({"question_id": question, "reranker": reranker, **point._asdict(), **outcome(score)})
    return pd.DataFrame(rows)


def questions_frame() -> pd.DataFrame:
    common = {"domain": "law", "kind": "explicit", "language": "en"}
    return pd.DataFrame(
        [
            {"question_id": "b", **common, "split": "train", "reference": None, "embedding": [0.0, 1.0], "group": 3},
            {"question_id": "a", **common, "split": "test", "reference": "yes", "embedding": [1.0, 0.0], "group": None},
        ]
    )


def with_features(**changes: Any) -> dict[str, Any]:
    """Parts of a table whose questions have all optional columns, as version 2 brought them."""
    features = {
        "documents": [["tower", "bridge"], ["bridge"]],
        "statistics": [[0.5, 2.0, 3.0], [1.5, 4.0, 5.0]],
        "chunk_mean": [[0.25, 0.5], [0.75, 1.0]],
    }
    fingerprint = {**FINGERPRINT, "statistics": ["length", "spread", "share"]}
    return {"questions": questions_frame().assign(**{**features, **changes}), "fingerprint": fingerprint}


def rivals_frame() -> pd.DataFrame:
    return pd.DataFrame([{"question_id": "a", "method": "naive_rag", "reranker": "zeta", **outcome(0.25)}])


def make_table(**changes: Any) -> LabelTable:
    parts: dict[str, Any] = {"scores": scores_frame(), "questions": questions_frame(), "fingerprint": FINGERPRINT}
    return LabelTable(**{**parts, **changes})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "labels.parquet"
    make_table(rivals=rivals_frame()).write(target)
    return target


def test_round_trip(path: Path) -> None:
    before, after = make_table(rivals=rivals_frame()), LabelTable.read(path)
    assert before.rivals is not None and after.rivals is not None
    pd.testing.assert_frame_equal(before.scores, after.scores)
    pd.testing.assert_frame_equal(before.questions, after.questions)
    pd.testing.assert_frame_equal(before.rivals, after.rivals)
    assert after.fingerprint == FINGERPRINT
    assert after.rerankers == ["zeta", "alpha"]
    assert after.grid == GRID
    assert after.embedder == {"name": "toy", "dimension": 2, "fingerprint": "abc"}
    assert after.questions["group"].isna().tolist() == [True, False]
    assert after.scores["prompt_tokens"].dtype == np.int32
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "labels.parquet",
        "labels.questions.parquet",
        "labels.rivals.parquet",
    ]


def test_dense_arrays_follow_questions_rerankers_and_grid() -> None:
    table = make_table()
    assert table.questions["question_id"].tolist() == ["a", "b"]
    assert table.embeddings.tolist() == [[1, 0], [0, 1]]
    assert table.embeddings.dtype == np.float32
    rouge = table.rouge()
    assert rouge.shape == (2, 2, 2, 1, 2)
    assert rouge.dtype == np.float64
    # Question a came second, alpha is the second reranker; there exploration 1 and 10 iterations is the last point.
    assert rouge[0, 1, 1, 0, 1] == 15 / 16
    assert rouge[1].ravel().tolist() == [i / 16 for i in range(8)]
    assert table.tokens.shape == rouge.shape
    assert table.split("test").tolist() == [0]
    assert table.split("val").tolist() == []


def test_row_order_changes_no_byte(tmp_path: Path) -> None:
    make_table().write(tmp_path / "one.parquet")
    shuffled = make_table(scores=scores_frame().sample(frac=1, random_state=1), questions=questions_frame().iloc[::-1])
    shuffled.write(tmp_path / "two.parquet")
    for end in (".parquet", ".questions.parquet"):
        assert (tmp_path / f"one{end}").read_bytes() == (tmp_path / f"two{end}").read_bytes()


def test_writing_without_rivals_removes_earlier_ones(path: Path) -> None:
    make_table().write(path)
    assert LabelTable.read(path).rivals is None


def test_failed_write_leaves_the_old_table(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    real = pq.write_table

    def fail_on_questions(rows: Any, where: Any, **options: Any) -> None:
        if "questions" in Path(where).name:
            raise OSError("disk full")
        real(rows, where, **options)

    monkeypatch.setattr(pq, "write_table", fail_on_questions)
    with pytest.raises(OSError, match="disk full"):
        make_table(fingerprint={**FINGERPRINT, "prompt": "p2"}, rivals=rivals_frame()).write(path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_wider_types_of_the_same_kind_are_cast() -> None:
    scores = scores_frame().astype({"iterations": "int64", "rouge1": "float32"})
    scores["order"] = [[] for _ in range(len(scores))]
    table = make_table(scores=scores)
    assert table.scores["iterations"].dtype == np.int32
    assert table.scores["rouge1"].dtype == np.float64
    assert len(table.scores["order"][0]) == 0


def drop_row(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(index=2)


def repeat_row(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame, frame.iloc[[0]]])


def without_question_a(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["question_id"] != "a"]


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("scores", lambda f: f.drop(columns="value"), "scores: column value is missing"),
        ("scores", lambda f: f.astype({"rougeL": str}), "column rougeL must be double"),
        ("scores", lambda f: f.astype({"iterations": float}), "column iterations must be int32"),
        ("scores", lambda f: f.astype({"prompt_tokens": "int64"}).assign(prompt_tokens=2**40), "prompt_tokens must be"),
        ("scores", lambda f: f.assign(order="2,0"), "column order must be list"),
        ("scores", lambda f: f.assign(order=[[1, None]] * len(f)), "order must be list|lists without null"),
        ("scores", repeat_row, "1 repeated row.*'question_id': 'b'"),
        (
            "scores",
            lambda f: f.assign(rougeL=f["rougeL"].where(f["rougeL"] != 0.5)),
            "rougeL of question 'a' is missing",
        ),
        ("scores", lambda f: f.assign(value=np.inf), "value must be a finite number, got inf"),
        ("scores", lambda f: f.assign(value=-0.1), r"value must be in \[0, 1\], got -0.1 for question 'b'"),
        (
            "scores",
            lambda f: f.assign(rouge1=f["rouge1"].where(f["question_id"] == "b", 150 * f["rouge1"])),
            "rouge1 must be .*, got 75.0 for question 'a', reranker 'zeta'; correct it, divide percent by 100, or",
        ),
        ("scores", lambda f: f.assign(rougeL=1.5), r"scores: rougeL must be in \[0, 1\], got 1.5 for question 'b'"),
        ("scores", lambda f: f.assign(prompt_tokens=-1), "prompt_tokens must be at least 0, got -1 for question 'b'"),
        ("scores", without_question_a, "1 question.s. without scores, the first is 'a'"),
        ("questions", without_question_a, "question_id 'a' is not among the questions"),
        ("scores", drop_row, "1 row.s. are missing, .* 'b', reranker 'zeta', exploration 1, .* iterations 5"),
        ("scores", lambda f: f.assign(reranker=f["reranker"].replace("zeta", "eta")), "reranker 'eta' is not among"),
        ("scores", lambda f: f.assign(exploration=f["exploration"] + 1), "exploration 2.0 is not among"),
        ("scores", lambda f: f.iloc[:0], "column .* must be|without scores"),
        ("questions", repeat_row, "questions: 1 repeated"),
        ("questions", lambda f: f.assign(split="dev"), "split must be one of train, val, test, got 'dev'"),
        ("questions", lambda f: f.assign(embedding=[[1.0], [1.0, 2.0]]), "embedding of 'b' must be 2 finite"),
        ("questions", lambda f: f.assign(embedding=[[1.0, np.inf], [1.0, 2.0]]), "of which 1 finite"),
        ("questions", lambda f: f.assign(domain=[None, "law"]), "domain of question 'b' is missing"),
    ],
)
def test_unusable_frames(part: str, change: Any, message: str) -> None:
    frame = {"scores": scores_frame, "questions": questions_frame}[part]()
    with pytest.raises(InputError, match=message):
        make_table(**{part: change(frame)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": 1.1}, r"rivals: value must be in \[0, 1\], got 1.1 for question 'a', .* method 'naive_rag'"),
        ({"rouge2": -0.5}, r"rivals: rouge2 must be in \[0, 1\], got -0.5"),
        ({"prompt_tokens": -3}, "rivals: prompt_tokens must be at least 0, got -3"),
    ],
)
def test_rivals_outside_their_range(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_table(rivals=rivals_frame().assign(**change))


def test_a_table_in_percent_is_refused_on_reading_with_file_question_and_remedy(path: Path) -> None:
    rows = pq.read_table(path)
    percent = pa.array(100 * rows["rougeL"].to_numpy())
    pq.write_table(rows.set_column(rows.column_names.index("rougeL"), "rougeL", percent), path)
    with pytest.raises(InputError) as error:
        LabelTable.read(path)
    first = "rougeL must be in [0, 1], got 50.0 for question 'a', reranker 'zeta'"
    assert str(error.value) == f"label table {path}: scores: {first}; correct it, divide percent by 100, or label again"


def test_scores_may_be_rounded_up() -> None:
    assert len(make_table(scores=scores_frame().assign(value=np.float32(1.0000001), rougeL=-1e-9))) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rerankers": ["zeta", "zeta"]}, "rerankers must be a list of distinct names"),
        ({"embedder": {"name": "toy"}}, "embedder must have name, dimension and fingerprint"),
        ({"embedder": {**FINGERPRINT["embedder"], "dimension": 0}}, "dimension must be a whole number"),
        ({"grid": {"exploration": [0]}}, "grid must name exactly"),
        ({"versions": Path("/")}, "plain JSON values"),
    ],
)
def test_unusable_fingerprints(change: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_table(fingerprint={**FINGERPRINT, **change})
    with pytest.raises(InputError, match="lacks 'rerankers'"):
        make_table(fingerprint={})


def test_stray_rivals() -> None:
    with pytest.raises(InputError, match="'c' is not among the questions"):
        make_table(rivals=rivals_frame().assign(question_id="c"))
    with pytest.raises(InputError, match="rivals: 1 repeated"):
        make_table(rivals=repeat_row(rivals_frame()))


def replace_metadata(file: Path, **entries: str | None) -> None:
    rows = pq.read_table(file)
    metadata = {**rows.schema.metadata, **{f"corag.{k}".encode(): v.encode() for k, v in entries.items() if v}}
    for key in (k for k, v in entries.items() if v is None):
        del metadata[f"corag.{key}".encode()]
    pq.write_table(rows.replace_schema_metadata(metadata), file)


def test_unusable_files(path: Path, tmp_path: Path) -> None:
    questions = path.with_name("labels.questions.parquet")
    with pytest.raises(InputError, match=r"none.parquet does not exist"):
        LabelTable.read(tmp_path / "none.parquet")
    with pytest.raises(InputError, match="holds questions, expected scores"):
        LabelTable.read(questions)
    with pytest.raises(InputError, match=r"must end in .parquet"):
        make_table().write(tmp_path / "labels.csv")
    replace_metadata(questions, fingerprint=json.dumps({**FINGERPRINT, "prompt": "p2"}))
    with pytest.raises(InputError, match=r"labels.questions.parquet does not belong .* differ in prompt;"):
        LabelTable.read(path)
    replace_metadata(path, fingerprint="{")
    with pytest.raises(InputError, match="no readable fingerprint"):
        LabelTable.read(path)
    replace_metadata(path, schema_version="99")
    with pytest.raises(InputError, match="schema version 99, readable are 1 and 2; read it with"):
        LabelTable.read(path)
    replace_metadata(path, schema_version=None)
    with pytest.raises(InputError, match="schema version none"):
        LabelTable.read(path)
    path.write_text("question,score")
    with pytest.raises(InputError, match="is not a readable parquet file"):
        LabelTable.read(path)


def test_unusable_content_of_a_file_names_the_file(path: Path) -> None:
    rows = pq.read_table(path)
    nan = pa.array([float("nan")] * len(rows))
    at = rows.column_names.index("rougeL")
    pq.write_table(rows.set_column(at, "rougeL", nan).replace_schema_metadata(rows.schema.metadata), path)
    with pytest.raises(InputError, match=r"labels.parquet: scores: rougeL of question 'a' is missing"):
        LabelTable.read(path)
    pq.write_table(rows.drop_columns("order").replace_schema_metadata(rows.schema.metadata), path)
    with pytest.raises(InputError, match=r"labels.parquet: scores: column order is missing"):
        LabelTable.read(path)


def test_missing_questions_file(path: Path) -> None:
    path.with_name("labels.questions.parquet").unlink()
    with pytest.raises(InputError, match=r"labels.questions.parquet does not exist"):
        LabelTable.read(path)


def test_features_of_questions(tmp_path: Path) -> None:
    make_table(**with_features()).write(tmp_path / "l.parquet")
    table = LabelTable.read(tmp_path / "l.parquet")
    assert table.questions["question_id"].tolist() == ["a", "b"]
    assert table.statistic_names == ("length", "spread", "share")
    assert table.statistics is not None and table.chunk_means is not None
    assert table.statistics.dtype == table.chunk_means.dtype == np.float32
    assert table.statistics.tolist() == [[1.5, 4, 5], [0.5, 2, 3]]
    assert table.chunk_means.tolist() == [[0.75, 1], [0.25, 0.5]]
    assert table.documents == [("bridge",), ("tower", "bridge")]
    assert table.groups is not None and table.groups.tolist() == [0, 0]


@pytest.mark.parametrize("empty", [False, True])
def test_a_table_without_features_has_none(tmp_path: Path, empty: bool) -> None:
    questions = questions_frame()
    if empty:  # such as a data frame leaves behind
        questions = questions.assign(documents=None, statistics=[None, None], chunk_mean=np.nan)
    make_table(questions=questions).write(tmp_path / "l.parquet")
    table = LabelTable.read(tmp_path / "l.parquet")
    assert (table.statistics, table.statistic_names, table.chunk_means) == (None, (), None)
    assert (table.documents, table.groups) == (None, None)


def test_a_table_of_version_1_is_read(path: Path) -> None:
    """Such a table may have columns of its own whose names came to mean something later."""
    questions = path.with_name("labels.questions.parquet")
    metadata = pq.read_schema(questions).metadata
    frame = questions_frame().assign(statistics="mine", documents=[1, 2])
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(metadata), questions)
    for part in ("", ".questions", ".rivals"):
        replace_metadata(path.with_name(f"labels{part}.parquet"), schema_version="1")
    table = LabelTable.read(path)
    assert (len(table), table.statistics, table.documents) == (2, None, None)
    table.write(path)
    assert pq.read_schema(path).metadata[b"corag.schema_version"] == b"2"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"statistics": [[0.5, 2.0], [1.5, 4.0, 5.0]]},
            "statistics of 'b' must be 3 finite numbers .* got 2",
        ),
        ({"statistics": [[0.5, 2.0, np.inf], [1, 4, 5]]}, "statistics of 'b' must be 3 finite .* of which 2 finite"),
        ({"statistics": [[0.5, 2.0, np.nan], [1, 4, 5]]}, "statistics must be lists without null"),
        ({"statistics": ["a", "b"]}, "column statistics must be list"),
        ({"statistics": [None, [1.0, 4.0, 5.0]]}, "statistics of question 'b' is missing"),
        ({"statistics": None}, "belong together, got names .* without the column"),
        ({"chunk_mean": [[0.5], [0.5]]}, "chunk_mean of 'a' must be 2 finite .* .the embedder's dimension., got 1"),
        ({"chunk_mean": [[0.5, np.inf], [0.5, 1]]}, "chunk_mean of 'b' must be 2 finite"),
        ({"documents": [["a"], None]}, "documents of question 'a' is missing"),
        ({"documents": [["a"], ["b", None]]}, "documents must be lists without null"),
        ({"documents": [[1], [2]]}, "column documents must be list"),
    ],
)
def test_unusable_features(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_table(**with_features(**changes))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (None, "belong together, got names None and the column"),
        (["length", "length", "share"], "statistics must be a list of distinct names"),
        ([], "statistics must be a list of distinct names"),
        ("length", "statistics must be a list of distinct names"),
    ],
)
def test_unusable_names_of_statistics(names: Any, message: str) -> None:
    parts = with_features()
    with pytest.raises(InputError, match=message):
        make_table(**{**parts, "fingerprint": {**FINGERPRINT, "statistics": names}})


def test_groups_are_connected_through_others() -> None:
    documents = [["a"], [], ["b", "c"], ["d"], ["c", "a"], [], ["d"]]
    assert connected(documents).tolist() == [0, 1, 0, 2, 0, 3, 2]
    assert connected([]).tolist() == []


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=2), max_size=8))
def test_groups_are_those_of_a_search_through_all_paths(documents: list[list[str]]) -> None:
    numbers = connected(documents).tolist()
    for start in range(len(documents)):
        reached, before = {start}, set()
        while reached != before:
            before = set(reached)
            known = {document for at in reached for document in documents[at]}
            reached |= {at for at, own in enumerate(documents) if known & set(own)}
        assert reached == {at for at, number in enumerate(numbers) if number == numbers[start]}


def test_without_texts() -> None:
    parts = with_features(candidates=[["tower:0"], ["bridge:1"]], note=["secret", "text"])
    table = make_table(**parts, rivals=rivals_frame())
    bare = table.without_texts()
    assert bare.questions["reference"].isna().all() and table.questions["reference"][0] == "yes"
    assert [name for name in table.questions if name not in bare.questions] == ["group", "note"]
    assert bare.fingerprint == table.fingerprint and bare.rivals is not None
    assert bare.rouge().tolist() == table.rouge().tolist() and bare.groups is not None
    for part in (bare.scores, bare.rivals, bare.questions.drop(columns=["candidates", "documents"])):
        texts = part.select_dtypes(exclude="number").drop(columns=["order", "embedding"], errors="ignore")
        held = {value for column in texts for value in texts[column] if isinstance(value, str)}
        assert not held & {"secret", "text", "yes"}
