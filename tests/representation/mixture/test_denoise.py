"""Denoising brings a noisy mean near the table's; the mean feature of points and weights is near the estimate."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import numpy as np
import pytest
from every import every
from representation_cases import PEOPLE, measured, people, simulated

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.representation import represent
from kmeanalyst.representation.mixture import denoise
from kmeanalyst.representation.mixture.denoise import Denoised, denoise_measurement
from kmeanalyst.representation.mixture.mixture import Mixture, MixtureFit
from kmeanalyst.representation.mixture.reduced_set import reduced_set
from kmeanalyst.representation.wanted import Effort, Wanted

PLANE = Domain((Real(name="x", lower=-6, upper=6), Real(name="y", lower=-6, upper=6)))
SHORT = Effort(0.1)  # for tests of what does not depend on the number of points and trajectories
FEATURES = RandomFourier.draw(Gaussian(1.0), n_columns=2, dimension=200, rng=7)


def population(n: int, rng: np.random.Generator) -> Array:
    """Three clusters in the plane."""
    kind = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    means, sds = np.array([[-2.0, 0], [2, 2], [1, -3]]), np.array([0.7, 0.5, 0.9])
    return PLANE.encode(PLANE.decode(means[kind] + sds[kind, None] * rng.standard_normal((n, 2))))


ROWS = population(10_000, np.random.default_rng(11))
TRUTH = feature_mean(FEATURES, ROWS)


def noisy(noise_scale: float, *, seed: int = 100) -> Measurement:
    return measured(FEATURES, ROWS, noise_scale=noise_scale, seed=seed)


def error(mean: Array) -> float:
    return float(np.linalg.norm(mean - TRUTH))


@dataclass(frozen=True)
class Case:
    measurement: Measurement
    estimate: Denoised
    reports: list[tuple[str, float]]


@pytest.fixture(scope="module", params=[pytest.param(0.01, marks=pytest.mark.slow), 0.05])
def case(request) -> Case:
    """A measurement whose noise has norm 0.14 or 0.71, and its estimate."""
    measurement, reports = noisy(request.param), []
    estimate = denoise_measurement(measurement, PLANE, rng=0, progress=lambda *report: reports.append(report))
    return Case(measurement, estimate, reports)


def assert_complete(reports: list[tuple[str, float]]) -> None:
    """Progress goes from 0 to 1 once."""
    shares = [share for _, share in reports]
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] == 1.0


@pytest.mark.parametrize("noise_scale", [0.01, 0.05])
@pytest.mark.slow(but="0.05")
def test_the_estimate_is_far_nearer_than_the_measurement_and_nearer_than_the_sketch(noise_scale: float):
    """√200 coordinates bring noise into the measurement, a few dozen parameters into the estimate.

    Over each of four draws of the noise the ratio to the sketch is .65 to .73 at the small noise, .82 to .96 at the large.
    """
    errors = []
    for seed in range(100, 101 if noise_scale > 0.02 else 104):
        measurement = noisy(noise_scale, seed=seed)
        points, weights = reduced_set(FEATURES, measurement.vector, PLANE, Wanted(n_points=300), enough=noise_scale)
        estimate = denoise_measurement(measurement, PLANE, rng=0)
        errors.append([error(v) for v in (estimate.mean, measurement.vector, feature_mean(FEATURES, points, weights))])
    ours, measured_, sketched = np.sqrt(np.mean(np.square(errors), axis=0))
    assert ours < 0.4 * measured_
    assert ours < (0.97 if len(errors) == 1 else 0.95) * sketched


def test_the_posterior_sd_is_the_error_to_expect(case: Case):
    assert 0.3 * case.estimate.posterior_sd < error(case.estimate.mean) < 2 * case.estimate.posterior_sd


def test_every_stage_reports_its_share_in_order(case: Case):
    stages = list(dict.fromkeys(what for what, _ in case.reports))
    assert stages == ["sketching", "finding clusters", "weighing clusters"]
    assert_complete(case.reports)


@pytest.fixture
def one_component_only(monkeypatch):
    """The search finds one component around everything, and nothing is averaged."""

    def fit_one(search: MixtureFit, *, points: Array, weights: Array, rng, progress) -> Mixture:
        weights = weights / weights.sum()
        return search.fit(search.around(points, weights, np.zeros(len(points), dtype=int)), 50)

    monkeypatch.setattr(denoise, "fit_mixture", fit_one)
    monkeypatch.setattr(denoise, "draw_posterior", lambda *args, **options: None)


def test_the_wiener_step_adds_what_the_mixture_cannot_express(one_component_only, monkeypatch):
    """Three clusters by one component: the error falls below a fifth, to that of the measurement or less."""
    measurement = noisy(0.002)
    corrected = denoise_measurement(measurement, PLANE, rng=0)
    monkeypatch.setattr(denoise, "_explained", lambda measurement, mean: True)
    bare = denoise_measurement(measurement, PLANE, rng=0)
    assert error(bare.mean) > 0.2
    assert error(corrected.mean) < min(0.2 * error(bare.mean), 1.05 * error(measurement.vector))
    assert corrected.posterior_sd > bare.posterior_sd
    assert 0.3 * corrected.posterior_sd < error(corrected.mean) < 2 * corrected.posterior_sd


@every("n_public", [1, 30, 300])
@every("shift", [0.0, 0.3, 1.5])
def test_public_rows_help_where_they_know_more_and_never_hurt(case: Case, n_public: int, shift: float):
    """At the larger noise 300 rows of the same population take a tenth or more off the error.

    Rows 1.5 lengthscales off, or few, cost no more than a tenth of it.
    """
    rng = np.random.default_rng(12)
    errors, before = [], error(case.estimate.mean)
    for _ in range(2):
        public = population(n_public, rng) + shift
        combined = denoise._with_public(case.estimate, case.measurement, public)
        assert 0 <= combined.public <= 1
        errors.append(error(combined.mean))
    after = np.sqrt(np.mean(np.square(errors)))
    assert after < 1.2 * before
    if n_public == 300 and shift == 0 and case.measurement.noise_scale > 0.02:
        assert after < 0.9 * before


def test_public_rows_improve_the_whole_estimate():
    public = population(200, np.random.default_rng(13))
    estimate = denoise_measurement(noisy(0.1), PLANE, public=public, rng=0, effort=Effort(0.3))
    assert estimate.public > 0.3
    assert error(estimate.mean) < 0.2 * error(noisy(0.1).vector)


@pytest.fixture
def known(case: Case, monkeypatch) -> Case:
    """The case, whose estimate is not computed again."""
    monkeypatch.setattr(represent, "denoise_measurement", lambda *args, **options: case.estimate)
    return case


def fit(case: Case, **options) -> tuple[Array, Array]:
    return represent.represent(case.measurement, PLANE, Wanted(**options))


def distance(case: Case, points: Array, weights: Array) -> float:
    """From the estimated mean."""
    return float(np.linalg.norm(feature_mean(FEATURES, points, weights) - case.estimate.mean))


VIEWS = every(("view", "bound"), [("probability", None), ("bounded", None), ("bounded", 0.5), ("signed", None), ("uniform", None)])


@VIEWS
@every("n_points", [3, 400])
def test_every_view_stays_in_the_set_it_is_named_after(known: Case, view: str, bound: float | None, n_points: int):
    points, weights = fit(known, n_points=n_points, view=view, bound=bound)
    assert points.shape == (n_points, 2) and weights.shape == (n_points,)
    np.testing.assert_array_equal(PLANE.encode(PLANE.decode(points)), points)
    if view == "uniform":
        np.testing.assert_array_equal(weights, np.full(n_points, 1 / n_points))
    elif view == "probability":
        assert weights.min() >= 0 and weights.sum() == pytest.approx(1, abs=1e-9)
    else:
        assert np.abs(weights).sum() <= (bound or {"bounded": 1.0, "signed": 2.0}[view]) + 1e-9


@every("view", ["probability", "bounded", "signed", "uniform"])
def test_points_and_weights_add_little_to_the_error(known: Case, view: str):
    """Enough points come within a third of the posterior sd of the estimated mean."""
    assert distance(known, *fit(known, n_points=400, view=view)) < 0.35 * known.estimate.posterior_sd


def test_few_points_are_moved_to_where_they_help_most(known: Case):
    """Three points for three clusters: nearer than three draws of the mixture with fitted weights."""
    start = represent._starting_points(known.estimate, None, 3, np.random.default_rng(0))
    drawn = represent.weights_towards(known.estimate, "probability", start, known.measurement, None)
    assert distance(known, *fit(known, n_points=3)) < 0.9 * distance(known, start, drawn)


def test_public_rows_are_among_the_points_in_proportion_to_their_share(known: Case):
    """Their share of the points, and all of them if there are fewer."""
    rng = np.random.default_rng(0)
    public = population(30, rng)
    worth = Denoised(known.estimate.mean, known.estimate.posterior_sd, known.estimate.mixture, 0.25)
    for n_points, count in ((40, 10), (400, 30)):
        points = represent._starting_points(worth, public, n_points, rng)
        assert points.shape == (n_points, 2)
        given = {row.tobytes() for row in public}
        assert sum(row.tobytes() in given for row in points) == count


def test_other_features_are_not_denoised_and_unknown_weights_are_refused():
    subspace = measured(Nystroem.fit(Gaussian(1.0), ROWS[:20]), ROWS[:50], noise_scale=0.1)
    with pytest.raises(ValueError, match=r"denoised in random Fourier features.*other features.*Give the points your"):
        represent.represent(subspace, PLANE, Wanted(n_points=5))
    with pytest.raises(ValueError, match=r"weights must be probability, .* or uniform, got 'best'\. Name one"):
        represent.represent(subspace, PLANE, Wanted(n_points=5, view="best"))


def test_the_answer_depends_on_the_seed_alone():
    measurement = noisy(0.1)
    one, two, other = (represent.represent(measurement, PLANE, Wanted(n_points=20, rng=seed, effort=SHORT)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])
    assert not np.array_equal(one[0], other[0])


ONE_LEVEL = Domain((Categorical(name="c", levels=("a",)),))
MAYBE = Domain((Real(name="r", lower=0, upper=1, missing=True), Integer(name="i", lower=0, upper=1000, missing=True)))
HOSTILE: dict[str, tuple[Domain, Array, float, int, int]] = {  # domain, rows, noise, dimension, points
    "huge noise": (PEOPLE, PEOPLE.encode(people(50, np.random.default_rng(1))), 1e4, 60, 5),
    "two rows": (PLANE, ROWS[:2], 0.05, 40, 4),
    "one level": (ONE_LEVEL, np.zeros((5, 1)), 0.1, 20, 3),
    "one level, two features": (ONE_LEVEL, np.zeros((5, 1)), 1e-6, 2, 1),
    "one boolean": (Domain((Boolean(name="b"),)), np.array([[0.0], [1], [1]]), 0.1, 20, 5),
    "one integer, huge noise": (Domain((Integer(name="i", lower=0, upper=9),)), np.ones((9, 1)), 1e3, 2, 2),
    "two features": (PEOPLE, PEOPLE.encode(people(50, np.random.default_rng(2))), 0.05, 2, 5),
    "one point": (PLANE, ROWS[:500], 0.05, 40, 1),
    "all missing": (MAYBE, np.full((50, 2), np.nan), 0.02, 60, 6),
    "a constant": (Domain((Real(name="r", lower=-2.5, upper=1e3),)), np.full((50, 1), 7.0), 0.01, 60, 6),
}  # fmt: skip


@pytest.mark.parametrize(("name", "view"), list(zip(HOSTILE, cycle(["probability", "signed", "uniform"]), strict=False)))
@pytest.mark.slow(but="one integer, huge noise-uniform")
def test_hostile_measurements_give_finite_weights_on_points_of_the_domain(name: str, view: str):
    """No warning, no NaN but for missing cells, and the progress of every stage ends at one."""
    domain, rows, noise_scale, dimension, n_points = HOSTILE[name]
    measurement, ends = simulated(domain, rows, noise_scale=noise_scale, dimension=dimension), {}
    wanted = Wanted(n_points=n_points, view=view, effort=SHORT)
    points, weights = represent.represent(measurement, domain, wanted, lambda what, share: ends.update({what: share}))
    assert points.shape == (n_points, len(domain)) and np.isfinite(weights).all()
    np.testing.assert_array_equal(domain.encode(domain.decode(points)), points)
    assert set(np.flatnonzero(np.isnan(points).any(axis=0))) <= set(domain.missing_columns)
    assert ends["placing points"] == 1.0
