"""RAPTOR's clustering: Gaussian mixtures on reduced embeddings, first over all nodes, then inside each cluster."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag_search.packaged import require

PATIENCE = 5  # numbers of components tried after the best BIC so far
ASSIGN_ROWS = 8192  # rows reduced and assigned at a time
POINTS_PER_DIMENSION = 5

Rows = NDArray[np.intp]


def soft_clusters(
    vectors: NDArray[np.float32], dimension: int, max_components: int, threshold: float, sample: int, seed: int
) -> list[Rows]:
    """Overlapping clusters of vectors, global then local (arXiv:2401.18059, section 3).

    **[ours]**, beside what `mixture_clusters` says: a vector that no component claims above the threshold joins its
    likeliest one instead of being lost, and clusters with the same members are one.

    Args:
        vectors: `[n, d]`.
        dimension: Of the reduced space, at most.
        max_components: Of a mixture, at most.
        threshold: Least probability of membership.
        sample: Vectors that a mixture is fitted on, at most.
        seed: Of sampling and initialisation.

    Returns:
        Rows of each cluster, ascending; every row is in at least one.
    """
    clusters: dict[tuple[int, ...], Rows] = {}
    for members in mixture_clusters(vectors, dimension, max_components, threshold, sample, seed):
        if len(members) <= dimension + 1:  # too few to be told apart, as in the authors' program
            local = [np.arange(len(members))]
        else:
            local = mixture_clusters(vectors[members], dimension, max_components, threshold, sample, seed)
        for rows in local:
            clusters.setdefault(tuple(members[rows].tolist()), members[rows])
    return list(clusters.values())


def mixture_clusters(
    vectors: NDArray[np.float32], dimension: int, max_components: int, threshold: float, sample: int, seed: int
) -> list[Rows]:
    """Clusters of one Gaussian mixture whose number of components has the least BIC; arguments as `soft_clusters`.

    **[ours]** The paper reduces by UMAP, here by PCA (which needs no further package, is deterministic and can be
    applied to rows outside the sample). Coordinates are scaled to unit variance of the first, and there are at least
    five points a dimension and two a component: full covariances of fewer are singular, and BIC would then reward
    clusters of single points. Numbers of components are tried upwards until five in a row are no better.
    """
    n = len(vectors)
    fitted = min(n, sample)
    most = min(max_components, fitted // 2)
    if most < 2:
        return [np.arange(n)]
    rows = np.arange(n)
    if fitted < n:
        rows = np.sort(np.random.default_rng(seed).choice(n, fitted, replace=False))
    if float(np.ptp(vectors[rows], axis=0).max()) <= 1e-6:  # all the same
        return [np.arange(n)]
    width = max(1, min(dimension, fitted // POINTS_PER_DIMENSION, vectors.shape[1]))
    reduction = require("sklearn.decomposition", "baselines", "raptor").PCA(width, svd_solver="covariance_eigh")
    points = reduction.fit_transform(vectors[rows].astype(np.float64))
    scale = float(points[:, 0].std())
    mixture = _least_bic(points / scale, most, seed)
    members: list[list[Rows]] = [[] for _ in range(mixture.n_components)]
    for start in range(0, n, ASSIGN_ROWS):
        part = reduction.transform(vectors[start : start + ASSIGN_ROWS].astype(np.float64)) / scale
        probability = mixture.predict_proba(part)
        belongs = probability > threshold
        belongs[np.arange(len(part)), probability.argmax(axis=1)] = True
        for component, own in enumerate(members):
            own.append(np.flatnonzero(belongs[:, component]) + start)
    joined = [np.concatenate(own) for own in members]
    return [own for own in joined if len(own)]


def _least_bic(points: NDArray[np.float64], most: int, seed: int) -> Any:
    mixtures = require("sklearn.mixture", "baselines", "raptor")
    best, least, behind = None, np.inf, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mixture that did not converge, or has fewer distinct points, has a bad BIC
        for count in range(1, most + 1):
            try:
                # The ridge is relative to the scaled coordinates: it keeps duplicates from a likelihood without bound.
                mixture = mixtures.GaussianMixture(count, random_state=seed, reg_covar=1e-3).fit(points)
            except ValueError:  # covariances that are no covariances
                behind += 1
            else:
                bic = mixture.bic(points)
                best, least, behind = (mixture, bic, 0) if bic < least else (best, least, behind + 1)
            if behind >= PATIENCE and best is not None:
                break
    assert best is not None, "one component always fits: the ridge makes its covariance positive"
    return best
