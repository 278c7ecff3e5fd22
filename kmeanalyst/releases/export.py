"""Releases for other programs: CSV, Parquet and NetCDF. Exports only: the file of record is .kme.

An export has points and weights, without the measurement: what is computed from it alone has no honest
error bar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.atomic import written_whole
from kmeanalyst.releases.release import Release, View

if TYPE_CHECKING:
    import xarray

_DIMENSION = "point"


def export(
    release: Release,
    path: str | Path,
    *,
    view: View = "signed",
    rows: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> None:
    """Write points and weights to a .csv, .parquet or .nc file; it appears whole or not at all.

    view, rows, rng   as in `Release.to_frame`.
    """
    writer = _WRITERS.get(Path(path).suffix.lower())
    if writer is None:
        raise ValueError(
            f"cannot export to {path}: the ending of the name says which format is meant, and only "
            f"{', '.join(_WRITERS)} are known. Name a file with one of these endings."
        )
    frame = release.to_frame(view, rows=rows, rng=rng)
    frame.attrs |= _stamp(release)
    with written_whole(path) as temporary:
        writer(frame, temporary)


def write_netcdf(release: Release, path: str | Path) -> None:
    """Write points and weights, as released, to a NetCDF 3 file; it appears whole or not at all."""
    frame = release.to_frame()
    frame.attrs |= _stamp(release)
    with written_whole(path) as temporary:
        _to_netcdf(frame, temporary)


def _stamp(release: Release) -> dict[str, str]:
    """What the file says of its privacy, where its format has room for that (Parquet and NetCDF)."""
    summary = release.summary()
    return {"privacy": "NOT PRIVATE: " + summary["NOT PRIVATE"] if release.is_rehearsal else summary["privacy"]}


def _to_csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False)


def _to_parquet(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False, engine="pyarrow")


def _to_netcdf(frame: pd.DataFrame, path: Path) -> None:
    netcdf_dataset(frame).to_netcdf(path, engine="scipy")


_WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    ".csv": _to_csv,
    ".parquet": _to_parquet,
    ".nc": _to_netcdf,
}


def netcdf_dataset(frame: pd.DataFrame) -> xarray.Dataset:
    """Columns as NetCDF 3 can hold them, over the dimension "point".

    Whole numbers that do not fit 32 bits become float64, booleans int8, text characters, dates days since
    1970-01-01. A missing number or boolean is NaN, a missing date NaT, a missing level or text "". A name that
    NetCDF does not allow is mended, and the column's own name kept in the attribute "long_name".
    """
    import xarray

    names = _allowed_names([str(name) for name in frame.columns])
    variables = {}
    for column, name in names.items():
        values = _allowed_values(frame[column])
        encoding = {"units": "days since 1970-01-01"} if values.dtype.kind == "M" else {}
        variables[name] = xarray.Variable((_DIMENSION,), values, {"long_name": column}, encoding)
    return xarray.Dataset(variables, attrs=frame.attrs)


def _allowed_values(series: pd.Series) -> Array:
    if isinstance(series.dtype, pd.CategoricalDtype | pd.StringDtype):
        return series.astype(object).where(series.notna(), "").to_numpy().astype(str)
    if series.dtype.kind == "M":
        return series.to_numpy()
    if series.isna().any():
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    if pd.api.types.is_bool_dtype(series):
        return series.to_numpy(dtype=np.int8)
    if pd.api.types.is_integer_dtype(series):
        whole = series.to_numpy(dtype=np.int64)
        fits = np.iinfo(np.int32).min <= whole.min() and whole.max() <= np.iinfo(np.int32).max
        return whole.astype(np.int32 if fits else np.float64)
    return series.to_numpy(dtype=np.float64)


def _allowed_names(columns: list[str]) -> dict[str, str]:
    """Column → a name that NetCDF 3 takes: a letter first, then letters, digits and _.@+- (others become _)."""
    names: dict[str, str] = {}
    for column in columns:
        name = re.sub(r"[^A-Za-z0-9_.@+\- ]", "_", column).strip() or "_"
        name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
        while name in names.values() or name == _DIMENSION:
            name += "_"
        names[column] = name
    return names


__all__ = ["export", "netcdf_dataset", "write_netcdf"]
