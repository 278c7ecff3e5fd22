"""Files of tables: which there are behind a path, a folder, a glob or a URL, and who reads them, by the ends of their names."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kmeanalyst.releases.texts import shown
from kmeanalyst.sources.source import BATCH_ROWS, ArrowSource, SourceError
from kmeanalyst.sources.stores import StoreFile, is_url, store_files

File: TypeAlias = Path | StoreFile
_CSV = (".csv", ".csv.gz")
_ARROW = (".feather", ".arrow", ".ipc")
FORMATS = ".csv, .csv.gz, .parquet, .feather, .arrow or .ipc"
_SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_OF_PACKAGES = (".sav", ".zsav", ".por", ".dta", ".xpt", ".sas7bdat")  # of SPSS, Stata and SAS
_BUFFER = 2**20  # bytes of a column of Parquet that are read at a time


def is_csv(name: str) -> bool:
    """Whether the name of a file is that of CSV, compressed or not."""
    return name.lower().endswith(_CSV)


def is_gzipped(name: str) -> bool:
    """Whether the name of a file says that it is compressed."""
    return name.lower().endswith(".gz")


def is_table(name: str) -> bool:
    """Whether the name of a file is that of a table that can be read."""
    return name.lower().endswith((*_CSV, ".parquet", *_ARROW))


def files_of(source: str | Path) -> list[File]:
    """The files of a table: one, those of a folder, or those that a glob or a URL matches; SourceError if there is none."""
    if isinstance(source, str) and is_url(source):
        return list(store_files(source, is_table))
    path = Path(source)
    try:
        return list(_local_files(path))
    except OSError as error:
        raise SourceError(f"{shown(source)} could not be read: {error.strerror}. Make it readable, or name another file.") from None


def _local_files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if is_table(each.name))
        if not found:
            raise SourceError(f"{path} holds no file of a table ({FORMATS}). Name the folder that has them.")
    else:
        found = [path] if path.exists() else sorted(Path(each) for each in glob.glob(str(path)))
    if not found:
        raise SourceError(f"no file at {shown(path)}. Check the path; a glob must match at least one file.")
    for each in found:
        check_regular(each)
    return found


def check_regular(path: Path) -> None:
    """SourceError for a pipe, a device or a folder; none for a missing file."""
    if path.exists() and not path.is_file():
        raise SourceError(
            f"{path} is not a regular file, and tables are read more than once. Write the rows to a file, or name the "
            "files of a folder."
        )


def open_file(file: File) -> ArrowSource:
    """The table in a file that is not CSV; SourceError if it cannot be read."""
    name = file.name.lower()
    if name.endswith(_SPREADSHEETS):
        raise SourceError(
            f"{file} is a spreadsheet, in which every cell has a type of its own, and a column has none: readers guess it from all "
            "cells. Save the sheet as CSV, and name that file."
        )
    if name.endswith(_OF_PACKAGES):
        raise SourceError(
            f"{file} is of a statistical package, whose readers guess what empty cells and days are. Read it with pyreadstat, with "
            "these guesses off (kmeanalyst/sources/SOURCES.md says how), and pass the DataFrame, or save the table as CSV."
        )
    if not is_table(name):
        raise SourceError(f"{file} is not read: the name of a table ends in {FORMATS}. Convert it to one of these.")
    return ParquetFile.of(file) if name.endswith(".parquet") else ArrowFile.of(file)


@dataclass(frozen=True, eq=False, repr=False)
class _OneFile(ArrowSource):
    path: File

    @property
    def files(self) -> tuple[File, ...]:
        return (self.path,)


@dataclass(frozen=True, eq=False, repr=False)
class ParquetFile(_OneFile):
    """Row groups of a Parquet file.

    groups   (first, last + 1) of the row groups; None for all.
    """

    groups: tuple[int, int] | None = None

    @classmethod
    def of(cls, path: File) -> ParquetFile:
        """The table in a file; SourceError if it is not a Parquet file."""
        with _opened_parquet(path) as file:
            return cls(file.schema_arrow, path)

    def count(self) -> int:
        with _opened_parquet(self.path) as file:
            return sum(file.metadata.row_group(i).num_rows for i in self._groups(file))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        with _opened_parquet(self.path) as file:
            for group in self._groups(file):  # together, and with threads, memory grows with their number
                yield from file.iter_batches(BATCH_ROWS, [group], list(names), use_threads=False)

    def divided(self, n_rows: int) -> list[ArrowSource]:
        with _opened_parquet(self.path) as file:
            groups = self._groups(file)
            sizes = [file.metadata.row_group(i).num_rows for i in groups]
        parts, first, size = list[ArrowSource](), groups.start, 0
        for i, rows in zip(groups, sizes, strict=True):
            size += rows
            if size >= n_rows or i == groups.stop - 1:
                parts.append(ParquetFile(self.schema, self.path, (first, i + 1)))
                first, size = i + 1, 0
        return parts

    def _groups(self, file: Any) -> range:
        return range(file.num_row_groups) if self.groups is None else range(*self.groups)


def _opened_parquet(path: File) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if isinstance(path, Path):  # a row group may be the whole table
            return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
        return pq.ParquetFile(path.open(cache="none"))
    except pa.ArrowInvalid:
        raise SourceError(f"{path} is not a Parquet file. Write the table again, or name another.") from None


@dataclass(frozen=True, eq=False, repr=False)
class ArrowFile(_OneFile):
    """The record batches of an Arrow IPC file. One batch is in memory at a time."""

    @classmethod
    def of(cls, path: File) -> ArrowFile:
        """The table in a file; SourceError if it is not an Arrow IPC file."""
        with _opened_arrow(path) as file:
            return cls(file.schema, path)

    def count(self) -> int:
        return sum(batch.num_rows for batch in self.batches(self.schema.names[:1]))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        with _opened_arrow(self.path, [self.schema.names.index(name) for name in names]) as file:
            yield from (file.get_batch(i) for i in range(file.num_record_batches))

    def divided(self, n_rows: int) -> list[ArrowSource]:
        return [self]


@contextmanager
def _opened_arrow(path: File, columns: list[int] | None = None) -> Iterator[Any]:
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=columns)
    with pa.OSFile(str(path)) if isinstance(path, Path) else path.open() as handle:
        try:
            file = pa.ipc.open_file(handle, options=options)
        except pa.ArrowInvalid:
            raise SourceError(f"{path} is not an Arrow IPC file. Write the table again, or name another.") from None
        yield file
