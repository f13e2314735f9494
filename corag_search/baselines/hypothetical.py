"""HyDE: retrieval by the embedding of a passage that might answer the question."""

from __future__ import annotations

import numpy as np

from corag_search.baselines.filling import fill_by_similarity
from corag_search.baselines.vectors import unit_rows
from corag_search.config import SearchConfig
from corag_search.embedders.base import Embedder
from corag_search.errors import InputError
from corag_search.generators.base import Generator
from corag_search.policy_tree.problem import check_query
from corag_search.policy_tree.search import AnyReranker
from corag_search.registry import whole
from corag_search.result import SearchResult
from corag_search.store import VectorStore

PROMPT = "Please write a passage to answer the question.\nQuestion: {question}\nPassage:"


def hyde(
    query: str,
    store: VectorStore,
    embedder: Embedder,
    generator: Generator,
    config: SearchConfig | None = None,
    *,
    candidates: int = 20,
    passages: int = 1,
    passage_tokens: int = 128,
    prompt: str = PROMPT,
    reranker: AnyReranker | None = None,
) -> SearchResult:
    """Retrieve by hypothetical document embeddings, then fill the budget by similarity.

    The generator writes passages d₁ … d_N that answer the question, true or not; the search vector is the mean of
    their embeddings and the query's (L. Gao, X. Ma, J. Lin, J. Callan, *Precise Zero-Shot Dense Retrieval without
    Relevance Labels*, arXiv:2212.10496, section 3.2). The prompt is the paper's for web search. A passage
    that comes back empty is left out of the mean. **[ours]** N is 1 (the paper samples several), since a
    generator at temperature 0 writes the same one each time; a chunk that does not fit is passed over.

    Args:
        query: The question.
        store: Of the corpus.
        embedder: The one that built the store.
        generator: Writes the passages, one call each.
        config: Its budget and λ are used; `max_chunks` does not apply.
        candidates: Chunks retrieved, k.
        passages: N, at least 1.
        passage_tokens: Longest passage, in the generator's tokens.
        prompt: With `{question}`.
        reranker: When given, value and objective are its benefit, for the query itself, of the chosen chunks in their
            order. Without, the value is their mean cosine with the search vector, each clipped to [0, 1].

    Returns:
        `order` are indices into the k retrieved chunks, best first: by falling similarity with the search vector.

    Raises:
        InputError: An unusable query or value, another embedder, or a budget below every candidate's cost.
        GeneratorError: The generator failed.
    """
    check_query(query)
    store.check_embedder(embedder)
    if "{question}" not in prompt:
        raise InputError(f"prompt must contain {{question}}, got {prompt!r}")
    length = whole("passage_tokens", passage_tokens, unit="tokens")
    k = whole("candidates", candidates, unit="chunks")
    asked = prompt.replace("{question}", query)
    written = [generator.generate(asked, length).text.strip() for _ in range(whole("passages", passages))]
    texts = [query, *(text for text in written if text)]
    mean = unit_rows("embeddings", embedder.encode(texts), len(texts)).mean(axis=0, keepdims=True)
    rows, similarity = store.search_rows(unit_rows("search vector", mean, 1), k)
    chunks = [store.chunks[row] for row in rows[0]]
    return fill_by_similarity(query, chunks, similarity[0].astype(np.float64), config or SearchConfig(), reranker)
