"""Scripted rerankers and chunks: their scores are known, so every step of a search can be worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from corag_search import Chunk


def chunks_of(**costs: int) -> list[Chunk]:
    """Chunks whose ids and texts are the names: chunks_of(a=10, b=20)."""
    return [Chunk(name, name, cost) for name, cost in costs.items()]


class Scripted:
    """Scores looked up by the ids joined ("ab"); remembers every batch. For sets the ids are sorted first."""

    max_tokens = None

    def __init__(self, scores: Mapping[str, float], order_sensitive: bool = True, default: float | None = None) -> None:
        self.name = "scripted"
        self.order_sensitive = order_sensitive
        self.batches: list[list[str]] = []
        self._scores = scores
        self._default = default

    def score(self, query: str, combinations: Sequence[Sequence[Chunk]]) -> np.ndarray:
        keys = ["".join(chunk.id for chunk in combination) for combination in combinations]
        if not self.order_sensitive:
            keys = ["".join(sorted(key)) for key in keys]
        self.batches.append(keys)
        return np.array(
            [self._scores[k] if self._default is None else self._scores.get(k, self._default) for k in keys]
        )


class RandomScores:
    """Non-monotone scores that depend on the seed and the combination only, with many ties."""

    max_tokens = None

    def __init__(self, seed: int, order_sensitive: bool = True) -> None:
        self.name = f"random {seed}"
        self.order_sensitive = order_sensitive
        self.evaluated: list[tuple[str, ...]] = []
        self._seed = seed

    def of(self, query: str, ids: Sequence[str]) -> float:
        key = tuple(ids) if self.order_sensitive else tuple(sorted(ids))
        generator = random.Random(f"{self._seed}|{query}|{key}")
        return generator.choice([0.0, 0.25, 0.5, 1.0, generator.random(), generator.random()])

    def score(self, query: str, combinations: Sequence[Sequence[Chunk]]) -> np.ndarray:
        ids = [tuple(chunk.id for chunk in combination) for combination in combinations]
        self.evaluated += ids if self.order_sensitive else [tuple(sorted(i)) for i in ids]
        return np.array([self.of(query, i) for i in ids])
