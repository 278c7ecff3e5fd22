"""The scores of a release against its private table that follow from counts of cells and from comparing rows.

Every number here is exact and private. Shares and total variations (TV) are from 0 to 1, scores from 0 to 1000. Points of the
release have their nearest weights that are not negative and sum to 1. Rows are added in pieces, and memory grows with them by 8
bytes each: a digest that is compared and never shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import view_weights
from release_side.quality.score_tables import ScoreTables, group_scores, k_marginal, names_of_cells, shares_of, total_variations

_SEED = 27  # of the halves of the table: fixed and public


@dataclass(frozen=True)
class GroupScore:
    """One group of rows.

    name    its cell of the group's column.
    rows    of the table; of rows under a unit the sum of their weights.
    score   1000·(1 − mean over pairs of min(Σ|p − q| / p_g, 1)); SDNist.
    """

    name: str
    rows: float
    score: float


@dataclass(frozen=True)
class ColumnScore:
    """One column of the table and of the release.

    total_variation   ½Σ|p − q| over its cells; None for a text.
    cells             names of the cells: levels, ranges, atoms, "missing". Empty for a text.
    table, release    shares of the rows in each cell.
    """

    name: str
    kind: str
    total_variation: float | None
    cells: tuple[str, ...]
    table: tuple[float, ...]
    release: tuple[float, ...]


@dataclass(frozen=True)
class EqualRows:
    """Points of the release that are equal to a private row, and how many would be if the points were other rows of the table.

    points     of the release.
    equal      of them, with every cell equal to that of some private row.
    expected   the same for as many rows of one random half of the table, compared with the other half.
    """

    points: int
    equal: int
    expected: float


@dataclass(frozen=True)
class TableScores:
    """Everything of the internal page that follows from tables and rows.

    n_rows, n_points   rows of the table, points of the release.
    group              the column that groups are of; None for none.
    k_marginal         SDNist's score: 1000·(1 − mean TV) over pairs of columns, crossed with the group if there is one.
    groups             the worst first; so are `columns` (texts last) and `pairs` (name, name, total variation).
    one_way, two_way   mean total variation of all columns, and of all pairs of columns.
    notes              what is left out, from the domain alone.
    """

    n_rows: int
    n_points: int
    group: str | None
    k_marginal: float | None
    groups: tuple[GroupScore, ...]
    one_way: float | None
    two_way: float | None
    columns: tuple[ColumnScore, ...]
    pairs: tuple[tuple[str, str, float], ...]
    equal_rows: EqualRows
    notes: tuple[str, ...]

    @property
    def worst_group(self) -> float | None:
        """The least score of a group; None without groups."""
        return self.groups[0].score if self.groups else None


class CountedRows:
    """Rows in one pass, private or released: sums of weights in the cells of `tables`, and digests of whole rows."""

    def __init__(self, tables: ScoreTables) -> None:
        self.tables = tables
        self.counts = np.zeros(tables.starts[-1])
        self._digests: list[Array] = []

    def add(self, rows: Array, weights: Array | None = None) -> None:
        """Add encoded rows (n, width) with weights (n,); None for 1 each."""
        self.counts += self.tables.counts(rows, weights)
        self._digests.append(digests_of(rows))

    @property
    def digests(self) -> Array:
        """(n,) of all rows, once all are added."""
        return np.concatenate([np.zeros(0, dtype=np.uint64), *self._digests])


def table_scores(release: ReleaseData, table: CountedRows) -> TableScores:
    """The scores of a release against all rows of the private table, read by the release's domain."""
    tables, names = table.tables, table.tables.domain.names
    released = CountedRows(tables)
    released.add(release.encoded_points, np.clip(view_weights(release, "probability"), 0, None))
    p, q = shares_of(tables, table.counts), shares_of(tables, released.counts)
    tv = total_variations(tables, p, q)
    pairs = [(names[i], names[j], float(d)) for (i, j), d in zip(tables.pairs, tv[tables.two_way], strict=True)]
    digests = table.digests
    return TableScores(
        n_rows=len(digests), n_points=len(release), group=None if tables.group is None else names[tables.group],
        k_marginal=k_marginal(tables, p, q), groups=_groups(tables, table.counts, group_scores(tables, p, q)),
        one_way=float(np.mean(tv[tables.one_way])) if tables.columns else None,
        two_way=float(np.mean(tv[tables.two_way])) if tables.pairs else None, columns=_columns(tables, p, q, tv),
        pairs=tuple(sorted(pairs, key=lambda pair: -pair[2])), equal_rows=equal_rows(digests, released.digests),
        notes=tuple(tables.notes),
    )  # fmt: skip


def _groups(tables: ScoreTables, counts: Array, scores: dict[int, float]) -> tuple[GroupScore, ...]:
    if tables.group is None:
        return ()
    names, rows = names_of_cells(tables.domain, tables.group), tables.table(counts, tables.columns.index(tables.group))
    groups = [GroupScore(names[cell], float(rows[cell]), score) for cell, score in scores.items()]
    return tuple(sorted(groups, key=lambda group: group.score))


def _columns(tables: ScoreTables, p: Array, q: Array, tv: Array) -> tuple[ColumnScore, ...]:
    domain, columns = tables.domain, []
    for j, column in enumerate(domain.columns):
        if j not in tables.columns:
            columns.append(ColumnScore(column.name, column.kind, None, (), (), ()))
            continue
        index, cells = tables.columns.index(j), tuple(names_of_cells(domain, j))
        shares = [tuple(tables.table(side, index).tolist()) for side in (p, q)]
        columns.append(ColumnScore(column.name, column.kind, float(tv[index]), cells, *shares))
    return tuple(sorted(columns, key=lambda c: 1.0 if c.total_variation is None else -c.total_variation))


def equal_rows(table: Array, release: Array) -> EqualRows:
    """How many released points (m,) equal a private row (N,), and how many rows of one half of the table equal one of the other.

    The halves are random, with a fixed public seed; the second number is scaled to m rows. It is compared with half as many rows,
    so that it is rather too low where the number of equal rows grows with the table.
    """
    halves = np.array_split(np.random.default_rng(_SEED).permutation(table), 2)
    again = int(np.count_nonzero(np.isin(halves[1], halves[0])))
    expected = len(release) * again / max(len(halves[1]), 1)
    return EqualRows(len(release), int(np.count_nonzero(np.isin(release, table))), expected)


def digests_of(rows: Array) -> Array:
    """(n,) uint64 of encoded rows: equal for equal rows, a missing cell equal to itself, else nearly surely different."""
    same_bits = np.where(np.isnan(rows), np.nan, rows + 0.0)  # one bit pattern for NaN, and for zero
    return pd.util.hash_pandas_object(pd.DataFrame(same_bits), index=False).to_numpy()
