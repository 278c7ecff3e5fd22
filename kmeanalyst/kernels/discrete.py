"""Kernels for levels: the indicator, and the softened product that joins columns into a table kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels import base
from kmeanalyst.kernels.continuous import UnitDiagonal

_LEAST_INCLUSION = 0.001


@dataclass(frozen=True)
class Indicator(UnitDiagonal):
    """1 where the codes agree in every column, else 0. `levels` codes 0 ... levels − 1, NaN for missing.

    >>> ka.kernels.Indicator(levels=3).gram([[2]], [[2], [0]])
    array([[1., 0.]])
    """

    levels: int
    name: ClassVar[str] = "indicator"

    def __post_init__(self) -> None:
        if not base.is_whole(self.levels) or self.levels < 1:
            raise ValueError(f"levels must be a positive whole number, got {self.levels!r}: codes run from 0 below it.")

    def gram(self, X: base.Array, Y: base.Array) -> base.Array:
        X, Y = (np.where(np.isnan(rows), float(self.levels), rows) for rows in base.checked_pair(X, Y))
        K = np.ones((len(X), len(Y)))
        for j in range(X.shape[1]):
            K *= X[:, j, None] == Y[None, :, j]
        return K

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> base.Spectrum:
        """Independent uniform phases per level: E cos(θ_a − θ_b) is 1 if a = b, else 0."""
        tables = {j: rng.uniform(0, 2 * np.pi, (self.levels + 1, count)) for j in range(n_columns)}
        return base.Spectrum(np.zeros((n_columns, count)), tables)


@dataclass(frozen=True)
class SoftenedProduct(UnitDiagonal):
    """The kernel for tables: rows that are similar in most columns are similar; they need not be in all.

    k(x, y) = (Π_j (1 − p + p k_j(x_j, y_j)) − (1 − p)^d) / (1 − (1 − p)^d): the mean over non-empty subsets of columns, each
    column in it with probability p = inclusion, of the products of their kernels. A random feature looks at about p·d columns.

    kernels     one kernel per column, each with k_j(x, x) = 1 and k_j ≥ 0. A column of strings has several numbers
                (`coordinates_of` says where).
    inclusion   p, in (0, 1]; p = 1 is the plain product.

    >>> kernel = ka.kernels.SoftenedProduct((ka.kernels.Gaussian(1.0), ka.kernels.Indicator(2)), inclusion=0.5)
    >>> kernel.gram([[0.0, 1]], [[0.0, 1], [0.0, 0], [9.0, 0]])
    array([[1.        , 0.3333..., 0.        ]])
    """

    kernels: tuple[base.Kernel, ...]
    inclusion: float
    name: ClassVar[str] = "softened-product"

    def __post_init__(self) -> None:
        for kernel in self.kernels:
            base.check_kernel(kernel)
        if len(self.kernels) == 0 or not all(k.bound == 1.0 and k.nonnegative for k in self.kernels):
            raise ValueError("a softened product needs kernels with k(x, x) = 1 and k ≥ 0, one per column.")
        if isinstance(self.inclusion, bool) or not _LEAST_INCLUSION <= self.inclusion <= 1:
            raise ValueError(
                f"inclusion must be a probability of at least {_LEAST_INCLUSION}, got {self.inclusion!r}: it is the "
                "probability that a feature uses a column, and smaller values are lost in rounding. Pass e.g. 0.2."
            )

    @property
    def _empty(self) -> float:
        return float((1 - self.inclusion) ** len(self.kernels))

    def _check_width(self, X: base.Array) -> None:
        numbers = sum(kernel.width for kernel in self.kernels)
        base.check_width(X, numbers, f"this kernel has one part for each of {numbers} columns")

    def gram(self, X: base.Array, Y: base.Array) -> base.Array:
        X, Y = base.checked_pair(X, Y)
        return self.against(Y)(X)

    def against(self, Y: base.Array) -> Callable[[base.Array], base.Array]:
        Y = base.as_rows(Y)
        self._check_width(Y)
        coordinates = base.coordinates_of([kernel.width for kernel in self.kernels])
        parts = [kernel.against(Y[:, own]) for kernel, own in zip(self.kernels, coordinates, strict=True)]

        def gram(X: base.Array) -> base.Array:
            X, _ = base.checked_pair(X, Y)
            K = np.ones((len(X), len(Y)))
            for part, own in zip(parts, coordinates, strict=True):
                K *= (1 - self.inclusion) + self.inclusion * part(X[:, own])
            return (K - self._empty) / (1 - self._empty)

        return gram

    def diagonal(self, X: base.Array) -> base.Array:
        self._check_width(base.as_rows(X))
        return super().diagonal(X)

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> base.Spectrum:
        if n_columns != len(self.kernels):
            raise ValueError(f"this kernel has {len(self.kernels)} columns, not {n_columns}.")
        included = self._draw_subsets(rng, count)
        linear, tables = np.zeros((n_columns, count)), {}
        for j, kernel in enumerate(self.kernels):
            part = kernel.draw_spectrum(rng, 1, count).masked(included[j])
            linear[j] = part.linear[0]
            if part.tables:
                tables[j] = part.tables[0]
        return base.Spectrum(linear, tables)

    def _draw_subsets(self, rng: np.random.Generator, count: int) -> base.Array:
        """Non-empty subsets of the columns, (d, count): by rejection, so that the distribution is exact."""
        included = rng.random((len(self.kernels), count)) < self.inclusion
        while (empty := ~included.any(axis=0)).any():
            included[:, empty] = rng.random((len(self.kernels), int(empty.sum()))) < self.inclusion
        return included
