"""Tables of databases by name: the integers of the CSV file, one moment for count and rows, and failures that show no cell.

PostgreSQL is started by these tests (`tests/support/postgres.py`); without it, or without a driver, they are skipped.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import source_cases
from postgres import Server
from source_cases import SMALL, N, as_csv, domain_of_patients, empty_for_nan, patients

from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Real
from kmeanalyst.sources import postgresql
from kmeanalyst.sources.postgresql import PostgresTable
from release_side import PublishError, publish, sql
from release_side.private_rows.rows import open_private
from release_side.private_rows.table import PrivateTable

DOMAIN = domain_of_patients("City")
AGES = Domain((DOMAIN["age"],))
OPEN: list[Any] = []  # connections
private_table = partial(patients, note='no"te', city="City")


def in_postgresql(table: pa.Table, server: Server, _: Path) -> Any:
    server.load("Visits", table)
    return sql(server.uri, "public.Visits")


def in_postgresql_as_text(table: pa.Table, server: Server, folder: Path) -> Any:
    return in_postgresql(table.cast(pa.schema([(name, pa.string()) for name in table.schema.names])), server, folder)


def in_a_view(table: pa.Table, server: Server, _: Path) -> Any:
    server.load("Visits", table)
    server.run('create view "of ""their\'s"" \\ x" as select * from "Visits"')
    return sql(server.uri, 'public."of ""their\'s"" \\ x"', [*DOMAIN.names, "who"])


def by_an_open_connection(table: pa.Table, server: Server, _: Path) -> Any:
    """In the middle of a transaction, of which the other session sees nothing."""
    server.load("Visits", table)
    connection = server.connect(autocommit=False)
    with connection.cursor() as cursor:
        cursor.execute('delete from "Visits" where age > 50')
    source = sql(connection, "Visits")
    OPEN.append(connection)
    return source


def in_duckdb(table: pa.Table, _: Server, folder: Path) -> Any:
    duckdb = pytest.importorskip("duckdb")
    (folder / "v.duckdb").unlink(missing_ok=True)
    with duckdb.connect(folder / "v.duckdb") as connection:
        connection.register("given", table)
        connection.execute("create table Visits as select * from given")
    return sql(folder / "v.duckdb", "visits")


def by_an_open_connection_of_duckdb(table: pa.Table, _: Server, folder: Path) -> Any:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("given", table)
    connection.execute("create schema health; create table health.visits as select * from given")
    connection.execute("begin; delete from health.visits where age > 50")
    return sql(connection, "health.visits")


def close_connections() -> None:
    while OPEN:
        OPEN.pop().close()


@pytest.fixture(autouse=True)
def no_connection_stays_open() -> Iterator[None]:
    yield
    close_connections()


SOURCES: dict[str, Callable[[pa.Table, Server, Path], Any]] = {
    "PostgreSQL": in_postgresql, "PostgreSQL, all text": in_postgresql_as_text, "PostgreSQL, a view": in_a_view,
    "PostgreSQL, an open connection": by_an_open_connection, "DuckDB": in_duckdb,
    "DuckDB, an open connection": by_an_open_connection_of_duckdb,
}  # fmt: skip


integers = partial(source_cases.integers, domain=DOMAIN)


@pytest.mark.parametrize("source", SOURCES)
def test_the_noisy_integers_are_those_of_the_csv_file(source, server, tmp_path, monkeypatch):
    """Of rows, and of units whose identifiers are None, "", NaN, 13 and "13", where the types allow them."""
    whos = [pa.string(), *{"PostgreSQL": (pa.int64(), pa.float64()), "DuckDB": (pa.float64(),)}.get(source, ())]
    for who in [*whos, *([pa.float64()] if source == "PostgreSQL, all text" else [])]:
        table = private_table(who)
        if source == "PostgreSQL, all text":
            table = empty_for_nan(table)  # the text "nan" is an identifier
        expected = integers(as_csv(empty_for_nan(table), tmp_path), unit="who")
        assert integers(SOURCES[source](table, server, tmp_path), unit="who") == expected, who
        close_connections()
    table = private_table()
    expected = integers(as_csv(table, tmp_path))
    opened = SOURCES[source](table, server, tmp_path)
    assert integers(opened) == expected
    monkeypatch.setattr(PrivateTable, "piece", 7)
    monkeypatch.setattr(postgresql, "_BATCH_BYTES", 1000)
    assert integers(opened) == expected


def test_text_is_utf_8_whatever_the_client_s_encoding(server, tmp_path, monkeypatch):
    table = private_table()
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert integers(in_postgresql(table, server, tmp_path)) == integers(as_csv(table, tmp_path))


def numbers_in(source: Any, name: str = "i") -> list[int]:
    return [number for batch in source.batches([name]) for number in batch[name].to_pylist()]


def numbered(server: Server, n: int) -> Any:
    rows = f"select i, i % 100 as age from generate_series(1, {n}) i"
    server.run("drop table if exists numbers cascade", f"create table numbers as {rows}")
    return sql(server.uri, "numbers")


def before_rows_are_read(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """After the count, and again after the first batch."""
    batches = PostgresTable.batches

    def changed(self: PostgresTable, names: Sequence[str]) -> Iterator[Any]:
        change()
        for batch in batches(self, names):
            yield batch
            change()

    monkeypatch.setattr(PostgresTable, "batches", changed)


def test_rows_that_are_added_between_the_count_and_the_rows_change_nothing(server, tmp_path, monkeypatch):
    table = private_table()
    expected = integers(as_csv(table, tmp_path))
    opened = in_postgresql(table, server, tmp_path)
    before_rows_are_read(monkeypatch, lambda: server.run('insert into "Visits" (age) values (17), (18)'))
    assert integers(opened) == expected
    assert opened.count() >= N + 4  # power: they are there
    monkeypatch.setattr(postgresql.Transaction, "_run", lambda self, command: None)  # without the one transaction
    with pytest.raises(PublishError, match="the table has"):
        integers(opened)


def test_rows_that_are_added_to_duckdb_between_the_count_and_the_rows_change_nothing():
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("create table numbers as select i from range(10) t(i)")
    source = sql(connection, "numbers")
    assert source.count() == 10
    connection.execute("insert into numbers values (10)")
    assert numbers_in(source) == [*range(10)] and source.count() == 11


def test_rows_are_read_and_nothing_can_be_written(server):
    transaction = postgresql.Transaction(server.uri)
    with pytest.raises(Exception, match="read-only transaction"):
        transaction.rows("create table never (i int)")


def test_a_count_begins_anew_and_rows_read_alone_are_of_their_own_moment(server):
    source = numbered(server, 10)
    assert source.count() == 10
    server.run("insert into numbers values (11)")
    assert source.count() == 11 and len(numbers_in(source)) == 11
    server.run("insert into numbers values (12)")
    assert len(numbers_in(source)) == 12


def test_types_that_change_before_the_rows_are_read_are_refused(server):
    source = numbered(server, 10)
    server.run("alter table numbers alter age type money")
    with pytest.raises(PublishError, match="the types of the table's columns were changed"):
        publish(source, AGES, **SMALL)


def test_sessions_end_with_the_rows_and_with_the_source(server):
    source = numbered(server, 10)
    source.count()
    assert_sessions(server, 1)
    numbers_in(source)
    assert_sessions(server, 0)
    rows = source.batches(["i"])
    next(rows)
    source.count()
    assert_sessions(server, 2)
    del rows, source
    assert_sessions(server, 0)


def test_a_forked_process_does_not_end_its_parent_s_session(server):
    code = (
        "import os, sys; from kmeanalyst.sources.postgresql import Transaction; begun = Transaction(sys.argv[1])\n"
        "if os.fork() == 0:\n    del begun\n    os._exit(0)\n"
        "os.wait(); print(begun.rows('select 13'))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, server.uri], capture_output=True, check=True)
    assert done.stdout == b"[(13,)]\n"


def test_a_session_that_waits_for_its_reader_too_long_is_ended_by_the_server(server, monkeypatch):
    monkeypatch.setattr(postgresql, "_MOST_IDLE", "50ms")
    source = numbered(server, 10)
    source.count()
    assert_sessions(server, 0)
    with pytest.raises(PublishError, match="failed while it was read"):
        list(open_private(source).encoded(AGES))


def assert_sessions(server: Server, expected: int) -> None:
    """So many sessions, but for the one that asks; a session ends a moment after its connection."""
    query = "select count(*) from pg_stat_activity where datname = 'postgres' and pid <> pg_backend_pid()"
    for _ in range(500):
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            if cursor.fetchone() == (expected,):
                return
        time.sleep(0.01)
    pytest.fail(f"there are not {expected} sessions")


def test_units_are_found_in_one_pass_beside_another_reader(server, tmp_path):
    """A scan begins where another one is: identifiers and rows of two scans would not belong together."""
    table = private_table(n=2000).append_column("wide", pa.array([f"{i:05}" * 300 for i in range(2000)]))
    expected = integers(as_csv(table, tmp_path), unit="who")
    opened = in_postgresql(table, server, tmp_path)
    alone = numbers_in(opened, 'no"te')
    other = opened.batches(["wide"])
    next(other)
    assert numbers_in(opened, 'no"te') != alone  # the premise
    assert integers(opened, unit="who") == expected
    assert numbers_in(opened, 'no"te') != alone
    other.close()


def test_no_other_process_reads_a_part(server, tmp_path):
    for source in (numbered(server, 10), in_duckdb(private_table(), server, tmp_path)):
        with pytest.raises(PublishError, match="no other process can read a part of it"):
            open_private(source).divided(5)


TYPES = {  # PostgreSQL: why it is refused as a real, as levels and as a unit; "" where it is read
    "smallint": ("", "", ""), "int": ("", "", ""), "bigint": ("", "", ""), "double precision": ("", "", ""),
    "real": ("", "in single precision", ""), "numeric(9,2)": ("", "", ""), "text": ("", "", ""), "varchar(9)": ("", "", ""),
    "name": ("", "", ""), "mood": ("", "", ""), "date": ("a day is no", "", ""), "timestamp": ("a day is no", "", ""),
    "timestamptz": ("a day is no", "", ""), "boolean": ("true and false", "", ""),
    "char(3)": ("", r"it is char\(3\), .* padded", ""),
    "char(1)": ("", "", ""), "initials": ("", r"it is char\(3\)", ""), "uuid": (".uuid is a type", ".uuid is a type", ""),
    "bytea": ("no cell of it", "no cell of it", ""),
    **dict.fromkeys(("money", "price"), ("it is money, which arrives .* cents",) * 3), "oid": ("it is oid",) * 3,
    **dict.fromkeys(("json", "jsonb"), ("it is JSON",) * 3),
    **dict.fromkeys(("time", "interval"), ("no cell of it",) * 3),
    **dict.fromkeys(("int[]", "text[]", "pair"), ("no cell of it",) * 3),
    **dict.fromkeys(("inet", "xml", "bit(3)", "point", "int4range", "timetz", "xid"), ("is a type of its own",) * 3),
}  # fmt: skip
AS: tuple[Column | None, ...] = (
    Real(name="x", lower=0, upper=9), Categorical(name="x", levels=("a", "b")), None
)  # fmt: skip


@pytest.fixture(scope="module")
def own_types(server: Server) -> None:
    server.run(
        "create type mood as enum ('a', 'b')", "create type pair as (x int, y text)", "create domain price_ as money",
        "create domain price as price_", "create domain initials as char(3)",
    )  # fmt: skip


def test_types_are_judged_before_a_row_is_read(server, own_types):
    columns = ", ".join(f"x{number} {kind}" for number, kind in enumerate(TYPES))
    server.run(f"create table typed ({columns})", "insert into typed default values")
    source = sql(server.uri, "typed")
    opened = open_private(source)
    for number, (kind, reasons) in enumerate(TYPES.items()):
        name = f"x{number}"
        for column, why in zip(AS, reasons, strict=True):
            refusal = opened.refusal(name, column)
            assert bool(refusal) == bool(why) and re.search(why, refusal), (kind, refusal)
            assert not refusal or refusal.endswith((" in a view.", "or cast the column.", "Declare a boolean."))
    for batch in source.batches(list(opened.header)):
        assert batch.schema.types == source.schema.types


def test_numeric_and_times_beyond_the_calendar_are_read_row_by_row(server):
    server.run(
        "drop table if exists odd", "create table odd (x numeric, d timestamptz)",
        "insert into odd values ('NaN', 'infinity'), (1.50, '2001-01-01 00:30+01'), (1e30, null)",
    )  # fmt: skip
    days = Date(name="d", lower="2000-01-01", upper="2020-12-31")
    domain = Domain((Real(name="x", lower=0, upper=9, missing=True), days))
    (rows,) = open_private(sql(server.uri, "odd")).encoded(domain)
    day = 11322.0  # 2000-12-31: days are those of UTC
    assert rows.tolist()[1:] == [[1.5, day], [9.0, 10957.0]] and rows[0, 1] == 10957.0
