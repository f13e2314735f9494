"""Late-interaction reranker: MaxSim of contextual token vectors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.embedders.minilm import MAX_TOKENS, MiniLMEmbedder
from corag_search.rerankers.base import Combinations, Scores
from corag_search.rerankers.session import reduce_orders, score_in_session


class MaxSimReranker:
    """Late interaction as in ColBERT (Khattab and Zaharia, arXiv:2004.12832), over MiniLM's token vectors.

        R(q, Φ) = max(0, mean over the query's tokens i of max over Φ's tokens j of cos(q_i, χ_j))

    Chunks are encoded one by one, so a combination's maxima are the element-wise maxima of its chunks'.

    Attributes:
        name: "maxsim".
        order_sensitive: False.
        max_tokens: None; a combination may be of any length, but each chunk is read up to 512 tokens.
    """

    name = "maxsim"
    order_sensitive = False
    max_tokens: int | None = None

    def __init__(self, dtype: str = "float32", device: str | None = None, batch_size: int = 32) -> None:
        """Prepare; the model is loaded at first use. The options are those of `MiniLMEmbedder`."""
        self._embedder = MiniLMEmbedder(dtype, device, batch_size)
        self._warned = False

    def open(self, query: str, candidates: Sequence[Chunk]) -> MaxSimSession:
        """Encode query and candidates once; warns the first time that a chunk is cut."""
        texts = [chunk.text for chunk in candidates]
        lengths = self._embedder.count_tokens(texts)
        if not self._warned and any(length > MAX_TOKENS for length in lengths):
            self._warned = True
            longest = int(np.argmax(lengths))
            warnings.warn(
                f"reranker 'maxsim' reads {MAX_TOKENS} tokens of a chunk: {candidates[longest].id!r} has "
                f"{lengths[longest]}; what is beyond is not scored, cut smaller chunks (said once)",
                stacklevel=2,
            )
        distinct = list(dict.fromkeys([query, *texts]))
        vectors = dict(zip(distinct, self._embedder.encode_tokens(distinct), strict=True))
        tokens = vectors[query]
        maxima = np.full((len(candidates), len(tokens)), -1.0)  # the least cosine: a chunk without tokens adds nothing
        for row, text in enumerate(texts):
            if len(vectors[text]):
                maxima[row] = (tokens @ vectors[text].T).max(axis=1)
        return MaxSimSession(maxima)

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits `[n]`; an empty combination, or a query without tokens, has 0."""
        return score_in_session(self, query, combinations)


class MaxSimSession:
    """The best cosine of each query token in each candidate."""

    def __init__(self, maxima: NDArray[np.float64]) -> None:
        """Keep the maxima, `[candidates, query tokens]`."""
        self._maxima = maxima

    def score(self, orders: Sequence[tuple[int, ...]]) -> Scores:
        """Benefits `[n]` in [0, 1]."""
        if not self._maxima.shape[1]:
            return np.zeros(len(orders))
        return np.clip(reduce_orders(np.maximum, self._maxima, orders).mean(axis=1), 0.0, 1.0)
