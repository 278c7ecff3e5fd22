"""Thinning: fewer points for the same embedding, with the distance stated, for every kind of weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from contracts import KERNELS
from every import every
from file_tools import same

import kmeanalyst
from kmeanalyst.kernels import Gaussian, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import read_release
from kmeanalyst.releases.file import validate_release
from kmeanalyst.releases.measurement import feature_mean
from kmeanalyst.representation import thinning
from kmeanalyst.representation.thinning import THIN_WEIGHTS, thin, thinned

KINDS = pytest.mark.parametrize("kind", THIN_WEIGHTS)
ALL_KINDS = every("kind", THIN_WEIGHTS)
SIGNS = pytest.mark.parametrize("signed", [False, True], ids=["probability-release", "signed-release"])
ALL_SIGNS = every("signed", [False, True])


def cloud(n: int, *, signed: bool, seed: int = 0, d: int = 2) -> tuple[Array, Array]:
    """Points and weights of sum one; a fifth of signed ones are negative."""
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=n) * (np.where(rng.random(n) < 0.2, -1, 1) if signed else 1)
    return rng.normal(0, 2, (n, d)), weights / weights.sum()


def distance(kernel, points: Array, weights: Array, indices: Array, chosen: Array) -> float:
    """‖Σ v k − Σ w k‖ from one vector of differences over all the points."""
    difference = -weights.copy()
    np.add.at(difference, indices, chosen)
    return float(np.sqrt(max(0.0, difference @ kernel.gram(points, points) @ difference)))


@KINDS
@SIGNS
@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
@pytest.mark.product(but="indicator-signed-release-uniform")
def test_the_stated_error_is_the_distance(kind, signed, case):
    rng = np.random.default_rng(1)
    points, weights = case.rows(rng, 60), cloud(60, signed=signed)[1]
    for n in (1, 7, 40):
        indices, chosen, error = thinned(case.kernel, points, weights, n, kind)
        assert indices.shape == chosen.shape == (n,)
        expected = distance(case.kernel, points, weights, indices, chosen)
        assert error == pytest.approx(expected, rel=1e-6, abs=1e-7 * np.abs(weights).sum() * case.kernel.bound)


@ALL_KINDS
@ALL_SIGNS
@every("n", [1, 17, 60])
def test_weights_are_of_the_kind_asked_for(kind, signed, n):
    points, weights = cloud(60, signed=signed)
    indices, chosen, _ = thinned(Gaussian(1.0), points, weights, n, kind)
    assert (np.diff(indices) >= 0).all() and indices[0] >= 0 and indices[-1] < 60
    if kind == "uniform":
        np.testing.assert_array_equal(chosen, 1 / n)
        return
    assert len(set(indices)) == n
    if kind == "probability":
        assert chosen.min() >= 0 and chosen.sum() == pytest.approx(1, abs=1e-12)
    else:
        assert np.abs(chosen).sum() <= max(1, np.abs(weights).sum()) * (1 + 1e-9)


@ALL_SIGNS
@every("n", [2, 12])
def test_a_kind_with_more_freedom_is_never_further_away(signed, n):
    points, weights = cloud(200, signed=signed)
    errors = [thinned(Gaussian(1.0), points, weights, n, kind)[2] for kind in THIN_WEIGHTS]
    assert errors[2] <= errors[1] + 1e-7 and errors[1] <= errors[0] + 1e-7


@ALL_SIGNS
def test_weights_are_the_best_on_their_points(signed):
    """KKT of min ‖Σ v k − μ‖²: equal slopes on all points of positive weight; zero slope inside the ball."""
    points, weights = cloud(300, signed=signed)
    kernel = Gaussian(1.0)
    target = kernel.gram(points, points) @ weights
    indices, chosen, _ = thinned(kernel, points, weights, 20, "probability")
    slope = kernel.gram(points[indices], points[indices]) @ chosen - target[indices]
    assert np.ptp(slope[chosen > 0]) < 1e-10
    assert (slope >= slope[chosen > 0].min() - 1e-10).all()
    indices, chosen, _ = thinned(kernel, points, weights * 3, 20, "signed")  # a bound of 3 or more does not bind
    assert np.abs(chosen).sum() < 3 * np.abs(weights).sum() - 1e-3
    np.testing.assert_allclose(kernel.gram(points[indices], points[indices]) @ chosen, 3 * target[indices], atol=1e-9)


@ALL_SIGNS
def test_thinned_points_are_far_nearer_than_drawn_ones(signed):
    """A smooth kernel in two dimensions: 30 of 500 points, against 30 drawn by |w| with the signs of their weights."""
    points, weights = cloud(500, signed=signed)
    kernel = Gaussian(2.0)
    total = np.abs(weights).sum()
    rng = np.random.default_rng(2)
    drawn = []
    for _ in range(10):
        indices = rng.choice(500, 30, p=np.abs(weights) / total)
        drawn.append(distance(kernel, points, weights, indices, np.sign(weights[indices]) * total / 30))
    found = {kind: thinned(kernel, points, weights, 30, kind)[2] for kind in THIN_WEIGHTS}
    assert found["uniform"] < np.mean(drawn) / 5
    assert found["probability"] < np.mean(drawn) / 50


@pytest.mark.parametrize("kind", ["probability", "signed"])
def test_replacing_points_of_small_weight_brings_the_others_nearer(kind, monkeypatch):
    points, weights = cloud(300, signed=False)
    found = thinned(Gaussian(1.0), points, weights, 40, kind)[2]
    monkeypatch.setattr(thinning, "_MOST_PASSES", 1)
    assert found < 0.8 * thinned(Gaussian(1.0), points, weights, 40, kind)[2]


def test_no_exchange_of_one_point_improves_equal_weights():
    points, weights = cloud(80, signed=True)
    kernel = Gaussian(1.0)
    indices, chosen, error = thinned(kernel, points, weights, 6, "uniform")
    for i in range(6):
        for other in range(80):
            tried = indices.copy()
            tried[i] = other
            assert distance(kernel, points, weights, tried, chosen) >= error - 1e-9


@ALL_KINDS
def test_keeping_all_points_changes_nothing_if_the_weights_are_of_the_kind(kind):
    points, weights = cloud(50, signed=kind == "signed")
    weights = np.full(50, 1 / 50) if kind == "uniform" else weights
    indices, chosen, error = thinned(Gaussian(1.0), points, weights, 50, kind)
    np.testing.assert_array_equal(indices, np.arange(50))
    np.testing.assert_array_equal(chosen, weights)
    assert error == 0


@ALL_KINDS
def test_twins_and_a_weight_of_zero_do_no_harm(kind):
    """Every point three times, and weights that are all zero: singular Gram matrices."""
    points, weights = cloud(20, signed=True)
    tripled, shares = np.repeat(points, 3, axis=0), np.repeat(weights / 3, 3)
    _, chosen, error = thinned(Gaussian(1.0), tripled, shares, 20, kind)
    assert np.isfinite(chosen).all() and error <= 1.1 * thinned(Gaussian(1.0), points, weights, 19, kind)[2] + 1e-7
    _, chosen, error = thinned(Gaussian(1.0), points, np.zeros(20), 5, kind)
    assert np.isfinite(chosen).all() and (error < 1e-12 if kind == "signed" else error > 0)


@SIGNS
def test_fewer_candidates_cost_little_accuracy_and_depend_on_the_seed(signed, monkeypatch):
    points, weights = cloud(400, signed=signed)
    kernel = Gaussian(1.0)
    whole = thinned(kernel, points, weights, 20, "probability")[2]
    monkeypatch.setattr(thinning, "_CANDIDATES", 100)
    part = thinned(kernel, points, weights, 20, "probability", rng=3)
    again = thinned(kernel, points, weights, 20, "probability", rng=3)
    other = thinned(kernel, points, weights, 20, "probability", rng=4)
    np.testing.assert_array_equal(part[0], again[0])
    assert not np.array_equal(part[0], other[0])
    assert part[2] == pytest.approx(distance(kernel, points, weights, part[0], part[1]), rel=1e-6)
    assert part[2] < 2 * whole


@KINDS
def test_a_thinned_release_keeps_guarantee_measurement_kernel_and_domain(kind, release, tmp_path):
    """It is read back, and every claim of the file holds."""
    small = thin(release, 9, weights=kind)
    assert len(small) == len(release.thin(9, weights=kind)) == 9
    for name in ("measurement", "statement", "kernel", "domain", "method"):
        assert getattr(small, name) is getattr(release, name) or getattr(small, name) == getattr(release, name)
    rows = {row.tobytes() for row in release.encoded_points}
    assert all(row.tobytes() in rows for row in small.encoded_points)
    expected = KernelMean(release.kernel, small.encoded_points, small.weights).distance(release.embedding)
    assert small.thinning_error == pytest.approx(expected, rel=1e-6, abs=1e-6 * np.abs(release.weights).sum())
    assert f"thinned     at RKHS distance {small.thinning_error:.3g}" in repr(small)
    assert release.thinning_error is None and "thinned" not in repr(release)
    if release.measurement is None:
        assert small.fit_distance is None
    else:
        mean = feature_mean(release.measurement.feature_map, small.encoded_points, small.weights)
        assert small.fit_distance == pytest.approx(np.linalg.norm(mean - release.measurement.vector), rel=1e-12)
    small.write(tmp_path / "small.kme")
    same(read_release(tmp_path / "small.kme"), small)
    assert validate_release(tmp_path / "small.kme") == []
    assert small.weight_view == ("signed" if kind == "signed" else "probability")
    assert kind == "signed" or small.is_probability


def test_public_rows_are_counted_among_the_points_that_are_left(numeric_release, tmp_path):
    """A file that claims more public rows than points would be a finding."""
    fields = ("measurement", "kernel", "domain", "method", "weights")
    statement = replace(numeric_release.statement, public_points=30)
    public = kmeanalyst.Release(
        points=numeric_release.to_frame(), statement=statement, **{f: getattr(numeric_release, f) for f in fields}
    )
    small = public.thin(10)
    first = {row.tobytes() for row in public.encoded_points[:30]}
    assert small.statement.public_points == sum(row.tobytes() in first for row in small.encoded_points) < 10
    assert replace(small.statement, public_points=30) == statement
    small.write(tmp_path / "small.kme")
    assert validate_release(tmp_path / "small.kme") == []


def test_external_points_can_be_thinned():
    points, weights = cloud(100, signed=True)
    frame = pd.DataFrame(points, columns=["x", "y"]).assign(weight=weights)
    release = kmeanalyst.from_frame(frame)
    small = kmeanalyst.thin(release, 40, weights="signed")
    assert (small.measurement, small.statement, small.fit_distance) == (None, None, None)
    assert small.mean("x").value == pytest.approx(release.mean("x").value, abs=0.1)


@every("n", [0, -1, 26, 2.0, True, "3", None, np.nan])
def test_a_number_of_points_that_cannot_be_kept_or_an_unknown_kind_of_weights_is_refused(n, foreign_release):
    with pytest.raises(ValueError, match=r"a whole number from 1 to 25, got .*: the thinned .* Pass how many"):
        foreign_release.thin(n)
    with pytest.raises(ValueError, match=r"must be probability, uniform or signed, got 'best': .* Name one"):
        foreign_release.thin(3, weights="best")


def test_a_thinned_release_is_read_back_as_it_was_written(mixed_release, tmp_path):
    small = mixed_release.thin(12, weights="uniform")
    small.write(tmp_path / "small.kme")
    same(read_release(tmp_path / "small.kme"), small)
