"""Goodness of fit: points that are no estimate of what was measured are found, and honest ones of every kind are not."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from kmeanalyst.cli.main import main
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file import validate_release
from kmeanalyst.releases.file.validating import _distance_bounds, _linear_tail, fit_findings
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.statement import GAUSSIAN, LAPLACE
from release_side import publish

DOMAIN = Domain((
    Integer(name="age", lower=0, upper=100), Real(name="height", lower=0.0, upper=100.0),
    Categorical(name="city", levels=("a", "b", "c", "d")),
))  # fmt: skip
HONEST: dict[str, dict[str, Any]] = {
    "random features": {"features": 200, "points": 100},
    "random features of few equal points": {"features": 200, "points": 12, "weights": "uniform"},
    "random features, signed": {"features": 200, "points": 60, "weights": "signed"},
    "random features, single precision": {"features": 200, "points": 60, "float32": True},
    "random features, short": {"features": 200, "points": 60, "weights": "bounded", "bound": 0.4},
    "random features under Laplace noise": {"features": 60, "points": 60, "noise": "laplace", "delta": 0.0},
    "subspace": {"method": "subspace", "points": 200},
    "subspace of few points": {"method": "subspace", "points": 5},
    "subspace, published": {"method": "subspace", "points": 200, "weights": "published"},
    "subspace, bounded": {"method": "subspace", "points": 30, "weights": "bounded"},
    "subspace, signed": {"method": "subspace", "points": 200, "weights": "signed"},
    "margins": {"kernel": "margins", "points": 400, "rehearsal": 2},  # thinned to a tenth, one seed of eight has a finding
    "margins, few equal points": {"kernel": "margins", "points": 25, "weights": "uniform"},
}  # fmt: skip


def population(n: int, seed: int, *, other: bool = False) -> pd.DataFrame:
    """Young and tall rows, mostly of one city; with `other` old and short ones of another city."""
    rng = np.random.default_rng(seed)
    age, height, city = (80, 30, [0.1, 0.0, 0.1, 0.8]) if other else (25, 70, [0.7, 0.2, 0.1, 0.0])
    return pd.DataFrame({
        "age": rng.normal(age, 6, n).round().clip(0, 100).astype(int),
        "height": rng.normal(height, 8, n).clip(0, 100).round(2), "city": rng.choice(list("abcd"), n, p=city),
    })  # fmt: skip


def published(name: str, *, epsilon: float = 1.0, n: int = 20_000, other: bool = False) -> Release:
    options = {"delta": 1e-6, "kernel": "table", "rehearsal": 1} | HONEST[name]
    return publish(population(n, 1, other=other), DOMAIN, epsilon=epsilon, workers=1, **options)


@pytest.fixture(scope="module")
def releases() -> dict[str, Release]:
    return {name: published(name) for name in HONEST}


def refitted(release: Release, points: pd.DataFrame | None = None, weights: np.ndarray | None = None) -> Release:
    """Other points or weights with the same measurement, and their correct fit_distance."""
    points = release.to_frame() if points is None else points
    weights = release.weights if weights is None else weights
    measurement = release.measurement
    mean = feature_mean(measurement.feature_map, release.domain.encode(points), weights)
    distance = float(np.linalg.norm(mean - measurement.vector))
    return release.replaced(points=points, weights=weights, fit_distance=distance)


def findings(release: Release, folder: Path) -> list[str]:
    release.write(folder / "r.kme")
    return validate_release(folder / "r.kme", allow_rehearsal=True)


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.slow(but="subspace of few points")
def test_an_honest_release_has_no_findings(name, releases, tmp_path):
    assert findings(releases[name], tmp_path) == []


@pytest.mark.parametrize("weights", ["probability", "uniform", "signed"])
@pytest.mark.parametrize("name", HONEST)
@pytest.mark.slow(but="random features, signed-uniform")
def test_a_thinned_release_has_no_findings(name, weights, releases, tmp_path):
    release = releases[name]
    assert findings(release.thin(max(2, len(release) // 10), weights=weights), tmp_path) == []


@pytest.mark.parametrize("epsilon", [0.1, 10.0])
@pytest.mark.parametrize("n", [200, 20_000])
@pytest.mark.parametrize(
    "name", ["random features", "subspace", "subspace, published", "subspace of few points", "margins"]
)
@pytest.mark.slow(but="subspace of few points-200-10.0")
def test_neither_noise_nor_its_absence_makes_a_finding(name, n, epsilon, tmp_path):
    assert findings(published(name, epsilon=epsilon, n=n), tmp_path) == []


def recoded(release: Release) -> pd.DataFrame:
    frame = release.to_frame()
    codes = frame["city"].cat.codes
    return frame.assign(city=pd.Categorical.from_codes(3 - codes, categories=list("abcd")))


def swapped(release: Release) -> pd.DataFrame:
    frame = release.to_frame()
    return frame.assign(age=frame["height"].round().astype(int), height=frame["age"].astype(float))


@pytest.mark.parametrize(
    "name", ["random features", "random features, signed", "margins", "random features under Laplace noise"]
)
def test_points_of_something_else_are_found(name, releases, tmp_path):
    release = releases[name]
    for points in (swapped(release), recoded(release), DOMAIN.decode(DOMAIN.draw(len(release), 5))):
        (finding,) = findings(refitted(release, points), tmp_path)
        assert re.match(
            r"points: at least [\d.]+ from the mean that was measured, whatever the noise, where rows drawn evenly from "
            r"the domain are at most [\d.]+ from it: the points are not an estimate of this measurement", finding
        )  # fmt: skip


@pytest.mark.parametrize("name", ["random features", "subspace", "margins"])
@pytest.mark.slow(but="subspace")
def test_the_points_and_weights_of_another_table_are_found(name, releases, tmp_path):
    other = published(name, other=True)
    assert findings(other, tmp_path) == []
    found = findings(refitted(releases[name], other.to_frame(), other.weights), tmp_path)
    what = "weights: equal weights" if name == "subspace" else "points: at least"
    assert len(found) == 1 and found[0].startswith(what)


def test_subspace_points_that_are_not_those_measured_are_found(releases, tmp_path):
    release = releases["subspace"]
    found = findings(refitted(release, swapped(release)), tmp_path)
    assert any(re.match(r"points: \d+ of 200 lie outside the subspace that was measured", finding) for finding in found)
    frame = release.to_frame()
    frame.loc[7, "age"] = 100 - frame.loc[7, "age"]
    (finding,) = findings(refitted(release, frame), tmp_path)
    assert finding.startswith("points: 1 of 200 lie outside the subspace")


@pytest.mark.parametrize("name", ["subspace", "subspace, signed", "subspace, bounded"])
def test_permuted_weights_are_found(name, releases):
    """Of points spread over the domain: only the weights are informative. Some permutations fit as well as equal weights."""
    release, rng, found = releases[name], np.random.default_rng(3), 0
    for _ in range(20):
        for finding in fit_findings(refitted(release, weights=rng.permutation(release.weights))):
            assert re.match(
                r"weights: equal weights on the same .* \(at [\d.]+\) than .* more than noise explains", finding
            )
            found += 1
    assert found >= 10


def test_what_noise_hides_is_not_found(tmp_path):
    release = published("random features", epsilon=0.1, n=200)
    assert findings(refitted(release, swapped(release)), tmp_path) == []


def test_validate_exits_with_3_and_says_why(releases, tmp_path):
    path = tmp_path / "r.kme"
    refitted(releases["margins"], swapped(releases["margins"])).write(path)
    result = CliRunner().invoke(main, ["validate", str(path), "--allow-rehearsal"])
    assert result.exit_code == 3 and "finding: points: at least" in result.stdout
    releases["margins"].write(path)
    assert CliRunner().invoke(main, ["validate", str(path), "--allow-rehearsal"]).exit_code == 0


def test_points_without_a_measurement_have_nothing_to_fit(foreign_release):
    assert fit_findings(foreign_release) == []
    assert foreign_release.residual_over_noise is None


def test_a_release_reports_its_residual_relative_to_the_noise(releases):
    release = releases["random features"]
    expected = release.fit_distance / math.sqrt(200 * release.measurement.noise_scale**2)
    assert release.residual_over_noise == pytest.approx(expected, rel=1e-12)
    assert release.summary()["fit"] == f"residual {expected:.3g} of the noise's size"
    assert "fit" not in release.replaced(fit_distance=None).summary()


# ---------------------------------------------------------------------- the bounds


class Plain:
    """A feature map of so many features, for measurements that are only numbers."""

    def __init__(self, dimension: int) -> None:
        self.dimension, self.norm_bound = dimension, 1.0


@pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("dimension", [1, 20, 1000])
@pytest.mark.parametrize("distance", [0.0, 1.0, 30.0])
def test_the_bounds_contain_the_distance_and_are_not_much_wider_than_needed(law, dimension, distance):
    """20,000 draws at a probability of 1e-6: no failure; and the bounds are a few standard deviations wide."""
    rng, m = np.random.default_rng(0), np.zeros(dimension)
    m[0] = distance
    draws = 20_000 if dimension < 100 else 500
    noise = (
        rng.normal(size=(draws, dimension)) if law == GAUSSIAN else rng.laplace(scale=0.5**0.5, size=(draws, dimension))
    )
    base = Measurement(
        vector=m, noise_scale=1.0, noise_law=law, n_rows=9, feature_map=Plain(dimension), noisy_sum=m.astype(int)
    )
    lows, highs = np.transpose([_distance_bounds(replace(base, vector=m + one), np.zeros(dimension)) for one in noise])
    assert (lows <= distance).all() and (distance <= highs).all()
    assert (noise @ np.ones(dimension) <= _linear_tail(base, np.ones(dimension))).all()
    if law == GAUSSIAN and distance == 30.0 and dimension == 1000:
        assert np.mean(lows) > 20 and np.mean(highs) < 40
    if law == GAUSSIAN and dimension > 1:
        assert _linear_tail(base, np.ones(dimension)) < 6 * math.sqrt(dimension)
