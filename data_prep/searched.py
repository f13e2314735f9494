"""What the searches of one question chose, before anything is answered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corag_search.chunk import Chunk
from corag_search.query_features import QueryFeatures
from data_prep.dataset import Question

Chosen = tuple[tuple[int, ...], float]  # order (indices into the candidates) and benefit


@dataclass(frozen=True)
class Searched:
    """What the searches of one question chose.

    Attributes:
        question: The question.
        embedding: Of it, `[d]`.
        candidates: The retrieved chunks, best first.
        features: Of question and candidates.
        outcomes: What each reranker chose at each grid point, in grid order.
        rivals: What each reranker chose by each method of `labelling.RIVALS`.
        evaluations: Combinations that each reranker scored.
        seconds: That it took.
    """

    question: Question
    embedding: npt.NDArray[np.float32]
    candidates: tuple[Chunk, ...]
    features: QueryFeatures
    outcomes: dict[str, list[Chosen]]
    rivals: dict[str, dict[str, Chosen]]
    evaluations: dict[str, int]
    seconds: float

    @property
    def orders(self) -> list[tuple[int, ...]]:
        """The distinct orders that were chosen anywhere, sorted."""
        chosen = {order for points in self.outcomes.values() for order, _ in points}
        return sorted(chosen | {order for methods in self.rivals.values() for order, _ in methods.values()})
