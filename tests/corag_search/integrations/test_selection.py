"""What all three adapters do alike: order, budget, identity of items, refusals."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from corag_search import (
    Chunk,
    ConfigurationAgent,
    Corag,
    InputError,
    SearchConfig,
    load_embedder,
    load_reranker,
    load_tokenizer,
    search_policy_tree,
)
from corag_search.agent_format import SETTINGS
from corag_search.shipped import find_checkpoint
from tests.corag_search.integrations.conftest import Adapter, counting
from tests.corag_search.scripted import RandomScores, Scripted

pytestmark = pytest.mark.models

TEXTS = {"a": "alpha", "b": "beta beta", "c": "gamma gamma gamma"}  # 1, 2 and 3 tokens of smollm2
# Figure 1 of the paper, smaller: "a" is the best one, "ba" the best of all, and a third spoils it.
SCORES = {"a": 0.5, "b": 0.4, "c": 0.3, "ab": 0.6, "ba": 0.8}
EXPLORED = {"iterations": 25}  # more than the 10 nodes that have children, so all 15 orders are seen
QUESTION = "How tall is the Eiffel Tower and who built it?"
PASSAGES = {
    "height": "The Eiffel Tower in Paris is 330 metres tall.",
    "canal": "The Suez Canal joins the Mediterranean and the Red Sea.",
    "builder": "The tower was built by the company of Gustave Eiffel.",
    "leaf": "Leaves make sugar from light, water and carbon dioxide.",
}


def test_the_words_cost_what_is_said() -> None:
    assert load_tokenizer("smollm2").count(list(TEXTS.values())) == [1, 2, 3]


def test_the_same_objects_come_back_in_the_found_order(framework: Adapter) -> None:
    items = [framework.item(id, text, source=f"{id}.txt") for id, text in TEXTS.items()]
    before = copy.deepcopy(items)
    adapter = framework.make(budget=6, reranker=Scripted(SCORES, default=0.1), search=EXPLORED)
    chosen = framework.choose(adapter, "q", items)
    assert framework.ids(chosen) == ["b", "a"]
    assert chosen[0] is items[1] and chosen[1] is items[0]
    assert items == before


@pytest.mark.parametrize(("budget", "expected"), [(6, ["b", "a"]), (3, ["b", "a"]), (2, ["a"]), (1, ["a"])])
def test_the_budget_is_kept_and_what_is_larger_is_left_out(
    framework: Adapter, budget: int, expected: list[str]
) -> None:
    items = [framework.item(id, text) for id, text in TEXTS.items()]
    adapter = framework.make(budget=budget, reranker=Scripted(SCORES, default=0.1), search=EXPLORED)
    assert framework.ids(framework.choose(adapter, "q", items)) == expected


@pytest.mark.parametrize("seed", range(4))
def test_it_chooses_as_the_search_over_chunks_does(framework: Adapter, seed: int) -> None:
    texts = [" ".join(["word"] * (1 + (7 * row + seed) % 5)) for row in range(8)]
    ids = [f"id {row}" for row in range(8)]
    costs = load_tokenizer("smollm2").count(texts)
    chunks = [Chunk(*values) for values in zip(ids, texts, costs, strict=True)]
    config = SearchConfig(budget=9, iterations=7, exploration=0.2, cost_coefficient=0.3)
    expected = search_policy_tree("q", chunks, RandomScores(seed), config)
    adapter = framework.make(
        budget=9,
        reranker=RandomScores(seed),
        search={"iterations": 7, "exploration": 0.2, "cost_coefficient": 0.3},
    )
    items = [framework.item(id, text) for id, text in zip(ids, texts, strict=True)]
    assert framework.ids(framework.choose(adapter, "q", items)) == [chunk.id for chunk in expected.chunks]


def test_one_id_may_stand_for_two_texts_and_a_repeated_item_is_one_candidate(framework: Adapter) -> None:
    items = [framework.item(*pair) for pair in (("a", "one"), ("a", "two"), ("b", "one"), ("a", "one"))]
    adapter = framework.make(budget=100, reranker=counting, search={"iterations": 25, "exploration": 0})
    chosen = framework.choose(adapter, "q", items)
    assert {id(item) for item in chosen} == {id(item) for item in items[:3]}
    assert len(chosen) == 3


def test_items_without_text_are_never_chosen(framework: Adapter) -> None:
    items = [framework.item("empty", ""), framework.item("a", "alpha"), framework.item("void", "")]
    adapter = framework.make(budget=100, reranker=counting)
    assert framework.ids(framework.choose(adapter, "q", items)) == ["a"]
    assert framework.choose(adapter, "q", items[::2]) == []
    assert framework.choose(adapter, "q", []) == []


@pytest.mark.parametrize(
    ("query", "text", "message"),
    [
        ("q", "alpha beta gamma", r"^budget must be at least the smallest candidate's cost \(\d tokens\), got 2$"),
        (" ", "alpha", "^query must be a text that is not empty, got ' '$"),
        ("q", "half \ud800", "^the text of 'x' must be a text that can be encoded as UTF-8, .* at character 5 of .*$"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused_in_one_line(
    framework: Adapter, query: str, text: str, message: str
) -> None:
    adapter = framework.make(budget=2, reranker=counting)
    with pytest.raises(InputError, match=message):
        framework.choose(adapter, query, [framework.item("x", text)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 0}, "budget must be a whole number of tokens, at least 1, got 0"),
        ({"budget": "many"}, "budget must be a whole number of tokens, at least 1, got 'many'"),
        ({"search": 7}, "search must be a mapping of settings, such as {iterations: 10}, got 7"),
        ({"embedder": 7}, "embedder must have a name, such as {name: minilm}, got 7"),
        ({"tokenizer": None}, "tokenizer must be a name or a path, got None"),
        ({"rerankers": ["bm25"]}, "rerankers must be a mapping of names to options, such as .*, got \\['bm25'\\]"),
        ({"agent": 7}, "agent must be a directory or a name, or null, got 7"),
        ({"search": {"budget": 3}}, "budget is an argument of its own"),
        ({"search": {"depth": 3}}, "search: unknown key 'depth'; allowed are iterations"),
        ({"reranker": 7}, "reranker must have a score"),
        ({"agent": "nonsense"}, "there is no agent checkpoint 'nonsense'"),
    ],
)
def test_a_bad_setting_is_refused_when_the_adapter_is_made(framework: Adapter, settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        framework.make(**settings)
    assert "\n" not in str(refused.value)


def test_options_reach_the_reranker_by_its_name(framework: Adapter) -> None:
    with pytest.raises(InputError, match="b must"):
        adapter = framework.make(reranker="bm25", rerankers={"bm25": {"b": "much"}})
        framework.choose(adapter, "q", [framework.item("a", "alpha")])


# Tokens that cost nothing, and a price that only one chunk pays.
@pytest.mark.parametrize(
    ("search", "count"), [({}, None), ({"cost_coefficient": 0.0}, 2), ({"cost_coefficient": 9.0}, 1)]
)
def test_the_agent_predicts_reranker_and_settings_and_what_is_set_takes_precedence(
    framework: Adapter, search: dict, count: int | None
) -> None:
    agent = ConfigurationAgent.load(find_checkpoint("demo"))
    prediction = agent.predict(load_embedder("minilm").encode([QUESTION])[0])
    config = replace(
        SearchConfig(budget=40), selection=agent.selection, **{name: getattr(prediction, name) for name in SETTINGS}
    )
    costs = load_tokenizer("smollm2").count(list(PASSAGES.values()))
    chunks = [Chunk(id, text, cost) for (id, text), cost in zip(PASSAGES.items(), costs, strict=True)]
    judge = load_reranker(prediction.reranker)
    expected = search_policy_tree(QUESTION, chunks, judge, replace(config, **search))
    assert count is None or len(expected.order) == count
    items = [framework.item(id, text) for id, text in PASSAGES.items()]
    adapter = framework.make(budget=40, agent="demo", search=search)
    assert framework.ids(framework.choose(adapter, QUESTION, items)) == [chunk.id for chunk in expected.chunks]


def test_an_embedder_that_the_agent_was_not_trained_for_is_refused(framework: Adapter) -> None:
    with pytest.raises(InputError, match="checkpoint was trained for embeddings of 384 by minilm"):
        adapter = framework.make(agent="demo", embedder={"name": "minilm", "dtype": "bfloat16"})
        framework.choose(adapter, QUESTION, [framework.item("a", "alpha")])


def test_a_pipeline_without_a_store_chooses_from_given_chunks_only() -> None:
    corag = Corag(None, None)
    assert corag.search(QUESTION, candidates=[Chunk("a", PASSAGES["height"], 12)]).order == (0,)
    with pytest.raises(InputError, match="there is no store to retrieve from; give candidates="):
        corag.search(QUESTION)


def test_threads_may_share_one_adapter(framework: Adapter) -> None:
    adapter = framework.make(budget=30, reranker="bm25")
    items = [framework.item(id, text) for id, text in PASSAGES.items()]
    queries = ["How tall is the tower?", "Who built it?", "Which seas does the canal join?", "What do leaves make?"] * 4
    expected = [framework.choose(framework.make(budget=30, reranker="bm25"), query, items) for query in queries[:4]] * 4
    with ThreadPoolExecutor(8) as threads:
        chosen = list(threads.map(lambda query: framework.choose(adapter, query, items), queries))
    assert [framework.ids(one) for one in chosen] == [framework.ids(one) for one in expected]
    assert [framework.ids(one)[0] for one in chosen[:4]] == ["height", "builder", "canal", "leaf"]
