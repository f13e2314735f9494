"""Each loss against plain loops over Python numbers."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from corag_agent.batches import PairBatch
from corag_agent.encoder import ConfigurationEncoder, EncoderOutput
from corag_agent.losses import (
    REGRET_BANDWIDTH,
    ConfigurationLoss,
    LossWeights,
    classification_loss,
    contrastive_loss,
    contrastive_loss_of_all_pairs,
    regression_loss,
    regret_loss,
)

DTYPES = [torch.float32, torch.float64]
RERANKERS = 4
# Scaled values of iterations, cost coefficient and exploration.
AXES = [torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.2, 0.6, 1.0])]


def plain_contrastive(left: Tensor, right: Tensor, same: Tensor, margin: float) -> float:
    total = 0.0
    for a, b, is_same in zip(left.tolist(), right.tolist(), same.tolist(), strict=True):
        distance = math.dist(a, b)
        total += distance**2 if is_same else max(0.0, margin - distance) ** 2
    return total / len(left)


def plain_classification(logits: Tensor, rerankers: Tensor) -> float:
    total = 0.0
    for row, target in zip(logits.reshape(-1, logits.shape[-1]).tolist(), rerankers.flatten().tolist(), strict=True):
        total += math.log(sum(math.exp(value) for value in row)) - row[target]
    return total / rerankers.numel()


def plain_regression(settings: Tensor, targets: Tensor) -> float:
    pairs = list(zip(settings.flatten().tolist(), targets.flatten().tolist(), strict=True))
    return sum((a - b) ** 2 for a, b in pairs) / len(pairs)


def plain_regret(logits: list[float], settings: list[list[float]], rouge: Tensor) -> float:
    """Of one question: every configuration in turn."""
    powers = [math.exp(value) for value in logits]
    expected = 0.0
    for reranker, power in enumerate(powers):
        shares = []
        for value, axis in zip(settings[reranker], AXES, strict=True):
            near = [math.exp(-(((value - point) / REGRET_BANDWIDTH) ** 2) / 2) for point in axis.tolist()]
            shares.append([each / sum(near) for each in near])
        for i, c, e in itertools.product(*(range(len(axis)) for axis in AXES)):
            share = shares[0][i] * shares[1][c] * shares[2][e] * power / sum(powers)
            expected += share * rouge[reranker, e, c, i].item()
    return rouge.max().item() - expected


def output(dtype: torch.dtype = torch.float32, pairs: int = 9, shared: bool = True) -> EncoderOutput:
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(pairs, 2, 5, generator=generator, dtype=dtype).requires_grad_()
    logits = torch.randn(pairs, 2, RERANKERS, generator=generator, dtype=dtype).requires_grad_()
    heads = 1 if shared else RERANKERS
    settings = torch.rand(pairs, 2, heads, 3, generator=generator, dtype=dtype).requires_grad_()
    return EncoderOutput(features, logits, settings.expand(-1, -1, RERANKERS, -1))


def batch(dtype: torch.dtype = torch.float32, pairs: int = 9) -> PairBatch:
    generator = torch.Generator().manual_seed(1)
    rerankers = torch.randint(0, RERANKERS, (pairs, 2), generator=generator)
    return PairBatch(
        inputs=torch.empty(pairs, 2, 0),
        rerankers=rerankers,
        targets=torch.nn.functional.one_hot(rerankers, RERANKERS).to(dtype),
        settings=torch.rand(pairs, 2, RERANKERS, 3, generator=generator, dtype=dtype),
        rouge=torch.rand(pairs, 2, RERANKERS, *(len(axis) for axis in reversed(AXES)), generator=generator).to(dtype),
        distinct=torch.ones(pairs, 2, dtype=torch.bool),
    )


def same_reranker(data: PairBatch) -> Tensor:
    return data.rerankers[:, 0] == data.rerankers[:, 1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("margin", [0.3, 1.0, 5.0])
def test_contrastive_equals_plain_loops(dtype: torch.dtype, margin: float) -> None:
    left, right = output(dtype).features.unbind(1)
    same = torch.tensor([True, False, True, False, False, True, False, True, False])
    loss = contrastive_loss(left, right, same, margin)
    assert loss.item() == pytest.approx(plain_contrastive(left, right, same, margin), rel=1e-5)
    assert loss.dtype == dtype


def test_contrastive_by_hand() -> None:
    left, right = torch.zeros(3, 2), torch.tensor([[3.0, 4.0], [0.6, 0.0], [3.0, 4.0]])
    # Positive at distance 5; negative at 0.6, inside the margin of 1; negative at 5, outside.
    losses = [25.0, 0.4**2, 0.0]
    same = torch.tensor([True, False, False])
    assert contrastive_loss(left, right, same).item() == pytest.approx(sum(losses) / 3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_classification_equals_plain_loops(dtype: torch.dtype) -> None:
    data, logits = batch(dtype), output(dtype).logits
    assert classification_loss(logits, data.targets).item() == pytest.approx(
        plain_classification(logits, data.rerankers), rel=1e-5
    )


def test_classification_with_soft_targets_and_class_weights_by_hand() -> None:
    # Probabilities ¼ and ¾.
    logits = torch.tensor([[0.0, math.log(3.0)]])
    targets = torch.tensor([[0.4, 0.6]])
    plain = -(0.4 * math.log(0.25) + 0.6 * math.log(0.75))
    assert classification_loss(logits, targets).item() == pytest.approx(plain)
    weighted = -(0.4 * 2.0 * math.log(0.25) + 0.6 * 0.5 * math.log(0.75))
    assert classification_loss(logits, targets, torch.tensor([2.0, 0.5])).item() == pytest.approx(weighted)


def test_regret_equals_the_sum_over_all_configurations() -> None:
    made, data = output(shared=False), batch()
    plain = [
        plain_regret(made.logits[i, j].tolist(), made.settings[i, j].tolist(), data.rouge[i, j])
        for i in range(len(data.rouge))
        for j in (0, 1)
    ]
    loss = regret_loss(made.logits, made.settings, data.rouge, AXES)
    assert loss.item() == pytest.approx(sum(plain) / len(plain), rel=1e-5)


def test_a_sure_agent_at_the_best_configuration_has_no_regret() -> None:
    rouge = batch(pairs=1).rouge[0, 0]
    best = int(rouge.argmax())
    reranker, e, c, i = (int(part) for part in torch.unravel_index(torch.tensor(best), rouge.shape))
    logits = torch.full((RERANKERS,), -50.0)
    logits[reranker] = 50.0
    settings = torch.zeros(RERANKERS, 3)
    settings[reranker] = torch.stack([AXES[0][i], AXES[1][c], AXES[2][e]])
    # The nearest other grid value is two bandwidths away: a weight of e⁻² beside 1.
    assert regret_loss(logits, settings, rouge, AXES).item() == pytest.approx(0.0, abs=0.2)
    fine = [axis * 10 for axis in AXES]
    assert regret_loss(logits, settings * 10, rouge, fine).item() == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shared", [True, False])
def test_the_sum_equals_plain_loops(dtype: torch.dtype, shared: bool) -> None:
    made, data = output(dtype, shared=shared), batch(dtype)
    weights = LossWeights(0.5, 2.0, 3.0, 4.0)
    terms = ConfigurationLoss(AXES, weights, margin=0.8, own_settings=not shared)(made, data)
    if shared:  # one head learns the settings of the best reranker
        rows = [
            (made.settings[i, j, best], data.settings[i, j, best])
            for i, pair in enumerate(data.rerankers.tolist())
            for j, best in enumerate(pair)
        ]
        regression = plain_regression(*(torch.stack(part) for part in zip(*rows, strict=True)))
    else:
        regression = plain_regression(made.settings, data.settings)
    plain = [
        plain_contrastive(*made.features.unbind(1), same_reranker(data), 0.8),
        plain_classification(made.logits, data.rerankers),
        regression,
        regret_loss(made.logits, made.settings, data.rouge, AXES).item(),
    ]
    assert [term.item() for term in terms[1:]] == pytest.approx(plain, rel=1e-5)
    assert terms.total.item() == pytest.approx(sum(w * x for w, x in zip(weights, plain, strict=True)), rel=1e-5)


def test_the_papers_sum_is_the_default() -> None:
    made, data = output(), batch()
    terms = ConfigurationLoss(AXES)(made, data)
    three = terms.contrastive + terms.classification + terms.regression
    assert terms.total.item() == pytest.approx(three.item())
    assert terms.regret.item() == 0.0


def test_all_pairs_of_a_batch() -> None:
    made, data = output(), batch()
    features, rerankers = made.features.flatten(0, 1), data.rerankers.flatten()
    pairs = list(itertools.combinations(range(len(rerankers)), 2))
    left, right = (torch.tensor(side) for side in zip(*pairs, strict=True))
    terms = ConfigurationLoss(AXES, all_pairs=True)(made, data)
    assert terms.contrastive.item() == pytest.approx(
        plain_contrastive(features[left], features[right], rerankers[left] == rerankers[right], 1.0), rel=1e-5
    )


@pytest.mark.parametrize("all_pairs", [False, True])
def test_gradients_equal_finite_differences(all_pairs: bool) -> None:
    data, made = batch(torch.float64, pairs=4), output(torch.float64, pairs=4, shared=False)
    axes = [axis.double() for axis in AXES]
    loss = ConfigurationLoss(axes, LossWeights(regret=1.0), all_pairs=all_pairs, own_settings=True)
    inputs = tuple(part.detach().clone().requires_grad_() for part in made)
    assert torch.autograd.gradcheck(lambda *parts: loss(EncoderOutput(*parts), data).total, inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("same", [True, False])
def test_identical_features_have_a_finite_gradient(dtype: torch.dtype, same: bool) -> None:
    left = torch.ones(2, 3, dtype=dtype, requires_grad=True)
    right = torch.ones(2, 3, dtype=dtype, requires_grad=True)
    loss = contrastive_loss(left, right, torch.full((2,), same))
    loss.backward()
    assert loss.item() == (0.0 if same else 1.0)
    assert left.grad is not None and torch.isfinite(left.grad).all()


def test_identical_features_of_all_pairs_have_a_finite_gradient() -> None:
    features = torch.ones(3, 4, requires_grad=True)
    loss = contrastive_loss_of_all_pairs(features, torch.tensor([0, 1, 0]))
    loss.backward()
    assert loss.item() == pytest.approx(2 / 3)  # two negative pairs at distance 0
    assert features.grad is not None and (features.grad == 0).all()


def test_all_pairs_hold_no_copy_of_the_features_for_each() -> None:
    held = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: held.append(x.numel()) or x, lambda x: x):
        contrastive_loss_of_all_pairs(torch.rand(200, 64, requires_grad=True), torch.arange(200) % 3)
    assert max(held) == 200 * 199 // 2


@pytest.mark.parametrize("weights", [LossWeights(), LossWeights(0, 0, 0, 1), LossWeights(0, 0, 0, 0)])
@pytest.mark.parametrize("all_pairs", [False, True])
def test_no_pair_is_a_zero_with_a_gradient_path(weights: LossWeights, all_pairs: bool) -> None:
    whole = output()
    made, data = EncoderOutput(*(part[:0] for part in whole)), PairBatch(*(part[:0] for part in batch()))
    terms = ConfigurationLoss(AXES, weights, all_pairs=all_pairs)(made, data)
    assert [term.item() for term in terms] == [0.0] * 5
    terms.total.backward()
    assert whole.logits.grad is not None and (whole.logits.grad == 0).all()


def without_best(data: PairBatch, alike: set[tuple[int, int]]) -> PairBatch:
    """The batch in which these members of pairs have no best reranker."""
    distinct = torch.tensor([[(i, j) not in alike for j in (0, 1)] for i in range(len(data.rerankers))])
    return data._replace(distinct=distinct, targets=data.targets * distinct[..., None])


@pytest.mark.parametrize("all_pairs", [False, True])
def test_questions_without_a_best_reranker_teach_no_class(all_pairs: bool) -> None:
    made, whole = output(), batch()
    alike = {(0, 0), (3, 1), (4, 0), (4, 1)}
    data = without_best(whole, alike)
    loss = ConfigurationLoss(AXES, LossWeights(regret=1.0), all_pairs=all_pairs)
    terms, before = loss(made, data), loss(made, whole)
    members = list(itertools.product(range(9), (0, 1)))
    pairs = itertools.combinations(members, 2) if all_pairs else [((i, 0), (i, 1)) for i in range(9)]
    counted = [pair for pair in pairs if not alike & set(pair)]
    assert len(counted) == (14 * 13 // 2 if all_pairs else 6)
    left, right = (torch.stack([made.features[pair[side]] for pair in counted]) for side in (0, 1))
    same = torch.tensor([bool(whole.rerankers[one] == whole.rerankers[other]) for one, other in counted])
    assert terms.contrastive.item() == pytest.approx(plain_contrastive(left, right, same, 1.0), rel=1e-5)
    assert terms.classification.item() == pytest.approx(
        plain_classification(made.logits[data.distinct], whole.rerankers[data.distinct]), rel=1e-5
    )
    assert (terms.regret.item(), terms.regression.item()) == (before.regret.item(), before.regression.item())


@pytest.mark.parametrize("all_pairs", [False, True])
def test_no_best_reranker_at_all_is_a_zero_with_a_gradient_path(all_pairs: bool) -> None:
    made = output()
    data = without_best(batch(), set(itertools.product(range(9), (0, 1))))
    terms = ConfigurationLoss(AXES, LossWeights(regression=0.0), all_pairs=all_pairs)(made, data)
    assert terms.total.item() == 0.0
    terms.total.backward()


@pytest.mark.parametrize("same", [True, False])
def test_pairs_of_one_kind_only(same: bool) -> None:
    left, right = output().features.unbind(1)
    mask = torch.full((len(left),), same)
    assert contrastive_loss(left, right, mask).item() == pytest.approx(
        plain_contrastive(left, right, mask, 1.0), rel=1e-5
    )


def test_half_precision_distances_are_taken_in_single() -> None:
    left, right = torch.full((1, 4), 300.0).half(), torch.zeros(1, 4).half()
    assert contrastive_loss(left, right, torch.tensor([True])).item() == pytest.approx(4 * 300.0**2)


@pytest.mark.parametrize("left_out", LossWeights._fields[:3])
def test_a_loss_that_is_left_out_leaves_no_weight_without_a_gradient(left_out: str) -> None:
    encoder = ConfigurationEncoder(3, RERANKERS, hidden=(4,))
    data = batch()
    terms = ConfigurationLoss(AXES, LossWeights(**{left_out: 0.0}))(encoder(torch.rand(9, 2, 3)), data)
    terms.total.backward()
    assert all(weight.grad is not None for weight in encoder.parameters())  # else DDP stops at the second step


def test_every_loss_reaches_what_it_should() -> None:
    made, data = output(shared=False), batch()
    parts = [part.detach().clone().requires_grad_() for part in made]
    features, logits, settings = parts
    classification_loss(logits, data.targets).backward()
    regression_loss(settings, data.settings).backward()
    contrastive_loss(*features.unbind(1), same_reranker(data)).backward()
    for part in parts:
        assert part.grad is not None and torch.isfinite(part.grad).all() and part.grad.abs().sum() > 0
    before = logits.grad.clone(), settings.grad.clone()
    regret_loss(logits, settings, data.rouge, AXES).backward()
    for part, old in zip((logits, settings), before, strict=True):
        assert part.grad is not None and (part.grad != old).any()
