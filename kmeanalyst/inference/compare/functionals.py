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
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from kmeanalyst.inference.two_sample.column_functions import column_functions, leading_products, most_products, products
from kmeanalyst.inference.two_sample.differences import USUAL_DIFFERENCE, difference_along
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


_INTERCEPT = 100.0  # prior variance of a function's constant, in units of a row's squared norm
_LEAST_RIDGE = 1e-6  # smallest ridge, in the same units
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
    def missed(self) -> Array:
        """(k, k), mean products of the residuals."""
        return self.residuals.T @ self.residuals / len(self.residuals)

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


_OF_A_COLUMN = 6  # functions of each column
_MOST_PAIRED = 30  # columns whose pairs are all tested
_KNOWN = 0.05  # level at which a column is known to differ
_FEWEST_ROWS = 10  # with fewer, functions are read at the domain's rows: at two rows' own, columns differed .10


@dataclass(frozen=True)
class Seen:
    """The p-value of a test of some functions (NaN of none), and the share of their variance that the features see."""

    pvalue: float
    seen: float


def differences_seen(evidence: Side, sample: SampleRows, some: Array, elsewhere: float) -> dict[tuple[int, ...], Seen]:
    """Does each column, and each pair of columns, have the same distribution on both sides? Two passes over the sample.

    some        rows of the sample.
    elsewhere   the relative variance by which the two populations differ as a whole. So much of it may enter a test through the
                unseen part of its functions; into a product's, as much as its columns are known to differ too.
    Of many columns, the pairs of those that differ most are tested.
    """
    domain = evidence.domain
    home = some if len(some) >= _FEWEST_ROWS else domain.draw(2 * _REFERENCE_ROWS, 0)
    projector = RidgeProjector(evidence, reference_rows(evidence, home))
    functions = [column_functions(domain, (j,), projector.rows, _OF_A_COLUMN) for j in range(len(domain))]
    values = [each(projector.rows) for each in functions]
    owner = np.repeat(range(len(domain)), list(map(len, functions)))
    every = projector.functionals(np.hstack(values))
    alone = [every[owner == j].orthogonalised_against(every[owner != j]) for j in range(len(domain))]
    of_columns = _tested(projector, sample, alone, [each.variances for each in functions], [elsewhere] * len(domain))
    found = {(j,): own for j, (own, _) in enumerate(of_columns)}
    differs = holm(np.array([own.pvalue for own, _ in of_columns])) <= _KNOWN
    shifts = [shift * known for (_, shift), known in zip(of_columns, differs, strict=True)]
    # around the middle of both sides: that columns shift by themselves then moves no mean of a product
    centres = [each(some).mean(axis=0) + shift / 2 for each, shift in zip(functions, shifts, strict=True)]
    first = np.sort(np.argsort([own.pvalue for own, _ in of_columns], kind="stable")[:_MOST_PAIRED])
    pairs = list(combinations(map(int, first), 2))
    most = most_products(len(pairs))
    read, variances, doubts = [], [], []
    for i, j in pairs:
        chosen, own = leading_products([functions[i], functions[j]], most)
        product = projector.functionals(products([values[i] - centres[i], values[j] - centres[j]], chosen))
        read.append(product.orthogonalised_against(every))
        variances.append(own)
        doubts.append(elsewhere + sum(float(np.square(shifts[k]).mean()) for k in (i, j) if len(shifts[k])))
    tested = _tested(projector, sample, read, variances, doubts)
    return found | {pair: own for pair, (own, _) in zip(pairs, tested, strict=True)}


def _tested(
    projector: RidgeProjector, sample: SampleRows, groups: Sequence[Functionals], variances: Sequence[Array],
    doubts: Sequence[float],
) -> list[tuple[Seen, Array]]:  # fmt: skip
    """The test of each group of functions, of these prior variances, and the differences of their means, in one pass."""
    evidence, ends = projector.evidence, np.cumsum([0, *map(len, variances)])
    vectors = np.hstack([np.zeros((projector.dimension, 0)), *map(projector.vectors, groups)])
    moments = sample_side(evidence, Directions(vectors, np.ones(ends[-1])), sample.blocks())
    assert moments.draws is not None
    differences, shrink = vectors.T @ (evidence.mean - moments.mean), evidence.row_variance + moments.row_variance
    found = []
    for group, own, doubt, (start, stop) in zip(groups, variances, doubts, pairwise(ends), strict=True):
        draws = moments.draws.along(np.eye(ends[-1])[:, start:stop])
        covariance = shrink * draws.of_a_row + doubt * group.missed
        signal = (group.signal * own) @ group.signal.T
        one = difference_along(vectors[:, start:stop], differences[start:stop], covariance, evidence.measurement, draws)
        found.append((Seen(one.whitened(signal).pvalue, group.seen), differences[start:stop]))
    return found


def holm(pvalues: Array) -> Array:
    """p-values adjusted for their number (Holm 1979): at most one false alarm in 1/level families; NaN stays NaN."""
    adjusted = np.full(len(pvalues), np.nan)
    known = np.flatnonzero(~np.isnan(pvalues))
    order = known[np.argsort(pvalues[known], kind="stable")]
    steps = pvalues[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
