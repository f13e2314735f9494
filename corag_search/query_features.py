"""What can be seen of a query and its candidates before any search: further inputs of the configuration agent."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.embedders.base import at_unit_length
from corag_search.errors import InputError
from corag_search.lexical import lexical_tokens
from corag_search.rerankers.bm25 import BM25Reranker

if TYPE_CHECKING:
    from corag_search.embedders.base import Embedder
    from corag_search.store import VectorStore

STATISTICS: tuple[str, ...] = (
    "query_length",
    "dense_best",
    "dense_lead",
    "dense_spread",
    "lexical_best",
    "lexical_lead",
    "lexical_spread",
    "agreement",
    "redundancy",
    "lexical_share",
    "lexical_coverage",
    "non_ascii",
)

# Similarities closer than this are one rank: equal texts differ in the last bits of theirs.
_RANKED_DIGITS = 6


@dataclass(frozen=True, slots=True, eq=False)
class QueryFeatures:
    """Inputs of the agent beside the query embedding.

    Attributes:
        chunk_mean: Mean of the candidates' embeddings, `[d]`; its length tells how alike they are, so it is not brought
            to unit length.
        statistics: In the order of `STATISTICS`, `[statistics]`; see `query_features`.
    """

    chunk_mean: NDArray[np.float32]
    statistics: NDArray[np.float32]


def query_features(
    query: str,
    query_embedding: NDArray[np.float32],
    candidates: Sequence[Chunk],
    candidate_vectors: NDArray[np.float32],
) -> QueryFeatures:
    """Features of a query and its candidates, which alone they depend on, whatever retrieval found them.

    With s the cosines of query and candidates, and b the BM25 of each candidate as `BM25Reranker` scores it alone
    (share of what the query's words could reach, the candidates being the collection), the statistics are:

    - `query_length`: ln(1 + lexical tokens of the query), at least 0.
    - `dense_best`: max s, in [−1, 1].
    - `dense_lead`: max s − mean s, in [0, 2]; 0 where all are tied.
    - `dense_spread`: standard deviation of s (over n), in [0, 1].
    - `lexical_best`, `lexical_lead`, `lexical_spread`: the same of b, which lies in [0, 1).
    - `agreement`: Spearman's rank correlation of s and b, ties having their mean rank, in [−1, 1]; 0 where one of them
      is the same for all candidates.
    - `redundancy`: mean cosine of two different candidates, in [−1, 1]; 0 for a single one.
    - `lexical_share`: share of the candidates in which some lexical token of the query occurs, in [0, 1].
    - `lexical_coverage`: share of the query's distinct lexical tokens that some candidate has, in [0, 1]; 0 where the
      query has none.
    - `non_ascii`: share of the query's letters (after NFKC) that are not ASCII, in [0, 1]; 0 without letters.

    Args:
        query: The question.
        query_embedding: Of it, `[d]`.
        candidates: n chunks, in any order.
        candidate_vectors: Embeddings of them, `[n, d]`; see `embed_candidates`.

    Raises:
        InputError: No candidates, or embeddings that are not finite or of another shape.
    """
    embedding, vectors = np.asarray(query_embedding), np.asarray(candidate_vectors)
    if not len(candidates):
        raise InputError("there are no candidates to describe; give at least one chunk")
    if embedding.ndim != 1 or vectors.shape != (len(candidates), len(embedding)):
        raise InputError(
            f"embeddings of a query and its candidates must be of shape [d] and [{len(candidates)}, d], "
            f"got {list(embedding.shape)} and {list(vectors.shape)}; embed all with one embedder"
        )
    if not (np.isfinite(embedding).all() and np.isfinite(vectors).all()):
        raise InputError("embeddings must be finite, got NaN or infinity in them; check the embedder")
    units = at_unit_length(vectors.astype(np.float64))
    dense = units @ at_unit_length(embedding[None].astype(np.float64))[0]
    session = BM25Reranker().open(query, candidates)
    lexical = session.score([(row,) for row in range(len(candidates))])
    values = (
        math.log1p(len(lexical_tokens(query))),
        *_best_lead_spread(dense),
        *_best_lead_spread(lexical),
        _rank_correlation(dense, lexical),
        _mean_cosine(units),
        session.occurs.any(axis=1).mean(),
        session.occurs.any(axis=0).sum() / max(session.occurs.shape[1], 1),
        _non_ascii(query),
    )
    return QueryFeatures(vectors.mean(axis=0, dtype=np.float64).astype(np.float32), np.array(values, np.float32))


def embed_candidates(
    candidates: Sequence[Chunk], embedder: Embedder, store: VectorStore | None = None
) -> NDArray[np.float32]:
    """Embeddings of candidates, `[n, d]`: the store's of those that it holds, new ones of the rest.

    Args:
        candidates: n chunks, from the store or elsewhere.
        embedder: The one that built the store.
        store: Where most of them come from; an index of kind ivfpq has its vectors approximately. None embeds all.
    """
    vectors = np.zeros((len(candidates), embedder.dimension), np.float32)
    rows = np.full(len(candidates), -1)
    if store is not None:
        rows = store.rows_of([chunk.id for chunk in candidates])
        # An id can be another's of the same name: what was embedded is the text.
        same = [
            row >= 0 and store.chunks.at(row).text == c.text for row, c in zip(rows.tolist(), candidates, strict=True)
        ]
        rows = np.where(same, rows, -1)
        if (rows >= 0).any():
            vectors[rows >= 0] = store.embeddings(rows[rows >= 0])
    missing = np.flatnonzero(rows < 0).tolist()
    if missing:
        vectors[missing] = embedder.encode([candidates[at].text for at in missing])
    return vectors


def _best_lead_spread(scores: NDArray[np.float64]) -> tuple[float, float, float]:
    best = scores.max()
    return best, best - scores.mean(), scores.std()


def _rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Spearman's, the correlation of the ranks; 0 where there is no variation."""
    ranks = np.stack([_mean_ranks(one), _mean_ranks(other)])
    ranks -= ranks.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(ranks, axis=1)
    return float(ranks[0] @ ranks[1] / norms.prod()) if norms.all() else 0.0


def _mean_ranks(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks `[n]` from 1, ascending; equal scores have the mean of theirs."""
    _, place, counts = np.unique(np.round(scores, _RANKED_DIGITS), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _mean_cosine(units: NDArray[np.float64]) -> float:
    """Mean over the pairs of different rows: (|Σu|² − Σ|u|²) / (n (n − 1))."""
    count = len(units)
    if count < 2:
        return 0.0
    total = units.sum(axis=0)
    return float((total @ total - np.square(units).sum()) / (count * (count - 1)))


def _non_ascii(query: str) -> float:
    letters = [character for character in unicodedata.normalize("NFKC", query) if character.isalpha()]
    return sum(not letter.isascii() for letter in letters) / len(letters) if letters else 0.0
