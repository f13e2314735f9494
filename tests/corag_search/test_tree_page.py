"""The picture of a search: every node in its place, true numbers, and texts that cannot break the page."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
import xml.etree.ElementTree as ElementTree
from fnmatch import fnmatch
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path

import pytest

import corag_search.tree_page
from corag_search import Chunk, SearchConfig, search_policy_tree
from corag_search.policy_tree.trace import SearchTrace, TraceNode
from corag_search.result import SearchResult
from corag_search.tree_page import tree_page
from corag_search.tree_page.curve import best_by_iteration
from corag_search.tree_page.drawing import DOT, SHADES, shade, shade_range, tree_svg
from corag_search.tree_page.layout import CARD, COLUMN, DOTS_PER_ROW, MARGIN, NAMED, ROOT, Layout, lay_out
from tests.corag_search.scripted import RandomScores, Scripted, chunks_of

FOLDER = Path(corag_search.tree_page.__file__).parent


def traced(result: SearchResult) -> SearchTrace:
    assert result.trace is not None
    return result.trace


def random_search(seed: int, order_sensitive: bool, k: int = 20, iterations: int = 40) -> SearchResult:
    chunks = [Chunk(f"c{i}", f"text {i}", 5 + (7 * i + seed) % 11) for i in range(k)]
    config = SearchConfig(iterations=iterations, budget=60, max_chunks=4)
    return search_policy_tree("q", chunks, RandomScores(seed, order_sensitive), config, trace=True)


@pytest.fixture(scope="module", params=[(1, True), (2, False), (3, False)], ids=["orders", "sets", "sets too"])
def searched(request: pytest.FixtureRequest) -> SearchResult:
    return random_search(*request.param)


# ---- layout ----


def test_a_small_tree_worked_out_by_hand() -> None:
    """Three iterations: root, b, ba. Chosen is ba; a and c, and bc, remain dots."""
    scores = {"a": 0.3, "b": 0.6, "c": 0.2, "ba": 0.9, "bc": 0.5, "bac": 0.1}
    config = SearchConfig(iterations=3, budget=10, exploration=0, cost_coefficient=0, max_chunks=3)
    trace = traced(search_policy_tree("q", chunks_of(a=1, b=1, c=1), Scripted(scores), config, trace=True))
    assert [node.order for node in trace.nodes] == [(0,), (1,), (2,), (1, 0), (1, 2), (1, 0, 2)]

    layout = lay_out(trace)
    assert layout.path == (ROOT, 1, 3)
    assert layout.cards == {
        ROOT: (MARGIN, MARGIN),
        1: (MARGIN + COLUMN, MARGIN),
        3: (MARGIN + 2 * COLUMN, MARGIN),
    }
    assert layout.packs == {ROOT: [0, 2], 1: [4], 3: [5]}
    # Few enough for labels: level with the middle of the parent's card, or of the row below its cards.
    assert layout.dots[5] == (MARGIN + 3 * COLUMN + 7, MARGIN + 17)
    assert layout.dots[4] == (MARGIN + 2 * COLUMN + 7, MARGIN + 34 + 10 + 17)
    assert [x for x, _ in (layout.dots[0], layout.dots[2])] == [MARGIN + COLUMN + 7, MARGIN + COLUMN + 7 + 84]
    assert layout.dots[0][1] == layout.dots[2][1] > layout.dots[4][1]


def test_a_deep_tree_is_laid_out() -> None:
    """Deeper than Python's recursion goes."""
    depth = 1500
    nodes = tuple(
        TraceNode(
            order=tuple(range(i + 1)) if i < 3 else (i,), parents=(i - 1,), iteration=i + 1, expanded=i + 2, score=0.5,
            cost=1, objective=0.5, visits=1, average=0.5, utility=0.5,
        )
        for i in range(depth)
    )  # fmt: skip
    trace = SearchTrace("q", "r", SearchConfig(), tuple(chunks_of(a=1)), nodes, depth - 1, (0,))
    layout = lay_out(trace)
    assert layout.cards[depth - 1] == (MARGIN + depth * COLUMN, MARGIN)
    assert layout.height == MARGIN + CARD[1] + MARGIN


def test_most_nodes_as_good_as_the_best_one() -> None:
    """The scale has no width then; what is below has its lowest step."""
    scores = {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5, "e": 0.1}
    config = SearchConfig(iterations=1, budget=10, cost_coefficient=0, max_chunks=1)
    trace = traced(search_policy_tree("q", chunks_of(a=1, b=1, c=1, d=1, e=1), Scripted(scores), config, trace=True))
    low, high = shade_range(trace)
    assert low == high
    assert [shade(node.objective, low, high) for node in trace.nodes] == [SHADES - 1] * 4 + [0]
    assert "<svg" in tree_page(trace)


def boxes(layout: Layout) -> list[tuple[float, float, float, float]]:
    """Left, top, right, bottom of what is drawn."""
    cards = [(x, y, x + CARD[0], y + CARD[1]) for x, y in layout.cards.values()]
    return cards + [(x - DOT, y - DOT, x + DOT, y + DOT) for x, y in layout.dots.values()]


def test_every_node_stands_once_and_apart(searched: SearchResult) -> None:
    trace = traced(searched)
    layout = lay_out(trace)
    assert sorted([*layout.cards, *layout.dots]) == [ROOT, *range(len(trace.nodes))]
    assert set(layout.cards) == {i for i, n in enumerate(trace.nodes) if n.expanded or i == trace.chosen} | {ROOT}
    for one, other in combinations(boxes(layout), 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    for left, top, right, bottom in boxes(layout):
        assert left >= 0 and right <= layout.width and top >= 0 and bottom <= layout.height


def test_a_column_for_each_length_and_the_chosen_path_on_top(searched: SearchResult) -> None:
    trace = traced(searched)
    layout = lay_out(trace)
    for i, (x, _) in layout.cards.items():
        assert x == MARGIN + COLUMN * (0 if i == ROOT else len(trace.nodes[i].order))
    assert {layout.cards[i][1] for i in layout.path} == {MARGIN}
    assert [len(trace.nodes[i].order) for i in layout.path[1:]] == [*range(1, len(searched.order) + 1)]


def test_the_chosen_path_is_on_top_whatever_its_objectives(searched: SearchResult) -> None:
    """As with another final rule; of several parents the path takes the first."""
    trace = traced(searched)
    deep = [i for i, node in enumerate(trace.nodes) if len(node.order) > 2]
    worst = min(deep, key=lambda i: trace.nodes[i].objective)
    several = max(deep, key=lambda i: len(trace.nodes[i].parents))
    for chosen in (worst, several):
        layout = lay_out(dataclasses.replace(trace, chosen=chosen))
        assert {layout.cards[i][1] for i in layout.path} == {MARGIN}
        assert (layout.path[0], layout.path[-1]) == (ROOT, chosen)
        assert all(trace.nodes[child].parents[0] == above for above, child in pairwise(layout.path))


def test_dots_are_packed_best_first(searched: SearchResult) -> None:
    trace = traced(searched)
    layout = lay_out(trace)
    assert max(map(len, layout.packs.values())) > NAMED + 1
    for parent, pack in layout.packs.items():
        assert all(trace.nodes[i].parents[0] == parent for i in pack)
        objectives = [trace.nodes[i].objective for i in pack]
        assert objectives == sorted(objectives, reverse=True)
        reading = sorted(pack, key=lambda i: (layout.dots[i][1], layout.dots[i][0]))
        assert reading == pack


def test_five_hundred_nodes_stay_narrow() -> None:
    trace = traced(random_search(4, order_sensitive=True, k=60, iterations=12))
    assert len(trace.nodes) > 500
    layout = lay_out(trace)
    assert layout.width < 5 * COLUMN + DOTS_PER_ROW * 14 + 2 * MARGIN
    assert layout.height < 100 * 12


# ---- drawing ----


def elements(svg: str) -> dict[str, ElementTree.Element]:
    return {name: e for e in ElementTree.fromstring(svg).iter() if (name := e.get("id")) is not None}


def test_each_node_is_drawn_with_its_line(searched: SearchResult) -> None:
    trace = traced(searched)
    layout = lay_out(trace)
    drawn = elements(tree_svg(trace, layout))
    for i, node in enumerate(trace.nodes):
        text = "".join(drawn[f"n{i}"].itertext())
        if i in layout.cards:
            assert text.startswith(f"χ{node.order[-1] + 1}") and f"N {node.visits}" in text
            # From the right edge of its first parent's card.
            x, y = layout.cards[node.parents[0]]
            assert drawn[f"e{i}"].get("d", "").startswith(f"M{x + CARD[0]:g} {y + CARD[1] / 2:g}H")
        else:
            assert f"e{i}" not in drawn
            assert bool(text) == (i in layout.packs[node.parents[0]][:NAMED])
    assert {f"p{parent}" for parent in layout.packs} == {name for name in drawn if name.startswith("p")}
    chosen = {name for name, e in drawn.items() if "chosen" in (e.get("class") or "").split()}
    assert chosen == {f"{kind}{i}" for i in layout.path[1:] for kind in "ne"}


def test_shades_are_equal_intervals() -> None:
    assert [shade(v, 0.0, 0.9) for v in (-1.0, 0.0, 0.05, 0.15, 0.85, 0.9, 1.0)] == [0, 0, 0, 1, 8, 8, 8]
    assert shade(0.5, 0.5, 0.5) == SHADES - 1


def test_the_scale_begins_at_the_lower_quartile() -> None:
    scores = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4, "e": 0.5}
    config = SearchConfig(iterations=1, budget=10, cost_coefficient=0)
    chunks = chunks_of(a=1, b=1, c=1, d=1, e=1)
    trace = traced(search_policy_tree("q", chunks, Scripted(scores), config, trace=True))
    assert shade_range(trace) == (0.2, 0.5)


# ---- curve ----


def test_the_curve_is_the_search_s_own_account(searched: SearchResult) -> None:
    best = best_by_iteration(traced(searched))
    assert len(best) == searched.iterations
    assert best == [combination.objective for combination in searched.best_after[: searched.iterations]]


def test_a_last_iteration_that_found_nothing_new_is_on_the_curve() -> None:
    """{a, b} is found below a; b's expansion then finds no new set."""
    scores = {"a": 0.9, "b": 0.8, "ab": 0.1}
    config = SearchConfig(iterations=9, budget=10, max_chunks=2)
    result = search_policy_tree("q", chunks_of(a=1, b=1), Scripted(scores, order_sensitive=False), config, trace=True)
    assert result.iterations == 3
    assert len(best_by_iteration(traced(result))) == 3


# ---- page ----

HOSTILE = {
    "script": "</script><script>alert(1)</script><!-- <script>",
    "quotes": "\"double\" 'single' & &amp; <b onload=alert(1)> `tick` ${x} $query $$ \\u003c",
    "arabic": "‏برج إيفل‏ 330 متر",
    "chinese": "光合作用的过程\n\u2028换行",
}


class Reader(HTMLParser):
    """Elements, attributes and texts of a page; texts by id, .class or tag of the element that they stand in."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        named = dict(attrs)
        self._open.append(named.get("id") or (f".{named['class']}" if named.get("class") else tag))

    def handle_endtag(self, tag: str) -> None:
        if self._open:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)


@pytest.fixture(scope="module")
def hostile() -> tuple[SearchTrace, str]:
    chunks = [Chunk(f'id "{name}" <i>', text, 3) for name, text in HOSTILE.items()]
    scores = RandomScores(5, order_sensitive=False)
    scores.name = "<reranker> & co"
    config = SearchConfig(budget=12, iterations=20)
    trace = traced(search_policy_tree(HOSTILE["script"] + HOSTILE["arabic"], chunks, scores, config, trace=True))
    # All four chosen, so that each stands in the list too.
    everything = next(i for i, node in enumerate(trace.nodes) if len(node.order) == 4)
    trace = dataclasses.replace(trace, chosen=everything, order=(3, 1, 0, 2))
    return trace, tree_page(trace)


def test_texts_cannot_break_out(hostile: tuple[SearchTrace, str]) -> None:
    trace, page = hostile
    read = Reader(page)
    assert read.tags.count("script") == 2
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert read.texts[".order"] == ["χ4 χ2 χ1 χ3"]  # as in the prompt, not as found
    assert read.texts["h1"] == [trace.query]
    assert read.texts[".text"] == [trace.candidates[i].text for i in trace.order]
    assert trace.reranker in read.texts["dd"]
    data = json.loads("".join(read.texts["data"]))
    assert [(c["id"], c["text"], c["cost"]) for c in data["candidates"]] == [
        (chunk.id, chunk.text, chunk.cost) for chunk in trace.candidates
    ]


def test_the_data_are_the_trace(searched: SearchResult) -> None:
    trace = traced(searched)
    data = json.loads("".join(Reader(tree_page(trace)).texts["data"]))
    assert (data["chosen"], data["budget"]) == (trace.chosen, trace.config.budget)
    for name, column in data["nodes"].items():
        values = [getattr(node, name) for node in trace.nodes]
        if isinstance(values[0], float):
            assert column == pytest.approx(values, abs=1e-6)
        else:
            assert column == [list(value) if isinstance(value, tuple) else value for value in values]
    assert set(data["nodes"]) == {field.name for field in dataclasses.fields(trace.nodes[0])}
    assert {int(i) for i in data["cards"]} | {int(i) for i in data["dots"]} == set(range(len(trace.nodes)))


def test_nothing_is_loaded(hostile: tuple[SearchTrace, str]) -> None:
    page = hostile[1]
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|\bsrc=|\bhref=|url\(|@import|fetch\(|innerHTML", page)


def test_the_head_tells_what_was_searched() -> None:
    scores = {"a": 0.5, "b": 0.25, "ab": 1.0, "ba": 0.9}
    config = SearchConfig(budget=40, iterations=2, cost_coefficient=0.2)
    result = search_policy_tree("How tall?", chunks_of(a=10, b=20), Scripted(scores), config, trace=True)
    page = tree_page(traced(result))
    assert '<span class="order">χ1 χ2</span>' in page
    assert "objective 0.850 · R 1.000 · 30 of 40 tokens · found in iteration 2" in page  # 1 − 0.2·30/40
    assert "<dt>cost_coefficient</dt><dd>0.2</dd>" in page
    assert "<dt>selection</dt><dd>scaled</dd>" in page
    assert "time_limit" not in page  # not set
    assert "<dt>combinations scored</dt><dd>3</dd>" in page  # b was not expanded, so ba was not scored


@pytest.mark.parametrize("scores", [{"a": 0.0}, {"a": 0.5, "b": 0.5, "ab": 0.5, "ba": 0.5}], ids=["one", "constant"])
def test_the_smallest_and_the_flattest_tree(scores: dict[str, float]) -> None:
    chunks = chunks_of(**{name: 1 for name in scores if len(name) == 1})
    trace = traced(search_policy_tree("q", chunks, Scripted(scores), SearchConfig(budget=2), trace=True))
    page = tree_page(trace)
    assert page == tree_page(trace)
    assert page.count('role="treeitem"') == len(trace.nodes)
    assert not re.search(r"\b(nan|inf|infinity)\b", page, re.IGNORECASE)


def test_the_script_finds_its_elements(hostile: tuple[SearchTrace, str]) -> None:
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    ids = {value for name, value in Reader(hostile[1]).attributes if name == "id"}
    wanted = set(re.findall(r'byId\("([a-z]+)"\)', script))
    assert wanted and wanted <= ids
    trace = hostile[0]
    names = {field.name for field in dataclasses.fields(trace.nodes[0])}
    assert set(re.findall(r"nodes\.([a-z]+)[\[.]", script)) <= names | {"parents"}


def test_the_page_s_parts_are_in_the_wheel() -> None:
    project = tomllib.loads((FOLDER.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["corag_search.tree_page"]
    parts = [file.name for file in FOLDER.iterdir() if file.is_file() and file.suffix != ".py"]
    assert sorted(parts) == ["page.css", "page.html", "page.js"]
    assert all(any(fnmatch(part, pattern) for pattern in patterns) for part in parts)
