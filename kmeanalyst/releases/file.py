"""The .kme file: a zip of stored members (FORMAT.md, schema_v1.json), written whole and read with distrust.

Files come from strangers. The reader bounds every size before it allocates, knows every name beforehand,
recomputes what a claim rests on, and builds values only from numbers, texts and its own classes: there is
no pickle, no code and no import path in a file. Whatever does not fit is a `FileRefused`.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import platform
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Indicator, Kernel, SoftenedProduct, kernel_from_dict
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features import FeatureMap, Nystroem, RandomFourier
from kmeanalyst.releases.atomic import written_whole
from kmeanalyst.releases.columns import Boolean, Categorical, Column, Date, Integer, text_of
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.measurement import GRID, Measurement, feature_mean, mean_unit
from kmeanalyst.releases.release import Release
from kmeanalyst.releases.statement import PrivacyStatement

FORMAT = "kmeanalyst release"
SCHEMA_MAJOR, SCHEMA_MINOR = 1, 0
WEIGHT_VIEWS = ("probability", "bounded", "signed", "published", "given")

MOST_BYTES = 2**31 - 1  # of a file: below this a zip needs no 64-bit extension
MOST_HEADER_BYTES = 2**24
MOST_HEADER_DEPTH = 32
MOST_MEMBERS = 10_000
MOST_CELLS = 50_000_000  # rows × (columns + weight) of the points
MOST_ROW_GROUPS = 1000
MOST_FOOTER_BYTES = 2**22  # of points.parquet
MOST_BASIS_POINTS = 10_000  # of a subspace: its Gram matrix is built on reading

_HEADER, _POINTS, _SUM = "release.json", "points.parquet", "measurement/noisy_sum.npy"
_AGAIN = "Fetch the file again, or ask its maker for a sound one"
_UPGRADE = "Upgrade kmeanalyst"
_CHECK = "Check that it is a .kme file"
_CLOSE = 1e-6  # relative room for rounding where a recorded number is recomputed


class FileRefused(ValueError):
    """A file that cannot be read as a release, or is not to be trusted; the message has the mend."""


def _refusal(what: str, why: str, mend: str = _AGAIN) -> FileRefused:
    return FileRefused(f"{what}: {why}. {mend}.")


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn what a hostile value provokes in `what` into a refusal."""
    try:
        yield
    except FileRefused:
        raise
    except (
        ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, OSError, MemoryError,
        RecursionError, NotImplementedError, zipfile.BadZipFile, struct.error,
    ) as error:  # fmt: skip
        raise _refusal(what, f"it does not make sense ({' '.join(str(error).split()).rstrip('.'):.300})") from None


# ---------------------------------------------------------------------- writing


def write_release(release: Release, path: str | Path) -> None:
    """Write the release as a .kme file, which appears whole or not at all.

    The same release gives the same bytes. What is written has been read back first: ValueError, and no file,
    if its own reader would refuse it.
    """
    members = _members_of(release)
    try:
        _release_of(members)
    except FileRefused as refusal:
        raise ValueError(f"this release cannot be written, because no reader would take it: {refusal}") from None
    with written_whole(path) as temporary:
        temporary.write_bytes(_zipped(members))


def _members_of(release: Release) -> dict[str, bytes]:
    """Member name → bytes, the header first."""
    members = {_POINTS: _parquet(release)}
    if release.measurement is not None:
        _check_writable(release.measurement, release.kernel)
        members[_SUM] = _npy(release.measurement.noisy_sum, "<i8")
        for name, array in release.measurement.feature_map.arrays().items():
            members[f"measurement/{name}.npy"] = _npy(array, "<f8")
    return {_HEADER: _canonical(_header(release, members)), **members}


def _canonical(header: dict[str, Any]) -> bytes:
    """JSON with sorted keys and no spaces: the same header gives the same bytes."""
    text = json.dumps(header, sort_keys=True, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _check_writable(measurement: Measurement, kernel: Kernel) -> None:
    if measurement.feature_map.kernel != kernel:
        raise ValueError(
            "this release cannot be written: its measurement was made with another kernel than its own, and a file "
            "has one kernel. Build the release with the kernel of the feature map."
        )
    unit = mean_unit(n_rows=measurement.n_rows, feature_map=measurement.feature_map)
    if not np.array_equal(measurement.vector, measurement.noisy_sum * unit):
        raise ValueError(
            "this release cannot be written: the measurement's vector is not the reading of its noisy sum, which is "
            "all that a file holds. Build it with Measurement.from_sum."
        )


def _header(release: Release, members: dict[str, bytes]) -> dict[str, Any]:
    header = {
        "format": FORMAT,
        "schema_major": SCHEMA_MAJOR,
        "schema_minor": SCHEMA_MINOR,
        "columns": release.domain.to_dict(),
        "kernel": release.kernel.to_dict(),
        "method": release.method,
        "weight_view": release.weight_view,
        "fit_distance": release.fit_distance,
        "n_points": len(release),
        "statement": None if release.statement is None else release.statement.to_dict(),
        "measurement": None if release.measurement is None else _measurement_header(release.measurement),
        "versions": _versions(),
        "members": {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in members.items()},
    }
    return _plain(header)


def _measurement_header(measurement: Measurement) -> dict[str, Any]:
    feature_map = measurement.feature_map
    unit = mean_unit(n_rows=measurement.n_rows, feature_map=feature_map)
    return measurement.to_dict() | {
        "grid_noise_scale": measurement.noise_scale / unit,
        "feature_map": {
            "name": feature_map.name,
            "dimension": feature_map.dimension,
            "arrays": {name: list(array.shape) for name, array in feature_map.arrays().items()},
        },
    }


def _plain(value: Any) -> Any:
    """The value as JSON knows it: numpy's numbers as Python's, tuples as lists."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in ("kmeanalyst", "numpy", "pyarrow")}


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _npy(array: Array, dtype: str) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.ascontiguousarray(array, dtype=dtype), version=(1, 0), allow_pickle=False)
    return out.getvalue()


def _parquet(release: Release) -> bytes:
    """Points in natural units and weights, as Parquet without compression and without a pandas schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    frame = release.to_frame()
    arrays = [_arrow_array(column, frame[column.name]) for column in release.domain.columns]
    arrays.append(pa.array(release.weights, pa.float64()))
    table = pa.Table.from_arrays(arrays, names=[*release.domain.names, "weight"])
    out = io.BytesIO()
    pq.write_table(
        table, out, compression="none", store_schema=False, write_statistics=False, row_group_size=len(release),
        use_dictionary=[column.name for column in release.domain.columns if _is_text(column)],
    )  # fmt: skip
    return out.getvalue()


def _arrow_array(column: Column, series: pd.Series) -> Any:
    import pyarrow as pa

    try:
        if isinstance(column, Date):
            series = pd.Series(series.to_numpy().astype("datetime64[D]"), dtype=object)
        elif _is_text(column):
            series = series.astype(object).where(series.notna(), None)
        return pa.array(series, _arrow_type(column), from_pandas=True)
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise ValueError(
            f"this release cannot be written: the points of column {column.name} are not {column.kind} values "
            f"({error}). Build the release with points as Domain.decode gives them."
        ) from None


def _is_text(column: Column) -> bool:
    return isinstance(column, Categorical) and not isinstance(column, Boolean)


def _arrow_type(column: Column) -> Any:
    import pyarrow as pa

    if _is_text(column):
        return pa.string()
    return {Boolean: pa.bool_(), Date: pa.date32(), Integer: pa.int64()}.get(type(column), pa.float64())


def _zipped(members: dict[str, bytes]) -> bytes:
    """A zip of stored members whose bytes depend on the members alone."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, data)
    archive_bytes = out.getvalue()
    if len(archive_bytes) > MOST_BYTES:
        raise ValueError(
            f"this release cannot be written: it needs {len(archive_bytes)} bytes, and readers refuse more than "
            f"{MOST_BYTES}. Publish fewer features, or fewer levels."
        )
    return archive_bytes


# ---------------------------------------------------------------------- reading


def read_release(path: str | Path) -> Release:
    """Read a .kme file; FileRefused says what is wrong with a file that is not sound.

    Nothing is returned unless checksums, shapes, values and the arithmetic of the privacy statement agree.
    """
    try:
        return _release_of(_members(_contents(Path(path))))
    except FileRefused as refusal:
        raise FileRefused(f"{path}: {refusal}") from None


def _contents(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > MOST_BYTES:
                raise _refusal(f"the file has {status.st_size} bytes", f"a release has at most {MOST_BYTES}", _CHECK)
            return file.read(MOST_BYTES)
    except FileNotFoundError:
        raise _refusal("there is no such file", "nothing could be read", "Check the name and the folder") from None
    except OSError as error:
        raise _refusal("the file cannot be read", f"{error.strerror}", "Name a file that you may read") from None


def _release_of(members: dict[str, bytes] | dict[str, memoryview]) -> Release:
    """The release that the members hold, or FileRefused."""
    header = _parsed(members[_HEADER])
    _check_header(header)
    _check_members(header, members)
    with _refusing("the columns"):
        domain = Domain.from_dict(header["columns"])
        if _plain(domain.to_dict()) != header["columns"]:
            raise ValueError("they are not written as a domain writes them")
    with _refusing("the kernel"):
        kernel = kernel_from_dict(header["kernel"])
    points, weights = _points(members[_POINTS], domain, header["n_points"])
    _check_kernel(kernel, domain, points)
    with _refusing("the release"):
        measurement = _measurement(header, kernel, domain, members)
        return Release(
            points=points, weights=weights, measurement=measurement, kernel=kernel, domain=domain,
            statement=_statement(header, measurement), method=header["method"], weight_view=header["weight_view"],
            fit_distance=None if header["fit_distance"] is None else float(header["fit_distance"]),
        )  # fmt: skip


# ---------------------------------------------------------------------- the archive

_END = struct.Struct("<4s4H2LH")
_MOST_ENTRY_BYTES = 256  # of a member in the central directory
_LOCAL = struct.Struct("<4s5H3L2H")
_MEMBER_NAME = re.compile(r"release\.json|points\.parquet|measurement/[a-z][a-z0-9_]*\.npy")


def _members(raw: bytes) -> dict[str, memoryview]:
    """Member name → its bytes, of a zip whose every byte is accounted for.

    The members must fill the file from its start without a gap: two zip readers then cannot see two files.
    """
    directory = _check_end(raw)
    with _refusing("the archive"), zipfile.ZipFile(io.BytesIO(raw)) as archive:
        listed = archive.infolist()
    for info in listed:
        _check_entry(info)
    names = [info.filename for info in listed]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise _refusal(f"the members {twice} occur twice", "readers would disagree on which of them counts")
    members, position = {}, 0
    for info in sorted(listed, key=lambda info: info.header_offset):
        members[info.filename], position = _stored_bytes(raw, info, position, directory)
    if position != directory:
        raise _refusal("the archive has bytes that belong to no member", "readers could see different files in it")
    if not {_HEADER, _POINTS} <= set(members):
        raise _refusal(f"the archive lacks {_HEADER} or {_POINTS}", "it is not a release", _CHECK)
    return members


def _check_end(raw: bytes) -> int:
    """Where the central directory begins; refuses unless the end record closes the file just as it should."""
    if len(raw) < _END.size or raw[-_END.size :][:4] != b"PK\5\6":
        raise _refusal("the file is not a whole zip archive", "it is truncated, padded, or no release at all")
    _, disk, first_disk, here, total, size, offset, comment = _END.unpack(raw[-_END.size :])
    wide = raw[-_END.size - 20 :][:4] == b"PK\6\7"  # the 64-bit record would overrule this one
    if wide or disk or first_disk or comment or here != total or offset + size + _END.size != len(raw):
        raise _refusal("the archive's end record does not fit the file", "it is truncated, padded or altered")
    if total > MOST_MEMBERS or size > total * _MOST_ENTRY_BYTES:
        raise _refusal(f"the archive lists {total} members in {size} bytes", f"a release has at most {MOST_MEMBERS}")
    return int(offset)


def _check_entry(info: zipfile.ZipInfo) -> None:
    name = info.orig_filename
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.flag_bits & 0x1:
        raise _refusal(f"member {name!r:.80} is encrypted", "a release hides nothing from its reader")
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise _refusal(f"member {name!r:.80} is compressed", "a release has stored members only, of known size")
    if kind not in (0, stat.S_IFREG):
        raise _refusal(f"member {name!r:.80} is a link or a device", "a release has plain members only")
    if not _MEMBER_NAME.fullmatch(name):
        raise _refusal(f"member name {name!r:.80}", "no member of a release is called so, and no path is followed")
    if info.flag_bits & ~0x800 or info.extra or info.comment:
        raise _refusal(f"member {name!r:.80} has flags, extra fields or a comment", "readers could take it differently")


def _stored_bytes(raw: bytes, info: zipfile.ZipInfo, position: int, end: int) -> tuple[memoryview, int]:
    """The member's bytes and where they end; its own header must say what the directory says."""
    name = info.orig_filename.encode()
    start = position + _LOCAL.size + len(name)
    stop = start + info.file_size
    if info.header_offset != position or stop > end:
        raise _refusal(f"member {info.filename} is not where it should be", "members overlap or leave a gap")
    told = _LOCAL.unpack(raw[position : position + _LOCAL.size])
    facts = (b"PK\3\4", info.flag_bits, 0, info.CRC, info.file_size, info.file_size, len(name), 0)
    if told[:1] + told[2:4] + told[6:] != facts or raw[start - len(name) : start] != name:
        raise _refusal(f"member {info.filename} has two headers that differ", "readers would disagree on it")
    data = memoryview(raw)[start:stop]
    if zlib.crc32(data) != info.CRC:
        raise _refusal(f"member {info.filename} does not have its checksum", "the file was damaged or altered")
    return data, stop


# ---------------------------------------------------------------------- the header

_Rule = tuple[str, Callable[[Any], bool]]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= 2 and all(_is_whole(size) and size >= 1 for size in value)


def _one_of(*values: Any) -> _Rule:
    return f"one of {', '.join(map(str, values))}", lambda value: type(value) in (str, int) and value in values


_TEXT: _Rule = ("a text of 1 to 200 characters", lambda value: isinstance(value, str) and 0 < len(value) <= 200)
_TEXTS: _Rule = (
    "a table of texts",
    lambda value: isinstance(value, dict) and all(isinstance(item, str) for item in value.values()),
)
_COUNT: _Rule = ("a whole number of at least 1", lambda value: _is_whole(value) and value >= 1)
_SIZE: _Rule = ("a whole number of at least 0", lambda value: _is_whole(value) and value >= 0)
_POSITIVE: _Rule = ("a positive number", lambda value: _is_number(value) and value > 0)
_DISTANCE: _Rule = ("null or a number of at least 0", lambda value: value is None or (_is_number(value) and value >= 0))
_TABLE: _Rule = ("a table", lambda value: isinstance(value, dict))
_TABLE_OR_NULL: _Rule = ("a table or null", lambda value: value is None or isinstance(value, dict))
_LIST: _Rule = ("a list with at least one entry", lambda value: isinstance(value, list) and bool(value))
_DIGEST: _Rule = (
    "64 hexadecimal digits",
    lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None,
)
_SHAPES: _Rule = (
    "a table of shapes",
    lambda value: isinstance(value, dict) and bool(value) and all(map(_is_shape, value.values())),
)

_HEADER_RULES = {
    "format": _one_of(FORMAT),
    "schema_major": _one_of(SCHEMA_MAJOR),
    "schema_minor": _SIZE,
    "columns": _LIST,
    "kernel": _TABLE,
    "method": _TEXT,
    "weight_view": _one_of(*WEIGHT_VIEWS),
    "fit_distance": _DISTANCE,
    "n_points": _COUNT,
    "statement": _TABLE_OR_NULL,
    "measurement": _TABLE_OR_NULL,
    "versions": _TEXTS,
    "members": _TABLE,
}
_MEASUREMENT_RULES = {
    "noise_law": _one_of("discrete gaussian"),
    "noise_scale": _POSITIVE,
    "grid_noise_scale": _POSITIVE,
    "n_rows": _COUNT,
    "feature_map": _TABLE,
}
_FEATURE_MAP_RULES = {"name": _one_of(RandomFourier.name, Nystroem.name), "dimension": _COUNT, "arrays": _SHAPES}
_MEMBER_RULES = {"bytes": _SIZE, "sha256": _DIGEST}


def _parsed(data: bytes | memoryview) -> dict[str, Any]:
    """The header as plain values, all of them finite, of bounded depth, no key twice."""
    if len(data) > MOST_HEADER_BYTES:
        raise _refusal(f"{_HEADER} has {len(data)} bytes", f"a header has at most {MOST_HEADER_BYTES}")
    with _refusing(_HEADER):
        text = bytes(data).decode()
        header = json.loads(text, object_pairs_hook=_without_twins, parse_constant=_no_constant)
    _check_values(header, depth=1)
    if not isinstance(header, dict):
        raise _refusal(_HEADER, "a header is a table of fields")
    return header


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        twice = sorted({key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1})
        raise _refusal(f"{_HEADER} has the keys {twice!r:.80} twice", "readers would disagree on which of them counts")
    return table


def _no_constant(name: str) -> None:
    raise _refusal(f"{_HEADER} contains {name}", "JSON has no such number, and no field of a release means one")


def _check_values(value: Any, *, depth: int) -> None:
    if depth > MOST_HEADER_DEPTH:
        raise _refusal(f"{_HEADER} is nested more than {MOST_HEADER_DEPTH} deep", "no release needs that")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_values(key, depth=depth)
            _check_values(item, depth=depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_values(item, depth=depth + 1)
    elif isinstance(value, str):
        with _refusing(f"a text of {_HEADER}"):
            value.encode()  # half a surrogate pair can be neither printed nor compared
    elif isinstance(value, float | int) and not abs(value) < (math.inf if isinstance(value, float) else 2**63):
        raise _refusal(f"{_HEADER} contains the number {value!r:.40}", "it is beyond what 64 bits hold")


def _check_header(header: dict[str, Any]) -> None:
    major, minor = header.get("schema_major"), header.get("schema_minor")
    if header.get("format") == FORMAT and _is_whole(major) and major != SCHEMA_MAJOR:
        raise _refusal(
            f"the file is format {major}, this kmeanalyst reads format {SCHEMA_MAJOR}",
            "nothing was read, because another format may have changed what a weight means",
            _UPGRADE,
        )
    newer = isinstance(minor, int) and minor > SCHEMA_MINOR  # a newer minor version adds fields that may be ignored
    _check_fields(_HEADER, header, _HEADER_RULES, more_allowed=newer)
    for name, entry in header["members"].items():
        _check_fields(f"the entry of member {name!r:.80}", entry, _MEMBER_RULES)
    if (header["measurement"] is None) != (header["statement"] is None):
        raise _refusal("measurement and statement", "one of them alone is a promise about nothing")
    if header["measurement"] is None and header["fit_distance"] is not None:
        raise _refusal("fit_distance", "there is no measurement that the points could be at a distance from")
    if header["measurement"] is not None:
        _check_fields("measurement", header["measurement"], _MEASUREMENT_RULES)
        _check_fields("feature_map", header["measurement"]["feature_map"], _FEATURE_MAP_RULES)


def _check_fields(what: str, table: Any, rules: dict[str, _Rule], *, more_allowed: bool = False) -> None:
    """Exactly the fields of `rules`, each as its rule has it."""
    if not isinstance(table, dict):
        raise _refusal(what, f"it should be a table of {', '.join(rules)}")
    absent, unknown = sorted(set(rules) - set(table)), sorted(set(table) - set(rules))
    if absent or (unknown and not more_allowed):
        raise _refusal(what, f"missing fields {absent}, unknown fields {unknown!r:.200}; no meaning can be guessed")
    for name, (wanted, holds) in rules.items():
        if not holds(table[name]):
            raise _refusal(f"{what}, field {name}", f"it must be {wanted}, got {table[name]!r:.80}")


def _check_members(header: dict[str, Any], members: dict[str, bytes] | dict[str, memoryview]) -> None:
    """The members are exactly the declared ones, byte for byte."""
    wanted = {_POINTS}
    if header["measurement"] is not None:
        wanted |= {_SUM} | {f"measurement/{name}.npy" for name in header["measurement"]["feature_map"]["arrays"]}
    declared, present = set(header["members"]), set(members) - {_HEADER}
    if not wanted == declared == present:
        raise _refusal(
            "the members differ from the declared ones",
            f"needed {sorted(wanted)!r:.300}, declared {sorted(declared)!r:.300}, present {sorted(present)!r:.300}",
        )
    for name, entry in header["members"].items():
        data = members[name]
        if len(data) != entry["bytes"]:
            raise _refusal(f"member {name} has {len(data)} bytes", f"the header declares {entry['bytes']}")
        if _sha256(data) != entry["sha256"]:
            raise _refusal(f"member {name} does not have the declared SHA-256", "the file was damaged or altered")


# ---------------------------------------------------------------------- the points

_MOST_THRIFT_DEPTH = 12

def _points(data: bytes | memoryview, domain: Domain, n_points: int) -> tuple[pd.DataFrame, Array]:
    """Points in natural units and levels, as Domain.decode gives them, and weights (M,)."""
    cells = n_points * (len(domain) + 1)
    if cells > MOST_CELLS:
        raise _refusal(f"{n_points} points of {len(domain)} columns", f"a release has at most {MOST_CELLS} cells")
    with _refusing(_POINTS):
        table = _arrow_table(data, domain, n_points)
        table.validate(full=True)
        columns = {column.name: _series(column, table.column(j)) for j, column in enumerate(domain.columns)}
        weight = table.column(len(domain))
        if weight.null_count:
            raise _refusal(f"{_POINTS}, column weight", "a missing weight means nothing")
        weights = weight.to_numpy()
    if not np.isfinite(weights).all():
        raise _refusal(f"{_POINTS}, column weight", "a weight that is infinite or not a number means nothing")
    return pd.DataFrame(columns), weights


def _arrow_table(data: bytes | memoryview, domain: Domain, n_points: int) -> Any:
    """The Parquet table, read only once its own description fits the header.

    Levels are read as dictionaries: a text that is repeated a million times is held once.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [column.name for column in domain.columns if _is_text(column)]
    _check_footer(_footer(data), len(domain) + 1, n_points, len(data))
    file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
    expected = [(column.name, _arrow_type(column)) for column in domain.columns] + [("weight", pa.float64())]
    found = [(field.name, field.type) for field in file.schema_arrow]
    if found != expected:
        odd = [f"{name} {kind}" for name, kind in found if (name, kind) not in expected] or ["order"]
        raise _refusal(f"{_POINTS} has other columns than declared", f"{', '.join(odd):.200} does not fit the domain")
    table = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), read_dictionary=texts).read(use_threads=False)
    if table.num_rows != n_points:
        raise _refusal(f"{_POINTS} has {table.num_rows} rows", f"the header declares {n_points}")
    return table.unify_dictionaries().combine_chunks()


def _check_footer(footer: dict[int, Any], n_columns: int, n_points: int, n_bytes: int) -> None:
    """Rows, columns and sizes as declared, and nothing compressed; fields are numbered as in parquet.thrift."""
    if footer[3] != n_points:
        raise _refusal(f"{_POINTS} has {footer[3]} rows", f"the header declares {n_points}")
    if any(entry[1] == b"ARROW:schema" for entry in footer.get(5, ())):
        raise _refusal(f"{_POINTS} has an ARROW:schema entry", "the types of a release are those of Parquet itself")
    groups = footer[4]
    if len(groups) > MOST_ROW_GROUPS:
        raise _refusal(f"{_POINTS} has {len(groups)} row groups", f"at most {MOST_ROW_GROUPS} are read")
    if sum(group[3] for group in groups) != n_points or any(group[3] < 0 for group in groups):
        raise _refusal(f"{_POINTS} has row groups", f"they do not make {n_points} rows")
    for group in groups:
        if len(group[1]) != n_columns:
            raise _refusal(f"{_POINTS} has {len(group[1])} columns", f"domain and weight make {n_columns}")
        for chunk in group[1]:
            _check_chunk(chunk, group[3], n_bytes)


def _check_chunk(chunk: dict[int, Any], n_rows: int, n_bytes: int) -> None:
    described = chunk[3]
    what = f"{_POINTS}, column {b'.'.join(described[3]).decode()!r:.80}"
    if described[4] != 0:
        raise _refusal(f"{what} is compressed", "its size cannot be known beforehand")
    elsewhere = {1, 8, 9} & set(chunk)  # another file's path, or encryption
    if elsewhere or described[5] != n_rows or not 0 <= described[7] == described[6] <= n_bytes:
        raise _refusal(what, "its description does not fit the file")


def _footer(data: bytes | memoryview) -> dict[int, Any]:
    """Parquet's own description of the file, as {field number: value}.

    It is parsed here before pyarrow sees it: a forged one has ended the process (an uncaught C++ exception in
    its metadata classes), and what it says of sizes must be known before anything is read.
    """
    size = int.from_bytes(data[-8:-4], "little")
    if not (data[:4] == data[-4:] == b"PAR1" and 0 < size <= min(len(data) - 12, MOST_FOOTER_BYTES)):
        raise ValueError("not a Parquet file, or its footer does not fit")
    return _thrift_struct(io.BytesIO(data[-8 - size : -8]), depth=1)


def _thrift_struct(stream: io.BytesIO, *, depth: int) -> dict[int, Any]:
    """A struct of Thrift's compact protocol."""
    table: dict[int, Any] = {}
    number = 0
    while head := stream.read(1)[0]:
        number = number + (head >> 4) if head >> 4 else _thrift_whole(stream)
        if number in table:
            raise ValueError(f"field {number} occurs twice")
        table[number] = _thrift_value(stream, head & 15, depth=depth)
    return table


def _thrift_value(stream: io.BytesIO, kind: int, *, depth: int) -> Any:
    if kind in (1, 2):  # a boolean, which is its kind
        return kind == 1
    if kind in (4, 5, 6):
        return _thrift_whole(stream)
    if kind in (3, 7, 8):
        size = {3: 1, 7: 8}.get(kind) or _thrift_size(stream)
        return stream.read(size)
    if kind in (9, 12) and depth > _MOST_THRIFT_DEPTH:
        raise ValueError("structs nested too deep")
    if kind == 9:
        head = stream.read(1)[0]
        size = head >> 4 if head >> 4 < 15 else _thrift_size(stream)
        if head & 15 in (1, 2):
            raise ValueError("a list of booleans")  # would take no bytes here, and there is none in a footer
        return [_thrift_value(stream, head & 15, depth=depth + 1) for _ in range(size)]
    if kind == 12:
        return _thrift_struct(stream, depth=depth + 1)
    raise ValueError(f"values of kind {kind}")


def _thrift_whole(stream: io.BytesIO) -> int:
    size = _thrift_size(stream)
    return (size >> 1) ^ -(size & 1)


def _thrift_size(stream: io.BytesIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = stream.read(1)[0]  # IndexError at the end
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise ValueError("a whole number of more than 64 bits")


def _series(column: Column, values: Any) -> pd.Series:
    """A column as Domain.decode gives it; every value within the domain, nulls only where declared."""
    if values.null_count and not column.missing:
        raise _refusal(f"{_POINTS}, column {column.name}", "it has nulls, and the domain declares no missing value")
    if _is_text(column):
        return column.decode(_codes(column, values))
    if isinstance(column, Boolean):
        return column.decode(values.cast("uint8").cast("float64").to_numpy())
    if isinstance(column, Date):
        days = values.cast("int32").cast("float64").to_numpy()
        _check_bounds(column, days, values.null_count, column.bounds)
        return column.decode(days)
    numbers = values.to_numpy()
    low, high = (column.parse(text_of(bound) or "") for bound in (column.lower, column.upper))  # type: ignore[attr-defined]
    _check_bounds(column, numbers, values.null_count, (low, high))
    if isinstance(column, Integer) and column.missing:
        whole = pd.arrays.IntegerArray(np.array(values.fill_null(0)), np.array(values.is_null()))
        return pd.Series(whole, name=column.name)
    return pd.Series(np.array(numbers), name=column.name)


def _codes(column: Column, values: Any) -> Array:
    """Level codes as float64, NaN where missing."""
    chunk = values.chunk(0)
    codes = {level: code for code, level in enumerate(column.levels)}  # type: ignore[attr-defined]
    levels = chunk.dictionary.to_pylist()
    unseen = [level for level in levels if level not in codes]
    if unseen:
        raise _refusal(f"{_POINTS}, column {column.name}", f"{unseen[0]!r:.80} is not one of its levels")
    place = chunk.indices.cast("float64").to_numpy(zero_copy_only=False)
    missing = np.isnan(place)
    known = np.array([float(codes[level]) for level in levels] or [0.0])
    return np.where(missing, np.nan, known[np.where(missing, 0, place).astype(np.int64)])


def _check_bounds(column: Column, numbers: Array, n_missing: int, bounds: tuple[Any, Any]) -> None:
    inside = (numbers >= bounds[0]) & (numbers <= bounds[1])  # false for NaN, which only a null may have become
    if int(inside.sum()) + n_missing != len(numbers):
        raise _refusal(f"{_POINTS}, column {column.name}", "it has values outside its bounds, or NaN that is not null")


# ---------------------------------------------------------------------- kernel, measurement, statement


def _check_kernel(kernel: Kernel, domain: Domain, points: pd.DataFrame) -> None:
    """The kernel has a finite bound and is a kernel on rows of this domain."""
    with _refusing("the kernel"), np.errstate(all="ignore"):
        rows = domain.encode(points.iloc[:8])
        K, bound = kernel.gram(rows, rows), kernel.bound
        kept = K.shape == (len(rows), len(rows)) and bool((np.abs(K) <= bound**2 * (1 + 1e-9)).all())
        if not (kept and 0 < bound < math.inf):
            raise ValueError("it is not bounded, or does not keep its bound on the points")
        parts = kernel.kernels if isinstance(kernel, SoftenedProduct) else ()
        for part, column in zip(parts, domain.columns, strict=bool(parts)):
            levels = len(column.levels) if isinstance(column, Categorical) else None
            if isinstance(part, Indicator) and levels is not None and part.levels != levels:
                raise ValueError(f"it counts {part.levels} levels in column {column.name}, which has {levels}")


def _measurement(
    header: dict[str, Any], kernel: Kernel, domain: Domain, members: dict[str, bytes] | dict[str, memoryview]
) -> Measurement | None:
    """The measurement, its vector read from the noisy sum."""
    told = header["measurement"]
    if told is None:
        return None
    described = told["feature_map"]
    arrays = {
        name: _array(f"measurement/{name}.npy", members[f"measurement/{name}.npy"], "<f8", shape)
        for name, shape in described["arrays"].items()
    }
    feature_map = _FEATURE_MAPS[described["name"]](kernel, domain, arrays)
    if feature_map.dimension != described["dimension"]:
        raise _refusal("feature_map, field dimension", f"the arrays make {feature_map.dimension} features")
    noisy_sum = _array(_SUM, members[_SUM], "<i8", [described["dimension"]])
    unit = mean_unit(n_rows=told["n_rows"], feature_map=feature_map)
    if not math.isclose(told["grid_noise_scale"] * unit, told["noise_scale"], rel_tol=_CLOSE):
        raise _refusal("grid_noise_scale", "it is not the noise scale in steps of the grid: one of the two is wrong")
    return Measurement(
        vector=noisy_sum * unit, noise_scale=float(told["noise_scale"]), noise_law=told["noise_law"],
        n_rows=told["n_rows"], feature_map=feature_map, noisy_sum=noisy_sum,
    )  # fmt: skip


_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_NPY_HEADER = re.compile(
    rb"\{'descr': ?'(<f8|<i8)', ?'fortran_order': ?False, ?"
    rb"'shape': ?\(([1-9]\d{0,11}(?:,|, ?[1-9]\d{0,11}))\),? ?\} *\n"
)
_MOST_NPY_HEADER_BYTES = 1024


def _array(name: str, data: bytes | memoryview, dtype: str, shape: list[int]) -> Array:
    """An array of an npy member, once its header has been found to say dtype and shape, and its size to fit."""
    start = len(_NPY_MAGIC) + 2
    length = int.from_bytes(data[start - 2 : start], "little")
    match = _NPY_HEADER.fullmatch(bytes(data[start : start + length]))
    if bytes(data[: len(_NPY_MAGIC)]) != _NPY_MAGIC or match is None or length > _MOST_NPY_HEADER_BYTES:
        raise _refusal(name, "it is not an npy 1.0 array of little-endian numbers in C order")
    told = [int(size) for size in match[2].replace(b",", b" ").split()]
    if match[1].decode() != dtype or told != shape or start + length + 8 * math.prod(shape) != len(data):
        got = f"{match[1].decode()} of shape {told} in {len(data)} bytes"
        raise _refusal(name, f"it should hold {dtype} of shape {shape} and nothing else, got {got}")
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def _random_fourier(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    """Frequencies and phase tables that fit the domain: no code of a level can fall outside its table."""
    places = {f"table_{j}": j for j in range(len(domain))}
    if set(arrays) - set(places) != {"linear"} or any(array.ndim != 2 for array in arrays.values()):
        raise _refusal("feature_map, field arrays", "random Fourier features have linear and table_j, j a column")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise _refusal(f"measurement/{name}.npy", "a number that is infinite or not a number means nothing")
    linear = arrays["linear"]
    if len(linear) != len(domain):
        raise _refusal("measurement/linear.npy", f"it has {len(linear)} rows, and there are {len(domain)} columns")
    _check_phases(linear, domain)
    tables = {places[name]: table for name, table in arrays.items() if name in places}
    for j, table in tables.items():
        column = domain.columns[j]
        allowed = (len(column.levels) + 1, 1) if isinstance(column, Categorical) else (1,)
        if table.shape[1] != linear.shape[1] or len(table) not in allowed:
            raise _refusal(
                f"measurement/table_{j}.npy has shape {table.shape}",
                f"column {column.name} needs {' or '.join(map(str, allowed))} rows of {linear.shape[1]} phases",
            )
    return RandomFourier(kernel, linear, tables)


def _check_phases(linear: Array, domain: Domain) -> None:
    """No row of the domain has a phase that is too large for a float64."""
    farthest = np.array([np.abs(_encoded_bounds(column)).max() for column in domain.columns])
    with np.errstate(over="ignore"):
        if not np.isfinite(farthest @ np.abs(linear)).all():
            raise _refusal("measurement/linear.npy", "a frequency is so large that phases are infinite")


def _nystroem(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    """Basis points that are encoded rows of the domain."""
    points = arrays.get("points")
    if len(arrays) != 1 or points is None or points.ndim != 2 or points.shape[1] != len(domain):
        raise _refusal("feature_map, field arrays", f"a subspace has points of {len(domain)} columns, and nothing else")
    if len(points) > MOST_BASIS_POINTS:
        raise _refusal(f"measurement/points.npy has {len(points)} rows", f"a subspace has at most {MOST_BASIS_POINTS}")
    for column, values in zip(domain.columns, points.T, strict=True):
        present = values[~np.isnan(values)]
        low, high = _encoded_bounds(column)
        room = 1e-12 * (1 + max(abs(low), abs(high)))  # logarithms differ in the last digit between machines
        inside = (present >= low - room) & (present <= high + room)
        whole = not isinstance(column, Categorical) or (present == np.rint(present)).all()
        if not (inside.all() and whole) or (len(present) < len(values) and not column.missing):
            raise _refusal(f"measurement/points.npy, column {column.name}", "it has values or codes outside the domain")
    return Nystroem(kernel, points)


def _encoded_bounds(column: Column) -> tuple[float, float]:
    if isinstance(column, Categorical):
        return 0.0, float(len(column.levels) - 1)
    return column.bounds  # type: ignore[attr-defined]


_FEATURE_MAPS: dict[str, Callable[[Kernel, Domain, dict[str, Array]], FeatureMap]] = {
    RandomFourier.name: _random_fourier,
    Nystroem.name: _nystroem,
}


def _statement(header: dict[str, Any], measurement: Measurement | None) -> PrivacyStatement | None:
    """The promise, if its arithmetic holds and it is about this measurement."""
    if measurement is None:
        return None
    with _refusing("the privacy statement"):
        statement = PrivacyStatement.from_dict(header["statement"])
        statement.check_arithmetic()
    sensitivity = _sensitivity(measurement)
    agree = {
        "n_rows": statement.n_rows == measurement.n_rows,
        "mechanism": statement.mechanism == measurement.noise_law,
        "noise_scale": math.isclose(statement.noise_scale, measurement.noise_scale, rel_tol=_CLOSE),
        "sensitivity": math.isclose(statement.sensitivity, sensitivity, rel_tol=_CLOSE),
    }
    for name, holds in agree.items():
        if not holds:
            raise _refusal(
                f"the privacy statement claims {name} {getattr(statement, name)!r}, the measurement has another",
                "the promise is not about these numbers, and nothing follows from it",
                "Do not rely on it; ask its maker for a correct file",
            )
    return statement


def _sensitivity(measurement: Measurement) -> float:
    """How far one row can move the noiseless vector: the diameter on the integer grid, read as a mean."""
    feature_map = measurement.feature_map
    unit = mean_unit(n_rows=measurement.n_rows, feature_map=feature_map)
    return feature_map.diameter / feature_map.norm_bound * GRID * unit


# ---------------------------------------------------------------------- validating


def validate_release(path: str | Path) -> list[str]:
    """What is wrong with a .kme file, in words; nothing if all is well.

    A refusal is one finding. Of a file that can be read, everything that follows from its numbers is
    computed again: the features' bound on the points, the distance of the fit, and what the weights claim to be.
    """
    try:
        release = read_release(path)
    except FileRefused as refusal:
        return [str(refusal)]
    checks = (_weight_findings, _public_findings, _bound_findings, _distance_findings, _published_findings)
    return [finding for check in checks for finding in check(release)]


def _weight_findings(release: Release) -> list[str]:
    if release.weight_view != "probability" or release.is_probability:
        return []
    return [
        f"weights: said to be probability weights, but the least is {release.weights.min():.6g} and they sum to "
        f"{release.weights.sum():.12g}"
    ]


def _public_findings(release: Release) -> list[str]:
    n_public = release.statement.public_points if release.statement else 0
    return [f"public_points: {n_public} of only {len(release)} points"] if n_public > len(release) else []


def _bound_findings(release: Release) -> list[str]:
    """‖φ(z)‖ ≤ B on every point."""
    if release.measurement is None:
        return []
    feature_map, points = release.measurement.feature_map, release.encoded_points
    blocks = row_blocks(len(points), feature_map.dimension)
    largest = max(float(np.linalg.norm(feature_map(points[block]), axis=1).max()) for block in blocks)
    if largest <= feature_map.norm_bound * (1 + 1e-9):
        return []
    return [f"feature map: a point has features of norm {largest:.12g}, above the bound {feature_map.norm_bound:.12g}"]


def _distance_findings(release: Release) -> list[str]:
    """fit_distance = ‖Σ w φ(z) − y‖, to rounding; a distance far below the noise has no digits to compare."""
    if release.measurement is None or release.fit_distance is None:
        return []
    measurement = release.measurement
    mean = feature_mean(measurement.feature_map, release.encoded_points, release.weights)
    distance = float(np.linalg.norm(mean - measurement.vector))
    noise = measurement.noise_scale * math.sqrt(len(measurement.vector))
    if math.isclose(distance, release.fit_distance, rel_tol=_CLOSE, abs_tol=_CLOSE * noise):
        return []
    return [f"fit_distance: recorded {release.fit_distance:.9g}, recomputed {distance:.9g}"]


def _published_findings(release: Release) -> list[str]:
    """Algorithm 1's published weights follow from the measurement."""
    if release.measurement is None or (release.method, release.weight_view) != ("subspace", "published"):
        return []
    feature_map, points = release.measurement.feature_map, release.encoded_points
    if not isinstance(feature_map, Nystroem):
        return ["weights: said to be the published ones of a subspace, but the measurement has another feature map"]
    solved = feature_map.coefficients(release.measurement.vector)  # as published_weights, which is in a later room
    on_basis = {row.tobytes(): weight for row, weight in zip(feature_map.points, solved, strict=True)}
    expected = np.array([on_basis.pop(row.tobytes(), 0.0) for row in points])
    if on_basis:
        return [f"weights: {len(on_basis)} basis points of the subspace are not among the points"]
    if np.allclose(release.weights, expected, rtol=0, atol=_CLOSE * np.abs(expected).max()):
        return []
    return ["weights: said to be the published ones, but the measurement gives others"]
