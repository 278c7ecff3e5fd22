"""Releases of each family of features: published, written, read and asked; and their forged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from file_tools import (
    SCHEMA_TEST,
    Edit,
    Members,
    all_of,
    check_refusals,
    forged,
    members_of,
    narrow,
    opened,
    refused,
    same,
    scaling,
)  # fmt: skip

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels import KernelMean, Matern, Polynomial, RationalQuadratic
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file import measurement as measurement_module
from kmeanalyst.releases.file import validate_release
from kmeanalyst.representation import wanted
from kmeanalyst.representation.wanted import QUICK, Effort
from release_side.door.mechanism import PublishError

DOMAIN = Domain((Real(name="x", lower=-3, upper=3), Integer(name="n", lower=0, upper=20, missing=True)))
LEVELS = Domain((Real(name="x", lower=-3, upper=3), Categorical(name="c", levels=("a", "b"))))
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
PURE: dict[str, Any] = {"epsilon": 1.0, "delta": 0.0, "noise": "laplace"}
FOURIER = {
    "matern": (None, "matern:nu=1.5,lengthscale=2"), "rational quadratic": (None, "rational-quadratic:alpha=1,lengthscale=2"),
}  # fmt: skip
SEARCHED = {
    "binning": ("binning", "laplacian:lengthscale=3"),
    "polynomial": (None, "polynomial:degree=2,offset=1"),
}  # fmt: skip
WAYS = FOURIER | SEARCHED
MAPS = {"binning": "random-binning", "polynomial": "random-maclaurin"}


def table(n: int = 3000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    x = np.clip(rng.normal(2 * group - 1, 0.5), -3, 3).round(3).astype(str)
    number = np.clip(rng.poisson(4 + 6 * group), 0, 20).astype(str)
    return pd.DataFrame({"x": x, "n": np.where(rng.random(n) < 0.1, "", number)})


def published(name: str, budget: dict[str, Any] = BUDGET, **choices: Any) -> Release:
    family, kernel = WAYS[name]
    sizes = {"points": 60, "features": 300} | choices
    return release_side.publish(table(), DOMAIN, family=family, kernel=kernel, **sizes, **budget)


@pytest.fixture(autouse=True)
def quick_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less work: enough for two columns."""
    monkeypatch.setattr(wanted, "EFFORT", Effort(0.3))


@pytest.fixture(scope="module")
def releases() -> dict[str, Release]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "EFFORT", QUICK)
        return {name: published(name) for name in WAYS}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.product(but="binning")
def test_a_release_of_each_family_read_back_is_the_release_written(name: str, releases, tmp_path: Path):
    releases[name].write(tmp_path / "a.kme")
    same(releases[name], ka.read_release(tmp_path / "a.kme"))
    SCHEMA_TEST.validate(json.loads(members_of(tmp_path / "a.kme")["release.json"]))
    assert validate_release(tmp_path / "a.kme") == []


def test_two_releases_of_one_family_share_their_features(releases, rough_representation):
    """The seed is public: kernel, domain and size name the map."""
    for name in WAYS:
        one, other = releases[name].measurement, published(name, {"epsilon": 0.3, "delta": 1e-6}).measurement
        for values, twin in zip(one.feature_map.arrays().values(), other.feature_map.arrays().values(), strict=True):
            np.testing.assert_array_equal(values, twin)
        assert (one.noisy_sum != other.noisy_sum).any()


def test_the_statement_says_which_features_were_public_and_claims_their_diameter(releases):
    for name in SEARCHED:
        statement, measurement = releases[name].statement, releases[name].measurement
        assert statement is not None and measurement is not None
        assert measurement.feature_map.name == MAPS[name]
        said = {"random-binning": "the grids", "random-maclaurin": "the degrees"}
        assert any(said[measurement.feature_map.name] in fact for fact in statement.taken_as_public)
        factor = 2**0.5 if name == "binning" else 2.0
        assert statement.sensitivity * 3000 == pytest.approx(factor * measurement.feature_map.norm_bound, rel=5e-6)


def test_searched_points_are_nearer_to_the_table_than_the_noise_is():
    """The constraint to probability weights keeps most of the noise out; equal mass on the domain would be far."""
    for name in SEARCHED:
        for budget in [BUDGET, PURE]:
            release = published(name, budget, rehearsal=1)
            measurement = release.measurement
            assert measurement is not None and release.weights.min() >= 0
            assert release.weights.sum() == pytest.approx(1)
            rows, feature_map = DOMAIN.encode(table()), measurement.feature_map
            truth = feature_map.mean(rows, np.full(len(rows), 1 / len(rows)))
            error = np.linalg.norm(feature_map.mean(release.encoded_points, release.weights) - truth)
            noise = np.linalg.norm(measurement.vector - truth)
            uniform = DOMAIN.draw(2000, 0)
            assert error < 0.8 * noise
            if budget is BUDGET:
                assert error < 0.5 * np.linalg.norm(feature_map.mean(uniform, np.full(2000, 1 / 2000)) - truth)


def test_an_analyst_can_test_and_ask_a_release_of_each_family(releases):
    for name in SEARCHED:
        release = releases[name]
        like, unlike = (table(300, seed=1).replace("", np.nan).astype(float) for _ in range(2))
        unlike["x"] = (unlike["x"] + 1.5).clip(-3, 3)
        similar, different = ka.mmd_test(release, like), ka.mmd_test(release, unlike)
        assert similar.noise_aware and similar.pvalue > 1e-4 > different.pvalue
        assert ka.mmd(release, like) < ka.mmd(release, unlike)
        estimate = release.mean("x")
        assert np.isfinite([estimate.value, estimate.standard_error]).all()


def test_every_kind_of_weights_can_be_had_on_searched_points():
    for weights in ["bounded", "signed", "uniform"]:
        for name in ["binning", "polynomial"]:
            release = published(name, weights=weights)
            total = np.abs(release.weights).sum()
            assert total <= {"bounded": 1, "signed": 2, "uniform": 1}[weights] * (1 + 1e-9)
            if weights == "uniform":
                np.testing.assert_array_equal(release.weights, 1 / 60)


def test_public_rows_join_the_search_and_float32_points_are_single_precision():
    numbers = table(200, seed=5).replace("", np.nan).astype(float)
    release = published("binning", public_points=numbers, float32=True)
    x = release.to_frame()["x"].to_numpy()
    np.testing.assert_array_equal(x, x.astype(np.float32))
    assert release.statement is not None
    assert any("given as public" in fact for fact in release.statement.taken_as_public)


def test_more_points_than_candidates_are_padded(monkeypatch):
    monkeypatch.setattr(wanted, "EFFORT", QUICK)  # 40 candidates
    assert len(published("binning", points=80)) == 80


@pytest.mark.parametrize("kernel", ["matern:nu=0.5,lengthscale=2", "polynomial:degree=3"])
def test_a_subspace_can_be_of_the_new_kernels(kernel: str, tmp_path: Path):
    release = release_side.publish(table(), DOMAIN, method="subspace", kernel=kernel, points=40, **BUDGET)
    release.write(tmp_path / "a.kme")
    same(release, ka.read_release(tmp_path / "a.kme"))
    rows = DOMAIN.encode(table())
    embedding = KernelMean(release.kernel, release.encoded_points, release.weights)
    assert embedding.distance(KernelMean(release.kernel, rows)) < 0.2 * release.kernel.bound


def test_the_plan_takes_a_family():
    choice = {"kernel": "laplacian:lengthscale=3", "family": "binning", "features": 200, "points": 40}
    plan = release_side.plan(DOMAIN, rows=3000, epsilon=[1.0], delta=1e-6, **choice)
    assert 100 < plan["features"].item() <= 200


def test_kernels_are_read_from_text():
    bounds = ((-3.0, 0.0), (3.0, 20.0))
    for text, kernel in (
        ("matern:nu=2.5,lengthscale=3", Matern(2.5, 3.0)),
        ("rational-quadratic:alpha=0.5,lengthscale=3", RationalQuadratic(0.5, 3.0)),
        ("polynomial", Polynomial(2, 1.0, *bounds)),
        ("polynomial:degree=3,offset=0.5", Polynomial(3, 0.5, *bounds)),
    ):
        assert kernel_from_spec(text, DOMAIN) == kernel


def test_a_wrong_kernel_or_family_is_refused_with_the_fix_before_anything_is_spent():
    check_refusals("kernels", lambda made: made, **globals())
    with pytest.raises(DomainError, match=r"is for numbers, and c have levels"):
        kernel_from_spec("polynomial", LEVELS)


def without(name: str) -> Edit:
    def edit(header: dict[str, Any], members: Members) -> None:
        del header["measurement"]["feature_map"]["arrays"][name], members[f"measurement/{name}.npy"]

    return edit


# √2 instead of 2, with the better ρ and ε that this would mean
SHARPER = all_of(scaling("statement", "sensitivity", by=2**-0.5), scaling("statement", "rho", by=0.5))
MAP = ("measurement", "feature_map")


def test_a_forged_family_is_refused(releases, tmp_path: Path):
    for name in WAYS:
        releases[name].write(tmp_path / f"{name}.kme")
    listed = "families"
    check_refusals(listed, lambda case: opened(forged(tmp_path / f"{case[0]}.kme", case[1]), tmp_path), **globals())


def test_maclaurin_features_cannot_claim_the_diameter_of_binning_nor_grids_too_many_cells(releases, tmp_path, monkeypatch):
    releases["polynomial"].write(tmp_path / "a.kme")
    hint = "ask its maker for a correct file"
    refused(forged(tmp_path / "a.kme", SHARPER), tmp_path, "claims sensitivity", "the measurement has another", hint)
    releases["binning"].write(tmp_path / "a.kme")
    narrow(monkeypatch, features=100)
    refused((tmp_path / "a.kme").read_bytes(), tmp_path, "its grids have", "at most 100 are read")


def test_families_are_refused_on_levels(releases):
    frame = pd.DataFrame({"x": ["0", "1"], "c": ["a", "b"]})
    with pytest.raises(PublishError, match=r"of numbers, and c have levels\. Choose another family"):
        release_side.publish(frame, LEVELS, family="binning", kernel=ka.kernels.Laplacian(1.0), **BUDGET)
    measurement = releases["binning"].measurement
    build = measurement_module.FEATURE_MAPS[measurement.feature_map.name]
    with pytest.raises(ValueError, match=r"features are of numbers, and .*have levels"):
        build(releases["binning"].kernel, LEVELS, measurement.feature_map.arrays())
