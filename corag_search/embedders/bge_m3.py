"""BGE-M3, the paper's embedder, through FlagEmbedding."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from corag_search.embedders.base import Vectors, at_unit_length
from corag_search.embedders.checkpoint import (
    check_checkpoint,
    check_dtype,
    default_device,
    quiet_loading,
    unusable,
    weight_files,
)
from corag_search.errors import InputError
from corag_search.packaged import fingerprint, require
from corag_search.registry import whole
from corag_search.texts import text_list

POSITIONS = 8192  # longest input that BGE-M3 was made for


class BGEM3Embedder:
    """Dense vectors of BGE-M3 (1024 numbers): the state of the first token. Safe to share between threads.

    Attributes:
        name: "bge-m3".
        dimension: 1024 for the published weights.
    """

    name = "bge-m3"

    def __init__(
        self,
        path: str = "BAAI/bge-m3",
        device: str | None = None,
        batch_size: int = 16,
        max_tokens: int = POSITIONS,
        dtype: str = "float32",
    ) -> None:
        """Load the model.

        Args:
            path: Name on the Hugging Face hub, or a local directory.
            device: As torch names it; None for the first GPU, else the CPU.
            batch_size: Texts per forward pass.
            max_tokens: Longer texts are cut.
            dtype: Precision of the model: "float32", "bfloat16", or "float16" on a GPU. Vectors are always float32.

        Raises:
            InputError: An unusable value or checkpoint, or the extra `paper` is not installed.
        """
        self.batch_size = whole("batch_size", batch_size)
        self.max_tokens = whole("max_tokens", max_tokens)
        if max_tokens > POSITIONS:
            raise InputError(f"max_tokens must be at most {POSITIONS}, got {max_tokens}")
        purpose = "embedder 'bge-m3'"
        require("torch", "paper", purpose)
        library = require("FlagEmbedding", "paper", purpose)
        check_dtype(dtype, device)
        _without_bars()
        check_checkpoint(path, "AutoModel", purpose, optional=("pooler.",))
        self._path = path
        self._device = default_device(device)
        self._dtype = dtype
        self._lock = threading.Lock()  # a fast tokenizer that truncates cannot be shared
        try:
            with quiet_loading():
                self._model = library.BGEM3FlagModel(
                    path, use_fp16=dtype == "float16", use_bf16=dtype == "bfloat16", devices=self._device
                )
        except Exception as error:  # whatever the library raises
            raise unusable(path, purpose, error, trust_remote_code=True) from error

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._model.model.model.config.hidden_size)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the weights, the precision and the longest input."""
        settings = {"name": self.name, "dtype": self._dtype, "max_tokens": self.max_tokens}
        return fingerprint(weight_files(self._path), settings)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Dense vectors.

        Args:
            texts: n texts.

        Returns:
            `[n, dimension]`, rows of unit length.

        Raises:
            RuntimeError: The device failed, as a rule out of memory.
        """
        texts = text_list(texts)
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        try:
            with self._lock:
                output = self._model.encode(texts, batch_size=self.batch_size, max_length=self.max_tokens)
        except AttributeError as error:
            # The library answers any RuntimeError of the first batch with smaller ones, down to an empty one.
            raise RuntimeError(
                f"bge-m3 failed on {self._device} for {len(texts)} texts; lower batch_size or max_tokens"
            ) from error
        return at_unit_length(np.asarray(output["dense_vecs"], dtype=np.float32))


def _without_bars() -> None:
    """Take the progress bars out of the library's module: it has no switch for them."""
    module: Any = import_module("FlagEmbedding.inference.embedder.encoder_only.m3")
    module.tqdm = lambda iterable, **_: iterable
    module.trange = lambda *limits, **_: range(*limits)
