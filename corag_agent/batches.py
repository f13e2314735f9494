"""What a batch of training or of evaluation holds, cut from tensors in memory."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

EVALUATED_AT_ONCE = 1024  # questions


class PairBatch(NamedTuple):
    """Pairs of questions with their best labels. Of single questions, the dimension of two is not there.

    Attributes:
        inputs: What the encoder takes, `[pairs, 2, inputs]`.
        rerankers: Index of the best reranker, `[pairs, 2]`.
        targets: What the classification aims at, a distribution over the rerankers, `[pairs, 2, rerankers]`.
        settings: Each reranker's own best settings in the order of `SETTINGS`, scaled to [0, 1] by their ranges,
            `[pairs, 2, rerankers, 3]`.
        rouge: ROUGE-L of everything tried, `[pairs, 2, rerankers, exploration, cost_coefficient, iterations]`.
        distinct: Whether some reranker is better than another; where not, `rerankers` is arbitrary and teaches no
            class, bool `[pairs, 2]`.
    """

    inputs: Tensor
    rerankers: Tensor
    targets: Tensor
    settings: Tensor
    rouge: Tensor
    distinct: Tensor


class QuestionBatch(NamedTuple):
    """Questions of a split, kept or not, each with a partner for the contrastive loss.

    Attributes:
        pairs: The question first, its partner second; a question that is not kept is its own partner.
        kept: Whether the question's label is clear enough to count in losses and accuracy, bool `[batch]`.
        tokens: Prompt tokens of everything tried, `[batch, rerankers, exploration, cost_coefficient, iterations]`.
    """

    pairs: PairBatch
    kept: Tensor
    tokens: Tensor


class PairDataset(Dataset[PairBatch]):
    """Whole batches of pairs, cut from tensors in memory."""

    def __init__(self, data: PairBatch) -> None:
        """Takes one row per question, without the dimension of two."""
        self._data = data

    def __getitem__(self, pairs: Any) -> PairBatch:
        """The pairs at the positions `[pairs, 2]`."""
        at = torch.as_tensor(np.asarray(pairs), device=self._data.inputs.device)
        return PairBatch(*(column[at] for column in self._data))


class QuestionDataset(Dataset[QuestionBatch]):
    """Batches of a split's questions, in the table's order; on several devices, each device's share of them.

    Every device gets the same number of batches, and no question stands in two: the last batches may be empty.
    """

    def __init__(self, whole: QuestionBatch, devices: int = 1, device: int = 0) -> None:
        """Takes the split as one batch, to be cut.

        Args:
            whole: All questions.
            devices: How many share them.
            device: Which of them this is, from 0.
        """
        self._batches = math.ceil(len(whole.kept) / (devices * EVALUATED_AT_ONCE))
        own = slice(device, None, devices)
        self._own = QuestionBatch(PairBatch(*(c[own] for c in whole.pairs)), whole.kept[own], whole.tokens[own])

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> QuestionBatch:
        """Batch `index`."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        cut = slice(index * EVALUATED_AT_ONCE, (index + 1) * EVALUATED_AT_ONCE)
        return QuestionBatch(
            PairBatch(*(column[cut] for column in self._own.pairs)), self._own.kept[cut], self._own.tokens[cut]
        )
