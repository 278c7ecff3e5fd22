"""Hamiltonian Monte Carlo over mixtures draws from the posterior that it claims, and estimates its own error."""

from __future__ import annotations

import numpy as np
import pytest
from every import every
from representation_cases import TOGETHER, planted, search_in, some_mixture

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.representation.mixture import denoise
from kmeanalyst.representation.mixture.denoise import _Chain, draw_posterior
from kmeanalyst.representation.mixture.mixture import Mixture, MixtureFit, mean_phasors, square
from kmeanalyst.representation.wanted import Effort


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
    one, two, other = (
        draw_posterior(search, start, np.random.default_rng(seed), progress=shares.append) for seed in (0, 0, 1)
    )
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
