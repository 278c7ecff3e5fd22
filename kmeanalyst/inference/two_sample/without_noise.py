"""The test without noise: two samples by relabelling their rows, or weighted points as a fixed distribution against rows.

Sample against sample (Gretton et al. 2012, section 5): with labels about their mean, c = a − n/(n + m), only q = cᵀKc needs a
product for each relabelling. Of several kernels: the largest standardised statistic (Biggs, Schrab & Gretton 2023, MMD-FUSE).

Of fixed points only the sample is random: L·MMD² is Σ e_i χ²₁, e the eigenvalues of the features' covariance Σ (Gretton et al.
2012, theorem 12). Their sum, tr Σ, is computed from all rows, their relative sizes from a subset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from kmeanalyst.inference.two_sample import gram_sums as precision
from kmeanalyst.inference.two_sample.distance import Pair, Sample, read_pair, without_diagonal
from kmeanalyst.inference.two_sample.gram_sums import GramSums, RowLabels, gram_sums
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels import Gaussian, Kernel, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import centre_gram

_AT_ONCE, _MOST_LABELS = 4096, 2**27  # relabellings in memory, and labels of them
KernelChoice = Kernel | Sequence[Kernel] | Literal["aggregated"] | None

_OCTAVES = (0, 1, -1, -2, -3, -4, -5)  # the aggregated lengthscales: powers of 2 times the median, which comes first
_FLOAT32 = 2.0**-24
_LEVEL = 0.05
_MOST_EIGEN_ROWS = 2000
_NOTE = "no measurement: the weighted points are tested as a fixed distribution, without any noise of their own"
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

    Guarantee   P(p ≤ t) ≤ t for every t and all sizes, if both samples are drawn from one population: kernels and scales
                depend on the pooled rows as a set only, and the rows are then exchangeable.
    """
    _check(permutations, estimator)
    named = _named_kernels(kernel)
    pair = read_pair(a, b, named[0] if named else None)
    kernels = _aggregated(pair) if kernel == "aggregated" else named or [pair.kernel]
    n, m = len(pair.x), len(pair.y)
    if min(n, m) < 2:
        raise ValueError(f"both samples need at least two rows, got {n} and {m}. Add rows.")
    rng = np.random.default_rng(rng)
    relabelled = _relabelled(kernels, np.vstack([pair.x, pair.y]), n, permutations, rng, estimator)
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
        notes=(*pair.notes, *_aggregate_notes(standard, kernels)),
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
    kernels: Sequence[Kernel], rows: Array, n: int, count: int, rng: np.random.Generator, estimator: str
) -> list[_Relabelled]:
    """All kernels under the same relabellings."""
    levels = [_guessed_mean(kernel, rows) for kernel in kernels]
    parts: list[list[Array]] = [[] for _ in kernels]
    for labels in _labels(n, len(rows), count, rng):
        forms = [RowLabels(labels, level) for level in levels]
        sums = gram_sums(kernels, rows, n, forms)
        for part, each, form in zip(parts, sums, forms, strict=True):
            part.append(_statistics(each, labels, form.quadratic, estimator))
    return [_assembled(each, np.concatenate(part), estimator) for each, part in zip(sums, parts, strict=True)]


def _labels(n: int, n_rows: int, count: int, rng: np.random.Generator) -> Iterator[Array]:
    """0/1 labels (n + m, ·) of the observed samples, in the first column, and of `count` relabellings, in parts."""
    first = np.arange(n_rows) < n
    most, left, observed = min(_AT_ONCE, max(64, _MOST_LABELS // n_rows)), count, 1
    while left or observed:
        part = min(left, most)
        labels = np.repeat(first[:, None], observed + part, axis=1)
        labels[:, observed:] = rng.permuted(labels[:, observed:], axis=0)
        yield labels
        left, observed = left - part, 0


def _guessed_mean(kernel: Kernel, rows: Array) -> float:
    some = rows[:: -(-len(rows) // _LEVEL_ROWS)]
    return float(kernel.gram(some, some).mean())


def _statistics(sums: GramSums, labels: Array, quadratic: Array, estimator: str) -> Array:
    """MMD² for each column of labels, from q = cᵀKc, K without its diagonal, and what is linear in c.

    With a = c + f, f = n/(n + m): aᵀKa = q + 2f cᵀK1 + f² 1ᵀK1 sums k within the first sample, aᵀK1 − aᵀKa across,
    and the rest within the second.
    """
    n, m = sums.n, sums.m
    f, total = n / (n + m), float(sums.towards.sum())
    linear = _along(sums.towards.sum(axis=1), labels, f)
    within = quadratic + 2 * f * linear + f**2 * total
    across = linear + f * total - within
    beyond = total - within - 2 * across
    if estimator == "unbiased":
        return within / (n * (n - 1)) + beyond / (m * (m - 1)) - 2 * across / (n * m)
    own = _along(sums.diagonal, labels, f) + f * float(sums.diagonal.sum())
    return (within + own) / n**2 + (beyond + sums.diagonal.sum() - own) / m**2 - 2 * across / (n * m)


def _along(values: Array, labels: Array, share: float) -> Array:
    """cᵀ values, (B,), for values and labels (n + m, B), in parts: float64 labels would be large."""
    parts = range(0, len(values), 512)
    return np.sum([values[i : i + 512] @ (labels[i : i + 512] - share) for i in parts], axis=0)


def _assembled(sums: GramSums, statistics: Array, estimator: str) -> _Relabelled:
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
        tie=float(64 * _FLOAT32 * rate**2 * entries),
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


# ---------------------------------------------------------------- a fixed distribution


def weighted_against_sample(a: Sample, b: Sample, kernel: Kernel | None) -> TestResult:
    """A (points, weights) pair as a fixed distribution, against rows; `kernel` as of `read_pair`."""
    if kernel is not None and not isinstance(kernel, Kernel):
        raise ValueError(
            f"weighted points are tested with one kernel, got {kernel!r:.80}: several need relabelling, which is impossible "
            "with weights. Pass one, such as Gaussian(1.0)."
        )
    pair = read_pair(a, b, kernel)
    points, weights, rows = (pair.y, pair.v, pair.x) if pair.u is None else (pair.x, pair.u, pair.y)
    if len(rows) < 2:
        raise ValueError(f"the sample needs at least two rows to show its own spread, got {len(rows)}. Add rows.")
    fields = test_of_fixed(KernelMean(pair.kernel, points, weights), rows, pair.notes)
    return TestResult(n_release_points=len(points), **fields)


@dataclass(frozen=True)
class _Subset:
    """Estimates from a subset of the sample's rows: no row is paired with itself."""

    eigenvalues: Array  # of Σ, unscaled
    trace_of_square: float | None
    witness: Array  # at each row of the subset


def test_of_fixed(fixed: KernelMean, rows: Array, notes: Sequence[str]) -> dict[str, Any]:
    """The fields of a TestResult of weighted points without a measurement, a fixed distribution, against rows."""
    sample, n = KernelMean(fixed.kernel, rows), len(rows)
    own = float(fixed.kernel.diagonal(rows).mean())
    among, across, squared = without_diagonal(sample), fixed.inner(sample), fixed.squared_norm()
    unbiased = squared - 2 * across + among
    subset = _subset(fixed, sample)
    # the distribution's mean, from all rows: its shape, from the subset
    null = NormalQuadraticForm(subset.eigenvalues * ((own - among) / max(subset.eigenvalues.sum(), 1e-300)) / n)
    statistic = max(0.0, unbiased + (own - among) / n)
    return {
        "statistic": statistic,
        "pvalue": null.sf(statistic),
        "mmd_squared": unbiased,
        "method": "MMD, fixed weighted points against sample",
        "n_sample_rows": n,
        "notes": (_NOTE, *notes),
        **asdict(_precision(unbiased, null, subset, n)),
    }


def _subset(fixed: KernelMean, sample: KernelMean) -> _Subset:
    rows, n = sample.points, len(sample.points)
    some = rows[np.random.default_rng(0).permutation(n)[:_MOST_EIGEN_ROWS]]
    K, own = fixed.kernel.gram(some, some), fixed.kernel.diagonal(some)
    np.fill_diagonal(K, 0.0)
    square = precision.trace_of_square(float(np.vdot(K, K)), K.sum(axis=1))
    np.fill_diagonal(K, own)
    witness = fixed.evaluate(some) - (n * sample.evaluate(some) - own) / (n - 1)
    centre_gram(K)
    return _Subset(np.maximum(np.linalg.eigvalsh(K), 0.0), square, witness)


def _precision(unbiased: float, null: NormalQuadraticForm, subset: _Subset, n: int) -> precision.Precision:
    """null: the distribution of the biased statistic, whose mean is tr Σ/n."""
    floor = float(np.sqrt(null.coefficients.sum()))
    if subset.trace_of_square is None or floor == 0:
        return precision.Precision(floor, None, None)
    square = subset.trace_of_square
    null_variance, trace = 2 * square / n**2, n * floor**2
    linear = precision.witness_variance(subset.witness, square, rows=n)
    return precision.Precision(
        noise_floor=floor,
        mmd_interval=precision.mmd_interval(unbiased, null_variance, linear / n),
        detectable_mmd=precision.detectable_mmd(null.isf(_LEVEL) - floor**2, null_variance, square / (n * trace)),
    )
