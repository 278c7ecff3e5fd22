"""Noisy tables of one, two or three columns, read off a measurement of margins.

A table of more columns, summed over the others, is one more noisy version of it. All of them are independent given the rows
and are averaged by the inverse of their variances, so that every cell has noise of one variance, independent of the others'.
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
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.tables.estimates import averaged_by_precision
from kmeanalyst.representation.weights.convex_fit import project_to_simplex


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """Noisy shares of the rows, an axis for each column, and the standard deviation of the noise on each cell."""

    shares: Array
    noise: float


def measured_table(measurement: Measurement | None, columns: Sequence[int]) -> MeasuredTable | None:
    """The table of these columns, by position; None where no measured table holds all of them."""
    if measurement is None or not isinstance(measurement.feature_map, MarginFeatures):
        return None
    versions = []
    for group in measurement.feature_map.groups:
        for table, square, (start, stop) in zip(group.tables, group.squares, group.ranges, strict=True):
            if not set(columns) <= set(table):
                continue
            shares = measurement.vector[start:stop].reshape([group.sizes[j] for j in table]) / math.sqrt(square)
            others = tuple(axis for axis, j in enumerate(table) if j not in columns)
            own = [j for j in table if j in columns]
            summed = shares.sum(axis=others).transpose([own.index(j) for j in columns])
            versions.append((summed, measurement.noise_scale**2 / square * shares.size / summed.size))
    if not versions:
        return None
    shares, variance = averaged_by_precision(versions)
    return MeasuredTable(shares, math.sqrt(variance))


def margin(release: ReleaseData, *columns: int) -> tuple[Array, float]:
    """Shares of one or two columns brought to be at least 0 and of sum 1, and the noise that their cells had; found once."""
    known = memo(release)
    if ("margin", columns) not in known:
        table = measured_table(release.measurement, columns)
        assert (
            table is not None
        )  # one-way tables are always measured, and so is one whose columns are measured with a third
        shares = project_to_simplex(table.shares.ravel()).reshape(table.shares.shape)
        known["margin", columns] = shares, table.noise
    found: tuple[Array, float] = known["margin", columns]
    return found


@dataclass(frozen=True)
class Cells:
    """The cells into which a measurement divides a column.

    labels     for readers.
    positions  increasing along the column where it has an order; NaN for a level without one, and for a missing cell.
    """

    labels: tuple[str, ...]
    positions: tuple[float, ...]


def cells_of(release: ReleaseData, name: str) -> Cells:
    """The cells of a column of a release of margins."""
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
    return Cells(tuple(labels), tuple(positions))
