"""FlagEmbedding's reranker without its detours. Imports FlagEmbedding and torch: import it late."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from FlagEmbedding import FlagReranker


class DirectFlagReranker(FlagReranker):
    """The same logits, by the way of extension that the base class documents.

    The library's own loop runs the first batch twice to find a batch size that fits: in a search, where a call is one
    batch, that is every batch. On transformers 5 it also tokenises each pair, decodes it and tokenises it again, one by
    one; and any RuntimeError of the model comes out as an AttributeError.
    """

    @torch.inference_mode()
    def compute_score_single_gpu(
        self,
        sentence_pairs: list[tuple[str, str]],
        batch_size: int | None = None,
        query_max_length: int | None = None,
        max_length: int | None = None,
        normalize: bool | None = None,
        device: str | None = None,
        **kwargs: Any,
    ) -> list[float]:
        """Logits of n (query, passage) pairs. The passage is cut to what fits; a query beyond ¾ of the limit, to that.

        `normalize` is not offered: the sigmoid is the caller's.
        """
        device = device or self.target_devices[0]
        if self.use_fp16 and device != "cpu":
            self.model.half()
        self.model.to(device).eval()
        limit = max_length or self.max_length
        queries = self._cut([pair[0] for pair in sentence_pairs], query_max_length or limit * 3 // 4)
        passages = [pair[1] for pair in sentence_pairs]
        encoded = self.tokenizer(queries, passages, truncation="only_second", max_length=limit)
        logits = np.zeros(len(queries))
        order = np.argsort([-len(ids) for ids in encoded["input_ids"]], kind="stable")
        size = batch_size or self.batch_size
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            items = {key: [values[row] for row in rows] for key, values in encoded.items()}
            batch = self.tokenizer.pad(items, padding=True, return_tensors="pt").to(device)
            logits[rows] = self.model(**batch, return_dict=True).logits.view(-1).float().cpu().numpy()
        return logits.tolist()

    def _cut(self, texts: list[str], limit: int) -> list[str]:
        """Texts up to the end of their token number `limit`."""
        encoded = self.tokenizer(
            texts, add_special_tokens=False, truncation=True, max_length=limit, return_offsets_mapping=True
        )
        spans = encoded["offset_mapping"]
        return [text if len(span) < limit else text[: span[-1][1]] for text, span in zip(texts, spans, strict=True)]
