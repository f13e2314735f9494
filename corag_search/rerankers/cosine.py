"""Dense reranker: cosine of the query and the whole combination."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from corag_search.embedders.minilm import MAX_TOKENS, MiniLMEmbedder
from corag_search.errors import InputError
from corag_search.rerankers.base import Combinations, Scores


class CosineReranker:
    """MiniLM's cosine of the query and the chunks' texts joined in order, max(0, ·).

    Attributes:
        name: "cosine".
        order_sensitive: True; the encoder sees positions.
        max_tokens: 512. Query and combination are encoded apart, so their sum may reach it without any cut.
    """

    name = "cosine"
    order_sensitive = True
    max_tokens: int | None = MAX_TOKENS

    def __init__(self, dtype: str = "float32", device: str | None = None, batch_size: int = 32) -> None:
        """Prepare; the model is loaded at first use. The options are those of `MiniLMEmbedder`."""
        self._embedder = MiniLMEmbedder(dtype, device, batch_size)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Length of each text in MiniLM's tokens, with its two special tokens."""
        return self._embedder.count_tokens(texts)

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits `[n]`; an empty combination has 0."""
        return self.score_pairs([query] * len(combinations), combinations)

    def score_pairs(self, queries: Sequence[str], combinations: Combinations) -> Scores:
        """Benefits `[n]`, one query per combination; each distinct text is encoded once, all in one sorted batch.

        Raises:
            InputError: Not as many queries as combinations.
        """
        texts = joined(queries, combinations)
        row = {text: number for number, text in enumerate(dict.fromkeys([*queries, *texts]))}
        distinct = list(row)
        if max(self.count_tokens(distinct), default=0) > MAX_TOKENS:
            warnings.warn(
                f"reranker 'cosine' reads {MAX_TOKENS} tokens; longer combinations were cut and do not compare",
                stacklevel=2,
            )
        vectors = self._embedder.encode(distinct).astype(np.float64)
        similarity = np.einsum(
            "nd,nd->n", vectors[[row[query] for query in queries]], vectors[[row[text] for text in texts]]
        )
        filled = np.fromiter(map(bool, combinations), np.bool_, len(combinations))
        return np.where(filled, np.clip(similarity, 0.0, 1.0), 0.0)


def joined(queries: Sequence[str], combinations: Combinations) -> list[str]:
    """The text of each combination, its chunks joined in order by a space (METHOD §4).

    Raises:
        InputError: Not as many queries as combinations.
    """
    if len(queries) != len(combinations):
        raise InputError(
            f"score_pairs takes one query per combination, got {len(queries)} queries for {len(combinations)}"
        )
    return [" ".join(chunk.text for chunk in combination) for combination in combinations]
