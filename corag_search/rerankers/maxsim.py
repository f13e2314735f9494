"""Late-interaction reranker: MaxSim of contextual token vectors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.embedders.minilm import MAX_TOKENS, SPECIAL_TOKENS, MiniLMEmbedder
from corag_search.rerankers.base import Combinations, Scores
from corag_search.rerankers.session import reduce_orders, score_in_session
from corag_search.token_vectors import LEAST, TokenVectors


class MaxSimReranker:
    """Late interaction as in ColBERT (Khattab and Zaharia, arXiv:2004.12832), over MiniLM's token vectors.

        R(q, Φ) = max(0, mean over the query's tokens i of max over Φ's tokens j of cos(q_i, χ_j))

    Chunks are encoded one by one, so a combination's maxima are the element-wise maxima of its chunks'.

    Attributes:
        name: "maxsim".
        order_sensitive: False.
        max_tokens: None; a combination may be of any length, but each chunk is read up to 512 tokens.
        encoder: Makes the token vectors.
    """

    name = "maxsim"
    order_sensitive = False
    max_tokens: int | None = None

    def __init__(
        self,
        dtype: str = "float32",
        device: str | None = None,
        batch_size: int = 32,
        token_vectors: str | None = None,
    ) -> None:
        """Prepare; the model is loaded at first use.

        Args:
            dtype: As for `MiniLMEmbedder`.
            device: As for `MiniLMEmbedder`.
            batch_size: Texts per forward pass.
            token_vectors: Directory of `TokenVectors`; chunks that are in it are not encoded again.

        Raises:
            InputError: An unusable value, token vectors of another encoder, or the extra `local` is not installed.
        """
        self.encoder = MiniLMEmbedder(dtype, device, batch_size)
        self._stored = None if token_vectors is None else TokenVectors.load(token_vectors)
        if self._stored is not None:
            self._stored.check_encoder(self.encoder)
        self._warned = False

    def open(self, query: str, candidates: Sequence[Chunk]) -> MaxSimSession:
        """Encode the query and the candidates that are not stored; warns the first time that a chunk is cut."""
        (tokens,) = self.encoder.encode_tokens([query])
        maxima = np.full((len(candidates), len(tokens)), LEAST)
        texts = [chunk.text for chunk in candidates]
        missing = list(range(len(candidates)))
        if self._stored is not None:
            rows, stored = self._stored.maxima(tokens, texts)
            maxima[rows] = stored
            missing = np.setdiff1d(missing, rows).tolist()
        ids = self.encoder.ids([texts[row] for row in missing])
        self._warn_of_cuts([candidates[row] for row in missing], [len(own) + SPECIAL_TOKENS for own in ids])
        for row, vectors in zip(missing, self.encoder.encode_tokens_of(ids), strict=True):
            if len(vectors):
                maxima[row] = (tokens @ vectors.T).max(axis=1)
        return MaxSimSession(maxima)

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits `[n]`; an empty combination, or a query without tokens, has 0."""
        return score_in_session(self, query, combinations)

    def _warn_of_cuts(self, chunks: Sequence[Chunk], lengths: Sequence[int]) -> None:
        longest = int(np.argmax(lengths)) if lengths else -1
        if self._warned or longest < 0 or lengths[longest] <= MAX_TOKENS:
            return
        self._warned = True
        warnings.warn(
            f"reranker 'maxsim' reads {MAX_TOKENS} tokens of a chunk: {chunks[longest].id!r} has {lengths[longest]}; "
            "what is beyond is not scored, cut smaller chunks (said once)",
            stacklevel=3,
        )


class MaxSimSession:
    """The best cosine of each query token in each candidate."""

    def __init__(self, maxima: NDArray[np.float64]) -> None:
        """Keep the maxima, `[candidates, query tokens]`."""
        self._maxima = maxima

    def score(self, orders: Sequence[tuple[int, ...]]) -> Scores:
        """Benefits `[n]` in [0, 1].

        A node's children are scored together: theirs are the maxima of their parent, taken once, and of the chunk that
        each appends.
        """
        if not orders or not self._maxima.shape[1]:
            return np.zeros(len(orders))
        parent = orders[0][:-1]
        if all(order and order[:-1] == parent for order in orders):
            best = self._maxima[[order[-1] for order in orders]]
            if parent:
                best = np.maximum(best, self._maxima[list(parent)].max(axis=0))
        else:
            best = reduce_orders(np.maximum, self._maxima, orders)
        return np.clip(best.mean(axis=1), 0.0, 1.0)
