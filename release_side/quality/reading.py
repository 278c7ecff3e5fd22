"""One reading of the private table, shared by all that is computed from it, and the rows that stay in memory.

Under `unit` every row counts with 1/rows of its unit, as in the release: what is compared is the distribution in which all units
weigh the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    rng, sample = np.random.default_rng(_SEED), list[Array]()
    with counted_rows(table, domain, unit, Here()) as (pieces, size):
        if not size.count:
            raise PublishError("the table has no rows, so that there is nothing to compare. Name a table with rows.")
        chosen = np.sort(rng.choice(size.count, min(size.count, SAMPLE_ROWS), replace=False))
        done = 0
        for piece in pieces:
            mine = _within(chosen, done, len(piece))
            for rows, weights, kept in _chunks(piece, mine, rng):
                sample.append(rows[kept])
                for add in adders:
                    add(rows, weights)
            done += len(piece)
            progress("reading the table", min(1.0, done / size.count))
    return size, np.concatenate(sample)


def _chunks(piece: Any, chosen: Array, rng: np.random.Generator) -> Iterator[tuple[Array, Array | None, Array]]:
    """(encoded rows, their weights, which of them the sample keeps) of a piece of rows, or of units of which these are chosen."""
    if not isinstance(piece, UnitRows):
        yield piece, None, chosen
        return
    sizes, done = piece.sizes, piece.bounds[0]
    one_of_each = piece.bounds[chosen] + rng.integers(0, sizes[chosen])
    for units, rows in piece.chunks(CHUNK_ROWS):
        yield rows, 1 / sizes[units], _within(one_of_each, done, len(rows))
        done += len(rows)


def _within(places: Array, start: int, size: int) -> Array:
    """Those of some places that are among so many from a start, counted from there."""
    return places[(start <= places) & (places < start + size)] - start
