"""Private tables, read in pieces: files, a directory, a glob or a URL of them, a DataFrame, or Arrow batches.

The domain reads every cell as it is, and no row is dropped. Nothing here raises, warns or chooses by the value of a cell; the
header and the number of rows are public.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
from pandas.api.types import is_numeric_dtype

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.sources.arrow_cells import cells_of, exact_cells_of, joined, pieces
from kmeanalyst.sources.arrow_types import why_refused, why_zeros_are_lost
from kmeanalyst.sources.files import File, files_of, is_csv, is_table, open_file
from kmeanalyst.sources.source import ArrowSource
from kmeanalyst.sources.sql import is_database
from kmeanalyst.sources.sql import sql as table_by_name
from kmeanalyst.sources.streams import ArrowStream, Stream, fragments_of, is_stream
from release_side.errors import PublishError
from release_side.private_rows.csv_file import CsvFile
from release_side.private_rows.table import BROKE_OFF, NOT_OPENED, PrivateTable, guarded

Table: TypeAlias = str | Path | pd.DataFrame
PrivateSource: TypeAlias = Table | ArrowStream | Any  # Any: a pyarrow.dataset.Dataset, which has no types


def open_private(source: PrivateSource, n_rows: int | None = None) -> PrivateTable:
    """The private table behind a path, directory, glob, URL, DataFrame, dataset or stream; PublishError if there is none.

    n_rows   the number of rows of an Arrow stream, where the curator knows it; other tables are counted.
    """
    return guarded(lambda: _opened(source, n_rows), NOT_OPENED)


def _opened(source: PrivateSource, n_rows: int | None) -> PrivateTable:
    if is_stream(source):
        return Batches(Stream.of(source, n_rows))
    if n_rows is not None:
        raise PublishError("n_rows is the number of rows of an Arrow stream, and this table is counted. Leave it out.")
    if isinstance(source, PrivateTable):  # opened before
        return source
    if isinstance(source, pd.DataFrame):
        return _Frame(source)
    if isinstance(source, str | Path):
        files = [CsvFile(path) if is_csv(path.name) else Batches(open_file(path)) for path in paths_of(source)]
        return _together(files, source)
    if isinstance(source, ArrowSource):
        return Batches(source)
    if (fragments := fragments_of(source)) is not None:
        return _together([Batches(fragment) for fragment in fragments])
    raise PublishError(
        f"a {type(source).__name__} is not a table that can be read. Pass a path, a DataFrame of pandas (of an array X "
        "pd.DataFrame(X, columns=domain.names)), release_side.sql(…), or what yields Arrow record batches: a DataFrame of polars "
        "(collect a lazy frame first), a table or dataset of pyarrow, a relation of DuckDB. Write a DataFrame of "
        "Dask or Spark to Parquet files first."
    )


def sql(connection: Any, table: str, columns: Sequence[str] | None = None) -> ArrowSource:
    """A table or view of a database, to be published. Its count and its rows are read in one read-only transaction.

    As `kmeanalyst.sql`; each row must be made from one person's record, also by the definition of a view.

    Errors   PublishError, before a row is read and before anything is spent; no text of a driver is in it.

    >>> release_side.sql("postgresql:", "visits; drop table visits")
    Traceback (most recent call last):
    release_side.errors.PublishError: 'visits; drop table visits' is not the name of a table: ...
    """
    return guarded(lambda: table_by_name(connection, table, columns), NOT_OPENED)


def table_or_path(private: str, from_table: str | None) -> str | ArrowSource:
    """What a command reads: a path, or a table of a database; PublishError for half of the latter."""
    if from_table is None:
        return private
    if not is_database(private):
        raise PublishError(
            "--from names a table of a database, and PRIVATE is not a database. Nothing was spent. Name postgresql: or a .duckdb "
            "file, or leave --from out."
        )
    return sql(private, from_table)


def _together(tables: Sequence[PrivateTable], place: str | Path | None = None) -> PrivateTable:
    is_file = place is None or Path(place).is_file()
    if len(tables) == 1 and is_file:
        return tables[0]
    return _Several(tuple(tables), None if place is None else Path(place))


def paths_of(source: str | Path) -> list[File]:
    """The files of a table: one, those of a directory, or those that a glob or a URL matches; an error if there is none."""
    if is_database(source):
        raise PublishError(
            "this is a database, and a table of it has a name. Nothing was spent. Add --from TABLE (in Python "
            'release_side.sql("postgresql:", "schema.table")).'
        )
    return files_of(source)


@dataclass(frozen=True)
class _Several(PrivateTable):
    """Files of one table, in the order of their names, and the folder or glob that names them."""

    tables: tuple[PrivateTable, ...]
    place: Path | None

    @property
    def parts(self) -> tuple[PrivateTable, ...]:
        return self.tables

    @property
    def files(self) -> tuple[File, ...]:
        return tuple(file for table in self.tables for file in table.files)

    def would_read(self, path: Path) -> bool:
        """In its folder, or matched by its glob."""
        place = self.place
        if place is None or place.is_dir():
            return place is not None and is_table(path.name) and path.absolute().parent.samefile(place)
        wholes = (Path.absolute, Path.resolve)
        return not place.exists() and any(whole(path).match(str(whole(place))) for whole in wholes)

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


@dataclass(frozen=True, eq=False, repr=False)
class _Frame(PrivateTable):
    frame: pd.DataFrame

    @property
    def pandas_frame(self) -> pd.DataFrame:
        return self.frame

    @property
    def header(self) -> list[str]:
        return [str(name) for name in self.frame.columns]

    def count(self) -> int:
        return len(self.frame)

    def refusal(self, name: str, column: Column | None) -> str:
        declared = self.frame.dtypes.iloc[self.header.index(name)]  # public, as types of files are
        is_number = is_numeric_dtype(getattr(declared, "categories", declared))
        return why_zeros_are_lost(name, declared, column) if is_number else ""

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        frame = self.frame.set_axis(self.header, axis=1)
        for start in range(0, len(frame), self.piece):
            piece = frame.iloc[start : start + self.piece]
            yield {name: piece[name] for name in names}


@dataclass(frozen=True, eq=False, repr=False)
class Batches(PrivateTable):
    """Arrow record batches, whatever library makes them, behind a counter and an encoder.

    What a column holds is judged by its declared type, before a row is read. Batches are cut again by row number: where a source
    cuts them may depend on the lengths of cells.
    """

    source: ArrowSource

    @property
    def header(self) -> list[str]:
        return list(self.source.schema.names)

    @property
    def files(self) -> tuple[File, ...]:
        return self.source.files

    @property
    def read_once(self) -> bool:
        return self.source.read_once

    def count(self) -> int:
        return guarded(self.source.count, BROKE_OFF)

    def divided(self, n_rows: int) -> list[PrivateTable]:
        return [Batches(part) for part in guarded(lambda: self.source.divided(n_rows), BROKE_OFF)]

    def type_of(self, name: str) -> str:
        return ", ".join(f"{self.source.schema.field(i).type!s:.80}" for i in self.source.schema.get_all_field_indices(name))

    def refusal(self, name: str, column: Column | None) -> str:
        return why_refused(self.source.schema.field(self.header.index(name)), column)

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        for parts in self.cut(names, self.source.announced):
            yield {name: joined(parts, name, cells_of) for name in names}

    def identified(self, column: str, domain: Domain) -> Iterator[tuple[Any, Array]]:
        """As every table. The number of rows is not compared with another: where units are protected it is not public."""
        for parts in self.cut([column, *domain.names_read]):
            rows = domain.encode({each: joined(parts, each, cells_of) for each in domain.names_read})
            yield joined(parts, column, exact_cells_of), rows

    def cut(self, names: Sequence[str], announced: int | None = None) -> Iterator[list[Any]]:
        """Parts of batches that have together `piece` rows; at the end those that are left."""
        return pieces(self._batches(names, announced), self.piece)

    def _batches(self, names: Sequence[str], announced: int | None) -> Iterator[Any]:
        batches = guarded(lambda: iter(self.source.batches(names)), BROKE_OFF)
        n_rows = 0
        while (batch := guarded(lambda: next(batches, None), BROKE_OFF)) is not None:
            n_rows += batch.num_rows
            if announced is not None and n_rows > announced:  # it may have no end
                raise PublishError(
                    f"the stream has more rows than the {announced} that n_rows announces. Nothing was spent. Pass the number of "
                    "rows that it has."
                )
            yield batch
        if announced is not None and n_rows < announced:
            raise PublishError(
                f"the stream ended after {n_rows} rows, and n_rows announces {announced}. Nothing was spent. Pass the number of "
                "rows that it has, and a new stream if this one was read before."
            )
