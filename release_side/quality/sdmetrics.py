"""The two scores of SDMetrics' quality report, "column shapes" and "column pair trends", as its version 0.32 computes them.

Of numbers and dates are compared the distribution functions (KSComplement: 1 − the largest difference) and of levels the shares
(TVComplement: 1 − total variation), missing cells left out. Of two numbers are compared Pearson's correlations
(CorrelationSimilarity: 1 − |difference|/2), of other pairs the tables (ContingencySimilarity: 1 − total variation), missing cells
being a value. There a number is cut into ten even ranges from its least to its largest value, of the table and of the release
each by its own, as their report does. A pair counts in the mean only where the table has a dependence: |correlation| > 0.5, or
Cramér's V > 0.3. The overall score is the mean of the two. The weights of a release count as rows would that are drawn by them.

Source   SDMetrics 0.32 (DataCebo), QualityReport with ColumnShapes and ColumnPairTrends; docs.sdv.dev/sdmetrics.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import FROM_SCALE, Number
from release_side.quality.scores import SdmetricsScores

_BINS = 10
_MOST_PAIRS = 5000  # all pairs of 100 columns
_MOST_CELLS = 10**6  # of a table whose empty cells are held too
_SEED = 27  # of the pairs that are drawn from more: fixed and public
_LEAST_CORRELATION, _LEAST_ASSOCIATION = 0.5, 0.3  # the defaults of its QualityReport
_CHANCE = 1e-12  # rounding of a variance


def sdmetrics_scores(domain: Domain, table: Array, release: Array, weights: Array) -> SdmetricsScores:
    """Scores of released rows (m, width) with weights (m,), at least 0, against the table's rows (n, width), all encoded.

    Texts are left out, and of more than 5,000 pairs of columns as many are drawn. NaN where nothing can be compared.
    """
    release, weights = release[weights > 0], weights[weights > 0]
    even = np.ones(len(table))
    chosen = [j for j, column in enumerate(domain.columns) if not column.is_text]
    natural = {j: (_natural(domain, j, table), _natural(domain, j, release)) for j in chosen}
    numbers = {j for j in chosen if domain.columns[j].is_number}
    shapes = {j: (_ks if j in numbers else _tv)(natural[j][0], even, natural[j][1], weights) for j in chosen}
    binned = {j: _numbered(*(_in_bins(x) if j in numbers else x for x in natural[j])) for j in chosen}
    pairs, counted = [], []
    for i, j in _few_pairs(chosen):
        if i in numbers and j in numbers:
            ours = _correlation(natural[i][0], natural[j][0], even)
            score = 1 - abs(ours - _correlation(natural[i][1], natural[j][1], weights)) / 2
            depends = abs(ours) > _LEAST_CORRELATION
        else:
            score, association = _contingency(binned[i], binned[j], even, weights)
            depends = association > _LEAST_ASSOCIATION
        pairs.append((domain.names[i], domain.names[j], float(score)))
        counted += [score] if depends and not np.isnan(score) else []
    column_shapes, trends = _mean(list(shapes.values())), _mean(counted)
    return SdmetricsScores(
        overall=_mean([column_shapes, trends]),
        column_shapes=column_shapes,
        column_pair_trends=trends,
        columns={domain.names[j]: float(score) for j, score in shapes.items()},
        pairs=tuple(sorted(pairs, key=lambda pair: (np.isnan(pair[2]), pair[2]))),
        rows=len(table),
    )


def _few_pairs(columns: list[int]) -> list[tuple[int, int]]:
    """All pairs, or so many of them, in their order."""
    pairs = list(combinations(columns, 2))
    if len(pairs) <= _MOST_PAIRS:
        return pairs
    drawn = np.random.default_rng(_SEED).choice(len(pairs), _MOST_PAIRS, replace=False)
    return [pairs[k] for k in np.sort(drawn)]


def _mean(scores: list[float]) -> float:
    known = [score for score in scores if not np.isnan(score)]
    return float(np.mean(known)) if known else float("nan")


def _natural(domain: Domain, j: int, rows: Array) -> Array:
    """A column in natural units, dates and levels as their codes; NaN for missing."""
    column = domain.columns[j]
    return FROM_SCALE[column.scale](rows[:, j]) if isinstance(column, Number) else rows[:, j]


def _ks(x: Array, v: Array, y: Array, w: Array) -> float:
    """1 − max|F − G| of the weighted distribution functions, missing cells left out."""
    values, signed = np.concatenate([x, y]), np.concatenate([_shares(x, v), -_shares(y, w)])
    if np.isnan(x).all() or np.isnan(y).all():
        return float("nan")
    order = np.argsort(values[~np.isnan(values)], kind="stable")
    present, signed = values[~np.isnan(values)][order], signed[~np.isnan(values)][order]
    last = np.append(present[1:] != present[:-1], True)  # after the last of equal values
    return 1 - float(np.abs(np.cumsum(signed)[last]).max())


def _tv(x: Array, v: Array, y: Array, w: Array) -> float:
    """1 − total variation of the weighted shares of levels, missing cells left out."""
    if np.isnan(x).all() or np.isnan(y).all():
        return float("nan")
    values, signed = np.concatenate([x, y]), np.concatenate([_shares(x, v), -_shares(y, w)])
    present = ~np.isnan(values)
    return 1 - float(np.abs(np.bincount(values[present].astype(np.intp), signed[present])).sum()) / 2


def _shares(x: Array, weights: Array) -> Array:
    """Weights as shares among the cells that are not missing."""
    present = np.where(np.isnan(x), 0.0, weights)
    return present / total if (total := present.sum()) > 0 else present


def _correlation(x: Array, y: Array, w: Array) -> float:
    """Weighted Pearson correlation of the rows in which neither is missing; NaN for a constant."""
    present = ~(np.isnan(x) | np.isnan(y))
    x, y, w = x[present], y[present], w[present]
    if len(x) < 2 or not w.sum() > 0:
        return float("nan")
    w = w / w.sum()
    x, y = x - w @ x, y - w @ y
    variances = (w @ x**2) * (w @ y**2)
    constant = np.ptp(x) == 0 or np.ptp(y) == 0 or not variances > 0
    return float("nan") if constant else float(w @ (x * y) / np.sqrt(variances))


def _in_bins(x: Array) -> Array:
    """The number of each value's bin among ten even ones from the least value to the largest, which has bin 11, as NaN has."""
    if np.isnan(x).all():
        return np.full(len(x), _BINS + 1)
    return np.digitize(x, np.histogram_bin_edges(x[~np.isnan(x)], _BINS))


def _numbered(x: Array, y: Array) -> tuple[Array, int]:
    """The values of both sides by number, a missing cell being one, and how many there are."""
    values, numbers = np.unique(np.concatenate([x, y]), return_inverse=True)
    return numbers, len(values)


def _contingency(a: tuple[Array, int], b: tuple[Array, int], v: Array, w: Array) -> tuple[float, float]:
    """1 − total variation of the two tables, and Cramér's V of the first; NaN for V of a table with a single row or column.

    a, b   the values of two columns by number, those of the table's rows first, then those of the release.
    """
    n, cells = len(v), a[0] * b[1] + b[0]
    if a[1] * b[1] > _MOST_CELLS:
        seen, cells = np.unique(cells, return_inverse=True)
        rows, columns = np.divmod(seen, b[1])
    else:
        rows, columns = np.divmod(np.arange(a[1] * b[1]), b[1])
    ours = np.bincount(cells[:n], v / v.sum(), minlength=len(rows))
    theirs = np.bincount(cells[n:], w / w.sum(), minlength=len(rows))
    return 1 - float(np.abs(ours - theirs).sum()) / 2, _cramers_v(ours, rows, columns)


def _cramers_v(shares: Array, rows: Array, columns: Array) -> float:
    """√(φ²/(least dimension − 1)) with φ² = Σ p²/(p_r p_c) − 1, of the shares of cells in these rows and columns (Cramér 1946)."""
    by_row, by_column = np.bincount(rows, shares), np.bincount(columns, shares)
    least = min(np.count_nonzero(by_row), np.count_nonzero(by_column)) - 1
    if least < 1:
        return float("nan")
    seen = shares > 0
    phi_squared = float((shares[seen] ** 2 / (by_row[rows[seen]] * by_column[columns[seen]])).sum()) - 1
    return float(np.sqrt(max(phi_squared, 0.0) / least))
