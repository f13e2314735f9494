"""What following the agent reaches, looked up in the label table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from corag_search.agent import SETTINGS
from data_prep.grid import GridPoint, LabelGrid


class FollowedScore(Metric):
    """Mean of a table's outcome at the predicted reranker, its settings snapped to the grid.

    The look-up is that of the comparison (`comparison.agent_index`). In [0, 1] for ROUGE; in tokens for prompt tokens.
    """

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, grid: Mapping[str, Sequence[float]]) -> None:
        """Prepares the look-up.

        Args:
            grid: The table's grid, as `LabelGrid.to_dict` gives it.
        """
        super().__init__()
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")
        self._grid = LabelGrid.from_dict(grid)

    def update(self, rerankers: Tensor, settings: Tensor, outcomes: Tensor) -> None:
        """Adds a batch.

        Args:
            rerankers: Predicted reranker, `[batch]`.
            settings: Predicted settings, scaled, in the order of `SETTINGS`, `[batch, 3]`; clamped here.
            outcomes: The table's rows, `[batch, rerankers, exploration, cost_coefficient, iterations]`.
        """
        self._add(self.follow(rerankers, settings, outcomes))

    def compute(self) -> Tensor:
        """The mean over all questions; NaN without any."""
        return self.total / self.count

    def follow(self, rerankers: Tensor, settings: Tensor, outcomes: Tensor) -> Tensor:
        """The outcome that each question reaches, `[batch]`; arguments as for `update`."""
        # As `ConfigurationAgent.predict` has it, to the last bit: what inference would do is what is measured.
        shares = settings.detach().double().clamp(0.0, 1.0).cpu().numpy()
        nearest = {}
        for share, name in zip(shares.T, SETTINGS, strict=True):
            low, high = self._grid.ranges[name]
            chosen = low + share * (high - low)
            positions = self._grid.nearest(name, chosen.round() if name == "iterations" else chosen)
            nearest[name] = torch.from_numpy(positions).to(outcomes.device)
        batch = torch.arange(len(outcomes), device=outcomes.device)
        return outcomes[batch, rerankers, *(nearest[name] for name in GridPoint._fields)]

    def _add(self, values: Tensor) -> None:
        self.total = self.total + values.sum()
        self.count = self.count + values.numel()


class Regret(FollowedScore):
    """Mean of the oracle's score less the one reached by following the agent, at least 0.

    The oracle takes the best of all rerankers and grid points of each question (the second one of METHOD §6).
    """

    def update(self, rerankers: Tensor, settings: Tensor, outcomes: Tensor) -> None:
        """Adds a batch; arguments as for `FollowedScore.update`."""
        self._add(outcomes.flatten(1).amax(dim=1) - self.follow(rerankers, settings, outcomes))
