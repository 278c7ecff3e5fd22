"""The .kme file: what is written is read back, as FORMAT.md says, and appears whole or not at all."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from file_tools import SCHEMA_TEST, all_of, declared, forged, members_of, same, setting

from kmeanalyst.kernels import Gaussian
from kmeanalyst.release import read_release
from kmeanalyst.releases.file import write_release
from kmeanalyst.releases.measurement import GRID, SHRINK


def test_a_release_read_back_is_the_release_written_and_gives_the_same_bytes(release, tmp_path):
    release.write(tmp_path / "a.kme")
    same(release, read_release(str(tmp_path / "a.kme")))
    for again in (release, read_release(tmp_path / "a.kme")):
        same(release, again)
        write_release(again, tmp_path / "b.kme")
        assert (tmp_path / "b.kme").read_bytes() == (tmp_path / "a.kme").read_bytes()


def test_a_file_has_deflated_points_other_stored_members_and_a_canonical_header_of_the_schema(release, tmp_path):
    write_release(release, tmp_path / "a.kme")
    with zipfile.ZipFile(tmp_path / "a.kme") as archive:
        deflated = [info.filename for info in archive.infolist() if info.compress_type == zipfile.ZIP_DEFLATED]
        assert deflated == ["points.csv"]
        assert {info.compress_type for info in archive.infolist()} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
        assert archive.namelist()[0] == "release.json"
    members = members_of(tmp_path / "a.kme")
    header = json.loads(members["release.json"])
    SCHEMA_TEST.validate(header)
    assert header["members"] == declared(members)
    canonical = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert members["release.json"].decode() == canonical


def test_the_vector_is_the_noisy_sum_times_the_published_factor(mixed_path, mixed_release):
    """FORMAT.md §4, with nothing but a zip and an npy reader."""
    members = members_of(mixed_path)
    noisy_sum = np.load(io.BytesIO(members["measurement/noisy_sum.npy"]), allow_pickle=False)
    header = json.loads(members["release.json"])["measurement"]
    unit = 1.0 / (GRID * SHRINK * header["n_rows"])
    np.testing.assert_allclose(noisy_sum * unit, mixed_release.measurement.vector, rtol=1e-15)
    assert header["grid_noise_scale"] * unit == pytest.approx(header["noise_scale"], rel=1e-15)


def test_features_follow_from_the_arrays_as_the_format_says(mixed_path, mixed_release):
    """FORMAT.md §4: phases and features of random-fourier, computed from the file's members alone."""
    members = members_of(mixed_path)
    arrays = {
        name.split("/")[1][:-4]: np.load(io.BytesIO(data), allow_pickle=False)
        for name, data in members.items()
        if name.endswith(".npy")
    }
    x = mixed_release.encoded_points
    phases = np.nan_to_num(x) @ arrays["linear"]
    for name, table in arrays.items():
        if name.startswith("table_"):
            codes = x[:, int(name[6:])]
            missing = np.isnan(codes)
            index = np.where(missing, len(table) - 1, codes).astype(int) if len(table) > 1 else np.zeros(len(x), int)
            phases += table[index] * (1.0 if len(table) > 1 else missing[:, None])
    features = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(arrays["linear"].shape[1])
    np.testing.assert_allclose(features, mixed_release.measurement.feature_map(x), atol=1e-12)


def test_a_file_of_a_later_minor_version_is_read(mixed_path, mixed_release):
    later = all_of(setting("schema_minor", to=7), setting("remark", to={"any": ["thing"]}))
    mixed_path.write_bytes(forged(mixed_path, later))
    same(mixed_release, read_release(mixed_path))


def test_a_write_that_fails_leaves_the_older_file_and_no_other(numeric_release, tmp_path, monkeypatch):
    path = tmp_path / "a.kme"
    path.write_bytes(b"older")

    def failing(*_: Any) -> None:
        raise OSError("disk full")

    for broken in ("os.replace", "os.fsync", "pathlib.Path.write_bytes"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
            patch.setattr(broken, failing)
            write_release(numeric_release, path)
        assert [p.name for p in tmp_path.iterdir()] == ["a.kme"]
        assert path.read_bytes() == b"older"
    write_release(numeric_release, path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.kme"]
    same(numeric_release, read_release(path))


def test_a_folder_is_not_replaced(numeric_release, tmp_path):
    with pytest.raises(IsADirectoryError, match=r"is a folder: a file cannot take its place\. Name a file within it"):
        write_release(numeric_release, tmp_path)


def test_what_its_reader_would_refuse_is_not_written(numeric_release, mixed_release, tmp_path):
    moved = replace(numeric_release.measurement, vector=numeric_release.measurement.vector + 1)
    frame = mixed_release.to_frame()
    wrong = [
        (numeric_release.replaced(weight_view="odd"), r"no reader would take it: .*weight_view: it must be one of"),
        (numeric_release.replaced(kernel=Gaussian(2.0)), r"another kernel than its own.*Build the release with"),
        (numeric_release.replaced(measurement=moved), r"not the reading of its noisy sum.*Build it with"),
        (mixed_release.replaced(points=frame.assign(age=41.5)), r"column age are not integer values.*Domain\.decode"),
        (mixed_release.replaced(points=frame.assign(age=5)), r"no reader would take it: .*column age: .*outside"),
    ]
    for release, message in wrong:
        with pytest.raises(ValueError, match=f"cannot be written.*{message}"):
            write_release(release, tmp_path / "a.kme")
        assert list(tmp_path.iterdir()) == []
