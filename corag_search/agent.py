"""The configuration agent at inference: an exported checkpoint, run with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corag_search.agent_format import AGENT, CHUNK_MEAN, EMBEDDING, SETTINGS, AgentFormat, Array
from corag_search.agent_labels import label_settings
from corag_search.errors import InputError
from corag_search.hub import fetch_agent
from corag_search.query_features import STATISTICS, QueryFeatures
from corag_search.texts import shown
from corag_search.weights_directory import check_unchanged, read_weights


@dataclass(frozen=True, slots=True)
class Prediction:
    """The configuration that the agent chooses for a query.

    Attributes:
        reranker: Name of the most probable best reranker, or the fallback's.
        iterations: Expansions of the policy tree.
        exploration: c of Definition 4.2, arXiv:2411.00744.
        cost_coefficient: λ of Definition 4.2.
        probabilities: Of each reranker to be the best one, calibrated on the validation split; they sum to 1.
        confidence: The greatest of them.
        fallback: Whether the confidence lies below the agent's threshold, so that this is the configuration that was
            best for the training questions as a whole.
    """

    reranker: str
    iterations: int
    exploration: float
    cost_coefficient: float
    probabilities: dict[str, float]
    confidence: float
    fallback: bool = False


class ConfigurationAgent:
    """Predicts reranker and search settings from a query embedding (METHOD §5).

    Holds nothing that changes, so threads may share it.

    Attributes:
        rerankers: Names, in the order of the classification head.
        embedder: What embeddings it was trained for: name, dimension, fingerprint.
        ranges: Least and greatest value of each setting; predictions are clamped to them.
        inputs: What it sees: "embedding", then "chunk_mean" and names of `STATISTICS`, as it was trained.
        config: The checkpoint's `config.json`.
    """

    def __init__(self, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> None:
        """Checks a configuration and its weights against each other; use `load` for a directory.

        Raises:
            InputError: When they are incomplete or do not fit.
        """
        self.config = dict(config)
        self._format = AgentFormat.of(config)
        self._format.check_tensors(tensors)
        self.rerankers = self._format.rerankers
        self.embedder = self._format.embedder
        self.ranges = self._format.ranges
        self.inputs = self._format.inputs
        self._statistics = [STATISTICS.index(name) for name in self.inputs if name in STATISTICS]
        self._layers = [(tensors[f"layers.{i}.weight"], tensors[f"layers.{i}.bias"]) for i in range(self._format.depth)]
        self._reranker_head = (tensors["reranker_head.weight"], tensors["reranker_head.bias"])
        self._settings_head = (tensors["settings_head.weight"], tensors["settings_head.bias"])
        self._shift, self._scale = tensors.get("input_shift"), tensors.get("input_scale")
        low, high = np.array([self.ranges[name] for name in SETTINGS], np.float64).T
        self._low, self._width = low, high - low

    @classmethod
    def load(cls, directory: str | Path) -> ConfigurationAgent:
        """Loads what `corag export` wrote. No code of the checkpoint runs.

        Raises:
            InputError: When a file is missing, unreadable or changed since the export, the format is unknown, or
                tensors and configuration do not fit.
        """
        tensors, config = read_weights(directory, AGENT)
        try:
            agent = cls(tensors, config)
            check_unchanged(config)
            return agent
        except InputError as error:
            raise InputError(f"{AGENT.what} {directory}: {error}") from error

    @classmethod
    def from_pretrained(
        cls,
        name_or_directory: str | Path,
        *,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
    ) -> ConfigurationAgent:
        """Loads an export from a directory, or else from a repository of the model hub.

        Args:
            name_or_directory: A directory, or OWNER/NAME; a directory of that name comes first.
            revision: Branch, tag or commit of the repository; None for its default branch.
            cache_dir: Folder of the hub's cache; None for its own.
            local_files_only: Whether to take what is in the cache and never ask the hub.

        Raises:
            InputError: As `load`, or there is no such directory and no such agent to be had.
        """
        if Path(name_or_directory).is_dir():
            return cls.load(name_or_directory)
        return cls.load(fetch_agent(str(name_or_directory), revision, cache_dir, local_files_only))

    @property
    def selection(self) -> str:
        """The selection rule that its labels were made with: c means another thing to another rule."""
        return str(label_settings(self.config).get("selection", "uct"))

    @property
    def input_dim(self) -> int:
        """Width of the embeddings it takes."""
        return self._format.dimension

    @property
    def needs_features(self) -> bool:
        """Whether it looks at the retrieved candidates besides the query embedding."""
        return len(self.inputs) > 1

    def predict(self, query_embedding: npt.ArrayLike, features: QueryFeatures | None = None) -> Prediction:
        """Chooses the configuration for one query.

        Args:
            query_embedding: Embedding of the query by the agent's embedder, `[d]`.
            features: Of the query and its candidates (`query_features`); needed by an agent that was trained with
                them, not looked at by others.

        Raises:
            InputError: When the embedding has another width or is not finite, or features are needed and not given.
        """
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what comes of it is refused below
            values = self._input(query_embedding, features)
            for weight, bias in self._layers:
                values = np.maximum(weight @ values + bias, 0.0)
            logits = self._reranker_head[0] @ values + self._reranker_head[1]
            tempered = logits / self._format.temperature
            scaled = (self._settings_head[0] @ values + self._settings_head[1]).reshape(-1, len(SETTINGS))
        if not (np.isfinite(tempered).all() and np.isfinite(scaled).all()):
            raise InputError("the query's embedding or features are too large to compute with; check the embedder")
        probabilities = _softmax(tempered)
        best = int(logits.argmax())
        confidence = float(probabilities[best])
        by_name = dict(zip(self.rerankers, probabilities.tolist(), strict=True))
        fallback = self._format.fallback
        if fallback is not None and confidence < fallback.threshold:
            return Prediction(fallback.reranker, *fallback.settings, by_name, confidence, fallback=True)
        chosen = self._low + np.clip(scaled[best % len(scaled)].astype(np.float64), 0.0, 1.0) * self._width
        settings = dict(zip(SETTINGS, chosen.tolist(), strict=True))
        return Prediction(
            reranker=self.rerankers[best],
            iterations=round(settings["iterations"]),
            exploration=settings["exploration"],
            cost_coefficient=settings["cost_coefficient"],
            probabilities=by_name,
            confidence=confidence,
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

    def _input(self, query_embedding: npt.ArrayLike, features: QueryFeatures | None) -> Array:
        """What the first layer takes, `[inputs]`."""
        embedding = _numbers("the query's embedding", query_embedding)
        if embedding.shape != (self.input_dim,):
            got = embedding.shape[0] if embedding.ndim == 1 else f"an array of shape {list(embedding.shape)}"
            raise InputError(
                f"the checkpoint was trained for embeddings of {self.input_dim}, got {got}; embed one query at a time "
                f"with {self.embedder.get('name')}, or train an agent for your embedder"
            )
        parts = [embedding]
        if self.needs_features:
            if not isinstance(features, QueryFeatures):
                raise InputError(
                    f"the checkpoint was trained with {', '.join(self.inputs[1:])} beside the query embedding; give "
                    "features, as query_features computes them from the candidates"
                )
            chunk_mean = _numbers("features.chunk_mean", features.chunk_mean)
            statistics = _numbers("features.statistics", features.statistics)
            if chunk_mean.shape != embedding.shape or statistics.shape != (len(STATISTICS),):
                raise InputError(
                    f"features must have a chunk_mean of {self.input_dim} and {len(STATISTICS)} statistics, got shapes "
                    f"{list(chunk_mean.shape)} and {list(statistics.shape)}; compute them by query_features"
                )
            if CHUNK_MEAN in self.inputs:
                parts.append(chunk_mean)
            parts.append(statistics[self._statistics])
        values = np.concatenate(parts) if len(parts) > 1 else embedding
        if not np.isfinite(values).all():
            what = EMBEDDING if not np.isfinite(embedding).all() else "features"
            raise InputError(f"the query's {what} must be finite, got NaN or infinity in it; check the embedder")
        return values if self._shift is None or self._scale is None else (values - self._shift) * self._scale


def _numbers(name: str, values: npt.ArrayLike) -> Array:
    try:
        given = np.asarray(values)
        with np.errstate(over="ignore"):  # infinity is refused
            numbers = given.astype(np.float32) if given.dtype.kind in "fiub" else None
    except (TypeError, ValueError, OverflowError):  # a ragged list
        numbers = None
    if numbers is None:
        raise InputError(f"{name} must be numbers, got {shown(values)}; check the embedder")
    return numbers


def _softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()
