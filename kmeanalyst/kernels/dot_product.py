"""The polynomial kernel on a bounded domain (Kar & Karnick 2012).

k(x, y) = (offset + s)^degree, s = Σ_j u_j v_j / d, u and v the rows with each column brought from its public bounds to [−1, 1], and
clamped there: a series in s whose coefficients are not negative is positive definite (Schoenberg 1942). A missing cell counts as
the middle of its column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import (
    Array,
    Kernel,
    as_rows,
    check_positive,
    check_width,
    checked_pair,
    is_number,
    is_whole,
    zero_where_missing_differs,
)

_MOST_DEGREE = 20
_MOST_OFFSET = 1000.0


@dataclass(frozen=True)
class Polynomial(Kernel):
    """(offset + s)^degree, s = Σ_j u_j v_j / d of columns scaled to [−1, 1]; bound (offset + 1)^(degree/2).

    degree         1 to 20. Its mean embedding holds the moments up to this degree, and nothing else.
    offset         0 to 1000; 0 leaves lower moments out.
    lower, upper   the columns' public bounds, encoded; rows outside are clamped.

    >>> ka.kernels.Polynomial(degree=2, offset=1.0, lower=(0.0,), upper=(10.0,)).gram([[10.0]], [[10.0], [5.0]])
    array([[4., 1.]])
    """

    degree: int
    offset: float
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    name: ClassVar[str] = "polynomial"

    def __post_init__(self) -> None:
        if not is_whole(self.degree) or not 1 <= self.degree <= _MOST_DEGREE:
            raise ValueError(
                f"degree must be a whole number from 1 to {_MOST_DEGREE}, got {self.degree!r:.80}: it is the highest moment "
                "that the kernel sees. Pass e.g. 2."
            )
        if not is_number(self.offset) or not 0 <= self.offset <= _MOST_OFFSET:
            raise ValueError(
                f"offset must be between 0 and {_MOST_OFFSET:g}, got {self.offset!r:.80}: (offset + s)^degree is not a kernel "
                "below 0. Pass e.g. 1.0."
            )
        ends = [*self.lower, *self.upper] if isinstance(self.lower, tuple) and isinstance(self.upper, tuple) else []
        numbers = all(is_number(v) and abs(v) < 1e100 for v in ends)
        if not (ends and numbers and len(self.lower) == len(self.upper)):
            raise ValueError(
                f"lower and upper must be as many finite numbers each, got {self.lower!r:.80} and {self.upper!r:.80}: a "
                "dot product has a bound only on a bounded domain. Pass the columns' public bounds."
            )
        for low, high in zip(self.lower, self.upper, strict=True):
            check_positive("upper − lower", high - low, "columns are scaled by it.", "Pass bounds that differ.")

    def scaled(self, X: Array) -> Array:
        """The rows' columns in [−1, 1], missing cells 0: (n, d), each cell from itself alone.

        >>> ka.kernels.Polynomial(2, 1.0, lower=(0.0,), upper=(10.0,)).scaled([[0.0], [7.5]])
        array([[-1. ],
               [ 0.5]])
        """
        X = as_rows(X)
        check_width(X, len(self.lower), f"this kernel has bounds for {len(self.lower)} columns")
        low, high = np.array(self.lower, dtype=float), np.array(self.upper, dtype=float)
        half = (high - low) / 2
        units = np.clip((X - (low + half)) / half, -1.0, 1.0)
        return np.where(np.isnan(X), 0.0, units)

    def gram(self, X: Array, Y: Array) -> Array:
        X, Y = checked_pair(X, Y)
        U, V = self.scaled(X), self.scaled(Y)
        s = np.zeros((len(U), len(V)))
        for j in range(U.shape[1]):  # in the order of the columns: a pair's value depends on that pair alone
            s += U[:, j, None] * V[None, :, j]
        return zero_where_missing_differs(self.of_product(s / U.shape[1]), X, Y)

    def diagonal(self, X: Array) -> Array:
        U = self.scaled(X)
        s = np.zeros(len(U))
        for j in range(U.shape[1]):
            s += U[:, j] * U[:, j]
        return self.of_product(s / U.shape[1])

    @property
    def bound(self) -> float:
        """√f(1): reached where every column is at one of its bounds."""
        return math.sqrt(float(self.of_product(np.array(1.0))))

    def of_product(self, s: Array) -> Array:
        """(offset + s)^degree for s in [−1, 1], elementwise.

        >>> ka.kernels.Polynomial(2, 1.0, lower=(0.0,), upper=(1.0,)).of_product(np.array([0.5, 1.0]))
        array([2.25, 4.  ])
        """
        base = np.asarray(self.offset + s)
        total = base.copy()
        for _ in range(self.degree - 1):
            total = total * base
        return total

    @property
    def nonnegative(self) -> bool:
        return self.offset >= 1 or self.degree % 2 == 0

    def draw_degrees(self, rng: np.random.Generator, count: int) -> Array:
        """`count` whole numbers n with probability C(degree, n) offset^(degree − n)/(offset + 1)^degree: a binomial distribution.

        >>> ka.kernels.Polynomial(2, 1.0, lower=(0.0,), upper=(1.0,)).draw_degrees(np.random.default_rng(0), 4).shape
        (4,)
        """
        return rng.binomial(self.degree, 1 / (1 + self.offset), count)
