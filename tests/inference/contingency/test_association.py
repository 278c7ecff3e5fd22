"""Associations of pairs of columns: what they equal where it is known, and how often their errors hold the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats.contingency import association as scipy_association
from simulated_releases import release_of

import kmeanalyst as ka
from kmeanalyst.inference.contingency.association import MOST_GROUPS, _unsigned, associations
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text

DOMAIN = Domain((
    Real(name="x", lower=-4, upper=4), Real(name="y", lower=-4, upper=4),
    Categorical(name="a", levels=("p", "q", "r")), Categorical(name="b", levels=("p", "q", "r")),
))  # fmt: skip


def rows(n: int, seed: int) -> pd.DataFrame:
    """x and y correlate with 0.6, a depends on x; b is independent of all."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(size=n), -4, 4)
    y = np.clip(0.6 * x + 0.8 * rng.normal(size=n), -4, 4)
    a = np.where(x > 0.7, "r", np.where(x > -0.5, "q", "p"))
    return pd.DataFrame({"x": x, "y": y, "a": a, "b": rng.choice(["p", "q", "r"], n, p=[0.5, 0.3, 0.2])})


def sample(frame: pd.DataFrame, domain: Domain = DOMAIN) -> Release:
    """Rows of equal weight as a release without measurement."""
    return ka.from_frame(frame.assign(weight=1 / len(frame)), domain=domain)


def by_pair(release: Release) -> dict:
    return {one.columns: one for one in associations(release)}


def test_on_plain_rows_they_are_the_textbook_measures():
    """Pearson's correlation by numpy, Cramér's V by scipy, the correlation ratio from its definition."""
    frame = rows(400, 1)
    release = sample(frame)
    found, expected = by_pair(release), release.corr(["x", "y"])["x", "y"]
    assert found["x", "y"].measure == "correlation"
    assert found["x", "y"].value == pytest.approx(np.corrcoef(frame["x"], frame["y"])[0, 1])
    assert found["x", "y"].standard_error == pytest.approx(expected.standard_error)
    assert found["a", "b"].measure == "Cramér's V"
    table = pd.crosstab(frame["a"], frame["b"]).to_numpy()
    assert found["a", "b"].value == pytest.approx(scipy_association(table, method="cramer"))
    means = frame.groupby("a")["x"].transform("mean")
    assert found["x", "a"].measure == "correlation ratio"
    assert found["x", "a"].value == pytest.approx(means.std(ddof=0) / frame["x"].std(ddof=0))


def test_independent_columns_are_found_related_as_seldom_as_the_level_says_and_related_ones_are_found():
    """30 samples of 300 rows. At 5 %, b is found related to a or x in at most 8 of 60 (probability of more below .001)."""
    null = [by_pair(sample(rows(300, seed))) for seed in range(30)]
    rejected = sum(found[pair].pvalue < 0.05 for found in null for pair in (("a", "b"), ("x", "b")))
    assert 0 < rejected <= 8
    assert all(found[pair].pvalue < 1e-6 for found in null for pair in (("x", "a"), ("x", "y"), ("y", "a")))


def test_intervals_hold_the_truth_where_there_is_an_association():
    """The population's values from 50,000 rows; 25 samples of 400: 95 % intervals hold them in 20 or more of 25."""
    truth = by_pair(sample(rows(50_000, 99)))
    samples = [by_pair(sample(rows(400, seed))) for seed in range(25)]
    for pair in (("x", "y"), ("x", "a"), ("y", "a")):
        found = [one[pair] for one in samples]
        assert sum(one.interval[0] <= truth[pair].value <= one.interval[1] for one in found) >= 20, pair
        wrong = truth[pair].value - 0.25
        assert sum(one.interval[0] <= wrong <= one.interval[1] for one in found) < 13, pair  # the power of the above


def test_where_there_is_no_association_the_error_is_that_of_a_quadratic_form():
    """‖N(0, C)‖² has the variance 2 tr C², by simulation too; to first order alone it would have none."""
    C = np.diag([4e-4, 1e-4, 1e-4])
    found = _unsigned("a", "b", "Cramér's V", np.zeros(3), C, 1)
    drawn = np.random.default_rng(9).multivariate_normal(np.zeros(3), C, 40_000)
    expected = float((drawn**2).sum(axis=1).std())
    assert found.interval[0] == found.value == 0.0
    assert found.interval[1] ** 2 == pytest.approx(1.96 * expected, rel=0.05)


def test_the_noise_of_a_release_is_in_the_error():
    """The same table measured: wider than sampling alone, and within four standard errors of the table's own value."""
    frame = rows(2000, 3)
    kernel = table_kernel(DOMAIN)
    features = RandomFourier.draw(kernel, n_columns=4, dimension=300, missing_columns=(), rng=1)
    release = release_of(DOMAIN.encode(frame), DOMAIN, kernel, features, rows(150, 4), method="random-features", view="probability")
    found, plain = by_pair(release), by_pair(sample(frame))
    for pair, one in found.items():
        assert one.standard_error > plain[pair].standard_error
        assert abs(one.value - plain[pair].value) <= 4 * one.standard_error


def test_rare_levels_are_taken_together_and_many_levels_stay_few():
    """40 levels of equal probability are taken together as eight groups at most: the covariance has no more than 8 × 8 entries."""
    levels = tuple(f"l{i}" for i in range(40))
    domain = Domain((Categorical(name="a", levels=levels), Categorical(name="b", levels=("p", "q"))))
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"a": rng.choice(levels, 2000), "b": rng.choice(["p", "q"], 2000)})
    found = associations(sample(frame, domain))[0]
    assert MOST_GROUPS == 8
    kept = frame["a"].value_counts()
    kept = kept[kept >= 0.02 * len(frame)].index[:7]
    grouped = frame["a"].where(frame["a"].isin(kept), "others")
    table = pd.crosstab(grouped, frame["b"]).to_numpy()
    assert found.value == pytest.approx(scipy_association(table, method="cramer"))


def test_missing_cells_leave_numbers_out_and_are_a_level_of_levels():
    domain = Domain((Integer(name="n", lower=0, upper=9, missing=True), Categorical(name="a", levels=("p", "q"), missing=True)))
    rng = np.random.default_rng(6)
    n, a = rng.integers(0, 10, 300).astype(object), rng.choice(["p", "q"], 300).astype(object)
    n[:50], a[30:90] = None, None
    frame = pd.DataFrame({"n": n, "a": a})
    found = associations(sample(frame, domain))[0]
    there = frame[frame["n"].notna()].assign(n=lambda f: f["n"].astype(float), a=lambda f: f["a"].fillna("(missing)"))
    means = there.groupby("a")["n"].transform("mean")
    assert found.value == pytest.approx(means.std(ddof=0) / there["n"].std(ddof=0))


def test_days_and_booleans_count_as_numbers_and_texts_have_no_part():
    domain = Domain((
        Boolean(name="t"), Date(name="d", lower="2000-01-01", upper="2020-01-01"),
        Text(name="s", length=2, alphabet="AB"),
    ))  # fmt: skip
    frame = pd.DataFrame({"t": [True, False] * 20, "d": ["2010-01-01", "2001-01-01"] * 20, "s": ["A", "BB"] * 20})
    (only,) = associations(sample(frame, domain))
    assert (only.columns, only.measure) == (("t", "d"), "correlation")
    assert only.value == pytest.approx(1.0)


def test_a_column_that_does_not_vary_has_no_association_and_a_note_says_so():
    frame = rows(50, 7).assign(b="q", y=1.5)
    found = by_pair(sample(frame))
    for pair, name in ((("x", "b"), "b"), (("x", "y"), "y"), (("a", "b"), "b")):
        assert np.isnan(found[pair].value) and found[pair].note == f"{name} does not vary in the release"


def test_signed_weights_are_refused():
    with pytest.raises(ValueError, match=r'are of probabilities, got view="signed": .*negative variances\. Pass'):
        associations(sample(rows(20, 8)), view="signed")
