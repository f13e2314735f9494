"""Static-vector reranker: WordLlama's token vectors, read from inside its package."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import tokenizers
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.packaged import package_folder
from corag_search.rerankers.base import Combinations, Scores
from corag_search.rerankers.session import reduce_orders, score_in_session
from corag_search.texts import text_list


class WordLlamaReranker:
    """Cosine of the query's and the combination's mean token vector, max(0, ·).

    The mean is over all tokens of the combination: the sum of its chunks' sums over the sum of their lengths.

    Attributes:
        name: "wordllama".
        order_sensitive: False.
        max_tokens: None, there is no limit.
    """

    name = "wordllama"
    order_sensitive = False
    max_tokens: int | None = None

    def __init__(self) -> None:
        """Prepare; the vectors are loaded at first use, once per process.

        Raises:
            InputError: The package is not installed.
        """
        package_folder("wordllama", "local", "reranker 'wordllama'")

    def open(self, query: str, candidates: Sequence[Chunk]) -> WordLlamaSession:
        """Sum the token vectors of the query and of each candidate once."""
        sums = _token_sums([query, *(chunk.text for chunk in candidates)])
        return WordLlamaSession(sums[0], sums[1:])

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits `[n]`; an empty combination, or a text without tokens, has 0."""
        return score_in_session(self, query, combinations)


class WordLlamaSession:
    """Sums of token vectors. A cosine does not see the length of a vector, so sums stand for means."""

    def __init__(self, query: NDArray[np.float64], candidates: NDArray[np.float64]) -> None:
        """Keep the sums: query `[d]`, candidates `[candidates, d]`."""
        self._query = query / max(float(np.linalg.norm(query)), 1e-12)
        self._candidates = candidates

    def score(self, orders: Sequence[tuple[int, ...]]) -> Scores:
        """Benefits `[n]` in [0, 1]."""
        sums = reduce_orders(np.add, self._candidates, orders)
        norms = np.maximum(np.linalg.norm(sums, axis=1), 1e-12)
        return np.clip(sums @ self._query / norms, 0.0, 1.0)


@lru_cache
def _weights() -> tuple[tokenizers.Tokenizer, NDArray[np.float32]]:
    """WordLlama's tokenizer and vectors `[32000, 256]`."""
    from safetensors.numpy import load_file

    folder = package_folder("wordllama", "local", "reranker 'wordllama'")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    vectors = load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
    return tokenizer, vectors.astype(np.float32)


def _token_sums(texts: Sequence[str]) -> NDArray[np.float64]:
    """Sum of the token vectors of each text, `[n, 256]`."""
    tokenizer, vectors = _weights()
    encodings = tokenizer.encode_batch_fast(text_list(texts), add_special_tokens=False)
    return np.stack([vectors[encoding.ids].sum(axis=0, dtype=np.float64) for encoding in encodings])
