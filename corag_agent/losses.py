"""The three losses of the configuration agent, and their sum (METHOD §5, arXiv:2411.00744).

Each takes tensors only. With nothing to average over, each is a zero that still has a gradient path.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class LossWeights(NamedTuple):
    """Factors of the three losses in their sum; the paper's are 1."""

    contrastive: float = 1.0
    classification: float = 1.0
    regression: float = 1.0


class LossTerms(NamedTuple):
    """The weighted sum, and each loss without its weight; all scalars."""

    total: Tensor
    contrastive: Tensor
    classification: Tensor
    regression: Tensor


def contrastive_loss(left: Tensor, right: Tensor, same: Tensor, margin: float = 1.0) -> Tensor:
    """Pulls pairs with the same best reranker together and pushes the others at least `margin` apart.

    With d the Euclidean distance of the two feature maps: d² for a positive pair, max(0, margin − d)² for a negative
    one; the mean over all pairs, without the factor ½ of Hadsell et al. (2006).

    Args:
        left: Feature maps of the first members, `[pairs, feature]`.
        right: Feature maps of the second members, `[pairs, feature]`.
        same: Whether both members have the same best reranker, bool `[pairs]`.
        margin: Distance from which on a negative pair costs nothing.

    Returns:
        A scalar in float32 at least: squares of half-precision differences would under- or overflow.
    """
    kind = torch.promote_types(left.dtype, torch.float32)
    squared = (left.to(kind) - right.to(kind)).square().sum(dim=-1)
    # The root has no gradient at 0; there a pair has no direction to be pushed in, so its gradient is set to 0.
    apart = squared > 0
    distance = torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)
    losses = torch.where(same, squared, (margin - distance).clamp_min(0.0).square())
    return _mean(losses)


def classification_loss(logits: Tensor, rerankers: Tensor) -> Tensor:
    """Cross-entropy of the best reranker, the mean over all members of all pairs.

    Args:
        logits: `[..., rerankers]`, for pairs `[pairs, 2, rerankers]`.
        rerankers: Index of the best reranker, from 0, `[...]`.
    """
    return _mean(functional.cross_entropy(logits.flatten(0, -2), rerankers.flatten(), reduction="none"))


def regression_loss(settings: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of the scaled settings, the mean over all members and settings.

    Args:
        settings: Predictions, not clamped, `[..., 3]` in the order of `SETTINGS`.
        targets: Best settings, each scaled to [0, 1] by its range, `[..., 3]`.
    """
    return _mean((settings - targets).square())


def configuration_loss(
    features: Tensor,
    logits: Tensor,
    settings: Tensor,
    rerankers: Tensor,
    targets: Tensor,
    margin: float = 1.0,
    weights: LossWeights = LossWeights(),  # noqa: B008 (an immutable tuple)
) -> LossTerms:
    """L_total = L_con + L_cla + L_reg over pairs of queries, each loss with its weight.

    Args:
        features: Feature maps, `[pairs, 2, feature]`.
        logits: `[pairs, 2, rerankers]`.
        settings: Predicted settings, `[pairs, 2, 3]`.
        rerankers: Index of the best reranker, `[pairs, 2]`; a pair is positive where both are equal.
        targets: Best settings, scaled to [0, 1], `[pairs, 2, 3]`.
        margin: Of the contrastive loss.
        weights: Of the three losses.
    """
    same = rerankers[:, 0] == rerankers[:, 1]
    contrastive = contrastive_loss(features[:, 0], features[:, 1], same, margin)
    classification = classification_loss(logits, rerankers)
    regression = regression_loss(settings, targets)
    total = (
        weights.contrastive * contrastive + weights.classification * classification + weights.regression * regression
    )
    return LossTerms(total, contrastive, classification, regression)


def _mean(losses: Tensor) -> Tensor:
    return losses.sum() / max(losses.numel(), 1)
