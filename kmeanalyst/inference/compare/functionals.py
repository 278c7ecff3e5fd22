"""Functions of a row read off a release as linear functionals of its features, and tested there.

A function u is read by b = Φᵀ(ΦΦᵀ + ρI)⁻¹u, Φ the features of reference rows (kernel ridge regression). Let d be the
difference between a measurement of N rows and a sample of L. If both have one population, bᵀd has mean 0 and variance
bᵀΣb(1/N + 1/L) + τ²‖b‖² for any b that does not depend on the noise, Σ the covariance of φ and τ the noise's scale. So the
level of a test along b holds exactly. How well bᵀφ approximates u only decides which function a rejection can be attributed to.

Questions about some columns use functions of these columns alone (`column_functions`): those of one column, or products of
centred functions of two, are tested together. The features do not see all of a function: through the rest a difference of the
populations elsewhere enters the test, and the null distribution includes its likely size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from kmeanalyst.inference.two_sample.column_functions import column_functions, leading_products, products
from kmeanalyst.inference.two_sample.noise_aware import noise_aware_test
from kmeanalyst.inference.two_sample.resampled import Draws
from kmeanalyst.inference.two_sample.sides import SampleRows, Side, sample_side
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.principal import Directions

_REFERENCE_ROWS = 600  # mostly of the domain, and as many mostly of the columns of given rows
_AWAY = 0.1  # share of the second half's cells that are the domain's, and of the first half's that are the rows'


def reference_rows(evidence: Side, rows: Array, weights: Array | None = None) -> Array:
    """Rows (n, d) at which functions are read: each cell is drawn from the domain or from `rows`, independently.

    In the first half most cells are the domain's, in the second most are the rows'. So they lie where the population
    does and where another one may, and depend on the rows only through each column's distribution.
    weights   (len(rows),) probabilities; equal by default.
    """
    rng = np.random.default_rng(0)
    n = 2 * _REFERENCE_ROWS
    domain = evidence.domain
    chosen = np.column_stack([rng.choice(len(rows), n, p=weights) for _ in domain.columns])
    drawn = rows[chosen[:, domain.column_of], np.arange(domain.width)]
    share = np.repeat([1 - _AWAY, _AWAY], _REFERENCE_ROWS)[:, None]
    return np.where((rng.random(chosen.shape) < share)[:, domain.column_of], domain.draw(n, rng), drawn)


USUAL_DIFFERENCE = 0.1  # relative variance between populations that differ: a shift of 0.3 standard deviations
_INTERCEPT = 100.0  # prior variance of a function's constant, in units of a row's squared norm
_LEAST_RIDGE = 1e-6  # smallest ridge, in the same units
_LEAST_SIZE = 1e-8  # smallest share of the variance of correlated functions that a direction counts with
_RIDGE_OF_OTHERS = 0.15  # ridge, as a share of a function's variance, where other functions are projected out
_RIDGES = (1.0, 10.0, 100.0)  # ridges that are tried, in units of the smallest


@dataclass(frozen=True, eq=False)
class Functionals:
    """Functions read as bᵀφ(x) + constant, b = Φᵀα.

    coefficients   α (n, k).
    values         (n, k) of the functions at the reference rows.
    residuals      (n, k) of the functions there, each row's read without that row.
    """

    coefficients: Array
    values: Array
    residuals: Array

    def __getitem__(self, chosen: Array) -> Functionals:
        """Some of them, by position."""
        return Functionals(self.coefficients[:, chosen], self.values[:, chosen], self.residuals[:, chosen])

    def orthogonalised_against(self, others: Functionals) -> Functionals:
        """The same functions, read so that what is missed of them is uncorrelated with the others where the rows lie.

        A difference of the others' means then does not look like one of these.
        """
        fitted = others.values - others.residuals
        if fitted.shape[1] == 0:
            return self
        home = slice(len(fitted) // 2, None)  # of the reference rows, those that lie where the population does
        centre = fitted[home].mean(axis=0)
        here = fitted[home] - centre
        # functions of variance 1; the ridge excludes those that hardly vary here: they cannot differ much either
        ridge = _RIDGE_OF_OTHERS * len(here) * np.eye(here.shape[1])
        turn = np.linalg.solve(here.T @ here + ridge, here.T @ self.residuals[home])
        left = self.residuals - (fitted - centre) @ turn
        return Functionals(self.coefficients + others.coefficients @ turn, self.values, left)

    @property
    def signal(self) -> Array:
        """S (k, k): what is read of each function where each moves by itself, Cov(bᵀφ, u) over the reference."""
        fitted = self.values - self.residuals
        return (fitted - fitted.mean(axis=0)).T @ self.values / len(fitted)

    @property
    def seen(self) -> float:
        """The share of the functions' variance over the reference that the features see; 0 if none."""
        spread = float(self.values.var(axis=0).sum())
        return float(max(0.0, 1 - np.square(self.residuals).mean(axis=0).sum() / spread)) if spread > 0 else 0.0


class RidgeProjector:
    """Reads functions of a row through the features of an embedding estimate, by ridge regression at reference rows.

    Where populations differ by a relative variance D in what the features do not see of u, bᵀd misses the difference
    of u's means by D · mean (u − bᵀφ)², and has noise τ²‖b‖². The ridge that makes the sum least at the reference rows is
    ρ = nτ²/D; at rows left out a larger one can be better, and is taken for each function where it is.
    """

    def __init__(self, evidence: Side, rows: Array, difference: float = USUAL_DIFFERENCE) -> None:
        n, feature_map = len(rows), evidence.feature_map
        K = feature_map.gram(rows, rows)
        square = float(K.diagonal().mean())
        self._constant = _INTERCEPT * square
        K += self._constant
        least = n * max(evidence.noise_variance / difference, _LEAST_RIDGE * square)
        self._ridges = [_Ridge(K, factor * least) for factor in _RIDGES]
        self._noise = evidence.noise_variance / difference
        self._features = feature_map.compact(rows)
        self.evidence, self.rows = evidence, rows
        self.dimension = feature_map.dimension

    def functionals(self, values: Array) -> Functionals:
        """Functions with these values (n, k) at the rows."""
        alphas = np.stack([ridge.solve(values) for ridge in self._ridges])
        residuals = np.stack([alpha / ridge.leverage for alpha, ridge in zip(alphas, self._ridges, strict=True)])
        ridge = np.array([each.ridge for each in self._ridges])[:, None]
        # ‖b‖² = αᵀΦΦᵀα = αᵀ(u − ρα − constant): no product with the features
        squares = (alphas * values).sum(axis=1) - ridge * np.square(alphas).sum(axis=1)
        squares -= self._constant * np.square(alphas.sum(axis=1))
        best = (np.square(residuals).mean(axis=1) + self._noise * squares).argmin(axis=0)
        alpha, left = (np.take_along_axis(each, best[None, None, :], axis=0)[0] for each in (alphas, residuals))
        return Functionals(alpha, values, left)

    def vectors(self, read: Functionals) -> Array:
        """b (F, k)."""
        return self._features.T @ read.coefficients


class _Ridge:
    """(K + ρI)⁻¹, factored; leverage: its diagonal (n, 1), by which a coefficient is the residual of its row left out."""

    def __init__(self, K: Array, ridge: float) -> None:
        n = len(K)
        self.ridge = ridge
        self._factor = cho_factor(K + ridge * np.eye(n), lower=True, overwrite_a=True, check_finite=False)
        root = solve_triangular(self._factor[0], np.eye(n), lower=True, overwrite_b=True, check_finite=False)
        self.leverage = np.einsum("ij,ij->j", root, root)[:, None]

    def solve(self, values: Array) -> Array:
        return cho_solve(self._factor, values)


def whitened_test(
    vectors: Array,
    differences: Array,
    signal: Array,
    covariance: Array,
    shrink: float,
    evidence: Side,
    draws: Draws | None = None,
) -> tuple[float, float]:
    """(statistic, pvalue) of differences z = bᵀd (k,), weighted by their signal.

    vectors      b (F, k).
    signal       (k, k) covariance of z that a difference of relative variance 1 would give it, up to a factor.
    covariance   (k, k) of bᵀφ(x) over rows x, of which z has the part `shrink`; the noise is added to it.
    draws        of samples, as vectorsᵀφ(x).
    z is rotated to coordinates of variance 1 under the hypothesis, in which the signal has variances g; the statistic is
    the sum of their squares, weighted g/(1 + Dg).
    """
    null = shrink * covariance + evidence.noise_variance * (vectors.T @ vectors)
    scale = np.sqrt(np.maximum(null.diagonal(), 1e-300))
    size, turn = np.linalg.eigh(null / scale / scale[:, None])
    white = turn / np.sqrt(np.maximum(size, _LEAST_SIZE)) / scale[:, None]
    gain, along = np.linalg.eigh(white.T @ signal @ white)
    gain = np.maximum(gain, 0.0)
    if gain.max(initial=0.0) <= 0:
        return 0.0, 1.0  # nothing of the functions is seen
    gain /= 1 + USUAL_DIFFERENCE * gain
    turned = white @ along * np.sqrt(gain / gain.max())
    turned *= np.sign(turned[np.abs(turned).argmax(axis=0), np.arange(len(gain))])  # or rounding errors choose it
    directions = Directions(vectors @ turned, np.ones(len(gain)))
    difference = np.linalg.lstsq(vectors.T, differences, rcond=None)[0]
    draws = draws and draws.along(turned)
    return noise_aware_test(difference, directions, turned.T @ covariance @ turned, shrink, evidence.measurement, draws)


_OF_A_COLUMN = 6  # functions of each column
_PRODUCTS, _FEWEST_PRODUCTS, _ALL_PRODUCTS = 12, 4, 1500  # products: most of a pair, fewest, about all
_MOST_PAIRED = 30  # columns whose pairs are all tested


@dataclass(frozen=True)
class GroupTest:
    """p-value of a group of functions (NaN for an empty group), and the share of their variance that the features see."""

    pvalue: float
    seen: float


@dataclass(frozen=True, eq=False)
class Group:
    """Functions that are tested together.

    read        how they are read.
    variances   (k,) prior ones, as a signal.
    expected    (k,) the part of the difference of their means that something else explains.
    elsewhere   the relative variance by which the two populations may differ in the unseen part of the functions.
    """

    read: Functionals
    variances: Array
    expected: Array
    elsewhere: float


def difference_tests(
    groups: Sequence[Group], projector: RidgeProjector, sample: SampleRows
) -> tuple[list[GroupTest], Array]:
    """A test of each group: do its functions have one mean in the release's population and in the sample's?

    Returns   the tests, and the differences of all means (Σk,). One pass over the sample.
    """
    tests, evidence, stop = list[GroupTest](), projector.evidence, 0
    vectors = np.hstack([np.zeros((projector.dimension, 0)), *(projector.vectors(group.read) for group in groups)])
    moments = sample_side(evidence, Directions(vectors, np.ones(vectors.shape[1])), sample.blocks())
    assert moments.covariance is not None
    every = np.eye(vectors.shape[1])
    differences = vectors.T @ (evidence.mean - moments.mean)
    shrink = evidence.row_variance + moments.row_variance
    for group in groups:
        part = slice(stop, stop := stop + len(group.variances))
        missed = group.read.residuals.T @ group.read.residuals / len(group.read.residuals)
        beyond = group.elsewhere * missed
        covariance = moments.covariance[part, part] + beyond / shrink
        draws = moments.draws and replace(moments.draws.along(every[:, part]), beyond=beyond)
        signal = (group.read.signal * group.variances) @ group.read.signal.T
        excess = differences[part] - group.expected
        if len(excess):
            _, pvalue = whitened_test(vectors[:, part], excess, signal, covariance, shrink, evidence, draws)
            tests.append(GroupTest(pvalue, group.read.seen))
        else:
            tests.append(GroupTest(np.nan, 0.0))
    return tests, differences


class Columns:
    """A handful of functions of each column, and how they are read.

    functions   of each column.
    read        all of them, one column's after the other's.
    """

    def __init__(self, projector: RidgeProjector) -> None:
        domain = projector.evidence.domain
        self.functions = [column_functions(domain, (j,), projector.rows, _OF_A_COLUMN) for j in range(len(domain))]
        self.owner = np.repeat(np.arange(len(domain)), [len(each) for each in self.functions])
        self.read = projector.functionals(np.hstack([each(projector.rows) for each in self.functions]))

    def __getitem__(self, j: int) -> Functionals:
        """The functionals of column j."""
        return self.read[self.owner == j]


def column_tests(
    columns: Columns, projector: RidgeProjector, sample: SampleRows, elsewhere: float
) -> tuple[list[GroupTest], list[Array]]:
    """Does each column have the same distribution on both sides? The tests, and the differences of its functions' means.

    elsewhere   the relative variance by which the two populations differ as a whole.
    """
    groups = []
    for j, each in enumerate(columns.functions):
        alone = columns[j].orthogonalised_against(columns.read[columns.owner != j])
        groups.append(Group(alone, each.variances, np.zeros(len(each)), elsewhere))
    tests, differences = difference_tests(groups, projector, sample)
    return tests, [differences[columns.owner == j] for j in range(len(tests))]


def pairs_to_test(pvalues: Array) -> list[tuple[int, int]]:
    """All pairs of columns; of many columns, those of the columns that differ most."""
    first = np.sort(np.argsort(pvalues, kind="stable")[:_MOST_PAIRED])
    return list(combinations((int(j) for j in first), 2))


def pair_tests(
    pairs: Sequence[tuple[int, int]],
    columns: Columns,
    shifts: Sequence[Array],
    projector: RidgeProjector,
    sample: SampleRows,
    elsewhere: float,
    some: Array,
) -> list[GroupTest]:
    """Does each pair of columns have the same association on both sides? Products of functions centred at `some` rows.

    shifts   for each column the differences of its functions' means; 0 if the column is not known to differ. They explain
             the product of the means. Their size also decides how much of the columns' own differences may enter through
             the unseen part of a product.
    """
    centres = [each(some).mean(axis=0) for each in columns.functions]
    most = int(np.clip(_ALL_PRODUCTS / max(len(pairs), 1), _FEWEST_PRODUCTS, _PRODUCTS))
    groups = []
    for i, j in pairs:
        (a, b), variances = leading_products([columns.functions[i], columns.functions[j]], most)
        values = products([columns[i].values - centres[i], columns[j].values - centres[j]], (a, b))
        read = projector.functionals(values).orthogonalised_against(columns.read)
        doubt = elsewhere + _mean_square(shifts[i]) + _mean_square(shifts[j])
        groups.append(Group(read, variances, shifts[i][a] * shifts[j][b], doubt))
    return difference_tests(groups, projector, sample)[0]


def _mean_square(values: Array) -> float:
    return float(np.square(values).mean()) if len(values) else 0.0


def holm(pvalues: Array) -> Array:
    """p-values adjusted for their number (Holm 1979): at most one false alarm in 1/level families; NaN stays NaN."""
    adjusted = np.full(len(pvalues), np.nan)
    known = np.flatnonzero(~np.isnan(pvalues))
    order = known[np.argsort(pvalues[known], kind="stable")]
    steps = pvalues[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def verdicts(tests: Sequence[GroupTest], level: float) -> pd.DataFrame:
    """pvalue, adjusted (Holm), differs at the level, and the share seen: a row for each test."""
    pvalues = np.array([test.pvalue for test in tests], dtype=float)
    adjusted = holm(pvalues)
    seen = np.array([test.seen for test in tests], dtype=float)
    return pd.DataFrame({"pvalue": pvalues, "adjusted": adjusted, "differs": adjusted <= level, "seen": seen})
