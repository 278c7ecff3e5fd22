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

from kmeanalyst.sources.databases.duckdb_tables import DuckTable
from kmeanalyst.sources.databases.postgresql import PostgresTable, check_no_password
from kmeanalyst.sources.databases.sql_names import parts_of
from kmeanalyst.sources.source import ArrowSource, SourceError


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
    schema, name = parts_of(table)
    source = _table_of(connection, schema, name)
    if columns is None:
        return source
    return replace(source, schema=_selected(source.schema, columns))


def is_database(source: object) -> bool:
    """Whether a text or path names a database."""
    text = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    return bool(re.match(r"postgres(ql)?:", text)) or text.lower().endswith(".duckdb")


def _table_of(connection: Any, schema: str | None, name: str) -> PostgresTable | DuckTable:
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
    'this is no database whose tables are read by name. Pass "postgresql:" or "postgresql://host/database", the path of a .duckdb '
    "file, or an open connection of DuckDB or of adbc_driver_postgresql.dbapi; of another database pass a reader of Arrow batches "
    "whose types it declares, or write the table to a file."
)
_SQLITE = (
    "a column of SQLite has no type: its driver infers one from the first rows, so that one row could change the others. Write the "
    "table to a CSV file (sqlite3 -csv -header), which is read as text."
)


def _selected(schema: Any, columns: Sequence[str]) -> Any:
    """The columns that were named, in their order; SourceError for an absent one, or one that is named twice."""
    import pyarrow as pa

    if isinstance(columns, str) or not columns:
        raise SourceError("columns must be a list of names, at least one. Leave it out to have all columns.")
    if twice := sorted({each for each in columns if list(columns).count(each) > 1}):
        raise SourceError(f"columns names {', '.join(map(repr, twice))} more than once. Name each column once.")
    if absent := [each for each in columns if each not in schema.names]:
        raise SourceError(
            f"the table has no column {', '.join(map(repr, absent))}. Check the spelling, upper and lower case included."
        )
    return pa.schema([schema.field(each) for each in columns])
