"""Kernels for numbers: Gaussian, Laplacian, and a mixture of Gaussians over lengthscales.

Distances are summed column by column, in float64, with no matrix product: the value for a pair of
rows then depends on that pair alone, not on the rows beside it (METHODS §1), and nothing cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import (
    Array,
    Kernel,
    Spectrum,
    as_rows,
    check_positive,
    checked_pair,
    filled,
    zero_where_missing_differs,
)

_LENGTHSCALE_MEND = "Pass a positive number, or median_lengthscale(public_points)."


def squared_distances(X: Array, Y: Array) -> Array:
    """‖x_i − y_j‖², (n, m), summed in the order of the columns."""
    total = np.zeros((len(X), len(Y)))
    for j in range(X.shape[1]):
        difference = X[:, j, None] - Y[None, :, j]
        difference *= difference
        total += difference
    return total


def absolute_distances(X: Array, Y: Array) -> Array:
    """‖x_i − y_j‖₁, (n, m), summed in the order of the columns."""
    total = np.zeros((len(X), len(Y)))
    for j in range(X.shape[1]):
        total += np.abs(X[:, j, None] - Y[None, :, j])
    return total


def median_lengthscale(X: Array, *, most_rows: int = 1000, rng: np.random.Generator | int | None = 0) -> float:
    """Median distance between distinct rows of X (n, d): the usual first guess of a lengthscale.

    X must be public: a lengthscale learned from private rows is itself a release. Of more than
    `most_rows` rows a random subset is taken.
    """
    X = filled(as_rows(X))
    if len(X) > most_rows:
        X = X[np.random.default_rng(rng).choice(len(X), most_rows, replace=False)]
    distances = np.sqrt(squared_distances(X, X)[np.triu_indices(len(X), 1)])
    positive = distances[distances > 0]
    if len(positive) == 0:
        raise ValueError("the rows are all alike, so they suggest no lengthscale. Pass lengthscale yourself.")
    return float(np.median(positive))


class _UnitDiagonal(Kernel):
    """Kernels with k(x, x) = 1 and k ≥ 0."""

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(as_rows(X)))

    @property
    def bound(self) -> float:
        return 1.0

    @property
    def nonnegative(self) -> bool:
        return True


@dataclass(frozen=True)
class Gaussian(_UnitDiagonal):
    """exp(−‖x − y‖² / 2ℓ²), lengthscale ℓ in the units of the columns."""

    lengthscale: float
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        check_positive("lengthscale", self.lengthscale, "exp(-d²/2ℓ²) is not a kernel otherwise.", _LENGTHSCALE_MEND)

    def gram(self, X: Array, Y: Array) -> Array:
        X, Y = checked_pair(X, Y)
        K = squared_distances(filled(X), filled(Y))
        K *= -0.5 / self.lengthscale**2
        return zero_where_missing_differs(np.exp(K, out=K), X, Y)

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> Spectrum:
        return Spectrum(rng.standard_normal((n_columns, count)) / self.lengthscale, {})


@dataclass(frozen=True)
class Laplacian(_UnitDiagonal):
    """exp(−‖x − y‖₁ / ℓ): a product over the columns (Rahimi & Recht 2007, figure 1)."""

    lengthscale: float
    name: ClassVar[str] = "laplacian"

    def __post_init__(self) -> None:
        check_positive("lengthscale", self.lengthscale, "exp(-d/ℓ) is not a kernel otherwise.", _LENGTHSCALE_MEND)

    def gram(self, X: Array, Y: Array) -> Array:
        X, Y = checked_pair(X, Y)
        K = absolute_distances(filled(X), filled(Y))
        K *= -1 / self.lengthscale
        return zero_where_missing_differs(np.exp(K, out=K), X, Y)

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> Spectrum:
        return Spectrum(rng.standard_cauchy((n_columns, count)) / self.lengthscale, {})


@dataclass(frozen=True)
class MultiScale(_UnitDiagonal):
    """The mean of Gaussian kernels at several lengthscales: sees fine steps and broad trends at once."""

    lengthscales: tuple[float, ...]
    name: ClassVar[str] = "multi-scale"

    def __post_init__(self) -> None:
        if len(self.lengthscales) == 0:
            raise ValueError("lengthscales must name at least one. Pass a tuple such as (1.0, 2.0, 4.0).")
        for lengthscale in self.lengthscales:
            check_positive("lengthscale", lengthscale, "exp(-d²/2ℓ²) is not a kernel otherwise.", _LENGTHSCALE_MEND)

    def gram(self, X: Array, Y: Array) -> Array:
        X, Y = checked_pair(X, Y)
        squares = squared_distances(filled(X), filled(Y))
        K = np.zeros_like(squares)
        for lengthscale in self.lengthscales:
            K += np.exp(squares * (-0.5 / lengthscale**2))
        return zero_where_missing_differs(K / len(self.lengthscales), X, Y)

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> Spectrum:
        lengthscales = rng.choice(np.array(self.lengthscales), size=count)
        return Spectrum(rng.standard_normal((n_columns, count)) / lengthscales, {})
