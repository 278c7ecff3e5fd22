"""Noise: its exact distribution and calibration, rehearsals, and the door as a black box.

Sensitivity and calibration of Gaussian noise are in test_door.py; here are Laplace noise, the scale that follows from ρ,
the cost of the integer grid, noise from a seed, and the empirical privacy loss of the door itself.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from fractions import Fraction
from math import isqrt
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import pytest
import refusals
import xarray
from click.testing import CliRunner
from contracts import FeatureCase
from door_cases import every_map, exact_delta
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

import kmeanalyst as ka
from kmeanalyst.cli.main import main
from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.file import FileRefused, validate_release
from kmeanalyst.releases.file.export import export
from kmeanalyst.releases.measurement import GRID, SHRINK, grid_sensitivity
from kmeanalyst.releases.statement import (
    GAUSSIAN,
    LAPLACE,
    PrivacyStatement,
    StatementError,
    gaussian_delta,
    pure_epsilon,
    zcdp_delta,
    zcdp_rho,
)
from release_side.budget.composition import _CONTINUOUS
from release_side.door.mechanism import GaussianNoise, LaplaceNoise, Noise, PublishError, RehearsalNoise, laplace_scale
from release_side.door.private_mean import integer_features, private_mean
from release_side.publishing.publish import publish

DOMAIN = Domain((Integer(name="age", lower=17, upper=90), Categorical(name="city", levels=("A", "B", "C"))))
SMALL: dict[str, Any] = {"points": 15, "features": 60}
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
FRAME = DOMAIN.decode(DOMAIN.draw(50, 1))

# ---------------------------------------------------------------- Laplace noise


@every_map
def test_the_l1_distance_of_any_two_rows_is_within_the_claimed_one(maps: list[FeatureCase]):
    for case in maps:
        feature_map = case.build(30)
        rows = case.case.rows(np.random.default_rng(0), 40)
        rows[:4] = [[np.inf], [-1e308], [np.nan], [0.0]]
        z = integer_features(rows, feature_map)
        claimed = Fraction(grid_sensitivity(feature_map, LAPLACE))
        assert claimed.denominator == 1
        for i in range(len(z)):
            for j in range(i):
                assert sum(abs(int(a) - int(b)) for a, b in zip(z[i], z[j], strict=True)) <= claimed


def test_the_l1_sensitivity_is_two_root_f_in_whole_numbers():
    for dimension in [2, 4, 6, 4000, 10**5]:
        feature_map = RandomFourier(Gaussian(1.0), np.zeros((1, dimension // 2)))
        claimed = int(grid_sensitivity(feature_map, LAPLACE))
        assert (claimed - 1) ** 2 < 4 * dimension * GRID**2 <= claimed**2
        assert claimed == isqrt(4 * dimension * GRID**2 - 1) + 1


def test_the_l1_sensitivity_is_nearly_reached():
    """Phases π/4 and 5π/4: every cosine and sine changes its sign, and a smaller claim would be false."""
    feature_map = RandomFourier(Gaussian(1.0), np.ones((1, 50)))
    z = integer_features(np.array([[np.pi / 4], [5 * np.pi / 4]]), feature_map)
    reached = np.abs(z[0] - z[1]).sum()
    assert (1 - 1e-5) < reached / grid_sensitivity(feature_map, LAPLACE) <= 1


@given(epsilon=st.floats(1e-5, 1e5), sensitivity=st.integers(1, 2**52))
def test_the_laplace_scale_keeps_epsilon_exactly(epsilon: float, sensitivity: int):
    scale = laplace_scale(epsilon, sensitivity)
    assert Fraction(scale) * Fraction(epsilon) >= sensitivity
    assert scale <= sensitivity / epsilon * (1 + 1e-15)


def rejects(noise: Noise, draws: Array, scale: float) -> bool:
    """Pearson's test of draws against the exact discrete distribution of this scale, tails pooled; false alarms: 1e-6."""
    power, edge = (2, int(3.5 * scale)) if noise.name == GAUSSIAN else (1, int(5 * scale))
    values = np.arange(-60 * int(np.ceil(scale)), 60 * int(np.ceil(scale)) + 1)
    mass = np.exp(-(np.abs(values / scale) ** power) / power)
    expected = len(draws) * np.bincount(np.clip(values, -edge, edge) + edge, mass / mass.sum())
    observed = np.bincount(np.clip(draws, -edge, edge) + edge, minlength=2 * edge + 1)
    return bool(((observed - expected) ** 2 / expected).sum() > chi2.isf(1e-6, 2 * edge))


def test_noise_has_the_exact_distribution_and_a_scale_five_percent_off_is_rejected():
    """60,000 draws: at ±5 % the non-centrality is at least 2n·0.05² = 300 for Gaussian noise, half of it for Laplace."""
    for noise, sensitivity, scale in [
        (GaussianNoise(1.0, 1e-6), 3 / GaussianNoise(1.0, 1e-6).multiplier(), 3.0),
        (LaplaceNoise(0.5, 0), 2.0, 4.0),
    ]:
        noisy = noise.add_to(np.full(60_000, 10**15, dtype=np.int64), sensitivity=sensitivity)
        assert noisy.dtype == np.int64
        assert [rejects(noise, noisy - 10**15, factor * scale) for factor in (0.95, 1.0, 1.05)] == [True, False, True]


def test_a_budget_in_low_precision_is_calibrated_in_full():
    for kind in [np.float16, np.float32, np.float64]:
        noise = GaussianNoise(kind(0.1), kind(1e-3))
        assert type(noise.epsilon) is float and type(noise.delta) is float
        assert gaussian_delta(epsilon=noise.epsilon, noise_multiplier=noise.multiplier()) <= noise.delta


# ---------------------------------------------------------------- the guarantee of a statement, recomputed


def statement(noise: Noise | RehearsalNoise, **changes) -> PrivacyStatement:
    facts = dict(
        epsilon=noise.epsilon, delta=noise.delta, neighbouring="replace-one", mechanism=noise.name, sensitivity=0.25,
        noise_scale=0.25 * noise.multiplier(), calibration=noise.calibration,
        rho=zcdp_rho(noise.name, noise_multiplier=noise.multiplier()), n_rows=10,
    )  # fmt: skip
    return PrivacyStatement(**(facts | changes))


def test_the_statement_of_laplace_noise_recomputes_and_a_better_claim_is_refused():
    for epsilon in [1e-5, 0.1, 1.0, 30.0]:
        noise = LaplaceNoise(epsilon, 0)
        good = statement(noise)
        good.check_arithmetic()
        assert pure_epsilon(noise_multiplier=good.noise_multiplier) == pytest.approx(epsilon, rel=1e-14)
        assert good.rho == pytest.approx(epsilon**2 / 2, rel=1e-14)
        for better in ({"epsilon": 0.99 * epsilon}, {"noise_scale": good.noise_scale / 2, "rho": 4 * good.rho}):
            with pytest.raises(StatementError, match=r"the file claims ε = .* give ε = .*better than the arithmetic"):
                statement(noise, **better).check_arithmetic()
        with pytest.raises(StatementError, match=r"claims ρ = .*its noise gives"):
            statement(noise, rho=good.rho / 2).check_arithmetic()


MUCH: dict[str, Any] = {"noise_scale": 0.25 * 40, "rho": 0.5 / 40**2, "epsilon": 1.6}  # δ underflows to zero, and is not
ANALYTIC = GaussianNoise(1.0, 1e-6)


def claim(noise: Noise = ANALYTIC, **changes: Any) -> None:
    statement(noise, **changes).check_arithmetic()


def test_claims_that_the_noise_does_not_keep_are_refused():
    assert gaussian_delta(epsilon=1.6, noise_multiplier=40.0) == 0.0
    for calibration in ["analytic", "zcdp"]:
        claim(**MUCH, delta=1e-90, calibration=calibration)
    claim(GaussianNoise(1.0, 1e-6, "zcdp"))
    refusals.check(Path(__file__).parent / "refusals_noise.txt", lambda text: eval(text, globals()))


def exact_zcdp_delta(epsilon: float, rho: float) -> mpmath.mpf:
    """Corollary 13 of Canonne, Kamath & Steinke 2020 in 40 digits: the least over α by golden section."""
    with mpmath.workdps(40):
        e, r = mpmath.mpf(epsilon), mpmath.mpf(rho)

        def log_bound(t):
            a = 1 + mpmath.exp(t)
            return (a - 1) * (a * r - e) - mpmath.log(a - 1) + a * mpmath.log1p(-1 / a)

        low, high, ratio = mpmath.mpf(-12), mpmath.mpf(25), (mpmath.sqrt(5) - 1) / 2
        for _ in range(120):
            a, b = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, b) if log_bound(a) < log_bound(b) else (a, high)
        return mpmath.exp(log_bound(low))


def test_the_scale_through_rho_gives_its_guarantee_and_wastes_nothing():
    for epsilon in [0.01, 0.1, 1.0, 10.0]:
        for delta in [1e-6, 1e-9]:
            multiplier = GaussianNoise(epsilon, delta, "zcdp").multiplier()
            assert exact_zcdp_delta(epsilon, 0.5 / multiplier**2) <= delta
            assert exact_zcdp_delta(epsilon, 0.5 / (multiplier * (1 - 1e-6)) ** 2) > delta
            analytic = GaussianNoise(epsilon, delta).multiplier()
            assert 1.03 < multiplier / analytic < 1.12  # the cost of a guarantee through ρ alone
            assert gaussian_delta(epsilon=epsilon, noise_multiplier=multiplier) < delta


@given(epsilon=st.floats(1e-3, 30), ratio=st.floats(0.001, 0.9))
def test_delta_through_rho_agrees_with_40_digits_and_bounds_the_exact_one(epsilon: float, ratio: float):
    rho = ratio * epsilon
    found = zcdp_delta(epsilon=epsilon, rho=rho)
    assert found == pytest.approx(float(exact_zcdp_delta(epsilon, rho)), rel=1e-8)
    assert gaussian_delta(epsilon=epsilon, noise_multiplier=(2 * rho) ** -0.5) <= found


# ---------------------------------------------------------------- the cost of the grid (PROOF.md, step 4)


def test_the_factor_on_sigma_pays_for_the_discrete_law():
    """At F = 10^6, the worst allowed, and the smallest diameter: e^η₁ δ(ε − η₁ − η₂) + e^-99 ≤ δ, in 60 digits."""
    for epsilon in [1e-5, 0.01, 1.0, 10.0, 1000.0, 1e5]:
        for delta in [1e-30, 1e-9, 1e-6, 0.5]:
            for share in [1.0, _CONTINUOUS]:
                try:
                    multiplier = GaussianNoise(epsilon, delta).multiplier()
                except PublishError:
                    assert (epsilon, delta) == (1e-5, 1e-30)  # the solver's own limit
                    continue
                with mpmath.workdps(60):
                    m, e, f = mpmath.mpf(multiplier) / share, mpmath.mpf(epsilon), 10**6
                    s = m * mpmath.sqrt(2) * GRID
                    t = (mpmath.sqrt(f) + mpmath.sqrt(200) + mpmath.sqrt(f) / (2 * s) + 1 / m) ** 2
                    eta_1, eta_2 = f / (24 * s**2), t / (24 * s**2) + 2 * mpmath.exp(-(s**2))
                    assert mpmath.exp(eta_1) * exact_delta(e - eta_1 - eta_2, m) + mpmath.exp(-99) <= delta


# ---------------------------------------------------------------- the door as a black box


FLIP = RandomFourier(Gaussian(1.0), np.array([[1.0]]))  # rows 0 and π: the cosine goes from 1 to −1


def one_coordinate(row: float, noise: Noise, n: int) -> Array:
    rows = np.array([[row]])
    return np.array([private_mean([rows], FLIP, noise, n_rows=1).noisy_sum[0] for _ in range(n)], dtype=float)


def empirical_delta(noise: Noise, n: int) -> float:
    """The hockey-stick divergence P(y > t) − e^ε P′(y > t) at the threshold t that is worst for Gaussian noise."""
    t = GRID * noise.epsilon * noise.multiplier() ** 2 * 2  # where the privacy loss of one coordinate is ε
    above = [(one_coordinate(row, noise, n) > t).mean() for row in (0.0, np.pi)]
    return above[0] - np.exp(noise.epsilon) * above[1]


LOOSE = GaussianNoise(0.5, 0.2)


def test_the_empirical_privacy_loss_is_the_claimed_one_and_no_more():
    """900 releases a table: 0.2 ± 0.026; the bounds are 4.6 standard errors."""
    assert 0.2 - 0.12 < empirical_delta(LOOSE, 900) < 0.2 + 0.12


def test_the_black_box_catches_half_the_noise(monkeypatch: pytest.MonkeyPatch):
    """Its power: with half the noise the loss at that threshold is 0.39 ± 0.016, four standard errors above the bound."""
    honest = GaussianNoise.deviation
    monkeypatch.setattr(GaussianNoise, "deviation", lambda self, sensitivity: honest(self, sensitivity) / 2)
    assert empirical_delta(LOOSE, 1000) > 0.2 + 0.12


def test_the_empirical_loss_of_laplace_noise_stays_below_epsilon(monkeypatch: pytest.MonkeyPatch):
    """P(y > t) ≤ e^ε P′(y > t) at t = the larger mean, where one coordinate that moves by 2 of 2√2 has its worst."""
    noise = LaplaceNoise(1.0, 0)

    def log_ratio(n: int) -> float:
        above = [(one_coordinate(row, noise, n) > GRID * SHRINK).mean() for row in (0.0, np.pi)]
        return float(np.log(above[0] / above[1]))

    assert 0.4 < log_ratio(1000) < 1.0  # 1/√2, ± 0.06
    honest = importlib.import_module("release_side.door.mechanism").laplace_scale
    monkeypatch.setattr("release_side.door.mechanism.laplace_scale", lambda *facts: honest(*facts) / 2)
    assert log_ratio(1000) > 1.0  # 2/√2 with half the noise


# ---------------------------------------------------------------- rehearsals


@pytest.fixture
def rehearsal(tmp_path: Path) -> tuple[Path, ka.Release]:
    path = tmp_path / "r.kme"
    return path, publish(FRAME, DOMAIN, **BUDGET, **SMALL, rehearsal=1, output=path)


def test_a_rehearsal_is_the_same_each_time_and_another_for_another_seed():
    for noise, delta in [("gaussian", 1e-6), ("laplace", 0)]:
        one, same, other = (
            publish(FRAME, DOMAIN, epsilon=1.0, delta=delta, noise=noise, rehearsal=seed, **SMALL) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one.measurement.noisy_sum, same.measurement.noisy_sum)
        np.testing.assert_array_equal(one.weights, same.weights)
        assert (one.measurement.noisy_sum != other.measurement.noisy_sum).all()
        assert one.statement.mechanism == f"rehearsal of discrete {noise}" and one.statement.is_rehearsal


def test_the_noise_of_a_rehearsal_has_the_size_of_the_real_one():
    """40,000 coordinates: the mean square is off by at most 5 standard errors, √(kurtosis − 1) / 200."""
    for noise in [GaussianNoise(1.0, 1e-6), LaplaceNoise(1.0, 0)]:
        total = np.full(40_000, 10**12, dtype=np.int64)
        draws = RehearsalNoise(noise, 3).add_to(total, sensitivity=2.0**31) - total
        kurtosis = 3 if noise.name == GAUSSIAN else 6
        mean_square = np.mean((draws / noise.deviation(2.0**31)) ** 2)
        assert abs(mean_square - 1) < 5 * np.sqrt(kurtosis - 1) / 200
        assert np.mean((draws / noise.deviation(2.0**31)) ** 4) == pytest.approx(kurtosis, rel=0.2)


def test_real_noise_cannot_be_drawn_again():
    total = np.zeros(50, dtype=np.int64)
    for noise in (GaussianNoise(1.0, 1e-6), LaplaceNoise(1.0, 0)):
        np.random.seed(0)  # noqa: NPY002  what a careless seed could reach
        one = noise.add_to(total, sensitivity=2.0**31)
        np.random.seed(0)  # noqa: NPY002
        assert (noise.add_to(total, sensitivity=2.0**31) != one).all()


def test_a_rehearsal_is_refused_by_readers_unless_they_ask(rehearsal: tuple[Path, ka.Release], tmp_path: Path):
    path, release = rehearsal
    refusal = (
        r"r\.kme: the file is stamped NOT PRIVATE: it is a rehearsal.*no row of the table is protected\. "
        r"Ask its maker for the release itself.*--allow-rehearsal \(in Python allow_rehearsal=True\)\."
    )
    for read in (read_release, ka.read_release):
        with pytest.raises(FileRefused, match=refusal):
            read(path)
    again = ka.read_release(path, allow_rehearsal=True)
    np.testing.assert_array_equal(again.weights, release.weights)
    assert "NOT PRIVATE" in repr(again) and "NOT PRIVATE" in again._repr_html_()
    assert len(validate_release(path)) == 1 and "NOT PRIVATE" in validate_release(path)[0]
    assert validate_release(path, allow_rehearsal=True) == []
    again.write(tmp_path / "again.kme")
    assert (tmp_path / "again.kme").read_bytes() == path.read_bytes()


def test_the_stamp_of_a_rehearsal_is_in_formats_that_have_room_for_it(tmp_path: Path):
    for seed, stamp in ((1, "NOT PRIVATE"), (None, "ε = 1, δ = 1e-06")):
        release = publish(FRAME, DOMAIN, **BUDGET, **SMALL, rehearsal=seed)
        assert release.is_rehearsal == (seed is not None)
        export(release, tmp_path / "r.nc")
        with xarray.open_dataset(tmp_path / "r.nc", engine="scipy") as dataset:
            assert stamp in dataset.attrs["privacy"]
        export(release, tmp_path / "r.parquet")
        assert stamp in pd.read_parquet(tmp_path / "r.parquet").attrs["privacy"]


def test_every_json_of_a_rehearsal_says_so(rehearsal: tuple[Path, ka.Release], tmp_path: Path):
    FRAME.to_csv(tmp_path / "s.csv", index=False)
    for words in (["info"], ["expect", "age"], ["mmd-test", str(tmp_path / "s.csv")]):
        command = [words[0], str(rehearsal[0]), *words[1:], "--json", "--allow-rehearsal"]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["rehearsal"] is True and "NOT PRIVATE" in result.stderr
        assert CliRunner().invoke(main, command[:-1]).exit_code == 1


# ---------------------------------------------------------------- published with each noise


@pytest.mark.parametrize(
    "choice",
    [
        {"noise": "laplace", "epsilon": 2.0, "delta": 0},
        {"calibration": "zcdp", "epsilon": 2.0, "delta": 1e-6},
        {"noise": "laplace", "epsilon": 2.0, "delta": 0, "method": "subspace"},
    ],
    ids=str,
)
def test_a_release_with_each_noise_has_a_sound_statement_and_is_read_back(choice, tmp_path: Path):
    frame = DOMAIN.decode(DOMAIN.draw(400, 1))
    size = {"points": 15} if "method" in choice else SMALL
    path = tmp_path / "r.kme"
    release = publish(frame, DOMAIN, **choice, **size, output=path)
    assert release.measurement is not None and release.statement is not None
    release.statement.check_arithmetic()
    assert validate_release(path) == []
    again = read_release(path)
    assert again.statement == release.statement
    assert again.measurement.noise_law == release.measurement.noise_law == release.statement.mechanism
    assert ka.mmd_test(again, frame[:200]).noise_aware
    assert release.mean("age").parts["privacy"] > 0


def test_a_file_that_claims_less_laplace_noise_than_it_has_features_for_is_refused(tmp_path: Path):
    """The L1 sensitivity grows with √F: one computed for the Euclidean distance is refused."""
    frame = DOMAIN.decode(DOMAIN.draw(40, 1))
    release = publish(frame, DOMAIN, epsilon=1.0, delta=0, noise="laplace", **SMALL)
    assert release.statement is not None and release.measurement is not None
    shrunk = release.statement.sensitivity / np.sqrt(60)
    scale = shrunk * np.sqrt(2)
    release.statement = dataclasses.replace(release.statement, sensitivity=shrunk, noise_scale=scale)
    release.measurement = dataclasses.replace(release.measurement, noise_scale=scale)
    with pytest.raises(ValueError, match=r"claims sensitivity .*the measurement has another"):
        release.write(tmp_path / "r.kme")


# ---------------------------------------------------------------- workers


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interrupted_reader_ends_the_workers_and_draws_no_noise(workers: int):
    class Interrupted(Exception):
        pass

    def rows():
        yield np.zeros((5, 1))
        raise Interrupted

    recorded: list[str] = []
    with pytest.raises(Interrupted):
        private_mean(
            rows(), FLIP, GaussianNoise(1.0, 1e-6), n_rows=10, workers=workers,
            record_spend=lambda: recorded.append("spent"),
        )  # fmt: skip
    assert recorded == []


def test_the_spend_is_recorded_just_before_the_noise_and_an_error_there_draws_none(monkeypatch: pytest.MonkeyPatch):
    order: list[str] = []
    honest = GaussianNoise.add_to
    monkeypatch.setattr(
        GaussianNoise, "add_to", lambda self, total, **facts: (order.append("noise"), honest(self, total, **facts))[1]
    )
    rows, noise = [np.zeros((2, 1))], GaussianNoise(1.0, 1e-6)
    private_mean(rows, FLIP, noise, n_rows=2, record_spend=lambda: order.append("spend"))
    assert order == ["spend", "noise"]

    def over_budget() -> None:
        raise PublishError("over budget")

    with pytest.raises(PublishError, match="over budget"):
        private_mean(rows, FLIP, noise, n_rows=2, record_spend=over_budget)
    assert order == ["spend", "noise"]
