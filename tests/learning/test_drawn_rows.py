"""Rows drawn from a measurement for models of numbers, and the distribution of a number that gives their labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from learning_cases import release_around
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsRegressor

import kmeanalyst as ka
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.learning.column_law.number_law import Bins, RowFunctions, fit_number_law
from kmeanalyst.learning.rows.labels import _check_tails, drawn_rows, number_law
from kmeanalyst.learning.training.training import refit_on
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.measurement import feature_mean
from kmeanalyst.releases.memo import memo

N, NOISE = 20_000, 3e-4
DOMAIN = Domain((
    Real(name="a", lower=-3, upper=3),
    Real(name="b", lower=0, upper=1),
    Boolean(name="smokes"),
    Real(name="cost", lower=-20, upper=30, missing=True),
    Integer(name="visits", lower=0, upper=40, atoms=(0,)),
))  # fmt: skip


def table(n: int, seed: int) -> pd.DataFrame:
    """A cost that depends on the others by a curve and an interaction, sometimes missing; visits, often none."""
    rng = np.random.default_rng(seed)
    a, b, smokes = rng.normal(size=n).clip(-3, 3), rng.random(n), rng.random(n) < 0.4
    cost = (4 * a * smokes + 12 * (b - 0.5) ** 2 + 3 * a + 1.5 * rng.normal(size=n)).clip(-20, 30)
    visits = np.where(rng.random(n) < 0.3 + 0.4 * smokes, 0, 1 + rng.poisson(8 * b + 2)).clip(0, 40)
    frame = pd.DataFrame({"a": a, "b": b, "smokes": smokes, "cost": cost, "visits": visits})
    return frame.assign(cost=frame["cost"].where(rng.random(n) > 0.1))


UNSEEN = table(3000, 9).dropna()


def release_of(weights: np.ndarray | None = None, extra: int = 0, noise: float = NOISE) -> Release:
    """100 points unrelated to their costs, around a measurement of N rows; `extra` more points of weight 0 at the end."""
    missing = [j for j, column in enumerate(DOMAIN.columns) if column.missing]
    kernel: Any = table_kernel(DOMAIN)
    features = RandomFourier.draw(kernel, n_columns=len(DOMAIN), dimension=600, missing_columns=missing, rng=1)
    vector = feature_mean(features, DOMAIN.encode(table(N, 1))) + noise * np.random.default_rng(0).normal(size=600)
    points = table(100 + extra, 3)
    points["cost"] = np.random.default_rng(0).permutation(points["cost"].to_numpy())
    weights = np.append(np.full(100, 0.01) if weights is None else weights, np.zeros(extra))
    return release_around(
        vector, features, DOMAIN, points, noise=noise, n_rows=N, weights=weights, method="random-features"
    )


def measurement_of(noise: float = NOISE) -> Any:
    return release_of(noise=noise).measurement


@pytest.fixture(scope="module")
def release() -> Release:
    return release_of()


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return DOMAIN.encode(table(4000, 5))


# ---------------------------------------------------------------- the distribution of a number


def test_bins_hold_every_value_once_and_special_values_have_their_own(rows: np.ndarray):
    for name in ("cost", "visits"):
        j = DOMAIN.position(name)
        column: Any = DOMAIN[name]
        bins = Bins.of(rows[:, j], column)
        np.testing.assert_array_equal(np.sort(np.concatenate(bins.members)), np.sort(rows[:, j]))
        np.testing.assert_allclose(bins.shares, [len(part) / len(rows) for part in bins.members])
        moments = (bins.scores * bins.shares[:, None]).T @ bins.scores
        np.testing.assert_allclose(moments, np.eye(bins.scores.shape[1]), atol=1e-9)
        np.testing.assert_allclose(bins.shares @ bins.scores, 0, atol=1e-9)
    assert np.isnan(Bins.of(rows[:, 3], DOMAIN["cost"]).members[-1]).all()  # type: ignore[arg-type]
    assert sum(0 in part for part in bins.members) == 1 and set(bins.members[-1]) == {0.0}


def test_the_phasor_of_bins_is_that_of_their_values(rows: np.ndarray):
    """Not of their middles: a high frequency would distinguish forty atoms from a continuum."""
    features: Any = measurement_of().feature_map
    bins, looks = Bins.of(rows[:, 3], DOMAIN["cost"]), features.looks_at(3)  # type: ignore[arg-type]
    mean = bins.shares @ bins.phasors(features, 3, looks)
    np.testing.assert_allclose(mean, np.exp(1j * features.column_phases(3, rows[:, 3], looks)).mean(axis=0), atol=1e-5)


def test_a_number_of_one_value_has_no_bins():
    column: Any = DOMAIN["a"]
    with pytest.raises(ValueError, match=r"'a' has one value .* there is nothing to predict\. Choose another target"):
        Bins.of(np.full(50, 1.5), column)


def test_row_functions_are_centred_and_do_not_use_the_target(rows: np.ndarray):
    functions = RowFunctions.of(DOMAIN, 3, rows, 200)
    psi = functions(rows)
    np.testing.assert_allclose(psi[:, 0], 1)
    np.testing.assert_allclose(psi[:, 1:].mean(axis=0), 0, atol=1e-9)
    other = rows.copy()
    other[:, 3] = np.nan
    np.testing.assert_array_equal(functions(other), psi)
    assert psi.shape[1] == len(functions.blocks) <= 200
    assert RowFunctions.of(DOMAIN, 3, rows, 20)(rows).shape[1] <= 20
    with pytest.raises(ValueError, match=r"too many numbers to fit: more than 3 functions"):
        RowFunctions.of(DOMAIN, 3, rows, 3)


def test_the_distribution_of_a_number_is_found_with_its_spread(rows: np.ndarray):
    """Rows whose cost is shuffled, and the measurement: its mean, and its variance given the rest, about 1.5²."""
    shuffled = np.random.default_rng(0).permutation(rows[:, 3])
    law = fit_number_law(measurement_of(), DOMAIN, 3, rows, shuffled)
    p = law.probabilities(DOMAIN.encode(UNSEEN))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    present = p[:, :-1] / p[:, :-1].sum(axis=1, keepdims=True)
    mean = present @ [part.mean() for part in law.bins.members[:-1]]
    square = present @ [(part**2).mean() for part in law.bins.members[:-1]]
    assert r2_score(UNSEEN["cost"], mean) > 0.8  # 0 without the measurement, .88 by the true mean
    assert 1.5**2 < float((square - mean**2).mean()) < 10  # of 20 without the other columns
    assert abs(p[:, -1].mean() - 0.1) < 0.03 and law.residual < 0.7


def test_a_distribution_fitted_under_much_noise_is_no_worse_than_a_constant(rows: np.ndarray):
    """The priors' spreads are estimated: noise a hundred times larger than above is not fitted."""
    law = fit_number_law(measurement_of(100 * NOISE), DOMAIN, 3, rows, rows[:, 3])
    mean = law.probabilities(DOMAIN.encode(UNSEEN))[:, :-1] @ [part.mean() for part in law.bins.members[:-1]]
    assert r2_score(UNSEEN["cost"], mean) > -0.1


# ---------------------------------------------------------------- rows drawn by it
@pytest.mark.slow
def test_models_of_numbers_learn_from_drawn_rows_what_the_points_do_not_say(release: Release):
    for estimator, least in (
        (LinearRegression(), 0.6),
        (HistGradientBoostingRegressor(), 0.7),
        (KNeighborsRegressor(), 0.6),
    ):
        model = ka.fit(estimator, release, "cost", columns=["a", "b", "smokes"])
        assert model.report.labels == "drawn" and "released points" in str(model.report)  # type: ignore[union-attr]
        assert r2_score(UNSEEN["cost"], model.predict(UNSEEN)) > least
        own = ka.fit(estimator, release, "cost", columns=["a", "b", "smokes"], labels="released")
        assert r2_score(UNSEEN["cost"], own.predict(UNSEEN)) < 0.3


def test_drawn_labels_follow_the_distribution_given_each_row(release: Release):
    """Four labels of each row, evenly along its distribution: their mean is its mean, up to a quarter's spread."""
    found, law = drawn_rows(release, DOMAIN["cost"]), number_law(release, "cost")
    p = law.probabilities(DOMAIN.encode(found.frame))[:, :-1]
    mean = p / p.sum(axis=1, keepdims=True) @ [part.mean() for part in law.bins.members[:-1]]
    own = pd.DataFrame({"cost": found.cells, "mean": mean}).groupby(found.frame["a"].to_numpy()).mean()
    assert np.isfinite(found.cells).all() and len(found.cells) == 20_000 and len(own) > 4500
    assert (own["cost"] - own["mean"]).std() < 0.45 * (found.cells - mean).std()
    assert abs((own["cost"] - own["mean"]).mean()) < 0.05
    assert found.cells.min() >= -20 and found.cells.max() <= 30


def test_drawn_whole_numbers_are_whole_and_atoms_keep_their_share(release: Release):
    cells = drawn_rows(release, DOMAIN["visits"]).cells
    np.testing.assert_array_equal(cells, np.rint(cells))
    assert abs((cells == 0).mean() - (table(N, 1)["visits"] == 0).mean()) < 0.05


def test_drawn_rows_do_not_depend_on_the_points_weights(release: Release):
    """Weights times a constant, of both signs, and rows of weight 0 change nothing, to the last bit."""
    weights = np.full(100, 0.01)
    weights[:10] *= -1
    first = ka.fit(Ridge(), release, "cost").predict(UNSEEN)
    for other in (release_of(7 * weights), release_of(weights, extra=20)):
        memo(other)["fitted mixture"] = memo(release)["fitted mixture"]  # of the same measurement, and some seconds
        model = ka.fit(Ridge(), other, "cost")
        assert (model.report.labels, model.report.view) == ("drawn", "probability")  # type: ignore[union-attr]
        np.testing.assert_array_equal(model.predict(UNSEEN), first)


def test_labels_and_view_can_be_chosen(release: Release):
    for labels in ("drawn", "released", "measured"):
        assert ka.fit(Ridge(), release, "cost", labels=labels).report.labels == labels  # type: ignore[arg-type,union-attr]
    report: Any = ka.fit(Ridge(), release, "cost", view="probability").report
    assert (report.labels, report.rows) != ("drawn", 20_000)
    report = ka.fit(KNeighborsRegressor(), release, "cost", view="resampled", effective_rows=300).report
    assert (report.labels, report.rows) == ("drawn", 300)
    X, y, weights = release.to_sklearn("cost", labels="drawn", effective_rows=50)
    assert len(X) == len(y) == 20_000 and weights.sum() == pytest.approx(50)


def test_where_rows_cannot_be_drawn_models_learn_from_others_and_asking_for_them_is_refused(release: Release):
    """For classes, without a measurement, and under much noise, where the released points are better."""
    external, noisy = ka.from_frame(UNSEEN.assign(weight=1.0), domain=DOMAIN), release_of(noise=20 * NOISE)
    for estimator, data, target, reason in (
        (LogisticRegression(), release, "smokes", "they are for numbers"),
        (Ridge(), external, "cost", 'there is no measurement.*take "released"'),
        (Ridge(), noisy, "cost", r"the noise is 0\.1 of a feature.s size"),
    ):
        assert ka.fit(estimator, data, target).report.labels != "drawn"  # type: ignore[union-attr]
        for ask in (lambda d=data, e=estimator, t=target: ka.fit(e, d, t, labels="drawn"),
                    lambda d=data, t=target: d.to_sklearn(t, labels="drawn")):  # fmt: skip
            with pytest.raises(ValueError, match=f'cannot be "drawn" here: {reason}'):
                ask()
    with pytest.raises(ValueError, match=r"have equal weights, and no signed ones.*Leave view out"):
        ka.fit(Ridge(), release, "cost", view="signed", labels="drawn")


def test_a_refit_draws_from_its_own_measurement(release: Release):
    model = ka.fit(LinearRegression(), release, "cost")
    other = release_of(noise=2 * NOISE)
    memo(other)["fitted mixture"] = memo(release)["fitted mixture"]
    again = refit_on(model, other)
    assert again.report.labels == "drawn"  # type: ignore[union-attr]
    assert 0 < np.abs(again.predict(UNSEEN) - model.predict(UNSEEN)).mean() < 1


def test_numbers_with_long_tails_are_left_to_the_points():
    """The mixture's values show it, in natural units."""
    column: Any = Real(name="income", lower=0, upper=1e6)
    values = np.random.default_rng(0).pareto(1.5, 5000).clip(0, 1e6)
    with pytest.raises(ValueError, match=r"'income' has long tails.*mostly noise\. Leave labels out"):
        _check_tails(column, values)
    _check_tails(column, np.random.default_rng(0).normal(100, 10, 5000))
