"""Tables and views of DuckDB, by name: count and rows in one read-only transaction of another session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kmeanalyst.sources.databases.sql_names import quoted
from kmeanalyst.sources.source import NO_DRIVER, TABLE_CHANGED, ArrowSource, SourceError


@dataclass(frozen=True, eq=False, repr=False)
class DuckTable(ArrowSource):
    """A table or view.

    database   a file, opened for reading only; or an open connection, of whose database another session reads.
    relation   its name, quoted.
    counted    the session of the last count, until its rows are read.
    """

    database: Any
    relation: str
    counted: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, database: Any, schema: str | None, name: str) -> DuckTable:
        """The table or view of this name, with all its columns. Reads no row of it."""
        session = _session(database)
        # looked up by name: what the catalog does not have, DuckDB would take for a file or a variable of Python
        found = session.execute(
            "select table_schema, table_name from information_schema.tables where table_catalog = current_database() "
            "and lower(table_schema) = lower(coalesce(?, current_schema())) and lower(table_name) = lower(?)",
            [schema, name],
        ).fetchall()
        if not found:
            raise SourceError(
                f"the database has no table or view {quoted(*filter(None, (schema, name))):.200}. Check the spelling, and name the "
                'schema (schema.table). Of an open connection\'s own temporary objects pass connection.sql("from …") itself.'
            )
        relation = quoted(*found[0])
        try:
            types = _reader(session, f"select * from {relation} limit 0").schema
        except Exception:
            raise SourceError(
                f"the names and types of the columns of {relation:.200} could not be read. See whether DuckDB shows them."
            ) from None
        return cls(types, database, relation)

    def __reduce__(self) -> tuple[Any, ...]:
        return DuckTable, (self.schema, self.database, self.relation)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.database,) if isinstance(self.database, Path) else ()

    def count(self) -> int:
        session = _session(self.database)
        self.counted[:] = [session]
        return int(session.execute(f"select count(*) from {self.relation}").fetchall()[0][0])

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        session = self.counted.pop() if self.counted else _session(self.database)
        columns = ", ".join(quoted(name) for name in names)
        with _reader(session, f"select {columns} from {self.relation}") as reader:
            if reader.schema.types != [self.schema.field(name).type for name in names]:
                raise SourceError(TABLE_CHANGED)
            yield from reader


def _session(database: Any) -> Any:
    """A session of its own, in a transaction."""
    session = database.cursor() if not isinstance(database, Path) else _opened(database)
    session.execute("begin transaction read only")
    return session


def _opened(path: Path) -> Any:
    try:
        import duckdb
    except ImportError:
        raise SourceError(NO_DRIVER.format("A .duckdb file", "DuckDB (duckdb)")) from None
    if not path.is_file():
        raise SourceError(f"no database file at {path}. Check the path.")
    try:
        return duckdb.connect(path, read_only=True)
    except Exception:
        raise SourceError(
            f"{path} cannot be opened for reading: it is no DuckDB database of a version known here, or a program has it open for "
            "writing. Close it there, or pass its open connection from Python."
        ) from None


def _reader(session: Any, query: str) -> Any:
    import pyarrow as pa

    return pa.RecordBatchReader.from_stream(session.sql(query))
