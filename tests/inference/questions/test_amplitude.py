"""Tests of the amplitude of conditional means: what the measurement says of it, and that intervals hold a flattened ridge."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import release_side
from kmeanalyst.inference.questions import conditional_embedding
from kmeanalyst.inference.questions.conditional import conditional_expectation
from kmeanalyst.inference.questions.conditional_embedding import Smoother, smoother
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real

PLANE = Domain((Real(name="x", lower=-5, upper=5), Real(name="y", lower=-5, upper=5)))
GIVEN = [-2.5, -1.5, -0.75, 0.0, 0.75, 1.5, 2.5]


def wave(seed: int, rows: int, features: int, epsilon: float) -> Release:
    """A rehearsed release of 2 sin x and noise."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.normal(0, 1.8, rows), -5, 5)
    frame = pd.DataFrame({"x": x, "y": np.clip(2 * np.sin(x) + rng.normal(0, 0.7, rows), -5, 5)})
    return release_side.publish(
        frame, PLANE, epsilon=epsilon, delta=1e-6, features=features, points=200, rehearsal=seed, uncounted=True
    )


@pytest.fixture(scope="module")
def flat() -> Release:
    return wave(0, 5000, 100, 1.0)


def regression(release: Release, where: str | None = None) -> Smoother:
    return smoother(release, ["x"], where=where, view=None, kernel=None)


def found(release: Release, where: str | None = None) -> conditional_embedding.Amplitudes:
    smooth = regression(release, where)
    amplitudes = smooth.amplitudes(smooth.at(np.array(GIVEN)[:, None]))
    assert amplitudes is not None
    return amplitudes


def test_the_precision_is_the_inverse_of_noise_and_prior(flat):
    fit, measurement = regression(flat).population.model.fit, flat.measurement
    precision = conditional_embedding._Precision.of(measurement, fit)
    S = measurement.noise_scale**2 * np.eye(100) + precision.centred.T @ precision.centred
    D = np.random.default_rng(0).normal(size=(100, 3))
    np.testing.assert_allclose(precision @ D, np.linalg.solve(S, D), rtol=1e-6, atol=1e-8 / measurement.noise_scale**2)
    features = measurement.feature_map(fit.rows)
    covariance = np.cov(features.T, aweights=fit.weights, ddof=0) * fit.prior_variance.sum()
    np.testing.assert_allclose(np.trace(S), 100 * measurement.noise_scale**2 + np.trace(covariance), rtol=0.05)


def test_what_is_given_is_not_moved_and_what_depends_on_it_is(flat):
    """p and q have the same rows of x: no change of amplitude moves E[x | x] or E[3 | x], and every one moves E[y | x]."""
    amplitudes = found(flat)
    for question in ("x", "3", "x > 1"):
        values = amplitudes.population.values(question)
        moved, error = amplitudes.of(question, values)
        assert not moved.any() and not error.any()
    moved, error = amplitudes.of("y", amplitudes.population.values("y"))
    assert np.abs(moved[[1, 5]]).max() > 0.01 and (error[[1, 5]] > 0.05).all() and (error >= np.abs(moved)).all()
    np.testing.assert_allclose(amplitudes.of("-2 * y", -2 * amplitudes.population.values("y")), [-2 * moved, 2 * error])


def test_the_mean_is_in_proportion_to_what_the_fit_leaves_and_the_deviation_is_not(flat, monkeypatch):
    usual, before = conditional_embedding._precision, found(flat)
    assert (before.deviation < conditional_embedding._PRIOR).all() and (before.deviation > 0).all()

    def three_times(*fit):
        precision = usual(*fit)
        return replace(precision, residual=3 * precision.residual)

    monkeypatch.setattr(conditional_embedding, "_precision", three_times)
    np.testing.assert_allclose(found(flat).mean, 3 * before.mean, rtol=1e-9)
    np.testing.assert_array_equal(found(flat).deviation, before.deviation)


def test_fewer_rows_determine_an_amplitude_less(flat):
    assert (found(flat, where="y > 0").deviation[[1, 5]] > found(flat).deviation[[1, 5]]).all()


def test_an_expectation_is_moved_and_its_resolution_includes_what_is_left_open(flat):
    smooth = regression(flat)
    at = smooth.at(np.array(GIVEN)[:, None])
    values = smooth.population.values("y")
    released, influences, left = smooth.answers(values, at)
    moved, error = found(flat).of("y", values)
    resolution = smooth.population.model.parts(influences)["resolution"]
    answers = conditional_expectation(flat, "y", given={"x": GIVEN})
    np.testing.assert_allclose([e.value for e in answers], released + moved)
    wanted = np.sqrt(resolution**2 + left**2 + error**2)
    np.testing.assert_allclose([e.parts["resolution"] for e in answers], wanted)


def test_derived_columns_are_exchanged_with_the_columns_they_come_from(flat):
    twice = flat.transform({"twice": "2 * x"})
    assert conditional_embedding._sources(twice, ["twice"]) == {"twice", "x"}
    smooth = smoother(twice, ["twice"], where=None, view=None, kernel=None)
    amplitudes = smooth.amplitudes(smooth.at(2 * np.array(GIVEN)[:, None]))
    moved, error = amplitudes.of("x", amplitudes.population.values("x"))
    assert not moved.any() and not error.any()


def test_points_without_a_measurement_have_no_amplitude(foreign_release):
    smooth = smoother(foreign_release, foreign_release.columns.names[:1], where=None, view=None, kernel=None)
    assert smooth.amplitudes(smooth.features[:1]) is None


@pytest.mark.levels
def test_intervals_hold_a_ridge_that_noise_has_flattened():
    """Of 70 intervals at 95 % at least 60; of those without amplitudes at most 52, and of 1.2 below the truth at most 35."""
    truth, held = 2 * np.sin(GIVEN), np.zeros(3)
    for seed in range(10):
        release = wave(seed, 20_000, 500, 0.1)
        answers = conditional_expectation(release, "y", given={"x": GIVEN})
        value, error = np.array([(e.value, e.standard_error) for e in answers]).T
        smooth = regression(release)
        flat, influences, left = smooth.answers(smooth.population.values("y"), smooth.at(np.array(GIVEN)[:, None]))
        parts = smooth.population.model.parts(influences)
        alone = np.sqrt(sum(part**2 for part in parts.values()) + left**2)
        for k, (centre, width, at) in enumerate(
            [(value, error, truth), (flat, alone, truth), (value, error, truth - 1.2)]
        ):
            held[k] += (np.abs(centre - at) <= 1.96 * width).sum()
    assert held[0] >= 60 and held[1] <= 52 and held[2] <= 35, held
