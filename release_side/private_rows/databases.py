"""Tables and views of databases, by name: what the libraries say when that fails is withheld."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kmeanalyst.sources.source import ArrowSource
from kmeanalyst.sources.sql import is_database
from kmeanalyst.sources.sql import sql as table_by_name
from release_side.errors import PublishError
from release_side.private_rows.foreign import NOT_OPENED, guarded


def sql(connection: Any, table: str, columns: Sequence[str] | None = None) -> ArrowSource:
    """A table or view of a database, to be published. Its count and its rows are read in one read-only transaction.

    As `kmeanalyst.sql`; each row must be made from one person's record, also by the definition of a view.

    Errors   PublishError, before a row is read and before anything is spent; no text of a driver is in it.

    >>> release_side.sql("postgresql:", "visits; drop table visits")
    Traceback (most recent call last):
    release_side.errors.PublishError: 'visits; drop table visits' is no name of a table: ...
    """
    return guarded(lambda: table_by_name(connection, table, columns), NOT_OPENED)


def table_or_path(private: str, from_table: str | None) -> str | ArrowSource:
    """What a command reads: a path, or a table of a database; PublishError for half of the latter."""
    if from_table is None:
        return private
    if not is_database(private):
        raise PublishError(
            "--from names a table of a database, and PRIVATE is none. Nothing was spent. Name postgresql: or a .duckdb file, or "
            "leave --from out."
        )
    return sql(private, from_table)
