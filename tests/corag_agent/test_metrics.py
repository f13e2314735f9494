import pytest
import torch

from corag_agent.metrics import FollowedScore, Regret
from data_prep.grid import LabelGrid

GRID = LabelGrid(exploration=(0.0, 1.0, 2.4), cost_coefficient=(0.1,), iterations=(5, 10, 25)).to_dict()


def outcomes(batch: int = 4) -> torch.Tensor:
    return torch.rand(batch, 2, 3, 1, 3, generator=torch.Generator().manual_seed(1))


def test_look_up_at_the_nearest_grid_point() -> None:
    table = outcomes(1)
    # iterations 5 + 0.2·20 = 9 → 10; λ has one value; c = 0.9·2.4 = 2.16 → 2.4
    metric = FollowedScore(GRID)
    metric.update(torch.tensor([1]), torch.tensor([[0.2, 0.7, 0.9]]), table)
    assert metric.compute() == table[0, 1, 2, 0, 1]


def test_settings_outside_the_ranges_are_clamped() -> None:
    table = outcomes(2)
    metric = FollowedScore(GRID)
    reached = metric.follow(torch.tensor([0, 1]), torch.tensor([[-3.0, 0.0, 7.0], [9.0, -1.0, -1.0]]), table)
    assert reached.tolist() == [table[0, 0, 2, 0, 0], table[1, 1, 0, 0, 2]]


def test_means_over_batches_of_different_size() -> None:
    table = outcomes(5)
    rerankers, settings = torch.tensor([0, 1, 0, 1, 1]), torch.rand(5, 3)
    score, regret = FollowedScore(GRID), Regret(GRID)
    for cut in (slice(0, 3), slice(3, 5)):
        score.update(rerankers[cut], settings[cut], table[cut])
        regret.update(rerankers[cut], settings[cut], table[cut])
    reached = [score.follow(rerankers[i : i + 1], settings[i : i + 1], table[i : i + 1]).item() for i in range(5)]
    best = [table[i].max().item() for i in range(5)]
    assert score.compute().item() == pytest.approx(sum(reached) / 5)
    assert regret.compute().item() == pytest.approx(sum(b - r for b, r in zip(best, reached, strict=True)) / 5)


def test_following_the_oracle_leaves_no_regret() -> None:
    table = outcomes(6)
    best = table.flatten(1).argmax(1)
    reranker, exploration, _, iterations = torch.unravel_index(best, table.shape[1:])
    axes = {"iterations": torch.tensor([0.0, 0.25, 1.0]), "exploration": torch.tensor([0.0, 1 / 2.4, 1.0])}
    settings = torch.stack([axes["iterations"][iterations], torch.zeros(6), axes["exploration"][exploration]], dim=1)
    regret = Regret(GRID)
    regret.update(reranker, settings, table)
    assert regret.compute() == 0


def test_reset_and_nothing_seen() -> None:
    metric = FollowedScore(GRID)
    metric.update(torch.tensor([0]), torch.zeros(1, 3), outcomes(1))
    metric.reset()
    assert metric.total == 0 and metric.count == 0
    metric.update(torch.zeros(0, dtype=torch.long), torch.zeros(0, 3), outcomes(0))
    assert metric.compute().isnan()
