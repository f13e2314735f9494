"""The page and the Markdown: everything of the run is on it, and no text can break it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import corag_agent.evaluation.report
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report import Contents, contents_of, report_markdown, report_page
from corag_agent.evaluation.report.browser import browser_data, chosen_questions, overlaps
from corag_agent.evaluation.report.cases import cases_of
from corag_agent.evaluation.report.report_table import Column, ReportTable, Row, table_html, table_markdown
from corag_agent.evaluation.report.varied_sections import setting_values, structure_section
from corag_agent.evaluation.summary import structure_table
from tests.corag_agent.evaluation.report_runs import AGENT, RESAMPLES, Experiment, made_run, page_of
from tests.corag_search.test_tree_page import HOSTILE, Reader

FOLDER = Path(corag_agent.evaluation.report.__file__).parent
EVERYTHING = (
    Experiment("main", ("naive_rag", "best_single", "tree", "upper", "hyde", AGENT), chunk_sizes=(64, 96), timed=False),
    Experiment("budgets", ("naive_rag", "tree"), ("bm25",), budgets=(128, 300), timed=False),
    Experiment("c", ("tree",), variants=("exploration=0", "exploration=2.4"), timed=False),
    Experiment("rules", ("tree",), ("bm25",), variants=("final_rule=value", "final_rule=mean"), timed=False),
    Experiment("order", ("tree", "order_reversed", "order_random"), ("bm25",), timed=False),
    Experiment("timing", ("tree", "naive_rag", AGENT), ("bm25",)),
)
NAMED = {"dataset", "run", "method", "reranker", "domain"}
SECTIONS = ["headline", "methods", "by-kind", "by-domain", "budgets", "rerankers", "latency", "settings", "order"]


def rebuilt(run: EvaluationRun, **frames: pd.DataFrame) -> EvaluationRun:
    parts = {name: getattr(run, name) for name in ("records", "questions", "answers", "chunks")}
    return EvaluationRun(**{**parts, **frames}, settings=run.settings)


@pytest.fixture(scope="module")
def full() -> EvaluationRun:
    return made_run({"one": 12, "two": 6}, EVERYTHING, settings={"corag": "0.1.0", "runs": [{"name": "main"}]})


@pytest.fixture(scope="module")
def contents(full: EvaluationRun) -> Contents:
    return contents_of(full, RESAMPLES)


@pytest.fixture(scope="module")
def page(full: EvaluationRun, contents: Contents) -> str:
    return report_page(full, contents=contents)


@pytest.fixture(scope="module")
def hostile() -> EvaluationRun:
    """Hostile texts wherever a run may hold a text from outside."""
    run = made_run({"d": 8}, [Experiment(methods=("naive_rag", "tree", AGENT))])
    texts = list(HOSTILE.values())
    cycled = [texts[i % len(texts)] for i in range(1000)]
    names = {"d": HOSTILE["script"], "bm25": HOSTILE["quotes"], "history": HOSTILE["arabic"], "main": "<i>run</i>"}
    frames: dict[str, pd.DataFrame] = {}
    for part in ("records", "questions", "answers", "chunks"):
        rows = getattr(run, part).copy()
        rows[list(NAMED & set(rows))] = rows[list(NAMED & set(rows))].replace(names)
        for column in ("question", "reference", "answer", "text"):
            if column in rows:
                rows[column] = cycled[: len(rows)]
        for column in ("human_answers", "gold"):
            if column in rows:
                rows[column] = [[text, "😀"] for text in cycled[: len(rows)]]
        frames[part] = rows
    failed = frames["records"]["question_id"] == "q0007"
    frames["records"].loc[failed, "error"] = HOSTILE["script"]
    return EvaluationRun(**frames, settings={HOSTILE["script"]: {"a": HOSTILE["quotes"]}, "b": HOSTILE["script"]})


@pytest.fixture(scope="module")
def hostile_contents(hostile: EvaluationRun) -> Contents:
    return contents_of(hostile, RESAMPLES)


# ---- the page ----


def test_every_section_is_there_and_linked(page: str) -> None:
    read = Reader(page)
    ids = [value for name, value in read.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    links = [(value or "")[1:] for name, value in read.attributes if name == "href"]
    assert links == [*SECTIONS, "names", "cases", "questions", "configuration"]
    assert set(links) <= set(ids)
    labels = [value for name, value in read.attributes if name == "aria-labelledby"]
    assert set(labels) <= set(ids)


def test_tables_and_plots_are_accessible(page: str) -> None:
    read = Reader(page)
    assert read.tags.count("table") == read.tags.count("caption") > 10
    heads = re.findall(r"<th[ >][^>]*>", page.split('<script id="data"')[0])
    assert heads and all("scope=" in head for head in heads)
    plots = re.findall(r"<svg[^>]*>", page.split('<script id="data"')[0])
    assert plots and all(re.search('aria-hidden="true"|role="img" aria-label="[^"]', plot) for plot in plots)
    panes = re.findall(r'<div class="pane"[^>]*>', page)
    assert panes and all('tabindex="0"' in pane and "aria-label=" in pane for pane in panes)
    assert "<html lang=" in page and "<title>" in page


def test_equal_runs_give_equal_bytes() -> None:
    run, again = (made_run({"d": 6}, [Experiment(methods=("naive_rag", "tree"))]) for _ in range(2))
    shuffled = rebuilt(again, records=again.records.sample(frac=1, random_state=1))
    contents = [contents_of(one, RESAMPLES) for one in (shuffled, run)]
    pages = [report_page(one, contents=own) for one, own in zip((shuffled, run), contents, strict=True)]
    texts = [report_markdown(one, own) for one, own in zip((shuffled, run), contents, strict=True)]
    assert pages[0] == pages[1] and texts[0] == texts[1]


def test_nothing_is_loaded(page: str) -> None:
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|\bsrc=|url\(|@import|fetch\(|innerHTML", page)
    assert not re.search(r"\b(nan|NaN|undefined|None)\b", page.split("<script")[0])


def test_texts_cannot_break_out(hostile: EvaluationRun, hostile_contents: Contents) -> None:
    page = report_page(hostile, contents=hostile_contents)
    read = Reader(page)
    assert read.tags.count("script") == 2
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert "<i>run" not in page and "alert(1)</" not in page.replace("\\u003c/", "")
    assert HOSTILE["script"] in read.texts["bdi"]  # the tile of the data set
    data = json.loads("".join(read.texts["data"]))
    assert {question["question"] for question in data["questions"]} == set(HOSTILE.values())
    assert set(data["texts"]) <= set(HOSTILE.values()) and len(data["texts"]) == len(HOSTILE)
    assert HOSTILE["script"] in data["records"]["error"]


def test_hostile_texts_keep_the_rows_of_markdown_whole(hostile: EvaluationRun, hostile_contents: Contents) -> None:
    text = report_markdown(hostile, hostile_contents)
    assert not re.findall(r"(?<!\\)<(?!/?(?:details|summary)>)", text)
    widths: list[int] = []
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line))
        if cells:
            assert not widths or cells == widths[-1], line
            widths.append(cells)
        else:
            widths.clear()


def test_the_script_finds_its_elements(page: str) -> None:
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    ids = {value for name, value in Reader(page).attributes if name == "id"}
    wanted = set(re.findall(r'byId\("([a-z]+)"\)', script))
    assert wanted and wanted <= ids
    data = json.loads("".join(Reader(page).texts["data"]))
    assert set(re.findall(r"\brecords\.(\w+)", script)) <= set(data["records"])
    assert set(re.findall(r"\bdata\.(\w+)", script)) <= set(data)
    assert set(re.findall(r"\bquestion\.(\w+)", script)) <= set(data["questions"][0])


def test_the_page_s_parts_are_in_the_wheel() -> None:
    project = tomllib.loads((FOLDER.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["corag_agent.evaluation.report"]
    parts = [file.name for file in FOLDER.iterdir() if file.is_file() and file.suffix != ".py"]
    assert sorted(parts) == ["browser.html", "page.css", "page.html", "page.js"]
    assert all(any(fnmatch(part, pattern) for pattern in patterns) for part in parts)


# ---- odd runs ----


@pytest.mark.parametrize(
    ("experiments", "questions"),
    [
        ([Experiment(methods=("tree",), rerankers=("bm25",))], 1),
        ([Experiment(methods=("raptor",))], 1),
        ([Experiment(methods=("naive_rag", "tree"), variants=("exploration=1",))], 2),
        ([Experiment(methods=("naive_rag",), timed=False), Experiment("other", methods=("tree",), timed=False)], 2),
    ],
    ids=["one way", "one without reranker", "a sweep only", "never together"],
)
def test_small_runs(experiments: Sequence[Experiment], questions: int) -> None:
    run = made_run({"d": questions}, experiments)
    contents = contents_of(run, RESAMPLES)
    page, text = report_page(run, contents=contents), report_markdown(run, contents)
    assert "no headline figure" in page and "no headline figure" in text
    assert not re.search(r"\b(nan|None)\b", page.split("<script")[0] + text)
    assert len(json.loads("".join(Reader(page).texts["data"]))["questions"]) == questions


def test_one_question_and_no_optional_scores() -> None:
    run = made_run({"d": 1})
    records = run.records.copy()
    for name in records.filter(regex="^(seconds_|human_|token_f1|exact|gold_recall)"):
        records[name] = np.nan
    bare = rebuilt(run, records=records)
    page = page_of(bare)
    assert "One question gives no interval" in page
    assert 'id="latency"' not in page and "human" not in "".join(Reader(page).texts["th"])


@pytest.mark.parametrize("questions", [1, 2])
def test_a_single_question_s_structure_has_no_interval(questions: int) -> None:
    names = ("dataset", "run", "reranker", "chunk_size", "budget", "candidates", "pairs", "additive", "worse_than_best")
    row = dict(zip(names, ("d", "main", "bm25", 96, 300, 3, 4, 1, 2), strict=True))
    row |= {"order_matters": 4, "best_is_largest": False, "best_chunks": 2}
    rows = pd.DataFrame([row | {"question_id": f"q000{number}"} for number in range(questions)])
    run = rebuilt(made_run({"d": 2}), structure=rows)
    section = structure_section(structure_table(run))
    assert section is not None
    (cells,) = (each.cells for each in section.tables[0].rows)
    ends = "–" if questions == 1 else "100.0 to 100.0 %"
    assert cells == ("bm25", str(questions), "75.0 %", "50.0 %", "100.0 %", "100.0 %", ends, "2.0")


def test_a_run_whose_every_question_failed() -> None:
    run = made_run({"d": 3}, [Experiment(methods=("naive_rag", "tree"))])
    records = run.records.assign(error="the server hung up")
    page = page_of(rebuilt(run, records=records))
    assert "the server hung up" in page and "no headline figure" in page


def test_failures_are_counted_and_named() -> None:
    run = made_run({"d": 6}, [Experiment(methods=("naive_rag", "tree"))])
    records = run.records.copy()
    ways = (records["method"] == "tree") & (records["reranker"] == "bm25")
    bad = ways & records["question_id"].isin(["q0001", "q0002"])
    records.loc[bad, "error"] = ["first", "second"]
    contents = contents_of(rebuilt(run, records=records), RESAMPLES)
    (section,) = (section for section in contents.sections if section.anchor == "failures")
    assert section.tables[0].rows == (Row(("tree search · bm25", "2", "q0001: first"), "d (main)"),)
    assert contents.facts["failed"] == "2"


def test_without_texts_the_page_says_so(full: EvaluationRun, contents: Contents) -> None:
    blank = rebuilt(
        full,
        questions=full.questions.assign(question="", reference=""),
        answers=full.answers.assign(answer=""),
        chunks=full.chunks.assign(text=""),
    )
    page = report_page(blank, contents=replace(contents, cases=cases_of(blank)))
    assert page.count("This run has no texts") == 2 and 'id="data"' not in page and 'id="methods"' in page
    assert "<article>" not in page and "Answer</b>" not in page


# ---- the browser's data ----


def test_the_data_are_the_records(full: EvaluationRun) -> None:
    data = json.loads(browser_data(full))
    columns = data["records"]
    assert {len(column) for column in columns.values()} == {len(full.records)}
    answers = full.answers.set_index([name for name in full.answers if name != "answer"])["answer"]
    found = {}
    for i in range(len(full.records)):
        question = data["questions"][columns["question"][i]]
        run, size, budget = data["settings"][columns["setting"][i]]
        _, method, reranker, variant = data["ways"][columns["way"][i]]
        key = (question["dataset"], question["question_id"], run, method, reranker, size, budget, variant)
        chunks = [data["chunks"][number] for number in columns["chunks"][i]]
        found[key] = (columns["rougeL"][i], columns["tokens"][i], data["answers"][columns["answer"][i]], chunks)
    assert len(found) == len(full.records)
    texts, costs = (full.chunks.set_index(["dataset", "chunk_size", "chunk_id"])[name] for name in ("text", "cost"))
    for row in full.records.to_dict("records"):
        key = tuple(row[name] for name in answers.index.names)
        rouge, tokens, answer, chunks = found[key]
        assert (rouge, tokens, answer) == (round(row["rougeL"], 3), row["prompt_tokens"], answers[key])
        assert [name for name, _, _ in chunks] == list(row["chunk_ids"])  # in the prompt's order
        keys = [(row["dataset"], row["chunk_size"], name) for name in row["chunk_ids"]]
        assert [data["texts"][text] for _, text, _ in chunks] == [texts[key] for key in keys]
        assert [cost for _, _, cost in chunks] == [costs[key] for key in keys]
    assert data["settings"][data["start"]] == ["main", 96, 300]


def test_gold_chunks_are_those_with_gold_text() -> None:
    run = made_run({"d": 10}, [Experiment(methods=("naive_rag", "tree"))])
    data = json.loads(browser_data(run))
    marked = 0
    for question, chunks in zip(data["questions"], data["gold"], strict=True):
        used = {
            number
            for row, place in zip(data["records"]["chunks"], data["records"]["question"], strict=True)
            if data["questions"][place] is question
            for number in row
        }
        held = {number for number in used if data["texts"][data["chunks"][number][1]] in question["gold"]}
        assert set(chunks) == held
        marked += len(held)
    assert marked


LONG = "The Eiffel Tower in Paris is 330 metres tall. It was built by the company of Gustave Eiffel."


@pytest.mark.parametrize(
    ("chunk", "passage", "shared"),
    [
        (LONG, LONG[10:60], True),
        (LONG[10:60], LONG, True),
        (LONG[:60], LONG[30:], True),
        (LONG[30:], LONG[:60], True),
        (LONG[:40], LONG[40:], False),
        (LONG[:50], LONG[46:], False),  # four letters are chance
        ("", LONG, False),
        (LONG, "", False),
    ],
)
def test_overlap(chunk: str, passage: str, shared: bool) -> None:
    assert overlaps(chunk, passage) is shared


@pytest.mark.parametrize(("limit", "places"), [(None, 18), (100, 18), (6, 6), (1, 1)])
def test_a_part_of_the_questions_is_spread_evenly(
    full: EvaluationRun, contents: Contents, limit: int | None, places: int
) -> None:
    chosen = chosen_questions(full, limit)
    assert len(chosen) == places and not chosen.index.has_duplicates
    if limit == 6:
        assert chosen["dataset"].tolist() == ["one"] * 4 + ["two"] * 2
        data = json.loads(browser_data(full, limit))
        assert len(data["questions"]) == 6 and set(data["records"]["question"]) == set(range(6))
        assert "6 of 18 questions" in report_page(full, limit, contents)


# ---- tables ----

TABLE = ReportTable(
    "What <it> shows",
    (Column("name", numeric=False), Column("a", "left"), Column("b", "left"), Column("c")),
    (Row(("x|y", "1", "2", "3"), "first"), Row(("*z*", "4", "5", "6"), "second", frozenset({2}))),
    "A note.",
)


def test_a_table_as_html() -> None:
    html = table_html(TABLE)
    assert "<caption>What &lt;it&gt; shows</caption>" in html
    assert '<th scope="colgroup" colspan="2">left</th>' in html
    assert html.count('rowspan="2"') == 2  # of name and of c, which have no group
    assert html.count('<th scope="rowgroup" colspan="4">') == 2
    assert '<th scope="row">*z*</th><td class="number">4</td><td class="number"><strong>5</strong></td>' in html


def test_a_table_as_markdown() -> None:
    assert table_markdown(TABLE).splitlines() == [
        r"**What \<it\> shows**",
        "",
        "| name | left a | left b | c |",
        "| --- | ---: | ---: | ---: |",
        "| **first** |  |  |  |",
        r"| x\|y | 1 | 2 | 3 |",
        "| **second** |  |  |  |",
        r"| \*z\* | 4 | **5** | 6 |",
        "",
        "A note.",
    ]


def test_both_forms_have_the_same_numbers(full: EvaluationRun, contents: Contents, page: str) -> None:
    text = report_markdown(full, contents)
    tables = [table for section in contents.sections for table in section.tables]
    assert len(tables) > 15
    for table in tables:
        assert table_html(table) in page and table_markdown(table) in text
        for row in table.rows:
            assert len(row.cells) == len(table.columns)


@pytest.mark.parametrize(
    ("variants", "values"),
    [
        (["a=1", "a=0.5"], ("a", [1.0, 0.5])),
        (["a=x", "a=y"], None),
        (["a=1", "b=2"], None),
        (["a=1,b=2", "a=2,b=2"], None),
    ],
)
def test_a_sweep_over_numbers_is_known(variants: list[str], values: Any) -> None:
    assert setting_values(variants) == values
