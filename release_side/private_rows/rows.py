"""Private tables, read in pieces: CSV (also .gz), Parquet, a directory or glob of them, or a DataFrame.

A row is one line of CSV; quotes never span lines (a quote must not swallow other rows), and no row is dropped. The
domain reads every cell as it is. Nothing here raises, warns or chooses by the value of a cell; the header and the
number of rows are public.
"""

from __future__ import annotations

import csv
import glob
import gzip
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL
from kmeanalyst.releases.domain.domain import Domain
from release_side.errors import PublishError

Table: TypeAlias = str | Path | pd.DataFrame
_PIECE = 20_000  # rows read at a time
_T = TypeVar("_T")


class PrivateTable(ABC):
    """Private rows behind a counter and an encoder (abstract)."""

    @property
    @abstractmethod
    def header(self) -> list[str]:
        """Column names; public."""

    @abstractmethod
    def count(self) -> int:
        """N, the number of rows; public."""

    @abstractmethod
    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Columns of cells, some rows at a time."""

    def identifiers(self, name: str) -> Iterator[Any]:
        """The cells of one column, some rows at a time; no cell depends on another."""
        return (piece[name] for piece in self._pieces([name]))

    def check_columns(self, domain: Domain) -> list[str]:
        """PublishError or DomainError unless every column of the domain is there; returns the other columns."""
        header = self.header
        if not set(header) & set(domain.names):
            raise PublishError(
                "the header of the private table names no column of the domain, so it may be a row, and it is not shown. "
                "Give the table a first line that names its columns, or correct the names in the domain."
            )
        return domain.check_has_columns(header, what="the private table")

    def encoded(self, domain: Domain) -> Iterator[Array]:
        """Encoded rows (n_i, d), piece by piece, without a warning, which could reveal the value of a cell."""
        pieces = self._pieces(domain.names)
        while (rows := silently(lambda: _next_encoded(pieces, domain))) is not None:
            yield rows


def _next_encoded(pieces: Iterator[dict[str, Any]], domain: Domain) -> Array | None:
    piece = next(pieces, None)
    return None if piece is None else domain.encode(piece)


def silently(work: Callable[[], _T]) -> _T:
    """What `work` returns, without warnings, which could reveal the value of a cell."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


def open_private(source: Table) -> PrivateTable:
    """The private table behind a path, directory, glob or DataFrame; PublishError if there is none."""
    if isinstance(source, pd.DataFrame):
        return _Frame(source)
    tables = [_open_file(path) for path in paths_of(source)]
    return tables[0] if len(tables) == 1 else _Several(tuple(tables))


def paths_of(source: str | Path) -> list[Path]:
    """The files of a table: one, those of a directory, or those that a glob matches; PublishError if there is none."""
    path = Path(source)
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if _kind(p))
        if not found:
            raise PublishError(f"{source} holds no .csv, .csv.gz or .parquet file. Name the folder that has them.")
    else:
        found = [path] if path.exists() else sorted(Path(p) for p in glob.glob(str(source)))
    if not found:
        raise PublishError(f"no file at {source}. Check the path; a glob must match at least one file.")
    for each in found:
        check_regular(each)
    return found


def check_regular(path: Path) -> None:
    """PublishError for a pipe, a device or a folder; none for a missing file."""
    if path.exists() and not path.is_file():
        raise PublishError(
            f"{path} is not a regular file, and tables are read more than once. Write the rows to a file, or name the "
            "files of a folder."
        )


def has_rows(path: Path) -> bool:
    """Whether a file of a private table has a row; the number of rows is public."""
    return _open_file(path).count() > 0


def would_read(source: str | Path, path: Path) -> bool:
    """Whether a file at `path`, once it exists, would belong to the table: in its folder, or matched by its glob."""
    table = Path(source)
    if table.is_dir():
        return bool(_kind(path)) and path.absolute().parent.samefile(table)
    return not table.exists() and any(whole(path).match(str(whole(table))) for whole in (Path.absolute, Path.resolve))


def _kind(path: Path) -> str:
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return "csv"
    return "parquet" if name.endswith(".parquet") else ""


def _open_file(path: Path) -> PrivateTable:
    kind = _kind(path)
    if not kind:
        raise PublishError(
            f"{path} is neither .csv, .csv.gz nor .parquet, so it is not read. Convert it to one of these."
        )
    return _Csv(path) if kind == "csv" else _Parquet(path)


@dataclass(frozen=True)
class _Csv(PrivateTable):
    path: Path

    @property
    def header(self) -> list[str]:
        with open_bytes(self.path) as handle:
            first = gunzipped(self.path, handle.readline)
        if b"\r" in first.rstrip(b"\r\n"):  # the header would contain every row, and messages show headers
            raise PublishError(
                f"{self.path} ends its lines with carriage returns alone, so that it is one long line. "
                "Write it again with newlines."
            )
        if not first.strip():
            raise PublishError(
                f"{self.path} is empty: it has no header line. Name a table whose first line names its columns."
            )
        return _cells(first.removeprefix(b"\xef\xbb\xbf"))

    def count(self) -> int:
        with open_bytes(self.path) as handle:
            return gunzipped(self.path, lambda: sum(1 for _ in handle)) - 1

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        header = self.header
        indices = {name: header.index(name) for name in names}
        with open_bytes(self.path) as handle:
            handle.readline()
            while rows := [_cells(line) for _, line in zip(range(_PIECE), handle, strict=False)]:
                yield {name: _column(rows, index) for name, index in indices.items()}


def open_bytes(path: Path) -> IO[bytes]:
    """A file for reading; a .gz file inflated."""
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def gunzipped(path: Path, read: Callable[[], _T]) -> _T:
    """What `read` returns; PublishError if the file is not a whole .gz file."""
    try:
        return read()
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise PublishError(
            f"{path} is cut off, damaged or no .gz file, so its rows cannot be read. Write it again."
        ) from None


def _cells(line: bytes) -> list[str]:
    """The cells of one line, from that line alone; a cell with an undecodable byte equals no level or number."""
    text = line.decode("utf-8", errors="surrogateescape").rstrip("\r\n").replace("\r", " ")
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text]), [""])
    except csv.Error:  # a field beyond the csv module's limit
        return text.split(",")


def _column(rows: list[list[str]], index: int) -> Array:
    cells = (row[index] if index < len(row) else NO_CELL for row in rows)
    return np.fromiter(cells, dtype=object, count=len(rows))


@dataclass(frozen=True)
class _Parquet(PrivateTable):
    path: Path

    def _file(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(self.path)
        except pa.ArrowInvalid:
            raise PublishError(f"{self.path} is not a Parquet file. Write the table again, or name another.") from None

    @property
    def header(self) -> list[str]:
        with self._file() as file:
            return list(file.schema_arrow.names)

    def count(self) -> int:
        with self._file() as file:
            return int(file.metadata.num_rows)

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        with self._file() as file:
            for batch in file.iter_batches(batch_size=_PIECE, columns=list(names)):
                yield {name: _arrow_cells(batch.column(name)) for name in names}

    def identifiers(self, name: str) -> Iterator[Any]:
        """Cell by cell: as an array, whole numbers in a column with an empty cell would be rounded to floats."""
        with self._file() as file:
            for batch in file.iter_batches(batch_size=_PIECE, columns=[name]):
                column = batch.column(name)
                yield np.fromiter((_arrow_cell(cell) for cell in column), dtype=object, count=len(column))


def _arrow_cells(column: Any) -> Array:
    import pyarrow as pa

    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False)
    return np.fromiter((_arrow_cell(cell) for cell in column), dtype=object, count=len(column))


def _arrow_cell(cell: Any) -> Any:
    """A cell as a Python object; NO_CELL where there is none (a day beyond the calendar, text that is not UTF-8)."""
    try:
        return cell.as_py()
    except Exception:  # depends on the value of a private cell, so it must not leave this module
        return NO_CELL


@dataclass(frozen=True)
class _Several(PrivateTable):
    """Files of one table, in the order of their names."""

    tables: tuple[PrivateTable, ...]

    @property
    def header(self) -> list[str]:
        """The columns that every file has equally often."""
        headers = [table.header for table in self.tables]
        return [name for name in headers[0] if all(header.count(name) == headers[0].count(name) for header in headers)]

    def count(self) -> int:
        return sum(table.count() for table in self.tables)

    def identifiers(self, name: str) -> Iterator[Any]:
        for table in self.tables:
            yield from table.identifiers(name)

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        for table in self.tables:
            yield from table._pieces(names)


@dataclass(frozen=True, eq=False)
class _Frame(PrivateTable):
    frame: pd.DataFrame = field(repr=False)

    @property
    def header(self) -> list[str]:
        return [str(name) for name in self.frame.columns]

    def count(self) -> int:
        return len(self.frame)

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        frame = self.frame.set_axis(self.header, axis=1)
        for start in range(0, len(frame), _PIECE):
            piece = frame.iloc[start : start + _PIECE]
            yield {name: piece[name] for name in names}
