"""Sample against sample, by relabelling the rows (Gretton et al. 2012, section 5).

Several kernels are tested at once by the largest of their standardised statistics (in the manner of MMD-FUSE: Biggs,
Schrab & Gretton 2023), which finds a local difference that one lengthscale smooths away.

A statistic of two samples is a quadratic form in the labels. With labels about their mean, c = a − n/(n + m), only
q = cᵀKc needs a product for each relabelling; what is linear in c follows from row sums.

Few rows are relabelled one by one. Many are relabelled in bins (Domingo-Enrich, Dwivedi & Mackey 2023, "Compress then
test", section 3): the Gram matrix then shrinks to sums over pairs of bins, and a thousand relabellings cost little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import numpy as np

from kmeanalyst.inference.two_sample import effect_size as precision
from kmeanalyst.inference.two_sample.distance import Pair, Sample, read_pair
from kmeanalyst.inference.two_sample.gram_sums import GramSums, gram_sums
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.kernels import Gaussian, Kernel
from kmeanalyst.kernels.base import Array

_MOST_ROWS = 4000  # with at most this many rows, each is relabelled by itself
_UNITS = 2000
_LEAST_BINS = 200  # bins that the smaller sample has at least, if it has as many rows
_AT_ONCE = 4096  # relabellings in memory


@dataclass(frozen=True)
class Units:
    """Which rows move together: a cut of n + m rows, those of the first sample before those of the second.

    starts   (U + 1,) where each unit starts in the rows; the last entry is n + m.
    first    (U,) whether a unit is of the first sample.
    groups   disjoint sets of units; within a set they are of one size, and are permuted among themselves.

    Why the test is exact, with bins and without. Rows are put in an order drawn independently of them, and then cut at
    positions that depend on n and m alone. Permuting units of one size among themselves permutes the positions of rows,
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
    """Units of each sample: bins, single rows, and one unit of the rows that stay."""
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


class _RowPart:
    """The part of q that belongs to the rows I."""

    def __init__(self, of: RowLabels, I: slice) -> None:  # noqa: E741
        self.of, self.I = of, I
        self.towards = np.zeros((I.stop - I.start, of.labels.shape[1]), dtype=np.float32)

    def add(self, K: Array, J: slice, share: float) -> None:
        small = np.subtract(K, self.of.level, dtype=np.float32, casting="same_kind")
        if share != 1:
            small *= np.float32(share)
        self.towards += small @ self.of.centred(J)

    def finish(self) -> None:
        self.of.quadratic += 2 * np.einsum("ib,ib->b", self.towards, self.of.centred(self.I), dtype=np.float64)


class UnitSums:
    """The Gram matrix summed over pairs of units, (U, U) float64."""

    def __init__(self, units: Units) -> None:
        self.starts = units.starts
        self.half = np.zeros((len(units.first), len(units.first)))  # each pair once, the diagonal half

    def covered(self, rows: slice) -> tuple[slice, Array]:
        """The units that rows run through, and where each starts among them."""
        first, last = np.searchsorted(self.starts, [rows.start, rows.stop - 1], side="right") - 1
        return slice(first, last + 1), np.maximum(self.starts[first : last + 1] - rows.start, 0)

    def quadratic(self, labels: Array) -> Array:
        """q for each column of labels (U, B), float64."""
        centred = labels - float(np.diff(self.starts) @ labels[:, 0] / self.starts[-1])
        return 2 * np.einsum("ub,ub->b", centred, self.half @ centred)


class _UnitPart:
    """The sums over pairs of units that belong to the rows I."""

    def __init__(self, of: UnitSums, I: slice) -> None:  # noqa: E741
        self.of, self.I = of, I
        self.towards = np.zeros((I.stop - I.start, len(of.half)))

    def add(self, K: Array, J: slice, share: float) -> None:
        units, starts = self.of.covered(J)
        self.towards[:, units] += share * np.add.reduceat(K, starts, axis=1)

    def finish(self) -> None:
        units, starts = self.of.covered(self.I)
        self.of.half[units] += np.add.reduceat(self.towards, starts, axis=0)


KernelChoice = Kernel | Sequence[Kernel] | Literal["aggregated"] | None

_OCTAVES = (0, 1, -1, -2, -3, -4, -5)  # the aggregated lengthscales: powers of 2 times the median, which comes first
_FLOAT32, _FLOAT64 = 2.0**-24, 2.0**-53
_LEVEL = 0.05
_LEVEL_ROWS = 256  # rows from which the mean of a kernel is guessed


def permutation_test(
    a: Sample,
    b: Sample,
    kernel: KernelChoice,
    permutations: int,
    rng: np.random.Generator | int | None,
    estimator: str = "unbiased",
) -> TestResult:
    """p = (b + 1)/(B + 1), b relabellings of B with a statistic at least as large; ties count against rejection.

    Guarantee   P(p ≤ t) ≤ t for every t and all sizes, if both samples are drawn from one population (see `Units`):
                kernels and scales depend on the pooled rows as a set only.
    """
    _check(permutations, estimator)
    named = _named_kernels(kernel)
    pair = read_pair(a, b, named[0] if named else None)
    kernels = _aggregated(pair) if kernel == "aggregated" else named or [pair.kernel]
    n, m = len(pair.x), len(pair.y)
    if min(n, m) < 2:
        raise ValueError(f"both samples need at least two rows, got {n} and {m}. Add rows.")
    rng = np.random.default_rng(rng)
    units = units_of(n, m)
    sides = [pair.x, pair.y]
    if not units.rows_alone:  # an order drawn independently of the rows: all bins are then alike
        sides = [side[rng.permutation(len(side))] for side in sides]
    rows = np.vstack(sides)
    relabelled = _relabelled(kernels, rows, units, permutations, rng, estimator)
    standard = [each.standardised for each in relabelled]
    statistics, tie = relabelled[0].statistics, relabelled[0].tie
    if len(kernels) > 1:
        statistics, tie = np.max(standard, axis=0), max(each.tie / (each.scale or 1.0) for each in relabelled)
    exceed = int((statistics[1:] >= statistics[0] - tie).sum())
    first = relabelled[0]
    return TestResult(
        statistic=float(statistics[0]) if len(kernels) > 1 else first.observed,
        pvalue=(exceed + 1) / (permutations + 1),
        mmd_squared=first.observed,
        estimator=estimator,
        method=_method(permutations, len(kernels)),
        n_release_points=n,
        n_sample_rows=m,
        notes=(*pair.notes, *_aggregate_notes(standard, kernels), *_unit_notes(units)),
        **asdict(precision.of_two_samples(first.sums, first.unbiased, _margin(first.statistics[1:]))),
    )


def _check(permutations: int, estimator: str) -> None:
    if permutations < 1:
        raise ValueError(
            f"permutations must be at least 1, got {permutations}: the distribution is made of them. Pass e.g. 999."
        )
    if estimator not in ("unbiased", "biased"):
        raise ValueError(
            f'estimator must be "unbiased" or "biased", got {estimator!r}: rows are paired with others, or with '
            "themselves as well. Name one of these."
        )


def _named_kernels(choice: KernelChoice) -> list[Kernel]:
    """The kernels that the caller names; none for a default."""
    if choice is None or choice == "aggregated":
        return []
    named = [choice] if isinstance(choice, Kernel | str) else list(choice)
    if not named or not all(isinstance(kernel, Kernel) for kernel in named):
        raise ValueError(
            f'kernel must be a kernel, a sequence of kernels or "aggregated", got {choice!r:.80}: nothing else can be '
            "tested with. Pass e.g. Gaussian(1.0)."
        )
    return named


def _aggregated(pair: Pair) -> list[Kernel]:
    """Gaussians from twice the median distance down to a 32nd of it; the median comes first."""
    if not isinstance(pair.kernel, Gaussian):
        raise ValueError(
            'kernel="aggregated" tries lengthscales, and these samples have text, dates or missing cells: the table '
            "kernel, their default, has all scales of each column at once. Leave kernel out."
        )
    return [Gaussian(pair.kernel.lengthscale * 2.0**octave) for octave in _OCTAVES]


@dataclass(frozen=True)
class _Relabelled:
    """The statistic of one kernel under the observed labels (first) and B relabellings, and what is exact."""

    statistics: Array  # (B + 1,) as all are compared, the observed one rounded like the others
    observed: float  # float64
    unbiased: float
    tie: float  # differences up to this may be rounding errors
    scale: float  # its standard deviation under the hypothesis, from the pooled rows; 0 if there is none
    sums: GramSums

    @property
    def standardised(self) -> Array:
        return self.statistics / self.scale if self.scale > 0 else np.zeros_like(self.statistics)


def _relabelled(
    kernels: Sequence[Kernel], rows: Array, units: Units, count: int, rng: np.random.Generator, estimator: str
) -> list[_Relabelled]:
    """All kernels under the same relabellings."""
    n = int(np.diff(units.starts)[units.first].sum())
    parts: list[list[Array]] = [[] for _ in kernels]
    for labels, sums, quadratics in _quadratics(kernels, rows, n, units, units.draws(count, rng)):
        for part, each, quadratic in zip(parts, sums, quadratics, strict=True):
            part.append(_statistics(each, units, labels, quadratic, estimator))
    unit = _FLOAT32 if units.rows_alone else _FLOAT64
    return [_assembled(each, np.concatenate(part), unit, estimator) for each, part in zip(sums, parts, strict=True)]


def _quadratics(
    kernels: Sequence[Kernel], rows: Array, n: int, units: Units, draws: Iterator[Array]
) -> Iterator[tuple[Array, list[GramSums], list[Array]]]:
    """(labels, sums, q for each kernel) for each part of the relabellings."""
    if units.rows_alone:
        levels = [_guessed_mean(kernel, rows) for kernel in kernels]
        for labels in draws:
            forms = [RowLabels(labels, level) for level in levels]
            sums = gram_sums(kernels, rows, n, [partial(_RowPart, form) for form in forms])
            yield labels, sums, [form.quadratic for form in forms]
        return
    tables = [UnitSums(units) for _ in kernels]
    sums = gram_sums(kernels, rows, n, [partial(_UnitPart, table) for table in tables])
    for labels in draws:
        yield labels, sums, [table.quadratic(labels) for table in tables]


def _guessed_mean(kernel: Kernel, rows: Array) -> float:
    some = rows[:: -(-len(rows) // _LEVEL_ROWS)]
    return float(kernel.gram(some, some).mean())


def _statistics(sums: GramSums, units: Units, labels: Array, quadratic: Array, estimator: str) -> Array:
    """MMD² for each column of labels, from q = cᵀKc, K without its diagonal, and what is linear in c.

    With a = c + f, f = n/(n + m): aᵀKa = q + 2f cᵀK1 + f² 1ᵀK1 sums k within the first sample, aᵀK1 − aᵀKa across,
    and the rest within the second.
    """
    n, m = sums.n, sums.m
    f, total = n / (n + m), float(sums.towards.sum())
    linear = _along(sums.towards.sum(axis=1), units, labels, f)
    within = quadratic + 2 * f * linear + f**2 * total
    across = linear + f * total - within
    beyond = total - within - 2 * across
    if estimator == "unbiased":
        return within / (n * (n - 1)) + beyond / (m * (m - 1)) - 2 * across / (n * m)
    own = _along(sums.diagonal, units, labels, f) + f * float(sums.diagonal.sum())
    return (within + own) / n**2 + (beyond + sums.diagonal.sum() - own) / m**2 - 2 * across / (n * m)


def _along(values: Array, units: Units, labels: Array, share: float) -> Array:
    """cᵀ values, (B,), for values (n + m,) and labels (U, B), in parts: float64 labels would be large."""
    per_unit = np.add.reduceat(values, units.starts[:-1])
    parts = range(0, len(per_unit), 512)
    return np.sum([per_unit[i : i + 512] @ (labels[i : i + 512] - share) for i in parts], axis=0)


def _assembled(sums: GramSums, statistics: Array, unit: float, estimator: str) -> _Relabelled:
    n, m = sums.n, sums.m
    within, across, beyond = sums.totals
    unbiased = within / (n * (n - 1)) + beyond / (m * (m - 1)) - 2 * across / (n * m)
    own = float(sums.diagonal[:n].sum()), float(sums.diagonal[n:].sum())
    biased = max(0.0, (within + own[0]) / n**2 + (beyond + own[1]) / m**2 - 2 * across / (n * m))
    rate, square = 1 / n + 1 / m, precision.pooled_trace_of_square(sums)
    # rounding errors of the entries are independent: they add as the squares of the entries do
    entries = np.sqrt(sums.squares @ (1, 2, 1)) * n * m / (n + m) ** 2
    return _Relabelled(
        statistics=statistics,
        observed=unbiased if estimator == "unbiased" else biased,
        unbiased=unbiased,
        tie=float(64 * unit * rate**2 * entries),
        scale=float(np.sqrt(2 * (square or 0.0)) * rate),
        sums=sums,
    )


def _margin(relabelled: Array) -> float | None:
    """How far above their mean a statistic must be for p ≤ 5 %; None if no statistic is large enough."""
    allowed = int(np.floor(_LEVEL * (len(relabelled) + 1) + 1e-9)) - 1  # as large, at most
    if allowed < 0:
        return None
    return float(np.sort(relabelled)[::-1][allowed] - relabelled.mean())


def _method(permutations: int, n_kernels: int) -> str:
    several = f", the largest of {n_kernels} kernels' statistics" if n_kernels > 1 else ""
    return f"MMD permutation test ({permutations} permutations), sample against sample{several}"


def _aggregate_notes(standard: Sequence[Array], kernels: Sequence[Kernel]) -> list[str]:
    if len(kernels) < 2:
        return []
    labels = [f"{kernel!r:.80}" for kernel in kernels]
    most = int(np.argmax([each[0] for each in standard]))
    listed = ", ".join(f"{label} {each[0]:.1f}" for label, each in zip(labels, standard, strict=True))
    return [
        f"kernel of the largest statistic: {labels[most]}",
        f"statistics in standard deviations under one population: {listed}",
        f"mmd_squared, the interval and what is detectable are those of {labels[0]}",
    ]


def _unit_notes(units: Units) -> list[str]:
    if units.rows_alone:
        return []
    size = int(np.diff(units.starts)[units.groups[0]].max())
    together = "one by one" if size == 1 else f"in bins of {size} rows drawn together"
    notes = [f"{len(units.first)} units relabelled {together}: every row counts, and p is exact"]
    moving = np.zeros(len(units.first), dtype=bool)
    for group in units.groups:
        moving[group] = True
    still = int(np.diff(units.starts)[~moving].sum())
    return notes + ([f"{still} rows of the larger sample keep their label in every relabelling"] if still else [])
