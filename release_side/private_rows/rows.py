"""Private tables, read in pieces: files, a directory, a glob or a URL of them, a DataFrame, or Arrow batches.

The domain reads every cell as it is, and no row is dropped. Nothing here raises, warns or chooses by the value of a cell; the
header and the number of rows are public.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.sources.files import File, files_of, is_csv, is_table, open_file
from kmeanalyst.sources.source import ArrowSource
from kmeanalyst.sources.sql import is_database
from kmeanalyst.sources.streams import ArrowStream, Stream, fragments_of, is_dataset
from release_side.errors import PublishError
from release_side.private_rows.batches import Batches
from release_side.private_rows.csv_file import CsvFile
from release_side.private_rows.foreign import NOT_LISTED, NOT_OPENED, guarded
from release_side.private_rows.table import PrivateTable

Table: TypeAlias = str | Path | pd.DataFrame
PrivateSource: TypeAlias = Table | ArrowStream | Any  # Any: a pyarrow.dataset.Dataset, which has no types


def open_private(source: PrivateSource, n_rows: int | None = None) -> PrivateTable:
    """The private table behind a path, directory, glob, URL, DataFrame, dataset or stream; PublishError if there is none.

    n_rows   the number of rows of an Arrow stream, where the curator knows it; other tables are counted.
    """
    if is_stream(source):
        return Batches(guarded(lambda: Stream.of(source, n_rows), NOT_OPENED))
    if n_rows is not None:
        raise PublishError("n_rows is the number of rows of an Arrow stream, and this table is counted. Leave it out.")
    if isinstance(source, PrivateTable):  # of an executor
        return source
    if isinstance(source, pd.DataFrame):
        return _Frame(source)
    if is_path(source):
        return _together([_open_file(path) for path in paths_of(source)])
    if isinstance(source, ArrowSource):
        return Batches(source)
    if is_dataset(source):
        return _together([Batches(each) for each in guarded(lambda: fragments_of(source), NOT_OPENED)])
    raise PublishError(
        f"a {type(source).__name__} is no table that can be read. Pass a path, a DataFrame of pandas, release_side.sql(…), or "
        "what yields Arrow record batches: a DataFrame of polars (collect a lazy frame first), a table or dataset of pyarrow, a "
        "relation of DuckDB; a DataFrame of Dask with executor=release_side.Dask(client)."
    )


def is_path(source: PrivateSource) -> TypeGuard[str | Path]:
    """Whether a table is named by a path, a directory, a glob or a URL."""
    return isinstance(source, str | os.PathLike)


def is_stream(source: PrivateSource) -> TypeGuard[ArrowStream]:
    """Whether a table yields Arrow batches whose types were declared: those of pandas would follow from private values."""
    return hasattr(source, "__arrow_c_stream__") and not isinstance(source, pd.DataFrame)


def _together(tables: Sequence[PrivateTable]) -> PrivateTable:
    return tables[0] if len(tables) == 1 else _Several(tuple(tables))


def paths_of(source: str | Path) -> list[File]:
    """The files of a table: one, those of a directory, or those that a glob or a URL matches; PublishError if there is none."""
    if is_database(source):
        raise PublishError(
            "this is a database, and a table of it has a name. Nothing was spent. Add --from TABLE (in Python "
            'release_side.sql("postgresql:", "schema.table")).'
        )
    return guarded(lambda: files_of(source), NOT_LISTED)


def has_rows(path: File) -> bool:
    """Whether a file of a private table has a row; the number of rows is public."""
    return _open_file(path).count() > 0


def would_read(source: str | Path, path: Path) -> bool:
    """Whether a file at `path`, once it exists, would belong to the table: in its folder, or matched by its glob."""
    table = Path(source)
    if table.is_dir():
        return is_table(path.name) and path.absolute().parent.samefile(table)
    return not table.exists() and any(whole(path).match(str(whole(table))) for whole in (Path.absolute, Path.resolve))


def _open_file(path: File) -> PrivateTable:
    return CsvFile(path) if is_csv(path.name) else Batches(guarded(lambda: open_file(path), NOT_OPENED))


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

    def type_of(self, name: str) -> str:
        return ", ".join(dict.fromkeys(table.type_of(name) for table in self.tables))

    def refusal(self, name: str, column: Column | None) -> str:
        return next((why for table in self.tables if (why := table.refusal(name, column))), "")

    def check_readable(self) -> None:
        for table in self.tables:
            table.check_readable()

    def identified(self, column: str, domain: Domain) -> Iterator[tuple[Any, Array]]:
        for table in self.tables:
            yield from table.identified(column, domain)

    def divided(self, n_rows: int) -> list[PrivateTable]:
        return [part for table in self.tables for part in table.divided(n_rows)]

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
        for start in range(0, len(frame), self.piece):
            piece = frame.iloc[start : start + self.piece]
            yield {name: piece[name] for name in names}
