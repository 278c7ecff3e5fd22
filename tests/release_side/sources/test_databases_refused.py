"""Databases that cannot be read, break off, or are named wrongly: one sentence, nothing spent, and no cell or password anywhere."""

from __future__ import annotations

import pickle
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import refusals
from command_line import call
from exception_texts import everything_of
from postgres import Server, started
from source_cases import MARKER, refused_and_shown

import kmeanalyst
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.sources.postgresql import PostgresTable
from kmeanalyst.sources.source import SourceError
from release_side import Ledger, PublishError, publish, sql
from release_side.private_rows.rows import Batches, open_private

AGES = Domain((Integer(name="age", lower=17, upper=90),))
SMALL: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "points": 5, "features": 64}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger(tmp_path / "budget.ledger")
    found.init("people", epsilon=2, delta=1e-5)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> Path:
    """The ledger, a domain file, and two files that are no databases, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("d.toml").write_text(domain_toml(AGES), encoding="utf-8")
    Path("t.csv").write_text("age\n30\n", encoding="utf-8")
    Path("no.duckdb").write_text("age\n30\n", encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def filled(server: Server) -> Server:
    """Tables to be named wrongly; a refused source may lock them until its exception is gone, so that none is made again."""
    server.run(
        "drop table if exists visits cascade",
        "create table visits as select 20 + i % 50 as age, i as who from generate_series(1, 300) i",
        "create index visits_i on visits (who)", "create table none (age int)", "create table other (x int)",
        "create table nobody (age int)", "create role clerk login",
    )  # fmt: skip
    return server


@pytest.fixture
def visits(filled: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that the environment names, and a table of it."""
    server = filled
    known = {"PGHOST": server.folder, "PGUSER": "postgres", "PGDATABASE": "postgres", "PGPASSWORD": MARKER}
    for name, value in known.items():
        monkeypatch.setenv(name, str(value))
    return server


# ---------------------------------------------------------------------- sources that break off


def numbers(server: Server, n: int = 200_000) -> None:
    rows = f"select i % 100 as age, i from generate_series(1, {n}) i"
    server.run("drop table if exists numbers cascade", f"create table numbers as {rows}")


def killed(server: Server) -> tuple[Any, Callable[[], None]]:
    numbers(server, 900_000)  # more than a busy machine's buffers hold: else the server may have sent all of it
    query = "select pg_terminate_backend(pid, 9000) from pg_stat_activity where query like 'COPY%'"
    return sql(server.uri, "numbers"), lambda: server.run(query)


def failing_view(server: Server) -> tuple[Any, Callable[[], None]]:
    numbers(server)
    age = f"case when i = 150000 then ('{MARKER}' || i)::int else age end"
    server.run(f"create view bad as select {age} as age, i from numbers")
    return sql(server.uri, "bad"), lambda: None


def talking_view(server: Server) -> tuple[Any, Callable[[], None]]:
    """Whose function sends messages before it fails."""
    numbers(server)
    server.run(
        "create or replace function talk(i int) returns int language plpgsql as $$ begin "
        f"raise info '{MARKER}'; raise notice '{MARKER}'; raise warning '{MARKER}'; "
        f"if i > 9000 then raise exception '{MARKER}' using detail = '{MARKER}'; end if; return i; end $$",
        "create view talks as select talk(i) as age, i from numbers",
    )
    return sql(server.uri, "talks"), lambda: None


BREAKS = {"killed": killed, "a view that fails": failing_view, "a view that talks": talking_view}


@pytest.mark.parametrize("how", BREAKS)
def test_a_database_that_breaks_off_shows_no_cell(how, server, tmp_path, monkeypatch, capfd, caplog, recwarn):
    message = r"^the source of the private table failed while it was read\. .* withheld"
    for unit in (None, "i"):
        source, after_a_batch = BREAKS[how](server)
        with monkeypatch.context() as patch:
            break_off(patch, after_a_batch)
            watched = (capfd, caplog, recwarn)
            shown = refused_and_shown(source, AGES, tmp_path / str(unit), watched, match=message, unit=unit)
        assert not any(word in shown for word in ("HIV", "libpq", "adbc_driver_m", "COPY"))
        del source


def break_off(monkeypatch: pytest.MonkeyPatch, after_a_batch: Callable[[], None]) -> None:
    batches = PostgresTable.batches

    def broken(self: PostgresTable, names: Sequence[str]) -> Iterator[Any]:
        for number, batch in enumerate(batches(self, names)):
            yield batch
            if number == 0:
                after_a_batch()

    monkeypatch.setattr(PostgresTable, "batches", broken)


def test_the_driver_s_own_messages_have_the_cell(server):
    """The power of the test above."""
    for how in (failing_view, talking_view):
        source, _ = how(server)
        with pytest.raises(Exception, match=r"HIV\+ 4711"):
            list(source.batches(["age"]))


@pytest.mark.usefixtures("server")  # which skips this test where there is none
def test_a_server_that_is_lost_is_reported_without_its_message(ledger, monkeypatch):
    with started() as other:
        numbers(other)
        source = sql(other.uri, "numbers")
        break_off(monkeypatch, other.stop)
        with pytest.raises(PublishError, match="failed while it was read") as caught:
            publish(source, AGES, **SMALL, ledger=ledger.path, table="people")
        assert "libpq" not in everything_of(caught.value)
        with pytest.raises(PublishError, match="cannot be reached") as caught:
            sql(other.uri, "numbers")
        assert "libpq" not in everything_of(caught.value)
    assert ledger.account("people").total_epsilon == 0


def test_a_view_of_duckdb_that_fails_shows_no_cell(tmp_path, capfd, caplog, recwarn):
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("create table n as select i from range(200000) t(i)")
    age = f"case when i > 150000 then cast('{MARKER}' || i as int) else 20 end"
    connection.execute(f"create view bad as select {age} age from n")
    source, watched = sql(connection, "bad"), (capfd, caplog, recwarn)
    shown = refused_and_shown(source, AGES, tmp_path / "out", watched, match="failed while it was read")
    assert "HIV" not in shown


# ---------------------------------------------------------------------- what is named wrongly


def test_what_is_named_wrongly_is_refused_in_one_message_and_nothing_is_spent(visits, folder, ledger, monkeypatch):
    """refusals.txt. All commands open their table in one place: publish-function and check-source try some of the names."""
    pytest.importorskip("duckdb")
    counted = ("--epsilon", 1, "--delta", "1e-6", "--output", "a.kme", "--ledger", ledger.path, "--table", "people")
    others: list[tuple[Any, ...]] = [("publish-function", "--kind", "density", *counted), ("check-source",)]

    def run(text: str) -> str:
        words = shlex.split(text)
        monkeypatch.setenv("PGUSER", "clerk" if "nobody" in words else "postgres")
        for command in [*(others if words[-1] in ("no.duckdb", "nope") else ()), ("publish", *counted)]:
            result = call("release-side", *command, *words, "--domain", "d.toml")
            assert "kept4711" not in result.stderr + result.stdout and MARKER not in result.stderr
            if result.exit_code != 1 or result.stderr.count("\n") != 1:
                return f"{result.exit_code}: {result.stderr}"
        raise click.ClickException(result.stderr)

    refusals.check(Path(__file__).parent / "refusals.txt", run)
    assert ledger.account("people").total_epsilon == 0 and not Path("a.kme").exists()


def test_columns_are_names_of_the_table_each_once(visits):
    for columns, message in [
        (["age", "age"], "columns names 'age' more than once"), (["Age", "who"], "the table has no column 'Age'"),
        ([], "columns must be a list of names"), ("age", "columns must be a list of names"),
    ]:  # fmt: skip
        with pytest.raises(PublishError, match=message):
            sql("postgresql:", "visits", columns)
    assert sql("postgresql:", "visits", ["who", "age"]).schema.names == ["who", "age"]


def test_a_service_file_says_where_the_server_is(visits, tmp_path, monkeypatch):
    for name in ("PGHOST", "PGUSER", "PGDATABASE"):
        monkeypatch.delenv(name)
    service = f"[registry]\nhost={visits.folder}\nuser=postgres\ndbname=postgres\n"
    (tmp_path / "services").write_text(service, encoding="utf-8")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("PGSERVICE", "registry")
    assert sql("postgresql:", "visits").count() == 300


def test_a_connection_is_one_that_is_known(visits, tmp_path):
    sqlite = pytest.importorskip("adbc_driver_sqlite.dbapi")
    from adbc_driver_postgresql import dbapi

    with sqlite.connect() as connection:
        for wrong in (connection, "registry.sqlite"):
            with pytest.raises(PublishError, match=r"a column of SQLite has no type: .* Write the table to a CSV file"):
                sql(wrong, "visits")
    closed = dbapi.connect("postgresql://")
    closed.close()
    with pytest.raises(PublishError, match="the connection is closed, or its server is lost"):
        sql(closed, "visits")
    for wrong in (3, None, "t.csv"):
        with pytest.raises(PublishError, match=r'this is not a database .* Pass "postgresql:" or'):
            sql(wrong, "visits")


@pytest.mark.parametrize("missing", ["adbc_driver_postgresql", "adbc_driver_manager", "duckdb"])
def test_a_missing_driver_is_named_with_the_extra_that_has_it(missing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    (tmp_path / "x.duckdb").touch()
    source, what = ("postgresql:", "ADBC's driver") if "adbc" in missing else (tmp_path / "x.duckdb", "DuckDB")
    message = rf"is read by {what} .*, which is not installed\. Run pip install 'kmeanalyst\[sources\]'"
    with pytest.raises(PublishError, match=message):
        sql(source, "visits")


def test_files_and_variables_are_no_tables_of_duckdb(tmp_path):
    """DuckDB would take a name that it does not have for one of these."""
    connection = pytest.importorskip("duckdb").connect()
    (tmp_path / "v.csv").write_text("age\n30\n", encoding="utf-8")
    frame = connection.sql("select 30 as age")
    of_file = connection.execute(f'from "{tmp_path}/v.csv"').fetchall()
    assert of_file == connection.execute("from frame").fetchall()
    for name in (f'"{tmp_path}/v.csv"', "frame", "main.frame"):
        with pytest.raises(PublishError, match=r"the database has no table or view .* pass connection\.sql"):
            sql(connection, name)
    assert frame


def test_an_analyst_s_error_names_public_facts_alone(visits):
    for connection in ("postgresql://ann:kept4711@db/x", "postgresql://localhost:1/x"):
        with pytest.raises(SourceError) as caught:
            kmeanalyst.sql(connection, "visits")
        assert "kept4711" not in everything_of(caught.value)


# ---------------------------------------------------------------------- what is public, and what is not


def test_no_release_ledger_or_text_of_a_source_names_the_database(visits, folder, ledger):
    source = sql(visits.uri, "visits")
    release = publish(source, AGES, **SMALL, ledger=ledger.path, table="people", output="a.kme")
    texts = [Path("a.kme").read_bytes(), ledger.path.read_bytes(), repr(release.statement).encode()]
    texts += [repr(each).encode() for each in (source, open_private(source))]
    for secret in (b"visits", b"postgresql:", str(visits.folder).encode(), MARKER.encode()):
        assert not any(secret in text for text in texts)
    assert MARKER.encode() not in pickle.dumps(source)


def test_an_open_connection_is_not_pickled(visits):
    with visits.connect() as connection, pytest.raises(TypeError):
        pickle.dumps(sql(connection, "visits"))


# ---------------------------------------------------------------------- the command line


def test_tables_of_databases_are_published_from_the_command_line(visits, folder, ledger):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect("registry.duckdb") as connection:
        connection.execute("create table visits as select 20 + i % 50 as age, i as who from range(300) t(i)")
    common = ("--domain", "d.toml", "--epsilon", ".5", "--delta", "1e-6", "--ledger", ledger.path, "--table", "people")
    small = ("--kernel", "table", "--points", 5, "--features", 64, "--unit", "who")
    for number, (private, name) in enumerate((("postgresql:", "public.visits"), ("registry.duckdb", "visits")), 1):
        own = (private, "--from", name, "--output", f"{number}.kme")
        result = call("release-side", "publish", *own, *common, *small)
        assert result.exit_code == 0 and "300 units of 'who'" in result.stdout, result.stderr
    result = call(
        "release-side", "publish-function", "postgresql:", "--from", "visits", "--kind", "density", *common[:6], "--uncounted",
        "--output", "3.kme",
    )  # fmt: skip
    assert result.exit_code == 0 and result.stderr.startswith("note: columns not in the domain are ignored: who\n")
    assert all(Path(f"{i}.kme").exists() for i in (1, 2, 3))


def test_a_database_is_not_replaced_by_its_release(folder):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect("registry.duckdb") as connection:
        connection.execute("create table visits as select 30 as age from range(300)")
    with pytest.raises(PublishError, match=r"registry\.duckdb is named as the release's file and as another"):
        publish(sql("registry.duckdb", "visits"), AGES, **SMALL, rehearsal=1, output="registry.duckdb", force=True)


def test_check_source_lists_types_and_reads_no_row(visits, folder, monkeypatch):
    for owner in (Batches, PostgresTable):
        monkeypatch.setattr(owner, "count", lambda *_: pytest.fail("a row was read"))
    monkeypatch.setattr(Batches, "cut", lambda *_: pytest.fail("a row was read"))
    visits.run("create view failing as select (1 / (age - age))::money as age, who from visits")
    check = ("release-side", "check-source", "postgresql:", "--domain", "d.toml", "--from")
    result = call(*check, "visits", "--unit", "who")
    assert result.exit_code == 0, result.stderr
    age, who = (line.split() for line in result.stdout.splitlines()[1:])
    assert (age, who) == (["age", "integer", "int32"], ["who", "unit", "int32"])
    result = call(*check, "failing")
    assert result.exit_code == 1 and "it is money, which arrives as a whole number of cents" in result.stderr
