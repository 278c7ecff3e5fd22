"""The kernel whose kernel mean is a table's margins: how many cells two rows share, one column or two at a time.

Every column is cut into cells: its levels, public ranges of numbers, single values that carry mass of their own, a
missing cell. The mean of k(x, ·) over a table then says no more and no less than its one-way and two-way tables,
crossed with a target column where one is named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array, checked_pair
from kmeanalyst.kernels.continuous import _UnitDiagonal

_MOST_CELLS = 100_000  # of all columns together
_MOST_IN_PAIRS = 1000  # columns whose pairs are all measured
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Margins(_UnitDiagonal):
    """A mean of matches: in one column, in one and the target, in two columns, in two and the target.

    With n the number of columns (of d) whose cells agree, t whether the target's do, and n', d' the same without the
    target, k = s₁ n/d + s₂ t n'/d' + s₃ C(n', 2)/C(d', 2) + s₄ t C(n', 2)/C(d', 2); without a target n' = n, d' = d,
    s₂ = s₄ = 0.

    edges    for each column the inner edges of its ranges, increasing, in encoded units: cells [e_i, e_{i+1}).
    atoms    for each column single values that are cells of their own.
    missing  for each column whether a missing cell (NaN) is one.
    shares   (s₁, s₂, s₃, s₄), at least 0, of sum 1.
    target   the column the others are crossed with; −1 for none.
    """

    edges: tuple[tuple[float, ...], ...]
    atoms: tuple[tuple[float, ...], ...]
    missing: tuple[bool, ...]
    shares: tuple[float, float, float, float]
    target: int = -1
    name: ClassVar[str] = "margins"

    def __post_init__(self) -> None:
        d = len(self.edges)
        if not (d and len(self.atoms) == len(self.missing) == d):
            raise ValueError("margins need edges, atoms and missing for each of one or more columns.")
        for values in (*self.edges, *self.atoms):
            _check_increasing(values)
        if not all(isinstance(missing, bool) for missing in self.missing):
            raise ValueError("missing is true or false for each column.")
        if isinstance(self.target, bool) or not isinstance(self.target, int) or not -1 <= self.target < d:
            raise ValueError(f"target must be a column's number, 0 to {d - 1}, or -1 for none, got {self.target!r}.")
        if sum(self.sizes) > _MOST_CELLS:
            raise ValueError(f"margins have at most {_MOST_CELLS} cells in all columns, got {sum(self.sizes)}.")
        self._check_shares()
        if d > _MOST_IN_PAIRS and (self.shares[2] or self.shares[3]):
            raise ValueError(f"margins of two columns are for at most {_MOST_IN_PAIRS} columns, got {d}.")

    def _check_shares(self) -> None:
        if len(self.shares) != 4 or not all(_is_number(share) and share >= 0 for share in self.shares):
            raise ValueError(f"shares must be four numbers of at least 0, got {self.shares!r}.")
        if abs(sum(self.shares) - 1) > _ROUNDING:
            raise ValueError(f"shares must add up to 1, got {sum(self.shares)!r}: they are parts of k(x, x).")
        _, with_target, pairs, pairs_with_target = self.shares
        if self.target < 0 and (with_target or pairs_with_target):
            raise ValueError("shares of margins with the target need one. Name it, or give them 0.")
        if len(self.others) < 1 and with_target:
            raise ValueError("a target alone is crossed with nothing. Give the second share 0.")
        if len(self.others) < 2 and (pairs or pairs_with_target):
            raise ValueError("margins of two columns need two beside the target. Give their shares 0.")

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many cells each column is cut into."""
        return tuple(
            len(edges) + 1 + len(atoms) + missing
            for edges, atoms, missing in zip(self.edges, self.atoms, self.missing, strict=True)
        )

    @property
    def others(self) -> tuple[int, ...]:
        """The columns beside the target."""
        return tuple(j for j in range(len(self.edges)) if j != self.target)

    def cells(self, X: Array) -> Array:
        """The cell (n, d) of each value: ranges first, then atoms, then missing; a NaN where none is declared is in the first."""
        if X.shape[1] != len(self.edges):
            raise ValueError(
                f"these margins are of {len(self.edges)} columns, the rows have {X.shape[1]}. "
                "Encode the rows with the domain the kernel was made for."
            )
        found = np.empty(X.shape, dtype=np.intp)
        for j, (edges, atoms, missing) in enumerate(zip(self.edges, self.atoms, self.missing, strict=True)):
            absent = np.isnan(X[:, j])
            found[:, j] = np.searchsorted(np.array(edges), np.where(absent, -np.inf, X[:, j]), side="right")
            for i, atom in enumerate(atoms):
                found[X[:, j] == atom, j] = len(edges) + 1 + i
            if missing:
                found[absent, j] = len(edges) + 1 + len(atoms)
        return found

    def gram(self, X: Array, Y: Array) -> Array:
        X, Y = checked_pair(X, Y)
        x, y = self.cells(X), self.cells(Y)
        matches = np.zeros((len(X), len(Y)))
        for j in self.others:
            matches += x[:, j, None] == y[None, :, j]
        crossed = (x[:, self.target, None] == y[None, :, self.target]).astype(float) if self.target >= 0 else 0.0
        d, few = len(self.edges), max(len(self.others), 1)
        alone, with_target, pairs, pairs_with_target = self.shares
        both = matches * (matches - 1) / max(few * (few - 1), 1)
        return (
            alone * (matches + crossed) / d
            + crossed * (with_target / few * matches + pairs_with_target * both)
            + pairs * both
        )


def _check_increasing(values: tuple[float, ...]) -> None:
    if not all(_is_number(value) for value in values) or any(a >= b for a, b in pairwise(values)):
        raise ValueError(f"edges and atoms must be finite and increase, got {str(values)[:80]}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
