from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from corag_agent.batches import PairBatch, QuestionBatch
from corag_agent.calibration import ALWAYS, Calibration
from corag_agent.encoder import EncoderOutput
from corag_agent.metrics import METRICS, AgentOutcomes, agent_metrics, calibration_of
from data_prep.grid import LabelGrid

GRID = LabelGrid(exploration=(0.0, 1.0, 2.4), cost_coefficient=(0.1,), iterations=(5, 10, 25)).to_dict()
# The defaults are c = 2.4, λ = 0.1 and 10 iterations.
DEFAULTS = (2, 0, 1)
FIXED = torch.tensor([1, 0, 0, 2])


def rouge_of(count: int) -> Tensor:
    return torch.rand(count, 2, 3, 1, 3, generator=torch.Generator().manual_seed(1))


def questions(count: int, kept: list[bool] | None = None, best: list[int] | None = None) -> QuestionBatch:
    rouge = rouge_of(count)
    settings = torch.zeros(count, 2, 3)  # best: 5 iterations, λ = 0.1, c = 0
    rerankers = torch.tensor(best or [0] * count)
    pairs = PairBatch(torch.empty(count, 1), rerankers, torch.empty(count, 2), settings, rouge, torch.ones(count) > 0)
    tokens = (rouge * 1000).round()
    return QuestionBatch(PairBatch(*(part[:, None] for part in pairs)), torch.tensor(kept or [True] * count), tokens)


def output_of(logits: Tensor, settings: Tensor) -> EncoderOutput:
    return EncoderOutput(torch.empty(len(logits), 1), logits, settings[:, None].expand(-1, 2, -1))


def test_look_up_at_the_nearest_grid_point() -> None:
    # iterations 5 + 0.2·20 = 9 → 10; λ has one value; c = 0.9·2.4 = 2.16 → 2.4
    at = AgentOutcomes(GRID).follow(torch.tensor([1]), torch.tensor([[0.2, 0.7, 0.9]]))
    assert [int(part) for part in at] == [1, 2, 0, 1]


def test_settings_outside_the_ranges_are_clamped() -> None:
    at = AgentOutcomes(GRID).follow(torch.tensor([0, 1]), torch.tensor([[-3.0, 0.0, 7.0], [9.0, -1.0, -1.0]]))
    assert torch.stack(at, dim=1).tolist() == [[0, 2, 0, 0], [1, 0, 0, 2]]


def test_everything_by_hand() -> None:
    """Four questions; the third one's label is not clear."""
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0], [0.5, 0.0]])
    # iterations 5, 15, 25, 5; c = 0, 2.4, 0, 1.2
    settings = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.5]])
    data = questions(4, kept=[True, True, False, True], best=[0, 0, 1, 0])
    metric = AgentOutcomes(GRID)
    for cut in (slice(0, 1), slice(1, 4)):
        part = QuestionBatch(PairBatch(*(c[cut] for c in data.pairs)), data.kept[cut], data.tokens[cut])
        metric.update(output_of(logits[cut], settings[cut]), part, FIXED)
    outcomes = metric.compute()
    values = agent_metrics(outcomes, Calibration(temperature=1.0, threshold=0.7))

    rouge = rouge_of(4)
    followed = torch.stack([rouge[0, 0, 0, 0, 0], rouge[1, 1, 2, 0, 1], rouge[2, 1, 0, 0, 2], rouge[3, 0, 1, 0, 0]])
    fixed, oracle = rouge[:, 1, 0, 0, 2], rouge.flatten(1).max(1).values
    oracle_rerankers = rouge[:, :, *DEFAULTS].max(1).values
    expected = {
        "accuracy": 2 / 3,
        # Class 0: precision 1, recall 2/3, F1 0.8; class 1 is never right: 0.
        "macro_f1": 0.4,
        "error_iterations": (0 + 10 + 0) / 3,
        "error_cost_coefficient": 0.0,
        "error_exploration": (0 + 2.4 + 1.2) / 3,
        "rougeL": followed.mean().item(),
        "regret": (oracle - followed).mean().item(),
        "regret_closed": ((followed - fixed).sum() / (oracle - fixed).sum()).item(),
        "regret_closed_rerankers": ((followed - fixed).sum() / (oracle_rerankers - fixed).sum()).item(),
        "prompt_tokens": (followed * 1000).round().mean().item(),
        "fixed_rougeL": fixed.mean().item(),
        # Confidences 0.88, 0.73, 0.95 and 0.62.
        "fallback_rougeL": torch.cat([followed[:3], fixed[3:]]).mean().item(),
        "fallback_regret": (oracle - torch.cat([followed[:3], fixed[3:]])).mean().item(),
        "fallback_share": 0.25,
    }
    sure = torch.softmax(logits, 1).max(1).values[[0, 1, 3]]
    gaps = [abs(1 - sure[0]), abs(0 - sure[1]), abs(1 - sure[2])]
    expected["calibration_error"] = float(sum(gaps) / 3)
    assert set(values) == set(expected) == set(METRICS)
    assert values == pytest.approx(expected, rel=1e-5)


def test_following_the_oracle_leaves_no_regret() -> None:
    data = questions(6)
    table = data.pairs.rouge[:, 0]
    reranker, exploration, _, iterations = torch.unravel_index(table.flatten(1).argmax(1), table.shape[1:])
    axes = {"iterations": torch.tensor([0.0, 0.25, 1.0]), "exploration": torch.tensor([0.0, 1 / 2.4, 1.0])}
    settings = torch.stack([axes["iterations"][iterations], torch.zeros(6), axes["exploration"][exploration]], dim=1)
    metric = AgentOutcomes(GRID)
    metric.update(output_of(torch.nn.functional.one_hot(reranker, 2).float(), settings), data, FIXED)
    values = agent_metrics(metric.compute(), Calibration())
    assert values["regret"] == pytest.approx(0, abs=1e-7)
    assert values["regret_closed"] == pytest.approx(1)


def test_no_gap_is_not_closed() -> None:
    """The best fixed configuration, at settings of its own, can lie above every reranker at the default settings."""
    data = questions(2)
    rouge = torch.full_like(data.pairs.rouge, 0.2)
    rouge[:, 0, *FIXED.tolist()] = 0.5
    data = data._replace(pairs=data.pairs._replace(rouge=rouge))
    metric = AgentOutcomes(GRID)
    metric.update(output_of(torch.zeros(2, 2), torch.zeros(2, 3)), data, FIXED)
    values = agent_metrics(metric.compute(), Calibration())
    assert values["rougeL"] == pytest.approx(0.2) and values["fixed_rougeL"] == 0.5
    assert math.isnan(values["regret_closed"]) and math.isnan(values["regret_closed_rerankers"])


def test_nobody_and_nothing_kept() -> None:
    metric = AgentOutcomes(GRID)
    data = questions(2, kept=[False, False])
    metric.update(output_of(torch.zeros(2, 2), torch.zeros(2, 3)), data, FIXED)
    values = agent_metrics(metric.compute(), Calibration(threshold=ALWAYS))
    for name in ("accuracy", "macro_f1", "calibration_error", "error_iterations"):
        assert math.isnan(values[name])
    assert values["fallback_rougeL"] == values["fixed_rougeL"] and values["fallback_share"] == 1.0
    metric.reset()
    empty = QuestionBatch(PairBatch(*(part[:0] for part in data.pairs)), data.kept[:0], data.tokens[:0])
    metric.update(output_of(torch.zeros(0, 2), torch.zeros(0, 3)), empty, FIXED)
    assert calibration_of(metric.compute()) == Calibration()
    assert all(math.isnan(value) for value in agent_metrics(metric.compute(), Calibration()).values())


@pytest.mark.parametrize("count", [3, 1])
def test_a_single_reranker(count: int) -> None:
    data = questions(count)
    pairs = data.pairs._replace(rouge=data.pairs.rouge[:, :, :1], settings=data.pairs.settings[:, :, :1])
    one = QuestionBatch(pairs, data.kept, data.tokens[:, :1])
    metric = AgentOutcomes(GRID)
    output = EncoderOutput(torch.empty(count, 1), torch.zeros(count, 1), torch.zeros(count, 1, 3))
    metric.update(output, one, torch.tensor([0, 0, 0, 0]))
    assert agent_metrics(metric.gathered(), Calibration())["accuracy"] == 1.0


@pytest.mark.parametrize("kept", [True, False])
def test_a_single_question(kept: bool) -> None:
    """Twice the same one has the same means."""
    data = questions(1, kept=[kept])
    metric = AgentOutcomes(GRID)
    for _ in range(2):
        metric.update(output_of(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.0, 1.0]])), data, FIXED)
        outcomes = metric.gathered()
        values = agent_metrics(outcomes, Calibration(threshold=0.1))
        assert calibration_of(outcomes).temperature == 1.0
        assert values["rougeL"] == pytest.approx(data.pairs.rouge[0, 0, 1, 2, 0, 1].item())
        assert values["error_exploration"] == pytest.approx(2.4) if kept else math.isnan(values["error_exploration"])


def test_calibration_comes_from_the_outcomes() -> None:
    count = 20
    data = questions(count, best=[0] * 15 + [1] * 5)
    metric = AgentOutcomes(GRID)
    logits = torch.tensor([[math.log(3.0) * 2, 0.0]] * count)  # says 0.9, is right in 0.75
    metric.update(output_of(logits, torch.zeros(count, 3)), data, FIXED)
    assert calibration_of(metric.compute()).temperature == pytest.approx(2.0, rel=1e-4)
    assert np.isclose(agent_metrics(metric.compute(), Calibration(2.0))["calibration_error"], 0.0, atol=1e-6)
