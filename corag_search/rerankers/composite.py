"""Composite reranker: predicts the answer's ROUGE-L from what other rerankers say of a combination and its chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.rerankers.base import Combinations, Reranker, Scores
from corag_search.rerankers.composite_features import CombinationFeatures, Order
from corag_search.rerankers.composite_model import NAME, CompositeModel, identity_digest, read_composite
from corag_search.rerankers.session import score_in_session


class CompositeReranker:
    """A judge learned from label tables by `corag composite`, as cheap to ask as its parts. Safe to share if they are.

    The price is among what it learned, so a search that it guides has no need of λ. It has no `score_pairs`: as for
    BM25, a score depends on the candidates, which sessions know; each part scores a session's batch in one call.

    Attributes:
        name: "composite".
        order_sensitive: Whether that of one of its parts is.
        max_tokens: The least of its parts'; None where none has a limit.
        fingerprint: Changes with its weights and parts.
        parts: The rerankers that it asks.
    """

    name = NAME

    def __init__(self, path: str, parts: Mapping[str, Any] | None = None) -> None:
        """Load weights and parts.

        Args:
            path: Directory that `corag composite` wrote.
            parts: Further options of parts, by name, such as `{"maxsim": {"token_vectors": "runs/store.tokens"}}`. Only
                such as say where and how a part runs (`PLACEMENT`).

        Raises:
            InputError: The directory cannot be used, a part cannot be loaded, is not the one that was trained with, or
                is given an option that changes its scores.
        """
        self._model, identities = read_composite(path)
        given = dict(parts or {})
        names = [identity.name for identity in identities]
        for name, options in given.items():
            if name not in names or not isinstance(options, Mapping):
                raise InputError(f"parts must map some of {', '.join(names)} to options, got {name!r}: {options!r}")
        self.parts = tuple(identity.load(given.get(identity.name, {})) for identity in identities)
        self.fingerprint = identity_digest(self._model, identities)
        self.order_sensitive = any(part.order_sensitive for part in self.parts)
        limit = _Limit(self.parts)
        self.max_tokens = limit.max_tokens
        if limit.countable:
            self.count_tokens = limit.count_tokens

    def open(self, query: str, candidates: Sequence[Chunk]) -> CompositeSession:
        """Score the candidates one by one with every part."""
        return CompositeSession(CombinationFeatures(query, candidates, self.parts), self._model)

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits `[n]`; the candidates are the distinct chunks in the call. An empty combination has 0."""
        return score_in_session(self, query, combinations) if any(combinations) else np.zeros(len(combinations))


class CompositeSession:
    """One query with its candidates, whose single scores are known."""

    def __init__(self, features: CombinationFeatures, model: CompositeModel) -> None:
        """Take both."""
        self._features, self._model = features, model

    def score(self, orders: Sequence[Order]) -> Scores:
        """Predicted ROUGE-L `[n]` in [0, 1]."""
        scores = np.zeros(len(orders))
        filled = [row for row, order in enumerate(orders) if order]
        if filled:
            scores[filled] = self._model.predict(self._features.of([orders[row] for row in filled]))
        return scores


class _Limit:
    """What all parts can read: lengths as the greatest share of a part's limit, in units of the least limit.

    So if the lengths of texts sum up to `max_tokens` at most, no part reads more than its limit.
    """

    def __init__(self, parts: Sequence[Reranker]) -> None:
        limits = {part.name: part.max_tokens for part in parts if part.max_tokens is not None}
        self.max_tokens = min(limits.values(), default=None)
        self._limited = [part for part in parts if part.max_tokens is not None]
        uncounted = [part.name for part in self._limited if not hasattr(part, "count_tokens")]
        self.countable = bool(self._limited) and not uncounted
        if uncounted and len(limits) > 1:
            raise InputError(
                f"the parts {', '.join(limits)} read {', '.join(map(str, limits.values()))} tokens, and "
                f"{uncounted[0]!r} cannot count its own; leave its max_tokens out, or train without it"
            )

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Length of each text, in the units of `max_tokens`."""
        assert self.max_tokens is not None, "offered only where a part has a limit"
        shares = [
            [tokens / part.max_tokens for tokens in part.count_tokens(texts)]  # type: ignore[attr-defined]
            for part in self._limited
        ]
        return [math.ceil(round(max(own) * self.max_tokens, 6)) for own in zip(*shares, strict=True)]
