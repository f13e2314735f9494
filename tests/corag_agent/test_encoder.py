import pytest
import torch

from corag_agent.encoder import ConfigurationEncoder
from corag_search.agent_format import expected_shapes
from corag_search.errors import InputError


def test_shapes_with_any_leading_dimensions() -> None:
    encoder = ConfigurationEncoder(6, 4, hidden=(5, 4, 3))
    for leading in ((), (2,), (7, 2)):
        features, logits, settings = encoder(torch.randn(*leading, 6))
        assert features.shape == (*leading, 3)
        assert logits.shape == (*leading, 4)
        assert settings.shape == (*leading, 4, 3)


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
    settings = encoder.settings_head.weight @ hidden + encoder.settings_head.bias
    torch.testing.assert_close(output.settings, torch.stack([settings, settings]))


def test_inputs_are_shifted_and_scaled_first() -> None:
    encoder = ConfigurationEncoder(2, 2, hidden=(3,))
    plain = encoder(torch.tensor([1.0, -2.0])).logits
    encoder.input_shift.copy_(torch.tensor([4.0, 1.0]))
    encoder.input_scale.copy_(torch.tensor([0.5, 3.0]))
    # (6 − 4) · 0.5 = 1 and (1/3 − 1) · 3 = −2
    torch.testing.assert_close(encoder(torch.tensor([6.0, 1 / 3])).logits, plain)


def test_settings_of_each_reranker_with_heads_of_their_own() -> None:
    encoder = ConfigurationEncoder(3, 2, hidden=(4,), settings_heads="per_reranker")
    x = torch.randn(5, 3)
    features, _, settings = encoder(x)
    for reranker in (0, 1):
        rows = slice(3 * reranker, 3 * reranker + 3)
        weight, bias = encoder.settings_head.weight[rows], encoder.settings_head.bias[rows]
        torch.testing.assert_close(settings[:, reranker], features @ weight.T + bias)


def test_dropout_acts_in_training_only() -> None:
    encoder = ConfigurationEncoder(4, 2, hidden=(64,), dropout=0.5)
    x = torch.ones(4)
    assert (encoder(x).features == 0).sum() > (encoder.eval()(x).features == 0).sum()
    torch.testing.assert_close(encoder(x).features, torch.relu(encoder.layers[0](x)))


def test_tensors_are_those_that_inference_expects() -> None:
    encoder = ConfigurationEncoder(6, 4)
    assert encoder.widths == [6, 512, 256, 128]
    for heads in ("shared", "per_reranker"):
        encoder = ConfigurationEncoder(6, 4, settings_heads=heads)
        shapes = {name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items()}
        assert shapes == expected_shapes(encoder.widths, 4, heads)


@pytest.mark.parametrize(("width", "rerankers", "hidden"), [(0, 2, (3,)), (3, 0, (3,)), (3, 2, ()), (3, 2, (4, -1))])
def test_unusable_widths(width: int, rerankers: int, hidden: tuple) -> None:
    with pytest.raises(InputError, match="whole numbers, at least 1"):
        ConfigurationEncoder(width, rerankers, hidden)


def test_unusable_options() -> None:
    with pytest.raises(InputError, match=r"dropout must be at least 0 and less than 1, got 1\.0"):
        ConfigurationEncoder(2, 2, dropout=1.0)
    with pytest.raises(InputError, match="settings_heads must be shared or per_reranker, got 'own'"):
        ConfigurationEncoder(2, 2, settings_heads="own")
