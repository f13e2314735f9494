"""What `/rerank` servers are sent, and what their answers and scores mean."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from corag_search.endpoint import error_detail, start_of, without_key
from corag_search.rerankers.base import Scores
from corag_search.rerankers.cross_encoder import sigmoid
from corag_search.texts import shown

# Half precision rounds 1 to a little more.
_TOLERANCE = 1e-3


class Scale(StrEnum):
    """What a server's scores are, and so how they become benefits."""

    UNIT = "unit"
    LOGIT = "logit"
    COSINE = "cosine"


class Dialect(StrEnum):
    """Kinds of servers."""

    TEI = "tei"
    COHERE = "cohere"
    JINA = "jina"
    VLLM = "vllm"
    LLAMA_CPP = "llama.cpp"
    INFINITY = "infinity"


class BadAnswer(Exception):
    """An answer that is no list of scores; the message goes on after the server's address."""


@dataclass(frozen=True, slots=True)
class Speech:
    """How one kind of server is asked.

    Attributes:
        path: Of the endpoint.
        scale: What its scores are, as a rule.
        texts: Field of the request that holds the texts.
        needs_model: Whether a request must name a model.
        raw_scores: Whether it normalises scores or not as the request asks.
        truncates: Whether it cuts texts or refuses long ones as the request asks.
        returns_texts: Whether it sends the texts back unless told not to.
        all_by_count: Whether it returns all scores only when told their number.
    """

    path: str
    scale: Scale
    texts: str = "documents"
    needs_model: bool = False
    raw_scores: bool = False
    truncates: bool = False
    returns_texts: bool = False
    all_by_count: bool = False

    def address(self, base_url: str) -> str:
        """Where requests go; a version at the end of the base is not repeated.

        Example:
            >>> jina = DIALECTS[Dialect.JINA]
            >>> jina.address("https://api.jina.ai"), jina.address("https://api.jina.ai/v1/")
            ('https://api.jina.ai/v1/rerank', 'https://api.jina.ai/v1/rerank')
        """
        base = base_url.rstrip("/")
        return base if base.endswith("/rerank") else base.removesuffix(self.path.removesuffix("/rerank")) + self.path

    def body(self, query: str, texts: Sequence[str], model: str | None, scale: Scale, cut: bool) -> dict[str, Any]:
        """The request's JSON.

        Args:
            query: The query.
            texts: `[n]`.
            model: As the server names it, or None.
            scale: What its scores are to be.
            cut: Whether a text above the model's limit may be cut; refused otherwise, where the server can.
        """
        body: dict[str, Any] = {"query": query, self.texts: list(texts)} | ({"model": model} if model else {})
        if self.raw_scores:
            body["raw_scores"] = scale is Scale.LOGIT
        if self.truncates:
            body["truncate"] = cut
        if self.returns_texts:
            body["return_documents"] = False
        if self.all_by_count:
            body["top_n"] = len(texts)
        return body


# Jina's v3 returns cosines; scores of its earlier models lie in [0, 1], where cutting at 0 changes nothing.
DIALECTS = {
    Dialect.TEI: Speech("/rerank", Scale.UNIT, texts="texts", raw_scores=True, truncates=True),
    Dialect.COHERE: Speech("/v2/rerank", Scale.UNIT, needs_model=True),
    Dialect.JINA: Speech("/v1/rerank", Scale.COSINE, needs_model=True, returns_texts=True),
    Dialect.VLLM: Speech("/rerank", Scale.UNIT),
    Dialect.LLAMA_CPP: Speech("/v1/rerank", Scale.LOGIT, all_by_count=True),
    Dialect.INFINITY: Speech("/rerank", Scale.UNIT, raw_scores=True),
}


def answered_scores(content: bytes, kind: str, count: int, key: str | None = None) -> Scores:
    """Scores `[count]` in the order of the texts, whatever order the server gave them in.

    Args:
        content: The answer.
        kind: Its content type.
        count: How many texts were sent.
        key: Of the request, which no message may show.

    Raises:
        BadAnswer: It does not hold exactly one number for each text.
    """
    scores: dict[int, float] = {}
    for position, result in enumerate(_results(content, kind, key)):
        if not isinstance(result, dict):
            raise BadAnswer(f"gave a JSON {type(result).__name__} as result {position}, not an object; check dialect")
        index = result.get("index")
        if "index" not in result:
            raise BadAnswer(f"gave result {position} without an index; check dialect")
        if type(index) is not int or not 0 <= index < count:
            raise BadAnswer(f"gave result {position} the index {_shown(index, key)} for {count} texts; check dialect")
        if index in scores:
            raise BadAnswer(f"gave the index {index} twice for {count} texts; check the server")
        scores[index] = _score(result, index, key)
    if len(scores) != count:
        missing = next(index for index in range(count) if index not in scores)
        raise BadAnswer(f"gave {len(scores)} scores for {count} texts (none for index {missing}); check dialect")
    return np.array([scores[index] for index in range(count)], np.float64)


def benefits(scores: Scores, scale: Scale) -> Scores:
    """Scores as benefits in [0, 1], squashed once at most (METHOD §3).

    Args:
        scores: `[n]`, finite.
        scale: What they are.

    Raises:
        BadAnswer: They cannot be on that scale.

    Example:
        >>> benefits(np.array([0.0, 2.0]), Scale.LOGIT).round(3).tolist()
        [0.5, 0.881]
        >>> benefits(np.array([-0.25, 0.5]), Scale.COSINE).tolist()
        [0.0, 0.5]
    """
    if scale is Scale.LOGIT:
        return sigmoid(scores)
    least = 0.0 if scale is Scale.UNIT else -1.0
    outside = scores[(scores < least - _TOLERANCE) | (scores > 1 + _TOLERANCE)]
    if len(outside):
        farthest = float(outside[np.argmax(np.abs(outside))])
        fitting = "scale='logit'" if abs(farthest) > 1 + _TOLERANCE else "scale='cosine' or 'logit'"
        raise BadAnswer(f"gave scores out of range: declared {scale}, got {farthest:.6g}: declare {fitting}")
    return np.clip(scores, 0.0, 1.0)


def _results(content: bytes, kind: str, key: str | None) -> list[Any]:
    """The list of results, which stands alone or in an object."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        start = start_of(content, key)
        if "html" in kind or start.startswith("<"):
            raise BadAnswer("answered an HTML page; check base_url and dialect") from None
        raise BadAnswer(f"answered what is no JSON, or half of it: {start!r}") from None
    if isinstance(answer, dict) and answer.get("error") and "results" not in answer:
        raise BadAnswer(f"failed: {error_detail(json.dumps(answer), key)}")
    results = answer.get("results") if isinstance(answer, dict) else answer
    if not isinstance(results, list):
        raise BadAnswer("answered JSON that is neither a list nor has a list of results; check base_url and dialect")
    return results


def _score(result: dict[str, Any], index: int, key: str | None) -> float:
    value = result.get("relevance_score", result.get("score"))
    try:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an integer of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise BadAnswer(f"gave the score {_shown(value, key)} for index {index}, not a finite number; check the server")
    return number


def _shown(value: object, key: str | None) -> str:
    text = without_key(shown(value, sys.maxsize), key)
    return text if len(text) <= 40 else text[:37] + "..."
