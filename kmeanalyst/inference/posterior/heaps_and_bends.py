"""What is left open within cells: values of a number may heap, and other columns may depend on it within its ranges."""

from __future__ import annotations

import numpy as np

from kmeanalyst.inference.posterior.cells_of_rows import NO_ROWS, CellsOfRows, summing
from kmeanalyst.kernels.base import Array

OF_HEAPS = 0.5  # of a cell's mass, squared, that may be at one value
# correlation within a range: with a step to what is so beside it, deviations; with anything, of a range that has all rows
_BENT, _ANY_BEND = 0.6, 0.3


def heaps(rows: CellsOfRows, weighted: Array, total: Array) -> tuple[Array, Array]:
    """Means (c, k) that values times weights (m, k), of variances total (k,), may move along as mass heaps, and variances (k,)."""
    effective = 1 / float(rows.weights @ rows.weights)
    found, along = np.zeros_like(total), []
    for parts, parents in rows.within:
        shares = np.bincount(parts, rows.weights, minlength=len(parents))
        sums = summing(parts, len(parents)) @ weighted
        cells = np.bincount(parents, shares)
        cell_sums = summing(parents, len(cells)) @ sums
        used = shares > 0
        own, parent = shares[used][:, None], parents[used]
        mass = cells[parent][:, None]
        apart = sums[used] / own - cell_sums[parent] / mass
        steps = np.sqrt(OF_HEAPS * mass * own) * apart
        chance = OF_HEAPS * float((mass[:, 0] - own[:, 0]).sum()) * total / effective
        found += np.maximum((steps**2).sum(axis=0) - chance, 0.0)
        along.append(steps)
    return np.vstack(along), found


def bends(rows: CellsOfRows, weighted: Array) -> tuple[Array, Array]:
    """The same of how columns may depend on a number within its ranges: of the column for which that is most.

    The correlation there is about that of a step to what is so in the ranges beside, and, where a range has most rows, so that
    ranges show little, any.
    """
    k = weighted.shape[1]
    found, along = np.zeros(k), [np.zeros((1, k))]
    for j, lean in rows.ranks_within.items():
        for other in (own for own in range(len(rows.cells)) if own != j):
            places, shares = rows.places((j, other))
            table = shares.reshape(rows.sizes[j], -1)[: rows.ranges[j]]
            sums = summing(places, len(shares)) @ (lean[:, None] * weighted)
            sums = sums.reshape(rows.sizes[j], -1, k)[: rows.ranges[j]]
            alone, there = table.sum(axis=1, keepdims=True), np.maximum(table, NO_ROWS)
            given = table / np.maximum(alone, NO_ROWS)
            sums = sums - given[:, :, None] * sums.sum(axis=1, keepdims=True)
            beside = np.gradient(given, axis=0) if len(given) > 1 else np.zeros_like(given)
            bent = _BENT * ((beside * alone / there * (table > NO_ROWS))[:, :, None] * sums).sum(axis=1)
            free = (_ANY_BEND * (alone / np.sqrt(there))[:, :, None] * sums).reshape(-1, k)
            found = np.maximum(found, np.abs(bent).sum(axis=0) ** 2 + (free**2).sum(axis=0))
            along += [bent, free]
    return np.vstack(along), found
