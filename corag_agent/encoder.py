"""The Siamese encoder with its two heads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from corag_search.agent import SETTINGS
from corag_search.errors import InputError


class EncoderOutput(NamedTuple):
    """What the encoder makes of embeddings.

    Attributes:
        features: The feature map, `[..., feature]`; at least 0.
        logits: Of each reranker to be the best, `[..., rerankers]`.
        settings: In the order of `SETTINGS`, scaled to [0, 1] by their ranges but not clamped, `[..., 3]`.
    """

    features: Tensor
    logits: Tensor
    settings: Tensor


class ConfigurationEncoder(nn.Module):
    """Fully connected layers, each with ReLU, then a classification and a regression head (METHOD §5).

    The two branches of the Siamese network share their weights, so a pair is just a leading dimension of two. The
    exported checkpoint holds exactly this module's `state_dict`.

    Attributes:
        widths: Width of the input and of each layer.

    Example:
        >>> encoder = ConfigurationEncoder(input_dim=384, rerankers=4)
        >>> [list(part.shape) for part in encoder(torch.zeros(32, 2, 384))]
        [[32, 2, 128], [32, 2, 4], [32, 2, 3]]
    """

    def __init__(self, input_dim: int, rerankers: int, hidden: Sequence[int] = (512, 256, 128)) -> None:
        """Builds the layers.

        Args:
            input_dim: Width d of a query embedding.
            rerankers: Number of classes.
            hidden: Widths of the fully connected layers; the last is that of the feature map. The default is that of
                the authors' program (arXiv:2411.00744).

        Raises:
            InputError: When a width is not a whole number of at least 1.
        """
        super().__init__()
        self.widths = [input_dim, *hidden]
        if not hidden or any(not isinstance(width, int) or width < 1 for width in [*self.widths, rerankers]):
            raise InputError(
                "input_dim, rerankers and each of the hidden widths must be whole numbers, at least 1, got "
                f"{input_dim!r}, {rerankers!r}, {list(hidden)!r}"
            )
        self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(self.widths))
        self.reranker_head = nn.Linear(self.widths[-1], rerankers)
        self.settings_head = nn.Linear(self.widths[-1], len(SETTINGS))

    def forward(self, embeddings: Tensor) -> EncoderOutput:
        """Encodes query embeddings.

        Args:
            embeddings: `[..., d]`.
        """
        features = embeddings
        for layer in self.layers:
            features = torch.relu(layer(features))
        return EncoderOutput(features, self.reranker_head(features), self.settings_head(features))
