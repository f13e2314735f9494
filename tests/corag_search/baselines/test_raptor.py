"""The RAPTOR tree on scripted models: what is summarised, what is retrieved, how it is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from corag_search import Chunk, InputError, SearchConfig
from corag_search.baselines import RaptorConfig, RaptorTree, raptor
from corag_search.baselines.soft_clusters import mixture_clusters, soft_clusters
from corag_search.baselines.summaries import Summariser, split_to_fit
from tests.corag_search.baselines.models import ScriptedGenerator, TableEmbedder, words
from tests.corag_search.scripted import Scripted

pytest.importorskip("sklearn")


def first_words(prompt: str) -> str:
    """A summary that keeps the first word of each chunk."""
    context = prompt.split("possible: ", 1)[1].removesuffix(":")
    return " ".join(part.split()[0] for part in context.split("\n\n"))


def corpus(groups: int, each: int, dimension: int = 8, seed: int = 0) -> tuple[list[Chunk], TableEmbedder]:
    """Chunks around `groups` directions, one word each."""
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(rng.normal(size=(dimension, groups)))[0].T
    table, chunks = {"where?": np.ones(dimension)}, []
    for group in range(groups):
        for i in range(each):
            name = f"g{group}n{i}"
            table[name] = centres[group] + 0.05 * rng.normal(size=dimension)
            chunks.append(Chunk(name, name, 10, {"group": group}))
    return chunks, TableEmbedder(table)


def summaries(tree: RaptorTree) -> list[Chunk]:
    return list(tree.chunks[tree.leaves :])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_few_chunks_have_one_summary_a_single_one_none(count: int) -> None:
    chunks, embedder = corpus(1, count)
    generator = ScriptedGenerator(first_words)
    tree = RaptorTree.build(chunks, embedder, generator, words())
    assert tree.chunks[: tree.leaves] == tuple(chunks)
    assert len(summaries(tree)) == len(generator.asked) == (count > 1)
    for summary in summaries(tree):
        assert (summary.text, summary.cost) == (" ".join(chunk.id for chunk in chunks), count)
        assert summary.metadata == {"kind": "summary", "level": 1, "children": [chunk.id for chunk in chunks]}
    assert raptor("where?", tree, embedder, SearchConfig(budget=10)).cost <= 10


def test_groups_are_found_and_summarised_level_by_level() -> None:
    chunks, embedder = corpus(groups=3, each=20)
    generator = ScriptedGenerator(first_words)
    tree = RaptorTree.build(chunks, embedder, generator, words())
    first = [chunk for chunk in summaries(tree) if chunk.metadata["level"] == 1]
    group_of = {chunk.id: chunk.metadata["group"] for chunk in chunks}
    assert all(len({group_of[child] for child in chunk.metadata["children"]}) == 1 for chunk in first)
    assert {child for chunk in first for child in chunk.metadata["children"]} == set(group_of)
    (top,) = [chunk for chunk in summaries(tree) if chunk.metadata["level"] == 2]
    assert top.metadata["children"] == [chunk.id for chunk in first]
    assert np.allclose(np.linalg.norm(tree.embeddings, axis=1), 1, atol=1e-5)
    assert len(tree.embeddings) == len(tree.chunks)
    again = RaptorTree.build(chunks, embedder, ScriptedGenerator(first_words), words(), workers=3)
    assert again.chunks == tree.chunks and np.array_equal(again.embeddings, tree.embeddings)


def test_what_is_too_long_for_one_prompt_is_divided() -> None:
    chunks, embedder = corpus(groups=1, each=8)
    generator = ScriptedGenerator(first_words)
    tree = RaptorTree.build(chunks, embedder, generator, words(), RaptorConfig(cluster_tokens=30))
    first = [chunk.metadata["children"] for chunk in summaries(tree) if chunk.metadata["level"] == 1]
    assert {len(children) for children in first} == {2, 3}  # chunks of ten tokens, thirty to a prompt
    # Whoever was left alone is summarised a level higher.
    assert {child for chunk in summaries(tree) for child in chunk.metadata["children"]} >= {c.id for c in chunks}
    # So does the generator's context: its template's 64, the summary's 100 and the prompt's 14 leave 22 tokens.
    tree = RaptorTree.build(chunks, embedder, ScriptedGenerator(first_words, context_length=200), words())
    assert {len(c.metadata["children"]) for c in summaries(tree) if c.metadata["level"] == 1} == {2}


def test_a_layer_that_condenses_little_is_not_built() -> None:
    chunks, embedder = corpus(groups=1, each=8)
    generator = ScriptedGenerator(first_words)
    pairs = RaptorConfig(cluster_tokens=20, max_ratio=0.4)  # pairs make at least four nodes of eight
    assert summaries(RaptorTree.build(chunks, embedder, generator, words(), pairs)) == []
    assert generator.asked == []
    one = RaptorConfig(cluster_tokens=20, max_layers=1)
    built = summaries(RaptorTree.build(chunks, embedder, generator, words(), one))
    assert built and {chunk.metadata["level"] for chunk in built} == {1}


def test_all_chunks_alike_end_in_one_cluster() -> None:
    embedder = TableEmbedder({"same": [1.0, 0.0], "where?": [1.0, 0.0]})
    chunks = [Chunk(str(i), "same", 1) for i in range(40)]
    tree = RaptorTree.build(chunks, embedder, ScriptedGenerator(first_words), words())
    assert [len(chunk.metadata["children"]) for chunk in summaries(tree)] == [40]


def test_summaries_are_cut_to_their_limit_and_empty_ones_left_out() -> None:
    chunks, embedder = corpus(groups=1, each=4)
    config = RaptorConfig(summary_tokens=2)
    generator = ScriptedGenerator(lambda prompt: " g0n0 g0n1 g0n2 g0n3 ")
    (summary,) = summaries(RaptorTree.build(chunks, embedder, generator, words(), config))
    assert (summary.text, summary.cost, generator.asked[0][1]) == ("g0n0 g0n1", 2, 2)
    with pytest.warns(UserWarning, match="generator 'scripted' wrote 1 empty summaries"):
        tree = RaptorTree.build(chunks, embedder, ScriptedGenerator(lambda prompt: " "), words())
    assert summaries(tree) == []


def test_retrieval_takes_the_nearest_nodes_of_all_levels_within_the_budget() -> None:
    embedder = TableEmbedder({"a": [1, 0], "b": [0, 1], "q": [0.8, 0.6]})
    chunks = [Chunk("a", "a", 5), Chunk("b", "b", 6)]
    tree = RaptorTree.build(chunks, embedder, ScriptedGenerator(first_words), words())
    # Cosines: a 0.8, b 0.6, their summary (1.4/√2) 0.99. The summary costs 2, then a fits, b does not.
    result = raptor("q", tree, embedder, SearchConfig(budget=8))
    assert (result.order, result.cost, result.evaluations) == ((2, 0), 7, 0)
    assert [chunk.metadata.get("kind") for chunk in result.chunks] == ["summary", None]
    assert result.value == pytest.approx((1.4 / 2**0.5 + 0.8) / 2)
    assert result.objective == pytest.approx(result.value - 0.1 * 7 / 8)
    judged = raptor("q", tree, embedder, SearchConfig(budget=8), reranker=lambda query, orders: [0.25] * len(orders))
    assert (judged.order, judged.value, judged.evaluations) == ((2, 0), 0.25, 1)
    by_score = Scripted({"a": 0.9}, order_sensitive=False, default=0.3)
    assert raptor("q", tree, embedder, SearchConfig(budget=8), reranker=by_score).order == (0, 2)


def test_mixtures_fitted_on_a_sample_place_the_rest_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corag_search.baselines.soft_clusters.ASSIGN_ROWS", 7)
    chunks, embedder = corpus(groups=2, each=60)
    vectors = embedder.encode([chunk.text for chunk in chunks])
    clusters = mixture_clusters(vectors, 4, 10, 0.1, sample=40, seed=3)
    assert sorted(np.concatenate(clusters).tolist()) == list(range(120))
    assert all(len({chunks[i].metadata["group"] for i in own.tolist()}) == 1 for own in clusters)
    again = mixture_clusters(vectors, 4, 10, 0.1, sample=40, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(clusters, again, strict=True))


def test_soft_clusters_lose_nobody_and_may_share() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 6)).astype(np.float32)
    clusters = soft_clusters(vectors, 10, 50, 0.01, 2000, 0)
    assert set(np.concatenate(clusters).tolist()) == set(range(200))
    assert len({tuple(own.tolist()) for own in clusters}) == len(clusters)
    between = np.concatenate([rng.normal(-1.5, 1, (100, 1)), rng.normal(1.5, 1, (100, 1))]).astype(np.float32)
    assert sum(len(own) for own in mixture_clusters(between, 1, 5, 0.1, 2000, 0)) >= 200


def test_split_to_fit_ends_where_clustering_does_not_divide() -> None:
    costs = np.array([5, 5, 9, 2, 20])
    pieces = split_to_fit(np.arange(5), costs, 10, lambda rows: [rows])
    assert sorted(piece.tolist() for piece in pieces) == [[0, 1], [2], [3], [4]]
    halves = split_to_fit(np.arange(4), np.full(4, 5), 10, lambda rows: [rows[:2], rows[1:]])
    assert sorted(piece.tolist() for piece in halves) == [[0, 1], [1, 2], [2, 3]]


def test_a_cut_summary_is_counted_anew() -> None:
    (chunk,) = Summariser(ScriptedGenerator(lambda _: "a b c"), words(), 1, "{context}", 1).chunks(
        1, [[Chunk("x", "x", 1)]]
    )
    assert chunk is not None and (chunk.text, chunk.cost) == ("a", 1)


def test_unusable_input_is_named() -> None:
    chunks, embedder = corpus(groups=1, each=3)
    generator = ScriptedGenerator(first_words)

    def build(chunks, config=None, generator=generator, **options):
        return RaptorTree.build(chunks, embedder, generator, words(), config, **options)

    with pytest.raises(InputError, match="no chunks to build a tree over"):
        build([])
    with pytest.raises(InputError, match="two chunks have the same id"):
        build([chunks[0], chunks[0]])
    with pytest.raises(InputError, match=r"embeddings must be finite and of shape \[3, d\], got \[2, 8\]"):
        build(chunks, embeddings=np.ones((2, 8)))
    with pytest.raises(InputError, match="the embedder's 8 dimensions, got 4"):
        build(chunks, embeddings=np.ones((3, 4)))
    with pytest.raises(InputError, match="room for 15 tokens of chunks, the two smallest have 20"):
        build(chunks, RaptorConfig(cluster_tokens=15))
    with pytest.raises(InputError, match="leave no room in the context of generator 'scripted' \\(100 tokens\\)"):
        build(chunks, generator=ScriptedGenerator(first_words, context_length=100))
    with pytest.raises(InputError, match="ids of the form 'summary/1/0'"):
        build([Chunk("summary/1/0", "g0n0", 1), *chunks])
    with pytest.raises(InputError, match="threshold must be a number of at least 0 and below 1, got 1"):
        RaptorConfig(threshold=1)
    with pytest.raises(InputError, match=r"prompt must contain \{context\}"):
        RaptorConfig(prompt="Sum up.")
    tree = build(chunks)
    with pytest.raises(InputError, match="budget must be at least the smallest candidate's cost \\(3 tokens\\), got 2"):
        raptor("where?", tree, embedder, SearchConfig(budget=2))
    with pytest.raises(InputError, match="query must be a text"):
        raptor(" ", tree, embedder)
    with pytest.raises(InputError, match="the tree was built with the embedder table"):
        raptor("where?", tree, TableEmbedder({"where?": [1.0]}))
