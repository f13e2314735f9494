"""Fitting a composite: ridge regression of ROUGE-L on standardised features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corag_agent.composite.examples import Example
from corag_search.errors import InputError
from corag_search.rerankers.composite_model import CompositeModel

STRENGTH = 0.3
_LEAST_SCALE = 1e-6  # a feature that varies less is the same everywhere


def fit_composite(examples: Sequence[Example], strength: float = STRENGTH) -> CompositeModel:
    """The weights w that minimise

        Σ_q 1/n_q · Σ_i (y_qi − b − w · z_qi)² / |Q| + strength · ‖w‖²

    over the questions q, each with n_q orders i, their ROUGE-L y and standardised features z. So questions count alike,
    and the strength means the same for any number of them. (A. E. Hoerl and R. W. Kennard, *Technometrics* 12, 1970.)

    Args:
        examples: At least one.
        strength: Of the penalty, above 0.

    Raises:
        InputError: A strength that is not above 0.
    """
    if not 0 < strength < np.inf:
        raise InputError(f"strength must be a finite number above 0, got {strength!r}")
    features = np.concatenate([example.features for example in examples])
    rouge = np.concatenate([example.rouge for example in examples])
    share = np.concatenate([np.full(len(e.orders), 1 / (len(e.orders) * len(examples))) for e in examples])
    center = share @ features
    spread = np.sqrt(share @ (features - center) ** 2)
    scale = np.where(spread > _LEAST_SCALE, spread, 1.0)
    standardised = (features - center) / scale
    bias = float(share @ rouge)
    weighted = standardised * share[:, None]
    normal = standardised.T @ weighted + strength * np.eye(len(center))
    return CompositeModel(center, scale, np.linalg.solve(normal, weighted.T @ (rouge - bias)), bias)
