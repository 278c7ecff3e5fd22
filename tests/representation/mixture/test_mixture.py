"""Distributions of columns and mixtures of them: mean features in closed form, and the search for a mixture."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import COLUMNS
from every import every
from representation_cases import PLANE, PLANTED, TOGETHER, planted, search_in, some_mixture

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.representation.mixture import denoise
from kmeanalyst.representation.mixture.component_laws import NormalOrSpecial, Normals, Probabilities
from kmeanalyst.representation.mixture.denoise import _Chain, draw_posterior
from kmeanalyst.representation.mixture.mixture import Mixture, MixtureFit, fit_mixture, mean_phasors, square
from kmeanalyst.representation.mixture.reduced_set import reduced_set
from kmeanalyst.representation.wanted import Effort, Wanted

# every kind of column; rounding and clipping are far below the lengthscale
KINDS: dict[str, tuple[tuple[Column, ...], type]] = {
    "real": ((Real(name="x", lower=-50, upper=50),), Normals),
    "reals and a date": (
        (Real(name="x", lower=-50, upper=50), Date(name="d", lower="1900-01-01", upper="2100-01-01")), Normals,
    ),
    "integer": ((Integer(name="x", lower=0, upper=10**5),), Normals),
    "log scale": ((Real(name="x", lower=1e-3, upper=1e6, scale="log"),), Normals),
    "real, missing": ((Real(name="x", lower=-50, upper=50, missing=True),), NormalOrSpecial),
    "atoms": ((Real(name="x", lower=0, upper=1e6, scale="log1p", atoms=(0, 50)),), NormalOrSpecial),
    "atoms, missing": ((Real(name="x", lower=-50, upper=50, atoms=(-7.5,), missing=True),), NormalOrSpecial),
    "date, missing": ((Date(name="x", lower="1900-01-01", upper="2100-01-01", missing=True),), NormalOrSpecial),
    "few integers": ((Integer(name="x", lower=-2, upper=3),), Probabilities),
    "few integers, missing": ((Integer(name="x", lower=1, upper=5, missing=True),), Probabilities),
    "few days": ((Date(name="x", lower="2020-02-27", upper="2020-03-02"),), Probabilities),
    "levels": ((Categorical(name="x", levels=("a", "b", "c")),), Probabilities),
    "levels, missing": ((Categorical(name="x", levels=("a", "b"), missing=True),), Probabilities),
    "ordinal, missing": ((Ordinal(name="x", levels=("low", "middle", "high", "top"), missing=True),), Probabilities),
    "boolean": ((Boolean(name="x"),), Probabilities),
}  # fmt: skip
EVERY_KIND = every("name", KINDS)


@EVERY_KIND
def test_the_characteristic_function_is_the_mean_phasor_of_draws(name: str):
    """4000 independent draws of each of 3 components: within 5 standard errors (1/√n at most), on 60 frequencies."""
    domain, n = Domain(KINDS[name][0]), 4000
    search = search_in(domain)
    mixture, (law,) = some_mixture(search, 3), search.laws
    exact = mean_phasors(mixture, 60)
    for k in range(3):
        uniforms = np.random.default_rng(k).random((n, 2, law.n_columns))
        columns, values = law.draw(np.repeat(mixture.parameters[[k]], n, axis=0), uniforms)
        assert columns == list(range(len(domain)))
        drawn = np.exp(1j * search.features.phases(values)).mean(axis=0)
        assert np.abs(drawn - exact[k]).max() < 5 / np.sqrt(n)


@every("held", [0.0, 0.25])
@every("name", [*KINDS, "together"])
def test_slopes_are_those_of_the_mean_squared_residual(name: str, held: float):
    """Central differences in every weight and parameter, within a thousandth of the largest slope of their kind."""
    search = search_in(TOGETHER if name == "together" else Domain(KINDS[name][0]))
    mixture = some_mixture(search, 3)
    others = np.full(60, held, dtype=np.complex64)

    def objective(weights: Array, parameters: Array) -> float:
        phasors = mean_phasors(Mixture(search.laws, len(search.domain), weights, parameters), 60).astype(complex)
        return square(others + weights @ phasors - search.target)

    residual, *exact = search.slopes(mixture.weights, mixture.parameters, held=others)
    assert square(residual) == pytest.approx(objective(mixture.weights, mixture.parameters), rel=1e-4)
    arrays = (mixture.weights, mixture.parameters)
    for which, slopes in enumerate(exact):
        numerical = np.empty(slopes.shape)
        for index in np.ndindex(slopes.shape):
            ends = []
            for step in (5e-3, -5e-3):
                moved = [array.copy() for array in arrays]
                moved[which][index] += step
                ends.append(objective(*moved))
            numerical[index] = (ends[0] - ends[1]) / 1e-2
        np.testing.assert_allclose(slopes, numerical, atol=2e-3 * np.abs(numerical).max())


@every("column", COLUMNS)
def test_draws_stay_in_the_domain_and_encode_to_themselves(column: Column):
    """For parameters anywhere in their bounds; cells are missing where that is declared, and only there."""
    domain = Domain((column, Real(name="other", lower=0.1, upper=0.3)))
    search, rng = search_in(domain), np.random.default_rng(0)
    low, high = np.array([limit for law in search.laws for limit in law.bounds]).T
    parameters = rng.uniform(low, high, (30, len(low)))
    rows = Mixture(search.laws, 2, np.full(30, 1 / 30), parameters).draw(400, rng)
    np.testing.assert_array_equal(domain.encode(domain.decode(rows)), rows)
    assert np.isnan(rows).any(axis=0).tolist() == [column.missing, False]


def sketched(search: MixtureFit, n_points: int = 120) -> tuple[Array, Array]:
    """The starting points and weights of the search."""
    vector = np.concatenate([search.target.real, search.target.imag]) / np.sqrt(len(search.target))
    points, weights = reduced_set(search.features, vector.astype(float), PLANE, Wanted(n_points=n_points), enough=search.noise)
    return points[weights > 0], weights[weights > 0]


@pytest.fixture(scope="module")
def found() -> tuple[MixtureFit, Array, Mixture, tuple[Array, Array]]:
    """(search, truth, the mixture found, its starting sketch), with noise of norm 0.01·√300."""
    search, truth = planted(0.01)
    sketch = sketched(search)
    mixture = fit_mixture(search, points=sketch[0], weights=sketch[1], rng=np.random.default_rng(0))
    return search, truth, mixture, sketch


def test_a_planted_mixture_is_recovered_from_noise(found):
    """Three components with the planted weights, means and spreads."""
    search, _, mixture, _ = found
    shares, means, sds = PLANTED
    assert len(mixture) == 3
    order = np.argsort(-mixture.weights)
    parameters = mixture.parameters[order] * np.tile(search.laws[0].unit, 2)
    np.testing.assert_allclose(mixture.weights[order], shares, atol=0.06)
    np.testing.assert_allclose(parameters[:, :2], means, atol=0.3)
    spreads = np.exp(mixture.parameters[order, 2:]) * search.laws[0].unit
    np.testing.assert_allclose(spreads, np.repeat(sds[:, None], 2, axis=1), atol=0.3)


def test_its_error_is_that_of_its_few_parameters_and_far_below_the_sketchs(found):
    """15 free parameters follow noise of size τ√15 = 0.039; probability weights on free points follow more."""
    search, truth, mixture, (points, weights) = found
    error = np.sqrt(square(mixture.weights @ search.phasors(mixture) - truth))
    sketch = np.sqrt(square(weights @ np.exp(1j * search.features.phases(points)) - truth))
    assert error < 1.5 * 0.01 * np.sqrt(len(mixture) * search.free)
    assert error < 0.6 * sketch


def test_large_noise_keeps_few_components():
    """At τ = 0.2 a component costs 0.2²·21.6 = 0.86, more than a second component can gain."""
    search, _ = planted(0.2)
    points, weights = sketched(search)
    mixture = fit_mixture(search, points=points, weights=weights, rng=np.random.default_rng(0))
    assert len(mixture) == 1


def test_surplus_components_are_removed_and_lacking_ones_added(found):
    search, _, mixture, _ = found
    parameters = np.tile(mixture.parameters, (2, 1))
    doubled = Mixture(mixture.laws, 2, np.tile(mixture.weights / 2, 2), parameters, mixture.loss)
    assert search.criterion(doubled) - search.criterion(mixture) == pytest.approx(3 * search.charge)
    assert len(search.prune(doubled)) == 3
    grown = search.grow(search.fit(mixture.without(np.array([1])), 60), np.random.default_rng(0))
    assert search.criterion(grown) < search.criterion(mixture) + search.charge


@every("n_points", [1, 3])
def test_fewer_points_than_clusters_are_enough_to_start_from(n_points: int):
    search, _ = planted(0.05, pairs=20)
    rng, shares = np.random.default_rng(0), []
    points, weights = PLANE.draw(n_points, 0), np.full(n_points, 1 / n_points)
    mixture = fit_mixture(search, points=points, weights=weights, rng=rng, progress=shares.append)
    assert np.isfinite(mixture.loss) and len(mixture) >= 1 and shares[-1] == 1.0 and shares == sorted(shares)


def one_component(noise: float) -> tuple[MixtureFit, Mixture]:
    """One column between −3 and 3, one component: mean 0.8 and standard deviation 0.7, measured with noise."""
    domain = Domain((Real(name="x", lower=-3, upper=3),))
    features = RandomFourier.draw(Gaussian(1.0), n_columns=1, dimension=60, rng=0)
    search = MixtureFit(features, domain, np.zeros(30, dtype=complex), noise)
    truth = Mixture(search.laws, 1, np.ones(1), np.array([[0.8 / search.laws[0].unit[0], np.log(0.7)]]))
    rng = np.random.default_rng(1000)
    search.target = mean_phasors(truth, 30)[0] + (
        noise * np.sqrt(30) * (rng.standard_normal(30) + 1j * rng.standard_normal(30))
    ).astype(np.complex64)
    return search, truth


def trace(chain: _Chain, *, warm_up: int, count: int) -> Array:
    """Positions (count, dimension) of a chain after its step size has settled."""
    for _ in range(warm_up):
        chain.advance(adapt=True)
    positions = []
    for _ in range(count):
        chain.advance(adapt=False)
        positions.append(chain.position.copy())
    return np.array(positions)


@pytest.mark.parametrize("noise", [0.02, 0.3])
@pytest.mark.slow(but="0.02")
def test_one_component_is_drawn_from_the_posterior_that_numerical_integration_gives(noise: float):
    """Means and standard deviations of (mean, log sd) on a fine grid, and by trajectories.

    At the larger noise the posterior is skew and reaches the bounds of the mean, where trajectories are reflected.
    Tolerance: 4.5 standard errors of independent draws, a tenth of the standard deviation for 2000.
    """
    count = 2000 if noise > 0.1 else 700
    search, truth = one_component(noise)
    chain = _Chain(search, truth, np.random.default_rng(1))
    bounds = search.laws[0].bounds
    axes = [np.linspace(*limits, 160) for limits in bounds]
    if noise < 0.1:  # nearly Gaussian: the grid covers 6 standard deviations of it
        axes = [np.linspace(c - 0.3, c + 0.3, 50) for c in truth.parameters[0]]
    energies = np.array([[chain._energy(np.array([0.0, m, s]))[0] for s in axes[1]] for m in axes[0]])
    density = np.exp(energies.min() - energies)
    density /= density.sum()
    positions = trace(chain, warm_up=60, count=count)[:, 1:]
    for j, axis in enumerate(axes):
        margin = density.sum(axis=1 - j)
        mean = margin @ axis
        sd = np.sqrt(margin @ (axis - mean) ** 2)
        assert abs(positions[:, j].mean() - mean) < 4.5 / count**0.5 * sd
        assert positions[:, j].std() == pytest.approx(sd, rel=4.5 / count**0.5)
        assert positions[:, j].min() >= bounds[j][0] and positions[:, j].max() <= bounds[j][1]


@every("noise", [0.02, 0.5])
def test_the_energys_slope_is_its_slope(noise: float):
    """Central differences in logits and parameters of every kind of column, within a thousandth of the largest."""
    search = search_in(TOGETHER, noise=noise)
    chain = _Chain(search, some_mixture(search, 3), np.random.default_rng(0))
    _, slope = chain._energy(chain.position)
    numerical = []
    for i in range(len(slope)):
        step = np.zeros(len(slope))
        step[i] = 5e-3
        numerical.append((chain._energy(chain.position + step)[0] - chain._energy(chain.position - step)[0]) / 1e-2)
    for part in (slice(0, 3), slice(3, None)):
        np.testing.assert_allclose(slope[part], np.array(numerical)[part], atol=3e-3 * np.abs(numerical).max())


def start_for(search: MixtureFit) -> Mixture:
    """A mixture near the planted one, settled against the target."""
    points = np.array([[-2.0, 0], [2, 2], [1, -3]])
    return search.fit(search.around(points, np.array([0.5, 0.3, 0.2]), np.arange(3)), 200)


@pytest.mark.slow
def test_the_spread_of_the_draws_is_the_error_of_their_mean():
    """Over 10 draws of noise, root mean square error over root mean square spread is between ½ and 2."""
    errors, spreads = [], []
    for seed in range(10):
        search, truth = planted(0.03, pairs=50, seed=seed)
        found = draw_posterior(search, start_for(search), np.random.default_rng(seed))
        assert found is not None
        errors.append(square(found.phasors - truth))
        spreads.append(found.spread**2)
    assert 0.5 < np.sqrt(np.mean(errors) / np.mean(spreads)) < 2


def test_draws_depend_on_their_seed_alone_and_report_their_progress():
    search, _ = planted(0.05, pairs=30)
    search.effort = Effort(0.2)
    start, shares = start_for(search), []
    one, two, other = (draw_posterior(search, start, np.random.default_rng(seed), progress=shares.append) for seed in (0, 0, 1))
    assert one is not None and two is not None and other is not None
    np.testing.assert_array_equal(one.phasors, two.phasors)
    np.testing.assert_array_equal(one.pooled.parameters, two.pooled.parameters)
    assert one.spread == two.spread and not np.array_equal(one.phasors, other.phasors)
    first = shares[: len(shares) // 3]
    assert first == sorted(first) and first[-1] == 1.0


def test_draws_that_would_take_too_long_are_not_begun(monkeypatch):
    """More phasors than the work allows for 60 trajectories after the warm-up: None; just enough: an answer."""
    search, _ = planted(0.05, pairs=30)
    start = start_for(search)
    for trajectories, begun in ((denoise._WARM_UP + 59, False), (denoise._WARM_UP + 61, True)):
        monkeypatch.setattr(denoise, "_WORK", 7 * 30 * denoise._LEAPS * trajectories)
        assert (draw_posterior(search, start, np.random.default_rng(0)) is not None) is begun
