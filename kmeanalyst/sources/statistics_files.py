"""Files of statistical packages: SPSS (.sav, .zsav), Stata (.dta), SAS (.xpt, .sas7bdat), read by pyreadstat.

Cells are the codes in the file: labels of values are not applied, and missing values, those that the header declares included,
are empty. A number is a day or a moment if its column's format, in the header, says so. Every cell is converted by itself.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.sources.source import BATCH_ROWS, ArrowSource, SourceError
from kmeanalyst.sources.stores import StoreFile

_BUFFER = 2**20
_READERS = {
    ".sav": ("read_sav", "SPSS"), ".zsav": ("read_sav", "SPSS"), ".dta": ("read_dta", "Stata"),
    ".xpt": ("read_xport", "SAS"), ".sas7bdat": ("read_sas7bdat", "SAS"),
}  # fmt: skip
_NUMBERS = {"float": "float32", "double": "float64"}  # other types have Arrow's names
_ORIGINS = {"SPSS": "1582-10-14", "Stata": "1960-01-01", "SAS": "1960-01-01"}
_DAY = 86_400 * 10**6  # in microseconds
_SAS_DAYS = [
    *(f"{name}{sign}" for name in ("DDMMYY", "MMDDYY", "YYMMDD", "MMYY", "YYMM") for sign in ("", *"BCDNPS")),
    "DATE", "WEEKDATE", "WEEKDATX", "WORDDATE", "WORDDATX", "JULIAN", "MONYY", "YYMON", "E8601DA", "B8601DA", "IS8601DA",
]  # fmt: skip
_SAS_MOMENTS = [
    *(f"{iso}8601{kind}" for iso in ("E", "B", "IS") for kind in ("DT", "DN")), "DATETIME", "DTDATE", "DATEAMPM", "MDYAMPM",
]  # fmt: skip
_DATES: dict[str, dict[str, tuple[str, int]]] = {  # type of a format, and microseconds in the unit of its numbers
    "SPSS": {
        **dict.fromkeys(("DATE", "ADATE", "EDATE", "JDATE", "SDATE", "MOYR", "QYR", "WKYR"), ("date32", 10**6)),
        **dict.fromkeys(("DATETIME", "YMDHMS"), ("timestamp", 10**6)),
    },
    "Stata": {
        **dict.fromkeys(("%td", "%-td", "%d", "%-d"), ("date32", _DAY)),
        **dict.fromkeys(("%tc", "%tC", "%-tc", "%-tC"), ("timestamp", 1000)),
    },
    "SAS": {
        **dict.fromkeys(_SAS_DAYS, ("date32", _DAY)),
        **dict.fromkeys(_SAS_MOMENTS, ("timestamp", 10**6)),
    },
}
_FORMAT = re.compile(r"[A-Z][A-Z0-9]*[A-Z](?=\d*(\.\d*)?$)|%-?(t[cCd]|d)")  # without its width
_LINE = 80  # bytes of a record in the header of a .xpt file


@dataclass(frozen=True, eq=False, repr=False)
class StatisticsFile(ArrowSource):
    """Rows of a file of a statistical package.

    rows    (first, last + 1) of them.
    units   microseconds in the unit of its numbers, for each column of days or moments.
    layout  of a .xpt file: bytes before its first row, and of a row.
    """

    path: Path | StoreFile
    rows: tuple[int, int]
    units: dict[str, int]
    layout: tuple[int, int] | None

    @classmethod
    def of(cls, path: Path | StoreFile) -> StatisticsFile:
        """The table in a file, by its header alone; SourceError if it is none."""
        import pyarrow as pa

        header, package = _header(path), _package(path)
        dates = {name: date for name in header.column_names if (date := _date(header, name, package)) is not None}
        kinds = header.readstat_variable_types | {name: kind for name, (kind, _) in dates.items()}
        is_transport = _ending(path) == ".xpt"
        n_rows, layout = _rows_of_transport(path, header) if is_transport else (header.number_rows, None)
        if n_rows is None:
            raise SourceError(f"{path} does not say how many rows it has. Open it in {package} and save it again.")
        schema = pa.schema([(name, _declared(kinds[name])) for name in header.column_names])
        return cls(schema, path, (0, n_rows), {name: unit for name, (_, unit) in dates.items()}, layout)

    def count(self) -> int:
        return self.rows[1] - self.rows[0]

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa

        wanted = pa.schema([self.schema.field(name) for name in names])
        for first in range(*self.rows, BATCH_ROWS):
            cells = self._cells(first, min(BATCH_ROWS, self.rows[1] - first), list(names))
            yield pa.record_batch([self._column(each, cells[each.name]) for each in wanted], schema=wanted)

    def divided(self, n_rows: int) -> list[ArrowSource]:
        first, stop = self.rows
        return [replace(self, rows=(i, min(i + n_rows, stop))) for i in range(first, stop, n_rows) or [first]]

    def _cells(self, first: int, n_rows: int, names: list[str]) -> dict[str, list[Any]]:
        """Python's own values: the type of a column of a DataFrame would depend on its cells."""
        with _opened(self.path, by_name=self.layout is None) as source:
            if self.layout is not None:  # pyreadstat would read all rows before the first one
                source, first = _FromRow(source, first, *self.layout), 0
            cells, _ = _pyreadstat(self.path)(
                source, row_offset=first, row_limit=n_rows, usecols=names, output_format="dict",
                disable_datetime_conversion=True,
            )  # fmt: skip
        return cells

    def _column(self, declared: Any, cells: list[Any]) -> Any:
        import pyarrow as pa

        if declared.name not in self.units:
            return pa.array(cells, declared.type)
        origin = int(np.datetime64(_ORIGINS[_package(self.path)], "us").astype(np.int64))
        numbers = np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
        moments = _since_1970(numbers, self.units[declared.name], origin, days=pa.types.is_date(declared.type))
        return pa.array(moments, mask=np.isnan(numbers)).view(declared.type)


def _since_1970(numbers: Array, unit: int, origin: int, *, days: bool) -> Array:
    """Days or microseconds. One beyond the calendar stays beyond it, where it is no cell."""
    with np.errstate(all="ignore"):
        moments = np.floor(numbers * unit) + origin
        moments = np.nan_to_num(np.floor(moments / _DAY) if days else moments, posinf=1e300, neginf=-1e300)
    most = 2.0**30 if days else 2.0**62
    return np.clip(moments, -most, most).astype(np.int32 if days else np.int64)


class _FromRow:
    """A .xpt file as if it began with a later row: its header, and the rows from there on."""

    def __init__(self, handle: Any, first: int, start: int, row: int) -> None:
        handle.seek(0)
        self.header, self.rows = io.BytesIO(handle.read(start)), handle
        handle.seek(start + first * row)

    def read(self, n: int) -> bytes:
        return self.header.read(n) or self.rows.read(n)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.header.seek(offset, whence)

    def tell(self) -> int:
        return self.header.tell()


def _date(header: Any, name: str, package: str) -> tuple[str, int] | None:
    """Type and unit of a column of days or moments, by its format; None for any other."""
    found = _FORMAT.match(header.original_variable_types[name] or "")
    if found is None or header.readstat_variable_types[name] == "string":
        return None
    return _DATES[package].get(found[0])


def _declared(kind: str) -> Any:
    import pyarrow as pa

    return pa.timestamp("us") if kind == "timestamp" else pa.type_for_alias(_NUMBERS.get(kind, kind))


def _header(path: Path | StoreFile) -> Any:
    read = _pyreadstat(path)
    with _opened(path) as source:
        try:
            return read(source, metadataonly=True, output_format="dict")[1]
        except Exception:
            raise SourceError(
                f"{path} is no {_package(path)} file that pyreadstat can read, or it is damaged. Save the table again, or as CSV."
            ) from None


def _rows_of_transport(path: Path | StoreFile, header: Any) -> tuple[int | None, tuple[int, int]]:
    """Of a .xpt file: the number of rows, the bytes before the first one, and the bytes of each.

    Errors   SourceError if it is cut off, and for columns of text alone: rows of blanks at the end cannot be told from what
             fills up the file.
    """
    row = sum(header.variable_storage_width.values())
    with _opened(path, by_name=False) as handle:
        lines = iter(lambda: handle.read(_LINE), b"")
        line = next((line for line in lines if line.startswith(b"HEADER RECORD*******OBS")), b"")
        start = handle.tell()
        announced = int(line[48:63].strip() or 0)
        if not announced and set(header.readstat_variable_types.values()) == {"string"}:
            raise SourceError(
                f"{path} has columns of text alone and does not say how many rows it has: empty rows at its end cannot be told "
                "from what fills up the file. Save it in version 8 of the format, or as CSV."
            )
        held = (handle.seek(0, io.SEEK_END) - start) // row
        if held < announced or (not announced and _bytes_at(handle, start + held * row, row).strip(b" ")):
            raise SourceError(f"{path} is cut off: it ends before its last row does. Save it again, or copy it again.")
        n_rows = announced or held
        while not announced and n_rows and _bytes_at(handle, start + (n_rows - 1) * row, row) == b" " * row:
            n_rows -= 1
        return n_rows, (start, row)


def _bytes_at(handle: Any, start: int, n: int) -> bytes:
    handle.seek(start)
    return handle.read(n)


def _opened(path: Path | StoreFile, *, by_name: bool = True) -> AbstractContextManager[Any]:
    """A file for pyreadstat: its name, if it may be read by name, or its bytes."""
    if by_name and isinstance(path, Path):
        return nullcontext(str(path))
    return io.BufferedReader(path.open("rb"), _BUFFER)


def _pyreadstat(path: Path | StoreFile) -> Callable[..., tuple[Any, Any]]:
    try:
        import pyreadstat
    except ImportError:
        raise SourceError(
            f"{path} is read by pyreadstat, which is not installed. Type pip install 'kmeanalyst[sources]'."
        ) from None
    return getattr(pyreadstat, _READERS[_ending(path)][0])


def _package(path: Path | StoreFile) -> str:
    return _READERS[_ending(path)][1]


def _ending(path: Path | StoreFile) -> str:
    return "." + path.name.lower().rpartition(".")[2]
