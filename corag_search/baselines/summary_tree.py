"""RAPTOR: a tree of summaries over the chunks of a corpus, built once and asked many times."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag_search.baselines.filling import fill_by_similarity
from corag_search.baselines.soft_clusters import Rows, soft_clusters
from corag_search.baselines.summaries import CHAT_TEMPLATE_TOKENS, PROMPT, SEPARATOR, Summariser, split_to_fit
from corag_search.baselines.vectors import unit_rows
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.embedders.base import Embedder
from corag_search.errors import InputError
from corag_search.generators.base import Generator
from corag_search.policy_tree.problem import check_query
from corag_search.policy_tree.search import AnyReranker
from corag_search.registry import whole
from corag_search.result import SearchResult
from corag_search.store import EmbedderIdentity
from corag_search.tokenizers import Tokenizer


@dataclass(frozen=True)
class RaptorConfig:
    """How a tree is built. Defaults are those of the authors' program (github.com/parthsarthi03/raptor).

    Attributes:
        summary_tokens: Longest summary.
        cluster_tokens: Chunks of one summary together, at most; less where the generator's context demands it.
        dimension: Of the reduced embeddings.
        max_components: Of a Gaussian mixture.
        threshold: Least probability of membership, in [0, 1): a chunk may be in several clusters.
        max_layers: Of summaries.
        max_ratio: **[ours]** A layer of more than this fraction of the one below is not built: it would cost as many
            summaries as it has nodes and condense nothing.
        sample: **[ours]** Nodes that a mixture is fitted on; the rest are assigned in batches, so that memory beside
            the embeddings does not grow with the corpus.
        seed: Of sampling and initialisation.
        prompt: With `{context}`.
    """

    summary_tokens: int = 100
    cluster_tokens: int = 3500
    dimension: int = 10
    max_components: int = 50
    threshold: float = 0.1
    max_layers: int = 5
    max_ratio: float = 0.8
    sample: int = 2000
    seed: int = 224
    prompt: str = PROMPT

    def __post_init__(self) -> None:
        for name in ("summary_tokens", "cluster_tokens", "dimension", "max_components", "max_layers", "sample", "seed"):
            object.__setattr__(self, name, whole(name, getattr(self, name), least=0 if name == "seed" else 1))
        for name, value in (("threshold", self.threshold), ("max_ratio", self.max_ratio)):
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
                raise InputError(f"{name} must be a number of at least 0 and below 1, got {value!r}")
        if "{context}" not in self.prompt:
            raise InputError(f"prompt must contain {{context}}, got {self.prompt!r}")


@dataclass(frozen=True, eq=False)
class RaptorTree:
    """Chunks and the summaries over them (arXiv:2401.18059). Safe to ask from several threads.

    Attributes:
        chunks: The leaves as they were given, then the summaries, lowest level first. A summary's metadata has `kind`
            ("summary"), `level` (the layer that it was written for; leaves are layer 0) and `children` (ids).
        embeddings: `[len(chunks), d]`, rows of unit length.
        leaves: How many of the chunks are leaves.
        embedder: Which embedder made the vectors.
    """

    chunks: tuple[Chunk, ...]
    embeddings: NDArray[np.float32]
    leaves: int
    embedder: EmbedderIdentity

    @classmethod
    def build(
        cls,
        chunks: Sequence[Chunk],
        embedder: Embedder,
        generator: Generator,
        tokenizer: Tokenizer,
        config: RaptorConfig | None = None,
        *,
        embeddings: NDArray[np.floating] | None = None,
        workers: int = 1,
    ) -> RaptorTree:
        """Cluster, summarise, embed the summaries, and again over these, until one node is left or none is saved.

        From a store: `RaptorTree.build(store.chunks, …, embeddings=store.embeddings())`.

        **[ours]** A node that is alone in its cluster goes up as it is, unsummarised. Up to `dimension + 1` nodes are
        one cluster (the authors' program builds nothing over so few), so two or three chunks get one summary and a
        single chunk none. A cluster whose summary comes back empty is left out, with one warning at the end.

        Args:
            chunks: Of the corpus, no id twice.
            embedder: Embeds the summaries, and the chunks when their embeddings are not given.
            generator: Writes the summaries, one call each.
            tokenizer: The run's; counts the summaries' cost.
            config: How.
            embeddings: Of the chunks, `[n, d]`, by the same embedder.
            workers: Summaries asked for at a time; the tree does not depend on it.

        Raises:
            InputError: No chunks, an id twice, embeddings of another shape, a context too short for two chunks'
                summary, or scikit-learn missing (extra `baselines`).
            GeneratorError: The generator failed.
        """
        config = config or RaptorConfig()
        _check_chunks(chunks)
        limit, between = _prompt_room(config, generator, tokenizer), tokenizer.count([SEPARATOR])[0]
        if len(chunks) > 1 and (pair := sum(sorted(chunk.cost for chunk in chunks)[:2]) + 2 * between) > limit:
            raise InputError(
                f"a summary's prompt has room for {limit} tokens of chunks, the two smallest have {pair}; raise "
                "cluster_tokens or the generator's context, or cut smaller chunks"
            )
        if embeddings is None:
            embeddings = embedder.encode([chunk.text for chunk in chunks])
        vectors = [unit_rows("embeddings", embeddings, len(chunks))]
        if vectors[0].shape[1] != embedder.dimension:
            raise InputError(
                f"embeddings must have the embedder's {embedder.dimension} dimensions, got {vectors[0].shape[1]}"
            )
        write = Summariser(generator, tokenizer, config.summary_tokens, config.prompt, whole("workers", workers))
        nodes = list(chunks)
        # The current layer: which nodes, and their vectors (those of the leaves are not copied).
        layer, layer_vectors = np.arange(len(nodes)), vectors[0]
        empty = 0
        for level in range(1, config.max_layers + 1):
            costs = np.array([nodes[i].cost for i in layer.tolist()]) + between
            clusters = _layer(layer_vectors, costs, limit, config)
            if clusters is None:
                break
            grouped = [layer[rows] for rows in clusters if len(rows) > 1]
            written = write.chunks(level, [[nodes[i] for i in own.tolist()] for own in grouped])
            summaries = [chunk for chunk in written if chunk is not None]
            empty += len(written) - len(summaries)
            if not summaries:
                break
            fresh = unit_rows("embeddings", embedder.encode([chunk.text for chunk in summaries]), len(summaries))
            alone = np.array(sorted({int(rows[0]) for rows in clusters if len(rows) == 1}), np.intp)
            layer_vectors = np.concatenate([layer_vectors[alone], fresh])
            layer = np.concatenate([layer[alone], np.arange(len(nodes), len(nodes) + len(summaries))])
            nodes += summaries
            vectors.append(fresh)
        if empty:
            warnings.warn(
                f"generator {generator.name!r} wrote {empty} empty summaries; they are left out of the tree",
                stacklevel=2,
            )
        if len({chunk.id for chunk in nodes}) < len(nodes):
            raise InputError("ids of the form 'summary/1/0' are the summaries'; rename the chunks that have one")
        return cls(tuple(nodes), np.concatenate(vectors), len(chunks), EmbedderIdentity.of(embedder))


def _check_chunks(chunks: Sequence[Chunk]) -> None:
    if not len(chunks):
        raise InputError("there are no chunks to build a tree over; the corpus is empty")
    if len({chunk.id for chunk in chunks}) < len(chunks):
        raise InputError("two chunks have the same id; ids must be unique in a tree")


def _prompt_room(config: RaptorConfig, generator: Generator, tokenizer: Tokenizer) -> int:
    """Tokens that the chunks of one summary may have together."""
    if generator.context_length is None:
        return config.cluster_tokens
    around = tokenizer.count([config.prompt])[0] + CHAT_TEMPLATE_TOKENS + config.summary_tokens
    room = min(config.cluster_tokens, generator.context_length - around)
    if room < 1:
        raise InputError(
            f"summary_tokens ({config.summary_tokens}) and the prompt leave no room in the context of generator "
            f"{generator.name!r} ({generator.context_length} tokens); lower summary_tokens or raise its context"
        )
    return room


def _layer(
    vectors: NDArray[np.float32], costs: NDArray[np.int64], limit: int, config: RaptorConfig
) -> list[Rows] | None:
    """Clusters of a layer, or None when the layer above would not be much smaller."""
    count = len(vectors)
    if count == 1:
        return None

    def split(rows: Rows) -> list[Rows]:
        own = vectors[rows]
        parts = soft_clusters(
            own, config.dimension, config.max_components, config.threshold, config.sample, config.seed
        )
        return [rows[part] for part in parts]

    everything = np.arange(count)
    whole_layer = [everything] if count <= config.dimension + 1 else split(everything)
    pieces = [piece for members in whole_layer for piece in split_to_fit(members, costs, limit, split)]
    distinct = {tuple(piece.tolist()): piece for piece in pieces}
    inside = {row for rows in distinct if len(rows) > 1 for row in rows}
    # A chunk that is alone in one cluster and in company in another is summarised there.
    clusters = [piece for rows, piece in sorted(distinct.items()) if len(rows) > 1 or rows[0] not in inside]
    if not inside or len(clusters) > max(1, math.floor(config.max_ratio * count)):
        return None
    return clusters


def raptor(
    query: str,
    tree: RaptorTree,
    embedder: Embedder,
    config: SearchConfig | None = None,
    *,
    reranker: AnyReranker | None = None,
) -> SearchResult:
    """Fill the budget with the nodes most similar to the query, from all levels at once.

    The collapsed tree of arXiv:2401.18059, section 3, which the paper found better than going down level by level.
    **[ours]** A node that does not fit is passed over, as in `naive_rag` (the authors' program stops there).

    Args:
        query: The question.
        tree: From `RaptorTree.build`.
        embedder: The one that built the tree.
        config: Its budget and λ are used; `max_chunks` does not apply.
        reranker: When given, value and objective are its benefit of the chosen nodes in their order. Without, the
            value is their mean cosine with the query, each clipped to [0, 1].

    Returns:
        `order` are indices into `tree.chunks`, by falling similarity; the chunks may be summaries.

    Raises:
        InputError: An unusable query, another embedder, or a budget below every node's cost.
    """
    check_query(query)
    if EmbedderIdentity.of(embedder) != tree.embedder:
        raise InputError(
            f"the tree was built with the embedder {tree.embedder}, got {EmbedderIdentity.of(embedder)}; use that one "
            "or build the tree anew"
        )
    similarity = tree.embeddings @ unit_rows("query embedding", embedder.encode([query]), 1)[0]
    return fill_by_similarity(query, tree.chunks, similarity, config or SearchConfig(), reranker)
