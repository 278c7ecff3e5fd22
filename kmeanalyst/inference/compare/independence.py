"""Are some columns of the released population independent of others?

A release of tables answers by the tables that hold a pair of columns (`inference.contingency.chi_squared`), given a third column
too, and by nothing else: its points would add what a model of the rows implies, and that is no evidence on a pair (where c = a + b,
a model of a × c and of b × c relates a to b, which are independent).

Of smooth features the Hilbert-Schmidt independence criterion (Gretton et al. 2005; its test: 2008) is Σ λ_a λ_b c_ab², c_ab the
covariance of the functions u_a of the first columns and v_b of the others. One measurement y determines c_ab up to its noise:
products (u_a − m_a)(v_b − m_b) are read as linear functionals of the features, b, and c_ab is estimated by one step from the
released points, E_points[product] + bᵀ(y − E_points φ). Under the hypothesis it is 0, but for
  the noise, τ²bᵀb, exactly;
  the table, itself a sample of N rows: Σ_A ⊗ Σ_B / N, the products' covariance if the columns are independent;
  the part of the products that the features do not measure, in which the table may differ from the released points: κ times
  the covariance of that part over the points (κ: `_Points.doubt`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kmeanalyst.inference.compare.functionals import RidgeProjector, reference_rows
from kmeanalyst.inference.contingency import contingency_test
from kmeanalyst.inference.contingency.strata import strata_of
from kmeanalyst.inference.two_sample.column_functions import column_functions, leading_products, products
from kmeanalyst.inference.two_sample.differences import difference_along
from kmeanalyst.inference.two_sample.result import TestResult, result_about
from kmeanalyst.inference.two_sample.sides import Side, covariance_of, measured_side
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import view_weights

Names = str | int | Sequence[str] | Sequence[int]


def positions_of(names: Sequence[str], columns: Names) -> tuple[int, ...]:
    asked: list[str | int] = [columns] if isinstance(columns, str | int) else list(columns)
    if not asked or len(set(asked)) != len(asked):
        raise ValueError(f"columns must be distinct and at least one, got {asked!r:.80}. Name each once.")
    found = []
    for name in asked:
        if not (name in names if isinstance(name, str) else 0 <= name < len(names)):
            raise ValueError(f"no column {name!r}: there are {', '.join(names)}. Name one of these, or its position.")
        found.append(names.index(name) if isinstance(name, str) else int(name))
    return tuple(found)


def two_sides(names: Sequence[str], columns_a: Names, columns_b: Names) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sides = positions_of(names, columns_a), positions_of(names, columns_b)
    if set(sides[0]) & set(sides[1]):
        raise ValueError("a column is never independent of itself: columns_a and columns_b share one. Name others.")
    return sides


_result = partial(result_about, hypothesis="independence", n_sample_rows=0)
_FUNCTIONS = 8  # functions of each side's columns
_PRODUCTS = 24
_MOST_POINTS = 4000
_METHOD = "noise-aware independence test (HSIC) along leading products of functions"
OF_TABLES = "noise-aware independence test of measured tables (weighted χ²)"
_INDEPENDENT_ROWS = "the table's rows are taken to be independent draws from the population"


def independence_test(release: ReleaseData, columns_a: Names, columns_b: Names, *, given: str | None = None) -> TestResult:
    """Test whether columns A of a release are independent of columns B.

    columns_a, columns_b   a name or several, or positions; distinct.
    given          a third column. Tested is independence within each of its cells; a table of the three must have been
                   measured (publish with one of them as --target), or else ValueError says so.
    Returns        TestResult. Of a release of tables the statistic is that of the pair with the least p-value, which is multiplied
                   by the number of pairs, and mmd_squared the sum of its cells' squared departures, less what noise and
                   sampling add. A pair that no table holds has p = 1: chosen pairs are tested validly for that. Of smooth
                   features mmd_squared is the criterion over the leading functions, less the contributions of noise and sampling.
    Assumes        for a release of smooth features, that its points represent the population where the features see nothing. Of
                   tables, independent rows alone; numbers are compared by their ranges.

    >>> ka.independence_test(release, "age", "income").pvalue < 0.001
    True
    >>> ka.independence_test(counted, "sex", "marital-status", given="income").pvalue < 0.001
    True
    """
    if not isinstance(release, ReleaseData):
        raise ValueError(
            "independence_test is of a release, whose noise it accounts for. Rows of your own have no noise: test them with "
            "scipy.stats.chi2_contingency, or with hyppo.independence.Hsic."
        )
    if release.measurement is None:
        raise ValueError(
            "a release without a measurement cannot be tested for independence: how its points vary is unknown. "
            "Test a release with a measurement."
        )
    names = release.domain.names
    sides = two_sides(names, columns_a, columns_b)
    if isinstance(release.measurement.feature_map, MarginFeatures):
        return test_of_tables(release, [(names[i], names[j]) for i in sides[0] for j in sides[1]], given)
    if given is not None:
        raise ValueError(
            "independence given a column needs a measured table of the three, and this release has smooth features. Publish "
            "with one of the three as --target, for which larger sets of columns are looked for first."
        )
    return _noise_aware_test(release, sides)


def test_of_tables(release: ReleaseData, pairs: Sequence[tuple[str, str]], given: str | None = None) -> TestResult:
    """The tests of some pairs by their measured tables as one: the least p-value, times the number of pairs.

    Pairs are chosen for counting more often where sampling makes their columns seem related: p = 1 for others keeps the level.
    """
    tables = [
        strata_of(release, *pair) if given is None else contingency_test.measured_strata(release, *pair, given) for pair in pairs
    ]
    tested = [(strata, contingency_test.Contrasts.of(strata)) for strata in tables if strata is not None]
    notes: tuple[str, ...] = ()
    if len(tested) < len(pairs):
        counted = f"{len(tested)} of {len(pairs)} pairs of these columns were counted together"
        notes = (f"{counted}; the others have p = 1",)
    if not tested:
        untested: dict[str, Any] = {"hypothesis": "untested independence", "method": OF_TABLES, "notes": notes}
        return _result(release, statistic=0.0, pvalue=1.0, mmd_squared=0.0, **untested)
    found = [contingency_test.weighted_test(contrasts) for _, contrasts in tested]
    best = int(np.argmin([pvalue for _, pvalue in found]))
    strata, contrasts = tested[best]
    d, deviations = contingency_test.departures(contrasts)
    squared = float((d**2 - deviations**2).sum())
    return _result(
        release, statistic=found[best][0], pvalue=min(1.0, len(pairs) * found[best][1]), mmd_squared=squared,
        method=OF_TABLES, notes=(*contingency_test.notes_of(strata, given), *notes, _INDEPENDENT_ROWS),
    )  # fmt: skip


class _Points:
    """The released points in the probability view, those with most weight, and how far they may be from the table.

    doubt   the relative variance by which the table may differ from them where the features see nothing.
    """

    def __init__(self, release: ReleaseData, evidence: Side) -> None:
        p = view_weights(release, "probability")
        kept = np.sort(np.argsort(-p, kind="stable")[:_MOST_POINTS])
        kept = kept[p[kept] > 0]
        self.rows, self.weights = release.encoded_points[kept], p[kept] / p[kept].sum()
        self.features = evidence.feature_map.compact(self.rows)
        self.gap = evidence.mean - self.features.T @ self.weights
        self.doubt = self._doubt(evidence)

    def _doubt(self, evidence: Side) -> float:
        """κ: what of ‖y − mean φ‖² is more than noise, and two standard errors of that, per variance of a row."""
        size, noise = len(self.gap), evidence.noise_variance
        centre = evidence.mean - self.gap
        squares = self.features * self.features  # elementwise, of sparse arrays too
        spread = float(self.weights @ squares.sum(axis=1)) - float(centre @ centre)
        excess = max(float(self.gap @ self.gap) - size * noise, 0.0) + 2 * np.sqrt(2 * size) * noise
        return max(excess / max(spread, 1e-12), float(self.weights @ self.weights))

    def mean(self, values: Array) -> Array:
        return self.weights @ values

    def covariance(self, values: Array) -> Array:
        return covariance_of(values, self.weights)


def _noise_aware_test(release: ReleaseData, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> TestResult:
    evidence = measured_side(release)
    points = _Points(release, evidence)
    projector = RidgeProjector(evidence, reference_rows(evidence, points.rows, points.weights), points.doubt)
    first, second = (column_functions(release.domain, side, projector.rows, _FUNCTIONS) for side in sides)
    at_points = [first(points.rows), second(points.rows)]
    mains = projector.functionals(np.hstack([first(projector.rows), second(projector.rows)]))
    means = points.mean(np.hstack(at_points)) + projector.vectors(mains).T @ points.gap
    (a, b), variances = leading_products([first, second], _PRODUCTS)
    if len(variances) == 0:
        raise ValueError("one side has a single value, and a constant is independent of all. Name other columns.")
    centres = means[: len(first)], means[len(first) :]

    def product(x: Array, y: Array) -> Array:
        return products([x - centres[0], y - centres[1]], (a, b))

    read = projector.functionals(product(first(projector.rows), second(projector.rows))).orthogonalised_against(mains)
    vectors = projector.vectors(read)
    values = product(*at_points)
    missed = values - points.features @ vectors
    estimates = points.mean(values) + vectors.T @ points.gap
    spread = points.covariance(missed)
    u, v = (points.covariance(each) for each in at_points)
    sampling = u[np.ix_(a, a)] * v[np.ix_(b, b)]  # Cov of u_a v_b under independence: Σ_A(a, a′) Σ_B(b, b′)
    one = difference_along(vectors, estimates, evidence.row_variance * sampling + points.doubt * spread, evidence.measurement)
    tested = one.whitened(np.diag(variances))
    bias = one.covariance.diagonal() - points.doubt * spread.diagonal()
    seen = 1 - float(spread.trace() / max(points.covariance(values).trace(), 1e-12))
    return _result(
        release,
        statistic=tested.statistic,
        pvalue=float(np.nan_to_num(tested.pvalue, nan=1.0)),  # where nothing of the products is seen
        mmd_squared=float(variances @ (estimates**2 - bias)),
        estimator="biased",
        method=_METHOD,
        notes=(
            f"the features see {max(seen, 0.0):.0%} of the variance of the product functions tested",
            "elsewhere, the released points are assumed to represent the population",
            "the table's rows are taken to be independent draws from it",
        ),
    )
