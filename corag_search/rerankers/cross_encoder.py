"""The paper's rerankers: cross-encoders over (query, joined text of the combination)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from corag_search.chunk import Chunk
from corag_search.embedders.batches import Ids
from corag_search.embedders.checkpoint import check_checkpoint, check_dtype, default_device, quiet_loading, unusable
from corag_search.errors import InputError
from corag_search.packaged import require
from corag_search.registry import one_of, whole
from corag_search.rerankers.base import Combinations, Scores
from corag_search.rerankers.joined import JoinedTokens, Long, check_pairs, windows
from corag_search.rerankers.pair_model import Loaded, Logits, PairModel


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
        max_tokens: The model's limit for query and combination together; None with `long="window"`.
    """

    order_sensitive = True

    def __init__(
        self,
        name: str,
        path: str | None = None,
        devices: str | Sequence[str] | None = None,
        batch_size: int = 32,
        trust_remote_code: bool = False,
        dtype: str = "float32",
        long: str = "refuse",
    ) -> None:
        """Load the model.

        Args:
            name: A key of `CROSS_ENCODERS`.
            path: Another hub name or a local directory with the same architecture.
            devices: As torch names them; with several, each holds the model and scores its share. None for the first
                GPU, else the CPU.
            batch_size: Pairs per forward pass.
            trust_remote_code: Run the code that comes with the checkpoint. Only with a checkpoint that you trust.
            dtype: Precision of the model: "float32", "bfloat16", or "float16" on a GPU.
            long: "refuse" to keep the search below the model's limit; "window" to score a longer combination over
                overlapping windows, each after the query, of which the best counts.

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
        self._long = one_of("long", long, Long)
        self.max_tokens: int | None = self._limit if self._long is Long.REFUSE else None
        self._batch_size = whole("batch_size", batch_size)
        self._warned = False
        require("torch", "paper", purpose)
        require(model.library, "paper", purpose)
        places = [devices] if isinstance(devices, str) or devices is None else list(devices)
        if not places:
            raise InputError("devices must name at least one device, got none; leave it out for the default")
        for place in places:
            check_dtype(dtype, place)
        path = path or model.path
        check_checkpoint(path, "AutoModelForSequenceClassification", purpose, trust_remote_code)
        load = partial(_LOADERS[model.library], path, trust_remote_code)
        try:
            with quiet_loading():
                self._models = [PairModel(load, default_device(place), dtype) for place in places]
        except InputError:
            raise
        except Exception as error:  # whatever the libraries or remote code raise
            raise unusable(path, purpose, error, trust_remote_code) from error
        if self._models[0].labels != 1:
            raise InputError(
                f"{purpose}: {path!r} gives {self._models[0].labels} numbers per pair, a reranker gives one"
            )
        self._tokens = JoinedTokens(self._models[0].tokenizer)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Length of each text in the model's tokens, and half of a pair's special tokens.

        So the sum over query and chunks is never below the length of the pair that is scored.
        """
        own = -(-self._models[0].template.special_tokens // 2)
        return [len(self._tokens.of([text])) + own for text in texts]

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits `[n]`; an empty combination has 0."""
        return self.score_pairs([query] * len(combinations), combinations)

    def score_pairs(self, queries: Sequence[str], combinations: Combinations) -> Scores:
        """Benefits `[n]`, one query per combination, in one sorted batch. A query beyond ¾ of the limit is cut there.

        Raises:
            InputError: Not as many queries as combinations.
        """
        check_pairs(queries, combinations)
        scores = np.zeros(len(combinations))
        filled = [row for row, combination in enumerate(combinations) if combination]
        if filled:
            inputs = [self._inputs(queries[row], combinations[row]) for row in filled]
            starts = np.cumsum([0, *map(len, inputs[:-1])])
            logits = self._logits([pair for own in inputs for pair in own])
            scores[filled] = sigmoid(np.maximum.reduceat(logits, starts))
        return scores

    def _inputs(self, query: str, combination: Sequence[Chunk]) -> list[tuple[Ids, Ids]]:
        """The pairs that stand for a query and a combination; warns the first time that a passage is cut."""
        own = self._tokens.of([query])[: self._limit * 3 // 4]
        passage = self._tokens.of([chunk.text for chunk in combination])
        room = self._limit - len(own) - self._models[0].template.special_tokens
        if self._long is Long.REFUSE and len(passage) > room and not self._warned:
            self._warned = True
            warnings.warn(
                f"reranker {self.name!r} reads {self._limit} tokens, {room} of them beside the query; a text of "
                f"{len(passage)} was cut, and scores of cut texts do not compare; long='window' reads all of it "
                "(said once)",
                stacklevel=5,
            )
        return [(own, window) for window in windows(passage, room, self._long)]

    def _logits(self, pairs: list[tuple[Ids, Ids]]) -> Logits:
        if len(self._models) == 1:
            return self._models[0].logits(pairs, self._batch_size)
        logits = np.zeros(len(pairs))
        # Dealt out by length, so that the shares cost the same.
        order = np.argsort([-len(query) - len(passage) for query, passage in pairs], kind="stable")
        shares = [order[start :: len(self._models)] for start in range(len(self._models))]
        with ThreadPoolExecutor(len(shares)) as pool:
            tasks = [
                pool.submit(model.logits, [pairs[row] for row in share], self._batch_size)
                for model, share in zip(self._models, shares, strict=True)
            ]
            for task, share in zip(tasks, shares, strict=True):
                logits[share] = task.result()
        return logits


def _load_flag(path: str, trust_remote_code: bool, device: str) -> Loaded:
    """With FlagEmbedding. Its object moves the model to the CPU when it goes, which is before the model is used."""
    from FlagEmbedding import FlagReranker

    loaded = FlagReranker(path, use_fp16=False, trust_remote_code=trust_remote_code, devices=device)
    return loaded.model, loaded.tokenizer


def _load_sentence_transformers(path: str, trust_remote_code: bool, device: str) -> Loaded:
    from sentence_transformers import CrossEncoder

    loaded = CrossEncoder(path, device=device, trust_remote_code=trust_remote_code)
    return loaded.model, loaded.tokenizer


_LOADERS: dict[str, Callable[[str, bool, str], Loaded]] = {
    "FlagEmbedding": _load_flag,
    "sentence_transformers": _load_sentence_transformers,
}


def sigmoid(logits: Logits) -> Logits:
    """1 / (1 + e^−x) in double precision, without overflow.

    Example:
        >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
        [0.0, 0.5, 1.0]
    """
    return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(logits, dtype=np.float64)))
