"""What an exported configuration agent consists of, and the checks of it."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.query_features import STATISTICS
from corag_search.texts import shown
from corag_search.weights_directory import CONFIG_FILE, WeightsFormat

# The one order of the regression head's outputs and of scaled targets, everywhere.
SETTINGS = ("iterations", "cost_coefficient", "exploration")

ONNX_FILE = "model.onnx"
# Version 1 had the query embedding as its only input, one head for the settings, and no calibration.
AGENT = WeightsFormat("corag-agent", versions=(1, 2), what="checkpoint", command="corag export", further=(ONNX_FILE,))

EMBEDDING, CHUNK_MEAN = "embedding", "chunk_mean"
SHARED, PER_RERANKER = "shared", "per_reranker"

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Fallback:
    """The configuration for queries that the agent is not sure about.

    Attributes:
        threshold: Of the confidence; below it the fallback is used. Above 1: always.
        reranker: The best fixed one of the training questions.
        iterations: Of the best fixed configuration.
        exploration: Likewise.
        cost_coefficient: Likewise.
    """

    threshold: float
    reranker: str
    iterations: int
    exploration: float
    cost_coefficient: float

    @property
    def settings(self) -> tuple[int, float, float]:
        """Iterations, exploration and cost coefficient, as `Prediction` has them."""
        return self.iterations, self.exploration, self.cost_coefficient


@dataclass(frozen=True, slots=True)
class AgentFormat:
    """A checked `config.json`.

    Attributes:
        rerankers: Names, in the order of the classification head.
        embedder: Name, dimension and fingerprint.
        ranges: Least and greatest value of each setting.
        layers: Widths of the input and of each fully connected layer.
        inputs: "embedding", then "chunk_mean" and statistics, as trained.
        settings_heads: "shared", or "per_reranker" for a regression head of each reranker's own.
        temperature: What logits are divided by.
        fallback: None without one.
        version: Of the format.
    """

    rerankers: tuple[str, ...]
    embedder: dict[str, Any]
    ranges: dict[str, tuple[float, float]]
    layers: tuple[int, ...]
    inputs: tuple[str, ...]
    settings_heads: str
    temperature: float
    fallback: Fallback | None
    version: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> AgentFormat:
        """Checks a configuration.

        Raises:
            InputError: When an entry is missing or unusable.
        """
        version = config.get("format_version", AGENT.versions[-1])
        rerankers = _rerankers(_entry(config, "rerankers", list))
        embedder = dict(_entry(config, "embedder", dict))
        if _entry(config, "settings", list) != list(SETTINGS):
            raise InputError(f"{CONFIG_FILE}: settings must be {list(SETTINGS)}, got {config['settings']!r}")
        layers = _layers(_entry(config, "layers", list))
        ranges = _ranges(_entry(config, "ranges", dict))
        if version == 1:
            since = {"inputs": [EMBEDDING], "settings_heads": SHARED, "calibration": {"temperature": 1.0}}
            config = {**config, **since, "fallback": None}
        inputs = _inputs(_entry(config, "inputs", list))
        heads = _entry(config, "settings_heads", str)
        temperature = _temperature(_entry(config, "calibration", dict))
        fallback = _fallback(_entry(config, "fallback", dict | None), rerankers, ranges)
        if heads not in (SHARED, PER_RERANKER):
            raise InputError(f"{CONFIG_FILE}: settings_heads must be {SHARED} or {PER_RERANKER}, got {heads!r}")
        dimension = embedder.get("dimension")
        if type(dimension) is not int or input_width(dimension, inputs) != layers[0]:
            raise InputError(
                f"{CONFIG_FILE}: needs a first layer as wide as its inputs (an embedding as wide as the embedder's "
                f"dimension, chunk_mean likewise, 1 for each statistic), got layers {list(layers)}, inputs "
                f"{list(inputs)}, embedder {embedder}"
            )
        return cls(rerankers, embedder, ranges, layers, inputs, heads, temperature, fallback, version)

    @property
    def dimension(self) -> int:
        """Width of a query embedding."""
        return int(self.embedder["dimension"])

    @property
    def depth(self) -> int:
        """Number of fully connected layers."""
        return len(self.layers) - 1

    def check_tensors(self, tensors: Mapping[str, Array]) -> None:
        """Refuses tensors that are not exactly those of the configuration.

        Raises:
            InputError: When one is missing, unexpected, of another shape or type, or not finite.
        """
        shapes = expected_shapes(self.layers, len(self.rerankers), self.settings_heads)
        if self.version == 1:
            shapes = {name: shape for name, shape in shapes.items() if not name.startswith("input_")}
        missing, extra = sorted(set(shapes) - set(tensors)), sorted(set(tensors) - set(shapes))
        if missing or extra:
            raise InputError(f"tensors missing: {missing or 'none'}, unexpected: {extra or 'none'}; export it again")
        for name, shape in shapes.items():
            tensor = tensors[name]
            if tensor.shape != shape or tensor.dtype != np.float32:
                raise InputError(
                    f"tensor {name} must be float32 {list(shape)}, got {tensor.dtype} {list(tensor.shape)}; "
                    "export it again"
                )
            if not np.isfinite(tensor).all():
                raise InputError(f"tensor {name} must be finite, has NaN or infinity; train again")


def input_width(dimension: int, inputs: Sequence[str]) -> int:
    """Width of the first layer's input.

    Args:
        dimension: Of an embedding.
        inputs: Names, as in `AgentFormat`.
    """
    return sum(dimension if name in (EMBEDDING, CHUNK_MEAN) else 1 for name in inputs)


def expected_shapes(layers: Sequence[int], rerankers: int, settings_heads: str = SHARED) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of a checkpoint.

    Args:
        layers: Width of the input and of each fully connected layer.
        rerankers: Number of classes.
        settings_heads: As in `AgentFormat`.
    """
    shapes: dict[str, tuple[int, ...]] = {"input_shift": (layers[0],), "input_scale": (layers[0],)}
    for index, (inputs, outputs) in enumerate(itertools.pairwise(layers)):
        shapes |= {f"layers.{index}.weight": (outputs, inputs), f"layers.{index}.bias": (outputs,)}
    settings = len(SETTINGS) * (rerankers if settings_heads == PER_RERANKER else 1)
    for head, outputs in (("reranker_head", rerankers), ("settings_head", settings)):
        shapes |= {f"{head}.weight": (outputs, layers[-1]), f"{head}.bias": (outputs,)}
    return shapes


def _entry(config: Mapping[str, Any], key: str, kind: type | UnionType) -> Any:
    if key not in config:
        raise InputError(f"{CONFIG_FILE} has no {key}; export it again")
    if not isinstance(config[key], kind):
        name = getattr(kind, "__name__", str(kind))
        raise InputError(f"{CONFIG_FILE}: {key} must be a {name}, got {config[key]!r}; export it again")
    return config[key]


def _rerankers(names: list[Any]) -> tuple[str, ...]:
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise InputError(f"{CONFIG_FILE}: rerankers must be at least one name, each once, got {names!r}")
    return tuple(names)


def _layers(widths: list[Any]) -> tuple[int, ...]:
    if len(widths) < 2 or not all(type(width) is int and width > 0 for width in widths):
        raise InputError(f"{CONFIG_FILE}: layers must be at least two widths, got {widths!r}")
    return tuple(widths)


def _ranges(ranges: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    checked = {}
    for name in SETTINGS:
        bounds = ranges.get(name)
        if not isinstance(bounds, list | tuple) or len(bounds) != 2 or not all(_is_number(bound) for bound in bounds):
            raise InputError(f"{CONFIG_FILE}: ranges.{name} must be [low, high], got {shown(bounds)}")
        low, high = bounds
        if not low <= high:
            raise InputError(f"{CONFIG_FILE}: ranges.{name} must rise from low to high, got {shown(bounds)}")
        for bound in bounds:
            _check_setting(name, bound)
        checked[name] = (float(low), float(high))
    return checked


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_setting(name: str, value: float) -> None:
    """Refuse what no search can be asked for; iterations are rounded."""
    try:
        SearchConfig(**{name: round(value) if name == "iterations" else value})  # type: ignore[arg-type]
    except (InputError, ValueError, OverflowError):  # of rounding NaN and infinity
        raise InputError(f"{CONFIG_FILE}: ranges.{name} holds {shown(value)}, which no search takes") from None


def _inputs(names: list[Any]) -> tuple[str, ...]:
    allowed = (EMBEDDING, CHUNK_MEAN, *STATISTICS)
    order = [name for name in allowed if name in names]
    if EMBEDDING not in names or names != order:
        raise InputError(
            f"{CONFIG_FILE}: inputs must be {EMBEDDING} and any of {', '.join(allowed[1:])}, in this order, got "
            f"{names!r}; use the version of corag that exported it, or export it again"
        )
    return tuple(names)


def _temperature(calibration: Mapping[str, Any]) -> float:
    value = calibration.get("temperature")
    if not _is_number(value) or not 0 < value <= sys.float_info.max:
        raise InputError(f"{CONFIG_FILE}: calibration.temperature must be a finite number above 0, got {shown(value)}")
    return float(value)


def _fallback(entry: Any, rerankers: Sequence[str], ranges: Mapping[str, tuple[float, float]]) -> Fallback | None:
    if entry is None:
        return None
    try:
        made = Fallback(**entry)
        whole = type(made.iterations) is int and all(map(_is_number, (made.threshold, *made.settings)))
        inside = all(ranges[name][0] <= getattr(made, name) <= ranges[name][1] for name in SETTINGS)
        usable = whole and inside and made.reranker in rerankers and 0 <= made.threshold < math.inf
    except TypeError:
        usable = False
    if not usable:
        raise InputError(
            f"{CONFIG_FILE}: fallback must be null or give a threshold of at least 0, one of the rerankers, and "
            f"iterations, exploration and cost_coefficient within the ranges, got {entry!r}; export it again"
        )
    return made
