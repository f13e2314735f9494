"""A cross-encoder on one device: token ids of queries and passages in, logits out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from corag_search.embedders.batches import Ids, batches

Logits = NDArray[np.float64]
Loaded = tuple[Any, Any]  # transformers' model and tokenizer


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """Where a tokenizer puts special tokens around a query and a passage.

    Attributes:
        before: Ids before the query.
        between: Ids between the two.
        after: Ids after the passage.
        types: Token types of before, query, between, passage, after; None for a model that takes none.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, ...] | None

    @classmethod
    def of(cls, tokenizer: Any) -> PairTemplate:
        """Read it off a pair that the tokenizer of transformers encodes."""
        encoded = tokenizer("a", "a")
        ids, sequence = encoded["input_ids"], encoded.sequence_ids(0)
        query, passage = sequence.index(0), sequence.index(1)
        query_end, passage_end = (len(sequence) - sequence[::-1].index(number) for number in (0, 1))
        parts = [(0, query), (query, query_end), (query_end, passage), (passage, passage_end), (passage_end, len(ids))]
        before, between, after = (tuple(ids[start:end]) for start, end in parts[::2])
        types = encoded.get("token_type_ids")
        kinds = None if types is None else tuple(types[start] if start < end else 0 for start, end in parts)
        return cls(before, between, after, kinds)

    @property
    def special_tokens(self) -> int:
        """How many tokens are neither the query's nor the passage's."""
        return len(self.before) + len(self.between) + len(self.after)

    def ids(self, query: Ids, passage: Ids) -> Ids:
        """The whole input, `[tokens]`."""
        return np.concatenate((self.before, query, self.between, passage, self.after)).astype(np.int32)

    def types_of(self, query: Ids, passage: Ids) -> Ids:
        """Token types of the whole input, `[tokens]`."""
        assert self.types is not None, "asked only of a model that takes them"
        lengths = (len(self.before), len(query), len(self.between), len(passage), len(self.after))
        return np.repeat(self.types, lengths).astype(np.int32)


class PairModel:
    """A model of transformers with one logit. Safe to share between threads.

    The libraries that load it have their own ways of scoring; this one sorts by length, pads each batch to its own
    longest, takes token ids, and runs each batch once. (FlagEmbedding runs the first batch twice to find a batch size
    that fits, and on transformers 5 tokenises, decodes and tokenises each pair again, one by one.)

    Attributes:
        labels: Numbers that the model gives for a pair.
        tokenizer: Neither cuts nor pads.
        template: The special tokens of a pair.
    """

    def __init__(self, load: Callable[[str], Loaded], device: str, dtype: str) -> None:
        """Load the model and put it on a device.

        Args:
            load: Gives model and tokenizer for a device.
            device: As torch names it.
            dtype: Precision, one of `PRECISIONS`.
        """
        import torch

        model, tokenizer = load(device)
        self.labels = int(model.config.num_labels)
        self.template = PairTemplate.of(tokenizer)
        self.tokenizer = tokenizers.Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self._padding = int(tokenizer.pad_token_id)
        self._model = model.to(device, getattr(torch, dtype)).eval()

    def logits(self, pairs: Sequence[tuple[Ids, Ids]], batch_size: int) -> Logits:
        """Logits `[n]` of n (query, passage) pairs, each within the model's limit."""
        import torch

        found = np.zeros(len(pairs))
        ids = [self.template.ids(query, passage) for query, passage in pairs]
        for rows, padded, mask in batches(ids, batch_size, self._padding):
            inputs = {"input_ids": padded, "attention_mask": mask}
            if self.template.types is not None:
                inputs["token_type_ids"] = np.zeros_like(padded)
                inputs["token_type_ids"][mask == 1] = np.concatenate(
                    [self.template.types_of(*pairs[row]) for row in rows]
                )
            with torch.inference_mode():
                tensors = {name: torch.from_numpy(value).to(self._model.device) for name, value in inputs.items()}
                found[rows] = self._model(**tensors).logits.view(-1).float().cpu().numpy()
        return found
