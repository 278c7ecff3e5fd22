"""Smoothed numbers: values of a number on releases of margins, and what models learn from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from every import every
from learning_cases import release_around
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import kmeanalyst as ka
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.learning.rows.labels import find_labels
from kmeanalyst.learning.rows.smoothed_numbers import _means_of_parts, fit_smoothed_numbers
from kmeanalyst.learning.rows.training_rows import target_of, training_rows
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.measurement import feature_mean

EDGES = (-1.5, -0.75, 0.0, 0.75, 1.5)
DOMAIN = Domain((
    Real(name="a", lower=-3, upper=3, edges=EDGES),
    Real(name="b", lower=-3, upper=3, edges=EDGES),
    Categorical(name="city", levels=("Zug", "Bern", "Basel")),
    Real(name="cost", lower=0, upper=40, edges=(5, 10, 15, 20, 30), atoms=(0,)),
    Integer(name="visits", lower=0, upper=30, edges=(1, 3, 6, 10)),
    Date(name="day", lower="2020-01-01", upper="2020-12-31", edges=("2020-04-01", "2020-07-01", "2020-10-01")),
))  # fmt: skip
N, COLUMNS = 4_000, ["a", "b", "city"]


def table(n: int, seed: int) -> pd.DataFrame:
    """The cost is 0 where a < −1; the other numbers follow it."""
    rng = np.random.default_rng(seed)
    a, b, city = rng.normal(size=n).clip(-3, 3), rng.normal(size=n).clip(-3, 3), rng.integers(0, 3, n)
    cost = np.where(a < -1, 0.0, np.clip(15 + 4 * a + 3 * b * (city == 0) + 4 * rng.normal(size=n), 0.5, 40))
    day = pd.Timestamp("2020-03-01") + pd.to_timedelta((5 * cost).round(), unit="D")
    return pd.DataFrame({
        "a": a, "b": b, "city": np.array(["Zug", "Bern", "Basel"])[city], "cost": cost,
        "visits": rng.poisson(cost / 4).clip(0, 30), "day": day.strftime("%Y-%m-%d"),
    })  # fmt: skip


@pytest.fixture(scope="module")
def release() -> Release:
    """All one- and two-way tables, around rows of the same distribution."""
    edges: Any = tuple(tuple(column.cuts(column.edges).tolist()) if column.is_number else (0.5, 1.5) for column in DOMAIN.columns)
    atoms: Any = tuple(tuple(getattr(column, "atom_codes", np.zeros(0)).tolist()) for column in DOMAIN.columns)
    features = MarginFeatures(Margins(edges, atoms, (False,) * 6, (0.3, 0.7, 0)))
    vector = feature_mean(features, DOMAIN.encode(table(N, 1)))
    vector = vector + 1e-4 * np.random.default_rng(2).normal(size=len(vector))
    return release_around(vector, features, DOMAIN, table(N, 3), noise=1e-4, n_rows=N, method="random-features")


UNSEEN = table(4000, 4)


def test_values_are_the_means_of_even_parts():
    cells, ones = np.array([4.0, 1.0, 3.0, 2.0]), np.ones(4)
    assert _means_of_parts(cells, cells, ones, 2).tolist() == [1.5, 3.5]
    assert _means_of_parts(cells, cells, ones, 4).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert _means_of_parts(cells, cells, np.array([1.0, 9.0, 1.0, 1.0]), 2).tolist() == pytest.approx([1.0, 12 / 6])
    assert _means_of_parts(np.exp(cells), cells, ones, 1).tolist() == pytest.approx([np.exp(cells).mean()])


def test_values_follow_the_distribution_given_the_row(release: Release):
    """Spikes stay spikes; the mean of a row's values is near the mean given the row."""
    found = fit_smoothed_numbers(release, "cost", COLUMNS).values_of(UNSEEN)
    assert found.shape == (4000, 4) and found.min() == 0 and found.max() <= 40 and (np.diff(found) >= 0).all()
    low, high = UNSEEN["a"] < -1.2, UNSEEN["a"] > 0
    assert (found[low] == 0).mean() > 0.95 and (found[high] == 0).mean() < 0.02
    a, b, zug = UNSEEN["a"], UNSEEN["b"], UNSEEN["city"] == "Zug"
    truth = (15 + 4 * a + 3 * b * zug)[high]
    assert r2_score(truth, found[high].mean(axis=1)) > 0.85
    assert found[high].std(axis=1).mean() == pytest.approx(4, rel=0.25)
    np.testing.assert_array_equal(found, fit_smoothed_numbers(release, "cost", COLUMNS).values_of(UNSEEN))


def test_values_are_given_the_columns_that_a_model_sees(release: Release):
    """The day follows the cost: given it too, values of rows that are alike to the model would differ as drawn ones do."""
    alike = UNSEEN.iloc[[0] * len(UNSEEN)].assign(**{name: UNSEEN[name].to_numpy() for name in ("day", "visits")})
    assert np.ptp(fit_smoothed_numbers(release, "cost", COLUMNS).values_of(alike), axis=0).max() == 0
    for predictors in ((), (*COLUMNS, "computed")):
        assert np.ptp(fit_smoothed_numbers(release, "cost", predictors).values_of(alike), axis=0).max() > 10


@every(("make", "least"), [(lambda: DecisionTreeRegressor(random_state=0), 0.1), (lambda: KNeighborsRegressor(5), 0.01)])
def test_models_that_follow_single_values_gain(release: Release, make: Any, least: float):
    smoothed, drawn = (ka.fit(make(), release, "cost", columns=COLUMNS, labels=labels) for labels in (None, "released"))
    assert smoothed.report.labels == "smoothed" and smoothed.report.rows == 4 * N
    gained, before = (r2_score(UNSEEN["cost"], model.predict(UNSEEN)) for model in (smoothed, drawn))
    assert gained > before + least


def test_a_quantile_is_learned_from_the_released_values(release: Release):
    """Of four values, the one at .8 would be the mean of the last quarter."""
    few = release.replaced(points=release.frame.head(60), weights=np.full(60, 1 / 60))
    assert ka.fit(QuantileRegressor(quantile=0.8, alpha=0), few, "cost", columns=["a"]).report.labels == "released"
    boosting = HistGradientBoostingRegressor(loss="quantile", quantile=0.8, max_iter=60)
    model = ka.fit(boosting, release, "cost", columns=["a"])
    assert model.report.labels == "released"
    below = (UNSEEN["cost"] < model.predict(UNSEEN))[UNSEEN["a"] > 0].mean()
    assert 0.77 < below < 0.83
    assert ka.fit(LinearRegression(), release, "cost", columns=["a"]).report.labels == "smoothed"


def test_dates_are_learned_in_days(release: Release):
    model = ka.fit(LinearRegression(), release, "day", columns=COLUMNS)
    days = (pd.to_datetime(UNSEEN["day"]) - pd.Timestamp("1970-01-01")).dt.days
    assert model.report.labels == "smoothed" and r2_score(days, model.predict(UNSEEN)) > 0.5


def test_an_estimator_without_weights_gets_every_value_or_as_many_rows_as_asked_for(release: Release):
    source = find_labels("smoothed", release, DOMAIN["cost"], "regression", ("a",))
    goal = target_of(release, "cost")
    every = training_rows(release, goal, "resampled", labels=source)
    assert len(every.weights) == 4 * N and every.cells is not None
    np.testing.assert_array_equal(every.cells.reshape(N, 4), source.values_of(release.frame))  # type: ignore[union-attr]
    some = training_rows(release, goal, "resampled", labels=source, effective_rows=500)
    assert len(some.weights) == 500 and len(some.frame.drop_duplicates()) == 500


def test_numbers_that_cannot_be_smoothed_say_why(release: Release):
    for kind, target, reason in (
        (release.transform({"double": "2 * cost"}), "double", "not measured, but computed"),
        (ka.from_frame(table(100, 0).assign(weight=1.0), domain=DOMAIN), "cost", "no measurement"),
    ):
        with pytest.raises(ValueError, match=reason):
            ka.fit(LinearRegression(), kind, target, labels="smoothed")
        assert ka.fit(LinearRegression(), kind, target, columns=["a"]).report.labels == "released"
    with pytest.raises(ValueError, match="it is a categorical"):
        fit_smoothed_numbers(release, "city")
