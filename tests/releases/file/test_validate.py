"""Validating a .kme file: what a sound file claims is computed again, and each false claim is one finding."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_tools import AGAIN, NO_ZIP, same
from simulated_releases import release_of

from kmeanalyst.kernels import Gaussian, Scaled
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.file import validate_release, write_release


def test_a_sound_file_has_no_findings(release, tmp_path):
    write_release(release, tmp_path / "a.kme")
    assert validate_release(tmp_path / "a.kme") == []


def test_a_refusal_is_one_finding(mixed_path):
    mixed_path.write_bytes(mixed_path.read_bytes()[:-1])
    (finding,) = validate_release(mixed_path)
    assert finding == f"{mixed_path}: {NO_ZIP[0]}: it is {NO_ZIP[1]}. {AGAIN}"


def findings_of(release: Release, folder: Path, **changes: Any) -> list[str]:
    same_view = {"weight_view": release.weight_view}  # as a file would have it
    write_release(release.replaced(**same_view | changes), folder / "changed.kme")
    return validate_release(folder / "changed.kme")


def test_weights_that_are_no_probabilities_are_found(mixed_release, tmp_path):
    for weights in (mixed_release.weights * 1.001, mixed_release.weights - 0.001):
        findings = findings_of(mixed_release, tmp_path, weights=weights)
        assert any("said to be probabilities" in finding for finding in findings)
    findings = findings_of(mixed_release, tmp_path, weights=mixed_release.weights * 1.001, weight_view="signed")
    assert not any("probability" in finding for finding in findings)


def test_a_fit_distance_that_is_wrong_by_a_millionth_is_found(mixed_release, tmp_path):
    recorded = mixed_release.fit_distance * (1 + 1e-5)
    (finding,) = findings_of(mixed_release, tmp_path, fit_distance=recorded)
    assert re.match(r"fit_distance: recorded [\d.]+, recomputed [\d.]+", finding)
    assert findings_of(mixed_release, tmp_path, fit_distance=mixed_release.fit_distance * (1 + 1e-8)) == []
    assert findings_of(mixed_release, tmp_path, fit_distance=None) == []


def test_weights_that_are_not_the_published_ones_are_found(numeric_release, mixed_release, tmp_path):
    weights = numeric_release.weights.copy()
    weights[3] += 1e-5 * np.abs(weights).max()
    findings = findings_of(numeric_release, tmp_path, weights=weights, fit_distance=None)
    assert findings == ["weights: said to be the published ones, but the measurement gives others"]
    findings = findings_of(
        numeric_release, tmp_path, points=numeric_release.to_frame()[:-1], weights=weights[:-1], fit_distance=None
    )
    assert findings == ["weights: 1 basis points of the subspace are not among the points"]
    findings = findings_of(mixed_release, tmp_path, method="subspace", weight_view="published")
    message = "weights: said to be the published ones of a subspace, but the measurement has another feature map"
    assert findings == [message]


def test_more_public_points_than_points_are_found(mixed_release, tmp_path):
    statement = replace(mixed_release.statement, public_points=61)
    assert findings_of(mixed_release, tmp_path, statement=statement) == ["public_points: 61 of only 60 points"]


def test_features_beyond_their_bound_are_found(mixed_path, monkeypatch):
    honest = RandomFourier.__call__
    monkeypatch.setattr(RandomFourier, "__call__", lambda self, X: honest(self, X) * (1 + 1e-8))
    findings = validate_release(mixed_path)
    assert any(re.match(r"feature map: a point has features of norm 1\.0+1, above the bound 1", f) for f in findings)


def test_a_scaled_kernel_keeps_its_bound_in_the_file(numeric_release, tmp_path):
    """B = √factor: the vector, the sensitivity and the noise are in units of it."""
    kernel = Scaled(factor=4.0, kernel=Gaussian(1.0))
    points = numeric_release.frame
    encoded, domain = numeric_release.encoded_points, numeric_release.domain
    feature_map = Nystroem.fit(kernel, encoded)
    release = release_of(encoded, domain, kernel, feature_map, points, method="subspace", view="signed")
    assert release.measurement.feature_map.norm_bound == 2.0
    write_release(release, tmp_path / "a.kme")
    same(release, read_release(tmp_path / "a.kme"))
    assert validate_release(tmp_path / "a.kme") == []


def test_a_release_reports_its_residual_relative_to_the_noise(mixed_release):
    measurement = mixed_release.measurement
    expected = mixed_release.fit_distance / (len(measurement.vector) * measurement.noise_scale**2) ** 0.5
    assert mixed_release.residual_over_noise == pytest.approx(expected, rel=1e-12)
    why = "; points are few, or rules or bounds do not hold" * (expected > 2)
    assert mixed_release.summary()["fit"] == f"residual {expected:.3g} of the noise's size{why}"
    assert "fit" not in mixed_release.replaced(fit_distance=None).summary()
