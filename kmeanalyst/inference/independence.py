"""Room 4: are some columns of the released population independent of others?

The Hilbert-Schmidt independence criterion (Gretton et al. 2005; its test: Gretton et al. 2008) is Σ λ_a λ_b c_ab², c_ab
the covariance of the functions u_a of the first columns and v_b of the others. One measurement y tells c_ab with its
noise: products (u_a − m_a)(v_b − m_b) are read as linear functionals of the features, b, and c_ab is estimated by one
step from the released points, E_points[product] + bᵀ(y − E_points φ). Under the hypothesis it is 0, but for
  the noise, τ²bᵀb, exactly;
  the table, itself a sample of N rows: Σ_A ⊗ Σ_B / N, the products' covariance if the columns are independent;
  what the features do not see of the products, where the table may differ from the points (METHODS §5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kmeanalyst.inference.column_functions import Products, column_functions, leading_products
from kmeanalyst.inference.evidence import Evidence, evidence_of, reference_rows
from kmeanalyst.inference.functionals import Reader, law_along
from kmeanalyst.inference.hsic import Names, hsic_permutation_test, two_sides
from kmeanalyst.inference.results import TestResult
from kmeanalyst.inference.samples import result_about
from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import Release

_FUNCTIONS = 8  # of each side
_PRODUCTS = 24
_MOST_POINTS = 4000


def independence_test(
    data: Release | Any,
    columns_a: Names,
    columns_b: Names,
    *,
    permutations: int = 999,
    rng: np.random.Generator | int | None = None,
    kernel: Kernel | tuple[Kernel, Kernel] | None = None,
) -> TestResult:
    """Test whether columns A are independent of columns B.

    data           a Release, or plain rows: a DataFrame, or an array (n, d) with columns named by position.
    columns_a, columns_b   a name or several; distinct.
    permutations, rng, kernel   for plain rows only: kernel is one for both sides, or one for each.
    Returns        TestResult; mmd_squared is the criterion over the leading functions; for a release the noise's
                   share and the table's are taken off, and chance in its points is not.
    Assumes        for a release, that its points are a fair picture of the population where the features do not look. Plain
                   rows are permuted, and the test is exact.

    >>> ka.independence_test(release, "age", "income").pvalue < 0.001
    True
    >>> ka.independence_test(sample.head(200), "age", ["sex", "income"], rng=0).pvalue  # of rows of your own
    0.001
    """
    if not isinstance(data, Release):
        return hsic_permutation_test(data, columns_a, columns_b, permutations=permutations, rng=rng, kernel=kernel)
    if kernel is not None:
        raise ValueError("kernel goes with plain rows: a release has been measured with its own. Leave it out.")
    if data.measurement is None:
        raise ValueError(
            "a release without a measurement cannot be tested for independence: how its points vary is unknown. "
            "Test rows of your own, or a release with a measurement."
        )
    return _noise_aware_test(data, two_sides(data.domain.names, columns_a, columns_b))


class _Points:
    """The released points in the probability view, those with most weight, and how far they may be from the table.

    doubt   the relative variance by which the table may differ from them where the features do not look.
    """

    def __init__(self, release: Release, evidence: Evidence) -> None:
        p = release.view_weights("probability")
        kept = np.sort(np.argsort(-p, kind="stable")[:_MOST_POINTS])
        kept = kept[p[kept] > 0]
        self.rows, self.weights = release.encoded_points[kept], p[kept] / p[kept].sum()
        self.features = evidence.feature_map.compact(self.rows)
        self.gap = evidence.vector - self.features.T @ self.weights
        self.doubt = self._doubt(evidence)

    def _doubt(self, evidence: Evidence) -> float:
        """κ: what of ‖y − mean φ‖² is more than noise, and two standard errors of that, per variance of a row."""
        size, noise = len(self.gap), evidence.noise_variance
        centre = evidence.vector - self.gap
        squares = self.features * self.features  # elementwise, of sparse arrays too
        spread = float(self.weights @ squares.sum(axis=1)) - float(centre @ centre)
        excess = max(float(self.gap @ self.gap) - size * noise, 0.0) + 2 * np.sqrt(2 * size) * noise
        return max(excess / max(spread, 1e-12), float(self.weights @ self.weights))

    def mean(self, values: Array) -> Array:
        return self.weights @ values

    def covariance(self, values: Array) -> Array:
        centred = values - self.mean(values)
        return (centred.T * self.weights) @ centred


def _noise_aware_test(release: Release, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> TestResult:
    evidence = evidence_of(release)
    points = _Points(release, evidence)
    reader = Reader(evidence, reference_rows(evidence, points.rows, points.weights), points.doubt)
    first, second = (column_functions(release.domain, side, reader.rows, _FUNCTIONS) for side in sides)
    at_points = [first(points.rows), second(points.rows)]
    mains = reader.functionals(np.hstack([first(reader.rows), second(reader.rows)]))
    means = points.mean(np.hstack(at_points)) + reader.vectors(mains).T @ points.gap
    products = leading_products(first, second, (means[: len(first)], means[len(first) :]), _PRODUCTS)
    if len(products.variances) == 0:
        raise ValueError("one side has a single value, and a constant is independent of all. Name other columns.")
    read = reader.functionals(products(reader.rows)).cleared_of(mains)
    vectors = reader.vectors(read)
    values = products.of_values(*at_points)
    missed = values - points.features @ vectors
    missed -= points.mean(missed)
    estimates = points.mean(values) + vectors.T @ points.gap
    spread = points.covariance(missed)
    sampling = _factorised(products, points, at_points)
    covariance = sampling + points.doubt / evidence.row_variance * spread
    signal = np.diag(products.variances)
    statistic, pvalue = law_along(vectors, estimates, signal, covariance, evidence.row_variance, evidence)
    noise = evidence.noise_variance * np.einsum("fk,fk->k", vectors, vectors)
    bias = noise + evidence.row_variance * sampling.diagonal()
    seen = 1 - float(spread.trace() / max(points.covariance(values).trace(), 1e-12))
    return result_about(
        release,
        statistic=statistic,
        pvalue=pvalue,
        mmd_squared=float(products.variances @ (estimates**2 - bias)),
        estimator="biased",
        method="noise-aware independence test (HSIC) along leading products of functions",
        n_sample_rows=0,
        notes=_notes(seen),
    )


def _factorised(products: Products, points: _Points, at_points: Sequence[Array]) -> Array:
    """Cov of u_a v_b under independence: Σ_A(a, a′) Σ_B(b, b′), (k, k)."""
    (a, b), (u, v) = products.chosen, (points.covariance(values) for values in at_points)
    return u[np.ix_(a, a)] * v[np.ix_(b, b)]


def _notes(seen: float) -> tuple[str, ...]:
    return (
        f"the features see {max(seen, 0.0):.0%} of the variance of the product functions tested",
        "where they do not look, the released points are taken for a fair picture of the population",
        "the table's rows are taken to be independent draws from it",
    )
