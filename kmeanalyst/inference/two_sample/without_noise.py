"""The test without noise: two samples by relabelling their rows, or weighted points as a fixed distribution against rows.

Sample against sample (Gretton et al. 2012, section 5): with labels about their mean, c = a − n/(n + m), only q = cᵀKc needs a
product for each relabelling. Of several kernels: the largest standardised statistic (Biggs, Schrab & Gretton 2023, MMD-FUSE).

Of fixed points only the sample is random: L·MMD² is Σ e_i χ²₁, e the eigenvalues of the features' covariance Σ (Gretton et al.
2012, theorem 12). Their sum, tr Σ, is computed from all rows, their relative sizes from a subset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kmeanalyst.inference.two_sample import gram_sums as precision
from kmeanalyst.inference.two_sample.distance import Pair, Sample, check_kernels, is_weighted, read_pair, without_diagonal
from kmeanalyst.inference.two_sample.gram_sums import GramSums, RowLabels, gram_sums
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels import Gaussian, Kernel, KernelMean
from kmeanalyst.kernels.base import Array

_AT_ONCE, _MOST_LABELS = 4096, 2**27  # relabellings in memory, and labels of them
KernelChoice = Kernel | Sequence[Kernel] | Literal["aggregated"] | None
_OCTAVES = (0, 1, -1, -2, -3, -4, -5)  # the aggregated lengthscales: powers of 2 times the median, which comes first
_FLOAT32 = 2.0**-24
_LEVEL = 0.05
_MOST_EIGEN_ROWS = 2000
_NOTE = "no measurement: the weighted points are tested as a fixed distribution, without any noise of their own"
_LEVEL_ROWS = 256  # rows from which the mean of a kernel is guessed


def test_without_noise(
    a: Sample, b: Sample, kernel: KernelChoice, permutations: int, rng: np.random.Generator | int | None
) -> TestResult:
    """Two samples, or a (points, weights) pair as a fixed distribution against one; `kernel` as of `mmd_test`."""
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, got {permutations}: the distribution is made of them. Pass e.g. 999.")
    named, weighted = _named_kernels(kernel), is_weighted(a) + is_weighted(b)
    if weighted == 2:
        raise ValueError(
            "both sides have weights, so the random variation of neither is known: there is no distribution to test "
            "against. Give one side as plain rows, or ask for the distance alone with mmd."
        )
    if weighted and (kernel == "aggregated" or len(named) > 1):
        raise ValueError(
            f"weighted points are tested with one kernel, got {kernel!r:.80}: several need relabelling, which is impossible "
            "with weights. Pass one, such as Gaussian(1.0)."
        )
    pair = read_pair(a, b, named[0] if named else None)
    if not weighted:
        kernels = _aggregated(pair) if kernel == "aggregated" else named or [pair.kernel]
        return _permutation_test(pair, kernels, permutations, np.random.default_rng(rng))
    points, weights, rows = (pair.y, pair.v, pair.x) if pair.u is None else (pair.x, pair.u, pair.y)
    if len(rows) < 2:
        raise ValueError(f"the sample needs at least two rows to show its own spread, got {len(rows)}. Add rows.")
    fields = test_of_fixed(KernelMean(pair.kernel, points, weights), rows, pair.notes)
    return TestResult(n_release_points=len(points), **fields)


def _permutation_test(pair: Pair, kernels: Sequence[Kernel], permutations: int, rng: np.random.Generator) -> TestResult:
    """p = (b + 1)/(B + 1), b relabellings of B with a statistic at least as large; ties count against rejection.

    Guarantee   P(p ≤ t) ≤ t for every t and all sizes, if both samples are drawn from one population: kernels and scales
                depend on the pooled rows as a set only, and the rows are then exchangeable.
    """
    n, m = len(pair.x), len(pair.y)
    if min(n, m) < 2:
        raise ValueError(f"both samples need at least two rows, got {n} and {m}. Add rows.")
    relabelled = _relabelled(kernels, np.vstack([pair.x, pair.y]), n, permutations, rng)
    standard, first = [one.standardised for one in relabelled], relabelled[0]
    statistics, tie = first.statistics, first.tie
    if len(kernels) > 1:
        statistics, tie = np.max(standard, axis=0), max(one.tie / (one.scale or 1.0) for one in relabelled)
    exceed = int((statistics[1:] >= statistics[0] - tie).sum())
    several = f", the largest of {len(kernels)} kernels' statistics" if len(kernels) > 1 else ""
    return TestResult(
        statistic=float(statistics[0]) if len(kernels) > 1 else first.observed, pvalue=(exceed + 1) / (permutations + 1),
        mmd_squared=first.observed,
        method=f"MMD permutation test ({permutations} permutations), sample against sample{several}", n_release_points=n,
        n_sample_rows=m, notes=(*pair.notes, *_aggregate_notes(standard, kernels)),
        **precision.of_two_samples(first.sums, first.observed, _margin(first.statistics[1:])),
    )  # fmt: skip


def _named_kernels(choice: KernelChoice) -> list[Kernel]:
    if choice is None or choice == "aggregated":
        return []
    named = list(choice) if isinstance(choice, Iterable) else [choice]
    check_kernels(named, choice)
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
    tie: float  # differences up to this may be rounding errors
    scale: float  # its standard deviation under the hypothesis, from the pooled rows; 0 if there is none
    sums: GramSums

    @property
    def standardised(self) -> Array:
        return self.statistics / self.scale if self.scale > 0 else np.zeros_like(self.statistics)


def _relabelled(kernels: Sequence[Kernel], rows: Array, n: int, count: int, rng: np.random.Generator) -> list[_Relabelled]:
    """All kernels under the same relabellings."""
    some = rows[:: -(-len(rows) // _LEVEL_ROWS)]
    levels = [float(kernel.gram(some, some).mean()) for kernel in kernels]
    parts: list[list[Array]] = [[] for _ in kernels]
    for labels in relabelled_rows(n, len(rows), count, rng):
        forms = [RowLabels(labels, level) for level in levels]
        sums = gram_sums(kernels, rows, n, forms)
        for part, of_kernel, form in zip(parts, sums, forms, strict=True):
            part.append(_statistics(of_kernel, labels, form.quadratic))
    return [_assembled(of_kernel, np.concatenate(part)) for of_kernel, part in zip(sums, parts, strict=True)]


def relabelled_rows(n: int, n_rows: int, count: int, rng: np.random.Generator) -> Iterator[Array]:
    """0/1 labels (n + m, ·) of the observed samples, in the first column, and of `count` relabellings, in parts."""
    first = np.arange(n_rows) < n
    most, left, observed = min(_AT_ONCE, max(64, _MOST_LABELS // n_rows)), count, 1
    while left or observed:
        part = min(left, most)
        labels = np.repeat(first[:, None], observed + part, axis=1)
        labels[:, observed:] = rng.permuted(labels[:, observed:], axis=0)
        yield labels
        left, observed = left - part, 0


def _statistics(sums: GramSums, labels: Array, quadratic: Array) -> Array:
    """MMD² for each column of labels, from q = cᵀKc, K without its diagonal, and what is linear in c.

    With a = c + f, f = n/(n + m): aᵀKa = q + 2f cᵀK1 + f² 1ᵀK1 sums k within the first sample, aᵀK1 − aᵀKa across,
    and the rest within the second.
    """
    n, m = sums.n, sums.m
    f, total = n / (n + m), float(sums.towards.sum())
    row_sums, parts = sums.towards.sum(axis=1), range(0, n + m, 512)  # in parts: float64 labels would be large
    linear = np.sum([row_sums[i : i + 512] @ (labels[i : i + 512] - f) for i in parts], axis=0)
    within = quadratic + 2 * f * linear + f**2 * total
    across = linear + f * total - within
    beyond = total - within - 2 * across
    return within / (n * (n - 1)) + beyond / (m * (m - 1)) - 2 * across / (n * m)


def _assembled(sums: GramSums, statistics: Array) -> _Relabelled:
    n, m = sums.n, sums.m
    within, across, beyond = sums.totals
    rate, square = 1 / n + 1 / m, precision.pooled_trace_of_square(sums)
    # rounding errors of the entries are independent: they add as the squares of the entries do
    entries = np.sqrt(sums.squares @ (1, 2, 1)) * n * m / (n + m) ** 2
    return _Relabelled(
        statistics=statistics, observed=within / (n * (n - 1)) + beyond / (m * (m - 1)) - 2 * across / (n * m),
        tie=float(64 * _FLOAT32 * rate**2 * entries), scale=float(np.sqrt(2 * (square or 0.0)) * rate), sums=sums,
    )  # fmt: skip


def _margin(relabelled: Array) -> float | None:
    """How far above their mean a statistic must be for p ≤ 5 %; None if no statistic is large enough."""
    allowed = int(np.floor(_LEVEL * (len(relabelled) + 1) + 1e-9)) - 1  # as large, at most
    if allowed < 0:
        return None
    return float(np.sort(relabelled)[::-1][allowed] - relabelled.mean())


def _aggregate_notes(standard: Sequence[Array], kernels: Sequence[Kernel]) -> list[str]:
    if len(kernels) < 2:
        return []
    labels = [f"{kernel!r:.80}" for kernel in kernels]
    most = int(np.argmax([values[0] for values in standard]))
    listed = ", ".join(f"{label} {values[0]:.1f}" for label, values in zip(labels, standard, strict=True))
    return [
        f"kernel of the largest statistic: {labels[most]}",
        f"statistics in standard deviations under one population: {listed}",
        f"mmd_squared, the interval and what is detectable are those of {labels[0]}",
    ]


def test_of_fixed(fixed: KernelMean, rows: Array, notes: Sequence[str]) -> dict[str, Any]:
    """The fields of a TestResult of weighted points without a measurement, a fixed distribution, against rows."""
    sample, n = KernelMean(fixed.kernel, rows), len(rows)
    own = float(fixed.kernel.diagonal(rows).mean())
    among, across, squared = without_diagonal(sample), fixed.inner(sample), fixed.squared_norm()
    unbiased = squared - 2 * across + among
    eigenvalues, square, witness = _from_some_rows(fixed, sample)
    # the distribution's mean, from all rows: its shape, from the subset
    null = NormalQuadraticForm(eigenvalues * ((own - among) / max(eigenvalues.sum(), 1e-300)) / n)
    statistic = max(0.0, unbiased + (own - among) / n)
    return {
        "statistic": statistic, "pvalue": null.sf(statistic), "mmd_squared": unbiased,
        "method": "MMD, fixed weighted points against sample", "n_sample_rows": n, "notes": (_NOTE, *notes),
        **_precision(unbiased, null, square, witness, n),
    }  # fmt: skip


def _from_some_rows(fixed: KernelMean, sample: KernelMean) -> tuple[Array, float | None, Array]:
    """The eigenvalues of Σ, unscaled, tr Σ² and the witness at each row, none paired with itself, of a subset of the rows."""
    rows, n = sample.points, len(sample.points)
    some = rows[np.random.default_rng(0).permutation(n)[:_MOST_EIGEN_ROWS]]
    K, own = fixed.kernel.gram(some, some), fixed.kernel.diagonal(some)
    np.fill_diagonal(K, 0.0)
    square = precision.trace_of_square(float(np.vdot(K, K)), K.sum(axis=1))
    np.fill_diagonal(K, own)
    witness = fixed.evaluate(some) - (n * sample.evaluate(some) - own) / (n - 1)
    K -= K.mean(axis=0)  # of the centred features
    K -= K.mean(axis=1)[:, None]
    return np.maximum(np.linalg.eigvalsh(K), 0.0), square, witness


def _precision(unbiased: float, null: NormalQuadraticForm, square: float | None, witness: Array, n: int) -> dict[str, Any]:
    """null: the distribution of the biased statistic, whose mean is tr Σ/n."""
    floor = float(np.sqrt(null.coefficients.sum()))
    if square is None or floor == 0:
        return {"noise_floor": floor}
    null_variance, trace = 2 * square / n**2, n * floor**2
    linear = precision.witness_variance(witness, square, rows=n)
    return {
        "noise_floor": floor,
        "mmd_interval": precision.mmd_interval(unbiased, null_variance, linear / n),
        "detectable_mmd": precision.detectable_mmd(null.isf(_LEVEL) - floor**2, null_variance, square / (n * trace)),
    }
