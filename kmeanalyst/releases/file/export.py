"""Releases for other programs: CSV, Parquet, NetCDF, Excel, Stata, SPSS, Arrow. Exports only: the file of record is .kme.

An export has points and weights without the measurement: what is computed from it alone has no valid error bar. The
stamp of a rehearsal is kept: every row says NOT PRIVATE in a column of its own, because a column survives renaming,
conversion to other formats and concatenation, and file names and metadata do not.

A spreadsheet runs a text cell of a CSV file that begins like a formula. Such cells get an apostrophe before them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.declared_statement import DeclaredStatement
from kmeanalyst.releases.domain.cell_names import cell_names
from kmeanalyst.releases.domain.cells import parse_number
from kmeanalyst.releases.file.archive import atomic_write, ending_of
from kmeanalyst.releases.release import ReleaseData, plain_array

if TYPE_CHECKING:
    import xarray

STAMP_COLUMN = "NOT_PRIVATE"  # a column of tables that are exported from rehearsals
_DIMENSION = "point"
# wide signs too: some spreadsheets read them as narrow ones
_FORMULA = re.compile(r"""[\s"']*[=+\-@＝＋－＠]|[\t\r]""")

# the columns of the data dictionary of NIST's Diverse Communities Data Excerpts, all that SDNist reads
SDNIST_COLUMNS = (
    "PUMA", "AGEP", "SEX", "MSP", "HISP", "RAC1P", "NOC", "NPF", "HOUSING_TYPE", "OWN_RENT", "DENSITY", "INDP", "INDP_CAT", "EDU",
    "PINCP", "PINCP_DECILE", "POVPIP", "DVET", "DREM", "DPHY", "DEYE", "DEAR", "WGTP", "PWGTP",
)  # fmt: skip
_SDNIST_TARGETS = {"25": "ma2019", "48": "tx2019"}  # by the state in PUMA's codes; other states: the national excerpt


def export(release: ReleaseData, path: str | Path, *, frame: pd.DataFrame | None = None, keep_formulas: bool = False) -> int:
    """Write points and weights to a .csv, .parquet, .nc, .xlsx, .dta or .sav file; it appears whole or not at all.

    frame             what is written, such as `Release.to_frame` of another view; by default points and weights as released.
    keep_formulas     leave text cells of a .csv or .xlsx file as they are, even if a spreadsheet would run them as formulas.
    Returns           how many text cells and column names of such a file have an apostrophe before them for that reason.
    Errors            ImportError that names the package which writes .xlsx (openpyxl) or .sav (pyreadstat), where it is absent.

    Names that Stata or SPSS do not allow are changed, and the columns' own names are their labels.

    The file of a rehearsal has a further column, NOT_PRIVATE, in every row.
    """
    writer = _WRITERS[ending_of(path, _WRITERS, "export")]
    frame, defused = _stamped(release, _as_released(release) if frame is None else frame), 0
    if writer in (_to_csv, _to_excel) and not keep_formulas:
        frame, defused = without_formulas(frame)
    with atomic_write(path) as temporary:
        writer(frame, temporary)
    return defused


def write_netcdf(release: ReleaseData, path: str | Path) -> None:
    frame = _stamped(release, _as_released(release))
    with atomic_write(path) as temporary:
        _to_netcdf(frame, temporary)


def _as_released(release: ReleaseData) -> pd.DataFrame:
    return release.frame.assign(weight=release.weights)


def _stamped(release: ReleaseData, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a statement of its privacy in the metadata (Parquet and NetCDF); for a rehearsal in each row too."""
    summary = release.summary()
    if release.is_rehearsal:
        name = STAMP_COLUMN
        while name in frame:
            name += "_"
        frame = frame.assign(**{name: "rehearsal"})
    frame.attrs |= {"privacy": "NOT PRIVATE: " + summary["NOT PRIVATE"] if release.is_rehearsal else summary["privacy"]}
    return frame


def without_formulas(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The frame with an apostrophe before each text and column name that a spreadsheet would run, and how many these are.

    >>> frame, count = without_formulas(pd.DataFrame({"name": ["=1+1", "-3", " @SUM(A1)", "<=50K"]}))
    >>> frame["name"].tolist(), count
    (["'=1+1", '-3', "' @SUM(A1)", '<=50K'], 2)
    """
    columns, count = {}, 0
    for name, series in frame.items():
        texts = series
        if isinstance(series.dtype, pd.CategoricalDtype | pd.StringDtype) or series.dtype == object:
            texts = series.astype(object)
            dangerous = texts.map(_is_formula).to_numpy(dtype=bool)
            texts = texts.where(~dangerous, "'" + texts[dangerous].astype(str))
            count += int(dangerous.sum())
        shown = f"'{name}" if _is_formula(name) else str(name)
        count += shown != name
        columns[shown] = texts
    return pd.DataFrame(columns, index=frame.index), count


def _is_formula(cell: object) -> bool:
    return isinstance(cell, str) and _FORMULA.match(cell) is not None and parse_number(cell) is None


def _to_csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False)


def _to_excel(frame: pd.DataFrame, path: Path) -> None:
    _needed("openpyxl", ".xlsx")
    with pd.ExcelWriter(path, engine="openpyxl") as writer:
        frame.to_excel(writer, index=False)


def _to_stata(frame: pd.DataFrame, path: Path) -> None:
    plain, labels = _for_statistics(frame, 32)
    labels = {name: label[:80] for name, label in labels.items()}
    plain.to_stata(path, write_index=False, version=118, variable_labels=labels)


def _to_spss(frame: pd.DataFrame, path: Path) -> None:
    plain, labels = _for_statistics(frame, 64)
    _needed("pyreadstat", ".sav").write_sav(plain, path, column_labels=labels)


def _needed(package: str, ending: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise ImportError(
            f"{ending} files are written by the package {package}, which is not installed. Install it (`pip install {package}`), "
            "or export to .csv."
        ) from None


_RESERVED = {  # by SPSS and Stata
    "all", "and", "by", "eq", "ge", "gt", "le", "lt", "ne", "not", "or", "to", "with",
    "byte", "double", "float", "if", "in", "int", "long", "using", "strl",
}  # fmt: skip


def _for_statistics(frame: pd.DataFrame, most: int) -> tuple[pd.DataFrame, dict[str, str]]:
    """Plain columns under names of letters, digits and _ (at most this long), and the columns' own names."""
    names_now = map(str, frame.columns)
    begun = [name if re.match("[A-Za-z]", name) and name.lower() not in _RESERVED else f"v_{name}" for name in names_now]
    names = dict(zip(_allowed_names(begun, "A-Za-z0-9_", most).values(), frame.columns, strict=True))
    return pd.DataFrame({name: _allowed_values(frame[column]) for name, column in names.items()}), names


def to_arrow(release: ReleaseData) -> pa.Table:
    """See `Release.to_arrow`."""
    frame = _stamped(release, _as_released(release))
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return table.replace_schema_metadata({**(table.schema.metadata or {}), "privacy": frame.attrs["privacy"]})


def _to_netcdf(frame: pd.DataFrame, path: Path) -> None:
    _netcdf_dataset(frame).to_netcdf(path, engine="scipy")


_WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    ".csv": _to_csv, ".parquet": lambda frame, path: frame.to_parquet(path, index=False, engine="pyarrow"), ".nc": _to_netcdf,
    ".xlsx": _to_excel, ".dta": _to_stata, ".sav": _to_spss,
}  # fmt: skip


def _netcdf_dataset(frame: pd.DataFrame) -> xarray.Dataset:
    """Columns in the types of NetCDF 3, over the dimension "point".

    Whole numbers that do not fit 32 bits become float64, booleans int8, text characters, dates days since
    1970-01-01. A missing number or boolean is NaN, a missing date NaT, a missing level or text "". A name that
    NetCDF does not allow is changed, and the column's own name is kept in the attribute "long_name".
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
    values = plain_array(series)
    if values.dtype.kind == "b":
        return values.astype(np.int8)
    if values.dtype.kind == "i":
        fits = np.iinfo(np.int32).min <= values.min() and values.max() <= np.iinfo(np.int32).max
        return values.astype(np.int32 if fits else np.float64)
    return values


def _allowed_names(columns: list[str], letters: str = r"A-Za-z0-9_.@+\- ", most: int = 256) -> dict[str, str]:
    """Column → a name that a format allows: a letter first, then these letters (others become _); by default NetCDF 3's."""
    names: dict[str, str] = {}
    for column in columns:
        name = re.sub(f"[^{letters}]", "_", column).strip() or "_"
        name = (name if re.match(r"[A-Za-z_]", name) else f"_{name}")[:most]
        while name.lower() in map(str.lower, names.values()) or name == _DIMENSION:
            name = f"{name[: most - 1]}_" if len(name) < most else f"{name[: most - 2]}{len(names):02}"
        names[column] = name
    return names


def export_sdnist(release: ReleaseData, folder: str | Path, *, name: str, frame: pd.DataFrame) -> dict[str, str]:
    """Write rows and labels for the report of NIST's SDNist: FOLDER/NAME.csv and FOLDER/NAME.json.

    frame     rows of equal weight, as `Release.to_frame(view="resampled")` gives them.
    Returns   the labels, as they are in the JSON: what SDNist's archive calls them, and texts.
    Errors    ValueError if the release has none of the columns of the excerpts.

    SDNist compares rows with an excerpt that it brings along, so that a release of any other table has no report. It knows a
    missing cell as "N"; other columns than those of its data dictionary are not written, as it leaves them out; and it drops a
    column that has any other value than those there.
    Source    Task, Bhagat & Howarth 2023, SDNist v2: README (`--labels`), report/dataset, gui/windows/metadata (names of labels).
    """
    known = [column for column in frame if column in SDNIST_COLUMNS]
    if not known:
        raise ValueError(
            "SDNist's report is for releases of NIST's Diverse Communities Data Excerpts, and this release has none of their "
            f"columns ({', '.join(SDNIST_COLUMNS[:6])}, …). For other tables, release-side quality shows the same scores to the "
            "curator, and export without --sdnist writes rows for any program."
        )
    cells, _ = without_formulas(_stamped(release, frame[known].apply(_for_sdnist)))
    labels, folder = _sdnist_labels(release, frame, known), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / f"{name}.csv") as temporary:
        _to_csv(cells, temporary)
    with atomic_write(folder / f"{name}.json") as temporary:
        temporary.write_text(json.dumps(labels, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return labels


def export_mbi(release: ReleaseData, path: str | Path) -> dict[str, Any]:
    """Write the tables that a release measured as the package mbi (2.0 or later) takes them, to a .json or .npz file.

    `domain` has mbi's `attributes`, `shape` and `labels`, cells in the order of the tables; `total` is N; and each of
    `measurements` has what a LinearMeasurement does: `clique`, `noisy_measurement` (flat counts) and `stddev`. Where noise differs
    by cell, there are also `weights`, those of its query WeightedQuery: counts are already multiplied by them. A .npz file has
    these arrays as measurements_<i>_<name>, i from 0, and all else as JSON in the text `header`.

    Returns   the header: all but arrays.
    Errors    ValueError for a release of other features than tables, and another ending.

    mbi has one list of cells for a column: of finer cells with others their sums are there, and those of one column alone are not.
    """
    features, measurement = release.measurement and release.measurement.feature_map, release.measurement
    if not isinstance(features, MarginFeatures) or measurement is None:
        what = "no measurement" if measurement is None else f"{features.name} features of all columns"  # type: ignore[union-attr]
        raise ValueError(
            f"mbi takes noisy counts of cells, and this release has {what}. Export its rows, or publish with --kernel adaptive."
        )
    if (ending := Path(path).suffix.lower()) not in (".json", ".npz"):
        raise ValueError(f"cannot write measurements to {path}: mbi's are .json or .npz. Name a file with such an ending.")
    kernel, names, arrays, cliques = features.kernel, release.domain.names, [], []
    for table in measurement.tables():
        deviations = table.variances.ravel() ** 0.5
        own = {"noisy_measurement": measurement.n_rows * table.shares.ravel()}
        if deviations.min() < deviations.max():
            own["weights"] = deviations.max() / deviations
            own["noisy_measurement"] *= own["weights"]
        arrays.append(own)
        stddev = measurement.n_rows * float(deviations.max())
        cliques.append({"clique": [names[j] for j in table.columns], "stddev": stddev})
    cells = zip(release.domain.columns, kernel.edges, kernel.atoms, kernel.missing, strict=True)
    labels = [[*cell_names(column, edges, atoms), *[None] * missing] for column, edges, atoms, missing in cells]
    header = {
        "privacy": _stamped(release, pd.DataFrame()).attrs["privacy"], "total": measurement.n_rows,
        "noise_law": measurement.noise_law, "domain": {"attributes": [*names], "shape": [*kernel.sizes], "labels": labels},
        "measurements": cliques,
    }  # fmt: skip
    with atomic_write(path) as temporary:
        if ending == ".npz":
            named = {f"measurements_{i}_{name}": array for i, own in enumerate(arrays) for name, array in own.items()}
            with open(temporary, "wb") as file:
                np.savez(file, allow_pickle=False, header=np.array(json.dumps(header)), **named)
        else:
            lists = [each | {name: own.tolist() for name, own in one.items()} for each, one in zip(cliques, arrays, strict=True)]
            temporary.write_text(json.dumps(header | {"measurements": lists}, ensure_ascii=False) + "\n", encoding="utf-8")
    return header


def _for_sdnist(series: pd.Series) -> pd.Series:
    present = series.notna()
    texts = series[present].map(lambda cell: f"{cell:.15g}" if isinstance(cell, float) else str(cell)).astype(object)
    return texts.reindex(series.index, fill_value="N")


def _sdnist_labels(release: ReleaseData, frame: pd.DataFrame, known: list[str]) -> dict[str, str]:
    """Of a release without a statement, only what its rows say."""
    states = {str(code).split("-")[0] for code in frame["PUMA"].dropna()} if "PUMA" in known else set()
    target = _SDNIST_TARGETS.get(states.pop(), "national2019") if len(states) == 1 else "national2019" if states else ""
    labels = {
        "target dataset": target, "algorithm name": f"kmeanalyst {release.method or 'points and weights'}",
        "algorithm type": "kernel mean embedding", "library name": "kmeanalyst", "library version": version("kmeanalyst"),
        "variant label": f"kernel {release.kernel.name}",
        "feature set name": f"{len(known)} columns", "features list": ", ".join(known),
    }  # fmt: skip
    statement = release.statement
    if isinstance(statement, DeclaredStatement):
        labels["privacy label detail"] = statement.claim
    elif statement is not None:
        private = {"epsilon": f"{statement.epsilon:g}", "delta": f"{statement.delta:g}", "privacy category": "dp"}
        rehearsal = {"privacy category": "NOT PRIVATE: rehearsal"}
        labels |= rehearsal if release.is_rehearsal else private
        labels["privacy label detail"] = f"{statement.mechanism}, {statement.neighbouring}"
    return {label: text for label, text in labels.items() if text}
