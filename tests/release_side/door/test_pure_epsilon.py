"""Pure differential privacy (δ = 0): every method gives it with Laplace noise, or says why it cannot.

The L1 distance of F coordinates is at most √F times their Euclidean one (Cauchy-Schwarz), so that Laplace noise has the
deviation √2·√F·D/ε (tables of cells have a smaller, exact one): less than Gaussian noise up to a few coordinates, and √F
times more beyond. Balog, Tolstikhin & Schölkopf (2017, first version), Remark 4.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import release_side
from kmeanalyst.kernels.features.base import CellFeatures, FeatureMap
from kmeanalyst.kernels.features.composed import Concatenation
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file import validate_release
from kmeanalyst.releases.function import KINDS
from kmeanalyst.releases.statement import LAPLACE, PopulationSize
from release_side.choices.choices import FAMILIES, METHOD_NAMES, Choices
from release_side.door.mechanism import LaplaceNoise, PublishError
from release_side.door.private_mean import private_mean
from release_side.publishing.methods.generator import Generator

DOMAIN = Domain((Real(name="x", lower=-1, upper=1), Boolean(name="y")))
NUMBERS = Domain((Real(name="x", lower=-1, upper=1), Real(name="z", lower=0, upper=10)))
SMALL = Domain((Integer(name="n", lower=0, upper=3), Boolean(name="y")))
N = 400
PURE: dict[str, Any] = {"epsilon": 0.5, "delta": 0, "noise": "laplace"}
METHODS: dict[str, tuple[Domain, dict[str, Any]]] = {
    "random-features": (DOMAIN, {"points": 20, "features": 40}), "margins": (DOMAIN, {"points": 20, "kernel": "margins"}),
    "persons": (DOMAIN, {"points": 20, "features": 40, "unit": "person"}),
    "subspace": (DOMAIN, {"method": "subspace", "points": 15}),
    "published subspace": (DOMAIN, {"method": "subspace", "points": 15, "weights": "published"}),
    "generator": (DOMAIN, {"method": "generator", "points": 20, "features": 40}),
    "exponential": (SMALL, {"method": "exponential", "points": 3}),
}  # fmt: skip
KERNELS = {"binning": "laplacian:lengthscale=2", "maclaurin": "polynomial:degree=2,offset=1"}
for _family in FAMILIES:
    METHODS[_family] = (
        NUMBERS, {"points": 20, "features": 40, "family": _family, "kernel": KERNELS.get(_family, "gaussian:lengthscale=4")},
    )  # fmt: skip


def table(domain: Domain) -> pd.DataFrame:
    """Rows, four to each of 100 persons."""
    return domain.decode(domain.draw(N, 1)).assign(person=[f"p{i % 100}" for i in range(N)])


def test_every_method_is_tried_here():
    assert {how.get("method", "random-features") for _, how in METHODS.values()} == set(METHOD_NAMES)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_give_pure_differential_privacy(name: str, tmp_path: Path):
    if name == "generator":
        pytest.importorskip("torch", reason="a generator trains a network with PyTorch, which is not installed")
    domain, how = METHODS[name]
    release_side.publish(table(domain), domain, output=tmp_path / "pure.kme", **how, **PURE)
    assert validate_release(tmp_path / "pure.kme") == []  # a reader does the arithmetic of the statement again
    release = read_release(tmp_path / "pure.kme")
    assert release.statement is not None
    assert (release.statement.epsilon, release.statement.delta) == (0.5, 0.0)
    if release.measurement is not None:
        assert release.measurement.noise_law == LAPLACE
        check_noise(release.measurement.feature_map, release.measurement.noise_scale, release.measurement.n_rows)


def check_noise(feature_map: FeatureMap, noise_scale: float, n: int) -> None:
    """√2 ⌈√F · D⌉/(ε N), of cells √2 · 2Σh/(ε N), up to rounding of the L1 sensitivity to whole steps of the grid."""
    l1 = math.sqrt(feature_map.dimension) * feature_map.diameter
    if isinstance(feature_map, CellFeatures):
        l1 = 2 * feature_map.heights.sum()
    expected = math.sqrt(2) * l1 / (0.5 * n)
    assert noise_scale == pytest.approx(expected, rel=5e-6)  # rows are shrunk by 2^-18


def test_the_measurement_of_a_generator_has_it_before_any_network_is_trained():
    """All that a generator learns of the table is this measurement: what is trained on it is post-processing."""
    method, noise = Generator(Choices(target="y", points=20, features=40)), LaplaceNoise(0.5, 0)
    size = PopulationSize(N)
    features = method.prepare(DOMAIN, size, noise)
    assert isinstance(features, Concatenation)
    measurement = private_mean([DOMAIN.encode(table(DOMAIN))], features, noise, n_rows=N)
    statement = method.statement(measurement, noise, size, 20)
    statement.check_arithmetic()
    assert (statement.epsilon, statement.delta, statement.mechanism) == (0.5, 0.0, LAPLACE)
    check_noise(features, measurement.noise_scale, N)


def test_noise_and_delta_that_do_not_go_together_are_refused_before_a_row_is_read(monkeypatch: pytest.MonkeyPatch):
    """A function has none at all: it is a draw of a Gaussian process."""
    monkeypatch.setattr("release_side.publishing.opening.open_private", lambda *_: pytest.fail("a row could be read"))
    for kind in KINDS:
        with pytest.raises(PublishError, match=r"delta = 0 asks .* Gaussian process, which cannot give it\. Pass a small"):
            release_side.publish_function(table(DOMAIN), DOMAIN, kind=kind, epsilon=1.0, delta=0, uncounted=True)
    monkeypatch.undo()
    for noise, delta, message in [
        ("gaussian", 0, r"delta = 0 asks for pure differential privacy.*or noise=.laplace"),
        ("laplace", 1e-6, r"Laplace noise gives pure differential privacy, so delta is 0.*Pass delta 0"),
    ]:
        for method in ["random-features", "subspace"]:
            domain, how = METHODS[method]
            with pytest.raises(PublishError, match=message):
                release_side.publish(table(domain), domain, **how, epsilon=1.0, delta=delta, noise=noise)


def test_the_error_of_a_measurement_is_that_of_its_noise():
    """‖y − mean φ‖² has the mean F τ²: √F larger under Laplace noise, for the same features of the same table."""
    found = {}
    for name, budget in (("laplace", PURE), ("gaussian", PURE | {"noise": "gaussian", "delta": 1e-6})):
        release = release_side.publish(table(DOMAIN), DOMAIN, rehearsal=3, points=20, features=400, **budget)
        assert release.measurement is not None
        features = release.measurement.feature_map
        rows = DOMAIN.encode(table(DOMAIN))
        squared = float(np.sum((release.measurement.vector - features.mean(rows, np.full(N, 1 / N))) ** 2))
        expected = features.dimension * release.measurement.noise_scale**2
        kurtosis = 5.0 if name == "laplace" else 2.0  # the variance of ξ²/τ²
        assert squared == pytest.approx(expected, rel=5 * math.sqrt(kurtosis / features.dimension))
        found[name] = math.sqrt(squared / features.dimension)
    assert found["laplace"] / found["gaussian"] > 3.5  # √400 · √2/0.5 over 7.9
