"""From a release to a file: members, a canonical header, and one replacement of the file on disk.

The same release gives the same bytes, and nothing is written that the reader would refuse.
"""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.file.archive import (
    HEADER,
    NOISY_SUM,
    POINTS,
    RELATIVE_NOISE,
    Members,
    atomic_write,
    members_in,
    scores_name,
    zipped,
)
from kmeanalyst.releases.file.header import DERIVED_MINOR, FORMAT, PLAIN_MINOR, SCHEMA_MINOR, outline, plain
from kmeanalyst.releases.file.limits import FileRefused, reading
from kmeanalyst.releases.file.points import arrow_type, is_text, quoted
from kmeanalyst.releases.file.reading import release_of
from kmeanalyst.releases.measurement import Measurement, mean_unit
from kmeanalyst.releases.release import ReleaseData


def write_release(release: ReleaseData, path: str | Path) -> None:
    """Write the release as a .kme file, which appears whole or not at all.

    The same release gives the same bytes. The file is read back first: ValueError, and no file, if the reader would
    refuse it.
    """
    write_checked(_members_of(release), lambda members: release_of(members, ReleaseData), "release", path)


def write_checked(members: dict[str, bytes], parse: Callable[[Members], Any], what: str, path: str | Path) -> None:
    """Write members as a file, which appears whole or not at all; ValueError, and no file, if its reader would refuse it.

    The usual limits are lifted here, so that a file read with `large` can be written again.
    """
    archive = zipped(members)
    try:
        with reading(large=True):
            parse(members_in(archive))
    except FileRefused as refused:
        raise ValueError(f"this {what} cannot be written, because no reader would take it: {refused}") from None
    with atomic_write(path) as temporary:
        temporary.write_bytes(archive)


def _members_of(release: ReleaseData) -> dict[str, bytes]:
    members = {POINTS: _csv(release)}
    if release.measurement is not None:
        _check_writable(release.measurement, release.kernel)
        members[NOISY_SUM] = npy_of(release.measurement.noisy_sum, "<i8")
        if release.measurement.relative_noise is not None:
            members[RELATIVE_NOISE] = npy_of(release.measurement.relative_noise, "<f8")
        drawn = release.measurement.drawn
        for number, score in enumerate((*release.measurement.scores, *([drawn.scores] if drawn else [])), 1):
            members[scores_name(number)] = npy_of(score.noisy, "<i8")
        for name, array in release.measurement.feature_map.arrays().items():
            members[f"measurement/{name}.npy"] = npy_of(array, "<f8")
    return {HEADER: canonical(_header(release, members)), **members}


def canonical(header: dict[str, Any]) -> bytes:
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


def _header(release: ReleaseData, members: dict[str, bytes]) -> dict[str, Any]:
    minor = SCHEMA_MINOR if release.domain.rules else DERIVED_MINOR if release.derived else PLAIN_MINOR
    header = outline(FORMAT, minor, release.domain, release.kernel, members) | {
        "method": release.method,
        "weight_view": release.weight_view,
        "fit_distance": release.fit_distance,
        "n_points": len(release),
        "statement": None if release.statement is None else release.statement.to_dict(),
        "measurement": None if release.measurement is None else _measurement_header(release.measurement),
    }
    if release.derived:
        header["derived"] = [one.to_dict() for one in release.derived]
    if release.domain.rules:
        header["rules"] = [rule.to_dict() for rule in release.domain.rules]
    return plain(header)


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


def npy_of(array: Array, dtype: str) -> bytes:
    """The array as an npy file of version 1.0, in C order and without pickled objects."""
    out = io.BytesIO()
    np.lib.format.write_array(out, np.ascontiguousarray(array, dtype=dtype), version=(1, 0), allow_pickle=False)
    return out.getvalue()


def _csv(release: ReleaseData) -> bytes:
    frame, columns = release.frame, release.columns.columns
    arrays = [_arrow_array(column, frame[column.name]) for column in columns]
    return points_csv(columns, [*arrays, pa.array(release.weights, pa.float64())])


def points_csv(columns: Sequence[Column], arrays: Sequence[Any]) -> bytes:
    """Points in natural units as in FORMAT.md §3: each number is the shortest text that is read as the same number.

    arrays   cells of each column, and the weights last, as Arrow arrays.
    """
    formats = [_FORMATS.get(column.kind, quoted if is_text(column) else repr) for column in columns]
    out = io.StringIO()
    out.write(",".join([*(quoted(column.name) for column in columns), "weight"]) + "\n")
    for start in range(0, len(arrays[-1]), _ROWS):
        cells = [
            ["" if cell is None else written(cell) for cell in array.slice(start, _ROWS).to_pylist()]
            for written, array in zip([*formats, repr], arrays, strict=True)
        ]
        out.writelines(",".join(row) + "\n" for row in zip(*cells, strict=True))
    return out.getvalue().encode()


_ROWS = 4096  # written at a time: as Python texts their cells take ten times the bytes
_FORMATS: dict[str, Callable[[Any], str]] = {
    "boolean": lambda cell: "true" if cell else "false",
    "date": datetime.date.isoformat,
    "integer": str,
}


def _arrow_array(column: Column, series: pd.Series) -> Any:
    try:
        if isinstance(column, Date):
            series = pd.Series(series.to_numpy().astype("datetime64[D]"), dtype=object)
        elif is_text(column):
            series = series.astype(object).where(series.notna(), None)
        return pa.array(series, arrow_type(column), from_pandas=True)
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise ValueError(
            f"this release cannot be written: the points of column {column.name} are not {column.kind} values "
            f"({error}). Build the release with points as Domain.decode gives them."
        ) from None
