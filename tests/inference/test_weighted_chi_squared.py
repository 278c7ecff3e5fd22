"""The distribution of a weighted sum of χ²: against closed forms, conditioning and simulation, from the centre to 1e-100."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, ncx2

from kmeanalyst.inference import weighted_chi_squared
from kmeanalyst.inference.weighted_chi_squared import weighted_chi_squared_isf, weighted_chi_squared_sf


def test_equal_coefficients_give_the_chi_squared_distribution_to_eleven_digits():
    for degrees in [1, 2, 7, 150, 4000]:
        for probability in [0.999, 0.5, 0.05, 1e-12, 1e-100]:
            terms = min(degrees, 50)
            ours = weighted_chi_squared_sf(
                3 * chi2.isf(probability, degrees), np.full(terms, 3.0), degrees=np.full(terms, degrees / terms)
            )
            assert ours == pytest.approx(probability, rel=1e-11)


def test_pairs_of_unequal_coefficients_give_the_distribution_of_two_exponentials():
    for q in [0.01, 1.0, 3.0, 20.0, 60.0, 300.0]:
        exact = 2 * np.exp(-q / 2) - np.exp(-q)  # of exponentials with rates 1/2 and 1
        assert weighted_chi_squared_sf(q, np.array([1, 1, 0.5, 0.5])) == pytest.approx(exact, rel=1e-12)


def test_one_large_coefficient_over_many_small_ones_gives_what_conditioning_gives():
    """P(χ²₁ + 0.01 χ²₄₀₀₀ > q), integrated over the first: the path must not run off along the many."""
    for q in [30.0, 39.0, 40.0, 41.0, 45.0, 60.0, 100.0]:
        density = lambda x, q=q: 2 * np.exp(-x * x / 2) / np.sqrt(2 * np.pi) * chi2.sf(100 * (q - x * x), 4000)  # noqa: E731
        cut = [np.sqrt(max(q - 40, 0.0))]
        exact = quad(density, 0, np.sqrt(q), points=cut, limit=500, epsrel=1e-12, epsabs=1e-300)[0] + chi2.sf(q, 1)
        ours = weighted_chi_squared_sf(q, np.array([1.0, 0.01]), degrees=np.array([1.0, 4000.0]))
        assert ours == pytest.approx(exact, rel=1e-10)


def test_shifted_terms_give_the_noncentral_distribution():
    for noncentrality in [0.5, 30.0]:
        for probability in [0.9, 0.05, 1e-9]:
            q = ncx2.isf(probability, 3, noncentrality)
            ours = weighted_chi_squared_sf(q, np.array([1.0]), degrees=np.array([3.0]), noncentrality=np.array([noncentrality]))
            assert ours == pytest.approx(ncx2.sf(q, 3, noncentrality), rel=1e-8)


def test_many_unequal_coefficients_give_what_simulation_gives():
    """400,000 draws: four standard errors at each probability, false-alarm rate 2e-4."""
    coefficients, shifts = 1 / np.arange(1, 60) ** 1.5, np.linspace(0, 1, 59)
    rng = np.random.default_rng(0)
    draws = np.concatenate([(rng.normal(shifts, size=(50_000, 59)) ** 2) @ coefficients for _ in range(8)])
    for probability in (0.9, 0.5, 0.05, 0.001):
        q = weighted_chi_squared_isf(probability, coefficients, noncentrality=shifts**2)
        assert (draws > q).mean() == pytest.approx(probability, abs=4 * np.sqrt(probability * (1 - probability) / len(draws)))


def test_a_finer_rule_on_a_finer_path_changes_nothing(monkeypatch):
    """The integral has converged: half the step, a steeper path and a longer one, over random cases."""
    rng = np.random.default_rng(1)
    cases = []
    for _ in range(100):
        k = rng.integers(1, 60)
        coefficients, degrees = 10 ** rng.uniform(-6, 0, k), 10 ** rng.uniform(-1, 2, k)
        shifts = 10 ** rng.uniform(-3, 2, k) * rng.integers(0, 2, k)
        mean = coefficients @ (degrees + shifts)
        spread = np.sqrt(coefficients**2 @ (2 * degrees + 4 * shifts))
        q = mean * np.exp(rng.normal() * 2 * spread / mean)
        cases.append((q, coefficients, {"degrees": degrees, "noncentrality": shifts}))
    first = [weighted_chi_squared_sf(q, e, **options) for q, e, options in cases]
    monkeypatch.setattr(weighted_chi_squared, "_STEP", 0.05)
    monkeypatch.setattr(weighted_chi_squared, "_BEND", 0.5)
    monkeypatch.setattr(weighted_chi_squared, "_NEGLIGIBLE", -60.0)
    again = [weighted_chi_squared_sf(q, e, **options) for q, e, options in cases]
    np.testing.assert_allclose(first, again, rtol=1e-9)
    assert min(first) < 0.01 and max(first) > 0.99


def test_the_tail_decreases_through_the_mean_where_its_two_formulas_meet():
    coefficients = np.array([1.0, 0.5, 0.25])
    tails = [weighted_chi_squared_sf(q, coefficients) for q in np.linspace(1.70, 1.80, 401)]
    steps = np.diff(tails)
    assert (steps < 0).all() and np.ptp(steps) < 0.2 * np.abs(steps).mean()


@pytest.mark.parametrize("probability", [0.999, 0.3, 1e-12])
def test_the_inverse_gives_back_its_probability(probability):
    coefficients = 1 / np.arange(1, 20.0)
    q = weighted_chi_squared_isf(probability, coefficients)
    assert weighted_chi_squared_sf(q, coefficients) == pytest.approx(probability, rel=1e-8)


def test_half_of_a_distance_is_where_it_shows_and_half_on_the_noisiest_direction():
    shares = weighted_chi_squared._shares_of(np.array([3.0, 1.0, -1.0]), np.array([1.0, 2.0, 5.0]))
    np.testing.assert_allclose(shares, [0.375, 0.125, 0.5])


def test_the_tail_at_and_below_zero_is_one_and_no_spread_or_no_probability_is_refused():
    assert weighted_chi_squared_sf(0.0, np.array([1.0])) == weighted_chi_squared_sf(-1.0, np.array([1.0])) == 1.0
    with pytest.raises(ValueError, match=r"no spread.*Compare columns that vary"):
        weighted_chi_squared_sf(1.0, np.zeros(3))
    with pytest.raises(ValueError, match=r"between 0 and 1, got 0"):
        weighted_chi_squared_isf(0, np.ones(3))
