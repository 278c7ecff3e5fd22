"""Random Fourier features (Rahimi & Recht 2007), for numbers, levels and missing cells together.

Each frequency gives the pair cos, sin of one phase: norm exactly √k(x, x). The other common form, √2·cos(ωᵀx + b), has it
in expectation only, and a sensitivity of 2√k(x, x)/N would be too small.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array, Kernel, check_positive
from kmeanalyst.kernels.features.base import FeatureMap, rows_of

_ALL = slice(None)


@dataclass(frozen=True, eq=False)
class RandomFourier(FeatureMap):
    """φ(x) = √(k(0)/R) (cos p_1(x), ..., cos p_R(x), sin p_1(x), ..., sin p_R(x)), p_r the phases.

    kernel   the shift-invariant kernel it approximates: φ(x)ᵀφ(y) ≈ k(x, y).
    linear   (d, R) frequencies.
    tables   column → (levels + 1, R): phases of codes and, last, of a missing cell; one row where only
             missing cells have a phase.
    """

    kernel: Kernel
    linear: Array
    tables: dict[int, Array] = field(default_factory=dict)
    name: ClassVar[str] = "random-fourier"

    def __post_init__(self) -> None:
        if self.linear.ndim != 2 or self.linear.shape[1] == 0:
            raise ValueError(f"frequencies must be (d, R) with R ≥ 1, got shape {self.linear.shape}.")
        if not np.isfinite(self.linear).all():
            raise ValueError("frequencies must be finite: a phase is undefined otherwise. Draw them again.")
        for column, table in self.tables.items():
            if table.ndim != 2 or table.shape[1] != self.n_frequencies or not 0 <= column < len(self.linear):
                raise ValueError(f"the phase table of column {column} must be (levels + 1, {self.n_frequencies}).")
            if not np.isfinite(table).all():
                raise ValueError("phases must be finite: a feature is undefined otherwise. Draw them again.")

    @classmethod
    def draw(
        cls, kernel: Kernel, *, n_columns: int, dimension: int, missing_columns: Iterable[int] = (),
        rng: np.random.Generator | int | None = None,
    ) -> RandomFourier:  # fmt: skip
        """Draw `dimension` coordinates (an even number: cosine and sine count two) from the kernel.

        missing_columns   columns of numbers where a cell may be missing: missing gets a phase of its own.
        """
        check_positive("dimension", dimension, "cosine and sine come in pairs.", "Pass an even number, such as 2000.")
        if dimension % 2:
            raise ValueError(f"dimension must be even, got {dimension}: cosine and sine come in pairs. Add one.")
        rng = np.random.default_rng(rng)
        spectrum = kernel.draw_spectrum(rng, n_columns, dimension // 2)
        tables = dict(spectrum.tables)
        for j in missing_columns:
            looks = spectrum.linear[j] != 0  # a frequency that looks at the column gives missing a uniform phase
            if j not in tables:
                tables[j] = rng.uniform(0, 2 * np.pi, (1, dimension // 2)) * looks
            elif looks.any():  # levels and numbers in one column: uniform plus anything is uniform
                tables[j] = tables[j].copy()
                tables[j][-1] += rng.uniform(0, 2 * np.pi, dimension // 2) * looks
        return cls(kernel, spectrum.linear, tables)

    @property
    def n_frequencies(self) -> int:
        return self.linear.shape[1]

    @property
    def size(self) -> float:
        """√(k(0)/R), of one frequency's cosine and sine together."""
        return self.norm_bound / float(np.sqrt(self.n_frequencies))

    @property
    def dimension(self) -> int:
        return 2 * self.n_frequencies

    @property
    def norm_bound(self) -> float:
        return self.kernel.bound  # (cos² + sin²) summed: exactly √k(x, x) for every row

    def arrays(self) -> dict[str, Array]:
        return {"linear": self.linear, **{f"table_{j}": table for j, table in sorted(self.tables.items())}}

    def phases(self, X: Array) -> Array:
        """p_r(x_i), (n, R), summed in the order of the columns: no sum depends on another row."""
        X = rows_of(X, len(self.linear))
        total = np.zeros((len(X), self.n_frequencies))
        for j in range(X.shape[1]):
            total += self.column_phases(j, X[:, j])
        return total

    def column_phases(self, j: int, values: Array, frequencies: Array | slice = _ALL) -> Array:
        """The part of the phases that column j contributes, (n, R), for its encoded values (n,).

        frequencies   which of the R to give, as positions; all by default.
        """
        missing = np.isnan(values)
        part = np.where(missing, 0.0, values)[:, None] * self.linear[j, frequencies]
        if j in self.tables:
            table = self.tables[j][:, frequencies]
            if len(table) > 1:
                last = len(table) - 1  # codes are clipped: an index out of range would be an error by a row's value
                part += table[np.clip(np.where(missing, last, values), 0, last).astype(np.int64)]
            else:
                part[missing] += table[0]
        return part

    def looks_at(self, j: int) -> Array:
        """Which frequencies look at column j, as positions: the others give it phase zero."""
        looks = self.linear[j] != 0
        if j in self.tables:
            looks = looks | (self.tables[j] != 0).any(axis=0)
        return np.flatnonzero(looks)

    def __call__(self, X: Array) -> Array:
        phases = self.phases(X)
        features = np.empty((len(phases), self.dimension))
        np.cos(phases, out=features[:, : self.n_frequencies])
        np.sin(phases, out=features[:, self.n_frequencies :])
        features *= self.size
        return features
