"""What an agent's labels were made with, and who is told where its use differs; with the shipped agents."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from corag_search import Chunk, ConfigurationAgent, Corag, PipelineConfig, PromptTemplate, VectorStore, load_embedder
from corag_search.agent_labels import Difference, label_settings, off_distribution
from corag_search.shipped import find_checkpoint, shipped
from tests.corag_search.local_server import Reply, serving

QUESTION = "How tall is the tower?"
CHUNKS = tuple(Chunk(f"c{i}", f"Tower {i} is {i} metres tall.", 9) for i in range(20))
EMBEDDED = {
    "retrieval": "hybrid",
    "candidates": 20,
    "budget": 300,
    "max_chunks": 5,
    "selection": "scaled",
    "final_rule": "objective",
    "chunk_size": 96,
    "tokenizer": "smollm2",
    "prompt": "a6f5e8e098013dd0",
    "generator": "smollm2",
    "generator_fingerprint": "89e3acdfef444fbe",
}
DEMO = EMBEDDED | {"retrieval": "dense", "candidates": 10, "budget": 240, "selection": "uct", "chunk_size": 80}


def agent(name: str) -> ConfigurationAgent:
    return ConfigurationAgent.load(find_checkpoint(name))


@pytest.mark.parametrize(("name", "expected"), [("embedded", EMBEDDED), ("demo", DEMO)])
def test_what_the_shipped_agents_record(name: str, expected: dict[str, Any]) -> None:
    """The demo's labels name no retrieval, since theirs was dense."""
    assert label_settings(agent(name).config) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {}),
        ({"labels": None}, {}),
        ({"labels": {"search": [], "chunking": None, "generator": 3, "prompt": None}}, {}),
        ({"labels": {"search": {"budget": 9}}}, {"budget": 9}),  # made elsewhere: nothing tells of retrieval
        ({"labels": {"search": {"max_chunks": None}, "generator": {"fingerprint": None}}}, {"max_chunks": None}),
    ],
)
def test_what_is_not_recorded_is_not_made_up(config: dict, expected: dict[str, Any]) -> None:
    assert label_settings(config) == expected


def test_differences_in_the_order_of_the_use_with_what_is_unknown() -> None:
    config = {"labels": {"search": {"budget": 9, "max_chunks": None}, "chunking": {"chunk_size": 4}}}
    used = {"candidates": 3, "chunk_size": 4, "max_chunks": 2, "budget": 9}
    assert off_distribution(config, used) == [
        Difference("candidates", None, 3, recorded=False),
        Difference("max_chunks", None, 2, recorded=True),
    ]
    assert str(Difference("max_chunks", None, 2, recorded=True)) == "max_chunks none (here 2)"
    assert off_distribution(config, {}) == []


# ---- the pipeline ----


@pytest.fixture(scope="module")
def embedder() -> Any:
    return load_embedder("minilm")


def made_store(embedder: Any, chunk_size: int) -> VectorStore:
    return VectorStore.build(CHUNKS, embedder, tokenizer="smollm2", chunk_size=chunk_size)


@pytest.fixture(scope="module")
def store(embedder: Any) -> VectorStore:
    return made_store(embedder, 96)


LOCAL = PipelineConfig.from_file(shipped("configs") / "local.yaml")


@contextmanager
def told() -> Iterator[list[str]]:
    """Every warning that is given."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
        texts += [str(warning.message) for warning in caught]


@dataclass(frozen=True)
class Listed:
    """A retriever of one's own."""

    def retrieve(self, query: str, k: int, *, embedding: Any = None) -> list[Chunk]:
        return list(CHUNKS[:k])


@dataclass(frozen=True)
class OtherWeights:
    name: str = "smollm2"
    fingerprint: str = "0123"
    context_length: None = None


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "config"), [("embedded", LOCAL), ("demo", PipelineConfig.from_file(shipped("configs") / "demo.yaml"))]
)
def test_shipped_agents_fit_their_shipped_configurations(embedder: Any, name: str, config: PipelineConfig) -> None:
    corag = Corag(made_store(embedder, config.chunk_size), embedder, config, agent=agent(name))
    with told() as texts:
        assert corag.search(QUESTION, reranker="bm25").prediction is not None
    assert texts == []
    assert corag._generator is None, "a comparison loads nothing"


@pytest.mark.models
@pytest.mark.parametrize(
    ("changes", "options", "expected"),
    [
        ({"retrieval": "dense"}, {}, "retrieval hybrid (here dense)"),
        ({"candidates": 7}, {}, "candidates 20 (here 7)"),
        ({}, {"candidates": 3}, "candidates 20 (here 3)"),
        ({}, {"candidates": CHUNKS[:4]}, "candidates 20 (here 4)"),
        ({}, {"budget": 200}, "budget 300 (here 200)"),
        ({}, {"max_chunks": None}, "max_chunks 5 (here none)"),
        ({}, {"selection": "uct"}, "selection scaled (here uct)"),
        ({}, {"final_rule": "reward"}, "final_rule objective (here reward)"),
        ({"generator": {"name": "openai"}}, {}, "generator smollm2 (here openai)"),
        ({"retrieval": "lexical"}, {"budget": 99}, "budget 300 (here 99), retrieval hybrid (here lexical)"),
    ],
)
def test_a_use_off_the_labels_is_told_with_both_values(
    store: VectorStore, embedder: Any, changes: dict, options: dict, expected: str
) -> None:
    corag = Corag(store, embedder, replace(LOCAL, **changes), agent=agent("embedded"))
    with told() as texts:
        corag.search(QUESTION, reranker="bm25", **options)
    remedy = "set what its labels had, or label and train an agent with your settings (said once)"
    assert texts == [f"the agent's labels were made with {expected}; what it predicts was not measured here: {remedy}"]


@pytest.mark.models
def test_chunk_size_prompt_and_weights_are_compared(store: VectorStore, embedder: Any) -> None:
    prompt = PromptTemplate(prompt="{passages} {question}")
    cases = [
        (Corag(made_store(embedder, 48), embedder, LOCAL, agent=agent("embedded")), "chunk_size 96 (here 48)"),
        (
            Corag(store, embedder, replace(LOCAL, prompt=prompt), agent=agent("embedded")),
            f"prompt a6f5e8e098013dd0 (here {prompt.fingerprint})",
        ),
        (
            Corag(store, embedder, LOCAL, agent=agent("embedded"), generator=OtherWeights()),  # type: ignore[arg-type]
            "generator_fingerprint 89e3acdfef444fbe (here 0123)",
        ),
    ]
    for corag, expected in cases:
        with told() as texts:
            corag.search(QUESTION, reranker="bm25")
        assert len(texts) == 1 and f"made with {expected};" in texts[0]


@pytest.mark.models
def test_it_is_told_once_by_each_object_when_it_first_holds(store: VectorStore, embedder: Any) -> None:
    for _ in range(2):
        corag = Corag(store, embedder, LOCAL, agent=agent("embedded"))
        search = partial(corag.search, reranker="bm25")
        with told() as texts:
            search(QUESTION)
        assert texts == []
        with told() as texts, ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(search, QUESTION, budget=budget) for budget in range(100, 112)]:
                assert done.result().cost <= 111
        assert len(texts) == 1
        with told() as texts:
            search(QUESTION, max_chunks=1)
        assert texts == []


@pytest.mark.models
def test_what_is_not_known_is_not_compared(store: VectorStore, embedder: Any) -> None:
    """Where the caller retrieves, or answers by itself, or the store does not say how it was cut."""
    dense = replace(LOCAL, retrieval="dense")
    elsewhere = replace(dense, prompt=PromptTemplate(prompt="{passages} {question}"), generator={"name": "openai"})
    quiet: list[tuple[Corag, dict[str, Any]]] = [
        (Corag(made_store(embedder, 48), embedder, dense, agent=agent("embedded")), {"candidates": CHUNKS}),
        (Corag(store, embedder, dense, agent=agent("embedded"), retriever=Listed()), {}),
        (Corag(None, embedder, elsewhere, agent=agent("embedded")), {"candidates": CHUNKS}),
        (Corag(made_store(embedder, 0), embedder, LOCAL, agent=agent("embedded")), {}),
        (Corag(store, embedder, dense), {"budget": 99}),
    ]
    unlabelled = agent("embedded")
    del unlabelled.config["labels"]
    quiet.append((Corag(store, embedder, dense, agent=unlabelled), {"budget": 99}))
    for corag, options in quiet:
        with told() as texts:
            corag.search(QUESTION, reranker="bm25", **options)
        assert texts == []


@pytest.mark.models
def test_an_answer_compares_the_generator_that_it_loaded(store: VectorStore, embedder: Any) -> None:
    """The search before it only knows the generator's name, which all endpoints share."""
    reply = {"choices": [{"message": {"content": "3 metres"}, "finish_reason": "stop"}]}
    usage = {"usage": {"prompt_tokens": 100, "completion_tokens": 2}}
    trained = agent("embedded")
    trained.config["labels"]["generator"] = {"name": "openai", "fingerprint": "0123"}
    with serving(lambda *_: Reply(reply | usage)) as (url, _):
        endpoint = {"name": "openai", "base_url": f"{url}/v1", "model": "m"}
        corag = Corag(store, embedder, replace(LOCAL, generator=endpoint), agent=trained)
        with told() as texts:
            corag.search(QUESTION, reranker="bm25")
        assert texts == []
        with told() as texts:
            assert corag.answer(QUESTION, reranker="bm25").text == "3 metres"
    own = corag.generator.fingerprint
    assert len(texts) == 1 and f"made with generator_fingerprint 0123 (here {own});" in texts[0]
