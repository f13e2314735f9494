"""The question browser in a real browser: filters, search, and what an opened question shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from corag_agent.evaluation.records import EvaluationRun
from tests.corag_agent.evaluation.report_runs import AGENT, Experiment, made_run, page_of
from tests.corag_search.test_tree_page import HOSTILE

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

# What a reader does, and what the page shows then.
STEPS = """
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("securitypolicyviolation", (event) => errors.push(event.violatedDirective));
const byId = (name) => document.getElementById(name);
const titles = () => [...document.querySelectorAll("#list .question")].map((one) => one.textContent);
const gains = () => [...document.querySelectorAll("#list .gain")].map((one) => one.textContent);
const set = (name, value) => {
  byId(name).value = value;
  byId(name).dispatchEvent(new Event("input", { bubbles: true }));
};
addEventListener("load", async () => {
  const seen = { start: byId("found").textContent, first: titles(), setting: byId("setting").selectedOptions[0].text };
  seen.way = byId("way").selectedOptions[0].text;
  seen.against = byId("baseline").selectedOptions[0].text;
  byId("more").click();
  seen.more = titles().length;
  set("sort", "gain");
  seen.gains = gains();
  set("outcome", "loss");
  seen.losses = gains();
  set("outcome", "failed");
  seen.failed = titles();
  set("outcome", "all");
  set("sort", "given");
  set("kind", "compound");
  seen.compound = titles();
  set("kind", "");
  set("search", "TALL q0007");
  seen.searched = titles();
  const details = document.querySelector("#list details");
  details.open = true;
  await new Promise((done) => setTimeout(done, 100));
  const cards = () => [...details.querySelectorAll("article")];
  seen.cards = cards().map((card) => card.querySelector("h3").textContent);
  seen.chunks = [...cards()[0].querySelectorAll(".chunks .text")].map((text) => text.textContent);
  seen.gold = [...cards()[0].querySelectorAll(".chunks li")].map((item) => item.className);
  seen.lines = details.querySelectorAll("tbody tr").length;
  const buttons = [...details.querySelectorAll("tbody button")];
  buttons.find((button) => button.getAttribute("aria-pressed") === "false").click();
  seen.added = cards().length;
  buttons.forEach((button) => button.getAttribute("aria-pressed") === "true" && button.click());
  seen.removed = cards().length;
  set("search", "");
  set("setting", "1");
  seen.other = byId("found").textContent;
  seen.errors = errors;
  const out = document.createElement("pre");
  out.id = "seen";
  out.textContent = JSON.stringify(seen);
  document.body.append(out);
});
"""


def seen_in(page: str, folder: Path) -> dict[str, Any]:
    """Open the page, do `STEPS`, and return what was seen."""
    file = folder / "page.html"
    file.write_text(page.replace("</head>", f"<script>{STEPS}</script></head>"), encoding="utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command = [str(CHROMIUM), *options, "--virtual-time-budget=5000", "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-2000:]
    return json.loads(unescape(found[1]))


@pytest.fixture(scope="module")
def run() -> EvaluationRun:
    experiments = [
        Experiment(methods=("naive_rag", "tree", AGENT), rerankers=("bm25",)),
        Experiment("other", methods=("naive_rag", "tree"), rerankers=("bm25",)),
    ]
    made = made_run({"d": 45}, experiments)
    records = made.records.copy()
    bad = (records["question_id"] == "q0011") & (records["method"] == AGENT)
    records.loc[bad, "error"] = "timed out"
    chunks = made.chunks.copy()
    texts = list(HOSTILE.values())
    chunks["text"] = [f"{text} {texts[i % len(texts)]}" for i, text in enumerate(chunks["text"])]
    return EvaluationRun(records, made.questions, made.answers, chunks, settings=made.settings)


@pytest.fixture(scope="module")
def seen(run: EvaluationRun, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return seen_in(page_of(run), tmp_path_factory.mktemp("browser"))


def gains_of(run: EvaluationRun) -> dict[str, float]:
    main = run.succeeded[run.succeeded["run"] == "main"].set_index(["method", "question_id"])["rougeL"].round(3)
    return (main[AGENT] - main["naive_rag"]).dropna().to_dict()


def test_it_begins_with_the_headline_s_setting(run: EvaluationRun, seen: Mapping[str, Any]) -> None:
    assert not seen["errors"]
    assert seen["setting"] == "main · chunks of 96 · budget 300"
    assert (seen["way"], seen["against"]) == ("tree search with agent", "NaiveRAG · bm25")
    gains = gains_of(run)
    wins, losses = (sum(sign * gain > 0.0005 for gain in gains.values()) for sign in (1, -1))
    start = f"45 of 45 questions: {wins} wins, {44 - wins - losses} tie, {losses} losses, mean difference "
    assert seen["start"].startswith(start)
    assert float(seen["start"].removeprefix(start)) == pytest.approx(sum(gains.values()) / 44, abs=0.0006)


def test_questions_are_added_bit_by_bit_and_in_order(seen: Mapping[str, Any]) -> None:
    assert seen["first"] == [f"How tall is the tower number {number}?" for number in range(40)]
    assert seen["more"] == 45


def test_filters_and_order(run: EvaluationRun, seen: Mapping[str, Any]) -> None:
    def shown(texts: list[str]) -> list[float]:
        return [float(text.split("(")[1].strip(")").replace("−", "-")) for text in texts if "(" in text]

    expected = sorted(gains_of(run).values(), reverse=True)
    assert shown(seen["gains"]) == pytest.approx(expected[:40], abs=1e-9)
    assert shown(seen["losses"]) == pytest.approx([gain for gain in expected if gain < -0.0005], abs=1e-9)
    assert seen["failed"] == ["How tall is the tower number 11?"]
    assert seen["compound"] == [f"How tall is the tower number {number}?" for number in range(3, 45, 4)]
    assert seen["searched"] == ["How tall is the tower number 7?"]  # all of its words, whatever their case


def test_an_opened_question_shows_what_was_chosen(run: EvaluationRun, seen: Mapping[str, Any]) -> None:
    record = run.records[(run.records["question_id"] == "q0007") & (run.records["run"] == "main")]
    own = record[record["method"] == AGENT].iloc[0]
    texts = run.chunks.set_index(["chunk_size", "chunk_id"])["text"]
    assert seen["cards"] == ["tree search with agent", "NaiveRAG · bm25"]
    assert seen["chunks"] == [texts[96, name] for name in own["chunk_ids"]]
    gold = run.questions.set_index("question_id")["gold"]["q0007"][0]
    assert [kind == "gold" for kind in seen["gold"]] == [gold in text for text in seen["chunks"]]
    assert (seen["lines"], seen["added"], seen["removed"]) == (3, 3, 0)


def test_another_setting_has_its_own_methods(seen: Mapping[str, Any]) -> None:
    assert seen["other"].startswith("45 of 45 questions: ")
    assert seen["other"] != seen["start"]
