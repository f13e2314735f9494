"""The paper's rerankers: cross-encoders over (query, joined text of the combination)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag_search.embedders.checkpoint import check_checkpoint, default_device, quiet_loading, unusable
from corag_search.errors import InputError
from corag_search.packaged import require
from corag_search.registry import whole
from corag_search.rerankers.base import Combinations, Scores
from corag_search.rerankers.cosine import joined

Logits = NDArray[np.float64]
Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class CrossEncoderModel:
    """A published cross-encoder.

    Attributes:
        path: Its name on the Hugging Face hub.
        max_tokens: Longest input, query and passage and special tokens together.
        library: "FlagEmbedding" or "sentence_transformers".
    """

    path: str
    max_tokens: int
    library: str


# METHOD §4. The licence of jina-reranker-v2-base-multilingual forbids commercial use (CC BY-NC 4.0).
CROSS_ENCODERS = {
    "jina-reranker-v1-turbo-en": CrossEncoderModel("jinaai/jina-reranker-v1-turbo-en", 8192, "sentence_transformers"),
    "jina-reranker-v2-base-multilingual": CrossEncoderModel(
        "jinaai/jina-reranker-v2-base-multilingual", 1024, "sentence_transformers"
    ),
    "bge-reranker-v2-m3": CrossEncoderModel("BAAI/bge-reranker-v2-m3", 8192, "FlagEmbedding"),
    "bge-reranker-large": CrossEncoderModel("BAAI/bge-reranker-large", 512, "FlagEmbedding"),
    "bge-reranker-base": CrossEncoderModel("BAAI/bge-reranker-base", 512, "FlagEmbedding"),
    "gte-multilingual-reranker-base": CrossEncoderModel(
        "Alibaba-NLP/gte-multilingual-reranker-base", 8192, "sentence_transformers"
    ),
}


class CrossEncoderReranker:
    """One of the paper's cross-encoders; its logit goes through one sigmoid, here. Safe to share between threads.

    Attributes:
        name: A key of `CROSS_ENCODERS`.
        order_sensitive: True.
        max_tokens: The model's limit for query and combination together.
    """

    order_sensitive = True

    def __init__(
        self,
        name: str,
        path: str | None = None,
        devices: str | Sequence[str] | None = None,
        batch_size: int = 32,
        trust_remote_code: bool = False,
    ) -> None:
        """Load the model; half precision on a GPU, single precision elsewhere.

        Args:
            name: A key of `CROSS_ENCODERS`.
            path: Another hub name or a local directory with the same architecture.
            devices: As torch names them; with several, each holds the model and scores its share. None for the first
                GPU, else the CPU.
            batch_size: Pairs per forward pass.
            trust_remote_code: Run the code that comes with the checkpoint. Only with a checkpoint that you trust.

        Raises:
            InputError: An unusable value, a package that is not installed, or a checkpoint that cannot be loaded or
                lacks weights.
        """
        if name not in CROSS_ENCODERS:
            raise InputError(f"unknown cross-encoder {name!r}; there are: {', '.join(CROSS_ENCODERS)}")
        model = CROSS_ENCODERS[name]
        purpose = f"reranker {name!r}"
        self.name = name
        self._limit = model.max_tokens
        self.max_tokens: int | None = self._limit
        self._batch_size = whole("batch_size", batch_size)
        require("torch", "paper", purpose)
        require(model.library, "paper", purpose)
        places = [devices] if isinstance(devices, str) or devices is None else list(devices)
        if not places:
            raise InputError("devices must name at least one device, got none; leave it out for the default")
        path = path or model.path
        check_checkpoint(path, "AutoModelForSequenceClassification", purpose, trust_remote_code)
        load = _FlagScorer if model.library == "FlagEmbedding" else _SentenceTransformersScorer
        try:
            with quiet_loading():
                self._scorers = [
                    load(path, default_device(place), model.max_tokens, trust_remote_code) for place in places
                ]
        except InputError:
            raise
        except Exception as error:  # whatever the libraries or remote code raise
            raise unusable(path, purpose, error, trust_remote_code) from error
        if self._scorers[0].labels != 1:
            raise InputError(
                f"{purpose}: {path!r} gives {self._scorers[0].labels} numbers per pair, a reranker gives one"
            )

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Length of each text in the model's tokens, with the special tokens that a text alone gets.

        So the sum over query and chunks is never below the length of the pair that is scored.
        """
        return self._scorers[0].count(list(texts))

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits `[n]`; an empty combination has 0."""
        return self.score_pairs([query] * len(combinations), combinations)

    def score_pairs(self, queries: Sequence[str], combinations: Combinations) -> Scores:
        """Benefits `[n]`, one query per combination, in one sorted batch.

        Raises:
            InputError: Not as many queries as combinations.
        """
        texts = joined(queries, combinations)
        rows = [row for row, combination in enumerate(combinations) if combination]
        scores = np.zeros(len(texts))
        if rows:
            pairs = [(queries[row], texts[row]) for row in rows]
            self._warn_of_cuts(pairs)
            scores[rows] = sigmoid(self._logits(pairs))
        return scores

    def _logits(self, pairs: Pairs) -> Logits:
        if len(self._scorers) == 1:
            return self._scorers[0].logits(pairs, self._batch_size)
        logits = np.zeros(len(pairs))
        # Dealt out by length, so that the shares cost the same.
        order = np.argsort([-len(query) - len(text) for query, text in pairs], kind="stable")
        shares = [order[start :: len(self._scorers)] for start in range(len(self._scorers))]
        with ThreadPoolExecutor(len(shares)) as pool:
            tasks = [
                pool.submit(scorer.logits, [pairs[row] for row in share], self._batch_size) if len(share) else None
                for scorer, share in zip(self._scorers, shares, strict=True)
            ]
            for task, share in zip(tasks, shares, strict=True):
                if task is not None:
                    logits[share] = task.result()
        return logits

    def _warn_of_cuts(self, pairs: Pairs) -> None:
        """A token is a character at least, so only long pairs need counting."""
        doubtful = [pair for pair in pairs if len(pair[0]) + len(pair[1]) + 4 > self._limit]
        if not doubtful:
            return
        lengths = np.reshape(self.count_tokens([text for pair in doubtful for text in pair]), (-1, 2)).sum(axis=1)
        if lengths.max() > self._limit:
            warnings.warn(
                f"reranker {self.name!r} reads {self._limit} tokens; longer combinations were cut and do not compare",
                stacklevel=4,
            )


class _Scorer:
    """A loaded model on one device. A fast tokenizer that truncates cannot be shared, hence the lock."""

    labels: int

    def __init__(self, tokenizer: Any, predict: Callable[[Pairs, int], Any]) -> None:
        self._tokenizer, self._predict = tokenizer, predict
        self._lock = threading.Lock()

    def count(self, texts: list[str]) -> list[int]:
        with self._lock:
            return [len(ids) for ids in self._tokenizer(texts, truncation=False, verbose=False)["input_ids"]]

    def logits(self, pairs: Pairs, batch_size: int) -> Logits:
        with self._lock:
            return np.asarray(self._predict(pairs, batch_size), dtype=np.float64)


class _FlagScorer(_Scorer):
    def __init__(self, path: str, device: str, max_tokens: int, trust_remote_code: bool) -> None:
        from corag_search.rerankers.flag import DirectFlagReranker

        model = DirectFlagReranker(
            path,
            use_fp16=device.startswith("cuda"),
            trust_remote_code=trust_remote_code,
            devices=device,
            max_length=max_tokens,
            normalize=False,
        )
        self.labels = model.model.config.num_labels
        super().__init__(model.tokenizer, lambda pairs, size: model.compute_score(pairs, batch_size=size))


class _SentenceTransformersScorer(_Scorer):
    def __init__(self, path: str, device: str, max_tokens: int, trust_remote_code: bool) -> None:
        import torch
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(
            path,
            device=device,
            trust_remote_code=trust_remote_code,
            max_length=max_tokens,
            activation_fn=torch.nn.Identity(),
            model_kwargs={"dtype": torch.float16 if device.startswith("cuda") else torch.float32},
        )
        self.labels = model.config.num_labels
        super().__init__(
            model.tokenizer, lambda pairs, size: model.predict(pairs, batch_size=size, show_progress_bar=False)
        )


def sigmoid(logits: Logits) -> Logits:
    """1 / (1 + e^−x) in double precision, without overflow.

    Example:
        >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
        [0.0, 0.5, 1.0]
    """
    return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(logits, dtype=np.float64)))
