"""Files of tables: which there are behind a path, a folder, a glob or a URL, and who reads them, by the ends of their names."""

from __future__ import annotations

import glob
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from kmeanalyst.sources.arrow_files import ArrowFile
from kmeanalyst.sources.parquet import ParquetFile
from kmeanalyst.sources.source import ArrowSource, SourceError
from kmeanalyst.sources.statistics_files import StatisticsFile
from kmeanalyst.sources.stores import StoreFile, is_url, store_files

File: TypeAlias = Path | StoreFile
_CSV = (".csv", ".csv.gz")
_READERS: dict[str, Callable[[File], ArrowSource]] = {
    ".parquet": ParquetFile.of,
    **dict.fromkeys((".feather", ".arrow", ".ipc"), ArrowFile.of),
    **dict.fromkeys((".sav", ".zsav", ".dta", ".xpt", ".sas7bdat"), StatisticsFile.of),
}
FORMATS = ", ".join([*_CSV, *list(_READERS)[:-1]]) + f" or {list(_READERS)[-1]}"
_SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")


def is_csv(name: str) -> bool:
    """Whether the name of a file is that of CSV, compressed or not."""
    return name.lower().endswith(_CSV)


def is_gzipped(name: str) -> bool:
    """Whether the name of a file says that it is compressed."""
    return name.lower().endswith(".gz")


def is_table(name: str) -> bool:
    """Whether the name of a file is that of a table that can be read."""
    return name.lower().endswith((*_CSV, *_READERS))


def files_of(source: str | Path) -> list[File]:
    """The files of a table: one, those of a folder, or those that a glob or a URL matches; SourceError if there is none."""
    if isinstance(source, str) and is_url(source):
        return list(store_files(source, is_table))
    path = Path(source)
    try:
        return list(_local_files(path))
    except OSError as error:
        raise SourceError(
            f"{source} could not be read: {error.strerror}. Make it readable, or name another file."
        ) from None


def _local_files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if is_table(each.name))
        if not found:
            raise SourceError(f"{path} holds no file of a table ({FORMATS}). Name the folder that has them.")
    else:
        found = [path] if path.exists() else sorted(Path(each) for each in glob.glob(str(path)))
    if not found:
        raise SourceError(f"no file at {path}. Check the path; a glob must match at least one file.")
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
    if not is_table(name):
        raise SourceError(f"{file} is not read: the name of a table ends in {FORMATS}. Convert it to one of these.")
    return next(read for ending, read in _READERS.items() if name.endswith(ending))(file)
