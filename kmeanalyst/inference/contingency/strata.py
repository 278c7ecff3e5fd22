"""Measured tables as they are tested: noisy versions averaged, sparse cells merged, one stratum for each level of a third
column.

Every measured table that holds the columns, summed over its others, is one version; they are independent given the rows. Which
cells are merged, and which strata are left out, follows from margins alone. Tests look at what is orthogonal to the margins, so
that the choice says nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kmeanalyst.inference.questions.groups import MISSING
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.cell_names import cell_names
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.memo import kept
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.tables.estimates import averaged_by_precision
from kmeanalyst.representation.weights.convex_fit import project_to_simplex

_LEAST_COUNT = 5.0  # expected rows of a cell
_LEAST_OVER_NOISE = 2.0  # of a margin's share
_STRATUM_OVER_NOISE = 3.0  # of a stratum's share, over the noise on the sum of its table
_MOST_CELLS = 900  # of a table that is tested


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells into which a measurement divides a column, or what is left of them after merging.

    labels     for readers.
    positions  (cells,) increasing along the column where it has an order; NaN for a level without one, and for a missing cell.
    merged     (cells,) how many measured cells each is made of.
    """

    labels: tuple[str, ...]
    positions: Array
    merged: Array

    def merged_by(self, by: Array) -> Cells:
        groups = [np.flatnonzero(one) for one in by.T]
        labels = tuple(", ".join(self.labels[k] for k in own) for own in groups)
        return Cells(labels, np.array([self.positions[own].mean() for own in groups]), by.sum(axis=0))


@dataclass(frozen=True, eq=False)
class Strata:
    """Noisy tables of two columns, one for each stratum.

    tables   (Z, r, c) shares of all rows, with noise; they need not be positive.
    shares   (Z,) of the strata; 1 where there is one.
    first    (Z, r) shares of the first column's cells within each stratum, and second (Z, c).
    labels   of the strata; () where there is one.
    noise    standard deviation of the noise on a measured cell; that of a merged one grows with the root of their number.
    left_out the strata that were too small.
    """

    tables: Array
    shares: Array
    first: Array
    second: Array
    sides: tuple[Cells, Cells]
    noise: float
    n_rows: int
    labels: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def strata_of(release: ReleaseData, a: str, b: str, given: str | None = None) -> Strata | None:
    """The measured table of two columns, or of these within each cell of a third; None where it was not measured. Found once."""
    return kept(release, ("strata", a, b, given), lambda: _strata(release, a, b, given))


def _strata(release: ReleaseData, a: str, b: str, given: str | None) -> Strata | None:
    names = release.domain.names
    i, j = (names.index(name) for name in (a, b))
    measurement = release.measurement
    table = measured_table(measurement, (i, j) if given is None else (names.index(given), i, j))
    if table is None:
        return None
    assert measurement is not None
    counted, noise = table
    (p, noise_p), (q, noise_q) = margin(release, i), margin(release, j)
    if given is None:
        tables, shares, labels = counted[None], np.ones(1), tuple[str, ...]()
        first, second, large = p[None], q[None], np.ones(1, dtype=bool)
    else:
        k = names.index(given)
        tables, shares, labels = counted, margin(release, k)[0], cells_of(release, given).labels
        first, second = (margin(release, k, column)[0] for column in (i, j))
        large = shares > _STRATUM_OVER_NOISE * noise * np.sqrt(tables[0].size)
    sides = [cells_of(release, name) for name in (a, b)]
    least = _LEAST_COUNT * max(int(large.sum()), 1) / measurement.n_rows
    by_first, by_second = merged_cells((p, q), (noise_p, noise_q), sides, least)
    first, second = (_conditional(x[large] @ by) for x, by in ((first, by_first), (second, by_second)))
    return Strata(
        tables=np.einsum("ir,zij,jc->zrc", by_first, tables[large], by_second), shares=shares[large], first=first,
        second=second, sides=(sides[0].merged_by(by_first), sides[1].merged_by(by_second)), noise=noise,
        n_rows=measurement.n_rows, labels=tuple(np.array(labels, dtype=object)[large]) if labels else (),
        left_out=tuple(np.array(labels, dtype=object)[~large]) if labels else (),
    )  # fmt: skip


def _conditional(shares: Array) -> Array:
    sums = shares.sum(axis=1, keepdims=True)
    return np.where(sums > 0, shares / np.where(sums > 0, sums, 1.0), 1 / shares.shape[1])


def merged_cells(
    shares: tuple[Array, Array], noises: tuple[float, float], cells: Sequence[Cells], least: float
) -> tuple[Array, Array]:
    """Which cells of each of two columns are merged: indicators (measured cells, merged cells).

    The rarest cell is merged with the rarest, of a column with an order with the rarer of its neighbours, while its share is
    within twice its noise of 0, the smallest product of shares is below `least`, or there are more than 900 cells. Two are left.
    """
    sides = [_Merging(*one) for one in zip(shares, noises, cells, strict=True)]
    while wanting := [side for side in sides if len(side.groups) > 2]:
        low = [side for side in wanting if side.in_noise]
        crowded = sides[0].least * sides[1].least < least or len(sides[0].groups) * len(sides[1].groups) > _MOST_CELLS
        if not low and not crowded:
            break
        min(low or wanting, key=lambda side: side.least).merge()
    return sides[0].indicators, sides[1].indicators


class _Merging:
    """The cells of one column while they are merged; groups stand in the column's order, those without one last."""

    def __init__(self, shares: Array, noise: float, cells: Cells) -> None:
        order = np.argsort(cells.positions, kind="stable")  # NaN last
        self.noise, self.n_cells = noise, len(shares)
        self.groups, self.sums, self.sizes = [[int(k)] for k in order], shares[order], np.ones(len(order))
        self.ordered = np.isfinite(cells.positions[order])

    @property
    def least(self) -> float:
        return float(self.sums.min())

    @property
    def in_noise(self) -> bool:
        return bool((self.sums < _LEAST_OVER_NOISE * self.noise * np.sqrt(self.sizes)).any())

    def merge(self) -> None:
        rarest = int(self.sums.argmin())
        near = [k for k in (rarest - 1, rarest + 1) if 0 <= k < len(self.sums) and self.ordered[k]]
        if self.ordered[rarest] and near:
            partner = min(near, key=lambda k: self.sums[k])
        else:
            partner = int(np.where(np.arange(len(self.sums)) == rarest, np.inf, self.sums).argmin())
        first, second = sorted((rarest, partner))
        self.groups[first] += self.groups.pop(second)
        for name in ("sums", "sizes"):
            values = getattr(self, name)
            values[first] += values[second]
            setattr(self, name, np.delete(values, second))
        self.ordered[first] &= self.ordered[second]
        self.ordered = np.delete(self.ordered, second)

    @property
    def indicators(self) -> Array:
        found = np.zeros((self.n_cells, len(self.groups)))
        for k, group in enumerate(self.groups):
            found[group, k] = 1.0
        return found


def measured_table(measurement: Measurement | None, columns: Sequence[int]) -> tuple[Array, float] | None:
    """The shares of these columns' cells, and the noise on each; None where no measured table holds all of the columns."""
    if measurement is None or not isinstance(measurement.feature_map, MarginFeatures):
        return None
    versions = []
    for table in measurement.tables():
        if set(columns) <= set(table.columns):
            others = tuple(axis for axis, j in enumerate(table.columns) if j not in columns)
            own = [j for j in table.columns if j in columns]
            summed = table.shares.sum(axis=others).transpose([own.index(j) for j in columns])
            versions.append((summed, float(table.variances.sum(axis=others).max())))
    if not versions:
        return None
    shares, variance = averaged_by_precision(versions)
    return shares, math.sqrt(variance)


def margin(release: ReleaseData, *columns: int) -> tuple[Array, float]:
    def make() -> tuple[Array, float]:
        table = measured_table(release.measurement, columns)
        assert table is not None  # one-way tables are always measured, and so are columns that are with a third
        return project_to_simplex(table[0].ravel()).reshape(table[0].shape), table[1]

    return kept(release, ("margin", columns), make)


def cells_of(release: ReleaseData, name: str) -> Cells:
    assert release.measurement is not None
    kernel, j = release.measurement.feature_map.kernel, release.domain.position(name)
    assert isinstance(kernel, Margins)
    column, edges, atoms = release.domain[name], kernel.edges[j], kernel.atoms[j]
    bounds = [-math.inf, *edges, math.inf]
    labels = cell_names(column, edges, atoms)
    ordered = isinstance(column, Number) or getattr(column, "ordered", False)
    starts = [*bounds[:-1], *(atom + 1e-9 for atom in atoms)]  # an atom comes after the start of its range
    rank = np.argsort(np.argsort(starts, kind="stable"), kind="stable")
    positions = [float(k) if ordered else math.nan for k in rank]
    if kernel.missing[j]:
        labels, positions = [*labels, MISSING], [*positions, math.nan]
    return Cells(tuple(labels), np.array(positions), np.ones(len(labels)))
