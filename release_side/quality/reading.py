"""One reading of the private table, shared by all that is computed from it, and the rows that stay in memory.

Under `unit` every row counts with 1/rows of its unit, as in the release: what is compared is the distribution in which all units
weigh the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.statement import PopulationSize
from kmeanalyst.representation.progress import Progress, silent
from release_side.errors import PublishError
from release_side.executors.executor import Here
from release_side.private_rows.reading import counted_rows
from release_side.private_rows.table import PrivateTable
from release_side.private_rows.unit_rows import CHUNK_ROWS, UnitRows

SAMPLE_ROWS = 20_000
_SEED = 27  # public: which rows are kept depends on it and on their order alone
Add: TypeAlias = Callable[[Array, Array | None], None]  # encoded rows (n, d); their weights (n,), None for equal ones


def read_once(
    table: PrivateTable, domain: Domain, unit: str | None, adders: Sequence[Add], progress: Progress = silent
) -> tuple[PopulationSize, Array]:
    """Hand every row to all of these, and keep a sample.

    adders   called with pieces of encoded rows and their weights, which are 1 or, under a unit, sum to 1 over its rows.
    Returns  how many rows (or units) there are, and at most 20,000 of them, encoded: rows drawn without replacement, or of each of
             so many units one row, drawn evenly. All of them, in their order, if there are no more.
    """
    kept = _Kept()
    with counted_rows(table, domain, unit, Here()) as (rows, size):
        if not size.count:
            raise PublishError("the table has no rows, so that there is nothing to compare. Name a table with rows.")
        done = 0.0
        for piece, weights in _weighted(rows, kept):
            for add in adders:
                add(piece, weights)
            done += len(piece) if weights is None else float(weights.sum())
            progress("reading the table", min(1.0, done / size.count))
    return size, kept.rows


def _weighted(pieces: Iterable[Any], kept: _Kept) -> Iterator[tuple[Array, Array | None]]:
    for piece in pieces:
        if not isinstance(piece, UnitRows):
            kept.add(piece)
            yield piece, None
            continue
        sizes, chosen = piece.sizes, _OneOfEach(len(piece))
        for units, rows in piece.chunks(CHUNK_ROWS):
            chosen.add(units, rows)
            yield rows, 1 / sizes[units]
        kept.add(chosen.rows)


class _Kept:
    """The rows of the least random keys, in their order: a sample without replacement (Vitter 1985)."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(_SEED)
        self._keys, self.rows, self._largest = np.empty(0), np.empty((0, 0)), np.inf

    def add(self, rows: Array) -> None:
        keys = self._rng.random(len(rows))
        near = keys < self._largest
        self.rows = np.concatenate([self.rows, rows[near]]) if len(self._keys) else rows[near]
        self._keys = np.append(self._keys, keys[near])
        if len(self._keys) > SAMPLE_ROWS:
            least = np.sort(np.argpartition(self._keys, SAMPLE_ROWS - 1)[:SAMPLE_ROWS])
            self._keys, self.rows = self._keys[least], self.rows[least]
            self._largest = self._keys.max()


class _OneOfEach:
    """Of each unit one row, drawn evenly; its rows may come in several chunks."""

    def __init__(self, n_units: int) -> None:
        self._rng = np.random.default_rng([_SEED, n_units])
        self._keys, self.rows = np.full(n_units, np.inf), np.empty((n_units, 0))

    def add(self, units: Array, rows: Array) -> None:
        if not self.rows.size:
            self.rows = np.empty((len(self._keys), rows.shape[1]))
        keys = self._rng.random(len(units))
        order = np.lexsort((keys, units))
        present, first = np.unique(units[order], return_index=True)
        best = order[first]
        better = keys[best] < self._keys[present]
        self._keys[present[better]], self.rows[present[better]] = keys[best[better]], rows[best[better]]
