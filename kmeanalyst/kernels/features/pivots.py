"""Coordinates at chosen points with a certified bound: what the release of a function is measured in (PROOF.md §10)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.linalg import lapack, solve_triangular

from kmeanalyst.kernels.base import Array, Kernel, OnColumns, Product, Scaled, Sum, as_rows
from kmeanalyst.kernels.continuous import Periodic
from kmeanalyst.kernels.discrete import SoftenedProduct
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.margins import ChosenMargins, Margins

STRETCH = 2.0**-10  # claimed: relative margin above the kernel's own bound
CERTIFIED = STRETCH / 2  # proven of every map that is made
FITTED = STRETCH / 4  # asked where points or a jitter are chosen, so that another machine's last digits do not matter
ROUNDING = 2.0**-53
_TOLERANCES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True, eq=False)
class Pivots(Nystroem):
    """Nyström coordinates that are proven to stretch no distance of the RKHS by more than STRETCH / 2.

    For all f, g that are combinations of k(x, ·) with Σ|w| ≤ 2: ‖φ(f) − φ(g)‖ ≤ (1 + STRETCH / 2) ‖f − g‖ + 2 error.

    error   (computed) how far the computed φ(x) may be from A k(Z, x), in Euclidean distance.
    Errors  ValueError for points that are dependent, or so nearly that no such bound follows from float64.
    """

    error: float = field(init=False, repr=False)
    name: ClassVar[str] = "pivots"

    def __post_init__(self) -> None:
        super().__post_init__()
        matrix = self.matrix
        excess, error = stretch_of(self.kernel, self.points, matrix)
        object.__setattr__(self, "error", error)
        if not excess <= CERTIFIED:
            raise ValueError(
                f"the points are so nearly dependent in the kernel's space that rounding could stretch distances by "
                f"{excess:.2g}, and at most {CERTIFIED:.2g} is allowed for. Use Pivots.fit(kernel, points), which picks "
                "some of them."
            )

    @classmethod
    def fit(cls, kernel: Kernel, points: Array) -> Pivots:  # type: ignore[override]
        """As many of the points as a bound can be proven for, the farthest next; ValueError if none will do.

        points   (M, d) encoded; public. Every k(z, ·) is within √tolerance of the span of those picked, with the least
                 of the tolerances 10⁻⁷, 10⁻⁶, ..., 10⁻² times sup k(z, z) for which a bound is proven.
        """
        points = as_rows(points)
        K = kernel.gram(points, points)
        largest = float(np.max(np.diagonal(K), initial=0.0))
        for tolerance in _TOLERANCES:
            _, pivots, rank, _ = lapack.dpstrf(K, tol=tolerance * largest, lower=1)
            try:
                found = cls(kernel, points[pivots[:rank] - 1])
            except ValueError:
                continue
            if stretch_of(kernel, found.points, found.matrix)[0] <= FITTED:
                return found
        raise ValueError(
            "no independent points are among these in the kernel's space, so nothing can be measured at them. Name points "
            "that differ, or choose a smaller lengthscale."
        )

    @cached_property
    def matrix(self) -> Array:
        """A (F, F), with φ(x) = A k(Z, x)."""
        return self.inverse_factor()

    @property
    def magnification(self) -> float:
        """A bound on the spectral norm of A, and on that of its absolute values."""
        return _spectral_bound(np.abs(self.matrix))

    @property
    def norm_bound(self) -> float:
        return self.kernel.bound * (1 + STRETCH)

    @property
    def diameter(self) -> float:
        """√2·B where k ≥ 0: ‖k_x − k_y‖² = k(x, x) + k(y, y) − 2k(x, y) ≤ 2 sup k(x, x)."""
        return (2**0.5 if self.kernel.nonnegative else 2.0) * self.norm_bound

    @property
    def pairwise(self) -> bool:
        return self.kernel.nonnegative

    def unseen(self, X: Array) -> Array:
        """How far k(x, ·) is from the span, (n,): what a function of norm 1 can at most be at x and show at no pivot."""
        seen = solve_triangular(self._factor, self.kernel.gram(self.points, X), lower=True)  # finer than φ's 40 bits
        squares = self.kernel.diagonal(X) - np.square(seen).sum(axis=0)
        return np.sqrt(np.maximum(squares, 0.0))


def stretch_of(kernel: Kernel, points: Array, matrix: Array) -> tuple[float, float]:
    """By how much f ↦ A (f(z_1), ..., f(z_m)) may stretch distances of the RKHS, and the error of a computed image (PROOF.md §10).

    matrix    A (F, m), m the number of points.
    Returns   (excess, error): images of all rows x, y have distance at most (1 + excess)·√2·bound where k ≥ 0, the error of
              both included, and of norm at most (1 + excess)·bound.
    """
    K, size = kernel.gram(points, points), len(points)
    bound, unit = kernel.bound**2, kernel_error(kernel, points.shape[1])
    absolute = np.abs(matrix)
    squared_norm = _spectral_bound(absolute) ** 2
    gap = np.linalg.norm(matrix @ K @ matrix.T - np.eye(len(matrix)))
    rounding = 4 * size * ROUNDING * np.linalg.norm(absolute @ np.abs(K) @ absolute.T)
    stretched = float(gap + rounding + size * unit * squared_norm)
    pieces = 2.0**-38 * bound * size * float(np.linalg.norm(absolute.max(axis=1)))  # of ExactProduct
    error = pieces + size**0.5 * unit * squared_norm**0.5
    return (1 + stretched) ** 0.5 - 1 + 2**0.5 * error / kernel.bound, error


def _spectral_bound(absolute: Array) -> float:
    """‖A‖₂ ≤ √(‖A‖₁ ‖A‖_∞) of a matrix of absolute values."""
    return float(np.sqrt(absolute.sum(axis=0).max() * absolute.sum(axis=1).max()))


def kernel_error(kernel: Kernel, n_columns: int) -> float:
    """How far a computed k(x, y) may be from the exact one: 64 units in the last place for each column, and 192 more.

    Or 8 for each of `_roundings`, if that is more. Kernels that magnify the rounding of their argument add to this
    (PROOF.md §10).
    """
    usual = max(64 * (3 + n_columns), 8 * _roundings(kernel, n_columns))
    return ROUNDING * (usual + 64 * _magnified(kernel) * n_columns**0.5) * kernel.bound**2


def _roundings(kernel: Kernel, n_columns: int) -> float:
    """How many operations on the way to a value of the kernel round it, relative to its bound: 8, and one for each column.

    Parts of sums count in full. A softened product divides by 1 − (1 − p)^d, which is small for few columns and a small p.
    """
    if isinstance(kernel, SoftenedProduct):
        p, parts = kernel.inclusion, [_roundings(part, part.width) for part in kernel.kernels]
        kept = 1 - (1 - p) ** len(parts)
        return (p * sum(parts) + 4 * len(parts) + 4) / kept
    if isinstance(kernel, Sum | Product):
        return sum(_roundings(part, n_columns) + 1 for part in kernel.parts)
    if isinstance(kernel, OnColumns):
        return _roundings(kernel.kernel, len(kernel.on))
    if isinstance(kernel, Scaled):
        return 1 + _roundings(kernel.kernel, n_columns)
    if isinstance(kernel, ChosenMargins):
        return 32.0 + 2 * kernel.n_tables
    if isinstance(kernel, Margins):
        return 32.0  # counts are whole numbers: six products are summed, however many tables there are
    own = len(getattr(kernel, "lengthscales", ())) + 3 * getattr(kernel, "degree", 0) + 3 * getattr(kernel, "nu", 0)
    return 8 + n_columns + own


def _magnified(kernel: Kernel) -> float:
    """How much steeper than 1 the kernel's parts are, in sum: √κ of a periodic one.

    Of a part of a softened product as if it stood alone: p/(1 − (1 − p)^d) ≤ 1 of it counts.
    """
    if isinstance(kernel, Periodic):
        return kernel.period / (2 * np.pi * min(kernel.lengthscales))
    inside = kernel.kernels if isinstance(kernel, SoftenedProduct) else getattr(kernel, "parts", ())
    return sum(map(_magnified, inside))
