"""Independence of columns: the level and power of the noise-aware test, the exactness of the permutation test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import refusals
from simulated_releases import measured_release, measurement_of

import kmeanalyst as ka
from kmeanalyst.inference.compare import functionals
from kmeanalyst.inference.compare.independence import positions_of
from kmeanalyst.inference.two_sample import column_functions
from kmeanalyst.inference.two_sample.sides import Side
from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec, table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Real

NUMBERS = Domain(tuple(Real(name=name, lower=-4, upper=4) for name in ("a", "b", "sum")))
MIXED = Domain((Real(name="a", lower=-4, upper=4, missing=True), Categorical(name="b", levels=tuple("wxyz")), NUMBERS["sum"]))
N = 5000
MULTIPLIER = {1.0: 4.22, 0.1: 35.0}
GAUSSIAN, MARGINS = Gaussian(1.5), kernel_from_spec("margins", MIXED)
MAPS: dict[str, tuple[Domain, FeatureMap]] = {
    "numbers": (NUMBERS, RandomFourier.draw(GAUSSIAN, n_columns=3, dimension=300, rng=1)),
    "mixed": (MIXED, RandomFourier.draw(table_kernel(MIXED), n_columns=3, dimension=300, missing_columns=[0], rng=1)),
    "margins": (MIXED, MarginFeatures(MARGINS)),  # type: ignore[arg-type]
}


def population(name: str, n: int, rng: np.random.Generator, correlation: float) -> np.ndarray:
    """Columns a and b, and a third that depends on both."""
    a = rng.normal(size=n)
    b = correlation * a + np.sqrt(1 - correlation**2) * rng.normal(size=n)
    total = np.clip(a + b + rng.normal(size=n), -4, 4)
    if name != "numbers":
        b = np.digitize(b, [-0.8, 0.3, 1.0]).astype(float)
        a[rng.random(n) < 0.1] = np.nan
    return np.column_stack([np.clip(a, -4, 4), np.clip(b, -4, 4), total])


def released(name: str, rng: np.random.Generator, correlation: float, epsilon: float) -> Release:
    """A measurement of fresh rows; points that are a fair picture of the population."""
    domain, feature_map = MAPS[name]
    rows = population(name, N, rng, correlation)
    scale = MULTIPLIER[epsilon] * feature_map.diameter / N
    vector = feature_map.mean(rows, np.full(N, 1 / N)) + scale * rng.normal(size=feature_map.dimension)
    measurement = measurement_of(feature_map, vector, scale, N)
    return measured_release(measurement, domain, population(name, 400, rng, correlation), epsilon=epsilon)


@pytest.fixture
def few_reference_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quicker: for simulations."""
    monkeypatch.setattr(functionals, "_REFERENCE_ROWS", 120)
    monkeypatch.setattr(column_functions, "_ROWS", 120)


def pvalues(name: str, repetitions: int, *, correlation: float = 0.0, epsilon: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(2)
    return np.array(
        [ka.independence_test(released(name, rng, correlation, epsilon), "a", ["b"]).pvalue for _ in range(repetitions)]
    )


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
@pytest.mark.parametrize("name", sorted(MAPS))
@pytest.mark.levels(but="margins-0.1")
def test_independent_columns_are_seldom_called_dependent(name, epsilon, few_reference_rows):
    """Of 40 tables a level of 5 % rejects more than 8 with probability 2e-4; a third column depends on both."""
    assert (pvalues(name, 40, epsilon=epsilon) <= 0.05).sum() <= 8


@pytest.mark.parametrize("name", sorted(MAPS))
def test_a_moderate_correlation_is_found(name, few_reference_rows):
    assert (pvalues(name, 10, correlation=0.4) <= 0.05).mean() >= 0.8


def test_a_test_that_takes_the_released_points_for_the_truth_raises_false_alarms(few_reference_rows, monkeypatch):
    """The power of the first test: a null distribution without noise and doubt rejects what is random variation."""
    monkeypatch.setattr("kmeanalyst.inference.compare.independence._Points._doubt", lambda *_: 1e-9)
    monkeypatch.setattr(Side, "noise_variance", 1e-12)
    assert (pvalues("mixed", 10) <= 0.05).mean() >= 0.3


def test_the_criterion_distinguishes_dependence_from_random_variation(few_reference_rows):
    rng = np.random.default_rng(3)
    independent = [ka.independence_test(released("margins", rng, 0.0, 1.0), "a", "b").mmd_squared for _ in range(20)]
    dependent = ka.independence_test(released("margins", rng, 0.6, 1.0), "a", "b").mmd_squared
    assert dependent > 3 * np.abs(independent).max()


def test_several_columns_on_a_side_are_tested_together():
    rng = np.random.default_rng(4)
    release = released("numbers", rng, 0.0, 1.0)
    assert ka.independence_test(release, ["a", "b"], "sum").pvalue < 1e-4
    assert ka.independence_test(release, "sum", (0, 1)).pvalue < 1e-4


def test_the_result_says_what_it_assumes_and_how_much_is_seen():
    result = ka.independence_test(released("mixed", np.random.default_rng(5), 0.0, 1.0), "a", "b")
    assert result.noise_aware and result.n_release_rows == N and result.n_release_points == 400
    notes = " ".join(result.notes)
    assert "% of the variance of the product functions" in notes and "represent the population" in notes
    assert "independence" in result.method and 0 <= result.pvalue <= 1
    assert result.to_text().startswith(f"No dependence found (p = {result.pvalue:.4g}, level 0.05): they may be independent.")
    related = ka.independence_test(released("margins", np.random.default_rng(5), 0.6, 1.0), "a", "b")
    assert related.to_text().startswith("The columns depend on each other (p < 1e-09") and related.hypothesis == "independence"


def test_questions_that_make_no_sense_are_refused(mixed_release, foreign_release):
    domain = Domain((NUMBERS["a"], Categorical(name="one", levels=("only",))))
    features = MarginFeatures(kernel_from_spec("margins", domain))  # type: ignore[arg-type]
    points = np.column_stack([np.random.default_rng(0).normal(size=50), np.zeros(50)])
    constant = measured_release(measurement_of(features, np.zeros(features.dimension), 1e-3, N), domain, points)
    numbers, frame = released("numbers", np.random.default_rng(0), 0.0, 1.0), mixed_release.resample(20, rng=0)
    names = {**globals(), **locals()}
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, names))


def test_columns_are_found_by_name_or_position():
    assert positions_of(["x", "y", "z"], "z") == (2,)
    assert positions_of(["x", "y", "z"], [1, 0]) == (1, 0)
