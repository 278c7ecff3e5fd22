"""Files of format 1, written from 2026-11-21 on, which stay readable. `golden/add_v1.py` adds one."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import paths
import pytest
from contracts import COLUMNS, TEXTS

from kmeanalyst.release import read_release
from kmeanalyst.releases.file import FileRefused, validate_release
from kmeanalyst.releases.measurement import feature_mean

FOLDER = paths.TESTS / "golden" / "v1"
EXPECTED: dict[str, dict[str, Any]] = {}
for path in sorted(FOLDER.glob("expected*.json")):
    EXPECTED |= json.loads(path.read_text(encoding="utf-8"))


def test_no_file_is_lost():
    assert len(EXPECTED) >= 18
    assert {path.stem for path in FOLDER.glob("*.kme")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_of_format_1_reads_as_on_the_day_it_was_written(name: str):
    path, expected = FOLDER / f"{name}.kme", EXPECTED[name]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == expected["sha256"], "a golden file was changed"
    assert validate_release(path, allow_rehearsal=True) == []
    release = read_release(path, allow_rehearsal=True)
    points = release.encoded_points
    np.testing.assert_allclose(points, np.array(expected["encoded_points"], dtype=float), rtol=4e-16, atol=0)  # logs
    np.testing.assert_array_equal(release.weights, expected["weights"])
    assert release.domain.to_dict() == expected["columns"]
    assert [one.to_dict() for one in release.derived] == expected.get("derived", [])
    np.testing.assert_allclose(release.kernel.gram(points[:3], points[:3]), expected["gram_of_first_points"], atol=1e-12)
    assert (release.statement and release.statement.to_dict()) == expected.get("statement")
    if "vector" not in expected:
        assert release.measurement is None
        return
    assert release.measurement is not None
    np.testing.assert_allclose(release.measurement.vector, expected["vector"], rtol=1e-15)
    relative = release.measurement.relative_noise
    assert (None if relative is None else relative.tolist()) == expected.get("relative_noise")
    mean = feature_mean(release.measurement.feature_map, points, release.weights)
    np.testing.assert_allclose(mean, expected["feature_mean"], atol=1e-9)


def test_derived_columns_have_the_cells_they_had():
    frame = read_release(FOLDER / "derived.kme").to_frame()
    names = [one["column"]["name"] for one in EXPECTED["derived"]["derived"]]
    wanted = np.array(EXPECTED["derived"]["derived_cells"], dtype=float)
    np.testing.assert_allclose(frame[names].astype(float), wanted, rtol=1e-12)


def test_every_family_of_features_and_kind_of_column_has_a_file():
    headers = [read_release(path, allow_rehearsal=True) for path in sorted(FOLDER.glob("*.kme"))]
    families = {each.measurement.feature_map.name for each in headers if each.measurement is not None}
    kinds = {column.kind for each in headers for column in each.domain.columns}
    assert families >= {"sum", "random-fourier", "random-binning", "random-maclaurin", "nystroem", "margins"}
    assert kinds == {column.kind for column in [*COLUMNS, *TEXTS]}


def test_the_rehearsal_among_them_is_refused_unless_asked_for():
    with pytest.raises(FileRefused, match="stamped NOT PRIVATE"):
        read_release(FOLDER / "rehearsal.kme")
