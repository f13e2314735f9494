import pytest
import torch

from corag_agent.encoder import ConfigurationEncoder
from corag_search.agent import expected_shapes
from corag_search.errors import InputError


def test_shapes_with_any_leading_dimensions() -> None:
    encoder = ConfigurationEncoder(6, 4, hidden=(5, 4, 3))
    for leading in ((), (2,), (7, 2)):
        features, logits, settings = encoder(torch.randn(*leading, 6))
        assert features.shape == (*leading, 3)
        assert logits.shape == (*leading, 4)
        assert settings.shape == (*leading, 3)


def test_both_branches_share_their_weights() -> None:
    encoder = ConfigurationEncoder(6, 4)
    pairs = torch.randn(5, 2, 6)
    torch.testing.assert_close(encoder(pairs).features[:, 1], encoder(pairs[:, 1]).features)


def test_equals_the_formula() -> None:
    encoder = ConfigurationEncoder(3, 2, hidden=(4, 3, 2))
    x = torch.randn(3)
    hidden = x
    for layer in encoder.layers:
        hidden = torch.clamp(layer.weight @ hidden + layer.bias, min=0)
    output = encoder(x)
    torch.testing.assert_close(output.features, hidden)
    assert (output.features >= 0).all()
    torch.testing.assert_close(output.logits, encoder.reranker_head.weight @ hidden + encoder.reranker_head.bias)
    torch.testing.assert_close(output.settings, encoder.settings_head.weight @ hidden + encoder.settings_head.bias)


def test_tensors_are_those_that_inference_expects() -> None:
    encoder = ConfigurationEncoder(6, 4)
    assert encoder.widths == [6, 512, 256, 128]
    shapes = {name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items()}
    assert shapes == expected_shapes(encoder.widths, 4)


@pytest.mark.parametrize(("width", "rerankers", "hidden"), [(0, 2, (3,)), (3, 0, (3,)), (3, 2, ()), (3, 2, (4, -1))])
def test_unusable_widths(width: int, rerankers: int, hidden: tuple) -> None:
    with pytest.raises(InputError, match="whole numbers, at least 1"):
        ConfigurationEncoder(width, rerankers, hidden)
