"""Rows in one pass, private or released: counts of cells, fine histograms of numbers, moments for correlations; who equals whom.

Pieces are added in any order, with weights or without, and memory grows with the rows by 24 bytes each: three digests, of the
row, of its keys and of its target, which are compared and never shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Ordinal
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.representation.tables.score_tables import ScoreTables

_BINS = (
    2**16
)  # of a histogram of a number: a quantile is exact for so many whole numbers, else good to 1/65,536 of the range
_KEYS = 4  # columns that an attacker is thought to know, where none are named


class Summary:
    """What scores of tables, columns and pairs are computed from.

    counts   the vector of `tables`, of the sums of weights.
    n_rows   rows that were added.
    weight   the sum of their weights; n_rows without weights.
    broken   (rules + 1,) the weight of rows that break each rule of the domain, and that break one at least.
    """

    def __init__(self, tables: ScoreTables) -> None:
        self.tables = tables
        self.counts = np.zeros(tables.starts[-1])
        self.n_rows, self.weight = 0, 0.0
        self._rules = rules_of(tables.domain)
        self.broken = np.zeros(len(self._rules) + 1)
        self._histograms = {j: _Histogram(column) for j, column in numbers_of(tables.domain).items()}
        self._moments = _Moments(tables.domain)

    def add(self, rows: Array, weights: Array | None = None) -> None:
        """Add encoded rows (n, width) with weights (n,); None for 1 each."""
        self.counts += self.tables.counts(rows, weights)
        self.n_rows += len(rows)
        self.weight += len(rows) if weights is None else float(weights.sum())
        for j, histogram in self._histograms.items():
            histogram.add(rows[:, j], weights)
        self._moments.add(rows, weights)
        if len(self._rules):
            self.broken += (np.ones(len(rows)) if weights is None else weights) @ self.breaks(rows)

    def breaks(self, rows: Array) -> Array:
        """(n, rules + 1) whether each encoded row breaks each rule, and whether it breaks one at least."""
        found = self._rules.broken_by(rows)
        return np.column_stack([found, found.any(axis=1)])

    def quantiles(self, column: int, probabilities: Sequence[float]) -> Array:
        """(k,) least encoded values with at least these shares of the rows at or below; NaN if all cells are missing."""
        return self._histograms[column].quantiles(probabilities)

    @property
    def correlations(self) -> Array:
        """(k, k) Pearson's, of the encoded values of `ordered_columns`; NaN where a column has no variance."""
        return self._moments.correlations


class TableSummary(Summary):
    """A `Summary` of the private table, with digests of its rows.

    group    name of the column that pairs of columns are crossed with; None for none.
    target   the column that an attacker wants to learn; None for the last one that is no key.
    keys     columns that he knows; None for the first four of the domain that have levels or whole numbers and are not
             `target`: nearly every value of a continuum is unique.
    Errors   ValueError or KeyError for columns that there are not, before a row is read.
    """

    def __init__(
        self,
        domain: Domain,
        *,
        group: str | None = None,
        target: str | None = None,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(ScoreTables(domain, None if group is None else domain.position(group)))
        self.keys, self.target = _keys_and_target(domain, keys, target)
        self._digests: list[Array] = []

    def add(self, rows: Array, weights: Array | None = None) -> None:
        super().add(rows, weights)
        self._digests.append(self.digests_of(rows))

    def digests_of(self, rows: Array) -> Array:
        """(3, n) digests of encoded rows: of all cells, of the keys, of the target."""
        domain = self.tables.domain
        chosen = [domain.indices_of([domain.position(name) for name in names]) for names in (self.keys, self.target)]
        return np.stack([_digests(rows), *(_digests(rows[:, own]) for own in chosen)])

    @cached_property
    def digests(self) -> Array:
        """(3, N) digests of all rows, once all are added."""
        return np.concatenate([np.zeros((3, 0), dtype=np.uint64), *self._digests], axis=1)


def numbers_of(domain: Domain) -> dict[int, Number]:
    """The columns of numbers and dates by their index."""
    return {j: column for j, column in enumerate(domain.columns) if isinstance(column, Number)}


def ordered_columns(domain: Domain) -> list[int]:
    """The columns whose correlations mean something: numbers, dates and ordinals."""
    return [j for j, column in enumerate(domain.columns) if isinstance(column, Number | Ordinal)]


def _keys_and_target(
    domain: Domain, keys: Sequence[str] | None, target: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys, and the target or nothing; KeyError or ValueError if they cannot be."""
    for name in [*(keys or ()), *([] if target is None else [target])]:
        domain.position(name)
    if keys is None:
        able = [column.name for column in domain.columns if _has_values(column) and column.name != target]
        able = able or [name for name in domain.names if name != target]
        keys = able[:_KEYS] if target is not None else able[: max(1, min(_KEYS, len(domain) - 1))]
    if len(set(keys)) < len(keys) or target in keys:
        raise ValueError(
            f"the keys must be different columns, and not the target, got {list(keys)!r:.300} and {target!r:.80}: what is known "
            "already cannot be learned. Name other columns."
        )
    left = [name for name in domain.names if name not in keys]
    return tuple(keys), (target,) if target is not None else tuple(left[-1:])


def _has_values(column: Column) -> bool:
    """Whether different rows can be expected to have the same cell: levels, whole numbers, dates."""
    return column.has_levels or (isinstance(column, Number) and column.step is not None)


class _Histogram:
    """Weights and sums of the values of a number in fine bins; a bin's mean stands for its values."""

    def __init__(self, column: Number) -> None:
        low, high = column.bounds
        step = column.step if column.step and (high - low) / column.step < _BINS else (high - low) / _BINS
        self._low, self._step = low, step
        self._bins = round((high - low) / step) + 1
        self._weights, self._sums = np.zeros(self._bins), np.zeros(self._bins)

    def add(self, values: Array, weights: Array | None) -> None:
        present = ~np.isnan(values)
        values = values[present]
        own = np.ones(len(values)) if weights is None else weights[present]
        bins = np.floor((values - self._low) / self._step + 1e-9).astype(np.int64).clip(0, self._bins - 1)
        self._weights += np.bincount(bins, own, minlength=self._bins)
        self._sums += np.bincount(bins, own * values, minlength=self._bins)

    def quantiles(self, probabilities: Sequence[float]) -> Array:
        cumulative = np.cumsum(self._weights)
        if not cumulative[-1] > 0:
            return np.full(len(probabilities), np.nan)
        wanted = (
            np.asarray(probabilities) * cumulative[-1] * (1 - 1e-12)
        )  # a share that is reached but for rounding is reached
        bins = np.searchsorted(cumulative, np.maximum(wanted, np.finfo(float).tiny))
        return self._sums[bins] / self._weights[bins]


class _Moments:
    """Sums over the rows in which neither of two columns is missing."""

    def __init__(self, domain: Domain) -> None:
        self._columns = ordered_columns(domain)
        ends = np.array([domain.columns[j].bounds for j in self._columns]).reshape(-1, 2)  # type: ignore[attr-defined]
        self._centre, self._width = ends.mean(axis=1), np.maximum(np.diff(ends, axis=1)[:, 0], 1e-300)
        self._sums = np.zeros((4, len(self._columns), len(self._columns)))

    def add(self, rows: Array, weights: Array | None) -> None:
        Z = (rows[:, self._columns] - self._centre) / self._width  # sums of small numbers lose no digits
        present = (~np.isnan(Z)).astype(np.float64)
        Z = np.nan_to_num(Z)
        left = present if weights is None else present * weights[:, None]
        weighted = Z if weights is None else Z * weights[:, None]
        self._sums += np.stack([left.T @ present, weighted.T @ present, (weighted * Z).T @ present, weighted.T @ Z])

    @property
    def correlations(self) -> Array:
        n, first, square, product = self._sums
        with np.errstate(all="ignore"):
            variance = n * square - first**2
            variance = np.where(variance > 1e-12 * n * np.abs(square), variance, np.nan)
            found = (n * product - first * first.T) / np.sqrt(variance * variance.T)
        return np.clip(found, -1, 1)


def _digests(rows: Array) -> Array:
    """(n,) uint64 of encoded rows: equal for equal rows, a missing cell equal to itself, else different but for 1 in 2⁶⁴."""
    found = np.full(len(rows), rows.shape[1], dtype=np.uint64)
    for values in rows.T:
        bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.uint64)  # one bit pattern for NaN, and for zero
        found = _mixed(found ^ _mixed(bits))
    return found


def _mixed(bits: Array) -> Array:
    """The output function of SplitMix64 (Steele, Lea & Flood 2014), a bijection of 64 bits."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
