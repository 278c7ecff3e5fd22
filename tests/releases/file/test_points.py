"""Refusals of the .kme file's points: Parquet that does not fit the domain, or whose footer is odd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from file_points_cases import edited_points, first, with_column
from file_tools import SENSELESS, Members, forged, narrow, refused, same, setting
from parquet_forge import closed

from kmeanalyst.release import read_release
from kmeanalyst.releases.file import FileRefused, parquet_footer, thrift

NAN = float("nan")
OTHER, UNBOUND = "has other columns than declared", "values outside its bounds, or NaN that is not null"
NULLS = "it has nulls, and the domain declares no missing value"
DAY = pa.date32()
POINTS: dict[str, tuple[Callable[[dict[str, Any], Members], None], str, str]] = {
    "no Parquet": (lambda h, m: m.update({"points.parquet": b"PAR1 nonsense PAR1"}), r"points\.parquet: ", SENSELESS),
    "an empty member": (lambda h, m: m.update({"points.parquet": b""}), r"points\.parquet: ", SENSELESS),
    "compressed pages": (
        edited_points(lambda t: t, compression="snappy"), "column 'age' is compressed",
        "size cannot be known beforehand",
    ),
    "a stored Arrow schema": (
        edited_points(lambda t: t, store_schema=True), "has an ARROW:schema entry", "those of Parquet itself",
    ),
    "one row less": (edited_points(lambda t: t.slice(1)), r"points\.parquet has 59 rows", "the header declares 60"),
    "more rows": (edited_points(lambda t: pa.concat_tables([t, t])), "has 120 rows", "the header declares 60"),
    "a column more": (
        edited_points(lambda t: t.append_column("x", t["age"])), "has 12 columns", "domain and weight make 11",
    ),
    "a column less": (edited_points(lambda t: t.drop_columns(["age"])), "has 10 columns", "domain and weight make 11"),
    "another name": (
        edited_points(lambda t: t.rename_columns(["AGE", *t.column_names[1:]])), OTHER, "AGE INT64 does not fit",
    ),
    "another order": (
        edited_points(lambda t: t.select(["children", "age", *t.column_names[2:]])), OTHER, "order does not fit",
    ),
    "numbers of 32 bits": (
        edited_points(with_column("age", lambda c: pa.array(c, pa.int32()))), OTHER,
        "age INT32 does not fit the domain",
    ),
    "floats for integers": (
        edited_points(with_column("age", lambda c: pa.array(map(float, c)))), OTHER, "age DOUBLE does not fit",
    ),
    "bytes for levels": (
        edited_points(with_column("city", lambda c: pa.array([x.encode() for x in c]))), OTHER, "city BYTE_ARRAY does not",
    ),
    "lists for numbers": (
        edited_points(with_column("age", lambda c: pa.array([[x] for x in c]))), "has nested columns",
        "a cell of a release is one value",
    ),
    "a struct of numbers": (
        edited_points(with_column("age", lambda c: pa.array([{"x": x} for x in c]))), "has nested columns",
        "a cell of a release is one value",
    ),
    "timestamps for dates": (
        edited_points(with_column("joined", lambda c: pa.array(c).cast(pa.timestamp("ms")))), OTHER, "joined INT64",
    ),
    "many row groups": (edited_points(lambda t: t, row_group_size=1), "has 60 row groups", "at most 50 are read"),
    "a null age": (edited_points(first("age", None, pa.int64())), "column age", NULLS),
    "a null income": (edited_points(first("income", None, pa.float64())), "column income", NULLS),
    "a null city": (edited_points(first("city", None, pa.string())), "column city", NULLS),
    "a null truth": (edited_points(first("married", None, pa.bool_())), "column married", NULLS),
    "a null day": (edited_points(first("joined", None, DAY)), "column joined", NULLS),
    "NaN that is not null": (edited_points(first("capital.gain", NAN, pa.float64())), r"column capital\.gain", UNBOUND),
    "NaN undeclared": (edited_points(first("income", NAN, pa.float64())), "column income", UNBOUND),
    "an infinite income": (edited_points(first("income", float("inf"), pa.float64())), "column income", UNBOUND),
    "an income below": (edited_points(first("income", 0.5, pa.float64())), "column income", UNBOUND),
    "an age above": (edited_points(first("age", 91, pa.int64())), "column age", UNBOUND),
    "children below zero": (edited_points(first("children", -1, pa.int64())), "column children", UNBOUND),
    "a day too early": (edited_points(first("joined", -10_000, DAY)), "column joined", UNBOUND),
    "a day too late": (edited_points(first("left", 2**31 - 1, DAY)), "column left", UNBOUND),
    "an unseen level": (
        edited_points(first("city", "Bern", pa.string())), "column city", "'Bern' is not one of its levels",
    ),
    "a level with spaces": (
        edited_points(first("city", " Zürich", pa.string())), "column city", "not one of its levels",
    ),
    "an empty level": (edited_points(first("school", "", pa.string())), "column school", "'' is not one of its levels"),
    "a null weight": (edited_points(first("weight", None, pa.float64())), "column weight", "a missing weight"),
    "an infinite weight": (edited_points(first("weight", float("-inf"), pa.float64())), "column weight", "infinite"),
    "a NaN weight": (edited_points(first("weight", NAN, pa.float64())), "column weight", "infinite or not a number"),
}  # fmt: skip


@pytest.mark.parametrize("case", POINTS)
def test_points_that_do_not_fit_the_domain_are_refused(case, mixed_path, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_footer, "MOST_ROW_GROUPS", 50)
    edit, what, why = POINTS[case]
    refused(forged(mixed_path, edit), tmp_path, what, why)


def test_points_in_several_row_groups_and_plain_pages_are_read(mixed_path, mixed_release):
    mixed_path.write_bytes(forged(mixed_path, edited_points(lambda t: t, row_group_size=7, use_dictionary=False)))
    same(mixed_release, read_release(mixed_path))


def test_more_cells_than_the_limit_are_refused_before_they_are_read(mixed_path, tmp_path, monkeypatch):
    for n_points, what, why in (
        (250_001, "250001 points", "at most 250000 are read"),
        (250_000, "250000 points of 10 columns", "make 2750000 cells, and at most 2700000 are read"),
    ):
        narrow(monkeypatch, cells=2_700_000)
        edit = setting("n_points", to=n_points)
        refused(forged(mixed_path, lambda h, m, edit=edit: edit(h)), tmp_path, what, why)


# ---------------------------------------------------------------------- how Parquet describes itself


def read_struct(data: bytes) -> dict[int, Any]:
    return thrift.Reader(data, 0, len(data)).struct()


def test_a_footer_is_read_by_its_field_numbers():
    """Field 1 the whole number -1, field 2 the text hi, field 3 a list of two structs with field 1 true."""
    data = b"\x15\x01" + b"\x18\x02hi" + b"\x19\x2c" + 2 * b"\x11\x00" + b"\x00"
    assert read_struct(data) == {1: -1, 2: b"hi", 3: [{1: True}, {1: True}]}


def test_a_struct_read_back_is_the_struct_written():
    fields = [(1, thrift.I32, -1), (3, thrift.TEXT, b"hi" * 99), (4, thrift.LIST, (thrift.STRUCT, [[(1, thrift.I64, 2**62)]])),
              (7, thrift.FALSE, None), (8, thrift.STRUCT, [(5, thrift.LIST, (thrift.I32, list(range(99))))])]  # fmt: skip
    written = thrift.struct_bytes(fields)
    assert read_struct(written) == {1: -1, 3: b"hi" * 99, 4: [{1: 2**62}], 7: False, 8: {5: list(range(99))}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x15\x02\x05\x02\x02\x00", "field 1 occurs twice"),
        (b"\x1c" * 20, "structs nested too deep"),
        (b"\x19\x1c" + b"\x19\x19" * 20, "structs nested too deep"),
        (b"\x19\xf1\xff\xff\xff\xff\x0f", "a list of booleans"),
        (b"\x1b\x00", "values of kind 11"),
        (b"\x15" + b"\xff" * 11, "more than 64 bits"),
        (b"\x19\xf7\xff\xff\xff\xff\x0f", "a list is longer than what follows"),
        (b"\x19\x37" + b"\0" * 20, "ends within a value"),
        (b"\x17\0\0", "ends within a value"),
        (b"\x18\x05hi\0", "ends within a value"),
        (b"\x13", "ends within a value"),
        (b"\x15\x80", "ends within a value"),
        (b"\x15\x02", "ends within a value"),
    ],
)
def test_a_footer_that_is_odd_or_would_swell_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        read_struct(data)


def test_a_footer_over_the_limit_is_refused(mixed_path, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_footer, "MOST_FOOTER_BYTES", 100)
    refused(mixed_path.read_bytes(), tmp_path, r"points\.parquet: ", "its footer does not fit")


def test_more_pages_than_the_limit_are_refused(mixed_path, tmp_path, monkeypatch):
    narrow(monkeypatch, pages=13)  # the file has 13: one for each column, and two dictionaries
    read_release(mixed_path)
    narrow(monkeypatch, pages=12)
    refused(mixed_path.read_bytes(), tmp_path, "column 'weight' has too many pages", "at most 12 are read in all")


@pytest.mark.parametrize("field", [1, 8, 9])
def test_a_column_that_lies_in_another_file_or_is_encrypted_is_refused(field):
    described = {3: [b"age"], 4: 0, 5: 60, 6: 10, 7: 10, 9: 4}
    parquet_footer._chunk({3: described}, "integer", True, 60)
    with pytest.raises(
        FileRefused, match=r"column 'age': its description does not fit the file\. Fetch the file again"
    ):
        parquet_footer._chunk({3: described, field: b"/etc/passwd"}, "integer", True, 60)
    with pytest.raises(
        FileRefused, match=r"column 'age': its description does not fit the file\. Fetch the file again"
    ):
        parquet_footer._chunk({3: described}, "integer", True, 61)


@pytest.mark.parametrize(
    "sizes", [[59], [30, 31], [70, -10], []], ids=["one less", "one more", "one below zero", "no group"]
)
def test_row_groups_that_do_not_make_the_rows_are_refused(sizes):
    def file_of(sizes: list[int]) -> bytes:
        schema = [[[4, 8, b"root"], [5, 5, 1]], [[1, 5, 5], [3, 5, 1], [4, 8, b"weight"]]]
        described = [[1, 5, 5], [3, 9, (8, [b"weight"])], [4, 5, 0], [5, 6, 0], [6, 6, 0], [7, 6, 0], [9, 6, 4]]
        groups = []
        for n in sizes:
            chunk = [[3, 12, [[number, kind, n if number == 5 else value] for number, kind, value in described]]]
            groups.append([[1, 9, (12, [chunk])], [3, 6, n]])
        return closed(b"PAR1", [[2, 9, (12, schema)], [3, 6, 60], [4, 9, (12, groups)]])

    assert len(parquet_footer.chunks_of(file_of([20, 40]), [("weight", "real")], 60)) == 2
    with pytest.raises(FileRefused, match=r"row groups: they do not make 60 rows of 1 columns\. Fetch the file again"):
        parquet_footer.chunks_of(file_of(sizes), [("weight", "real")], 60)
