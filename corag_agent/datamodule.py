"""Batches for training the configuration agent from a label table."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, SequentialSampler

from corag_search.agent import SETTINGS
from corag_search.errors import InputError
from data_prep.selection import ENOUGH, choose_labels
from data_prep.table import LabelTable

logger = logging.getLogger(__name__)

Positions = npt.NDArray[np.intp]


class PairBatch(NamedTuple):
    """Pairs of questions with their best labels.

    Attributes:
        embeddings: `[pairs, 2, d]`.
        rerankers: Index of the best reranker, `[pairs, 2]`.
        settings: Best settings in the order of `SETTINGS`, each scaled to [0, 1] by its range, `[pairs, 2, 3]`.
    """

    embeddings: Tensor
    rerankers: Tensor
    settings: Tensor


class QuestionBatch(NamedTuple):
    """Questions of a split, kept or not, each with a partner for the contrastive loss.

    Attributes:
        pairs: The question first, its partner second; a question that is not kept is its own partner.
        kept: Whether the question's label is clear enough to count in losses and accuracy, bool `[batch]`.
        rouge: ROUGE-L of everything tried, `[batch, rerankers, exploration, cost_coefficient, iterations]`.
        tokens: Prompt tokens likewise.
    """

    pairs: PairBatch
    kept: Tensor
    rouge: Tensor
    tokens: Tensor


class PairSampler(DistributedSampler[Any]):
    """Draws pairs of questions anew in each epoch, from (seed, epoch) alone, so that a resumed run draws the same.

    Half of the pairs are positive (same best reranker) and half negative, alternating, so each batch of even size is
    balanced too. Anchors go round: none is taken again before all others of its kind. Where the labels allow one kind
    only (a single class, or no class with two examples), all pairs are of that kind.

    Being a `DistributedSampler`, it is told the epoch by Lightning and not replaced on several devices; each device
    takes every n-th batch.
    """

    def __init__(
        self,
        classes: Positions,
        pairs: int,
        batch_size: int,
        seed: int,
        num_replicas: int = 1,
        rank: int = 0,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> None:
        """Prepares the classes.

        Args:
            classes: Best reranker of each question, `[n]`, at least 2 of them.
            pairs: Pairs in an epoch.
            batch_size: Pairs in a batch.
            seed: Of the draws.
            num_replicas: Devices that share the epoch.
            rank: Which of them this is.
            weights: As of `draw_pairs`.
        """
        self.batches = math.ceil(pairs / batch_size)
        per_replica = math.ceil(self.batches / num_replicas)
        super().__init__(range(per_replica), num_replicas, rank, shuffle=False, seed=seed)  # type: ignore[arg-type]
        self._classes, self._pairs, self._batch_size, self._weights = classes, pairs, batch_size, weights
        self._per_replica = per_replica

    def __len__(self) -> int:
        return self._per_replica

    def __iter__(self) -> Iterator[Positions]:
        """Yields batches of pairs, `[batch_size, 2]`."""
        pairs = draw_pairs(self._classes, self._pairs, np.random.default_rng([self.seed, self.epoch]), self._weights)
        for batch in range(self.rank, self._per_replica * self.num_replicas, self.num_replicas):
            # Every device needs the same number of batches; the last ones start again from the first.
            start = batch % self.batches * self._batch_size
            yield pairs[start : start + self._batch_size]


def draw_pairs(
    classes: Positions, pairs: int, generator: np.random.Generator, weights: npt.NDArray[np.float64] | None = None
) -> Positions:
    """Draws pairs, positive and negative in turn.

    Args:
        classes: Class of each question, `[n]`.
        pairs: How many to draw.
        generator: Source of chance.
        weights: How often each question is an anchor, in [0, 1], `[n]`; None for all alike, as is done where all are 0.

    Returns:
        Positions of anchor and partner, `[pairs, 2]`; never a question with itself.
    """
    sizes = np.bincount(classes)
    anchors_of = {True: np.flatnonzero(sizes[classes] > 1), False: np.flatnonzero(sizes[classes] < len(classes))}
    kinds = [kind for kind, anchors in anchors_of.items() if len(anchors)]
    drawn = np.empty((pairs, 2), dtype=np.intp)
    for turn, kind in enumerate(kinds):
        count = len(range(turn, pairs, len(kinds)))
        anchors = anchors_of[kind]
        chosen = _go_round(anchors, count, generator, None if weights is None else weights[anchors])
        partners = [_draw(_partners(classes, anchor, kind), generator) for anchor in chosen]
        drawn[turn :: len(kinds)] = np.stack([chosen, np.array(partners, dtype=np.intp)], axis=1)
    return drawn


def _go_round(
    anchors: Positions, count: int, generator: np.random.Generator, weights: npt.NDArray[np.float64] | None
) -> Positions:
    """Each anchor once a round, in a new order each time; with weights, each in the share of the rounds that it has."""
    if weights is None or (weights == 1).all() or not weights.any():
        weights = None
    chosen = [anchors[:0]]
    while sum(map(len, chosen)) < count:
        order = generator.permutation(len(anchors))
        if weights is not None:
            order = order[generator.random(len(anchors)) < weights[order]]
        chosen.append(anchors[order])
    return np.concatenate(chosen)[:count]


def _partners(classes: Positions, anchor: int, same: bool) -> Positions:
    candidates = np.flatnonzero((classes == classes[anchor]) == same)
    return candidates[candidates != anchor]


def _draw(candidates: Positions, generator: np.random.Generator) -> np.intp:
    return candidates[generator.integers(len(candidates))]


class PairDataset(Dataset[PairBatch]):
    """Whole batches of pairs, cut from tensors in memory."""

    def __init__(self, data: PairBatch) -> None:
        """Takes one row per question: `[n, d]`, `[n]`, `[n, 3]`."""
        self._data = data

    def __getitem__(self, pairs: Any) -> PairBatch:
        """The pairs at the positions `[pairs, 2]`."""
        at = torch.as_tensor(np.asarray(pairs))
        return PairBatch(*(column[at] for column in self._data))


class QuestionDataset(Dataset[QuestionBatch]):
    """Batches of a split's questions, in the table's order."""

    def __init__(self, whole: QuestionBatch, batch_size: int) -> None:
        """Takes the split as one batch, to be cut."""
        self._whole, self._batch_size = whole, batch_size

    def __len__(self) -> int:
        return math.ceil(len(self._whole.kept) / self._batch_size)

    def __getitem__(self, index: int) -> QuestionBatch:
        """Batch `index` of the split."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        cut = slice(index * self._batch_size, (index + 1) * self._batch_size)
        pairs = PairBatch(*(column[cut] for column in self._whole.pairs))
        return QuestionBatch(pairs, self._whole.kept[cut], self._whole.rouge[cut], self._whole.tokens[cut])


class LabelDataModule(LightningDataModule):
    """Training pairs and evaluation batches from a label table.

    Training pairs are drawn from the kept questions of the train split (METHOD §6). Validation and test cover all
    questions of their split, kept or not.

    Attributes:
        table: The label table.
        best_labels: The best label of each question.
    """

    def __init__(
        self,
        labels: str,
        batch_size: int = 32,
        minimum_gain: float = 0.1,
        gain_mode: str = "relative",
        noise: str = "keep",
        pairs_per_epoch: int | None = None,
        seed: int = 0,
    ) -> None:
        """Reads the table, so that the model can be built to fit it.

        Args:
            labels: Path of the label table, `NAME.parquet`.
            batch_size: Pairs in a training batch, questions in an evaluation batch.
            minimum_gain: Lead of the best reranker over the runner-up that a question needs to be trained on.
            gain_mode: relative (a share of the runner-up's ROUGE-L, the paper's) or absolute (points of it).
            noise: keep, weight or drop, for questions whose repeated scores disagree about the best reranker; needs a
                table of several samples or references.
            pairs_per_epoch: Pairs drawn in an epoch; None for as many as kept questions, rounded up to an even number.
            seed: Of the pairs.

        Raises:
            InputError: When the table or an argument is unusable.
        """
        super().__init__()
        for name, value in (("batch_size", batch_size), ("pairs_per_epoch", pairs_per_epoch), ("seed", seed)):
            if value is not None and value < (0 if name == "seed" else 1):
                raise InputError(f"{name} must be at least {0 if name == 'seed' else 1}, got {value!r}")
        # The path stays out of checkpoints and loggers: it may name a home folder.
        self.save_hyperparameters(ignore=["labels"])
        self.table = LabelTable.read(labels)
        self.best_labels = choose_labels(self.table, minimum_gain, gain_mode, noise)
        self._batch_size, self._pairs_per_epoch, self._seed = batch_size, pairs_per_epoch, seed
        self._data = PairBatch(
            torch.from_numpy(self.table.embeddings),
            torch.from_numpy(self.best_labels.reranker),
            torch.from_numpy(self._scaled_settings()),
        )

    @property
    def input_dim(self) -> int:
        """Width of the query embeddings."""
        return int(self.table.embedder["dimension"])

    @property
    def rerankers(self) -> list[str]:
        """Names of the rerankers, in the order of the classes."""
        return self.table.rerankers

    @property
    def grid(self) -> dict[str, list[float]]:
        """The grid that was labelled, as `LabelGrid.to_dict` gives it."""
        return self.table.grid.to_dict()

    @property
    def ranges(self) -> dict[str, list[float]]:
        """Least and greatest value of each setting."""
        return {name: list(bounds) for name, bounds in self.table.grid.ranges.items()}

    @property
    def embedder(self) -> dict[str, Any]:
        """Name, dimension and fingerprint of the embedder."""
        return self.table.embedder

    @property
    def label_fingerprint(self) -> dict[str, Any]:
        """What the labels depend on."""
        return self.table.fingerprint

    @property
    def kept_for_training(self) -> Positions:
        """Positions of the questions that training draws from, `[m]`."""
        train = self.table.split("train")
        return train[self.best_labels.kept[train]]

    def check(self, stage: str) -> None:
        """Refuses a table whose splits do not hold what the stage (fit, validate or test) needs.

        Raises:
            InputError: When a split is empty or too few questions are kept for training.
        """
        needed = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",)}.get(stage, ())
        for split in needed:
            if not len(self.table.split(split)):
                raise InputError(f"the label table has no question in split {split!r}, which {stage} needs; add some")
        kept, train = self.kept_for_training, len(self.table.split("train"))
        if stage == "fit" and len(kept) < 2:
            raise InputError(
                f"{len(kept)} of {train} training questions have a best reranker that leads by more than "
                f"{self.hparams['minimum_gain']:g} ({self.hparams['gain_mode']}), at least 2 are needed for a pair; "
                "label more questions or lower data.minimum_gain"
            )

    def setup(self, stage: str) -> None:
        """Checks as `check`, and warns of rerankers with few examples and where pairs of one kind only can be drawn.

        Raises:
            InputError: As `check`.
        """
        self.check(stage)
        if stage == "fit":
            self._warn_of_pairs()
            self._warn_of_rare_classes()

    def train_dataloader(self) -> DataLoader[PairBatch]:
        """Batches of pairs; which ones depends on (seed, epoch) only."""
        kept = self.kept_for_training
        trainer = self.trainer
        sampler = PairSampler(
            self.best_labels.reranker[kept],
            self._pairs_per_epoch or len(kept) + len(kept) % 2,
            self._batch_size,
            self._seed,
            trainer.world_size if trainer else 1,
            trainer.global_rank if trainer else 0,
            weights=self.best_labels.weight[kept],
        )
        data = PairDataset(PairBatch(*(column[torch.from_numpy(kept)] for column in self._data)))
        return DataLoader(data, batch_size=None, sampler=sampler)

    def val_dataloader(self) -> DataLoader[QuestionBatch]:
        """All questions of the validation split."""
        return self._questions("val")

    def test_dataloader(self) -> DataLoader[QuestionBatch]:
        """All questions of the test split."""
        return self._questions("test")

    def _questions(self, split: str) -> DataLoader[QuestionBatch]:
        at = self.table.split(split)
        kept = self.best_labels.kept[at]
        partners = np.arange(len(at))
        if kept.sum() > 1:
            classes = self.best_labels.reranker[at[kept]]
            partners[kept] = np.flatnonzero(kept)[_fixed_partners(classes, np.random.default_rng(self._seed))]
        pairs = torch.from_numpy(np.stack([at, at[partners]], axis=1))
        data = QuestionDataset(
            QuestionBatch(
                PairBatch(*(column[pairs] for column in self._data)),
                torch.from_numpy(kept),
                torch.from_numpy(self.table.rouge()[at].astype(np.float32)),
                torch.from_numpy(self.table.tokens[at].astype(np.float32)),
            ),
            self._batch_size,
        )
        return DataLoader(data, batch_size=None, sampler=SequentialSampler(data))

    def _scaled_settings(self) -> npt.NDArray[np.float32]:
        columns = []
        for name in SETTINGS:
            low, high = self.table.grid.ranges[name]
            columns.append((getattr(self.best_labels, name) - low) / ((high - low) or 1.0))
        return np.stack(columns, axis=1).astype(np.float32)

    def _warn_of_rare_classes(self) -> None:
        counts = np.bincount(self.best_labels.reranker[self.kept_for_training], minlength=len(self.rerankers))
        rare = [f"{name} ({count})" for name, count in zip(self.rerankers, counts, strict=True) if count < ENOUGH]
        if rare:
            logger.warning(
                "fewer than %d kept training questions have the best reranker %s: little can be learned of when to "
                "choose it; label more questions, or lower data.minimum_gain",
                ENOUGH,
                ", ".join(rare),
            )

    def _warn_of_pairs(self) -> None:
        kept = self.kept_for_training
        names, counts = np.unique(self.best_labels.reranker[kept], return_counts=True)
        if len(names) == 1:
            logger.warning(
                "all %d kept training questions have the best reranker %r: every pair is positive, and the agent can "
                "learn the settings only",
                len(kept),
                self.rerankers[int(names[0])],
            )
        elif counts.max() == 1:
            logger.warning("no two kept training questions share a best reranker: every pair is negative")


def _fixed_partners(classes: Positions, generator: np.random.Generator) -> Positions:
    """A partner for each question, of the same and of another class in turn where there is one, `[n]`."""
    partners = np.empty(len(classes), dtype=np.intp)
    for anchor in range(len(classes)):
        wanted = _partners(classes, anchor, same=anchor % 2 == 0)
        if not len(wanted):
            wanted = _partners(classes, anchor, same=anchor % 2 == 1)
        partners[anchor] = _draw(wanted, generator)
    return partners
