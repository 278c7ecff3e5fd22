"""The total of several releases: exact where a formula is known, never too low, and hardly too high.

It is compared with the numerical accountant of dp_accounting, whose grid errs on the safe side, and with mpmath.
"""

from __future__ import annotations

import math
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import refusals
from door_cases import exact_delta
from dp_accounting import dp_event
from dp_accounting.pld import common, pld_privacy_accountant
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ledger_cases import gaussian, laplace

from kmeanalyst.releases.statement import GAUSSIAN, LAPLACE, gaussian_delta
from release_side.budget import composition
from release_side.budget.composition import (
    Spend,
    delta_curve,
    effective_multiplier,
    fits,
    largest_epsilon_left,
    one_more,
    pure_losses,
    rounded,
    total_epsilon,
)
from release_side.budget.ledger import Ledger
from release_side.door.mechanism import GaussianNoise

INTERVAL = 1e-4  # step of the numerical accountant's grid


def gaussian_of(multiplier: float) -> Spend:
    """Gaussian noise of any size, with a guarantee that it certainly gives."""
    return Spend(1e5, 0.5, GAUSSIAN, "analytic", multiplier, 1000, "random-features")


def numerical_epsilon(spends: list[Spend], delta: float, interval: float = INTERVAL) -> float:
    """ε by dp_accounting's privacy loss distributions, release by release."""
    total = pld.identity(value_discretization_interval=interval)
    for spend in spends:
        if spend.is_pure:
            guarantee = common.DifferentialPrivacyParameters(spend.epsilon, 0.0)
            one = pld.from_privacy_parameters(guarantee, value_discretization_interval=interval)
        else:
            one = pld.from_gaussian_mechanism(spend.noise_multiplier, value_discretization_interval=interval)
        total = total.compose(one)
    return total.get_epsilon_for_delta(delta)


def test_releases_of_multipliers_3_and_4_are_equivalent_to_one_of_2_4():
    """1/9 + 1/16 = 25/144, and √(144/25) = 2.4."""
    assert effective_multiplier([gaussian_of(3.0), gaussian_of(4.0)]) == pytest.approx(2.4, rel=1e-15)
    assert effective_multiplier([laplace(1.0)]) == math.inf


@given(st.lists(st.floats(1e-2, 1e6), min_size=1, max_size=30))
def test_the_effective_multiplier_is_that_of_40_digits(multipliers):
    with mpmath.workdps(40):
        exact = 1 / mpmath.sqrt(sum(1 / mpmath.mpf(m) ** 2 for m in multipliers))
        assert abs(effective_multiplier([gaussian_of(m) for m in multipliers]) / exact - 1) < 1e-14


def test_the_sensitivity_of_a_replacement_is_not_doubled():
    """The trap: an accountant with "replace one" doubles a multiplier that is for a replacement already."""
    epsilons = {}
    for relation in (NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE):
        accountant = pld_privacy_accountant.PLDAccountant(relation, INTERVAL)
        accountant.compose(dp_event.GaussianDpEvent(GaussianNoise(1.0, 1e-6).multiplier()))
        epsilons[relation] = accountant.get_epsilon(1e-6)
    total = total_epsilon([gaussian(1.0)], 1e-6)
    assert total == pytest.approx(1.0, abs=1e-8)
    assert total == pytest.approx(epsilons[NeighboringRelation.ADD_OR_REMOVE_ONE], abs=INTERVAL)
    assert epsilons[NeighboringRelation.REPLACE_ONE] > 2.1


BUDGETS = [(1.0, 1e-6), (0.01, 1e-6), (0.1, 1e-9), (10.0, 1e-5), (1e-3, 1e-9), (100.0, 1e-12), (0.1, 1e-30)]


def test_one_release_of_the_whole_budget_fits_and_leaves_nothing():
    for epsilon, delta in BUDGETS:
        whole = gaussian(epsilon, delta)
        assert fits([whole], epsilon, delta)
        assert not fits([whole], epsilon * (1 - 1e-8), delta)
        assert not fits([whole, gaussian(epsilon / 100, delta)], epsilon, delta)
        assert largest_epsilon_left([], epsilon, delta, delta=delta) == epsilon
        left = largest_epsilon_left([whole], epsilon, delta, delta=delta)
        assert left < epsilon * 1e-3  # what is left by rounding the noise up, if anything


def test_two_releases_that_together_are_the_budget_fit_and_a_hair_more_does_not():
    multiplier = GaussianNoise(1.0, 1e-6).multiplier() * math.sqrt(2)
    halves = [gaussian_of(multiplier), gaussian_of(multiplier)]
    assert effective_multiplier(halves) == pytest.approx(GaussianNoise(1.0, 1e-6).multiplier(), rel=1e-15)
    assert fits(halves, 1.0, 1e-6)
    assert not fits([halves[0], gaussian_of(multiplier * (1 - 2e-9))], 1.0, 1e-6)
    # half of the factor of each multiplier for discrete noise is reserved in the total
    assert fits([gaussian_of(multiplier * (1 - 0.4e-9))] * 2, 1.0, 1e-6)
    assert not fits([gaussian_of(multiplier * (1 - 0.6e-9))] * 2, 1.0, 1e-6)
    # a numerical accountant alone would have refused the two
    assert numerical_epsilon(halves, 1e-6) > 1.0


def test_gaussian_noise_never_fits_a_budget_without_delta():
    assert not fits([gaussian(1e-3)], 1e5, 0.0)
    assert total_epsilon([gaussian(1e-3)], 0.0) == math.inf
    assert largest_epsilon_left([], 1e5, 0.0, delta=1e-6) == 0


def test_pure_releases_add_as_the_decimals_that_were_typed():
    """As float64, 0.1 + 0.2 is more than 0.3."""
    assert fits([laplace(0.1), laplace(0.2)], 0.3, 0.0)
    assert fits([laplace(0.1)] * 10, 1.0, 0.0)
    assert not fits([laplace(0.1), laplace(0.2), laplace(1e-5)], 0.3, 0.0)
    assert total_epsilon([laplace(0.1), laplace(0.2)], 0.0) == 0.3
    assert largest_epsilon_left([laplace(0.1), laplace(0.2)], 1.0, 0.0, mechanism=LAPLACE, delta=0.0) == 0.7
    assert total_epsilon([], 0.0) == total_epsilon([], 1e-6) == 0


def test_pure_releases_at_a_delta_cost_less_than_their_sum():
    """One hundred releases of 0.1 at δ = 1e-6, by the numerical accountant 5.2 rather than 10."""
    releases = [laplace(0.1)] * 100
    assert total_epsilon(releases, 1e-6) == pytest.approx(numerical_epsilon(releases, 1e-6), rel=1e-4)
    assert total_epsilon(releases, 1e-6) < 5.5


def test_two_randomised_responses_by_hand():
    """Losses 2ε, 0, 0, −2ε with probabilities p², pq, pq, q²: δ(ε) = p² (1 − e^(ε − 2ε)) at ε."""
    losses, masses = pure_losses([0.5, 0.5])
    p = math.exp(0.5) / (1 + math.exp(0.5))
    order = np.argsort(losses)
    assert losses[order] == pytest.approx([-1.0, 0.0, 0.0, 1.0])
    assert masses[order] == pytest.approx([(1 - p) ** 2, p * (1 - p), p * (1 - p), p**2])
    assert delta_curve([laplace(0.5)] * 2)(0.5) == pytest.approx(p**2 * -math.expm1(-0.5), rel=1e-14)


@given(st.lists(st.floats(1e-3, 5), min_size=3, max_size=9), st.floats(1e-9, 1e-2))
@example([1.0, 0.008431724500439046, 0.001953125], 0.0078125)  # too low by 1.5e-6 if losses are cut off at Σε
@settings(max_examples=20, deadline=None)
def test_the_grid_counts_no_release_too_low_and_hardly_too_high(epsilons, delta):
    releases = [laplace(epsilon) for epsilon in epsilons]
    exact = total_epsilon(releases, delta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition, "_MOST_OUTCOMES", 0)
        on_grid = total_epsilon(releases, delta)
    cells = 2 * len(epsilons) * sum(epsilons) / composition._CELLS  # a cell is at most twice the least one
    assert exact * (1 - 1e-12) <= on_grid <= exact + cells


def test_the_grid_is_exact_for_releases_of_one_size(monkeypatch):
    for count in [3, 9]:
        exact = total_epsilon([laplace(0.1)] * count, 1e-6)
        monkeypatch.setattr(composition, "_MOST_OUTCOMES", 0)
        assert total_epsilon([laplace(0.1)] * count, 1e-6) == pytest.approx(exact, rel=1e-12)


MIXTURES = [
    [gaussian(0.5), laplace(0.1)], [gaussian(1.0), laplace(1.0), laplace(0.3)],
    [gaussian(0.01), laplace(0.01), laplace(0.02)],
    [gaussian(0.3), gaussian(0.4, 1e-9), *(laplace(0.05) for _ in range(20))], [gaussian(5.0), laplace(5.0), laplace(3.0)],
]  # fmt: skip


def test_a_mixed_total_lies_between_the_sound_bounds():
    for spends in MIXTURES:
        parts = [total_epsilon([spend for spend in spends if spend.is_pure == pure], 1e-6) for pure in (True, False)]
        total = total_epsilon(spends, 1e-6)
        assert max(parts) < total < sum(spend.epsilon for spend in spends if spend.is_pure) + parts[1]


GAUSSIANS = [[4.0], [3.0, 4.0], [30.0] * 9, [1.5, 20.0, 0.7], [400.0, 300.0]]


def test_a_total_agrees_with_the_numerical_accountant_from_below():
    """Each loss is rounded up to its grid; the exact total keeps 5e-10 of the multiplier for the discrete distribution."""
    for spends in [*MIXTURES, *([gaussian_of(m) for m in each] for each in GAUSSIANS)]:
        interval = min(INTERVAL, min(spend.epsilon for spend in spends) / 100)
        exact, numerical = total_epsilon(spends, 1e-6), numerical_epsilon(spends, 1e-6, interval)
        on_grid = 2 * len(spends) * sum(s.epsilon for s in spends) / composition._CELLS if len(spends) > 10 else 0
        assert exact * (1 - 1e-8) - on_grid <= numerical <= exact + interval * len(spends)


def test_the_curve_of_a_mixture_is_that_of_40_digits():
    """δ(ε) = Σ p δ_m(ε − loss), with Balle & Wang's formula for each of the four losses."""
    for epsilon in [0.0, 0.4, 1.3, 2.6]:
        noise, one, two = spends = [gaussian(1.0), laplace(0.7), laplace(0.4)]
        with mpmath.workdps(40):
            multiplier, expected = mpmath.mpf(noise.noise_multiplier) / composition._CONTINUOUS, mpmath.mpf(0)
            for first, second in product((one.epsilon, -one.epsilon), (two.epsilon, -two.epsilon)):
                probability = 1 / (1 + mpmath.exp(-first)) / (1 + mpmath.exp(-second))
                expected += probability * exact_delta(mpmath.mpf(epsilon) - first - second, multiplier)
            assert abs(delta_curve(spends)(epsilon) / expected - 1) < 1e-11


@given(st.floats(-30, 30), st.floats(0.05, 1e4))
def test_the_curve_of_one_gaussian_release_is_the_formula_of_statements(epsilon, multiplier):
    ours = delta_curve([gaussian_of(multiplier)])(epsilon)
    assert ours == pytest.approx(
        gaussian_delta(epsilon=epsilon, noise_multiplier=multiplier / composition._CONTINUOUS), rel=1e-9, abs=1e-300
    )


def test_a_mixed_check_takes_milliseconds():
    """A hundred releases of different sizes, huge and tiny: the grid has a fixed number of cells."""
    import time

    spends = [gaussian(0.1), *(laplace(0.01 * k) for k in range(1, 100)), laplace(300.0)]
    start = time.perf_counter()
    assert not fits(spends, 300.0, 1e-6)
    assert fits(spends, 350.0, 1e-6)
    assert time.perf_counter() - start < 2


ONE_SPEND = st.one_of(st.floats(1e-3, 2).map(gaussian), st.floats(1e-3, 2).map(laplace))


@given(
    st.lists(ONE_SPEND, max_size=4), st.floats(0.1, 5), st.sampled_from([0.0, 1e-6, 1e-4]),
    st.sampled_from([(GAUSSIAN, 1e-6), (GAUSSIAN, 1e-8), (LAPLACE, 0.0)]),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_what_is_left_fits_as_it_is_printed_and_one_percent_more_does_not(spends, epsilon, delta, noise):
    mechanism, own_delta = noise
    left = largest_epsilon_left(spends, epsilon, delta, mechanism=mechanism, delta=own_delta)
    if left == 0:
        assert not fits([*spends, one_more(1e-5, own_delta, mechanism)], epsilon, delta)
        return
    for asked in (left, float(rounded(left, up=False)), left / 2):
        assert asked < 1e-5 or fits([*spends, one_more(asked, own_delta, mechanism)], epsilon, delta)
    assert not fits([*spends, one_more(left * 1.01, own_delta, mechanism)], epsilon, delta)


@given(st.lists(ONE_SPEND, min_size=1, max_size=4), st.floats(0.5, 2))
@settings(max_examples=25, deadline=None)
def test_releases_fit_a_budget_when_it_is_at_least_their_total(spends, share):
    total = total_epsilon(spends, 1e-6)
    assert fits(spends, total * share, 1e-6) == (share >= 1) or abs(share - 1) < 1e-9


def test_more_releases_leave_less_and_an_overspent_budget_nothing():
    left = [largest_epsilon_left([gaussian(0.3)] * k, 1.0, 1e-6, delta=1e-6) for k in range(5)]
    assert left[0] == 1.0
    assert all(more > less for more, less in pairwise(left))
    for spends in ([gaussian(0.3)] * 40, [gaussian(2.0)]):
        assert largest_epsilon_left(spends, 1.0, 1e-6, delta=1e-6) == 0
    assert largest_epsilon_left([laplace(2.0)], 1.0, 0.0, mechanism=LAPLACE, delta=0.0) == 0


@given(st.floats(1e-5, 1e5))
def test_rounding_for_a_message_errs_on_the_safe_side(number):
    below, above = float(rounded(number, up=False)), float(rounded(number, up=True))
    assert number * (1 - 1e-3) <= below <= number <= above <= number * (1 + 1e-3)


def test_rounding_keeps_short_numbers_and_the_ends():
    assert [rounded(n, up=up) for n in (0.4123, 1.0, 1e-5, 0.0, math.inf) for up in (True, False)] == [
        "0.4123", "0.4123", "1", "1", "1e-05", "1e-05", "0", "0", "inf", "inf",
    ]  # fmt: skip
    assert (rounded(0.41239, up=False), rounded(0.41231, up=True)) == ("0.4123", "0.4124")


SOUND: dict[str, Any] = {
    "epsilon": 1.0, "delta": 1e-6, "mechanism": GAUSSIAN, "calibration": "analytic",
    "noise_multiplier": GaussianNoise(1.0, 1e-6).multiplier(), "n_rows": 1000, "method": "random-features",
}  # fmt: skip


def test_spends_and_budgets_that_prove_nothing_are_refused_and_make_no_file(tmp_path):
    assert Spend(**SOUND).epsilon == 1.0
    names = globals() | {"new": lambda: Ledger(tmp_path / "l")}
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, names))
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_a_spend_become_plain_floats():
    spend = Spend(np.float32(0.5), 0, LAPLACE, "pure", np.float64(3.0), 10, "subspace")
    assert [type(number) for number in (spend.epsilon, spend.delta, spend.noise_multiplier)] == [float] * 3
