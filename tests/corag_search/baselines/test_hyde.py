"""HyDE: the passage, not the question, decides what is retrieved."""

from __future__ import annotations

import numpy as np
import pytest

from corag_search import Chunk, InputError, SearchConfig, VectorStore
from corag_search.baselines import hyde
from tests.corag_search.baselines.models import ScriptedGenerator, TableEmbedder

EMBEDDER = TableEmbedder({"q": [1, 0, 0], "passage": [0, 1, 0], "x": [0.9, 0.1, 0.42], "y": [0, 1, 0], "z": [0, 0, 1]})
CHUNKS = [Chunk("x", "x", 4), Chunk("y", "y", 5), Chunk("z", "z", 3)]


@pytest.fixture(scope="module")
def store() -> VectorStore:
    pytest.importorskip("faiss")
    return VectorStore.build(CHUNKS, EMBEDDER)


def test_the_mean_of_query_and_passages_is_searched_with(store: VectorStore) -> None:
    generator = ScriptedGenerator(lambda prompt: " passage ")
    result = hyde("q", store, EMBEDDER, generator, SearchConfig(budget=9), passage_tokens=7)
    # Search vector (1, 1, 0)/√2: x 1.0/√2 over |x| (about 0.707), y 1/√2; z has 0 and does not fit any more.
    assert generator.asked == [("Please write a passage to answer the question.\nQuestion: q\nPassage:", 7)]
    x = np.array([0.9, 0.1, 0.42]) / np.linalg.norm([0.9, 0.1, 0.42])
    near = sorted([(x[0] + x[1]) / 2**0.5, 1 / 2**0.5], reverse=True)
    assert {chunk.id for chunk in result.chunks} == {"x", "y"}
    assert (result.order, result.cost, result.evaluations) == ((0, 1), 9, 0)
    assert result.value == pytest.approx(np.mean(near), abs=1e-5)
    assert result.objective == pytest.approx(result.value - 0.1, abs=1e-5)
    # Three passages outweigh the question: (0.25, 0.75, 0).
    more = hyde("q", store, EMBEDDER, generator, SearchConfig(budget=5), passages=3, candidates=2)
    assert [chunk.id for chunk in more.chunks] == ["y"]


def test_an_empty_passage_leaves_the_question(store: VectorStore) -> None:
    result = hyde("q", store, EMBEDDER, ScriptedGenerator(lambda prompt: "\n"), SearchConfig(budget=4), candidates=1)
    assert [chunk.id for chunk in result.chunks] == ["x"]


def test_a_reranker_judges_what_was_chosen(store: VectorStore) -> None:
    asked = []

    def judge(query, combinations):
        asked.extend((query, [chunk.id for chunk in own]) for own in combinations)
        return [0.4] * len(combinations)

    generator = ScriptedGenerator(lambda prompt: "passage")
    result = hyde("q", store, EMBEDDER, generator, SearchConfig(budget=5), passages=3, reranker=judge)
    assert (result.value, result.evaluations, asked) == (0.4, 1, [("q", ["y"])])


def test_unusable_input_is_named_before_the_generator_is_asked(store: VectorStore) -> None:
    generator = ScriptedGenerator(lambda prompt: "passage")
    with pytest.raises(InputError, match="query must be a text"):
        hyde("", store, EMBEDDER, generator)
    with pytest.raises(InputError, match="store was built with the embedder table"):
        hyde("q", store, TableEmbedder({"q": [1.0]}), generator)
    with pytest.raises(InputError, match=r"prompt must contain \{question\}"):
        hyde("q", store, EMBEDDER, generator, prompt="Write.")
    for name in ("passages", "candidates", "passage_tokens"):
        with pytest.raises(InputError, match=f"{name} must be a whole number"):
            hyde("q", store, EMBEDDER, generator, **{name: 0})
    assert generator.asked == []
    with pytest.raises(InputError, match="budget must be at least the smallest candidate's cost"):
        hyde("q", store, EMBEDDER, generator, SearchConfig(budget=2))
