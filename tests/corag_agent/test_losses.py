"""Each loss against plain loops over Python numbers."""

import math

import pytest
import torch
from torch import Tensor

from corag_agent.losses import (
    LossWeights,
    classification_loss,
    configuration_loss,
    contrastive_loss,
    regression_loss,
)

DTYPES = [torch.float32, torch.float64]


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


def batch(dtype: torch.dtype, pairs: int = 9) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "features": torch.rand(pairs, 2, 5, generator=generator, dtype=dtype).requires_grad_(),
        "logits": torch.randn(pairs, 2, 4, generator=generator, dtype=dtype).requires_grad_(),
        "settings": torch.randn(pairs, 2, 3, generator=generator, dtype=dtype).requires_grad_(),
        "rerankers": torch.randint(0, 4, (pairs, 2), generator=generator),
        "targets": torch.rand(pairs, 2, 3, generator=generator, dtype=dtype),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("margin", [0.3, 1.0, 5.0])
def test_contrastive_equals_plain_loops(dtype: torch.dtype, margin: float) -> None:
    left, right = batch(dtype)["features"].unbind(1)
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
def test_the_others_and_the_sum_equal_plain_loops(dtype: torch.dtype) -> None:
    data = batch(dtype)
    weights = LossWeights(0.5, 2.0, 3.0)
    terms = configuration_loss(**data, margin=0.8, weights=weights)
    same = data["rerankers"][:, 0] == data["rerankers"][:, 1]
    plain = [
        plain_contrastive(*data["features"].unbind(1), same, 0.8),
        plain_classification(data["logits"], data["rerankers"]),
        plain_regression(data["settings"], data["targets"]),
    ]
    assert [term.item() for term in terms[1:]] == pytest.approx(plain, rel=1e-5)
    assert terms.total.item() == pytest.approx(sum(w * x for w, x in zip(weights, plain, strict=True)), rel=1e-5)
    assert configuration_loss(**data).total.item() == pytest.approx(
        plain_contrastive(*data["features"].unbind(1), same, 1.0) + plain[1] + plain[2], rel=1e-5
    )


def test_gradients_equal_finite_differences() -> None:
    data = batch(torch.float64, pairs=4)
    inputs = (data["features"], data["logits"], data["settings"])
    assert torch.autograd.gradcheck(
        lambda f, g, s: configuration_loss(f, g, s, data["rerankers"], data["targets"]).total, inputs
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("same", [True, False])
def test_identical_features_have_a_finite_gradient(dtype: torch.dtype, same: bool) -> None:
    left = torch.ones(2, 3, dtype=dtype, requires_grad=True)
    right = torch.ones(2, 3, dtype=dtype, requires_grad=True)
    loss = contrastive_loss(left, right, torch.full((2,), same))
    loss.backward()
    assert loss.item() == (0.0 if same else 1.0)
    assert left.grad is not None and torch.isfinite(left.grad).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_pair_is_a_zero_with_a_gradient_path(dtype: torch.dtype) -> None:
    data = {name: part[:0] for name, part in batch(dtype).items()}
    whole = batch(dtype)["features"]
    data["features"] = whole[:0]
    terms = configuration_loss(**data)
    assert [term.item() for term in terms] == [0.0] * 4
    terms.total.backward()
    assert whole.grad is not None and (whole.grad == 0).all()


@pytest.mark.parametrize("same", [True, False])
def test_pairs_of_one_kind_only(same: bool) -> None:
    left, right = batch(torch.float32)["features"].unbind(1)
    mask = torch.full((len(left),), same)
    assert contrastive_loss(left, right, mask).item() == pytest.approx(
        plain_contrastive(left, right, mask, 1.0), rel=1e-5
    )


def test_half_precision_distances_are_taken_in_single() -> None:
    left, right = torch.full((1, 4), 300.0).half(), torch.zeros(1, 4).half()
    assert contrastive_loss(left, right, torch.tensor([True])).item() == pytest.approx(4 * 300.0**2)


def test_every_loss_reaches_what_it_should() -> None:
    data = batch(torch.float32)
    classification_loss(data["logits"], data["rerankers"]).backward()
    regression_loss(data["settings"], data["targets"]).backward()
    contrastive_loss(*data["features"].unbind(1), data["rerankers"][:, 0] == data["rerankers"][:, 1]).backward()
    for name in ("logits", "settings", "features"):
        grad = data[name].grad
        assert grad is not None and torch.isfinite(grad).all() and grad.abs().sum() > 0
