"""Populations that a measurement allows: the fit is the optimum it claims, and its error bars are honest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from simulated_releases import DOMAIN, MAPS, NOISE_SCALE, N, noisy, population

import release_side
from kmeanalyst.inference.estimate.error_model import error_model
from kmeanalyst.inference.posterior import smooth
from kmeanalyst.inference.posterior.compatible import CompatiblePopulations
from kmeanalyst.inference.posterior.posterior import Posterior
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.near_rows import clouds_around
from kmeanalyst.representation.weights.views import view_weights


def problem(seed: int = 0) -> smooth._Problem:
    rng = np.random.default_rng(seed)
    A, q = rng.normal(size=(60, 4)), rng.dirichlet(np.ones(60))
    return smooth._Problem(A, A.T @ rng.dirichlet(np.full(60, 0.3)), np.log(q), 1e-4, 500)


def test_the_fit_meets_the_conditions_of_its_optimum():
    """p ∝ q exp(Aβ), and Aᵀp − y + Rβ/κ = 0: the measurement is met but for what the reference holds back."""
    posed = problem()
    R, kappa = posed.error(np.exp(posed.log_reference)), 0.7
    dual, p = posed._solved(R, kappa, np.zeros(4))
    np.testing.assert_allclose(posed.A.T @ p - posed.target + R @ dual / kappa, 0, atol=1e-6)
    ratio = np.log(p) - posed.log_reference - posed.A @ dual
    assert np.ptp(ratio) < 1e-10 and p.sum() == pytest.approx(1)


def around(release: Release, measurement: Measurement | None = None) -> Posterior:
    points, weights = release.encoded_points, view_weights(release, "probability")
    return smooth.around_clouds(measurement or release.measurement, release.domain, points, weights)


def test_the_privacy_part_is_how_the_answer_follows_the_measurement(release, monkeypatch):
    """a = d(pᵀh)/dy, by refitting two nearby measurements at the same κ, where no mass is taken elsewhere, nor N is small."""
    monkeypatch.setattr(smooth, "_OUTSIDE", 0.0)
    fit = around(release, replace(release.measurement, n_rows=10**9))
    A, p = fit.clouds @ fit.seen(fit.rows), fit.answers
    q = clouds_around(DOMAIN, release.encoded_points, view_weights(release, "probability"), np.random.default_rng(0))[2]
    dual = np.linalg.lstsq(np.column_stack([A, np.ones(len(A))]), np.log(p) - np.log(q), rcond=None)[0][:-1]
    posed = smooth._Problem(A, np.zeros(len(dual)), np.log(q), fit.noise_scale**2, fit.n_rows)
    R = posed.error(p)
    met = replace(posed, target=A.T @ p + R @ dual / fit.spread)
    values = np.random.default_rng(1).normal(size=(len(p), 1))
    step = 1e-4 * np.random.default_rng(2).normal(size=len(dual))
    ahead, behind = (replace(met, target=met.target + sign * step)._solved(R, fit.spread, dual)[1] @ values for sign in (1, -1))
    assert ahead - behind == pytest.approx(2 * step @ fit._solved(values - p @ values), rel=1e-2)


def test_what_is_left_open_departs_from_the_reference_as_the_finest_that_is_seen():
    """Coarse features that depart by 1 and fine ones by 0.2, in standard deviations: κ is near 0.04, not near 0.5."""
    rng, n, K = np.random.default_rng(5), 4000, 60
    coarse, q, R = np.arange(K) < K // 2, np.full(n, 1 / n), np.diag(np.full(K, 1e-4))
    A = rng.normal(size=(n, K)) * np.where(coarse, 2, 1)  # the coarse ones are of larger variance
    dual = np.where(coarse, 1.0, 0.2) * rng.normal(size=K) / A.std(axis=0)
    posed = smooth._Problem(A, np.zeros(K), np.log(q), 1e-4, 10**6)
    assert 0.03 < posed._spread_of_finest(dual, q, R, 0.5) < 0.15
    assert posed._spread_of_finest(5 * dual, q, R, 0.5) == 0.5


@pytest.fixture
def release() -> Release:
    rng, feature_map = np.random.default_rng(5), MAPS["random-features"]
    return noisy(feature_map, feature_map(population(N, rng)).mean(axis=0), NOISE_SCALE[1.0], rng)


def parts_of(fit: Posterior, column: int) -> dict[str, float]:
    return {name: float(np.sqrt(one[0, 0])) for name, one in fit.covariance(fit.rows[:, [column]]).items()}


def test_a_fit_is_a_population_and_the_same_each_time(release):
    fit, again = (around(release) for _ in range(2))
    assert fit.weights.min() >= 0 and fit.weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(fit.weights, again.weights)
    np.testing.assert_array_equal(DOMAIN.encode(DOMAIN.decode(fit.rows)), fit.rows)
    np.testing.assert_allclose(fit.answers @ (fit.clouds @ fit.rows), fit.weights @ fit.rows, atol=1e-12)
    assert fit.clouds.sum(axis=1) == pytest.approx(np.ones(len(fit.answers)))
    assert 0.01 < np.abs(fit.second).sum() < 0.5 and abs(fit.second.sum()) < 1e-9
    h, rng = (fit.prior.apart / fit.prior.weights)[:, None], np.random.default_rng(0)
    assert (h.T @ fit.prior.draws(4000, rng)).var() == pytest.approx(fit.prior.left_open(h, h)[0, 0], rel=0.1)


def test_more_noise_means_wider_error_bars(release):
    """And never zero: if a measurement contains hardly any information, κ is uncertain."""
    widths = []
    for times in (1, 10, 100):
        louder = replace(release.measurement, noise_scale=times * release.measurement.noise_scale)
        parts = parts_of(around(release, louder), 0)
        widths.append(np.sqrt(sum(part**2 for part in parts.values())))
    assert widths[0] < widths[1] < widths[2]


def test_the_robust_range_is_over_all_compatible_weights(release):
    """By hand: two directions, three rows. And a real one holds the truth, the default, and a population it was made of."""
    by_hand = CompatiblePopulations(np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 5.0]]), np.array([0.01, 0.01]))
    values = np.array([1.0, 2.0, 3.0])
    low, high = by_hand.least(values, 0.95), -by_hand.least(-values, 0.95)
    z = norm.ppf(1 - 0.05 / 4) * 0.01
    assert (low, high) == (pytest.approx(1.0), pytest.approx(1 + z / 3 + 2 * z / 5))
    estimate = release.probability("x0 > 0.5")
    low, high = estimate.interval(kind="robust")
    truth = (population(200_000, np.random.default_rng(9))[:, 0] > 0.5).mean()
    assert low <= min(truth, estimate.interval()[0]) and high >= max(truth, estimate.interval()[1])
    assert high - low < 1 and release.probability("x0 > 0.5").interval(0.5, kind="robust")[1] <= high
    assert (2 * estimate).interval(kind="robust") == (pytest.approx(2 * low), pytest.approx(2 * high))


def test_where_no_population_agrees_the_nearest_ones_are_taken():
    """Rows at 1 and 3 of a coordinate where the measurement says 0 ± 0.1: the nearest is all mass at 1."""
    distant = CompatiblePopulations(np.array([[1.0], [3.0]]), np.array([0.1]))
    values = np.array([0.0, 1.0])
    low, high = distant.least(values, 0.95), -distant.least(-values, 0.95)
    assert low == 0 and high == pytest.approx(0.01 / 2)


def test_a_domain_of_few_rows_is_whole_in_the_robust_range():
    """On levels and whole numbers the range is over every population there is; beyond a thousand rows it is not."""
    rng = np.random.default_rng(0)
    age, sex = np.clip(rng.poisson(4, 5000), 0, 9), rng.choice(["F", "M"], 5000, p=[0.3, 0.7])
    table = pd.DataFrame({"age": age, "sex": sex})
    domain = Domain((Integer(name="age", lower=0, upper=9), Categorical(name="sex", levels=("F", "M"), missing=True)))
    few = release_side.publish(table, domain, epsilon=1.0, delta=1e-6, rehearsal=1, features=100, points=50)
    rows = around(few).rows[:30]
    assert len(np.unique(rows, axis=0)) == 30 and np.isnan(rows[:, 1]).sum() == 10
    asked = few.probability("age == 3 and sex == 'F'")
    low, high = asked.interval(kind="robust")
    assert low <= 0.3 * 0.195367 <= high and high - low < 0.3
    wide = Domain((Integer(name="age", lower=0, upper=499), domain["sex"]))
    assert wide.enumerate_rows(1000) is None and len(wide.enumerate_rows(1500)) == 1500
    assert Domain((Real(name="x", lower=0, upper=1),)).enumerate_rows(10**9) is None


@pytest.mark.levels
def test_a_quantile_s_robust_interval_holds_those_of_compatible_populations(release):
    """P(x0 <= x) is at least 1/2 for some population at the lower end, and for each of them at the upper."""
    median = release.quantile("x0", 0.5)
    low, high = median.interval(kind="robust")
    assert low <= median.interval()[0] and high >= median.interval()[1] and low < high
    assert release.cdf("x0", low).interval(kind="robust")[1] >= 0.5 - 1e-9
    assert release.cdf("x0", high).interval(kind="robust")[0] >= 0.5 - 1e-9
    assert release.cdf("x0", low - 1e-9).interval(kind="robust")[1] < 0.5
    assert release.cdf("x0", high - 1e-9).interval(kind="robust")[0] < 0.5
    truth = np.median(population(200_000, np.random.default_rng(9))[:, 0])
    assert low <= truth <= high


def test_the_fitted_view_is_of_the_fitted_population_with_the_same_errors(release, foreign_release):
    fit = around(release)
    rows = release.domain.decode(fit.rows)
    fitted, released = release.expectation("x0 * x1"), release.expectation("x0 * x1", view="signed")
    assert fitted.value == pytest.approx(fit.weights @ (rows["x0"] * rows["x1"]).to_numpy(), rel=1e-9)
    away = abs(fitted.value - released.value)
    assert fitted.view == "fitted" and away > 1e-6
    own = np.sqrt(fit.covariance((rows["x0"] * rows["x1"]).to_numpy()[:, None])["resolution"][0, 0])
    for answer, share in ((fitted, 0.5), (released, 1.0)):
        others = {name: released.parts[name] for name in ("privacy", "sampling")}
        assert answer.parts == pytest.approx(others | {"resolution": np.hypot(own, share * away)})
    frame = release.to_frame("fitted")
    assert frame["weight"] @ (frame["x0"] * frame["x1"]) == pytest.approx(fitted.value)
    high = (rows["x0"] > 0.5).to_numpy()
    given = release.mean("x1", where="x0 > 0.5", view="fitted")
    assert given.value == pytest.approx((fit.weights * high) @ rows["x1"].to_numpy() / (fit.weights @ high))
    assert (given - given).standard_error == 0
    low, top = release.probability("x0 > 0.5", view="fitted").interval(kind="robust")
    same = release.probability("x0 > 0.5", view="signed").interval(kind="robust")
    assert (low, top) == (pytest.approx(same[0], abs=0.02), pytest.approx(same[1], abs=0.02))
    median, corr = release.quantile("x0", 0.5, view="fitted"), release.corr(view="fitted")["x0", "x1"]
    assert median.view == corr.view == "fitted" and release.cdf("x0", median.value, view="fitted").value >= 0.5
    with pytest.raises(ValueError, match=r"(?s)fitted view and the other of the probability view.*Ask for both"):
        fitted - release.probability("x0 > 0", view="probability")
    with pytest.raises(ValueError, match=r"no measurement, so no population.*Ask view="):
        foreign_release.mean("age", view="fitted")
    with pytest.raises(ValueError, match=r"conditional distribution is of the released points.*Ask for view="):
        release.conditional_expectation("x0", given={"x1": 0.0}, view="fitted")


def test_without_a_measurement_there_is_no_robust_interval(foreign_release):
    with pytest.raises(ValueError, match=r"(?s)populations that agree with a measurement.*there is none.*Ask kind="):
        foreign_release.mean("age").interval(kind="robust")


TABLE = Domain((
    Integer(name="age", lower=17, upper=90), Real(name="gain", lower=0, upper=10_000, atoms=(0,)),
    Categorical(name="job", levels=("a", "b", "c")),
))  # fmt: skip
QUESTIONS = (
    "age", "gain", "age > 50", "age > 30 and age < 45", "gain == 0", "gain > 3000", "job == 'c'", "age * (job == 'b')",
    "age > 50 and job == 'a'", "gain > 0 and age > 40 and job == 'a'",
)  # fmt: skip


def staff(n: int, rng: np.random.Generator) -> pd.DataFrame:
    age = np.clip(rng.gamma(6, 6.5, n) + 8, 17, 90).astype(int)
    job = np.where(rng.random(n) < 0.02, "c", np.where(rng.random(n) < age / 120, "a", "b"))
    return pd.DataFrame({"age": age, "gain": np.where(rng.random(n) < 0.8, 0.0, rng.gamma(1.5, 1500, n)), "job": job})


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 0.2])
def test_intervals_hold_smooth_and_sharp_truths_of_a_mixed_table(epsilon):
    """Ten questions, seven releases; the whole table is in tests/benchmarks/coverage_of_intervals.py."""
    everyone = TABLE.decode(TABLE.encode(staff(300_000, np.random.default_rng(0))))
    truths = [np.asarray(values_of(q, everyone)).mean() for q in QUESTIONS]
    held, widths = [], []
    for seed in range(7):
        rng = np.random.default_rng([seed, 1])
        release = release_side.publish(
            staff(5000, rng), TABLE, epsilon=epsilon, delta=1e-6, points=100, features=300, rehearsal=seed
        )
        intervals = [estimate.interval() for estimate in release.expectations(QUESTIONS)]
        held.append([low <= truth <= high for (low, high), truth in zip(intervals, truths, strict=True)])
        widths.append([high - low for low, high in intervals])
    rates = np.mean(held, axis=0)
    assert rates.mean() >= 0.9 and rates.min() >= 0.5, dict(zip(QUESTIONS, rates, strict=True))
    assert np.mean(widths, axis=0)[2] < (0.1 if epsilon == 1.0 else 0.3)  # P(age > 50): not by being wide


def values_of(question: str, frame: pd.DataFrame) -> np.ndarray:
    from kmeanalyst.releases.expressions import parse

    return np.asarray(parse(question).evaluate(frame, TABLE), dtype=float)


def test_no_combination_of_answers_has_a_negative_variance(mixed_release):
    model = error_model(mixed_release, mixed_release.weights)
    h = np.random.default_rng(0).normal(size=(len(model.frame), 4))
    for covariance in model.covariance(h).values():
        assert np.linalg.eigvalsh(covariance).min() > -1e-12 * np.abs(covariance).max()


def test_a_fit_that_does_not_end_raises(monkeypatch: pytest.MonkeyPatch, mixed_release):
    monkeypatch.setattr(smooth, "_NEWTON_STEPS", 1)
    with pytest.raises(ValueError, match="was not found: after 1 steps"):
        around(mixed_release)
