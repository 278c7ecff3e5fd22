"""Tests of independence by measured tables: what they equal where it is known, their level, and what moves them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import refusals
from scipy.stats import chi2_contingency, kstest
from simulated_releases import measured_release, measurement_of
from statsmodels.stats.contingency_tables import StratifiedTable

import kmeanalyst as ka
from kmeanalyst.inference.contingency import contingency_test
from kmeanalyst.inference.contingency.contingency_test import Contrasts, departures, mantel_haenszel, weighted_test
from kmeanalyst.inference.contingency.strata import Cells, Strata, cells_of, measured_table, merged_cells, strata_of
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side.publishing.methods.adaptive.shares_of_rounds import with_sets

DOMAIN = Domain((
    Categorical(name="a", levels=("p", "q", "r")), Categorical(name="b", levels=("s", "t", "u", "v")),
    Categorical(name="c", levels=("x", "y")), Integer(name="n", lower=0, upper=99),
))  # fmt: skip
BINARY = Domain((
    *(Categorical(name=name, levels=("0", "1")) for name in "ab"), Ordinal(name="z", levels=tuple("lmh")),
))  # fmt: skip


@cache
def features(domain: Domain, given: str | None) -> MarginFeatures:
    """Of all pairs, and of all sets of three columns with this one."""
    kernel = margin_kernel(domain, 1e-4, finer=False)
    if given is None:
        return MarginFeatures(kernel)
    own = domain.position(given)
    return MarginFeatures(with_sets(kernel, [s for s in combinations(range(len(domain)), 3) if own in s]))


def codes(n: int, rng: np.random.Generator, strength: float = 0.0) -> np.ndarray:
    """a, b, c and n: independent, but that a share `strength` of the rows has b = a; n is above 49 where c is 1."""
    a, b, c = (rng.choice(len(p), n, p=p) for p in ([0.5, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1], [0.6, 0.4]))
    b = np.where(rng.random(n) < strength, a, b)
    return np.column_stack([a, b, c, rng.integers(0, 50, n) + 50 * c])


def counted(rows: np.ndarray, domain: Domain, noise: float, rng: np.random.Generator, given: str | None = None) -> Release:
    """A release of tables, without a fit of its points; `noise` is that on the mean of all features."""
    own = features(domain, given)
    vector = own.mean(rows, np.full(len(rows), 1 / len(rows))) + noise * rng.normal(size=own.dimension)
    return measured_release(measurement_of(own, vector, noise, len(rows)), domain, rows[:50])


def strata(
    rows: np.ndarray, noise: float, rng: np.random.Generator, *columns: str, given: str | None = None,
    domain: Domain = DOMAIN,
) -> Strata:  # fmt: skip
    """The measured table of two columns, "a" and "b" by default, of rows that are counted."""
    found = strata_of(counted(rows, domain, noise, rng, given=given), *(columns or "ab"), given)
    assert found is not None
    return found


def crosstab(rows: np.ndarray, *columns: int) -> np.ndarray:
    sizes = [int(rows[:, j].max()) + 1 for j in columns]
    return np.bincount(np.ravel_multi_index(rows[:, columns].T, sizes), minlength=np.prod(sizes)).reshape(sizes)


def test_a_measured_table_is_the_crosstab_in_the_order_asked_for():
    rng = np.random.default_rng(0)
    rows = codes(500, rng)
    release = counted(rows, DOMAIN, 1e-12, rng, given="c")
    for columns in ((0, 1), (1, 0), (2, 0), (0, 1, 2), (1, 2, 0)):
        table = measured_table(release.measurement, columns)
        assert table is not None
        np.testing.assert_allclose(table[0], crosstab(rows, *columns) / 500, atol=1e-8)


def test_the_noise_of_a_table_is_that_of_all_its_versions_together():
    rng = np.random.default_rng(1)
    rows = codes(1000, rng)
    truth = crosstab(rows, 0, 2) / 1000
    found = [measured_table(counted(rows, DOMAIN, 1e-3, rng, given="c").measurement, (0, 2)) for _ in range(100)]
    errors = np.array([table[0] - truth for table in found if table])
    assert errors.std() == pytest.approx(found[0][1], rel=0.1)  # type: ignore[union-attr]
    assert abs(np.corrcoef(errors.reshape(100, -1).T) - np.eye(6)).max() < 0.45


def test_what_no_table_holds_is_none():
    rng = np.random.default_rng(2)
    without = counted(codes(300, rng), DOMAIN, 1e-3, rng)
    assert measured_table(without.measurement, (0, 1, 2)) is None and measured_table(None, (0,)) is None


def test_cells_are_labelled_in_natural_units():
    rng = np.random.default_rng(3)
    domain = Domain((Real(name="w", lower=1, upper=100, scale="log", atoms=(1,), edges=(10,), missing=True), Boolean(name="b"),
                     Integer(name="k", lower=0, upper=3)))  # fmt: skip
    rows = np.column_stack([rng.uniform(0, 4, 50), rng.integers(0, 2, 50), rng.integers(0, 4, 50)]).astype(float)
    release = counted(rows, domain, 1e-3, rng)
    cells = cells_of(release, "w")
    assert cells.labels == ("1 to 10", "10 to 100", "1", "(missing)") and np.isnan(cells.positions[-1])
    assert cells.positions[0] < cells.positions[2] < cells.positions[1]
    assert cells_of(release, "b").labels == domain["b"].levels and np.isnan(cells_of(release, "b").positions).all()  # type: ignore[attr-defined]
    assert cells_of(release, "k").labels == ("0", "1", "2", "3")


def test_the_rarest_cells_are_merged_and_neighbours_where_there_is_an_order():
    levels, ordered = (Cells(tuple("wxyz"), np.array(at), np.ones(4)) for at in ([np.nan] * 4, [0.0, 1.0, 2.0, 3.0]))
    shares = np.array([0.004, 0.6, 0.39, 0.006])
    by_levels, by_order = merged_cells((shares, shares), (1e-4, 1e-4), (levels, ordered), 1e-3)
    np.testing.assert_array_equal(sorted(by_levels.T.tolist()), [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1]])
    np.testing.assert_array_equal(sorted(by_order.T.tolist()), [[0, 0, 1, 1], [1, 1, 0, 0]])
    in_noise, clear = merged_cells((shares, shares), (2.5e-3, 1e-4), (levels, ordered), 0.0)
    assert (in_noise.shape, clear.shape) == ((4, 3), (4, 4))


def test_without_noise_the_statistic_is_pearsons():
    rng = np.random.default_rng(4)
    rows = codes(2000, rng, strength=0.1)
    own = crosstab(rows, 0, 1)
    release = counted(rows, DOMAIN, 1e-12, rng)
    found = ka.contingency_test(release, "a", "b")
    expected = chi2_contingency(own, correction=False)
    assert found.statistic == pytest.approx(expected.statistic, rel=1e-6)
    assert (found.df, found.pvalue) == (6, pytest.approx(expected.pvalue, rel=1e-5))
    np.testing.assert_allclose(found.table, own / 2000, atol=1e-8)
    np.testing.assert_allclose(found.expected, expected.expected_freq / 2000, atol=1e-8)


def test_given_a_column_without_noise_it_is_that_of_cochran_mantel_and_haenszel():
    """Their variance has n − 1 rows of a stratum in place of n."""
    rng = np.random.default_rng(5)
    n = 20_000
    z = rng.integers(0, 3, n)
    rows = np.column_stack([rng.random(n) < 0.2 + 0.2 * z, rng.random(n) < 0.5 + 0.1 * z, z]).astype(int)
    rows[:, 1] = np.where(rng.random(n) < 0.02, rows[:, 0], rows[:, 1])
    release = counted(rows, BINARY, 1e-12, rng, given="z")
    found = ka.contingency_test(release, "a", "b", given="z")
    tables = StratifiedTable([crosstab(rows[z == k], 0, 1) for k in range(3)])
    assert found.statistic == pytest.approx(tables.test_null_odds().statistic, rel=2e-3)
    assert found.df == 1 and list(found.table.index.names) == ["z", "a"]
    other = ka.contingency_test(release, "b", "z", given="a")  # any of the three
    assert other.df == 2 and other.pvalue < 1e-6


NULLS = [("a", "b", None, 2e-4), ("a", "b", None, 3e-3), ("b", "n", None, 1e-3), ("a", "b", "c", 1e-3)]


def test_p_values_of_independent_columns_are_uniform_with_noise_and_sampling():
    """50 tables of 1,000 rows; the least p-value of the Kolmogorov–Smirnov tests falls below 1e-4 once in 5,000 runs."""
    for a, b, given, noise in NULLS:
        rng = np.random.default_rng(6)
        found = []
        for _ in range(50):
            contrasts = Contrasts.of(strata(codes(1000, rng), noise, rng, a, b, given=given))
            found.append((contrasts.pvalue, weighted_test(contrasts)[1], mantel_haenszel(contrasts)[2]))
        for each in np.array(found).T:
            assert kstest(each, "uniform").pvalue > 1e-4
            assert (each <= 0.05).mean() <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 50)


def test_a_test_that_does_not_know_the_noise_raises_false_alarms():
    """The power of the test above."""
    rng = np.random.default_rng(7)
    p = []
    for _ in range(20):
        p.append(Contrasts.of(replace(strata(codes(1000, rng), 3e-3, rng), noise=1e-9)).pvalue)
    assert np.mean(np.array(p) <= 0.05) > 0.5


def test_dependence_is_found_and_more_of_it_along_an_order():
    rng = np.random.default_rng(8)
    even, along = [], []
    for _ in range(40):
        x = rng.normal(size=3000)
        y = 0.12 * x + rng.normal(size=3000)
        domain = Domain((Integer(name="x", lower=-40, upper=40), Integer(name="y", lower=-40, upper=40)))
        rows = np.clip(np.column_stack([x, y]) * 15, -40, 40).round()
        contrasts = Contrasts.of(strata(rows, 1e-3, rng, "x", "y", domain=domain))
        even.append(contrasts.pvalue)
        along.append(weighted_test(contrasts)[1])
    assert np.mean(np.array(along) < 0.05) > np.mean(np.array(even) < 0.05) + 0.2


def test_differences_of_strata_that_cancel_are_found_by_the_test_of_any_association():
    rng = np.random.default_rng(9)
    rows = codes(4000, rng)
    mirrored = np.where(rows[:, 2] == 0, rows[:, 0], 2 - rows[:, 0])
    rows[:, 1] = np.where(rng.random(4000) < 0.3, mirrored, rows[:, 1])
    release = counted(rows, DOMAIN, 2e-4, rng, given="c")
    assert ka.independence_test(release, "a", "b", given="c").pvalue < 1e-6


def test_what_the_released_points_show_is_no_evidence():
    """Points of dependent columns around a measurement of independent ones, as a model of the rows can make them."""
    rng = np.random.default_rng(10)
    release = counted(codes(2000, rng), DOMAIN, 5e-4, rng)
    other = measured_release(release.measurement, DOMAIN, codes(400, rng, strength=0.9))  # type: ignore[arg-type]
    assert ka.independence_test(other, "a", "b").pvalue == ka.independence_test(release, "a", "b").pvalue > 1e-3


def test_residuals_have_variance_1_where_columns_are_independent():
    rng = np.random.default_rng(12)
    found = []
    for _ in range(60):
        d, deviations = departures(Contrasts.of(strata(codes(1000, rng), 1e-3, rng)))
        found.append(d / deviations)
    assert np.std(found) == pytest.approx(1.0, abs=0.08)


def test_associations_have_the_p_value_of_the_table():
    rng = np.random.default_rng(13)
    release = counted(codes(1000, rng), DOMAIN, 1e-3, rng)
    found = {one.columns: one.pvalue for one in ka.associations(release, ["a", "b", "n"])}
    assert found["a", "b"] == ka.independence_test(release, "a", "b").pvalue
    assert found["b", "n"] == ka.independence_test(release, "b", "n").pvalue
    assert strata_of(release, "a", "b") is strata_of(release, "a", "b")  # found once


def test_a_test_as_plain_values_and_as_text():
    rng = np.random.default_rng(14)
    found = ka.contingency_test(counted(codes(1000, rng), DOMAIN, 1e-3, rng, given="c"), "a", "c")
    plain = found.to_dict()
    assert plain["columns"] == ["a", "c"] and len(plain["cells"]) == 6 and plain["cells"][1]["cell"] == ["p", "y"]
    assert plain["cells"][1]["share"] == found.table.loc["p", "y"]
    assert repr(found).startswith("a × c: χ² = ")


def test_tables_that_were_not_measured_are_refused_with_what_would_help(foreign_release, levels_release):
    rng = np.random.default_rng(15)
    sides = {"r": counted(codes(300, rng), DOMAIN, 1e-3, rng), "foreign": foreign_release, "smooth": levels_release}
    refusals.check(Path(__file__).parent / "refusals_tables.txt", lambda text: eval(text, globals(), sides))


def test_strata_that_noise_hides_are_left_out_and_named():
    rng = np.random.default_rng(16)
    rows = codes(2000, rng)
    rows[:, 2] = rng.random(2000) < 0.01
    release = counted(rows, DOMAIN, 3e-3, rng, given="c")
    found = ka.contingency_test(release, "a", "b", given="c")
    assert any("left out, as too small to be distinguished from noise: c y" in note for note in found.notes)
    hidden = counted(rows, DOMAIN, 0.3, rng, given="c")
    with pytest.raises(ValueError, match=r"no cell of c is large enough.*more budget"):
        ka.contingency_test(hidden, "a", "b", given="c")


def test_the_leading_functions_of_a_column_without_an_order_are_its_cells():
    p = np.array([0.5, 0.3, 0.2])
    root = contingency_test._root(p, Cells(tuple("abc"), np.full(3, np.nan), np.ones(3)))
    np.testing.assert_allclose(root @ root.T, np.diag(1 / p) / 3, atol=1e-12)
