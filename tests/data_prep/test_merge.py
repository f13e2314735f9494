"""Tables of several runs and data sets in one."""

from __future__ import annotations

import itertools
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from corag_search.errors import InputError
from data_prep.dataset import Dataset, Document
from data_prep.grid import LabelGrid
from data_prep.merge import labelled_in, merge_tables
from data_prep.selection import choose_labels
from data_prep.table import LabelTable

SHARED = "moved to the split of others that share their documents"
GRID = LabelGrid(exploration=(0.0, 1.0), cost_coefficient=(0.1,), iterations=(5,))
RERANKERS = ["z", "a"]


def make_table(
    scores: dict[str, float], data: str = "wiki", fingerprint: str = "w1", samples: int = 1, **changes: Any
) -> LabelTable:
    """A table of question → what reranker z reaches everywhere; a reaches half of it."""
    rows, rivals, repeats = [], [], []
    for question, score in scores.items():
        for number, reranker in enumerate(RERANKERS):
            reached = dict.fromkeys(("rouge1", "rouge2", "rougeL"), score / (number + 1))
            outcome = {"order": [number], "prompt_tokens": 9, "value": 0.5, **reached}
            rows += [{"question_id": question, "reranker": reranker, **p._asdict(), **outcome} for p in GRID]
            rivals.append({"question_id": question, "method": "naive_rag", "reranker": reranker, **outcome})
            for sample in range(samples):
                of_order = {"question_id": question, "order": [number], "reference": "llm", "sample": sample}
                repeats.append(of_order | reached)
    common = {"domain": data, "kind": "k", "language": "en", "split": "train", "reference": "r"}
    questions = [{"question_id": q, **common, "embedding": [score]} for q, score in scores.items()]
    return LabelTable(
        pd.DataFrame(rows),
        pd.DataFrame(questions),
        {
            "embedder": {"name": "toy", "dimension": 1, "fingerprint": "x"},
            "grid": GRID.to_dict(),
            "rerankers": RERANKERS,
            "prompt": "p",
            "data": {"name": data, "fingerprint": fingerprint},
            **changes,
        },
        pd.DataFrame(rivals),
        pd.DataFrame(repeats) if samples > 1 else None,
    )


def ids(table: LabelTable) -> list[str]:
    return list(table.questions["question_id"])


def best_scores(table: LabelTable) -> dict[str, float]:
    return dict(zip(ids(table), table.rouge().max(axis=(1, 2, 3, 4)).tolist(), strict=True))


def test_runs_over_the_same_data_become_one_table(tmp_path: Path) -> None:
    whole = make_table({"q1": 0.2, "q2": 0.4, "q3": 0.6}, samples=2)
    merged = merge_tables(
        [make_table({"q1": 0.2, "q2": 0.4}, samples=2), make_table({"q2": 0.4, "q3": 0.6}, samples=2)]
    )
    assert merged.fingerprint == whole.fingerprint
    for table, name in ((whole, "whole"), (merged, "merged")):
        table.write(tmp_path / f"{name}.parquet")
    for part in ("", ".questions", ".rivals", ".repeats"):
        assert (tmp_path / f"whole{part}.parquet").read_bytes() == (tmp_path / f"merged{part}.parquet").read_bytes()


def test_a_question_without_reference_equals_itself() -> None:
    table = make_table({"q1": 0.2})
    bare = LabelTable(table.scores, table.questions.assign(reference=None), table.fingerprint)
    assert ids(merge_tables([bare, bare])) == ["q1"]
    with pytest.raises(InputError, match="other questions"):
        merge_tables([bare, LabelTable(table.scores, table.questions, table.fingerprint)])


def test_data_sets_keep_apart_the_ids_that_they_share() -> None:
    english = make_table({"q1": 0.2, "q2": 0.4}, "xquad.en", "e")
    chinese = make_table({"q1": 0.9}, "xquad.zh", "z")
    merged = merge_tables([english, chinese])
    assert best_scores(merged) == {"xquad.en/q1": 0.2, "xquad.en/q2": 0.4, "xquad.zh/q1": 0.9}
    assert merged.fingerprint["data"]["name"] == "xquad.en+xquad.zh"
    assert merged.fingerprint["data"]["parts"] == [english.fingerprint["data"], chinese.fingerprint["data"]]
    assert merged.rivals is not None and set(merged.rivals["question_id"]) == set(ids(merged))
    assert choose_labels(merged).domains == ("xquad.en", "xquad.en", "xquad.zh")
    assert np.array_equal(merged.embeddings[:, 0], np.float32([0.2, 0.4, 0.9]))


def test_the_questions_that_a_table_has_of_a_data_set(tmp_path: Path) -> None:
    wiki, other = ((Dataset(name, (Document(name, "text"),), ())) for name in ("wiki", "other"))
    fingerprints = wiki.fingerprint, other.fingerprint
    tables = [make_table({"q1": 0.2}, "wiki", fingerprints[0]), make_table({"q2": 0.4}, "other", fingerprints[1])]
    path, merged = tmp_path / "one.parquet", tmp_path / "both.parquet"
    tables[0].write(path)
    merge_tables(tables).write(merged)
    assert labelled_in(path, wiki) == labelled_in(merged, wiki) == {"q1"}
    assert labelled_in(merged, other) == {"q2"}
    with pytest.raises(InputError, match=rf"one.parquet has no question of other \({fingerprints[1]}\) but of wiki"):
        labelled_in(path, other)
    renamed = Dataset("wiki", (Document("wiki", "another text"),), ())
    with pytest.raises(InputError, match="has no question of wiki"):
        labelled_in(merged, renamed)


def test_merging_is_associative() -> None:
    one, two, three = (make_table({"q": n / 10}, f"d{n}", f"f{n}") for n in (1, 2, 3))
    at_once = merge_tables([one, two, three])
    in_turn = merge_tables([merge_tables([one, two]), three])
    assert in_turn.fingerprint == at_once.fingerprint
    assert best_scores(in_turn) == best_scores(at_once) == {"d1/q": 0.1, "d2/q": 0.2, "d3/q": 0.3}


def test_one_table_stays_as_it_is() -> None:
    table = make_table({"q1": 0.2})
    assert merge_tables([table]).fingerprint == table.fingerprint
    assert ids(merge_tables([table])) == ["q1"]


def test_the_fingerprint_does_not_depend_on_the_order() -> None:
    one, two = make_table({"q": 0.1}, "d1", "f1"), make_table({"q": 0.1}, "d2", "f2")
    there, back = merge_tables([one, two]).fingerprint, merge_tables([two, one]).fingerprint
    assert there["data"]["fingerprint"] == back["data"]["fingerprint"]


def test_without_rivals_in_one_table_there_are_none() -> None:
    table = make_table({"q2": 0.1})
    bare = LabelTable(table.scores, table.questions, table.fingerprint)
    assert merge_tables([make_table({"q1": 0.2}), bare]).rivals is None


def test_other_settings_are_refused_by_name() -> None:
    first = make_table({"q1": 0.2})
    with pytest.raises(InputError, match="table 3 cannot join the first: their fingerprints differ in prompt;"):
        merge_tables([first, first, make_table({"q2": 0.2}, prompt="other")])
    with pytest.raises(InputError, match="differ in scoring"):
        merge_tables([first, make_table({"q2": 0.2}, scoring={"references": ["human"], "samples": 1})])
    with pytest.raises(InputError, match="no label tables"):
        merge_tables([])


@pytest.mark.parametrize("fingerprint", ["w1", "w2"])
def test_one_question_with_two_labels_is_refused(fingerprint: str) -> None:
    with pytest.raises(InputError, match=r"question '(wiki/)?q1' has other questions in one table than in another"):
        merge_tables([make_table({"q1": 0.2}), make_table({"q1": 0.3}, fingerprint=fingerprint)])


def with_features(table: LabelTable, documents: list[list[str]], names: tuple[str, ...] = ("length",)) -> LabelTable:
    questions = table.questions.assign(
        documents=documents,
        statistics=[[float(len(documents))] * len(names)] * len(table),
        chunk_mean=[[0.5]] * len(table),
    )
    fingerprint = {**table.fingerprint, "statistics": list(names)}
    return LabelTable(table.scores, questions, fingerprint, table.rivals, table.repeats)


def test_features_are_kept_and_an_article_s_languages_are_one_group() -> None:
    english = with_features(make_table({"q1": 0.2, "q2": 0.4}, "xquad.en", "e"), [["Steam engine"], ["Oxygen"]])
    chinese = with_features(make_table({"q1": 0.9, "q3": 0.1}, "xquad.zh", "z"), [["Steam engine"], ["Oxygen"]])
    others = with_features(make_table({"q1": 0.3, "q4": 0.3}, "covidqa", "c"), [["covidqa/7"], ["covidqa/8"]])
    merged = merge_tables([english, chinese, others])
    assert merged.statistic_names == ("length",)
    assert merged.statistics is not None and merged.chunk_means is not None and merged.groups is not None
    assert merged.statistics.tolist() == [[2.0]] * 6 and merged.chunk_means.tolist() == [[0.5]] * 6
    groups = dict(zip(ids(merged), merged.groups.tolist(), strict=True))
    assert groups["xquad.en/q1"] == groups["xquad.zh/q1"] != groups["covidqa/q1"]
    assert groups["xquad.en/q2"] == groups["xquad.zh/q3"]
    assert len(set(groups.values())) == 4
    assert merge_tables([merge_tables([english, chinese]), others]).fingerprint == merged.fingerprint


def test_features_that_a_table_lacks_are_lost_and_nothing_else() -> None:
    old = make_table({"q1": 0.2})
    new = with_features(make_table({"q1": 0.2, "q2": 0.4}), [["d"], ["e"]])
    merged = merge_tables([old, new])
    assert ids(merged) == ["q1", "q2"] and merged.fingerprint == old.fingerprint
    assert (merged.statistics, merged.chunk_means, merged.documents) == (None, None, None)
    other = with_features(make_table({"q3": 0.4}), [["f"]], names=("length", "spread"))
    merged = merge_tables([new, other])
    assert (merged.statistics, merged.statistic_names) == (None, ())
    assert merged.documents == [("d",), ("e",), ("f",)] and merged.chunk_means is not None


def split_table(data: str, rows: dict[str, tuple[str, list[str]]]) -> LabelTable:
    """A table of question → its split and documents."""
    table = make_table(dict.fromkeys(rows, 0.5), data, data)
    splits, documents = zip(*(rows[name] for name in ids(table)), strict=True)
    questions = table.questions.assign(split=splits, documents=list(documents))
    return LabelTable(table.scores, questions, table.fingerprint)


def splits_of(table: LabelTable) -> dict[str, str]:
    return dict(zip(ids(table), table.questions["split"], strict=True))


ENGLISH = {
    "steam": ("test", ["Steam engine"]),
    "oxygen": ("val", ["Oxygen"]),
    "huguenot": ("train", ["Huguenot"]),
    "force": ("train", ["Force"]),
}
CHINESE = {
    "steam": ("train", ["Steam engine"]),
    "steam2": ("train", ["Steam engine"]),
    "oxygen": ("train", ["Oxygen"]),
    "force": ("train", ["Force"]),
    "rhine": ("test", ["Rhine"]),
}


def test_a_document_s_questions_of_all_languages_come_into_one_split() -> None:
    with pytest.warns(UserWarning, match=f"^3 of 9 questions {SHARED} .* the first is 'zh/oxygen'"):
        merged = merge_tables([split_table("en", ENGLISH), split_table("zh", CHINESE)])
    # Three train questions against one test question, and still they test: English has held that article out.
    assert splits_of(merged) == {
        "en/force": "train",
        "en/huguenot": "train",
        "en/oxygen": "val",
        "en/steam": "test",
        "zh/force": "train",
        "zh/oxygen": "val",
        "zh/rhine": "test",
        "zh/steam": "test",
        "zh/steam2": "test",
    }


def test_documents_that_a_compound_question_joins_are_held_out_together() -> None:
    one = split_table("en", {"a": ("train", ["A"]), "b": ("train", ["B"]), "c": ("train", ["C"])})
    other = split_table("zh", {"both": ("train", ["B", "A"]), "b": ("train", ["B"])})
    third = split_table("de", {"a": ("val", ["A"])})
    with pytest.warns(UserWarning, match="^4 of 6 questions"):
        assert splits_of(merge_tables([one, other, third])) == {
            **dict.fromkeys(("de/a", "en/a", "en/b", "zh/b", "zh/both"), "val"),
            "en/c": "train",
        }


def test_where_nothing_is_divided_nothing_moves() -> None:
    table = split_table("en", ENGLISH)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merged = merge_tables([table, split_table("zh", {"rhine": ("test", ["Rhine"])})])
    assert splits_of(merged) == {**{f"en/{name}": split for name, (split, _) in ENGLISH.items()}, "zh/rhine": "test"}


def test_documents_are_seen_even_where_another_table_makes_them_lost() -> None:
    bare = make_table({"q": 0.2}, "old", "old")
    with pytest.warns(UserWarning, match="^3 of 10 questions"):
        merged = merge_tables([split_table("en", ENGLISH), bare, split_table("zh", CHINESE)])
    assert merged.documents is None and splits_of(merged)["zh/steam"] == "test"


def test_a_merged_table_takes_its_parts_again_and_mends_what_was_divided_before() -> None:
    english, chinese = split_table("en", ENGLISH), split_table("zh", CHINESE)
    with pytest.warns(UserWarning, match="^3 of 9"):
        merged = merge_tables([english, chinese])
    parts = {"en": ENGLISH, "zh": CHINESE}
    first = {f"{data}/{name}": split for data, rows in parts.items() for name, (split, _) in rows.items()}
    before = merged.questions.assign(split=[first[name] for name in ids(merged)])
    old = LabelTable(merged.scores, before, merged.fingerprint)  # as such tables were written before
    for tables, moved in (
        ([merged], 0),
        ([merged, merged], 0),
        ([chinese, merged], 3),
        ([merged, chinese], 3),
        ([old], 3),
        ([old, merged], 3),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            again = merge_tables(tables)
        assert again.questions.equals(merged.questions)
        assert [str(one.message).split(" questions ")[0] for one in caught] == [f"{moved} of 9"] * bool(moved)


@pytest.mark.parametrize("seed", range(3))
def test_splits_depend_on_neither_order_nor_turns_and_divide_no_document(seed: int) -> None:
    draw = random.Random(seed)

    def row() -> tuple[str, list[str]]:
        return draw.choice(("train", "val", "test")), draw.sample("ABCDEFGHIJKLMNOPQRSTUVWX", draw.randrange(3))

    parts = [[row() for _ in range(6)] for _ in range(3)]
    tables = [split_table(f"d{n}", {f"q{i}": row for i, row in enumerate(rows)}) for n, rows in enumerate(parts)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merged = merge_tables(tables)
        for one, two, three in (tables, tables[::-1], tables[1:] + tables[:1]):
            assert splits_of(merge_tables([one, two, three])) == splits_of(merged)
            assert splits_of(merge_tables([one, merge_tables([two, three])])) == splits_of(merged)
        assert splits_of(merge_tables([merged])) == splits_of(merged)
    splits = splits_of(merged)
    assert merged.documents is not None
    names = ids(merged)
    for one, other in itertools.combinations(range(len(names)), 2):
        if set(merged.documents[one]) & set(merged.documents[other]):
            assert splits[names[one]] == splits[names[other]]
    # What `corag evaluate` knows as a test question of a data set by itself is one still.
    assert all(
        splits[f"d{n}/q{i}"] == "test" for n, rows in enumerate(parts) for i, (s, _) in enumerate(rows) if s == "test"
    )
