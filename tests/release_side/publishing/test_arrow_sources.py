"""Tables that yield Arrow batches: the same integers from every source, refusals by types alone, and silent failures.

polars and DuckDB are optional (`pip install '.[sources]'`): without them their cases are skipped.
"""

from __future__ import annotations

import datetime
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc  # noqa: F401  (refusals_arrow.txt)
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import refusals
import source_cases
from exception_texts import everything_of
from source_cases import MARKER, SMALL, N, as_csv, domain_of_patients, empty_for_nan, patients, refused_and_shown

import release_side
from kmeanalyst.releases.domain.cells import NO_CELL
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.sources import arrow_cells
from release_side import Ledger, PublishError, publish, publish_function
from release_side.executors.executor import Here
from release_side.private_rows.reading import counted_rows
from release_side.private_rows.rows import Batches, open_private
from release_side.private_rows.table import PrivateTable

DOMAIN = domain_of_patients()
private_table = patients


def in_odd_batches(table: pa.Table) -> pa.RecordBatchReader:
    batches, start = [], 0
    for size in (0, 1, 37, 2, 0, 150, N):
        batches += table.slice(start, size).to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        start += size
    return pa.RecordBatchReader.from_batches(table.schema, batches)


def as_parquet(table: pa.Table, folder: Path) -> Path:
    pq.write_table(table, folder / "t.parquet", row_group_size=77)
    return folder / "t.parquet"


def as_feather(table: pa.Table, folder: Path) -> ds.Dataset:
    pyarrow.feather.write_feather(table, folder / "t.feather", chunksize=41)
    return ds.dataset(folder / "t.feather", format="feather")


def as_files(table: pa.Table, folder: Path) -> ds.Dataset:
    """Files whose columns have other orders and types; in the first one a column without a value has no type."""
    first = table.slice(0, 1)
    first = first.set_column(first.schema.names.index("capital.gain"), "capital.gain", pa.nulls(1))
    pq.write_table(first, folder / "0.parquet")
    pq.write_table(table.slice(1, 100).select(table.schema.names[::-1]), folder / "1.parquet")
    texts = table.slice(101)
    texts = texts.set_column(1, "age", texts["age"].cast(pa.string()))
    pq.write_table(texts, folder / "2.parquet")
    return ds.dataset([folder / f"{i}.parquet" for i in range(3)], schema=table.schema)


def as_polars(table: pa.Table, _: Path) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


def as_polars_categories(table: pa.Table, _: Path) -> Any:
    polars = pytest.importorskip("polars")
    return polars.from_arrow(table).with_columns(polars.col("city").cast(polars.Categorical))


def as_duckdb(table: pa.Table, _: Path, query: str = "from private") -> Any:
    connection = pytest.importorskip("duckdb").connect()
    connection.register("given", table)
    connection.execute("create table private as select * from given")
    return connection.sql(query)


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "Parquet": as_parquet,
    "pandas": lambda table, _: table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get),
    "pyarrow table": lambda table, _: table,
    "pyarrow record batch": lambda table, _: table.combine_chunks().to_batches()[0],
    "dictionaries": lambda table, _: table.set_column(3, "city", table["city"].dictionary_encode()),
    "reader": lambda table, _: in_odd_batches(table),
    "dataset": lambda table, folder: ds.dataset(as_parquet(table, folder)),
    "dataset in memory": lambda table, _: ds.dataset(table),
    "dataset of Feather": as_feather,
    "dataset of files that differ": as_files,
    "polars": as_polars,
    "polars categories": as_polars_categories,
    "DuckDB": as_duckdb,
    "DuckDB query": lambda table, folder: as_duckdb(table, folder, "select ill, city, * exclude (ill, city) from private"),
}  # fmt: skip


def integers(source: Any, **options: Any) -> list[int]:
    known = {"n_rows": N} if isinstance(source, pa.RecordBatchReader) else {}
    return source_cases.integers(source, DOMAIN, **known | options)


@pytest.fixture(scope="module")
def of_csv(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[int]]:
    """The integers of the CSV file with identifiers of a type: of rows, or of units."""

    @cache
    def found(who: pa.DataType | None = None, unit: str | None = None) -> list[int]:
        return integers(as_csv(empty_for_nan(private_table(who)), tmp_path_factory.mktemp("csv")), unit=unit)

    return found


@pytest.mark.parametrize("source", SOURCES)
def test_the_noisy_integers_are_those_of_the_csv_file(source, of_csv, tmp_path, monkeypatch):
    """Of rows and of units, whose identifiers are None, "", NaN, 13 and "13", where the types allow them."""
    make, table = SOURCES[source], private_table()
    assert integers(make(table, tmp_path)) == of_csv()
    monkeypatch.setattr(PrivateTable, "piece", 7)
    assert integers(make(table, tmp_path)) == of_csv()
    typed = (pa.int64(), pa.float64()) if source in ("pyarrow table", "pandas", "polars", "DuckDB") else ()
    monkeypatch.setattr(PrivateTable, "piece", 19)
    for who in (pa.string(), *typed):
        assert integers(make(private_table(who), tmp_path), unit="who") == of_csv(who, "who") != of_csv(who), who


def test_a_function_is_the_same_from_any_source(tmp_path):
    ages, table = Domain((DOMAIN["age"],)), private_table()
    options: dict[str, Any] = {"kind": "density", "epsilon": 1.0, "delta": 1e-6, "rehearsal": 1}
    expected = publish_function(as_csv(table, tmp_path), ages, **options).noisy_sum.tolist()
    for source in (table, ds.dataset(table)):
        assert publish_function(source, ages, **options).noisy_sum.tolist() == expected
    assert publish_function(in_odd_batches(table), ages, n_rows=N, **options).noisy_sum.tolist() == expected


# ---------------------------------------------------------------------- rows


def test_batches_are_cut_again_by_row_number(tmp_path, monkeypatch):
    """Where a source cuts may depend on the lengths of cells; the pieces that the door gets depend on N alone."""
    monkeypatch.setattr(PrivateTable, "piece", 16)
    table = private_table()
    for source in (in_odd_batches(table), table, as_parquet(table, tmp_path)):
        opened = open_private(source, N if isinstance(source, pa.RecordBatchReader) else None)
        assert [len(rows) for rows in opened.encoded(DOMAIN)] == [16] * 18 + [12]


class Turned:
    """A table whose rows come in the other order each time that it is read, as those of a database may."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.times = table, 0

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.times += 1
        order = slice(None, None, -1 if self.times % 2 else 1)
        return self.table.take(np.arange(N)[order]).__arrow_c_stream__()


def test_an_identifier_and_its_row_are_read_in_one_pass(tmp_path, monkeypatch):
    table = private_table()
    expected = integers(as_csv(table, tmp_path), unit="who")
    turned = Turned(table)
    assert integers(turned, unit="who") == expected and turned.times == 1

    def in_two_passes(self, column, domain):
        cells = [cell for each, _ in once(self, column, domain) for cell in each]
        rows = np.concatenate([each for _, each in once(self, column, domain)])
        return iter([(cells, rows)])

    once = Batches.identified
    monkeypatch.setattr(Batches, "identified", in_two_passes)  # power: in two passes they differ
    assert integers(Turned(table), unit="who") != expected


def test_batches_may_have_dictionaries_of_their_own():
    """Of words in views, as polars has them."""
    batches = []
    for words in (["13", "Bern"], ["Zürich", "13"]):
        codes = pa.array([1, 0, None], pa.int8())
        cells = pa.DictionaryArray.from_arrays(codes, pa.array(words, pa.string_view()))
        batches.append(pa.record_batch({"city": cells}))
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    (rows,) = open_private(reader, 6).encoded(Domain((DOMAIN["city"],)))
    assert rows[:, 0].tolist() == [0.0, 2.0, 0.0, 2.0, 0.0, 0.0]


def test_batches_of_nulls_are_rows(monkeypatch):
    """A first batch without a value, a column without a type, and whole numbers that a float would round."""
    monkeypatch.setattr(PrivateTable, "piece", 2)
    domain = Domain((Integer(name="x", lower=0, upper=9, default=3), Real(name="y", lower=0, upper=1, missing=True)))
    for whole in (pa.int64(), pa.null()):
        cells: list[int | None] = [None, None, None, None if whole == pa.null() else 7]
        table = pa.table({"x": pa.array(cells, whole), "y": pa.nulls(4)})
        rows = np.concatenate(list(open_private(in_single_rows(table), 4).encoded(domain)))
        np.testing.assert_array_equal(rows, [[cell or 3, np.nan] for cell in cells])
    monkeypatch.setattr(PrivateTable, "piece", 3)
    people = pa.table({"x": pa.nulls(3), "y": pa.nulls(3), "who": pa.array([None, 2**53, 2**53 + 1], pa.int64())})
    assert count_of_units(people, domain) == 3


def count_of_units(table: pa.Table, domain: Domain) -> int:
    with counted_rows(open_private(table), domain, "who", Here()) as (_, size):
        return size.count


def in_single_rows(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1))


# ---------------------------------------------------------------------- refusals, by the schema alone

KINDS: dict[str, Column] = {
    "real": Real(name="x", lower=0, upper=1), "integer": Integer(name="x", lower=0, upper=9),
    "categorical": Categorical(name="x", levels=("a", "b")), "ordinal": Ordinal(name="x", levels=("a", "b")),
    "tree": Tree(name="x", parents={"a": "top", "b": "top"}), "boolean": Boolean(name="x"),
    "date": Date(name="x", lower="2000-01-01", upper="2020-12-31"), "text": Text(name="x", length=3),
    "cyclic": release_side.Cyclic(name="x", lower=0, upper=24),
}  # fmt: skip
NUMBERS, EVERY = ("real", "integer", "cyclic"), tuple(KINDS)
KINDS |= {
    "codes": Categorical(name="x", levels=("01", "10")), "ordered codes": Ordinal(name="x", levels=("7", "00")),
    "tree of codes": Tree(name="x", parents={"012": "1"}), "other codes": Ordinal(name="x", levels=("0", "1", "0a")),
}  # fmt: skip
CODES = ("codes", "ordered codes", "tree of codes")
ZONED = pa.timestamp("us", "Europe/Zurich")
REFUSED: list[tuple[pa.DataType, tuple[str, ...], str]] = [
    (pa.float32(), ("categorical", "ordinal", "tree", "text", "date"), r"in single precision 0\.1 is .*\. Cast .* to text"),
    (pa.float16(), ("categorical",), r"in single precision"),
    (pa.dictionary(pa.int8(), pa.float32()), ("categorical",), r"in single precision"),
    *((kind, EVERY, r"no cell of it is a number, .* would become the default\. Cast .* to text") for kind in (
        pa.list_(pa.int8()), pa.struct({"a": pa.int8()}), pa.map_(pa.string(), pa.int8()), pa.binary(), pa.large_binary(),
        pa.binary(4), pa.duration("s"), pa.month_day_nano_interval(), pa.time64("us"), pa.list_(pa.string(), 2),
        pa.run_end_encoded(pa.int32(), pa.string()), pa.sparse_union([pa.field("a", pa.int8())]))),
    (pa.timestamp("us", "Mars/Phobos"), EVERY, r"its time zone is not known here, .*\. Cast the column to a zone"),
    (pa.date32(), (*NUMBERS, "boolean"), r"a day is no \w+ cell, .*\. Declare a date, or cast"),
    (ZONED, (*NUMBERS, "boolean"), r"a day is no \w+ cell"),
    (pa.bool_(), (*NUMBERS, "date"), r"true and false are no \w+ cells, .*\. Declare a boolean"),
    *((kind, CODES, r"no leading zeros, .* is the level '0\d+', .* the default\. Read the column as text \(dtype=str") for kind in (
        pa.int64(), pa.uint8(), pa.float64(), pa.decimal128(9, 0), pa.dictionary(pa.int8(), pa.int64()))),
    (pa.uuid(), EVERY, r"arrow\.uuid is a type of its own, .*\. Cast .* to text"),
    (pa.opaque(pa.int64(), "money", "PostgreSQL"), EVERY, r"arrow\.opaque is a type of its own"),
]  # fmt: skip
READ: list[tuple[pa.DataType, tuple[str, ...]]] = [
    *((kind, EVERY) for kind in (
        pa.string(), pa.large_string(), pa.string_view(), pa.null(), pa.int8(), pa.uint64(), pa.float64(),
        pa.decimal128(9, 2), pa.dictionary(pa.int8(), pa.string()), pa.opaque(pa.string(), "numeric", "PostgreSQL"))),
    (pa.string(), CODES), (pa.dictionary(pa.int8(), pa.string()), CODES), (pa.int64(), ("other codes",)),
    (pa.float32(), (*NUMBERS, "boolean")),
    (pa.date32(), ("date", "categorical", "text")), (ZONED, ("date", "categorical", "text")),
    (pa.timestamp("ns"), ("date", "categorical")), (pa.bool_(), ("boolean", "categorical", "text")),
]  # fmt: skip
IDENTIFIERS = [pa.string(), pa.int64(), pa.float64(), pa.date32(), ZONED, pa.binary(), pa.uuid(), pa.bool_(), pa.null(),
               pa.decimal128(9, 2), pa.dictionary(pa.int8(), pa.string())]  # fmt: skip


PUBLIC = pd.DataFrame({"x": ["a", "b"]})


class Unread:
    """A source that has a schema, and from which no row may be read."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self.schema, self.rows()).__arrow_c_stream__()

    def rows(self) -> Iterator[pa.RecordBatch]:
        pytest.fail("a row was read")
        yield


def test_a_type_that_cannot_be_read_is_refused_before_a_row_is_read(tmp_path):
    ledger = Ledger(tmp_path / "budget.ledger")
    ledger.init("people", epsilon=2, delta=1e-5)
    budget: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "ledger": ledger.path, "table": "people"}
    for kind, name, message in ((kind, name, message) for kind, columns, message in REFUSED for name in columns):
        options = {"method": "subspace", "public_points": PUBLIC} if name == "text" else {}
        with pytest.raises(PublishError, match=r"^column 'x' has the type .*: .*" + message) as caught:
            publish(Unread(pa.schema({"x": kind})), Domain((KINDS[name],)), **budget, **options)
        assert "a row was read" not in str(caught.value)
    assert ledger.account("people").total_epsilon == 0


def test_other_types_are_read():
    for kind, name in ((kind, name) for kind, columns in READ for name in columns):
        domain = Domain((KINDS[name],))
        opened = open_private(pa.table({"x": pa.nulls(2, kind)}))
        assert opened.check_columns(domain) == [] and sum(map(len, opened.encoded(domain))) == 2, (kind, name)


def test_types_of_identifiers_are_read():
    """Refused ones are in refusals_arrow.txt."""
    for kind in IDENTIFIERS:
        table = pa.table({"x": pa.nulls(2, pa.float64()), "who": pa.nulls(2, kind)})
        assert open_private(table).refusal("who", None) == ""


# ---------------------------------------------------------------------- refusals of sources


def refused(source: Any, message: str, **options: Any) -> None:
    with pytest.raises(PublishError, match=message):
        publish(source, DOMAIN, **{**SMALL, **options})


def test_a_reader_needs_its_number_of_rows_and_is_read_once():
    table = private_table()
    reader = in_odd_batches(table)
    refused(reader, r"a RecordBatchReader can be read once only, .* Nothing was spent\. Pass their number as n_rows")
    integers(reader)
    refused(reader, r"the stream ended after 0 rows, and n_rows announces 300\. .* a new stream if this one", n_rows=N)
    refused(reader, r"the table has no rows", unit="who")
    for wrong, message in ((N - 1, r"more rows than the 299 that"), (N + 1, r"ended after 300 rows, .* announces 301")):
        refused(in_odd_batches(table), message, n_rows=wrong)
        refused(table, message, n_rows=wrong)


def test_a_stream_without_an_end_is_not_read_to_its_end():
    table = private_table()

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield from table.to_batches()

    reader = pa.RecordBatchReader.from_batches(table.schema, endless())
    refused(reader, "more rows than the 1000 that n_rows announces", n_rows=1000)


def test_the_number_of_rows_is_not_public_with_units_and_not_compared():
    table = private_table()
    expected = integers(table, unit="who")
    assert integers(in_odd_batches(table), unit="who", n_rows=N + 1) == expected
    assert integers(in_odd_batches(table), unit="who", n_rows=None) == expected


def test_sources_and_columns_that_cannot_be_read_are_refused(tmp_path):
    """refusals_arrow.txt, each in a folder f of its own."""
    folders = (tmp_path / str(number) for number in range(1000))
    table = private_table()

    def column(private: Any, kind: str, **options: Any) -> Any:
        return publish(private, Domain((KINDS[kind],)), epsilon=1, delta=1e-6, **options)

    def unread(*columns: Any, kind: str = "real", unit: str | None = "who") -> Any:
        return column(Unread(pa.schema(columns)), kind, unit=unit)

    def source(private: Any, **options: Any) -> Any:
        return publish(private, DOMAIN, **SMALL | options)

    def csv(folder: Path) -> Path:
        return as_csv(table, folder)

    def in_single_precision(folder: Path) -> Path:
        pq.write_table(pa.table({"x": ["a"]}), folder / "0.parquet")
        pq.write_table(pa.table({"x": pa.array([0.1], pa.float32())}), folder / "1.parquet")
        return folder / "1.parquet"

    names = globals() | {key: value for key, value in locals().items() if key not in ("folders", "tmp_path")}

    def run(text: str) -> object:
        (folder := next(folders)).mkdir()
        return eval(text, names | {"f": folder})

    refusals.check(Path(__file__).parent / "refusals_arrow.txt", run)


def test_what_polars_has_and_is_no_frame_is_refused():
    polars = pytest.importorskip("polars")
    refused(polars.LazyFrame({"age": [1]}), r"a LazyFrame is not a table .* \(collect a lazy frame first\)")
    refused(polars.Series([1]), r"could not be opened as a table of Arrow record batches")


def test_a_frame_of_pandas_is_read_cell_by_cell():
    """Its Arrow types would follow from its cells: of these, one text makes every number a text."""
    frame = pd.DataFrame({"x": pd.Series(["07001", 7001, 2.5], dtype=object)})
    domain = Domain((Categorical(name="x", levels=("07001", "7001", "2.5")),))
    assert np.concatenate(list(open_private(frame).encoded(domain)))[:, 0].tolist() == [0.0, 1.0, 2.0]
    assert not isinstance(open_private(frame), Batches)


@pytest.mark.parametrize("dtype", ["int64", "float64", "Int64", "category"])
def test_a_frame_of_numbers_is_refused_for_levels_with_leading_zeros_by_its_types_alone(dtype):
    frames = [pd.DataFrame({"x": pd.Series(cells, dtype=dtype)}) for cells in ([7, 9], [10, 10], [1])]
    for name in CODES:
        messages = set()
        for frame in frames:
            with pytest.raises(PublishError, match=r"no leading zeros, .*\(dtype=str, or a cast") as caught:
                publish(frame, Domain((KINDS[name],)), epsilon=1, delta=1e-6)
            messages.add(str(caught.value))
            assert open_private(frame.astype(str)).refusal("x", KINDS[name]) == ""
        assert len(messages) == 1  # whatever the cells
    assert open_private(frames[0]).refusal("x", KINDS["other codes"]) == ""


def test_public_points_are_compared_with_the_rows_of_a_stream(tmp_path):
    table = private_table()
    same, other = table.to_pandas(), private_table().slice(0, 50).to_pandas()
    refused(table, "are the private table itself: .*hold the same rows", public_points=same, rehearsal=None)
    assert len(publish(table, DOMAIN, **SMALL, public_points=other)) == 5
    reader = in_odd_batches(table)
    message = r"public rows are compared with .* can be read once only\. .* leave the public"
    refused(reader, message, public_points=other, n_rows=N)
    integers(reader)  # none of its rows was read


# ---------------------------------------------------------------------- failures show no cell


class Fails:
    """A source that fails in the given way, after this many batches of an export; the text of the error has a cell."""

    def __init__(self, error: Callable[[], BaseException], batches: int, exports: int = 0) -> None:
        self.table = private_table().append_column("diary", pa.array([MARKER] * N))
        self.error, self.batches, self.exports = error, batches, exports

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        if self.exports:
            self.exports -= 1
            return self.table.__arrow_c_stream__()
        if self.batches < 0:
            source_cases.fail_with_a_cell(self.error)
        return pa.RecordBatchReader.from_batches(self.table.schema, self.rows()).__arrow_c_stream__()

    def rows(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=10)[: self.batches]
        source_cases.fail_with_a_cell(self.error)


class Panic(BaseException):
    """An error that is no Exception, as those of polars' own library."""


ERRORS: tuple[Callable[[], BaseException], ...] = (
    lambda: Panic(MARKER), lambda: ValueError(MARKER), lambda: OSError(5, MARKER), lambda: pa.ArrowInvalid(MARKER),
    lambda: SystemExit(MARKER), lambda: StopAsyncIteration(MARKER),
)  # fmt: skip
AT_ONCE, FIRST_ROW, LATER, READ_AGAIN, SECOND_PASS = (-1, 0), (0, 0), (7, 0), (-1, 1), (3, 1)
FAILING = [
    *((error, LATER, None) for error in ERRORS),
    *((ERRORS[0], where, None) for where in (AT_ONCE, FIRST_ROW, READ_AGAIN, SECOND_PASS)),
    *((ERRORS[0], where, "who") for where in (AT_ONCE, FIRST_ROW, LATER)),  # a table of units is read once
]


def test_a_source_that_fails_shows_no_cell(tmp_path, capfd, caplog, recwarn):
    message = r"the source of the private table .* withheld .* nothing was spent"
    for number, (error, where, unit) in enumerate(FAILING):
        source, watched = Fails(error, *where), (capfd, caplog, recwarn)
        shown = refused_and_shown(source, DOMAIN, tmp_path / str(number), watched, match=message, unit=unit)
        assert "HIV" not in shown and "KeyError" not in shown, (error(), where)


def test_the_search_for_cells_finds_one():
    """The power of the test above: an error that is chained, even where the chain is not shown, has the cell."""
    try:
        Fails(ERRORS[1], -1).__arrow_c_stream__()
    except (ValueError, UserWarning):
        try:
            raise PublishError("withheld") from None
        except PublishError as error:
            assert MARKER not in "".join(traceback.format_exception(error)) and MARKER in everything_of(error)


def test_an_interrupt_is_an_interrupt_without_a_context():
    with pytest.raises(KeyboardInterrupt) as caught:
        publish(Fails(lambda: KeyboardInterrupt(MARKER), -1), DOMAIN, **SMALL)
    assert MARKER not in everything_of(caught.value)


QUERIES = (
    "select cast(x as int) age from (values ('1'), ('HIV+ 4711')) t(x)",
    "select case when i = 90000 then cast('HIV+ 4711' || i as int) else i end age from numbers",
)


def test_a_cast_that_fails_in_duckdb_shows_no_cell(tmp_path, capfd, caplog, recwarn):
    """At once, and later."""
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("create table numbers as select i from range(100000) t(i)")
    for number, query in enumerate(QUERIES):
        source, ages, watched = connection.sql(query), Domain((DOMAIN["age"],)), (capfd, caplog, recwarn)
        shown = refused_and_shown(source, ages, tmp_path / str(number), watched, match="Its own message is withheld")
        assert "HIV" not in shown
        with pytest.raises(Exception, match="4711"):  # power: the library's own error has the cell
            connection.sql(query).fetchall()


def test_a_damaged_file_shows_no_cell(tmp_path):
    """Text of a dictionary that is not UTF-8 stops the reader of Parquet files: by value, and it says no more."""
    words = pa.array([MARKER.encode(), b"\xff" + MARKER.encode()]).view(pa.string())
    table = pa.table({"city": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), words)})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(PublishError, match="failed while it was read") as caught:
        publish(tmp_path / "t.parquet", Domain((DOMAIN["city"],)), epsilon=1, delta=1e-6)
    assert "HIV" not in everything_of(caught.value)


def test_objects_with_private_rows_do_not_show_them():
    table = pa.table({"age": [4711], "who": ["x4711"]})
    opened = open_private(table)
    with counted_rows(opened, Domain((DOMAIN["age"],)), "who", Here()) as (units, _):
        shown = opened, units, next(iter(units)), open_private(table.to_pandas())
        assert "4711" not in "".join(map(repr, shown))


def test_a_day_beyond_the_calendar_is_no_cell():
    column = pa.array([2**31 - 1, 0], pa.date32())
    assert arrow_cells.exact_cells_of(column).tolist() == [NO_CELL, datetime.date(1970, 1, 1)]
