"""The weights of a composite reranker, and which parts they belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag_search.errors import InputError
from corag_search.rerankers import load_reranker
from corag_search.rerankers.base import Reranker, Scores
from corag_search.rerankers.composite_features import Features, feature_names
from corag_search.weights_directory import CONFIG_FILE, WeightsFormat, check_unchanged, read_weights

COMPOSITE = WeightsFormat("corag-composite", (1,), "composite reranker", "corag composite")
NAME = "composite"

# Options of rerankers that say where and how one runs, not what it finds. They are chosen where it is loaded.
PLACEMENT = frozenset(
    {
        *("path", "device", "devices", "batch_size", "token_vectors", "trust_remote_code"),
        *("base_url", "api_key_env", "concurrency", "timeout", "retries", "backoff", "longest_wait"),
    }
)


@dataclass(frozen=True, slots=True)
class PartIdentity:
    """A reranker that a composite is made of.

    Attributes:
        name: As `load_reranker` knows it.
        options: That shape its scores; those of `PLACEMENT` are left out.
        fingerprint: Of it; None where it has none.
    """

    name: str
    options: Mapping[str, Any]
    fingerprint: str | None

    @classmethod
    def of(cls, reranker: Reranker, options: Mapping[str, Any]) -> PartIdentity:
        """Of a loaded reranker and the options it was loaded with."""
        return cls(reranker.name, shaping(options), getattr(reranker, "fingerprint", None))

    def load(self, placement: Mapping[str, Any]) -> Reranker:
        """The reranker.

        Args:
            placement: Options out of `PLACEMENT`.

        Raises:
            InputError: Another option, the reranker cannot be loaded, or it is not the one that was trained with.
        """
        others = shaping(placement)
        if others:
            raise InputError(
                f"part {self.name!r} was trained with {dict(self.options)}; {', '.join(others)} would change its "
                f"scores: leave that out, or train a composite with it by `{COMPOSITE.command}`"
            )
        reranker = load_reranker(self.name, **{**self.options, **placement})
        found = getattr(reranker, "fingerprint", None)
        if found != self.fingerprint:
            raise InputError(
                f"part {self.name!r} has the fingerprint {found}, the composite was trained with {self.fingerprint}; "
                f"load that one, or train a composite with this one by `{COMPOSITE.command}`"
            )
        return reranker


def shaping(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that shape scores."""
    return {name: value for name, value in options.items() if name not in PLACEMENT}


@dataclass(frozen=True, slots=True, eq=False)
class CompositeModel:
    """Predicts the ROUGE-L of the answer: linear in the standardised features.

    Attributes:
        center: Mean of each feature in training, `[features]`.
        scale: Its standard deviation, above 0, `[features]`.
        weights: ROUGE-L for one standard deviation, `[features]`.
        bias: ROUGE-L where all features are at their means.
    """

    center: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    bias: float

    TENSORS = ("center", "scale", "weights")

    def predict(self, features: Features) -> Scores:
        """ROUGE-L in [0, 1], `[n]`, of features `[n, features]`."""
        # Row by row, so that a combination's score does not depend, in its last bits, on those beside it.
        return np.clip(((features - self.center) / self.scale * self.weights).sum(axis=1) + self.bias, 0.0, 1.0)

    def tensors(self) -> dict[str, NDArray[np.float64]]:
        """As they are stored."""
        return {**{name: getattr(self, name) for name in self.TENSORS}, "bias": np.array([self.bias])}

    @classmethod
    def of(cls, tensors: Mapping[str, NDArray[Any]], features: int) -> CompositeModel:
        """Of stored tensors.

        Raises:
            InputError: They are not exactly those of so many features, finite and float64.
        """
        shapes = {**dict.fromkeys(cls.TENSORS, (features,)), "bias": (1,)}
        if set(tensors) != set(shapes):
            raise InputError(f"tensors must be {', '.join(shapes)}, got {', '.join(tensors)}; make it again")
        for name, shape in shapes.items():
            tensor = tensors[name]
            if tensor.shape != shape or tensor.dtype != np.float64 or not np.isfinite(tensor).all():
                raise InputError(
                    f"tensor {name} must be finite float64 {list(shape)}, got {tensor.dtype} {list(tensor.shape)}; "
                    "make it again"
                )
        if not (tensors["scale"] > 0).all():
            raise InputError("tensor scale must be above 0; make it again")
        return cls(**{name: tensors[name] for name in cls.TENSORS}, bias=float(tensors["bias"][0]))


def read_composite(path: str | Path) -> tuple[CompositeModel, tuple[PartIdentity, ...]]:
    """Weights and parts of a directory that `corag composite` wrote.

    Raises:
        InputError: It cannot be read, was changed, is of another version, or does not fit together.
    """
    tensors, config = read_weights(path, COMPOSITE)
    try:
        parts = _parts(config.get("parts"))
        names = feature_names([part.name for part in parts])
        if config.get("features") != list(names):
            raise InputError(
                f"{CONFIG_FILE}: features must be {list(names)}, got {config.get('features')!r}; make it again"
            )
        model = CompositeModel.of(tensors, len(names))
        check_unchanged(config)
        return model, parts
    except InputError as error:
        raise InputError(f"{COMPOSITE.what} {path}: {error}") from error


def identity_digest(model: CompositeModel, parts: Sequence[PartIdentity]) -> str:
    """16 hexadecimal digits that change with whatever shapes the scores."""
    digest = hashlib.sha256(json.dumps([asdict(part) for part in parts], sort_keys=True).encode())
    for tensor in model.tensors().values():
        digest.update(tensor.tobytes())
    return digest.hexdigest()[:16]


def _parts(entries: Any) -> tuple[PartIdentity, ...]:
    try:
        parts = tuple(PartIdentity(**entry) for entry in entries)
    except TypeError:
        parts = ()
    usable = all(isinstance(part.name, str) and isinstance(part.options, Mapping) for part in parts)
    if not parts or not usable or len({part.name for part in parts}) < len(parts):
        raise InputError(
            f"{CONFIG_FILE}: parts must be at least one reranker with name, options and fingerprint, each once, got "
            f"{entries!r}; make it again"
        )
    return parts
