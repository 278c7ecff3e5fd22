"""The subspace spanned by chosen points: φ(x) = L⁻¹ k(Z, x), K = L Lᵀ pivoted (Balog et al. 2018, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.linalg import lapack, solve_triangular

from kmeanalyst.kernels.base import Array, Kernel, as_rows, slices
from kmeanalyst.kernels.features.base import FeatureMap

_PIECE_BITS = 20  # two pieces of 20 bits: a product of pieces, summed _ROWS times, stays below 2^53
_BLOCK_ENTRIES = 2**17  # entries of the Gram matrix at a time
_ROWS, _COLUMNS = 4096, 128  # size of the blocks into which the right factor is cut


@dataclass(frozen=True, eq=False)
class Nystroem(FeatureMap):
    """Orthonormal coordinates of k(x, ·) in the span of k(z_1, ·), ..., k(z_F, ·).

    kernel   Kernel.
    points   (F, d) encoded, linearly independent in the RKHS; `Nystroem.fit` picks them.
    """

    kernel: Kernel
    points: Array
    _factor: Array = field(init=False, repr=False)
    _values: Callable[[Array], Array] = field(init=False, repr=False)  # of the kernel, at rows and points
    name: ClassVar[str] = "nystroem"

    def __post_init__(self) -> None:
        points = as_rows(self.points)
        self._factorise(points, lower_triangle(self.kernel, points), overwrite=True)

    def _factorise(self, points: Array, K: Array, *, overwrite: bool = False) -> None:
        """Set the points and what follows from K = L Lᵀ; ValueError if K, by its lower triangle, is not positive definite."""
        factor, info = lapack.dpotrf(K, lower=1, clean=1, overwrite_a=overwrite)
        if info != 0 or len(points) == 0:
            raise ValueError(
                "the points are not linearly independent in the kernel's space, so they are no basis. "
                "Use Nystroem.fit(kernel, points), which keeps the ones that are."
            )
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "_factor", factor)
        object.__setattr__(self, "_values", self.kernel.against(points))

    @cached_property
    def _product(self) -> ExactProduct:
        return ExactProduct(self.inverse_factor().T, bound=self.kernel.bound**2)

    def inverse_factor(self) -> Array:
        """L⁻¹ (F, F), computed anew: it is as large as the Gram matrix."""
        eye = np.eye(self.dimension, order="F")
        return solve_triangular(self._factor, eye, lower=True, overwrite_b=True)

    @classmethod
    def fit(cls, kernel: Kernel, points: Array, *, tolerance: float = 1e-10, in_given_order: bool = False) -> Nystroem:
        """Keep the points that span the rest: every k(z, ·) is then within √tolerance of the span.

        points           (M, d) encoded; public.
        tolerance        on the squared distance, relative to the largest k(z, z).
        in_given_order   False: the farthest point next (pivoted Cholesky). True: each point in turn, left out if
                         it is that close to the span of those before it, as the papers' Gram-Schmidt does (their
                         code with tolerance 1e-5).
        """
        points = as_rows(points)
        K = kernel.gram(points, points)
        tolerance *= float(np.max(np.diagonal(K), initial=0.0))
        if in_given_order:
            return cls(kernel, points[_independent_in_order(K, tolerance)])
        _, pivots, rank, _ = lapack.dpstrf(K, tol=tolerance, lower=1)
        return cls(kernel, points[pivots[:rank] - 1])

    @property
    def dimension(self) -> int:
        return len(self.points)

    @property
    def norm_bound(self) -> float:
        return self.kernel.bound  # a projection shortens: ‖φ(x)‖ ≤ √k(x, x)

    def __call__(self, X: Array) -> Array:
        return self._product(self._values(X))

    def basis_features(self, indices: Array) -> Array:
        """φ of the basis points of these indices, to rounding: L⁻¹K = Lᵀ, so that they are rows of L."""
        return self._factor[indices]

    def coefficients(self, coordinates: Array) -> Array:
        """Weights w on the points with Σ w_m k(z_m, ·) at these coordinates: L⁻ᵀβ (Algorithm 1, line 5)."""
        return solve_triangular(self._factor, coordinates, lower=True, trans="T")


def lower_triangle(kernel: Kernel, points: Array) -> Array:
    """The lower triangle of the Gram matrix (F, F), in Fortran's order, by blocks that stay in a processor's cache."""
    K = np.zeros((len(points), len(points)), order="F")
    for block in slices(len(points), _BLOCK_ENTRIES // max(1, len(points))):
        K[block, : block.stop] = kernel.gram(points[block], points[: block.stop])
    return K


def _independent_in_order(K: Array, tolerance: float) -> list[int]:
    """Indices m with squared distance of k(z_m, ·) to the span of those kept before it above tolerance."""
    kept: list[int] = []
    coordinates = np.zeros((len(K), len(K)))  # row m: z_m in the orthonormal basis so far
    squared_distance = np.diagonal(K).copy()
    for m in range(len(K)):
        if squared_distance[m] <= tolerance:
            continue
        known = coordinates[:, : len(kept)]
        new = (K[:, m] - known @ known[m]) / np.sqrt(squared_distance[m])
        coordinates[:, len(kept)] = new
        squared_distance -= new**2
        kept.append(m)
    return kept


class ExactProduct:
    """A ↦ A @ B whose rows depend on the same row of A alone, bit for bit, whatever the batch or the threads.

    Both factors are cut into two integer pieces of 20 bits, relative to scales that do not depend on A, so that every partial
    sum of a product of pieces is an integer below 2^53, and exact in any order.

    B (m, f); A (n, m) with |A| ≤ bound  →  (n, f), with an error of about 2^-40 · bound · Σ|B|.
    """

    def __init__(self, B: Array, *, bound: float) -> None:
        self.scale_a = 2.0 ** np.ceil(np.log2(bound))
        scale_b = 2.0 ** np.ceil(np.log2(np.maximum(np.abs(B).max(axis=0, initial=0.0), 2.0**-1000)))
        self._unit = self.scale_a * scale_b * 2.0 ** (-2 * _PIECE_BITS)
        self._blocks = []  # (rows, columns, high, low) of B, rows that are zero at the end left out
        for columns in slices(B.shape[1], _COLUMNS):
            height = 1 + int(np.flatnonzero(B[:, columns].any(axis=1)).max(initial=-1))  # B is triangular as a rule
            for rows in slices(height, _ROWS):
                self._blocks.append((rows, columns, *_pieces(B[rows, columns] / scale_b[columns])))

    def factor(self) -> tuple[Array, float]:
        """The matrix (m, f) that the pieces of B add up to, exact in float64, and the Frobenius norm of its low pieces."""
        height = max((rows.start + len(high) for rows, _, high, _ in self._blocks), default=0)
        whole, square, scale = np.zeros((height, len(self._unit))), 0.0, self._unit / self.scale_a
        for rows, columns, high_b, low_b in self._blocks:
            own = slice(rows.start, rows.start + len(high_b)), columns
            whole[own] = low_b * scale[columns]
            square += float(np.vdot(whole[own], whole[own]))
            whole[own] += high_b * (scale[columns] * 2.0**_PIECE_BITS)
        return whole, square**0.5

    def __call__(self, A: Array) -> Array:
        n = len(A)
        pieces_of_a = np.concatenate(_pieces(A / self.scale_a))  # high above low: one product for both
        total = np.zeros((n, len(self._unit)))
        for rows, columns, high_b, low_b in self._blocks:
            by_high = pieces_of_a[:, rows] @ high_b
            cross = pieces_of_a[:n, rows] @ low_b
            cross += by_high[n:]
            cross *= 2.0**-_PIECE_BITS
            total[:, columns] += by_high[:n]
            total[:, columns] += cross
        total *= self._unit
        return total


def _pieces(values: Array) -> tuple[Array, Array]:
    """Integers (high, low), each at most 2^20 in size, with values ≈ high·2^-20 + low·2^-40."""
    scaled = values * 2.0**_PIECE_BITS
    high = np.rint(scaled)
    low = np.rint((scaled - high) * 2.0**_PIECE_BITS)
    return high, low
