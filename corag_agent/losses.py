"""The losses of the configuration agent, and their sum (METHOD §5, arXiv:2411.00744).

Each takes tensors only. With nothing to average over, each is a zero that still has a gradient path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from corag_agent.batches import PairBatch
from corag_agent.encoder import EncoderOutput

# In the scaled settings: as far from a grid value, its weight has fallen to 0.6 of that of a hit.
REGRET_BANDWIDTH = 0.1


class LossWeights(NamedTuple):
    """Factors of the losses in their sum; the paper's are 1, 1, 1 and 0."""

    contrastive: float = 1.0
    classification: float = 1.0
    regression: float = 1.0
    regret: float = 0.0


class LossTerms(NamedTuple):
    """The weighted sum, and each loss without its weight; all scalars. A loss of weight 0 is not computed, but 0."""

    total: Tensor
    contrastive: Tensor
    classification: Tensor
    regression: Tensor
    regret: Tensor


def contrastive_loss(
    left: Tensor, right: Tensor, same: Tensor, margin: float = 1.0, counts: Tensor | None = None
) -> Tensor:
    """Pulls pairs with the same best reranker together and pushes the others at least `margin` apart.

    With d the Euclidean distance of the two feature maps: d² for a positive pair, max(0, margin − d)² for a negative
    one; the mean over all pairs that count, without the factor ½ of Hadsell et al. (2006).

    Args:
        left: Feature maps of the first members, `[pairs, feature]`.
        right: Feature maps of the second members, `[pairs, feature]`.
        same: Whether both members have the same best reranker, bool `[pairs]`.
        margin: Distance from which on a negative pair costs nothing.
        counts: Whether the pair has any part in the loss, bool `[pairs]`; all have when None.

    Returns:
        A scalar in float32 at least: squares of half-precision differences would under- or overflow.
    """
    kind = torch.promote_types(left.dtype, torch.float32)
    squared = (left.to(kind) - right.to(kind)).square().sum(dim=-1)
    # The root has no gradient at 0; there a pair has no direction to be pushed in, so its gradient is set to 0.
    apart = squared > 0
    distance = torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)
    return _contrast(distance, squared, same, margin, counts)


def contrastive_loss_of_all_pairs(
    features: Tensor, rerankers: Tensor, margin: float = 1.0, counts: Tensor | None = None
) -> Tensor:
    """`contrastive_loss` over every two questions, without a copy of their feature maps for each pair.

    Args:
        features: Feature maps, `[n, feature]`.
        rerankers: Index of the best reranker, `[n]`.
        margin: As of `contrastive_loss`.
        counts: Whether the question has any part in the loss, bool `[n]`; all have when None.
    """
    if len(features) < 2:
        return features.sum() * 0.0  # `pdist` of nothing has no gradient path
    distance = torch.pdist(features.to(torch.promote_types(features.dtype, torch.float32)))  # its gradient at 0 is 0
    left, right = torch.triu_indices(len(rerankers), len(rerankers), offset=1, device=rerankers.device)
    both = None if counts is None else counts[left] & counts[right]
    return _contrast(distance, distance.square(), rerankers[left] == rerankers[right], margin, both)


def classification_loss(logits: Tensor, targets: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Cross-entropy of the best reranker, the mean over all members of all pairs that have a target.

    Args:
        logits: `[..., rerankers]`, for pairs `[pairs, 2, rerankers]`.
        targets: A distribution over the rerankers, or 1 at the best one, `[..., rerankers]`; all 0 for no target.
        class_weights: What each reranker's share counts, `[rerankers]`; all 1 when None.
    """
    shares = targets if class_weights is None else targets * class_weights
    return _mean(-(shares * functional.log_softmax(logits, dim=-1)).sum(dim=-1), targets.sum(dim=-1) > 0)


def regression_loss(settings: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of the scaled settings, the mean over everything.

    Args:
        settings: Predictions, not clamped, `[..., 3]` in the order of `SETTINGS`.
        targets: Best settings, each scaled to [0, 1] by its range, `[..., 3]`.
    """
    return _mean((settings - targets).square())


def regret_loss(logits: Tensor, settings: Tensor, rouge: Tensor, axes: Sequence[Tensor]) -> Tensor:
    """The question's best ROUGE-L less the one that is expected under the predicted distribution over configurations.

    A reranker has its predicted probability; a grid point of it the product, over the settings, of weights that fall
    with the distance d from the predicted value as exp(−d² / 2b²), normalised, b being `REGRET_BANDWIDTH`: as b goes
    to 0, this is the look-up of the settings snapped to the grid.

    Args:
        logits: `[..., rerankers]`.
        settings: Predictions for each reranker, scaled, `[..., rerankers, 3]` in the order of `SETTINGS`.
        rouge: ROUGE-L, `[..., rerankers, exploration, cost_coefficient, iterations]`.
        axes: The grid's values, scaled, in the order of `SETTINGS`.
    """
    weights = [
        torch.softmax(-((value[..., None] - axis) / REGRET_BANDWIDTH).square() / 2, dim=-1)
        for value, axis in zip(settings.unbind(dim=-1), axes, strict=True)
    ]
    iterations, cost_coefficient, exploration = weights
    of_reranker = torch.einsum("...recn,...rn,...rc,...re->...r", rouge, iterations, cost_coefficient, exploration)
    expected = (torch.softmax(logits, dim=-1) * of_reranker).sum(dim=-1)
    return _mean(rouge.flatten(-4).amax(dim=-1) - expected)


class ConfigurationLoss:
    """L_total = L_con + L_cla + L_reg over pairs of queries, each loss with its weight, and the regret if wanted."""

    def __init__(
        self,
        axes: Sequence[Tensor],
        weights: LossWeights = LossWeights(),  # noqa: B008 (an immutable tuple)
        margin: float = 1.0,
        all_pairs: bool = False,
        own_settings: bool = False,
    ) -> None:
        """Takes the options.

        Args:
            axes: The grid's values, scaled, in the order of `SETTINGS`.
            weights: Of the losses.
            margin: Of the contrastive loss.
            all_pairs: Whether the contrastive loss is taken over all pairs of the batch's questions, not only over the
                pairs that were drawn.
            own_settings: Whether each reranker's settings are learned from its own best ones, as heads of their own
                can; one head for all learns those of the best reranker.
        """
        self._axes, self._weights, self._margin = axes, weights, margin
        self._all_pairs, self._own_settings = all_pairs, own_settings

    def __call__(self, output: EncoderOutput, batch: PairBatch, class_weights: Tensor | None = None) -> LossTerms:
        """The losses of a batch of pairs.

        Args:
            output: Of the encoder, for `batch.inputs`.
            batch: The pairs.
            class_weights: As of `classification_loss`.
        """
        predicted, wanted = output.settings, batch.settings
        if not self._own_settings:
            best = batch.rerankers[..., None, None].expand(*batch.rerankers.shape, 1, wanted.shape[-1])
            predicted, wanted = predicted.gather(-2, best), wanted.gather(-2, best)
        weights = self._weights
        # With a gradient path to every weight: DDP refuses to train a head that a step leaves out.
        zero = (output.logits.sum() + output.settings.sum()) * 0.0
        terms = (
            self._contrastive(output.features, batch) if weights.contrastive else zero,
            classification_loss(output.logits, batch.targets, class_weights) if weights.classification else zero,
            regression_loss(predicted, wanted) if weights.regression else zero,
            self._regret(output, batch.rouge) if weights.regret else zero,
        )
        total = sum((weight * term for weight, term in zip(weights, terms, strict=True)), start=zero)
        return LossTerms(total, *terms)

    def _contrastive(self, features: Tensor, batch: PairBatch) -> Tensor:
        rerankers, distinct = batch.rerankers, batch.distinct
        if self._all_pairs:
            return contrastive_loss_of_all_pairs(
                features.flatten(0, 1), rerankers.flatten(), self._margin, distinct.flatten()
            )
        same = rerankers[:, 0] == rerankers[:, 1]
        return contrastive_loss(features[:, 0], features[:, 1], same, self._margin, distinct.all(dim=1))

    def _regret(self, output: EncoderOutput, rouge: Tensor) -> Tensor:
        axes = [axis.to(rouge.device) for axis in self._axes]
        return regret_loss(output.logits, output.settings, rouge, axes)


def _contrast(distance: Tensor, squared: Tensor, same: Tensor, margin: float, counts: Tensor | None) -> Tensor:
    return _mean(torch.where(same, squared, (margin - distance).clamp_min(0.0).square()), counts)


def _mean(losses: Tensor, counts: Tensor | None = None) -> Tensor:
    if counts is None:
        return losses.sum() / max(losses.numel(), 1)
    return (losses * counts).sum() / counts.sum().clamp_min(1)  # without a look at the device's memory
