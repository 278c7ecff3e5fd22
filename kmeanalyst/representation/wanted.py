"""What is asked of a representation: which points and weights, and how much work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.file.points import cells_of_a_row

Points: TypeAlias = tuple[Array, Array]  # encoded (M, d), and their weights (M,)


@dataclass(frozen=True)
class Effort:
    """The share of the usual steps, starts and draws that is made."""

    share: float

    def of(self, count: int) -> int:
        return max(1, round(self.share * count))


ENOUGH_ROWS, MOST_ROWS = 5000, 50_000  # that are drawn: enough for error bars, and as many as the table has up to these


def most_rows(domain: Domain) -> int:
    """The largest default number of drawn rows; smaller for a wide table, because readers limit the cells."""
    return min(MOST_ROWS, USUAL.cells // cells_of_a_row(domain))


def drawn_rows(n_rows: int, domain: Domain, *, fewest: int) -> int:
    """The default number of drawn rows of equal weight: as many as the table has, within limits."""
    most = most_rows(domain)
    return int(np.clip(n_rows, min(fewest, most), most))


FULL = Effort(1.0)
QUICK = Effort(0.02)  # rough points in a moment, for tests of what comes before and after them
EFFORT = FULL  # where none is given


@dataclass(frozen=True, kw_only=True, eq=False)
class Wanted:
    """The points and weights that are wanted.

    n_points   M.
    view       "probability", "bounded" (Σ|w| ≤ bound, 1 by default), "signed" (2 by default) or "uniform" (1/M each).
    bound      the largest Σ|w| of bounded and signed weights; the view's own by default.
    public     (m, d) encoded public rows: some of the points are public rows, more of them where they are informative.
    given      (M, d) encoded points, for a method that keeps its points.
    n_public   how many of the given points are public rows.
    float32    real columns hold single-precision numbers in natural units; weights are fitted to the rounded points.
    rng        for random points.
    effort     less than the usual work, for rough points.
    """

    n_points: int
    view: str = "probability"
    bound: float | None = None
    public: Array | None = None
    given: Array | None = None
    n_public: int = 0
    float32: bool = False
    rng: np.random.Generator | int = 0
    effort: Effort = field(default_factory=lambda: EFFORT)

    @property
    def generator(self) -> np.random.Generator:
        return np.random.default_rng(self.rng)
