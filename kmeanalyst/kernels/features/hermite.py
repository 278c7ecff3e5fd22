"""Hermite features of the Gaussian kernel in low dimension (DP-HP: Vinaroz, Charusaie, Harder, Adamczewski & Park 2022).

Mehler's formula (1866): for 0 < ρ < 1 and t = (x − centre)/h, h² = 2ℓ²ρ/(1 − ρ²),

    exp(−(x − y)²/2ℓ²) = Σ_c g_c(x) g_c(y),   g_c(x) = (1 − ρ²)^¼ ρ^(c/2) h_c(t) exp(−ρt²/(1 + ρ)),

h_c the Hermite polynomial over √(2^c c!). Products over the columns give the kernel of several. A feature is a product of
one g_c for each column, a multi-index c; with the same index never twice, ‖φ(x)‖² is a part of a series of squares whose
sum is k(x, x) = 1. That proves the bound 1 for every row, whatever ρ and however the series is cut, and nothing is random:
the error is what is cut off. ρ and the indices are chosen for the public bounds of the columns.

A missing cell has a function of its own, of index −1: 1 where the cell is missing, where the others are 0.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array, check_positive
from kmeanalyst.kernels.continuous import Gaussian
from kmeanalyst.kernels.features.base import FeatureMap, rows_of

MOST_DEGREE = 1000
_RHOS = np.concatenate([np.arange(0.02, 0.9, 0.02), [0.9, 0.92, 0.94, 0.96, 0.97, 0.98, 0.99]])
_GRID = 201
_NEGLIGIBLE = np.log(1e-20)  # of g², sup over the domain: no feature so small is worth a coordinate


@dataclass(frozen=True, eq=False)
class Hermite(FeatureMap):
    """φ_i(x) = Π_j g_{degrees[j, i]}(x_j), distinct multi-indices.

    kernel    Gaussian.
    axes      (2, d): each column's centre, and its ρ.
    degrees   (d, F) whole numbers from −1 (a missing cell); no two columns of it are the same.
    """

    kernel: Gaussian
    axes: Array
    degrees: Array
    name: ClassVar[str] = "hermite"

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Gaussian):
            raise ValueError(
                f"Hermite features are of the gaussian kernel, got {getattr(self.kernel, 'name', self.kernel)!r:.80}. "
                "Pass that kernel, or choose another family of features."
            )
        if (
            self.axes.ndim != 2
            or self.axes.shape != (2, len(self.degrees))
            or self.degrees.ndim != 2
            or not self.degrees.size
        ):
            raise ValueError(
                f"Hermite features need axes (2, d) and degrees (d, F), F ≥ 1, got {self.axes.shape} and "
                f"{self.degrees.shape}. Choose them again with Hermite.on."
            )
        if not (np.isfinite(self.axes[0]).all() and ((self.axes[1] >= 0.001) & (self.axes[1] <= 0.999)).all()):
            raise ValueError(
                "centres must be finite and ρ between 0.001 and 0.999: Mehler's formula holds for 0 < ρ < 1."
            )
        inside = (self.degrees >= -1) & (self.degrees <= MOST_DEGREE) & (self.degrees == np.rint(self.degrees))
        if not inside.all():
            raise ValueError(
                f"degrees must be whole numbers from −1 to {MOST_DEGREE}. Choose them again with Hermite.on."
            )
        if len(np.unique(self.degrees, axis=1).T) != self.dimension:
            raise ValueError(
                "a multi-index occurs twice, and the norm's bound counts each term of the series once. Name each once."
            )

    @classmethod
    def on(cls, kernel: Gaussian, *, bounds: Array, dimension: int, missing_columns: tuple[int, ...] = ()) -> Hermite:
        """The features that matter most on a domain.

        bounds            (d, 2) public bounds of the columns, encoded.
        dimension         F at most: the multi-indices of the largest Π_j sup g_c² on the bounds, none below 10⁻²⁰.
        missing_columns   where a cell may be missing.
        """
        check_positive("dimension", dimension, "there must be features.", "Pass a whole number, such as 500.")
        if not isinstance(kernel, Gaussian):
            raise ValueError(
                f"Hermite features are of the gaussian kernel, got {getattr(kernel, 'name', kernel)!r:.80}. "
                "Pass that kernel, or choose another family of features."
            )
        bounds = np.asarray(bounds, dtype=float)
        half = (bounds[:, 1] - bounds[:, 0]) / 2
        most = min(MOST_DEGREE, dimension)
        share = max(2, round(dimension ** (1 / len(bounds))))
        rhos = [_best_rho(h / kernel.lengthscale, share) for h in half]
        sizes = [_sizes(rho, h / kernel.lengthscale, most) for rho, h in zip(rhos, half, strict=True)]
        lists = [_by_size(s, j in missing_columns) for j, s in enumerate(sizes)]
        degrees = np.array(list(_largest_products(lists, dimension)), dtype=float).T
        return cls(kernel, np.array([bounds[:, 0] + half, rhos]), degrees)

    @property
    def dimension(self) -> int:
        return self.degrees.shape[1]

    @property
    def held_for_a_row(self) -> int:
        return self.dimension + int(self.degrees.max()) + 2  # the functions of a column, up to the highest degree

    @property
    def norm_bound(self) -> float:
        return self.kernel.bound  # 1: a part of Mehler's series of squares

    def arrays(self) -> dict[str, Array]:
        return {"axes": self.axes, "degrees": self.degrees}

    def __call__(self, X: Array) -> Array:
        rows = rows_of(X, len(self.degrees))
        features = np.ones((len(rows), self.dimension))
        for j, degrees in enumerate(self.degrees.astype(np.int64)):
            away = (rows[:, j] - self.axes[0, j]) / self.kernel.lengthscale
            table = functions(np.where(np.isnan(away), 0.0, away), float(self.axes[1, j]), int(degrees.max()))
            table[np.isnan(away)] = 0.0
            with_missing = np.hstack([table, np.isnan(away)[:, None]])  # index −1 is the last
            features *= with_missing[:, degrees]
        return features


def functions(away: Array, rho: float, most: int) -> Array:
    """g_0 ... g_most (n, most + 1) at distances (n,) from the centre, in lengthscales: by their recurrence.

    g_{c+1} = √(2ρ/(c + 1)) t g_c − ρ √(c/(c + 1)) g_{c−1}, t = away · √((1 − ρ²)/2ρ); no factor grows with c.
    """
    t = away * np.sqrt((1 - rho**2) / (2 * rho))
    out = np.zeros((len(t), max(0, most) + 1))
    out[:, 0] = (1 - rho**2) ** 0.25 * np.exp(-rho / (1 + rho) * t * t)
    for c in range(most):
        before = out[:, c - 1] if c else np.zeros(len(t))
        out[:, c + 1] = np.sqrt(2 * rho / (c + 1)) * t * out[:, c] - rho * np.sqrt(c / (c + 1)) * before
    return out


def _sizes(rho: float, half: float, most: int) -> Array:
    """sup g_c² over the column's bounds, (most + 1,), on a grid of them; never rising with c."""
    largest = np.square(functions(np.linspace(0, half, _GRID), rho, most)).max(axis=0)
    return np.maximum.accumulate(largest[::-1])[::-1]


def _best_rho(half: float, terms: int) -> float:
    """The ρ with which `terms` functions leave least of k(x, x) = 1 out, anywhere between the bounds."""

    def left_out(rho: float) -> float:
        return float(1 - np.square(functions(np.linspace(0, half, _GRID), rho, terms - 1)).sum(axis=1).min())

    return float(min(_RHOS, key=left_out))


def _by_size(sizes: Array, missing: bool) -> list[tuple[float, int]]:
    """(log size, degree) of a column's functions, the largest first; a missing cell's has size 1."""
    with np.errstate(divide="ignore"):
        listed = [(float(size), c) for c, size in enumerate(np.log(sizes)) if c == 0 or size > _NEGLIGIBLE]
    return sorted([*listed, *([(0.0, -1)] if missing else [])], reverse=True)


def _largest_products(lists: list[list[tuple[float, int]]], count: int) -> Iterator[list[int]]:
    """The multi-indices of the `count` largest products, one entry from each list; fewer if the others are negligible."""
    first = (0,) * len(lists)
    heap, seen = [(-sum(entries[0][0] for entries in lists), first)], {first}
    while heap and count > 0:
        size, indices = heapq.heappop(heap)
        if -size < _NEGLIGIBLE and len(seen) > 1:
            return
        yield [entries[i][1] for entries, i in zip(lists, indices, strict=True)]
        count -= 1
        for j, entries in enumerate(lists):
            after = (*indices[:j], indices[j] + 1, *indices[j + 1 :])
            if after[j] < len(entries) and after not in seen:
                seen.add(after)
                heapq.heappush(heap, (-sum(e[p][0] for e, p in zip(lists, after, strict=True)), after))
