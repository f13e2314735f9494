"""The configuration agent at inference: an exported checkpoint, run with NumPy."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from corag_search.errors import InputError

# The one order of the regression head's outputs and of scaled targets, everywhere.
SETTINGS = ("iterations", "cost_coefficient", "exploration")

FORMAT = "corag-agent"
FORMAT_VERSION = 1
WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Prediction:
    """The configuration that the agent chooses for a query.

    Attributes:
        reranker: Name of the most probable best reranker.
        iterations: Expansions of the policy tree.
        exploration: c of Definition 4.2, arXiv:2411.00744.
        cost_coefficient: λ of Definition 4.2.
        probabilities: Of each reranker to be the best one; they sum to 1.
        confidence: Probability of the chosen reranker.
    """

    reranker: str
    iterations: int
    exploration: float
    cost_coefficient: float
    probabilities: dict[str, float]
    confidence: float


class ConfigurationAgent:
    """Predicts reranker and search settings from a query embedding (METHOD §5).

    Holds nothing that changes, so threads may share it.

    Attributes:
        rerankers: Names, in the order of the classification head.
        embedder: What embeddings it was trained for: name, dimension, fingerprint.
        ranges: Least and greatest value of each setting; predictions are clamped to them.
        config: The checkpoint's `config.json`.
    """

    def __init__(self, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> None:
        """Checks a configuration and its weights against each other; use `load` for a directory.

        Raises:
            InputError: When they are incomplete or do not fit.
        """
        self.config = dict(config)
        self.rerankers: tuple[str, ...] = tuple(_entry(config, "rerankers", list))
        self.embedder: dict[str, Any] = dict(_entry(config, "embedder", dict))
        self.ranges = _ranges(_entry(config, "ranges", dict))
        if _entry(config, "settings", list) != list(SETTINGS):
            raise InputError(f"{CONFIG_FILE}: settings must be {list(SETTINGS)}, got {config['settings']!r}")
        widths = _entry(config, "layers", list)
        if len(widths) < 2 or not all(isinstance(width, int) and width > 0 for width in widths):
            raise InputError(f"{CONFIG_FILE}: layers must be at least two widths, got {widths!r}")
        if not self.rerankers or self.embedder.get("dimension") != widths[0]:
            raise InputError(
                f"{CONFIG_FILE}: needs at least one reranker and a first layer as wide as the embedder's dimension, "
                f"got {len(self.rerankers)} reranker(s), layers {widths}, embedder {self.embedder}"
            )
        _check_tensors(tensors, expected_shapes(widths, len(self.rerankers)))
        self._layers = [(tensors[f"layers.{i}.weight"], tensors[f"layers.{i}.bias"]) for i in range(len(widths) - 1)]
        self._reranker_head = (tensors["reranker_head.weight"], tensors["reranker_head.bias"])
        self._settings_head = (tensors["settings_head.weight"], tensors["settings_head.bias"])

    @classmethod
    def load(cls, directory: str | Path) -> ConfigurationAgent:
        """Loads what `corag export` wrote. No code of the checkpoint runs.

        Raises:
            InputError: When a file is missing, unreadable or changed since the export, the format is unknown, or
                tensors and configuration do not fit.
        """
        directory = Path(directory)
        files = {name: directory / name for name in (CONFIG_FILE, WEIGHTS_FILE)}
        for name, file in files.items():
            if not file.is_file():
                raise InputError(f"checkpoint {directory} has no {name}; make one with `corag export`")
        try:
            config = json.loads(files[CONFIG_FILE].read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"checkpoint {directory}: {CONFIG_FILE} is not JSON ({error}); export it again") from None
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise InputError(f"checkpoint {directory}: {CONFIG_FILE} is not that of a {FORMAT}; export one")
        if config.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"checkpoint {directory} has format version {config.get('format_version')!r}, readable is "
                f"{FORMAT_VERSION}; export it again with this version of corag"
            )
        weights = files[WEIGHTS_FILE].read_bytes()
        checksum = hashlib.sha256(weights).hexdigest()
        if checksum != config.get("sha256"):
            raise InputError(
                f"checkpoint {directory}: {WEIGHTS_FILE} has SHA-256 {checksum[:12]}…, {CONFIG_FILE} says "
                f"{str(config.get('sha256'))[:12]}…; the file is damaged or of another export, fetch it again"
            )
        try:
            return cls(load_tensors(weights), config)
        except (SafetensorError, InputError) as error:
            raise InputError(f"checkpoint {directory}: {error}") from error

    @property
    def selection(self) -> str:
        """The selection rule that its labels were made with: c means another thing to another rule."""
        labels = self.config.get("labels")
        search = labels.get("search") if isinstance(labels, Mapping) else None
        return str(search.get("selection", "uct")) if isinstance(search, Mapping) else "uct"

    @property
    def input_dim(self) -> int:
        """Width of the embeddings it takes."""
        return int(self._layers[0][0].shape[1])

    def predict(self, query_embedding: npt.ArrayLike) -> Prediction:
        """Chooses the configuration for one query.

        Args:
            query_embedding: Embedding of the query by the agent's embedder, `[d]`.

        Raises:
            InputError: When the embedding has another width or is not finite.
        """
        features = np.asarray(query_embedding, dtype=np.float32)
        if features.shape != (self.input_dim,):
            got = features.shape[0] if features.ndim == 1 else f"an array of shape {list(features.shape)}"
            raise InputError(
                f"the checkpoint was trained for embeddings of {self.input_dim}, got {got}; embed one query at a time "
                f"with {self.embedder.get('name')}, or train an agent for your embedder"
            )
        if not np.isfinite(features).all():
            raise InputError("the query embedding must be finite, got NaN or infinity in it; check the embedder")
        for weight, bias in self._layers:
            features = np.maximum(weight @ features + bias, 0.0)
        logits = self._reranker_head[0] @ features + self._reranker_head[1]
        scaled = self._settings_head[0] @ features + self._settings_head[1]
        probabilities = _softmax(logits)
        best = int(logits.argmax())
        settings = {}
        for name, value in zip(SETTINGS, scaled, strict=True):
            low, high = self.ranges[name]
            settings[name] = low + min(max(float(value), 0.0), 1.0) * (high - low)
        return Prediction(
            reranker=self.rerankers[best],
            iterations=round(settings["iterations"]),
            exploration=settings["exploration"],
            cost_coefficient=settings["cost_coefficient"],
            probabilities=dict(zip(self.rerankers, probabilities.tolist(), strict=True)),
            confidence=float(probabilities[best]),
        )

    def check_embedder(self, name: str, dimension: int, fingerprint: str | None = None) -> None:
        """Refuses an embedder that the agent was not trained for.

        Args:
            name: The embedder's name.
            dimension: Width of its embeddings.
            fingerprint: Of its weights and settings; None where it has none.

        Raises:
            InputError: When name, dimension or fingerprint differ.
        """
        trained = self.embedder
        differs = fingerprint is not None and trained.get("fingerprint") not in (None, fingerprint)
        if name != trained.get("name") or dimension != self.input_dim or differs:
            raise InputError(
                f"checkpoint was trained for embeddings of {self.input_dim} by {trained.get('name')} "
                f"({trained.get('fingerprint')}), got {dimension} by {name} ({fingerprint}); use that embedder, or "
                "label and train an agent with this one"
            )


def expected_shapes(layers: list[int], rerankers: int) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of a checkpoint.

    Args:
        layers: Width of the input and of each fully connected layer.
        rerankers: Number of classes.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for index, (inputs, outputs) in enumerate(itertools.pairwise(layers)):
        shapes |= {f"layers.{index}.weight": (outputs, inputs), f"layers.{index}.bias": (outputs,)}
    for head, outputs in (("reranker_head", rerankers), ("settings_head", len(SETTINGS))):
        shapes |= {f"{head}.weight": (outputs, layers[-1]), f"{head}.bias": (outputs,)}
    return shapes


def _check_tensors(tensors: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    missing, extra = sorted(set(shapes) - set(tensors)), sorted(set(tensors) - set(shapes))
    if missing or extra:
        raise InputError(f"tensors missing: {missing or 'none'}, unexpected: {extra or 'none'}; export it again")
    for name, shape in shapes.items():
        tensor = tensors[name]
        if tensor.shape != shape or tensor.dtype != np.float32:
            raise InputError(
                f"tensor {name} must be float32 {list(shape)}, got {tensor.dtype} {list(tensor.shape)}; export it again"
            )
        if not np.isfinite(tensor).all():
            raise InputError(f"tensor {name} must be finite, has NaN or infinity; train again")


def _entry(config: Mapping[str, Any], key: str, kind: type) -> Any:
    if not isinstance(config.get(key), kind):
        raise InputError(f"{CONFIG_FILE}: {key} must be a {kind.__name__}, got {config.get(key)!r}; export it again")
    return config[key]


def _ranges(ranges: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    checked = {}
    for name in SETTINGS:
        try:
            low, high = (float(bound) for bound in ranges[name])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{CONFIG_FILE}: ranges.{name} must be [low, high], got {ranges.get(name)!r}") from None
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise InputError(f"{CONFIG_FILE}: ranges.{name} must rise from low to high, got {[low, high]}")
        checked[name] = (low, high)
    return checked


def _softmax(logits: Array) -> npt.NDArray[np.float64]:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()
