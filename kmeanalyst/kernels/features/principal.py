"""Kernel principal components of reference rows, from their centred Gram matrix (Schölkopf, Smola & Müller 1998)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap

_MOST = 500
_MOST_NUMBERS = 50_000_000  # numbers in the vectors of all directions
_NEGLIGIBLE = 1e-10  # share of the largest variance below which a variance is rounding error
_FEW = 8  # times as many components as are asked for: fewer eigenvectors are found faster one by one


@dataclass(frozen=True)
class Directions:
    """Directions in a space of vectors, and the variances that a reference has along them."""

    vectors: Array  # (F, K)
    variances: Array  # (K,)


def principal_components(
    gram: Array, weights: Array | None = None, *, most: int | None = None, negligible: float = _NEGLIGIBLE
) -> Directions:
    """Leading eigenvectors (n, K), of norm 1, of the covariance of rows with this Gram matrix (n, n); it is overwritten.

    √variance times an eigenvector, over √weights, has the rows' coordinates along that component; the largest are first.
    weights     (n,) positive, of sum 1; equal by default.
    most        at most so many; all by default.
    negligible  of the largest variance: what is not above it is left out.
    """
    n = len(gram)
    q = np.full(n, 1 / n) if weights is None else weights
    root, means, most = np.sqrt(q), gram @ q, n if most is None else min(most, n)
    gram += q @ means - means - means[:, None]
    covariance = root[:, None] * gram * root
    if _FEW * most <= n:
        variances, vectors = eigh(covariance, subset_by_index=[n - most, n - 1])
    else:
        variances, vectors = np.linalg.eigh(covariance)
    order = np.argsort(variances)[::-1][:most]
    order = order[variances[order] > negligible * variances.max()]
    return Directions(vectors[:, order], variances[order])


def principal_directions(
    feature_map: FeatureMap, reference: Array, weights: Array | None = None, *, most: int = _MOST
) -> Directions:
    """Leading principal directions of reference rows in feature space, the largest first.

    weights   (n,) positive, of sum 1; equal by default.
    """
    features = feature_map.compact(reference)
    K = features @ features.T
    K = K.toarray() if isinstance(K, csr_array) else K
    root = np.sqrt(np.full(len(K), 1 / len(K)) if weights is None else weights)
    found = principal_components(K, weights, most=min(most, max(2, _MOST_NUMBERS // feature_map.dimension)))
    # with the roots of the weights the vectors have weighted mean 0: features need no centring before they are summed
    vectors = features.T @ (root[:, None] * found.vectors) / np.sqrt(found.variances)
    return Directions(vectors, found.variances)
