"""The .kme file: what is written is read back, and what is not sound is refused."""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kmeanalyst.kernels import Gaussian, Scaled
from kmeanalyst.releases import file as file_module
from kmeanalyst.releases.file import FileRefused, read_release, validate_release, write_release
from kmeanalyst.releases.measurement import GRID, SHRINK, Measurement
from kmeanalyst.releases.release import Release

HERE = Path(__file__).parent
SCHEMA = json.loads((HERE.parent / "kmeanalyst/releases/schema_v1.json").read_text(encoding="utf-8"))
SCHEMA_TEST = jsonschema.Draft202012Validator(SCHEMA)
RELEASES = ["mixed_release", "numeric_release", "levels_release", "foreign_release"]
AGAIN = "Fetch the file again, or ask its maker for a sound one."

Members = dict[str, bytes]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    return request.getfixturevalue(request.param)


# ---------------------------------------------------------------------- making and forging files


def members_of(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members: list[tuple[str | zipfile.ZipInfo, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", compression) as archive:
        warnings.simplefilter("ignore", UserWarning)  # of a name that occurs twice
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def declared(members: Members) -> dict[str, dict[str, Any]]:
    return {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in members.items()
        if name != "release.json"
    }


def forged(path: Path, edit: Callable[[dict[str, Any], Members], None], *, resealed: bool = True) -> bytes:
    """The file at path with header and members edited, and checksums made good, as a forger would."""
    members = members_of(path)
    header = json.loads(members["release.json"])
    edit(header, members)
    if resealed:
        header["members"] = declared(members)
    members["release.json"] = json.dumps(header).encode()
    return zipped(list(members.items()))


def refused(data: bytes, folder: Path, what: str, why: str, mend: str = AGAIN) -> None:
    """The bytes are refused with all three parts of the message, after the file's name."""
    path = folder / "strange.kme"
    path.write_bytes(data)
    with pytest.raises(FileRefused) as caught:
        read_release(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: "), message
    assert re.search(what, message), message
    assert re.search(why, message), message
    assert mend in message, message


@pytest.fixture
def mixed_path(mixed_release: Release, tmp_path: Path) -> Path:
    path = tmp_path / "mixed.kme"
    write_release(mixed_release, path)
    return path


@pytest.fixture
def numeric_path(numeric_release: Release, tmp_path: Path) -> Path:
    path = tmp_path / "numeric.kme"
    write_release(numeric_release, path)
    return path


@pytest.fixture
def levels_path(levels_release: Release, tmp_path: Path) -> Path:
    path = tmp_path / "levels.kme"
    write_release(levels_release, path)
    return path


# ---------------------------------------------------------------------- what is written is read back


def same(a: Release, b: Release) -> None:
    """Two releases are one and the same, to the last bit."""
    pd.testing.assert_frame_equal(a.to_frame(), b.to_frame(), check_exact=True)
    assert a.encoded_points.tobytes() == b.encoded_points.tobytes()
    assert a.weights.tobytes() == b.weights.tobytes()
    assert (a.domain, a.kernel, a.statement) == (b.domain, b.kernel, b.statement)
    assert (a.method, a.weight_view, a.fit_distance) == (b.method, b.weight_view, b.fit_distance)
    if a.measurement is None or b.measurement is None:
        assert a.measurement is b.measurement
        return
    one, other = a.measurement, b.measurement
    assert one.noisy_sum.dtype == other.noisy_sum.dtype == np.int64
    assert one.noisy_sum.tobytes() == other.noisy_sum.tobytes()
    assert one.vector.tobytes() == other.vector.tobytes()
    assert (one.noise_scale, one.noise_law, one.n_rows) == (other.noise_scale, other.noise_law, other.n_rows)
    assert type(one.feature_map) is type(other.feature_map)
    assert one.feature_map(a.encoded_points).tobytes() == other.feature_map(b.encoded_points).tobytes()


def test_a_release_read_back_is_the_release_written(release, tmp_path):
    release.write(tmp_path / "a.kme")
    same(release, read_release(tmp_path / "a.kme"))
    same(release, read_release(str(tmp_path / "a.kme")))


def test_the_mixed_release_has_every_kind_of_cell(mixed_release):
    frame = mixed_release.to_frame()
    assert {str(dtype) for dtype in frame.dtypes} == {
        "int64", "Int64", "float64", "category", "bool", "boolean", "datetime64[s]",
    }  # fmt: skip
    with_missing = [column.name for column in mixed_release.domain.columns if column.missing]
    assert [name for name in frame if frame[name].isna().any()] == with_missing


def test_the_same_release_gives_the_same_bytes(release, tmp_path):
    write_release(release, tmp_path / "a.kme")
    write_release(release, tmp_path / "b.kme")
    write_release(read_release(tmp_path / "a.kme"), tmp_path / "c.kme")
    first = (tmp_path / "a.kme").read_bytes()
    assert (tmp_path / "b.kme").read_bytes() == first
    assert (tmp_path / "c.kme").read_bytes() == first


def test_a_file_holds_stored_members_and_a_canonical_header(release, tmp_path):
    write_release(release, tmp_path / "a.kme")
    with zipfile.ZipFile(tmp_path / "a.kme") as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.namelist()[0] == "release.json"
    members = members_of(tmp_path / "a.kme")
    header = json.loads(members["release.json"])
    assert header["members"] == declared(members)
    canonical = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert members["release.json"].decode() == canonical


def test_the_header_obeys_the_schema(release, tmp_path):
    write_release(release, tmp_path / "a.kme")
    SCHEMA_TEST.validate(json.loads(members_of(tmp_path / "a.kme")["release.json"]))


def test_the_vector_is_the_noisy_sum_times_the_published_factor(mixed_path, mixed_release):
    """FORMAT.md §4, with nothing but a zip and an npy reader."""
    members = members_of(mixed_path)
    noisy_sum = np.load(io.BytesIO(members["measurement/noisy_sum.npy"]), allow_pickle=False)
    told = json.loads(members["release.json"])["measurement"]
    unit = 1.0 / (GRID * SHRINK * told["n_rows"])
    np.testing.assert_allclose(noisy_sum * unit, mixed_release.measurement.vector, rtol=1e-15)
    assert told["grid_noise_scale"] * unit == pytest.approx(told["noise_scale"], rel=1e-15)


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
            lost = np.isnan(codes)
            place = np.where(lost, len(table) - 1, codes).astype(int) if len(table) > 1 else np.zeros(len(x), int)
            phases += table[place] * (1.0 if len(table) > 1 else lost[:, None])
    features = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(arrays["linear"].shape[1])
    np.testing.assert_allclose(features, mixed_release.measurement.feature_map(x), atol=1e-12)


def test_points_are_plain_parquet_that_pandas_reads(mixed_path, mixed_release):
    table = pq.read_table(io.BytesIO(members_of(mixed_path)["points.parquet"]))
    kinds = ["int64", "int64", "double", "double", "string", "string", "bool", "bool", "date32[day]", "date32[day]"]
    assert [str(kind) for kind in table.schema.types] == [*kinds, "double"]
    assert table.column_names == [*mixed_release.domain.names, "weight"]
    with_nulls = [name for name in table.column_names if table[name].null_count]
    assert with_nulls == ["children", "capital.gain", "school", "insured", "left"]
    assert table["city"].to_pylist() == mixed_release.to_frame()["city"].astype(object).tolist()


def test_a_file_of_a_later_minor_version_is_read(mixed_path, mixed_release):
    def later(header: dict[str, Any], members: Members) -> None:
        header["schema_minor"], header["remark"] = 7, {"any": ["thing"]}

    mixed_path.write_bytes(forged(mixed_path, later))
    same(mixed_release, read_release(mixed_path))


def test_whole_numbers_beyond_32_bits_and_negative_zero_come_back(tmp_path):
    from kmeanalyst.releases.columns import Integer, Real
    from kmeanalyst.releases.domain import Domain

    domain = Domain((Integer(name="n", lower=-(2**40), upper=2**52, missing=True), Real(name="x", lower=-1, upper=1)))
    points = pd.DataFrame({"n": pd.array([-(2**40), 2**52, None], dtype="Int64"), "x": [-0.0, 5e-324, -1.0]})
    release = Release(
        points=points, weights=np.array([1e-300, -1e300, 0.1]), measurement=None, kernel=Gaussian(1.0), domain=domain,
        statement=None,
    )  # fmt: skip
    write_release(release, tmp_path / "a.kme")
    same(release, read_release(tmp_path / "a.kme"))


# ---------------------------------------------------------------------- whole or not at all


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


def test_a_folder_that_is_not_there_is_named(numeric_release, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*absent, so nothing was written\. Create it first"):
        write_release(numeric_release, tmp_path / "absent" / "a.kme")
    with pytest.raises(IsADirectoryError, match=r"is a folder: a file cannot take its place\. Name a file within it"):
        write_release(numeric_release, tmp_path)


def changed(release: Release, **changes: Any) -> Release:
    fields = ["weights", "measurement", "kernel", "domain", "statement", "method", "weight_view", "fit_distance"]
    values = {name: getattr(release, name) for name in fields} | {"points": release.to_frame()}
    return Release(**(values | changes))


def test_what_its_reader_would_refuse_is_not_written(numeric_release, mixed_release, tmp_path):
    one = numeric_release.measurement
    moved = Measurement(
        vector=one.vector + 1, noise_scale=one.noise_scale, noise_law=one.noise_law, n_rows=one.n_rows,
        feature_map=one.feature_map, noisy_sum=one.noisy_sum,
    )  # fmt: skip
    frame = mixed_release.to_frame()
    wrong = [
        (changed(numeric_release, weight_view="odd"), r"no reader would take it: .*weight_view: it must be one of"),
        (changed(numeric_release, kernel=Gaussian(2.0)), r"another kernel than its own.*Build the release with"),
        (changed(numeric_release, measurement=moved), r"not the reading of its noisy sum.*Build it with"),
        (changed(mixed_release, points=frame.assign(age=41.5)), r"column age are not integer values.*Domain\.decode"),
        (changed(mixed_release, points=frame.assign(age=5)), r"no reader would take it: .*column age: .*outside"),
    ]
    for release, message in wrong:
        with pytest.raises(ValueError, match=f"cannot be written.*{message}"):
            write_release(release, tmp_path / "a.kme")
        assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- refusals: the file and the archive


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileRefused, match=r"absent\.kme: there is no such file: nothing .* read\. Check the name"):
        read_release(tmp_path / "absent.kme")
    with pytest.raises(FileRefused, match=r"cannot be read: .*directory\. Name a file that you may read"):
        read_release(tmp_path)


def test_a_file_over_the_limit_is_refused_before_it_is_read(mixed_path, monkeypatch):
    monkeypatch.setattr(file_module, "MOST_BYTES", 1000)
    with pytest.raises(FileRefused, match=r"has \d+ bytes: a release has at most 1000\. Check that it is a \.kme file"):
        read_release(mixed_path)


def test_a_release_over_the_limit_is_not_written(numeric_release, tmp_path, monkeypatch):
    monkeypatch.setattr(file_module, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"cannot be written: it needs \d+ bytes, .* more than 1000\. Publish fewer"):
        write_release(numeric_release, tmp_path / "a.kme")
    assert list(tmp_path.iterdir()) == []


def with_flag(data: bytes, flag: int) -> bytes:
    """The archive with a general-purpose flag set on its first member, in both headers."""
    out, central = bytearray(data), data.index(b"PK\1\2")
    for place in (6, central + 8):
        out[place : place + 2] = struct.pack("<H", struct.unpack("<H", data[place : place + 2])[0] | flag)
    return bytes(out)


def with_gap(members: Members) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
            archive.fp.write(b"hidden")
            archive.start_dir = archive.fp.tell()
    return out.getvalue()


def as_link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


def with_extra(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.extra = struct.pack("<HHQ", 0x7777, 8, 1)
    return info


def appended(data: bytes, *more: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return zipped([*((name, archive.read(name)) for name in archive.namelist()), *more])


def patched(data: bytes, place: int, value: bytes) -> bytes:
    return data[:place] + value + data[place + len(value) :]


def with_end(data: bytes, **changes: int) -> bytes:
    names = ["disk", "first", "here", "total", "size", "offset", "comment"]
    fields = dict(zip(names, struct.unpack("<4H2LH", data[-18:]), strict=True)) | changes
    return data[:-18] + struct.pack("<4H2LH", *fields.values())


def without(data: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return zipped([(n, archive.read(n)) for n in archive.namelist() if n != name])


def deflated(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return zipped([(n, archive.read(n)) for n in archive.namelist()], zipfile.ZIP_DEFLATED)


NO_ZIP = ("the file is not a whole zip archive", "truncated, padded, or no release at all")
END = ("the archive's end record does not fit the file", "truncated, padded or altered")
LINK = ("member 'measurement/a.npy' is a link or a device", "plain members only")
ARCHIVES: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "nothing": (lambda d: b"", *NO_ZIP),
    "a text": (lambda d: b"x,y\n1,2\n" * 10, *NO_ZIP),
    "a truncated file": (lambda d: d[:-1], *NO_ZIP),
    "half a file": (lambda d: d[: len(d) // 2], *NO_ZIP),
    "a padded file": (lambda d: d + b"\0", *NO_ZIP),
    "bytes before": (lambda d: b"#!/bin/sh\n" + d, *END),
    "an archive comment": (lambda d: with_end(d, comment=1), *END),
    "several disks": (lambda d: with_end(d, disk=1), *END),
    "another first disk": (lambda d: with_end(d, first=1), *END),
    "two member counts": (lambda d: with_end(d, here=1), *END),
    "a shifted directory": (lambda d: with_end(d, offset=5), *END),
    "a 64-bit locator": (lambda d: patched(d, len(d) - 42, b"PK\6\7"), *END),
    "too many members": (
        lambda d: zipped([(f"measurement/a{i}.npy", b"") for i in range(10_001)]),
        r"the archive lists 10001 members in \d+ bytes", "at most 10000",
    ),
    "long names": (lambda d: zipped([("a" * 300, b"")]), r"lists 1 members in 346 bytes", "at most 10000"),
    "a directory of garbage": (
        lambda d: patched(d, d.index(b"PK\1\2"), b"garbage"), "the archive: it does not make sense", "magic number",
    ),
    "a compressed member": (deflated, r"member 'release\.json' is compressed", "stored members only"),
    "an encrypted member": (lambda d: with_flag(d, 1), r"member 'release\.json' is encrypted", "hides nothing"),
    "a data descriptor": (lambda d: with_flag(d, 8), r"member 'release\.json' has flags, extra", "take it differently"),
    "an extra field": (
        lambda d: appended(d, (with_extra("measurement/a.npy"), b"")), r"has flags, extra fields",
        "take it differently",
    ),
    "a link": (lambda d: appended(d, (as_link("measurement/a.npy"), b"/etc/passwd")), *LINK),
    "a member twice": (
        lambda d: appended(d, ("points.parquet", b"other")), r"the members \['points\.parquet'\] occur twice",
        "disagree",
    ),
    "a gap": (
        lambda d: with_gap({"release.json": b"{}", "points.parquet": b""}),
        r"member points\.parquet is not where it should be", "overlap or leave a gap",
    ),
    "bytes after the members": (
        lambda d: with_gap({"release.json": b"{}"}), "bytes that belong to no member", "see different files",
    ),
    "two sizes": (
        lambda d: patched(d, 22, b"\1\0\0\0"), r"member release\.json has two headers that differ", "disagree on it",
    ),
    "two names": (
        lambda d: patched(d, 30, b"R"), r"member release\.json has two headers that differ", "disagree on it",
    ),
    "a flipped bit": (
        lambda d: patched(d, 60, bytes([d[60] ^ 1])), r"member release\.json does not have its checksum", "damaged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ARCHIVES)
def test_an_archive_that_is_not_plain_and_whole_is_refused(case, mixed_path, tmp_path):
    forge, what, why = ARCHIVES[case]
    refused(forge(mixed_path.read_bytes()), tmp_path, what, why)


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/passwd", "measurement/../../evil.npy", "C:\\evil", "measurement\\a.npy", "measurement/",
     "measurement/.npy", "Release.json", "measurement/a.npy.exe", "measurement/ä.npy"],
)  # fmt: skip
def test_a_member_with_a_name_that_is_a_path_or_unknown_is_refused(name, mixed_path, tmp_path):
    data = appended(mixed_path.read_bytes(), (zipfile.ZipInfo(name), b""))
    refused(data, tmp_path, r"member name '.*'", "no member of a release is called so, and no path is followed")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("name", ["release.json", "points.parquet"])
def test_an_archive_without_header_or_points_is_no_release(name, mixed_path, tmp_path):
    data = without(mixed_path.read_bytes(), name)
    what, mend = r"lacks release\.json or points\.parquet", "Check that it is a .kme file."
    refused(data, tmp_path, what, "it is not a release", mend)


# ---------------------------------------------------------------------- refusals: the header


def with_header(path: Path, text: str) -> bytes:
    return zipped(list((members_of(path) | {"release.json": text.encode("utf-8", "surrogatepass")}).items()))


def header_text(path: Path) -> str:
    return members_of(path)["release.json"].decode()


SENSELESS = r"it does not make sense"
TEXTS: dict[str, tuple[Callable[[str], str], str, str]] = {
    "not JSON": (lambda t: t[:-1], r"release\.json: ", SENSELESS),
    "a byte-order mark": (lambda t: "\ufeff" + t, r"release\.json: ", "BOM"),
    "a list": (lambda t: "[1, 2]", r"release\.json: ", "a header is a table of fields"),
    "a key twice": (
        lambda t: t.replace('"method":', '"method":"x","method":'), r"has the keys \['method'\] twice", "disagree",
    ),
    "an inner key twice": (
        lambda t: t.replace('"delta":', '"delta":0.5,"delta":'), r"has the keys \['delta'\] twice", "disagree",
    ),
    "NaN": (lambda t: re.sub(r'"fit_distance":[^,]+', '"fit_distance":NaN', t), "contains NaN", "no such number"),
    "Infinity": (lambda t: re.sub(r'"delta":[^,]+', '"delta":-Infinity', t), "contains -Infinity", "no such number"),
    "1e999": (lambda t: re.sub(r'"epsilon":[^,]+', '"epsilon":1e999', t), "contains the number inf", "64 bits"),
    "a huge whole number": (
        lambda t: re.sub(r'"n_points":[^,]+', '"n_points":' + "9" * 30, t), "contains the number 9+", "64 bits",
    ),
    "a number of 5000 digits": (
        lambda t: re.sub(r'"n_points":[^,]+', '"n_points":' + "9" * 5000, t), r"release\.json: ", SENSELESS,
    ),
    "half a surrogate pair": (
        lambda t: t.replace('"random-features"', '"\\ud800"'), r"a text of release\.json", "surrogates not allowed",
    ),
    "bytes that are no UTF-8": (
        lambda t: t.replace('"random-features"', '"\ud800"'), r"release\.json: ", "can't decode",
    ),
    "40 levels of lists": (
        lambda t: t.replace('"method":', f'"method":{"[" * 40}{"]" * 40},"more":'), "nested more than 32 deep",
        "no release",
    ),
    "a million levels of lists": (lambda t: "[" * 1_000_000, r"release\.json: ", SENSELESS),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_a_header_that_is_not_plain_json_is_refused(case, mixed_path, tmp_path):
    forge, what, why = TEXTS[case]
    text = header_text(mixed_path)
    assert forge(text) != text
    refused(with_header(mixed_path, forge(text)), tmp_path, what, why)


def test_a_header_over_the_limit_is_refused_before_it_is_parsed(mixed_path, tmp_path):
    data = with_header(mixed_path, header_text(mixed_path) + " " * 2**24)
    refused(data, tmp_path, r"release\.json has \d+ bytes", "a header has at most 16777216")


def test_another_major_version_is_refused_whatever_else_it_holds(mixed_path, tmp_path):
    data = with_header(mixed_path, '{"format": "kmeanalyst release", "schema_major": 2}')
    what, why = "the file is format 2, this kmeanalyst reads format 1", "may have changed what a weight means"
    refused(data, tmp_path, what, why, "Upgrade kmeanalyst.")


def setting(*keys: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def edit(header: dict[str, Any]) -> None:
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = to

    return edit


def dropping(*keys: Any) -> Callable[[dict[str, Any]], None]:
    def edit(header: dict[str, Any]) -> None:
        for key in keys[:-1]:
            header = header[key]
        del header[keys[-1]]

    return edit


def scaling(*keys: Any, by: float) -> Callable[[dict[str, Any]], None]:
    def edit(header: dict[str, Any]) -> None:
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = header[keys[-1]] * by

    return edit


def no_measurement(header: dict[str, Any]) -> None:
    header["measurement"] = None


def quieter(header: dict[str, Any]) -> None:
    """A statement and a measurement that agree on less noise than the claim needs."""
    header["statement"]["noise_scale"] *= 0.9
    header["measurement"]["noise_scale"] *= 0.9
    header["measurement"]["grid_noise_scale"] *= 0.9
    header["statement"]["rho"] /= 0.9**2


def less_sensitive(header: dict[str, Any]) -> None:
    """A statement whose own arithmetic is right, about a smaller sensitivity than the feature map has."""
    statement = header["statement"]
    statement["sensitivity"] /= 2
    statement["rho"] /= 4


def scaled(times: int) -> dict[str, Any]:
    """A kernel whose bound is about 1e50 to the power of `times`."""
    inner = scaled(times - 1) if times > 1 else {"name": "gaussian", "lengthscale": 1}
    return {"name": "scaled", "factor": 9e99, "kernel": inner}


FIELD = r"release\.json, field "
CLAIM = "the promise is not about these numbers"
CORRECT = "Do not rely on it; ask its maker for a correct file."
# name → edit, what, why, whether the schema refuses it too
HEADERS: dict[str, tuple[Callable[[dict[str, Any]], None], str, str, bool]] = {
    "another format": (setting("format", to="zip"), FIELD + "format", "one of kmeanalyst release, got 'zip'", True),
    "a major version that is true": (
        setting("schema_major", to=True), FIELD + "schema_major", "must be one of 1", True,
    ),
    "a negative minor version": (setting("schema_minor", to=-1), FIELD + "schema_minor", "at least 0, got -1", True),
    "a missing field": (dropping("method"), r"release\.json", r"missing fields \['method'\]", True),
    "an unknown field": (setting("run", to="rm"), r"release\.json", r"unknown fields \['run'\]", True),
    "an empty method": (setting("method", to=""), FIELD + "method", "1 to 200 characters, got ''", True),
    "a long method": (setting("method", to="x" * 201), FIELD + "method", "1 to 200 characters", True),
    "an unknown weight view": (setting("weight_view", to="odd"), FIELD + "weight_view", "one of probability", True),
    "a weight view that is a list": (setting("weight_view", to=[]), FIELD + "weight_view", "one of", True),
    "a negative distance": (setting("fit_distance", to=-1.0), FIELD + "fit_distance", "at least 0, got -1", True),
    "no points": (setting("n_points", to=0), FIELD + "n_points", "whole number of at least 1, got 0", True),
    "points that are a float": (setting("n_points", to=60.5), FIELD + "n_points", "whole number", True),
    "points that are true": (setting("n_points", to=True), FIELD + "n_points", "whole number", True),
    "versions of numbers": (setting("versions", to={"numpy": 2}), FIELD + "versions", "a table of texts", True),
    "columns that are a table": (setting("columns", to={}), FIELD + "columns", "a list with at least one", True),
    "no columns": (setting("columns", to=[]), FIELD + "columns", "a list with at least one", True),
    "a column that is a number": (setting("columns", 0, to=3), "the columns", "a column must be a table", True),
    "an unknown kind": (setting("columns", 0, "kind", to="text"), "the columns", "kind must be one of", True),
    "a kind that is a list": (setting("columns", 0, "kind", to=[]), "the columns", SENSELESS, True),
    "an unknown column field": (setting("columns", 0, "code", to="x"), "the columns", "unknown here: code", True),
    "bounds the wrong way": (setting("columns", 0, "lower", to=99), "the columns", "lower must be below upper", False),
    "a bound that is a table": (setting("columns", 0, "lower", to={}), "the columns", "must be a finite", True),
    "levels that are numbers": (
        setting("columns", 4, "levels", to=[1, 2, 3, 4]), "the columns", "as a domain writes", True,
    ),
    "a level twice": (setting("columns", 4, "levels", to=["a", "a"]), "the columns", "levels must be distinct", True),
    "a column twice": (setting("columns", 1, "name", to="age"), "the columns", "names must be distinct", False),
    "a column named weight": (setting("columns", 1, "name", to="weight"), "the columns", '"weight" is refused', True),
    "missing that is a text": (setting("columns", 0, "missing", to="no"), "the columns", "true or false", True),
    "missing that is false": (setting("columns", 0, "missing", to=False), "the columns", "as a domain writes", True),
    "a kernel that is a text": (setting("kernel", to="os.system"), FIELD + "kernel", "it must be a table", True),
    "an unknown kernel": (setting("kernel", to={"name": "os.system"}), "the kernel", "unknown kernel", True),
    "a kernel whose name is a list": (setting("kernel", "name", to=[]), "the kernel", SENSELESS, True),
    "a kernel without parameters": (setting("kernel", to={"name": "gaussian"}), "the kernel", "wrong parameters", True),
    "a kernel of other things": (setting("kernel", "kernels", to=[1, "x"]), "the kernel", SENSELESS, True),
    "a lengthscale below zero": (
        setting("kernel", to={"name": "gaussian", "lengthscale": -1}), "the kernel", "must be a positive finite", True,
    ),
    "a kernel for fewer columns": (
        dropping("kernel", "kernels", 0), "the kernel", "one part for each of 9 columns", False,
    ),
    "a kernel of absent columns": (
        setting("kernel", to={"name": "on-columns", "kernel": {"name": "gaussian", "lengthscale": 1}, "on": [77]}),
        "the kernel", SENSELESS, False,
    ),
    "a kernel of no kernel": (
        setting("kernel", to={"name": "on-columns", "kernel": 1, "on": [0]}), "the kernel", SENSELESS, True,
    ),
    "a kernel of nan": (
        setting("kernel", to=scaled(7)), "the kernel", "not bounded, or does not keep its bound", False,
    ),
    "an indicator of too few levels": (
        setting("kernel", "kernels", 4, "levels", to=3), "the kernel", "3 levels in column city, which has 4", False,
    ),
    "no measurement": (no_measurement, "measurement and statement", "alone is a promise about nothing", True),
    "an unknown noise law": (
        setting("measurement", "noise_law", to="none"), "measurement, field noise_law",
        "one of discrete gaussian", True,
    ),
    "noise of zero": (setting("measurement", "noise_scale", to=0), "field noise_scale", "positive number, got 0", True),
    "an unknown measurement field": (
        setting("measurement", "seed", to=1), "measurement: ", r"unknown fields \['seed'\]", True,
    ),
    "an unknown feature map": (
        setting("measurement", "feature_map", "name", to="pickle"), "feature_map, field name",
        "one of random-fourier", True,
    ),
    "another dimension": (
        setting("measurement", "feature_map", "dimension", to=100), "feature_map, field dimension",
        "make 200 features", False,
    ),
    "shapes that are texts": (
        setting("measurement", "feature_map", "arrays", to={"linear": "all"}), "field arrays",
        "a table of shapes", True,
    ),
    "shapes of three axes": (
        setting("measurement", "feature_map", "arrays", "linear", to=[1, 10, 100]), "field arrays", "shapes", True,
    ),
    "another shape": (
        setting("measurement", "feature_map", "arrays", "linear", to=[10, 99]),
        r"measurement/linear\.npy", r"<f8 of shape \[10, 99\] and nothing else, got <f8 of shape \[10, 100\]", False,
    ),
    "grid noise of another scale": (
        scaling("measurement", "grid_noise_scale", by=1.1), "grid_noise_scale", "one of the two is wrong", False,
    ),
    "a delta better than the arithmetic": (
        scaling("statement", "delta", by=0.9), "the privacy statement", "claim is better than the arithmetic", False,
    ),
    "an epsilon better than the arithmetic": (
        scaling("statement", "epsilon", by=0.9), "the privacy statement", "claim is better than the arithmetic", False,
    ),
    "less noise than claimed for": (quieter, "the privacy statement", "claim is better than the arithmetic", False),
    "another rho": (scaling("statement", "rho", by=1.1), "the privacy statement", "the file claims ρ", False),
    "delta of one": (setting("statement", "delta", to=1), "the privacy statement", r"delta must be in \[0, 1\)", True),
    "an epsilon that is true": (
        setting("statement", "epsilon", to=True), "statement", "epsilon must be a positive", True,
    ),
    "a tiny sensitivity": (
        setting("statement", "sensitivity", to=1e-310), "the privacy statement", SENSELESS, False,
    ),
    "an unknown neighbour": (
        setting("statement", "neighbouring", to="none"), "the privacy statement", "neighbouring must be one of", True,
    ),
    "a statement without epsilon": (
        dropping("statement", "epsilon"), "the privacy statement", r"not complete or has unknown fields", True,
    ),
    "an unknown claim": (setting("statement", "safe", to=True), "the privacy statement", "unknown fields", True),
    "public points that are a text": (
        setting("statement", "public_points", to="all"), "the privacy statement", "public_points must be a whole", True,
    ),
    "public facts that are a text": (
        setting("statement", "taken_as_public", to="all"), "the privacy statement", "must be a list of texts", True,
    ),
    "maker's versions of numbers": (
        setting("statement", "versions", to={"numpy": 2}), "the privacy statement", "map names to texts", True,
    ),
}  # fmt: skip
CONTRADICTIONS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "more rows than measured": (setting("statement", "n_rows", to=20_000), "claims n_rows 20000, the measurement"),
    "another sensitivity": (less_sensitive, r"claims sensitivity 0\.\d+, the measurement"),
    "more noise than measured": (
        lambda h: (scaling("statement", "noise_scale", by=2)(h), scaling("statement", "rho", by=0.25)(h)),
        r"claims noise_scale 0\.\d+, the measurement",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_with_missing_unknown_or_senseless_fields_is_refused(case, mixed_path, tmp_path):
    edit, what, why, by_schema = HEADERS[case]
    data = forged(mixed_path, lambda header, members: edit(header))
    refused(data, tmp_path, what, why)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert SCHEMA_TEST.is_valid(json.loads(archive.read("release.json"))) != by_schema


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_statement_about_another_measurement_is_refused(case, mixed_path, tmp_path):
    edit, what = CONTRADICTIONS[case]
    refused(forged(mixed_path, lambda header, members: edit(header)), tmp_path, what, CLAIM, CORRECT)


def test_a_slightly_generous_statement_is_read(mixed_path, mixed_release):
    mixed_path.write_bytes(forged(mixed_path, lambda h, m: scaling("statement", "delta", by=1.5)(h)))
    assert read_release(mixed_path).statement.delta == 1.5 * mixed_release.statement.delta


def test_a_distance_to_no_measurement_is_refused(foreign_release, tmp_path):
    write_release(foreign_release, tmp_path / "a.kme")
    data = forged(tmp_path / "a.kme", lambda h, m: setting("fit_distance", to=0.1)(h))
    refused(data, tmp_path, "fit_distance", "there is no measurement")


# ---------------------------------------------------------------------- refusals: members against their declaration


def digest(name: str, value: Any) -> Callable[[dict[str, Any], Members], None]:
    return lambda header, members: setting("members", name, to=value)(header)


def undeclared(header: dict[str, Any], members: Members) -> None:
    members["measurement/table_77.npy"] = b""


def absent(header: dict[str, Any], members: Members) -> None:
    del members["measurement/linear.npy"]


def altered(header: dict[str, Any], members: Members) -> None:
    members["points.parquet"] = members["points.parquet"][:-9] + b"x" + members["points.parquet"][-8:]


def shortened(header: dict[str, Any], members: Members) -> None:
    members["points.parquet"] = members["points.parquet"][:-1]


MEMBERS: dict[str, tuple[Callable[[dict[str, Any], Members], None], str, str]] = {
    "an undeclared member": (undeclared, "the members differ from the declared ones", r"present \[.*table_77"),
    "an absent member": (absent, "the members differ from the declared ones", r"needed \[.*linear"),
    "an altered member": (altered, r"member points\.parquet does not have the declared SHA-256", "damaged or altered"),
    "a shortened member": (shortened, r"member points\.parquet has \d+ bytes", r"the header declares \d+"),
    "a declared path": (digest("../x", {"bytes": 0, "sha256": "0" * 64}), "the members differ", r"'\.\./x'"),
    "a digest that is none": (digest("points.parquet", {"bytes": 1, "sha256": "x"}), "field sha256", "64 hexadecimal"),
    "a length that is a text": (digest("points.parquet", {"bytes": "1", "sha256": "0" * 64}), "field bytes", "whole"),
    "an entry that is a list": (
        digest("points.parquet", []), r"member 'points\.parquet'", "should be a table of bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MEMBERS)
def test_members_other_than_declared_are_refused(case, mixed_path, tmp_path):
    edit, what, why = MEMBERS[case]
    refused(forged(mixed_path, edit, resealed=False), tmp_path, what, why)


def test_a_member_that_is_sealed_but_not_needed_is_refused(mixed_path, tmp_path):
    what, why = "the members differ from the declared ones", r"declared \[.*table_77"
    refused(forged(mixed_path, undeclared), tmp_path, what, why)


# ---------------------------------------------------------------------- refusals: the points


def parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **({"compression": "none", "store_schema": False} | options))
    return out.getvalue()


def edited_points(edit: Callable[[pa.Table], pa.Table], **options: Any) -> Callable[[dict[str, Any], Members], None]:
    def forge(header: dict[str, Any], members: Members) -> None:
        table = pq.read_table(io.BytesIO(members["points.parquet"]))
        members["points.parquet"] = parquet(edit(table), **options)

    return forge


def with_column(name: str, make: Callable[[list[Any]], Any]) -> Callable[[pa.Table], pa.Table]:
    def edit(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        return table.set_column(place, name, make(table[name].to_pylist()))

    return edit


def first(name: str, value: Any, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    """The table with another first cell in a column."""
    return with_column(name, lambda cells: pa.array([value, *cells[1:]], kind, from_pandas=False))


NAN = float("nan")
OTHER, UNBOUND = "has other columns than declared", "values outside its bounds, or NaN that is not null"
NULLS = "it has nulls, and the domain declares no missing value"
DAY = pa.date32()
POINTS: dict[str, tuple[Callable[[dict[str, Any], Members], None], str, str]] = {
    "no Parquet": (lambda h, m: m.update({"points.parquet": b"PAR1 nonsense PAR1"}), r"points\.parquet: ", SENSELESS),
    "an empty member": (lambda h, m: m.update({"points.parquet": b""}), r"points\.parquet: ", SENSELESS),
    "compressed pages": (
        edited_points(lambda t: t, compression="snappy"), "column 'age' is compressed",
        "size cannot be known beforehand",
    ),
    "a stored Arrow schema": (
        edited_points(lambda t: t, store_schema=True), "has an ARROW:schema entry", "those of Parquet itself",
    ),
    "one row less": (edited_points(lambda t: t.slice(1)), r"points\.parquet has 59 rows", "the header declares 60"),
    "more rows": (edited_points(lambda t: pa.concat_tables([t, t])), "has 120 rows", "the header declares 60"),
    "a column more": (
        edited_points(lambda t: t.append_column("x", t["age"])), "has 12 columns", "domain and weight make 11",
    ),
    "a column less": (edited_points(lambda t: t.drop_columns(["age"])), "has 10 columns", "domain and weight make 11"),
    "another name": (
        edited_points(lambda t: t.rename_columns(["AGE", *t.column_names[1:]])), OTHER, "AGE int64 does not fit",
    ),
    "another order": (
        edited_points(lambda t: t.select(["children", "age", *t.column_names[2:]])), OTHER, "order does not fit",
    ),
    "numbers of 32 bits": (
        edited_points(with_column("age", lambda c: pa.array(c, pa.int32()))), OTHER,
        "age int32 does not fit the domain",
    ),
    "floats for integers": (
        edited_points(with_column("age", lambda c: pa.array(map(float, c)))), OTHER, "age double does not fit",
    ),
    "bytes for levels": (
        edited_points(with_column("city", lambda c: pa.array([x.encode() for x in c]))), OTHER, "city binary does not",
    ),
    "lists for numbers": (
        edited_points(with_column("age", lambda c: pa.array([[x] for x in c]))), OTHER, "age list",
    ),
    "a struct of numbers": (
        edited_points(with_column("age", lambda c: pa.array([{"x": x} for x in c]))), OTHER, "age struct",
    ),
    "timestamps for dates": (
        edited_points(with_column("joined", lambda c: pa.array(c).cast(pa.timestamp("ms")))), OTHER, "joined timestamp",
    ),
    "many row groups": (edited_points(lambda t: t, row_group_size=1), "has 60 row groups", "at most 50 are read"),
    "a null age": (edited_points(first("age", None, pa.int64())), "column age", NULLS),
    "a null income": (edited_points(first("income", None, pa.float64())), "column income", NULLS),
    "a null city": (edited_points(first("city", None, pa.string())), "column city", NULLS),
    "a null truth": (edited_points(first("married", None, pa.bool_())), "column married", NULLS),
    "a null day": (edited_points(first("joined", None, DAY)), "column joined", NULLS),
    "NaN that is not null": (edited_points(first("capital.gain", NAN, pa.float64())), r"column capital\.gain", UNBOUND),
    "NaN undeclared": (edited_points(first("income", NAN, pa.float64())), "column income", UNBOUND),
    "an infinite income": (edited_points(first("income", float("inf"), pa.float64())), "column income", UNBOUND),
    "an income below": (edited_points(first("income", 0.5, pa.float64())), "column income", UNBOUND),
    "an age above": (edited_points(first("age", 91, pa.int64())), "column age", UNBOUND),
    "children below zero": (edited_points(first("children", -1, pa.int64())), "column children", UNBOUND),
    "a day too early": (edited_points(first("joined", -10_000, DAY)), "column joined", UNBOUND),
    "a day too late": (edited_points(first("left", 2**31 - 1, DAY)), "column left", UNBOUND),
    "an unseen level": (
        edited_points(first("city", "Bern", pa.string())), "column city", "'Bern' is not one of its levels",
    ),
    "a level with spaces": (
        edited_points(first("city", " Zürich", pa.string())), "column city", "not one of its levels",
    ),
    "an empty level": (edited_points(first("school", "", pa.string())), "column school", "'' is not one of its levels"),
    "a null weight": (edited_points(first("weight", None, pa.float64())), "column weight", "a missing weight"),
    "an infinite weight": (edited_points(first("weight", float("-inf"), pa.float64())), "column weight", "infinite"),
    "a NaN weight": (edited_points(first("weight", NAN, pa.float64())), "column weight", "infinite or not a number"),
    "texts packed by prefixes": (  # a short file could unfold to any size
        edited_points(lambda t: t, use_dictionary=False, column_encoding={"city": "DELTA_BYTE_ARRAY"}),
        r"points\.parquet: ", "Not yet implemented",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", POINTS)
def test_points_that_do_not_fit_the_domain_are_refused(case, mixed_path, tmp_path, monkeypatch):
    monkeypatch.setattr(file_module, "MOST_ROW_GROUPS", 50)
    edit, what, why = POINTS[case]
    refused(forged(mixed_path, edit), tmp_path, what, why)


def test_points_in_several_row_groups_and_plain_pages_are_read(mixed_path, mixed_release):
    mixed_path.write_bytes(forged(mixed_path, edited_points(lambda t: t, row_group_size=7, use_dictionary=False)))
    same(mixed_release, read_release(mixed_path))


def test_more_cells_than_the_limit_are_refused_before_they_are_read(mixed_path, tmp_path):
    edit = setting("n_points", to=5_000_000)
    data = forged(mixed_path, lambda h, m: edit(h))
    refused(data, tmp_path, "5000000 points of 10 columns", "at most 50000000 cells")


# ---------------------------------------------------------------------- refusals: the measurement's arrays


def npy(array: np.ndarray, **options: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **({"version": (1, 0)} | options))
    return out.getvalue()


def array_of(members: Members, name: str) -> np.ndarray:
    return np.load(io.BytesIO(members[f"measurement/{name}.npy"]), allow_pickle=False)


def replaced(name: str, make: Callable[[np.ndarray], Any], *, declare: bool = False) -> Callable[..., None]:
    """An array replaced by what `make` makes of it: bytes as they are, an array as npy, declared if so asked."""

    def edit(header: dict[str, Any], members: Members) -> None:
        made = make(array_of(members, name))
        members[f"measurement/{name}.npy"] = made if isinstance(made, bytes) else npy(made)
        if declare:
            header["measurement"]["feature_map"]["arrays"][name] = list(made.shape)

    return edit


def cell(value: float, place: Any = (0, 0)) -> Callable[[np.ndarray], np.ndarray]:
    def edit(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[place] = value
        return array

    return edit


def renamed(name: str, other: str) -> Callable[..., None]:
    def edit(header: dict[str, Any], members: Members) -> None:
        arrays = header["measurement"]["feature_map"]["arrays"]
        arrays[other] = arrays.pop(name)
        members[f"measurement/{other}.npy"] = members.pop(f"measurement/{name}.npy")

    return edit


def padded_header(array: np.ndarray) -> bytes:
    """An npy file with a header of 5000 bytes."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {array.shape}, }}".ljust(4999) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + array.tobytes()


NOT_NPY, INFINITE = "it is not an npy 1.0 array of little-endian numbers in C order", "infinite or not a number"
ARRAYS: dict[str, tuple[Callable[..., None], str, str]] = {
    "nothing": (replaced("linear", lambda a: b""), r"linear\.npy", NOT_NPY),
    "a pickle": (
        replaced("linear", lambda a: npy(np.array([print], dtype=object), allow_pickle=True)), r"linear\.npy", NOT_NPY,
    ),
    "npy 2.0": (replaced("linear", lambda a: npy(a, version=(2, 0))), r"linear\.npy", NOT_NPY),
    "big endian": (replaced("linear", lambda a: a.astype(">f8")), r"linear\.npy", NOT_NPY),
    "Fortran order": (replaced("linear", np.asfortranarray), r"linear\.npy", NOT_NPY),
    "float32": (replaced("linear", lambda a: a.astype("<f4")), r"linear\.npy", NOT_NPY),
    "a long header": (replaced("linear", padded_header), r"linear\.npy", NOT_NPY),
    "code in the header": (
        replaced("linear", lambda a: npy(a).replace(b"(10, 100)", b"(1+9, 99)")), r"linear\.npy", NOT_NPY,
    ),
    "integers": (replaced("linear", lambda a: a.astype("<i8")), r"linear\.npy", "should hold <f8 .* got <i8"),
    "a float sum": (replaced("noisy_sum", lambda a: a.astype("<f8")), r"noisy_sum\.npy", "should hold <i8 .* got <f8"),
    "a shorter sum": (replaced("noisy_sum", lambda a: a[:-1]), r"noisy_sum\.npy", r"shape \[200\] .* shape \[199\]"),
    "a sum of two axes": (
        replaced("noisy_sum", lambda a: a[:, None]), r"noisy_sum\.npy", r"shape \[200\] .* \[200, 1\]",
    ),
    "bytes behind": (
        replaced("linear", lambda a: npy(a) + b"x"), r"linear\.npy", r"nothing else, got .* in 8129 bytes",
    ),
    "bytes missing": (replaced("linear", lambda a: npy(a)[:-8]), r"linear\.npy", r"in 8120 bytes"),
    "an infinite frequency": (replaced("linear", cell(np.inf)), r"linear\.npy", INFINITE),
    "a NaN phase": (replaced("table_4", cell(np.nan)), r"table_4\.npy", INFINITE),
    "a frequency of 1e308": (replaced("linear", cell(1e308, (2, 0))), r"linear\.npy", "phases are infinite"),
    "one column less": (replaced("linear", lambda a: a[1:], declare=True), r"linear\.npy", "9 rows, .* 10 columns"),
    "a table of too few levels": (
        replaced("table_4", lambda a: a[:-1], declare=True), r"table_4\.npy has shape \(4, 100\)",
        "city needs 5 or 1 rows",
    ),
    "a table of too many levels": (
        replaced("table_4", lambda a: np.vstack([a, a]), declare=True), r"table_4\.npy has shape", "city needs 5 or 1",
    ),
    "a table of fewer phases": (
        replaced("table_4", lambda a: a[:, 1:].copy(), declare=True), r"shape \(5, 99\)", "rows of 100 phases",
    ),
    "a table of levels for numbers": (
        replaced("table_1", lambda a: np.vstack([a, a]), declare=True), r"table_1\.npy has shape",
        "children needs 1 rows",
    ),
    "a table of one axis": (
        replaced("table_4", lambda a: a[0], declare=True), "feature_map, field arrays", "linear and table_j",
    ),
    "a table of no column": (renamed("table_4", "table_10"), "feature_map, field arrays", "table_j, j a column"),
    "a table of column 04": (renamed("table_4", "table_04"), "feature_map, field arrays", "table_j, j a column"),
    "no frequencies": (renamed("linear", "points"), "feature_map, field arrays", "random Fourier features have linear"),
}  # fmt: skip


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_other_than_declared_or_unfit_for_the_domain_are_refused(case, mixed_path, tmp_path):
    edit, what, why = ARRAYS[case]
    refused(forged(mixed_path, edit), tmp_path, what, why)


OUTSIDE = "values or codes outside the domain"
BASES: dict[str, tuple[Callable[..., None], str, str]] = {
    "a code too high": (replaced("points", cell(4.0)), r"points\.npy, column city", OUTSIDE),
    "a code below zero": (replaced("points", cell(-1.0)), r"points\.npy, column city", OUTSIDE),
    "half a code": (replaced("points", cell(0.5)), r"points\.npy, column city", OUTSIDE),
    "a missing cell undeclared": (replaced("points", cell(np.nan)), r"points\.npy, column city", OUTSIDE),
    "an infinite number": (replaced("points", cell(np.inf, (0, 2))), r"points\.npy, column capital\.gain", OUTSIDE),
    "a number out of bounds": (replaced("points", cell(12.0, (0, 2))), r"points\.npy, column capital\.gain", OUTSIDE),
    "a basis point twice": (
        replaced("points", lambda a: np.vstack([a[1:], a[1:2]])), "the release", "not linearly independent",
    ),
    "one column less": (
        replaced("points", lambda a: a[:, :2].copy(), declare=True), "field arrays",
        "points of 3 columns, and nothing else",
    ),
    "another name": (renamed("points", "linear"), "field arrays", "a subspace has points of 3 columns"),
}  # fmt: skip


@pytest.mark.parametrize("case", BASES)
def test_a_basis_that_is_not_of_the_domain_is_refused(case, levels_path, tmp_path):
    edit, what, why = BASES[case]
    refused(forged(levels_path, edit), tmp_path, what, why)


def test_a_basis_too_large_to_factorise_is_refused(levels_path, tmp_path, monkeypatch):
    monkeypatch.setattr(file_module, "MOST_BASIS_POINTS", 5)
    refused(levels_path.read_bytes(), tmp_path, r"points\.npy has \d+ rows", "a subspace has at most 5")


# ---------------------------------------------------------------------- damage

READ_MANY = """
import sys, warnings
from pathlib import Path
from kmeanalyst.releases.file import FileRefused, read_release, write_release
folder = Path(sys.argv[1])
for path in sorted(folder.glob("*.kme")):
    try:
        release = read_release(path)
    except FileRefused:
        print("refused", path.name)
    else:
        write_release(release, folder / "again")
        print((folder / "again").read_bytes() == (folder / "original").read_bytes(), path.name)
"""


def test_damage_ends_in_a_refusal_or_in_the_identical_release(mixed_path, tmp_path):
    """300 flipped bits (a third of them resealed by a forger) and 60 truncations; a crash would end the child."""
    whole, rng = mixed_path.read_bytes(), np.random.default_rng(20)
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "original").write_bytes(whole)
    for i in range(200):
        data, place = bytearray(whole), int(rng.integers(len(whole)))
        data[place] ^= 1 << int(rng.integers(8))
        (folder / f"flip{i}.kme").write_bytes(data)
    for i in range(100):
        (folder / f"sealed{i}.kme").write_bytes(forged(mixed_path, lambda h, m: flip(m, rng)))
    for i in range(60):
        (folder / f"cut{i}.kme").write_bytes(whole[: int(rng.integers(len(whole)))])
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ_MANY, str(folder)], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    outcomes = dict(line.split()[::-1] for line in run.stdout.splitlines())
    assert len(outcomes) == 360
    assert all(outcomes[f"cut{i}.kme"] == "refused" for i in range(60))
    assert all(outcomes[f"flip{i}.kme"] in ("refused", "True") for i in range(200))


def flip(members: Members, rng: np.random.Generator) -> None:
    """Flip a bit of the points, as a forger who then makes the checksums good."""
    data = bytearray(members["points.parquet"])
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    members["points.parquet"] = bytes(data)


# ---------------------------------------------------------------------- validate


def test_a_sound_file_has_no_findings(release, tmp_path):
    write_release(release, tmp_path / "a.kme")
    assert validate_release(tmp_path / "a.kme") == []


def test_a_refusal_is_one_finding(mixed_path):
    mixed_path.write_bytes(mixed_path.read_bytes()[:-1])
    (finding,) = validate_release(mixed_path)
    assert finding == f"{mixed_path}: {NO_ZIP[0]}: it is {NO_ZIP[1]}. {AGAIN}"


def findings_of(release: Release, folder: Path, **changes: Any) -> list[str]:
    write_release(changed(release, **changes), folder / "changed.kme")
    return validate_release(folder / "changed.kme")


def test_weights_that_are_no_probabilities_are_found(mixed_release, tmp_path):
    for weights in (mixed_release.weights * 1.001, mixed_release.weights - 0.001):
        findings = findings_of(mixed_release, tmp_path, weights=weights)
        assert any("said to be probability weights" in finding for finding in findings)
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
    said = "weights: said to be the published ones of a subspace"
    assert findings == [f"{said}, but the measurement has another feature map"]


def test_more_public_points_than_points_are_found(mixed_release, tmp_path):
    import dataclasses

    statement = dataclasses.replace(mixed_release.statement, public_points=61)
    assert findings_of(mixed_release, tmp_path, statement=statement) == ["public_points: 61 of only 60 points"]


def test_features_beyond_their_bound_are_found(mixed_path, monkeypatch):
    from kmeanalyst.kernels.features import RandomFourier

    honest = RandomFourier.__call__
    monkeypatch.setattr(RandomFourier, "__call__", lambda self, X: honest(self, X) * (1 + 1e-8))
    findings = validate_release(mixed_path)
    assert any(re.match(r"feature map: a point has features of norm 1\.0+1, above the bound 1", f) for f in findings)


def test_a_scaled_kernel_keeps_its_bound_in_the_file(numeric_release, tmp_path):
    """B = √factor: the vector, the sensitivity and the noise are in units of it."""
    from conftest import release_of

    from kmeanalyst.kernels.features import Nystroem

    kernel = Scaled(factor=4.0, kernel=Gaussian(1.0))
    points = numeric_release.to_frame().drop(columns="weight")
    encoded = numeric_release.domain.encode(points)
    release = release_of(
        encoded, numeric_release.domain, kernel, Nystroem.fit(kernel, encoded), points, method="subspace", view="signed"
    )
    assert release.measurement.feature_map.norm_bound == 2.0
    write_release(release, tmp_path / "a.kme")
    same(release, read_release(tmp_path / "a.kme"))
    assert validate_release(tmp_path / "a.kme") == []
