"""Rows whose cells are probabilities, and their expected features, in PyTorch, which is imported only when needed.

Cells are drawn independently, so that the expectation of a feature is a product over columns, in closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kmeanalyst.kernels import Kernel, Margins, OnColumns, Product, Scaled, Sum
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.composed import ColumnFeatures, Concatenation, ScaledFeatures, TensorProduct
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.representation.tables.within_cells import inside

_IN_A_RANGE = 32  # values that represent a range

Tensor = Any  # torch.Tensor


@dataclass(frozen=True, eq=False)
class Choices:
    """The possible contents of a cell of one column.

    values   for each choice the encoded values that represent it, equally likely; a single value except for ranges.
    ranges   for each choice (low, high) of a range of numbers, in encoded units; NaN for the others.
    free     whether the first choice is any number between the column's ends.
    """

    column: Column
    values: tuple[Array, ...]
    ranges: Array
    free: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @property
    def centre(self) -> float:
        return 0.5 * sum(self.column.ends)  # type: ignore[attr-defined]

    @property
    def radius(self) -> float:
        return 0.5 * (self.column.ends[1] - self.column.ends[0])  # type: ignore[attr-defined]

    def draw(self, chosen: Array, numbers: Array, rng: np.random.Generator) -> Array:
        """Encoded values (n,) of the choices (n,): a free number is rounded; a value of a range is random."""
        found = np.array([values[0] for values in self.values])[chosen]
        if not isinstance(self.column, Number):
            return found
        within = np.flatnonzero(~np.isnan(self.ranges[chosen, 0]))
        if self.free:
            found[chosen == 0] = self.column.rounded(self.centre + self.radius * numbers[chosen == 0])
        elif len(within):
            low, high = self.ranges[chosen[within]].T
            found[within] = inside(self.column, low, high, self.column.atom_codes, rng)
        return found


def choices_of(kernel: Kernel, domain: Domain) -> tuple[Choices, ...]:
    """For each column its levels, or the ranges between the edges of the kernel's margins; atoms; missing cells."""
    edges = edges_of(kernel, tuple(range(len(domain))))
    return tuple(_choices(column, edges.get(j, np.zeros(0))) for j, column in enumerate(domain.columns))


def edges_of(kernel: Kernel, columns: tuple[int, ...]) -> dict[int, Array]:
    """Column → all inner edges of the kernel's margins; columns without margins are left out."""
    if isinstance(kernel, Margins):
        return {columns[j]: np.array(edges) for j, edges in enumerate(kernel.edges)}
    if isinstance(kernel, OnColumns):
        return edges_of(kernel.kernel, tuple(columns[int(j)] for j in kernel.on))
    if isinstance(kernel, Scaled):
        return edges_of(kernel.kernel, columns)
    found: dict[int, Array] = {}
    for part in kernel.parts if isinstance(kernel, Sum | Product) else ():
        for j, edges in edges_of(part, columns).items():
            found[j] = np.union1d(found.get(j, edges), edges)
    return found


def _choices(column: Column, edges: Array) -> Choices:
    missing = [np.array([np.nan])] * column.missing
    if isinstance(column, Categorical):
        values = [np.array([float(code)]) for code in range(len(column.levels))] + missing
        return Choices(column, tuple(values), np.full((len(values), 2), np.nan))
    assert isinstance(column, Number)
    low, high = column.ends
    cuts = np.concatenate([[low], edges[(edges > low) & (edges < high)], [high]])
    free = len(cuts) == 2
    numbers = [np.zeros(1)] if free else [_spread(column, a, b) for a, b in pairwise(cuts)]
    special = [np.array([atom]) for atom in column.atom_codes] + missing
    ranges = np.vstack([np.column_stack([cuts[:-1], cuts[1:]]), np.full((len(special), 2), np.nan)])
    return Choices(column, (*numbers, *special), ranges, free)


def _spread(column: Number, low: float, high: float) -> Array:
    """Values of the column, spaced evenly over a range, without atoms unless there are no other values."""
    values = column.rounded(low + (np.arange(_IN_A_RANGE) + 0.5) / _IN_A_RANGE * (high - low))
    others = values[~np.isin(values, column.atom_codes)]
    return others if len(others) else values


@dataclass(frozen=True, eq=False)
class SoftRows:
    """B rows: for each column probabilities (B, choices), and numbers (B, d) in [-1, 1] for free columns."""

    probabilities: list[Tensor]
    numbers: Tensor


def expected_features(
    feature_map: FeatureMap, choices: tuple[Choices, ...], columns: tuple[int, ...] | None = None, *, dtype: Any = None
) -> ExpectedFeatures:
    """E φ of soft rows, for random Fourier features, margins, and maps composed of them, of these columns (all by default)."""
    import torch

    dtype = dtype or torch.float32
    columns = tuple(range(len(choices))) if columns is None else columns
    own = tuple(choices[j] for j in columns)
    if isinstance(feature_map, RandomFourier):
        return _Fourier(feature_map, own, columns, dtype)
    if isinstance(feature_map, MarginFeatures):
        return _Tables(feature_map, own, columns, dtype)
    if isinstance(feature_map, ScaledFeatures):
        return _Scaled(feature_map.root, expected_features(feature_map.map, choices, columns, dtype=dtype))
    if isinstance(feature_map, ColumnFeatures):
        on = tuple(columns[int(j)] for j in feature_map.kernel.on)
        return expected_features(feature_map.map, choices, on, dtype=dtype)
    if isinstance(feature_map, Concatenation | TensorProduct):
        parts = [expected_features(each, choices, columns, dtype=dtype) for each in feature_map.maps]
        return _Concatenated(parts) if isinstance(feature_map, Concatenation) else _Multiplied(parts)
    raise ValueError(
        f"{feature_map.name} features have no expectation in closed form here. Use random Fourier features, margins, or "
        "what is composed of them."
    )


class ExpectedFeatures:
    """E φ of soft rows (abstract): per row, and their weighted mean."""

    def rows(self, soft: SoftRows) -> Tensor:
        """(B, F)."""
        raise NotImplementedError

    def mean(self, soft: SoftRows, weights: Tensor) -> Tensor:
        """Σ_b w_b E φ (F,), for weights (B,)."""
        return weights @ self.rows(soft)


class _Scaled(ExpectedFeatures):
    def __init__(self, factor: float, inner: ExpectedFeatures) -> None:
        self.factor, self.inner = factor, inner

    def rows(self, soft: SoftRows) -> Tensor:
        return self.factor * self.inner.rows(soft)

    def mean(self, soft: SoftRows, weights: Tensor) -> Tensor:
        return self.factor * self.inner.mean(soft, weights)


class _Several(ExpectedFeatures):
    def __init__(self, parts: list[ExpectedFeatures]) -> None:
        self.parts = parts


class _Concatenated(_Several):
    def rows(self, soft: SoftRows) -> Tensor:
        import torch

        return torch.cat([part.rows(soft) for part in self.parts], dim=1)

    def mean(self, soft: SoftRows, weights: Tensor) -> Tensor:
        import torch

        return torch.cat([part.mean(soft, weights) for part in self.parts])


class _Multiplied(_Several):
    """E φ₁ ⊗ E φ₂ ⊗ ... = E φ, as the factors read different columns."""

    def rows(self, soft: SoftRows) -> Tensor:
        found = self.parts[0].rows(soft)
        for part in self.parts[1:]:
            found = (found[:, :, None] * part.rows(soft)[:, None, :]).flatten(1)
        return found

    def mean(self, soft: SoftRows, weights: Tensor) -> Tensor:
        before = _Multiplied(self.parts[:-1]).rows(soft)
        return ((before * weights[:, None]).T @ self.parts[-1].rows(soft)).flatten()


class _Fourier(ExpectedFeatures):
    """√(k(0)/R) (Re, Im) of Π_j E exp(i p_j(x_j)): one complex factor for each column."""

    def __init__(self, features: RandomFourier, choices: tuple[Choices, ...], columns: tuple[int, ...], dtype: Any) -> None:
        import torch

        def constant(values: Array) -> Tensor:
            return torch.tensor(values, dtype=dtype)

        self.size = features.size
        looks = [j for j in range(len(choices)) if len(features.looks_at(j))]
        plain = [j for j in looks if choices[j].free and len(choices[j]) == 1]  # numbers and nothing else
        turns = [_turn(features.linear[j], choices[j]) for j in plain]
        self.plain = [columns[j] for j in plain]
        self.linear = constant(np.array([slope for slope, _ in turns]).reshape(len(plain), features.n_frequencies))
        self.offset = constant(np.remainder(sum(offset for _, offset in turns), 2 * np.pi) + np.zeros(1))
        self.others = []  # column, cosines and sines (choices, R), and the phase of a free number
        for j in (j for j in looks if j not in plain):
            phases = [features.column_phases(j, values) for values in choices[j].values]
            waves = [constant(np.array([wave(each).mean(axis=0) for each in phases])) for wave in (np.cos, np.sin)]
            turn = tuple(map(constant, _turn(features.linear[j], choices[j]))) if choices[j].free else None
            self.others.append((columns[j], waves, turn))

    def rows(self, soft: SoftRows) -> Tensor:
        import torch

        phases = soft.numbers[:, self.plain] @ self.linear + self.offset
        real, imaginary = torch.cos(phases), torch.sin(phases)
        for j, (cosines, sines), turn in self.others:
            p = soft.probabilities[j]
            if turn is None:
                c, s = p @ cosines, p @ sines
            else:
                own = soft.numbers[:, j, None] * turn[0] + turn[1]
                c = p[:, :1] * torch.cos(own) + p[:, 1:] @ cosines[1:]
                s = p[:, :1] * torch.sin(own) + p[:, 1:] @ sines[1:]
            real, imaginary = real * c - imaginary * s, real * s + imaginary * c
        return self.size * torch.cat([real, imaginary], dim=1)


def _turn(frequencies: Array, choices: Choices) -> tuple[Array, Array]:
    """(slope, offset) of the phases (R,) in a free number in [-1, 1]."""
    return frequencies * choices.radius, np.remainder(frequencies * choices.centre, 2 * np.pi)


class _Tables(ExpectedFeatures):
    """Products of the probabilities of cells: within a row, columns are independent."""

    def __init__(self, features: MarginFeatures, choices: tuple[Choices, ...], columns: tuple[int, ...], dtype: Any) -> None:
        import torch

        self.groups = features.groups
        sizes = features.kernel.sizes
        self.columns = columns
        self.cells = []  # (choices, cells) of each column: the share of a choice's values in each cell
        for j, each in enumerate(choices):
            counts = [np.bincount(features.kernel.cells_of(j, values), minlength=sizes[j]) for values in each.values]
            shares = np.array([count / count.sum() for count in counts])
            if each.free:
                shares[0] = np.arange(sizes[j]) == 0
            self.cells.append(torch.tensor(shares, dtype=dtype))

    def _cell_probabilities(self, soft: SoftRows) -> list[Tensor]:
        return [soft.probabilities[j] @ cells for j, cells in zip(self.columns, self.cells, strict=True)]

    def rows(self, soft: SoftRows) -> Tensor:
        import torch

        p = self._cell_probabilities(soft)
        tables = (each for group in self.groups for each in zip(group.squares, group.tables, strict=True))
        return torch.cat([square**0.5 * _together(table, p) for square, table in tables], dim=1)

    def mean(self, soft: SoftRows, weights: Tensor) -> Tensor:
        """One matrix of all pairs of cells, instead of one vector for each row."""
        import torch

        p = self._cell_probabilities(soft)
        return torch.cat([
            square**0.5 * cells for group in self.groups
            for square, cells in zip(group.squares, self._tables_of(group.tables, p, weights), strict=True)
        ])  # fmt: skip

    def _tables_of(self, tables: Sequence[tuple[int, ...]], p: list[Tensor], weights: Tensor) -> list[Tensor]:
        import torch

        if len(tables[0]) != 2:
            return [weights @ _together(table, p) for table in tables]
        used = sorted({j for table in tables for j in table})
        together = torch.cat([p[j] for j in used], dim=1)
        pairs = (together * weights[:, None]).T @ together
        starts = dict(zip(used, np.cumsum([0] + [p[j].shape[1] for j in used]).tolist(), strict=False))
        ends = {j: starts[j] + p[j].shape[1] for j in used}
        return [pairs[starts[i] : ends[i], starts[j] : ends[j]].flatten() for i, j in tables]


def _together(table: tuple[int, ...], p: list[Tensor]) -> Tensor:
    """(B, cells) the probabilities of a table's cells in each row, from those of its columns."""
    cells = p[table[0]]
    for j in table[1:]:
        cells = (cells[:, :, None] * p[j][:, None, :]).flatten(1)
    return cells
