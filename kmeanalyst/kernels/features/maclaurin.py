"""Random Maclaurin features of dot-product kernels (Kar & Karnick 2012), with a bound that every row keeps.

A feature has a degree n, drawn with probability a_n/f(1), and is the product of n random projections ωᵀu, E ωωᵀ = I/d:

    "coordinates"   ω is a column at random: features are monomials in [−1, 1], and ‖φ(x)‖² ≤ f(1) for every row.
    "signs"         ±1/√d in every column, the paper's: ‖φ(x)‖² ≤ f(1) in expectation only, so rows beyond are shortened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array, as_rows, check_positive, slices
from kmeanalyst.kernels.dot_product import Polynomial
from kmeanalyst.kernels.features.base import FeatureMap

LAWS = ("coordinates", "signs")
MOST_DEGREE = 1000


@dataclass(frozen=True, eq=False)
class RandomMaclaurin(FeatureMap):
    """φ_i(x) = √(f(1)/F) · σ_i(x) · Π_l projection_{i,l}ᵀ u, shortened to the norm √f(1) where it is longer.

    kernel        a dot-product kernel; u the row scaled as it says.
    degrees       (F,) whole numbers: how many projections each feature is a product of.
    projections   (Σ degrees, d) the projections of the first feature, then of the second, ..., each of norm at most 1;
                  a row of zeros stands for none where all degrees are 0.
    signs         (d, F) ±1: σ_i(x) is the product of those of the columns whose cells are missing.
    """

    kernel: Polynomial
    degrees: Array
    projections: Array
    signs: Array
    _levels: list[tuple[Array, Array]] = field(init=False, repr=False)
    name: ClassVar[str] = "random-maclaurin"

    def __post_init__(self) -> None:
        _check_dot_product(self.kernel)
        d, degrees = len(self.kernel.lower), self.degrees
        whole = degrees.ndim == 1 and len(degrees) > 0 and ((degrees >= 0) & (degrees <= MOST_DEGREE)).all()
        if not (whole and (degrees == np.rint(degrees)).all()):
            raise ValueError(f"degrees must be (F,) whole numbers from 0 to {MOST_DEGREE}, F ≥ 1. Draw them again.")
        if self.projections.shape != (max(1, int(degrees.sum())), d) or self.signs.shape != (d, len(degrees)):
            raise ValueError(
                f"these features need {int(degrees.sum())} projections of {d} columns and signs ({d}, {len(degrees)}), got "
                f"{self.projections.shape} and {self.signs.shape}. Draw them again."
            )
        short = np.isfinite(self.projections).all() and (np.square(self.projections).sum(axis=1) <= 1 + 1e-9).all()
        if not (short and (np.abs(self.signs) == 1).all()):
            raise ValueError("projections must be of norm at most 1, and signs ±1. Draw them again.")
        object.__setattr__(self, "_levels", list(_by_level(degrees.astype(np.int64), self.projections)))

    @classmethod
    def draw(
        cls, kernel: Polynomial, *, dimension: int, law: str = "coordinates",
        rng: np.random.Generator | int | None = None,
    ) -> RandomMaclaurin:  # fmt: skip
        check_positive("dimension", dimension, "there must be features.", "Pass a whole number, such as 2000.")
        if law not in LAWS:
            raise ValueError(f"law must be one of {', '.join(LAWS)}, got {law!r:.80}. Name one of these.")
        _check_dot_product(kernel)
        rng, d = np.random.default_rng(rng), len(kernel.lower)
        degrees = kernel.draw_degrees(rng, int(dimension))
        count = max(1, int(degrees.sum()))
        if law == "coordinates":
            projections = np.zeros((count, d))
            projections[np.arange(count), rng.integers(0, d, count)] = 1.0
        else:
            projections = rng.choice([-1.0, 1.0], (count, d)) / np.sqrt(d)
        return cls(kernel, degrees.astype(float), projections, rng.choice([-1.0, 1.0], (d, dimension)))

    @property
    def dimension(self) -> int:
        return len(self.degrees)

    @property
    def norm_bound(self) -> float:
        return self.kernel.bound  # enforced in __call__

    def __call__(self, X: Array) -> Array:
        rows = as_rows(X)
        units = self.kernel.scaled(rows)
        features = np.full((len(rows), self.dimension), self.kernel.bound / np.sqrt(self.dimension))
        for which, projections in self._levels:
            factor = np.zeros((len(rows), len(which)))
            for j in range(units.shape[1]):  # no matrix product: a row's features depend on that row alone
                factor += units[:, j : j + 1] * projections[:, j]
            features[:, which] *= factor
        for column in np.flatnonzero(np.isnan(rows).any(axis=0)):
            features *= np.where(np.isnan(rows[:, column, None]), self.signs[column], 1.0)
        return _shortened(features, self.norm_bound)


def _check_dot_product(kernel: object) -> None:
    if not isinstance(kernel, Polynomial):
        raise ValueError(
            f"random Maclaurin features are of the polynomial kernel, got {getattr(kernel, 'name', kernel)!r:.80}. "
            "Pass a Polynomial kernel."
        )


def _by_level(degrees: Array, projections: Array) -> list[tuple[Array, Array]]:
    """For l = 0, 1, ...: the features of a degree above l, and the l-th projection of each."""
    first = np.concatenate([[0], np.cumsum(degrees)[:-1]])
    levels = []
    for level in range(int(degrees.max(initial=0))):
        which = np.flatnonzero(degrees > level)
        levels.append((which, projections[first[which] + level]))
    return levels


def _shortened(features: Array, bound: float) -> Array:
    squares = np.zeros(len(features))
    for piece in slices(features.shape[1], 512):  # the order of the sums depends on the width alone
        squares += np.square(features[:, piece]).sum(axis=1)
    long = squares > bound**2
    features[long] *= (bound / np.sqrt(squares[long]))[:, None]
    return features
