"""How far answers are from what the tables of single columns say by themselves.

Rows are fitted to noisy tables, and more of them are where the noise was positive. Answers weigh cells by their rows, so that a
rare level has too many (share .008, 6,000 rows, ε = 1: held .75). Sums of all tables over a column's cells have no such part: what
they say beyond the answers is an error of these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.measurement import Measurement

_LEAST = 1e-18  # variance of a share; exact counts have none


@dataclass(frozen=True, eq=False)
class ColumnsApart:
    """cells (T, m): by how much each row counts in each cell of all columns; shares (T,) of the cells; starts (d,) of the columns;
    apart (T,): the cells' measured shares less those of the answers.
    """

    cells: csr_array
    shares: Array
    starts: Array
    apart: Array

    @classmethod
    def of(cls, measurement: Measurement, rows: Array, weights: Array, answers: Array) -> ColumnsApart:
        assert isinstance(measurement.feature_map, MarginFeatures)
        kernel, d = measurement.feature_map.kernel, rows.shape[1]
        starts = np.cumsum([0, *kernel.sizes])
        sums, precisions = np.zeros((2, starts[-1]))
        for table in measurement.tables():
            for axis, j in enumerate(table.columns):
                others, own = tuple(a for a in range(len(table.columns)) if a != axis), slice(*starts[j : j + 2])
                precision = 1 / np.maximum(table.variances.sum(axis=others), _LEAST)
                sums[own] += precision * table.shares.sum(axis=others)
                precisions[own] += precision
        seen = precisions > 0
        variances = np.divide(1.0, precisions, out=np.ones_like(sums), where=seen)
        measured = sums * variances
        for own in map(slice, starts[:-1], starts[1:]):
            measured[own] += (1 - measured[own].sum()) * variances[own] / variances[own].sum()
        places = (kernel.cells(rows) + starts[:-1]).ravel()
        one = csr_array((np.ones(rows.size), places, np.arange(0, rows.size + 1, d)), shape=(len(rows), int(starts[-1])))
        shares = np.asarray(weights @ one)
        apart = np.where(seen & (shares > 0), measured - answers @ one, 0.0)
        return cls(csr_array((one * weights[:, None]).T), shares, starts[:-1], apart)

    def of_functions(self, centred: Array) -> Array:
        """(k,) of functions (m, k) at the rows, of mean 0: of the part that the column which explains most of each explains."""
        sums = self.cells @ centred
        means = sums / np.where(self.shares > 0, self.shares, 1.0)[:, None]
        explained = np.add.reduceat(sums * means, self.starts)
        apart = np.add.reduceat(self.apart[:, None] * means, self.starts)
        return np.asarray(apart[explained.argmax(axis=0), np.arange(apart.shape[1])])
