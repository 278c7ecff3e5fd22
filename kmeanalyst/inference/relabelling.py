"""Room 4: which relabellings a permutation test draws, and the quadratic form of each.

A statistic of two samples is a quadratic form in the labels. With labels about their mean, c = a − n/(n + m), only
q = cᵀKc needs a product for each relabelling; what is linear in c follows from row sums.

Few rows are relabelled one by one. Many are relabelled in bins (Domingo-Enrich, Dwivedi & Mackey 2023, "Compress then
test", section 3): the Gram matrix then shrinks to sums over pairs of bins, and a thousand relabellings cost little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kmeanalyst.inference.pooled_gram import Tally
from kmeanalyst.kernels.base import Array

_MOST_ROWS = 4000  # relabelled one by one
_UNITS = 2000
_LEAST_BINS = 200  # of the smaller sample, while it has as many rows
_AT_ONCE = 4096  # relabellings in memory


@dataclass(frozen=True)
class Units:
    """Which rows move together: a cut of n + m rows, those of the first sample before those of the second.

    starts   (U + 1,) where each unit starts in the rows; the last entry is n + m.
    first    (U,) whether a unit is of the first sample.
    groups   disjoint sets of units; within a set they are of one size, and are permuted among themselves.

    Why the test stays exact, bins or no bins. Rows are put in an order drawn without a look at them, and then cut at
    places that depend on n and m alone. Permuting units of one size among themselves permutes the positions of rows,
    and these permutations are a subgroup H of all of them. Under the hypothesis the n + m rows are exchangeable: for
    h drawn uniformly from H, the statistics at the identity and at h_1, ..., h_B are exchangeable too, as a subgroup
    is closed (Hemerik & Goeman 2018, theorem 2). So P(p ≤ t) ≤ t for p = (b + 1)/(B + 1). A unit that is in no
    set stays where it is, in the observed statistic and in every relabelled one: no row is dropped.
    """

    starts: Array
    first: Array
    groups: tuple[Array, ...]

    @property
    def rows_alone(self) -> bool:
        """Whether every row is a unit of its own."""
        return len(self.first) == int(self.starts[-1])

    def draws(self, count: int, rng: np.random.Generator) -> Iterator[Array]:
        """0/1 labels (U, ·) of the observed samples, in the first column, and of `count` relabellings, in parts."""
        left, observed = count, 1
        while left or observed:
            part = min(left, _AT_ONCE)
            labels = np.repeat(self.first[:, None], observed + part, axis=1)
            for group in self.groups:
                labels[group, observed:] = rng.permuted(labels[group, observed:], axis=0)
            yield labels
            left, observed = left - part, 0


def bin_size(n: int, m: int) -> int:
    """Rows per bin: about `_UNITS` bins in all, and the smaller sample in `_LEAST_BINS` or more if it has the rows."""
    if n + m <= _MOST_ROWS:
        return 1
    return min(-(-(n + m) // _UNITS), max(1, min(n, m) // _LEAST_BINS))


def units_of(n: int, m: int) -> Units:
    """The cut for two sizes: bins, then what is left over as single rows.

    Where the smaller sample is so small that its bins are few, bins are smaller and the larger sample gives as many as
    make `_UNITS` in all; its further rows stay. The moving bins of the larger sample are then still about nine times
    those of the smaller, so that few of a relabelled smaller sample's rows are truly its own.
    """
    size = bin_size(n, m)
    most = n + m if n + m <= _MOST_ROWS else _UNITS
    small = min(n, m) // size
    large = min(max(n, m) // size, most - small)
    bins = (small, large) if n <= m else (large, small)
    left = (n - bins[0] * size, m - bins[1] * size)
    singles = tuple(min(rest, size) if min(left) else 0 for rest in left)
    return _cut((n, m), bins, size, singles)


def _cut(rows: tuple[int, int], bins: tuple[int, int], size: int, singles: tuple[int, ...]) -> Units:
    """In each sample: bins, single rows, and one unit of the rows that stay."""
    lengths: list[int] = []
    first: list[bool] = []
    groups: tuple[list[int], list[int]] = ([], [])
    for side in (0, 1):
        for group, count, length in ((0, bins[side], size), (1, singles[side], 1)):
            groups[group].extend(range(len(lengths), len(lengths) + count))
            lengths.extend([length] * count)
        stay = rows[side] - bins[side] * size - singles[side]
        lengths.extend([stay] if stay else [])
        first.extend([side == 0] * (len(lengths) - len(first)))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return Units(starts, np.array(first), tuple(np.array(group) for group in groups if group))


# ---------------------------------------------------------------- quadratic forms


class RowLabels:
    """q = cᵀKc for each column of labels (n + m, B), by float32 products with blocks of K, added in float64.

    `level` is about the mean of K: it is taken off every entry, which changes no q (cᵀ1 = 0) and spares digits.
    """

    def __init__(self, labels: Array, level: float) -> None:
        self.labels, self.level, self.share = labels, level, np.float32(labels[:, 0].mean())
        self.quadratic = np.zeros(labels.shape[1])

    def centred(self, block: slice) -> Array:
        """Labels about their mean, float32."""
        return self.labels[block] - self.share

    def tally(self, I: slice) -> Tally:  # noqa: E741
        """A tally for the rows I."""
        return _RowTally(self, I)

    def take(self, I: slice, result: Array) -> None:  # noqa: E741
        """Add the part of the rows I."""
        self.quadratic += result


class _RowTally:
    def __init__(self, of: RowLabels, I: slice) -> None:  # noqa: E741
        self.of, self.I = of, I
        self.towards = np.zeros((I.stop - I.start, of.labels.shape[1]), dtype=np.float32)

    def add(self, K: Array, J: slice, share: float) -> None:
        small = np.subtract(K, self.of.level, dtype=np.float32, casting="same_kind")
        if share != 1:
            small *= np.float32(share)
        self.towards += small @ self.of.centred(J)

    def result(self) -> Array:
        return 2 * np.einsum("ib,ib->b", self.towards, self.of.centred(self.I), dtype=np.float64)


class UnitSums:
    """The Gram matrix summed over pairs of units, (U, U) float64."""

    def __init__(self, units: Units) -> None:
        self.starts = units.starts
        self.half = np.zeros((len(units.first), len(units.first)))  # each pair once, the diagonal half

    def covered(self, rows: slice) -> tuple[slice, Array]:
        """The units that rows run through, and where each starts among them."""
        first, last = np.searchsorted(self.starts, [rows.start, rows.stop - 1], side="right") - 1
        return slice(first, last + 1), np.maximum(self.starts[first : last + 1] - rows.start, 0)

    def tally(self, I: slice) -> Tally:  # noqa: E741
        """A tally for the rows I."""
        return _UnitTally(self, I)

    def take(self, I: slice, result: Array) -> None:  # noqa: E741
        """Add the part of the rows I."""
        self.half[self.covered(I)[0]] += result

    def quadratic(self, labels: Array) -> Array:
        """q for each column of labels (U, B), float64."""
        centred = labels - self._share(labels)
        return 2 * np.einsum("ub,ub->b", centred, self.half @ centred)

    def _share(self, labels: Array) -> float:
        return float(np.diff(self.starts) @ labels[:, 0] / self.starts[-1])


class _UnitTally:
    def __init__(self, of: UnitSums, I: slice) -> None:  # noqa: E741
        self.of, self.I = of, I
        self.towards = np.zeros((I.stop - I.start, len(of.half)))

    def add(self, K: Array, J: slice, share: float) -> None:
        units, starts = self.of.covered(J)
        self.towards[:, units] += share * np.add.reduceat(K, starts, axis=1)

    def result(self) -> Array:
        return np.add.reduceat(self.towards, self.of.covered(self.I)[1], axis=0)
