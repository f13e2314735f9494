"""The Siamese encoder with its two heads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from corag_search.agent_format import PER_RERANKER, SETTINGS, SHARED
from corag_search.errors import InputError


class EncoderOutput(NamedTuple):
    """What the encoder makes of its inputs.

    Attributes:
        features: The feature map, `[..., feature]`; at least 0.
        logits: Of each reranker to be the best, `[..., rerankers]`.
        settings: Of each reranker in the order of `SETTINGS`, scaled to [0, 1] by their ranges but not clamped,
            `[..., rerankers, 3]`; the same for all rerankers where they share a head.
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
        input_shift: Subtracted from the input first, `[inputs]`; 0 until it is set from data.
        input_scale: What it is multiplied by then, `[inputs]`; 1 until it is set from data.

    Example:
        >>> encoder = ConfigurationEncoder(input_dim=384, rerankers=4)
        >>> [list(part.shape) for part in encoder(torch.zeros(32, 2, 384))]
        [[32, 2, 128], [32, 2, 4], [32, 2, 4, 3]]
    """

    input_shift: Tensor
    input_scale: Tensor

    def __init__(
        self,
        input_dim: int,
        rerankers: int,
        hidden: Sequence[int] = (512, 256, 128),
        dropout: float = 0.0,
        settings_heads: str = SHARED,
    ) -> None:
        """Builds the layers.

        Args:
            input_dim: Width of the input: a query embedding, with what is fused with it.
            rerankers: Number of classes.
            hidden: Widths of the fully connected layers; the last is that of the feature map. The default is that of
                the authors' program (arXiv:2411.00744).
            dropout: Share of each layer's outputs that is dropped in training, in [0, 1).
            settings_heads: "shared", or "per_reranker": the settings are then those of the reranker.

        Raises:
            InputError: When a width is not a whole number of at least 1, or another argument is unusable.
        """
        super().__init__()
        self.widths = [input_dim, *hidden]
        if not hidden or any(not isinstance(width, int) or width < 1 for width in [*self.widths, rerankers]):
            raise InputError(
                "input_dim, rerankers and each of the hidden widths must be whole numbers, at least 1, got "
                f"{input_dim!r}, {rerankers!r}, {list(hidden)!r}"
            )
        if not 0 <= dropout < 1:
            raise InputError(f"dropout must be at least 0 and less than 1, got {dropout!r}")
        if settings_heads not in (SHARED, PER_RERANKER):
            raise InputError(f"settings_heads must be {SHARED} or {PER_RERANKER}, got {settings_heads!r}")
        self.register_buffer("input_shift", torch.zeros(input_dim))
        self.register_buffer("input_scale", torch.ones(input_dim))
        self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(self.widths))
        self.reranker_head = nn.Linear(self.widths[-1], rerankers)
        heads = rerankers if settings_heads == PER_RERANKER else 1
        self.settings_head = nn.Linear(self.widths[-1], heads * len(SETTINGS))
        self._dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, inputs: Tensor) -> EncoderOutput:
        """Encodes queries.

        Args:
            inputs: `[..., input_dim]`.
        """
        features = (inputs - self.input_shift) * self.input_scale
        for layer in self.layers:
            features = self._dropout(torch.relu(layer(features)))
        logits = self.reranker_head(features)
        settings = self.settings_head(features).unflatten(-1, (-1, len(SETTINGS)))
        return EncoderOutput(features, logits, settings.expand(*logits.shape, len(SETTINGS)))
