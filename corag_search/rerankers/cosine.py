"""Dense reranker: cosine of the query and the whole combination."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from corag_search.embedders.minilm import MAX_TOKENS, SPECIAL_TOKENS, MiniLMEmbedder
from corag_search.registry import one_of
from corag_search.rerankers.base import Combinations, Scores
from corag_search.rerankers.joined import JoinedTokens, Long, check_pairs, windows

CACHED_QUERIES = 1024


class CosineReranker:
    """MiniLM's cosine of the query and the chunks' texts joined in order, max(0, ·). Safe to share between threads.

    Queries are encoded and chunks tokenised once; what a batch encodes are the combinations.

    Attributes:
        name: "cosine".
        order_sensitive: True; the encoder sees positions.
        max_tokens: 512. Query and combination are encoded apart, so their sum may reach it without any cut. None with
            `long="window"`.
    """

    name = "cosine"
    order_sensitive = True

    def __init__(
        self, dtype: str = "float32", device: str | None = None, batch_size: int = 32, long: str = "refuse"
    ) -> None:
        """Prepare; the model is loaded at first use.

        Args:
            dtype: As for `MiniLMEmbedder`.
            device: As for `MiniLMEmbedder`.
            batch_size: Texts per forward pass.
            long: "refuse" to keep the search below 512 tokens; "window" to score a longer combination over overlapping
                windows, of which the best counts.

        Raises:
            InputError: An unusable value, or the extra `local` is not installed.
        """
        self._long = one_of("long", long, Long)
        self.max_tokens: int | None = MAX_TOKENS if self._long is Long.REFUSE else None
        self._embedder = MiniLMEmbedder(dtype, device, batch_size)
        self._query_vector = lru_cache(CACHED_QUERIES)(self._encode_query)
        self._warned = False

    @cached_property
    def _tokens(self) -> JoinedTokens:
        return JoinedTokens(self._embedder.tokenizer)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Length of each text in MiniLM's tokens, with its two special tokens."""
        return [len(self._tokens.of([text])) + SPECIAL_TOKENS for text in texts]

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits `[n]`; an empty combination has 0."""
        return self.score_pairs([query] * len(combinations), combinations)

    def score_pairs(self, queries: Sequence[str], combinations: Combinations) -> Scores:
        """Benefits `[n]`, one query per combination; each distinct text is encoded once, all in one sorted batch.

        Raises:
            InputError: Not as many queries as combinations.
        """
        check_pairs(queries, combinations)
        scores = np.zeros(len(combinations))
        filled = [row for row, combination in enumerate(combinations) if combination]
        if not filled:
            return scores
        texts = [tuple(chunk.text for chunk in combinations[row]) for row in filled]
        spans = self._windows(list(dict.fromkeys(texts)))
        vectors = self._embedder.encode_ids([ids for own in spans.values() for ids in own]).astype(np.float64)
        ends = np.cumsum([len(own) for own in spans.values()])
        of_text = dict(zip(spans, np.split(vectors, ends[:-1]), strict=True))
        for row, text in zip(filled, texts, strict=True):
            scores[row] = (of_text[text] @ self._query_vector(queries[row])).max()
        return np.clip(scores, 0.0, 1.0)

    def _windows(self, texts: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], list]:
        """What is read of each joined text; warns the first time that something is cut."""
        room = MAX_TOKENS - SPECIAL_TOKENS
        ids = [self._tokens.of(text) for text in texts]
        if self._long is Long.REFUSE and not self._warned and any(len(row) > room for row in ids):
            self._warned = True
            longest = max(map(len, ids)) + SPECIAL_TOKENS
            warnings.warn(
                f"reranker 'cosine' reads {MAX_TOKENS} tokens; a text of {longest} was cut, and scores of cut texts do "
                "not compare; long='window' reads all of it (said once)",
                stacklevel=4,
            )
        return {text: windows(row, room, self._long) for text, row in zip(texts, ids, strict=True)}

    def _encode_query(self, query: str) -> np.ndarray:
        return self._embedder.encode([query])[0].astype(np.float64)
