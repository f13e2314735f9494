"""Which pairs of questions the Siamese network is trained on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import DistributedSampler

Positions = npt.NDArray[np.intp]
Weights = npt.NDArray[np.float64]


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
        weights: Weights | None = None,
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
    classes: Positions, pairs: int, generator: np.random.Generator, weights: Weights | None = None
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
    by_class = np.argsort(classes, kind="stable")
    drawn = np.empty((pairs, 2), dtype=np.intp)
    for turn, kind in enumerate(kinds):
        count = len(range(turn, pairs, len(kinds)))
        anchors = anchors_of[kind]
        chosen = _go_round(anchors, count, generator, None if weights is None else weights[anchors])
        partners = _partners(classes, by_class, chosen, kind, generator.random(count))
        drawn[turn :: len(kinds)] = np.stack([chosen, partners], axis=1)
    return drawn


def fixed_partners(classes: Positions, generator: np.random.Generator) -> Positions:
    """A partner for each question, of the same and of another class in turn where there is one, `[n]`."""
    sizes, by_class = np.bincount(classes), np.argsort(classes, kind="stable")
    anchors = np.arange(len(classes))
    same = anchors % 2 == 0
    same = np.where(same, sizes[classes] > 1, sizes[classes] == len(classes))
    partners, chance = np.empty(len(classes), dtype=np.intp), generator.random(len(classes))
    for kind in (True, False):
        own = same == kind
        partners[own] = _partners(classes, by_class, anchors[own], kind, chance[own])
    return partners


def balanced_weights(classes: Positions) -> Weights:
    """Weights for `draw_pairs` with which every class gives equally many anchors, `[n]`."""
    sizes = np.bincount(classes)
    return sizes[sizes > 0].min() / sizes[classes]


def _go_round(anchors: Positions, count: int, generator: np.random.Generator, weights: Weights | None) -> Positions:
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


def _partners(classes: Positions, by_class: Positions, anchors: Positions, same: bool, chance: Weights) -> Positions:
    """A partner for each anchor, of its own class but not itself, or of any other class.

    Args:
        classes: Class of each question, `[n]`.
        by_class: All questions, sorted by class, `[n]`.
        anchors: At least one partner exists for each, `[m]`.
        same: Whether partners are of the same class.
        chance: Uniform in [0, 1), `[m]`.
    """
    sizes = np.bincount(classes)
    starts = np.cumsum(sizes) - sizes
    start, size = starts[classes[anchors]], sizes[classes[anchors]]
    if same:  # skip the anchor's own place among its class
        rank = np.empty(len(classes), np.intp)
        rank[by_class] = np.arange(len(classes))
        at = start + (chance * (size - 1)).astype(np.intp)
        at += at >= rank[anchors]
    else:  # skip the anchor's class
        at = (chance * (len(classes) - size)).astype(np.intp)
        at += np.where(at >= start, size, 0)
    return by_class[at]
