"""Tables and views of PostgreSQL, read through ADBC: count and rows in one read-only transaction, rows in small batches.

Another transaction's rows change nothing: every query of a transaction sees the rows of its first moment.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa

from kmeanalyst.sources.source import NO_DRIVER, DatabaseTable, SourceError, quoted

_BATCH_BYTES = 1_000_000
_MOST_IDLE = "1h"  # then the server ends a session between count and rows: of a source that is kept and not read
_KINDS = "rmvpf"  # of pg_class: tables, materialized views, views, partitioned tables, foreign tables


def check_no_password(server: str) -> None:
    """SourceError for a URI with a password, which it does not repeat. Found as libpq finds it."""
    rest = server.partition("://")[2]
    user, at, _ = rest.partition("/")[0].partition("@")
    keys = {key for key, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True)}
    if (at and ":" in user) or keys & {"password", "sslpassword"}:
        raise SourceError(
            "the text of the connection has a password, which lists of processes, histories and logs would show. Leave it out: "
            "libpq reads ~/.pgpass, a service file (PGSERVICE) or PGPASSWORD. Change the password if it was shown."
        )


class PostgresTable(DatabaseTable):
    """A table or view of what libpq connects to, without a password; or of an open connection of ADBC, of whose database
    another session reads.
    """

    @classmethod
    def of(cls, server: Any, names: Sequence[str]) -> PostgresTable:
        """The table or view of this name, with all its columns. Reads no row of it."""
        relation = quoted(*names)
        try:
            transaction = Transaction(server)
        except ImportError:
            raise SourceError(NO_DRIVER.format("PostgreSQL", "ADBC's driver (adbc-driver-postgresql)")) from None
        except Exception:
            raise SourceError(
                "the PostgreSQL server cannot be reached, or refuses the connection. See what psql says with the same "
                "PGSERVICE, PGHOST, PGUSER and password file, and correct these."
            ) from None
        try:
            found = transaction.rows(
                "select c.relkind::text, has_any_column_privilege(c.oid, 'select') from pg_class c "
                f"where c.oid = to_regclass({_literal(relation)})"
            )
            if not found or found[0][0] not in _KINDS:
                raise SourceError(
                    f"the database has no table or view {relation:.200} that this user sees. Check the spelling, upper and lower "
                    "case included, and name the schema (schema.table)."
                )
            if not found[0][1]:
                raise SourceError(f"this user may not read {relation:.200}. Grant it select, or connect as another user.")
            return cls(_with_types(transaction, relation), server, relation)
        except SourceError:
            raise
        except Exception:
            raise SourceError(
                f"the names and types of the columns of {relation:.200} could not be read. See whether psql shows them, with \\d."
            ) from None

    def session(self) -> Transaction:
        return Transaction(self.database)

    def reading(self, session: Transaction, query: str) -> AbstractContextManager[Any]:
        return session.reading(query)


def _with_types(transaction: Transaction, relation: str) -> Any:
    """Names and types of a table's columns as Arrow has them, with the server's own (of domains the type beneath) as metadata."""
    found = transaction.rows(
        "with recursive kinds as ("
        "select attname::text as name, atttypid as kind, atttypmod as modifier from pg_attribute "
        f"where attrelid = {_literal(relation)}::regclass and attnum > 0 and not attisdropped "
        "union all select k.name, t.typbasetype, t.typtypmod from kinds k join pg_type t on t.oid = k.kind "
        "where t.typbasetype <> 0) "
        "select k.name, t.typname::text, k.modifier::text from kinds k join pg_type t on t.oid = k.kind "
        "where t.typbasetype = 0"
    )
    kinds = {name: {"POSTGRESQL:type": kind, "POSTGRESQL:typmod": modifier} for name, kind, modifier in found}
    fields = transaction.schema(f"select * from {relation}")
    return pa.schema([field.with_metadata({**(field.metadata or {}), **kinds[field.name]}) for field in fields])


class Transaction:
    """A session with one read-only transaction, all of whose queries see one moment. Both end when this object does."""

    def __init__(self, server: Any) -> None:
        closing = ExitStack()
        weakref.finalize(self, closing.close)
        self._connection = _connected(server, closing)
        self._run("begin isolation level repeatable read read only")
        self._run(f"set local idle_in_transaction_session_timeout = {_literal(_MOST_IDLE)}")

    def schema(self, query: str) -> Any:
        """Names and types of the columns of a query, which is not run."""
        with self._statement(query) as statement:
            return pa.schema(statement.execute_schema())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of a small answer."""
        with self.reading(query) as reader:
            return [tuple(row.values()) for batch in reader for row in batch.to_pylist()]

    @contextmanager
    def reading(self, query: str) -> Iterator[Any]:
        """A reader of the rows of a query, in batches of about a megabyte."""
        with self._statement(query) as statement:
            stream, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(stream) as reader:
                yield reader

    def _run(self, command: str) -> None:
        with self._statement(command) as statement:
            statement.execute_update()

    @contextmanager
    def _statement(self, text: str) -> Iterator[Any]:
        from adbc_driver_manager import AdbcStatement

        statement = AdbcStatement(self._connection)
        try:
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            statement.set_sql_query(text)
            yield statement
        finally:
            _close(statement, os.getpid())


def _connected(server: Any, closing: ExitStack) -> Any:
    if isinstance(server, str):
        from adbc_driver_manager import AdbcConnection
        from adbc_driver_postgresql import connect

        database = connect("postgresql://" if server in ("postgresql:", "postgres:") else server)
        closing.callback(_close, database, os.getpid())
        connection = AdbcConnection(database)
        closing.callback(_close, connection, os.getpid())
        return connection
    clone = server.adbc_clone()
    closing.callback(_close, clone, os.getpid())
    clone.adbc_connection.set_autocommit(True)
    return clone.adbc_connection


def _close(handle: Any, process: int) -> None:
    """Close what this process opened: a forked one would end its parent's session. What fails then is nobody's error."""
    if os.getpid() == process:
        with suppress(Exception):
            handle.close()


def _literal(text: str) -> str:
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
