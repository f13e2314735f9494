"""The seven steps on real models: what is overridable, what is timed, what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from corag_search import (
    Chunk,
    Corag,
    InputError,
    PipelineConfig,
    SearchConfig,
    VectorStore,
    chunk_documents,
    load_embedder,
    load_generator,
    load_tokenizer,
    search_policy_tree,
)
from corag_search.agent import Prediction
from corag_search.rerankers.base import RerankerError
from tests.corag_search.scripted import RandomScores

pytestmark = pytest.mark.models


@dataclass(frozen=True)
class Text:
    id: str
    text: str


DOCUMENTS = [
    Text("tower", "The Eiffel Tower in Paris is 330 metres tall. It was built by the company of Gustave Eiffel for the "
         "World's Fair of 1889, and was the tallest structure on Earth for 41 years."),
    Text("canal", "The Suez Canal joins the Mediterranean and the Red Sea. It was opened in 1869 after ten years of "
         "digging under Ferdinand de Lesseps, and is 193 kilometres long today."),
    Text("leaf", "Leaves make sugar from light, water and carbon dioxide. Too little water closes their pores."),
]  # fmt: skip
QUESTION = "How tall is the Eiffel Tower and who built it?"


@pytest.fixture(scope="module")
def corag():
    tokenizer, embedder = load_tokenizer("smollm2"), load_embedder("minilm")
    store = VectorStore.build(chunk_documents(DOCUMENTS, tokenizer, 24), embedder, tokenizer="smollm2", chunk_size=24)
    generator = load_generator("smollm2", threads=1)
    config = PipelineConfig(candidates=6, max_answer_tokens=16, search=SearchConfig(iterations=5, budget=60))
    yield Corag(store, embedder, config, generator=generator, tokenizer=tokenizer)
    generator.close()


def test_search_equals_its_parts(corag: Corag) -> None:
    selected = corag.search(QUESTION)
    candidates = corag.store.search(corag.embedder.encode([QUESTION])[0], 6)
    expected = search_policy_tree(QUESTION, candidates, corag.reranker("bm25"), corag.config.search)
    assert list(selected.candidates) == candidates
    assert (selected.order, selected.value, selected.cost) == (expected.order, expected.value, expected.cost)
    assert selected.reranker == "bm25"
    assert set(selected.timings) == {"embed", "retrieve", "search"}
    assert all(seconds >= 0 for seconds in selected.timings.values())


def test_budget_reranker_candidates_and_settings_are_overridable_per_call(corag: Corag) -> None:
    assert corag.search(QUESTION, budget=30).cost <= 30
    assert corag.search(QUESTION, reranker="wordllama").reranker == "wordllama"
    assert corag.search(QUESTION, reranker=RandomScores(1)).reranker == "random 1"
    assert len(corag.search(QUESTION, candidates=2).candidates) == 2
    for two in (np.int64(2), np.array(2)):
        assert len(corag.search(QUESTION, candidates=two).candidates) == 2  # type: ignore[arg-type]
    given = corag.store.chunks[-2:]
    selected = corag.search(QUESTION, candidates=given)
    assert selected.candidates == given
    assert "retrieve" not in selected.timings
    assert corag.search(QUESTION, iterations=1, exploration=0.0).config.iterations == 1
    assert corag.config.search.iterations == 5


def test_answer_cites_documents_and_offsets_and_times_each_step(corag: Corag) -> None:
    answer = corag.answer(QUESTION)
    assert answer.text.strip()
    assert set(answer.timings) == {"embed", "retrieve", "search", "prompt", "generate"}
    assert QUESTION in answer.prompt
    assert 0 < answer.answer_tokens <= 16 < answer.prompt_tokens
    for number, (citation, chunk) in enumerate(zip(answer.citations, answer.chunks, strict=True), 1):
        text = next(d.text for d in DOCUMENTS if d.id == citation.document)
        assert citation.number == number
        assert text[citation.start : citation.end] == chunk.text
        assert f"[{number}] {chunk.text.strip()}" in answer.prompt
    assert corag.answer(QUESTION).text == answer.text


def test_streaming_gives_the_same_text(corag: Corag) -> None:
    stream = corag.stream(QUESTION)
    with pytest.raises(RuntimeError, match="read the stream to its end"):
        _ = stream.answer
    pieces = list(stream)
    answer = corag.answer(QUESTION)
    assert len(pieces) > 1
    assert "".join(pieces) == stream.answer.text == answer.text
    assert stream.answer.citations == answer.citations


def test_pieces_that_are_no_text_are_refused(corag: Corag) -> None:
    """Such as the content of an OpenAI delta, None at the first; an asynchronous stream must not end there."""

    class Passing:
        name, context_length = "passing", None

        def stream(self, prompt: str, max_tokens: int) -> Iterator[str | None]:
            yield from ("330", None, " m")

    passing = Corag(corag.store, corag.embedder, corag.config, generator=Passing())  # type: ignore[arg-type]
    refusal = "generator 'passing' streamed None; each piece must be a text"
    with pytest.raises(InputError, match=refusal):
        list(passing.stream(QUESTION))

    async def pieces() -> list[str]:
        return [piece async for piece in passing.astream(QUESTION)]

    with pytest.raises(InputError, match=refusal):
        asyncio.run(pieces())


@pytest.mark.parametrize("found", [None, 5, "text", {Chunk("a", "a", 1)}, {"a": Chunk("a", "a", 1)}], ids=repr)
def test_a_retriever_that_gives_no_list_is_refused(found: object) -> None:
    class Own:
        def retrieve(self, query: str, k: int, *, embedding: np.ndarray | None = None) -> object:
            return found

    own = Corag(None, None, retriever=Own())  # type: ignore[arg-type]
    for use in (lambda: own.search(QUESTION), lambda: own.warm_up(answers=False)):
        with pytest.raises(InputError, match="a retriever must return a list of chunks, best first, got"):
            use()


def test_async_does_not_block_the_event_loop(corag: Corag) -> None:
    ticks = 0

    async def run() -> tuple:
        nonlocal ticks
        done = asyncio.Event()

        async def tick() -> None:
            nonlocal ticks
            while not done.is_set():
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        selected, answer = await corag.asearch(QUESTION), await corag.aanswer(QUESTION)
        pieces = [piece async for piece in await _started(corag)]
        done.set()
        await ticking
        return selected, answer, pieces

    async def _started(corag: Corag):
        return corag.astream(QUESTION)

    selected, answer, pieces = asyncio.run(run())
    assert selected.order == corag.search(QUESTION).order
    assert "".join(pieces) == answer.text
    assert ticks > 10


QUESTIONS = [QUESTION, "How long is the Suez Canal?", "What closes the pores of leaves?"]
CALLS = list(product(QUESTIONS, [30, 45, 60], ["bm25", "maxsim", "wordllama"]))


def test_threads_share_it(corag: Corag) -> None:
    """Each with a budget of its own, while rerankers are loaded by whoever comes first."""

    def work(corag: Corag, question: str, budget: int, reranker: str) -> tuple:
        selected = corag.search(question, budget=budget, reranker=reranker)
        assert (selected.config.budget, selected.reranker, selected.query) == (budget, reranker, question)
        return selected.order, selected.cost, pytest.approx(selected.objective)  # λ·cost/B is in it

    expected = [work(corag, *call) for call in CALLS]
    assert len(set(map(str, expected))) == len(CALLS)
    fresh = Corag(corag.store, corag.embedder, corag.config)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(partial(work, fresh), *zip(*CALLS, strict=True))) == expected
    assert corag.config.search.budget == 60


def test_threads_share_its_generator(corag: Corag) -> None:
    def work(corag: Corag, question: str, budget: int, reranker: str) -> tuple:
        answer = corag.answer(question, budget=budget, reranker=reranker)
        return answer.text, answer.prompt, answer.config.budget, answer.answer_tokens

    calls = [*CALLS[::5], CALLS[0]]
    expected = [work(corag, *call) for call in calls]
    fresh = Corag(corag.store, corag.embedder, corag.config, generator=corag.generator)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(partial(work, fresh), *zip(*calls, strict=True))) == expected


class FixedAgent:
    """Predicts the same for every query."""

    selection = "uct"
    needs_features = False
    config: ClassVar[dict] = {}
    rerankers: tuple[str, ...] = ("bm25", "maxsim")

    def __init__(self, embedder: str = "minilm") -> None:
        self.seen: list[np.ndarray] = []
        self._embedder = embedder

    def check_embedder(self, name: str, dimension: int, fingerprint: str | None = None) -> None:
        if name != self._embedder:
            raise InputError(f"the checkpoint was trained for {self._embedder}, got {name}")

    def predict(self, embedding: np.ndarray) -> Prediction:
        self.seen.append(embedding)
        return Prediction("maxsim", 3, 0.5, 0.2, {"bm25": 0.1, "maxsim": 0.9}, 0.9)


def test_the_agent_chooses_and_the_call_overrules_it(corag: Corag) -> None:
    agent = FixedAgent()
    steered = Corag(corag.store, corag.embedder, corag.config, agent=agent)  # type: ignore[arg-type]
    selected = steered.search(QUESTION)
    assert (selected.reranker, selected.prediction.confidence) == ("maxsim", 0.9)
    config = selected.config
    assert (config.iterations, config.exploration, config.cost_coefficient, config.budget) == (3, 0.5, 0.2, 60)
    assert (corag.config.search.selection, config.selection) == ("scaled", "uct")  # c belongs to its rule
    assert steered.search(QUESTION, selection="scaled").config.selection == "scaled"
    assert set(selected.timings) == {"embed", "agent", "retrieve", "search"}
    np.testing.assert_array_equal(agent.seen[0], corag.embedder.encode([QUESTION])[0])
    overruled = steered.search(QUESTION, reranker="bm25", iterations=7)
    assert (overruled.reranker, overruled.config.iterations, overruled.config.exploration) == ("bm25", 7, 0.5)


def test_warming_up_uses_each_part_once(corag: Corag) -> None:
    seen: list[tuple[str, int]] = []

    class Given:
        def retrieve(self, query: str, k: int, *, embedding: np.ndarray | None = None) -> list[Chunk]:
            seen.append(("retriever", 0 if embedding is None else embedding.size))
            return []

    def judge(query: str, combinations: Sequence[Sequence[Chunk]]) -> list[float]:
        seen.append(("reranker", len(combinations)))
        return [0.5] * len(combinations)

    corag.warm_up(reranker=judge)
    assert seen == [("reranker", 1)]
    steered = Corag(None, corag.embedder, corag.config, agent=FixedAgent(), retriever=Given())  # type: ignore[arg-type]
    steered.warm_up(reranker=judge, answers=False)
    assert seen[1:] == [("retriever", 384), ("reranker", 1)]
    assert len(steered.agent.seen) == 1  # type: ignore[union-attr]


def test_warming_up_finds_what_cannot_be_loaded(corag: Corag) -> None:
    agent = FixedAgent()
    agent.rerankers = ("bm25", "nonsense")
    steered = Corag(None, corag.embedder, corag.config, agent=agent)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown reranker 'nonsense'"):
        steered.warm_up(answers=False)
    mute = Corag(None, None, replace(corag.config, generator={"name": "nobody"}))
    mute.warm_up(answers=False)
    with pytest.raises(InputError, match="nobody"):
        mute.warm_up()
    far = {"base_url": "http://127.0.0.1:9", "dialect": "tei", "retries": 0}
    unreachable = Corag(None, None, replace(corag.config, reranker="server:far", rerankers={"server:far": far}))
    with pytest.raises(RerankerError, match=r"127\.0\.0\.1:9"):
        unreachable.warm_up(answers=False)


def test_the_prior_of_the_call_or_else_the_configured_one_narrows(corag: Corag) -> None:
    candidates = corag.store.search(corag.embedder.encode([QUESTION])[0], 6)
    config = replace(corag.config.search, expansion_width=2, root_width=3)
    narrowed = Corag(corag.store, corag.embedder, replace(corag.config, prior="wordllama", search=config))
    own = RandomScores(3)
    for given, prior in ((None, corag.reranker("wordllama")), ("bm25", corag.reranker("bm25")), (own, own)):
        selected = narrowed.search(QUESTION, reranker=RandomScores(1), prior=given, trace=True)
        expected = search_policy_tree(QUESTION, candidates, RandomScores(1), config, prior=prior, trace=True)
        assert (selected.trace, selected.order) == (expected.trace, expected.order)
    assert corag.search(QUESTION).trace is None


def test_parts_that_do_not_belong_together_are_refused(corag: Corag) -> None:
    with pytest.raises(InputError, match="was trained for bge-m3, got minilm"):
        Corag(corag.store, corag.embedder, corag.config, agent=FixedAgent("bge-m3"))  # type: ignore[arg-type]

    class Other:
        name, dimension, fingerprint = "other", 384, "x"

    with pytest.raises(InputError, match="the store was built with the embedder minilm"):
        Corag(corag.store, Other(), corag.config)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget must be a whole number of tokens, at least 1, got 0"),
        ({"budget": 1}, r"at least the smallest candidate's cost \(\d+ tokens\), got 1"),
        ({"reranker": "nope"}, "unknown reranker 'nope'"),
        ({"candidates": 0}, "candidates must be a whole number, at least 1, got 0; or give the chunks themselves"),
        ({"candidates": "ten"}, "candidates must be a whole number, at least 1, got 'ten'"),
        ({"candidates": 2.5}, r"candidates must be a whole number, at least 1, got 2\.5"),
        ({"candidates": True}, "candidates must be a whole number, at least 1, got True"),
        ({"candidates": {"a"}}, "got {'a'}; or give the chunks themselves in a list, best first"),
        ({"candidates": {"a": 1}.keys()}, "or give the chunks themselves in a list, best first"),
        ({"candidates": ["a"]}, "candidates must be chunks .*, got 'a' among them"),
        ({"candidates": []}, "no candidates to choose from"),
        ({"serch": 1}, "unknown setting 'serch'; allowed are candidates, prior, reranker, trace, iterations"),
    ],
)
def test_unusable_calls(corag: Corag, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        corag.search(QUESTION, **options)


@pytest.mark.parametrize("query", ["", "  \n"])
def test_empty_query(corag: Corag, query: str) -> None:
    with pytest.raises(InputError, match="query must be a text that is not empty"):
        corag.answer(query)


def test_a_prompt_beyond_the_context_is_refused(corag: Corag) -> None:
    config = replace(corag.config, max_answer_tokens=4090)
    greedy = Corag(corag.store, corag.embedder, config, generator=corag.generator)
    with pytest.raises(InputError, match=r"overflow the context of smollm2 \(4096 tokens\); lower the budget"):
        greedy.answer(QUESTION)


# ---- from a file ----


def test_from_config(corag: Corag, tmp_path: Path) -> None:
    corag.store.save(tmp_path / "store")
    file = tmp_path / "c.yaml"
    file.write_text(f"store: {tmp_path / 'store'}\ncandidates: 4\nreranker: maxsim\nsearch: {{budget: 50}}\n")
    loaded = Corag.from_config(file)
    selected = loaded.search(QUESTION)
    assert (selected.reranker, len(selected.candidates), selected.config.budget) == ("maxsim", 4, 50)
    same = {"store": tmp_path / "store", "candidates": 4, "reranker": "maxsim", "search": {"budget": 50}}
    assert Corag.from_config(same).search(QUESTION).order == selected.order


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("serch: {}", r"unknown key 'serch'; allowed are embedder"),
        ("search: {budgte: 3}", r"search: unknown key 'budgte'"),
        ("search: {budget: -1}", r"budget must be a whole number"),
        ("search: 3", r"search must be a mapping"),
        ("a: [", r"is not YAML"),
        ("- 1", r"must hold a mapping of settings, got list"),
        ("candidates: 5", r"store is not set"),
        ("embedder: {dtype: float32}", r"embedder must have a name"),
        ("store: nowhere", r"nowhere is not a store"),
        ("max_answer_tokens: 0", r"max_answer_tokens must be a whole number, at least 1, got 0"),
    ],
)
def test_unusable_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        Corag.from_config(file)
    with pytest.raises(InputError, match="cannot read the configuration"):
        Corag.from_config(tmp_path / "missing.yaml")


def test_a_configuration_survives_its_plain_form() -> None:
    config = PipelineConfig(candidates=7, search=SearchConfig(final_rule="reward", budget=5))
    plain = json.loads(json.dumps(config.to_dict()))
    assert PipelineConfig.from_dict(plain) == config


@pytest.mark.parametrize("name", ["demo", "local", "paper"])
def test_shipped_configurations_are_valid(name: str) -> None:
    from corag_search.shipped import shipped

    assert PipelineConfig.from_file(shipped("configs") / f"{name}.yaml").search.budget >= 240


def test_the_paper_configuration_has_its_six_rerankers() -> None:
    from corag_search.rerankers.cross_encoder import CROSS_ENCODERS
    from corag_search.shipped import shipped

    rerankers = PipelineConfig.from_file(shipped("configs") / "paper.yaml").rerankers
    assert set(rerankers) == set(CROSS_ENCODERS) and len(rerankers) == 6
    assert not any("trust_remote_code" in options for options in rerankers.values()), "that is the user's to say"
