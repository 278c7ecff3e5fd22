"""Cyclic quantities: lower and upper are one value, and so the kernel, its features and every point have it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from contracts import COLUMNS, every
from file_tools import SCHEMA_TEST, edited_points, first, forged, members_of, refused, same, setting
from hypothesis import given
from hypothesis import strategies as st
from representation_cases import place_points, simulated
from scipy.stats import chisquare

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels import Gaussian, KernelMean, MultiScale, Periodic, SoftenedProduct
from kmeanalyst.kernels.continuous import harmonic_probabilities
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.column import CLAMPED, KEPT, REPLACED, DomainError
from kmeanalyst.releases.domain.domain import Domain, column_from_dict
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Cyclic, Date
from kmeanalyst.releases.file import validate_release
from kmeanalyst.representation import wanted
from kmeanalyst.representation.mixture.component_laws import laws_for

HOUR = Cyclic(name="hour", lower=0, upper=24)
DIRECTION = Cyclic(name="direction", lower=-180.0, upper=180.0, missing=True)


# ---------------------------------------------------------------- the column


@every([("23.5", 23.5), ("24", 0), ("25", 1), ("-1", 23), ("-24", 0), ("49.25", 1.25), ("-1e-300", 0)], of="cell, hour")
def test_a_value_outside_comes_round_and_counts_as_kept(cell, hour):
    for cells in ([cell], np.array([float(cell)])):
        encoded, status = HOUR.encode(cells)
        assert encoded[0] == hour and status[0] == KEPT


def test_an_infinite_value_is_not_on_the_circle_and_becomes_the_default():
    for column, default in ((HOUR, 0.0), (Cyclic(name="x", lower=0, upper=24, default=6), 6.0), (DIRECTION, np.nan)):
        for cells in (["inf", "-inf", "x"], np.array([np.inf, -np.inf, np.inf])):
            encoded, status = column.encode(cells)
            np.testing.assert_array_equal(encoded, [default] * 3)
            assert set(status) <= {CLAMPED, REPLACED}


@given(st.floats(allow_nan=False), st.sampled_from([c for c in COLUMNS if isinstance(c, Cyclic)]))
def test_every_number_lands_on_the_circle_and_stays_there(value, column):
    (encoded,), _ = column.encode([value])
    if not np.isfinite(value):
        return
    assert column.lower <= encoded < column.upper
    assert column.encode(column.decode(np.array([encoded])))[0] == encoded


# ---------------------------------------------------------------- the kernel


def test_the_kernel_is_periodic_and_at_small_distances_gaussian():
    kernel, X = Periodic(24.0, (2.0,)), np.random.default_rng(0).uniform(0, 24, (50, 1))
    np.testing.assert_allclose(kernel.gram(X + 24, X), kernel.gram(X, X), atol=1e-13)
    assert kernel.gram([[0.0]], [[23.999]]) == pytest.approx(1, abs=1e-6)
    near = np.linspace(0, 0.3, 10)[:, None]
    np.testing.assert_allclose(Periodic(24.0, (0.3,)).gram([[0.0]], near), Gaussian(0.3).gram([[0.0]], near), atol=1e-3)


@every([0.05, 1.0, 6.0, 100.0], of="lengthscale")
def test_its_fourier_series_has_positive_coefficients_that_add_up_to_one_and_give_the_kernel(lengthscale):
    """exp(κ(cos θ − 1)) = Σ e^(−κ) I_n(κ) cos nθ (Abramowitz & Stegun 9.6.34)."""
    kernel = Periodic(24.0, (lengthscale,))
    probabilities = harmonic_probabilities(float(kernel._concentrations()[0]))
    assert (probabilities > 0).all() and probabilities.sum() == pytest.approx(1, abs=1e-12)
    d = np.linspace(0, 24, 33)
    series = np.cos(2 * np.pi / 24 * d[:, None] * np.arange(len(probabilities))) @ probabilities
    np.testing.assert_allclose(kernel.gram([[0.0]], d[:, None])[0], series, atol=1e-10)


def test_random_features_draw_whole_harmonics_by_the_bessel_probabilities_and_are_as_periodic():
    kernel = Periodic(24.0, (4.0,))
    drawn = kernel.draw_spectrum(np.random.default_rng(0), 1, 20_000).linear[0] * 24 / (2 * np.pi)
    np.testing.assert_allclose(drawn, np.rint(drawn), atol=1e-9)
    probabilities = harmonic_probabilities(float(kernel._concentrations()[0]))[:6]
    counts = np.bincount(np.abs(np.rint(drawn)).astype(int), minlength=7)
    expected = np.append(probabilities, 1 - probabilities.sum()) * len(drawn)
    seen = np.append(counts[:6], counts[6:].sum())
    assert chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-3
    wrong = np.roll(expected, 1)
    assert chisquare(seen, wrong * seen.sum() / wrong.sum()).pvalue < 1e-6  # what the test can tell
    features = RandomFourier.draw(kernel, n_columns=1, dimension=400, rng=0)
    X = np.random.default_rng(1).uniform(0, 24, (20, 1))
    np.testing.assert_allclose(features(X), features(X + 24), atol=1e-9)


def test_a_missing_direction_is_like_no_other_in_the_features_either():
    """The constant harmonic, n = 0, would otherwise make them alike."""
    kernel = Periodic(360.0, (200.0,))  # three parts in four of its mass are constant
    features = RandomFourier.draw(kernel, n_columns=1, dimension=8000, missing_columns=[0], rng=0)
    rows = np.array([[np.nan], [0.0], [90.0]])
    np.testing.assert_allclose(features.gram(rows, rows), kernel.gram(rows, rows), atol=0.06)
    assert kernel.gram(rows, rows)[0, 1] == 0


# ---------------------------------------------------------------- dates


def test_a_seasonal_date_is_like_the_same_day_of_other_years_and_plain_ones_are_not():
    plain = Date(name="day", lower="2000-01-01", upper="2024-12-31")
    seasonal = Date(name="day", lower="2000-01-01", upper="2024-12-31", seasonal=True)
    rows = seasonal.encode(["2004-07-01", "2014-07-01", "2014-01-01"])[0][:, None]
    for column, low, high in ((seasonal, 0.3, 1.0), (plain, -1.0, 0.05)):
        same_day, other_day = table_kernel(Domain((column,))).gram(rows[1:], rows[:1]).ravel()
        assert low < same_day - other_day < high
    assert column_from_dict(seasonal.to_dict()) == seasonal and "seasonal" not in plain.to_dict()
    with pytest.raises(DomainError, match="seasonal must be true or false"):
        Date(name="day", lower="2000-01-01", upper="2024-12-31", seasonal=1)


# ---------------------------------------------------------------- end to end

DOMAIN = Domain((HOUR, DIRECTION, Categorical(name="season", levels=("summer", "winter")),
                 Date(name="day", lower="2020-01-01", upper="2023-12-31", seasonal=True)))  # fmt: skip


def rows(n: int, seed: int, at: float = 23.5) -> pd.DataFrame:
    """Hours about half an hour before midnight: a population that a line would cut in two."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1461, n), "D")
    return pd.DataFrame({
        "hour": rng.normal(at, 1.5, n) % 24, "direction": np.where(rng.random(n) < 0.1, np.nan, rng.normal(175, 30, n)),
        "season": np.where(np.isin(days.month, [5, 6, 7, 8, 9, 10]), "summer", "winter"), "day": days.strftime("%Y-%m-%d"),
    })  # fmt: skip


TABLE = rows(2000, 1)


@pytest.fixture(scope="module")
def release() -> ka.Release:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "EFFORT", wanted.QUICK)
        return release_side.publish(TABLE, DOMAIN, epsilon=1.0, delta=1e-6, features=200, points=100)


@pytest.mark.slow
def test_random_features_of_cyclic_columns_give_points_on_the_circle_near_the_table(release):
    assert isinstance(release.kernel, SoftenedProduct) and isinstance(release.kernel.kernels[0], Periodic)
    assert not isinstance(release.kernel.kernels[3], MultiScale)
    frame = release.to_frame()
    assert frame["hour"].between(0, 24, inclusive="left").all()
    assert frame["direction"].dropna().between(-180, 180, inclusive="left").all()
    table = KernelMean(release.kernel, DOMAIN.encode(TABLE))
    anywhere = KernelMean(release.kernel, DOMAIN.draw(100, 0))
    # of 200 independent frequencies about half
    assert release.embedding.distance(table) < 0.65 * anywhere.distance(table)


def test_both_sides_of_midnight_are_answered_by_the_numbers_they_are(release):
    for ask in ("hour > 22", "hour < 1", "direction < -150", "missing(direction)"):
        name = "direction" if "direction" in ask else "hour"
        table = DOMAIN[name].decode(DOMAIN[name].encode(TABLE[name])[0])
        true = {"hour > 22": table > 22, "hour < 1": table < 1, "direction < -150": table < -150}.get(ask, table.isna())
        found = release.probability(ask)
        assert abs(found.value - true.mean()) < 4 * found.standard_error + 0.02
        assert found.standard_error > 0


def test_mmd_test_finds_a_shift_of_two_hours_across_midnight_and_no_shift_where_there_is_none(release):
    assert ka.mmd_test(release, rows(300, 3)).pvalue > 0.001
    assert ka.mmd_test(release, rows(300, 4, at=25.5)).pvalue < 1e-4


def test_a_release_of_cyclic_columns_read_back_is_the_release_written(release, tmp_path):
    path = tmp_path / "cyclic.kme"
    release.write(path)
    same(read_release(path), release)
    assert validate_release(path) == [] and SCHEMA_TEST.is_valid(json.loads(members_of(path)["release.json"]))
    forgeries = {
        "upper": (edited_points(first("hour", "24.0")), "its upper bound as a value"),
        "beyond": (edited_points(first("hour", "25.0")), "values outside its bounds"),
        "bounds": (lambda h, m: setting("columns", 0, "upper", to=-1)(h), "lower must be below upper"),
        "scale": (lambda h, m: setting("columns", 0, "scale", to="log1p")(h), "a circle has no logarithm"),
        "season": (lambda h, m: setting("columns", 3, "seasonal", to=1)(h), "seasonal must be true or false"),
        "season of a number": (lambda h, m: setting("columns", 0, "seasonal", to=True)(h), "unknown here: seasonal"),
        "period": (lambda h, m: setting("kernel", "kernels", 0, "period", to=-1)(h), "period must be"),
        "terms": (lambda h, m: setting("kernel", "kernels", 0, "lengthscales", to=[1e-9])(h), "too many terms"),
    }
    for edit, why in forgeries.values():
        refused(forged(path, edit), tmp_path, why, why)


@pytest.mark.parametrize("options", [{"kernel": "margins", "points": 100}, {"method": "subspace", "points": 60}])
@pytest.mark.slow(but="options1")
def test_the_other_methods_take_cyclic_columns_as_the_numbers_they_are(options):
    made = release_side.publish(TABLE, DOMAIN, epsilon=1.0, delta=1e-6, **options)
    assert made.to_frame()["hour"].between(0, 24, inclusive="left").all()
    assert abs(made.probability("hour > 22").value - (TABLE["hour"] > 22).mean()) < 0.2


@every([23.99, 0.01, 7.3], of="hour")
def test_points_find_an_hour_to_the_minute_and_across_midnight(hour):
    """Power: with hours not polished, or polished between 0 and 24 alone, one of the three is missed."""
    domain = Domain((HOUR,))
    measurement = simulated(domain, np.full((50, 1), hour), noise_scale=1e-4, dimension=400)
    points, weights = place_points(measurement, domain, n_points=12)
    distances = np.abs((points[:, 0] - hour + 12) % 24 - 12)
    assert weights @ distances < 1 / 60


def test_hours_around_midnight_are_drawn_around_it_and_not_at_it():
    """Power: cut off at 0 and 24, half of the draws would be at midnight to the second."""
    domain = Domain((HOUR,))
    measurement = simulated(domain, np.zeros((9, 1)), noise_scale=1e-4, dimension=100)
    laws = laws_for(measurement.feature_map, domain, np.array([1.0]))
    uniforms = np.random.default_rng(1).random((1000, 2, 1))
    _, hours = laws[0].draw(np.tile([0.0, 0.0], (1000, 1)), uniforms)
    assert ((hours > 12) & (hours < 24)).mean() == pytest.approx(0.5, abs=0.05)
    assert (hours == 0).mean() < 0.01
