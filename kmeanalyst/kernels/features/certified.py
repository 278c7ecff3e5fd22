"""Subspace coordinates with a certificate: images of two rows have distance at most √2·B, where k ≥ 0 (PROOF.md §3b)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from kmeanalyst.kernels.base import Array, Kernel, OnColumns, Product, Scaled, Sum, as_rows
from kmeanalyst.kernels.continuous import Gaussian, Laplacian, Matern, MultiScale, Periodic, RationalQuadratic
from kmeanalyst.kernels.discrete import Indicator, SoftenedProduct
from kmeanalyst.kernels.dot_product import Polynomial
from kmeanalyst.kernels.features.nystroem import Nystroem, lower_triangle
from kmeanalyst.kernels.features.pivots import CERTIFIED, FITTED, ROUNDING, STRETCH, kernel_error
from kmeanalyst.kernels.margins import ChosenMargins, Margins
from kmeanalyst.kernels.strings import StringSpectrum

MOST_CERTIFIED_POINTS = 3000  # the certificate takes some products of matrices of this size, also on reading
_JITTERS = tuple(10.0**power for power in range(-9, -4))  # relative to sup k(x, x)
_LEAVES = (
    Gaussian, Laplacian, Matern, MultiScale, RationalQuadratic, Indicator, Polynomial, Margins, Periodic,
    ChosenMargins, StringSpectrum,
)  # fmt: skip


def has_close_images(kernel: Kernel) -> bool:
    """Whether k ≥ 0 is proven and the rounding of k is known: kernels of this package, and what is composed of them.

    A class that is derived from one of them may compute anything, so it does not count.
    """
    kind = type(kernel)
    if kind is SoftenedProduct:
        return all(map(has_close_images, kernel.kernels))  # type: ignore[attr-defined]
    if kind in (Sum, Product, Scaled, OnColumns):
        return all(map(has_close_images, kernel.parts))  # type: ignore[attr-defined]
    return kind in _LEAVES and kernel.nonnegative


@dataclass(frozen=True, eq=False)
class CertifiedNystroem(Nystroem):
    """Coordinates A k(Z, x), A an inverse Cholesky factor of K + jI, with images at distance at most √2·B, B = bound·(1 + 2⁻¹⁰).

    jitter    j > 0; `CertifiedNystroem.of` takes the smallest of a few that suffice.
    excess    (computed) by how much the distance of two images may exceed √2·bound, relative to it.
    Errors    ValueError for a kernel that is not known to be ≥ 0, more than 3000 points, or no certificate.
    """

    jitter: float
    name: ClassVar[str] = "certified-nystroem"
    excess: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._check_parts()
        points = as_rows(self.points)
        K = lower_triangle(self.kernel, points)
        K[np.diag_indices_from(K)] += self.jitter
        self._factorise(points, K)
        excess = excess_of(self, K)
        object.__setattr__(self, "excess", excess)
        if not excess <= CERTIFIED:
            raise ValueError(
                f"rounding could stretch distances of the subspace by {excess:.2g}, and at most {CERTIFIED:.2g} is allowed "
                "for: the jitter is too small for these points. Use CertifiedNystroem.of(basis), which finds a sufficient one."
            )

    def _check_parts(self) -> None:
        if not has_close_images(self.kernel):
            raise ValueError(
                f"the kernel {self.kernel.name} is not known to be non-negative, so two images can have distance 2·B. Use Nystroem."
            )
        if not 0 < self.jitter <= self.kernel.bound**2:
            raise ValueError(
                f"jitter must be positive and at most sup k(x, x), got {self.jitter!r}. Use CertifiedNystroem.of(basis)."
            )
        if len(as_rows(self.points)) > MOST_CERTIFIED_POINTS:
            raise ValueError(f"a certificate is for at most {MOST_CERTIFIED_POINTS} points, got {len(self.points)}. Use Nystroem.")

    @classmethod
    def of(cls, basis: Nystroem) -> CertifiedNystroem | None:
        """The same basis points with a certificate, by the least jitter that will do; None if none will."""
        if not has_close_images(basis.kernel) or basis.dimension > MOST_CERTIFIED_POINTS:
            return None
        for jitter in _JITTERS:
            try:
                found = cls(basis.kernel, basis.points, jitter * basis.kernel.bound**2)
            except ValueError:
                continue
            if found.excess <= FITTED:
                return found
        return None

    @property
    def norm_bound(self) -> float:
        return self.kernel.bound * (1 + STRETCH)

    @property
    def diameter(self) -> float:
        """√2·B: a property of pairs of rows, proven for this matrix."""
        return 2**0.5 * self.norm_bound

    @property
    def pairwise(self) -> bool:
        return True

    def arrays(self) -> dict[str, Array]:
        return super().arrays() | {"jitter": np.array([self.jitter])}

    def basis_features(self, indices: Array) -> Array:
        """φ of the basis points of these indices, to rounding: L⁻¹K = Lᵀ − jL⁻¹, as K + jI = L Lᵀ."""
        units = np.zeros((self.dimension, len(indices)), order="F")
        units[indices, np.arange(len(indices))] = self.jitter
        return self._factor[indices] - solve_triangular(self._factor, units, lower=True, overwrite_b=True).T


def excess_of(basis: CertifiedNystroem, K: Array) -> float:
    """By how much the distance of two images may exceed √2·bound, relative to it; infinity without a proof (PROOF.md §3b).

    K   (F, F) the computed Gram matrix of the basis points plus jitter on its diagonal; the lower triangle counts.
    """
    L, size, bound = basis._factor, len(K), basis.kernel.bound**2
    transposed, norm_of_low = basis._product.factor()
    unit = kernel_error(basis.kernel, basis.points.shape[1])
    spare = basis.jitter - size * unit - _factorisation_error(L, K)
    if not spare > 0:
        return np.inf
    norm_of_A = float(np.linalg.norm(transposed))
    stretch = _distance_from_identity(transposed.T, L) + _product_error(size) * norm_of_A * float(np.linalg.norm(L))
    spectral = min(norm_of_A, (1 + stretch) / spare**0.5)
    dropped = basis._product.scale_a * (spectral * 2.0**-41 + norm_of_low * 2.0**-21)
    error = size**0.5 * (spectral * unit + dropped + 4 * ROUNDING * bound * norm_of_A)
    return stretch + 2**0.5 * error / basis.kernel.bound


def _product_error(size: int) -> float:
    """c, with |computed A B − A B| ≤ c |A||B| in each entry for A with `size` columns: twice Higham 2002, §3.5."""
    return 2 * (size + 8) * ROUNDING


def _factorisation_error(L: Array, K: Array) -> float:
    """A bound on ‖L Lᵀ − K‖ for the symmetric K with this lower triangle, whose diagonal was rounded when jitter was added."""
    residual = np.tril(L @ L.T)
    residual -= np.tril(K)  # an entry of |L||L|ᵀ is at most the largest squared norm of a row of L (Cauchy–Schwarz)
    largest = max(float(np.square(L).sum(axis=1).max()), float(np.abs(np.diagonal(K)).max()))
    return 2 * float(np.linalg.norm(residual)) + len(K) * _product_error(len(K)) * largest


def _distance_from_identity(A: Array, L: Array) -> float:
    """‖A L − I‖ in the Frobenius norm as computed, doubled for the rounding of the norm."""
    product = A @ L
    product[np.diag_indices_from(product)] -= 1
    return 2 * float(np.linalg.norm(product))
