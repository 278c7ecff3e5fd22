"""Tables and views of databases, by name and never by free SQL.

A limit, a window function or a join would make a row depend on others, and a condition on a private column would make the number
of rows private.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from kmeanalyst.sources.postgresql import PostgresTable, check_no_password
from kmeanalyst.sources.source import NO_DRIVER, ArrowSource, DatabaseTable, SourceError, quoted

_PART = r"(?:[^\W\d][\w$]*|\"(?:[^\"\x00-\x1f]|\"\")+\")"
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")


def sql(connection: Any, table: str, columns: Sequence[str] | None = None) -> ArrowSource:
    """A table or view of a database, for samples. Its count and its rows are read in one read-only transaction.

    connection   "postgresql:" or "postgresql://host/database", without a password: libpq reads PGSERVICE, PGHOST, ~/.pgpass and
                 the rest of its environment. The path of a .duckdb file, opened for reading only. Or an open connection, of
                 DuckDB or of ADBC to PostgreSQL (adbc_driver_postgresql.dbapi.connect): another session of the same database
                 reads, and sees what is committed.
    table        "table" or "schema.table", as the database spells them; a name with other characters in double quotes.
    columns      their names; all by default. No other column is read.
    Errors       SourceError, before a row is read.

    >>> ka.sql("postgresql://ann:secret@registry/health", "visits")
    Traceback (most recent call last):
    kmeanalyst.sources.source.SourceError: the text of the connection has a password, ...
    """
    schema, name = _parts_of(table)
    source = _table_of(connection, schema, name)
    if columns is None:
        return source
    return replace(source, schema=_selected(source.schema, columns))


def is_database(source: object) -> bool:
    """Whether a text or path names a database."""
    text = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    return bool(re.match(r"postgres(ql)?:", text)) or text.lower().endswith(".duckdb")


def _table_of(connection: Any, schema: str | None, name: str) -> DatabaseTable:
    names = [name] if schema is None else [schema, name]
    if isinstance(connection, str | os.PathLike):
        text = os.fspath(connection)
        if not is_database(connection):
            raise SourceError(_SQLITE if text.lower().endswith((".sqlite", ".sqlite3")) else _NOT_A_DATABASE)
        if text.lower().endswith(".duckdb") and "://" not in text:
            return DuckTable.of(Path(text), schema, name)
        check_no_password(text)
        return PostgresTable.of(text, names)
    if type(connection).__name__ == "DuckDBPyConnection":
        return DuckTable.of(connection, schema, name)
    if hasattr(connection, "adbc_clone"):
        vendor = _vendor(connection)
        if vendor != "PostgreSQL":
            raise SourceError(_SQLITE if vendor == "SQLite" else _NOT_A_DATABASE)
        return PostgresTable.of(connection, names)
    raise SourceError(_SQLITE if type(connection).__module__ == "sqlite3" else _NOT_A_DATABASE)


def _vendor(connection: Any) -> object:
    try:
        return connection.adbc_get_info().get("vendor_name")
    except Exception:
        raise SourceError("the connection is closed, or its server is lost. Open it again.") from None


_NOT_A_DATABASE = (
    'this is not a database whose tables are read by name. Pass "postgresql:" or "postgresql://host/database", the path of a '
    ".duckdb file, or an open connection of DuckDB or of adbc_driver_postgresql.dbapi; of another database pass a reader of Arrow "
    "batches whose types it declares, or write the table to a file."
)
_SQLITE = (
    "a column of SQLite has no type: its driver infers one from the first rows, so that one row could change the others. Write the "
    "table to a CSV file (sqlite3 -csv -header), which is read as text."
)


def _selected(schema: Any, columns: Sequence[str]) -> Any:
    if isinstance(columns, str) or not columns:
        raise SourceError("columns must be a list of names, at least one. Leave it out to have all columns.")
    if twice := sorted({each for each in columns if list(columns).count(each) > 1}):
        raise SourceError(f"columns names {', '.join(map(repr, twice))} more than once. Name each column once.")
    if absent := [each for each in columns if each not in schema.names]:
        raise SourceError(
            f"the table has no column {', '.join(map(repr, absent))}. Check the spelling, upper and lower case included."
        )
    return pa.schema([schema.field(each) for each in columns])


def _parts_of(table: str) -> tuple[str | None, str]:
    """(schema or None, name) of "table" or "schema.table"; SourceError for anything else, which is never run as SQL."""
    found = _NAME.fullmatch(table) if isinstance(table, str) else None
    if found is None:
        raise SourceError(
            f"{table!r:.80} is not the name of a table: write table or schema.table, and a name with other characters in double "
            "quotes. SQL is not run; make a view of the rows that are the table (create view …), and name that."
        )
    schema, name = (part[1:-1].replace('""', '"') if part and part[0] == '"' else part for part in found.groups())
    return schema, str(name)


# ---------------------------------------------------------------------- DuckDB


class DuckTable(DatabaseTable):
    """A table or view of DuckDB: of a file, opened for reading only; or of an open connection, of whose database another
    session reads.
    """

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

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.database,) if isinstance(self.database, Path) else ()

    def session(self) -> Any:
        return _session(self.database)

    def reading(self, session: Any, query: str) -> Any:
        return _reader(session, query)


def _session(database: Any) -> Any:
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
            f"{path} cannot be opened for reading: it is not a DuckDB database of a version known here, or a program has it open "
            "for writing. Close it there, or pass its open connection from Python."
        ) from None


def _reader(session: Any, query: str) -> Any:
    return pa.RecordBatchReader.from_stream(session.sql(query))
