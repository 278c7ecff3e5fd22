"""Private tables are read as if every line and every cell were read alone: the same bytes, whatever stands around it."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contracts import COLUMNS, TEXTS
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL, factorised
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.sources import arrow_cells
from release_side.private_rows import csv_file
from release_side.private_rows.csv_file import CsvFile
from release_side.private_rows.rows import open_private
from release_side.private_rows.table import PrivateTable

DOMAIN = Domain((*COLUMNS, *TEXTS))
HEADER = ",".join(f'"{name}"' for name in (*DOMAIN.names[9:], "outside", *DOMAIN.names[:9])).encode()
WIDTH = len(DOMAIN.columns) + 1

HOSTILE = [
    b"", b" ", b"a", b"a\0", b"\0", b"\0a", b"A", b"NA", b"nan", b"-nan", b"NaN", b"1", b" 1 ", b"1.0", b"01", b"1_000", b"1e3",
    b"1e999", b"-1e999", b"inf", b"-0", b"0", b"9223372036854775808", b"18446744073709551616", b"0x10", b"1.5", b"-17.5",
    "١٢".encode(), "１２".encode(), "\u00a01\u00a0".encode(), b"1\x0b", b"1\x0c", b"1\x1c", "1\u2028".encode(), "1\x85".encode(),
    b"\xff", b"\xfe\xff", b"\xc3", b"\xed\xb3\xbf", b"'\\udcff'", b"\xef\xbb\xbf1", b"1\xef\xbb\xbf", b"true", b"TRUE", b"f",
    b"2001-01-01", b"2001-01-01T23:59:59", b"2001-01-01 00:00:00+14:00", b"20010101", b"2001-W01-1", b"9999-12-31", b"high",
    b"low ", b">50K", "naïve \"quoted\"\\".encode(), "😀".encode(), b"b1 x", b"1.1", b"2", b"ACGT", b"acgt" * 20, b"x" * 3000,
]  # fmt: skip
QUOTED = [
    b'""', b'"1"', b'"a,b"', b'"', b'"a""b"', b'a"', b'"1"x', b' "1"', b'"1" ', b'"""', b'"a\0"', b'"\r"', b"\r1", b"1\r",
]  # fmt: skip

a_cell = st.sampled_from(HOSTILE) | st.binary(max_size=5).map(lambda cell: cell.replace(b"\n", b""))
an_odd_cell = a_cell | st.sampled_from(QUOTED)
a_full_line = st.lists(a_cell, min_size=WIDTH, max_size=WIDTH).map(b",".join)
a_quoted_line = st.lists(an_odd_cell, min_size=WIDTH, max_size=WIDTH).map(b",".join)
any_line = st.one_of(
    a_full_line, a_full_line, a_quoted_line, st.lists(an_odd_cell, max_size=WIDTH + 3).map(b",".join),
    st.sampled_from([b"", b"\r", b",", b'"', b"," * WIDTH, b"," * (WIDTH - 1), b'"' + b"," * WIDTH]),
    a_full_line.map(lambda line: line + b"\r"),
)  # fmt: skip
lines = st.lists(any_line, min_size=1, max_size=8)
few = settings(max_examples=20)


def in_pieces(source: Any, piece: int, domain: Domain = DOMAIN, n_rows: int | None = None) -> Array:
    with patch.object(PrivateTable, "piece", piece):
        table = source if isinstance(source, PrivateTable) else open_private(source, n_rows)
        return np.concatenate([np.zeros((0, domain.width)), *table.encoded(domain)])


def same_bytes(found: Array, expected: Array) -> bool:
    return found.shape == expected.shape and np.ascontiguousarray(found).tobytes() == expected.tobytes()


def written(folder: Path, rows: list[bytes], end: bytes = b"\n") -> Path:
    (folder / "t.csv").write_bytes(b"\xef\xbb\xbf" + HEADER + b"\n" + b"\n".join(rows) + end)
    return folder / "t.csv"


# ---------------------------------------------------------------- CSV


@few
@given(rows=lines, end=st.sampled_from([b"\n", b"", b"\r\n", b"\n\n"]), piece=st.integers(1, 9))
@example(rows=[b",".join([cell] * WIDTH) for cell in QUOTED], end=b"\n", piece=5)
@example(rows=[b"1,2", b",".join([b"b1\rx"] * WIDTH), b"1"], end=b"", piece=9)
def test_lines_are_read_as_one_by_one(tmp_path_factory, rows, end, piece):
    """Also a last line without a newline, lines that are too short or too long, and lines without anything."""
    path = written(tmp_path_factory.mktemp("t"), rows, end)
    expected = slow_csv(path, DOMAIN)
    assert len(expected) == CsvFile(path).count()
    assert same_bytes(in_pieces(path, piece), expected)


@few
@given(rows=lines, other=any_line, index=st.integers(0, 7), piece=st.integers(1, 9))
def test_a_line_changes_its_own_row_alone(tmp_path_factory, rows, other, index, piece):
    folder, index = tmp_path_factory.mktemp("t"), index % len(rows)
    expected = in_pieces(written(folder, rows), 20_000)
    rows[index] = other
    data = written(folder, rows).read_bytes()
    (folder / "t.csv.gz").write_bytes(gzip.compress(data))
    for path in (folder / "t.csv", folder / "t.csv.gz"):
        found = in_pieces(path, piece)
        assert same_bytes(np.delete(found, index, axis=0), np.delete(expected, index, axis=0))


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC, csv.QUOTE_MINIMAL])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_usual_quotes_and_line_ends_change_nothing(quoting, end, tmp_path):
    """Files as R and pandas write them. A line whose quotes are around whole cells needs no csv reader; those with a comma do."""
    rows = [[f"n{i}", *(["1", "a", "13", "b1 x", "2001-01-01", ""] * WIDTH)[i : i + WIDTH - 1]] for i in range(6)]
    rows[1][0], rows[3][5] = "n, 1", "a, b"
    text = io.StringIO()
    csv.writer(text, quoting=quoting, lineterminator=end).writerows(rows)
    (tmp_path / "t.csv").write_bytes(HEADER + b"\n" + text.getvalue().encode())
    expected = slow_csv(tmp_path / "t.csv", DOMAIN)
    with patch.object(csv_file, "_cells", wraps=csv_file._cells) as cells_of_odd_lines:
        assert same_bytes(in_pieces(tmp_path / "t.csv", 4), expected)
    assert cells_of_odd_lines.call_count == 3  # the header is one


def test_a_cell_beyond_the_limit_of_the_csv_reader_keeps_its_quotes(tmp_path):
    domain = Domain((Categorical(name="x", levels=("A", "B"), default="B"), Categorical(name="y", levels=("A", "B"))))
    (tmp_path / "t.csv").write_bytes(b'x,y\n"A","' + b"C" * 200_000 + b'"\n"A","B"\n')
    found = in_pieces(tmp_path / "t.csv", 2, domain)
    assert same_bytes(found, slow_csv(tmp_path / "t.csv", domain))
    assert found.tolist() == [[1, 0], [0, 1]]


def test_a_carriage_return_within_quotes_is_a_space(tmp_path):
    domain = Domain((Text(name="x", length=3),))
    (tmp_path / "t.csv").write_bytes(b'x\n"A\r"\n"\rA"\r\nA\r\n"A"\r\n')
    assert domain.decode(in_pieces(tmp_path / "t.csv", 9, domain))["x"].tolist() == ["A ", " A", "A", "A"]


def test_cells_that_look_alike_are_not_one_cell(tmp_path):
    """A and A with a zero byte; a byte that is not UTF-8, its escape, and what Python writes for the escape."""
    words = ["A", "A\0", "\udcff", "'\\udcff'", "\ufffd", "\\xff"]
    cells = [word.encode("utf-8", errors="surrogateescape") for word in words]
    levels = Domain((Categorical(name="x", levels=("A", "'\\udcff'", "\\xff", "no")),))
    (tmp_path / "t.csv").write_bytes(b"x,y\n" + b",\n".join(cells * 3) + b",\n")
    assert in_pieces(tmp_path / "t.csv", 99, levels)[:, 0].tolist() == [0, 0, 0, 1, 0, 2] * 3
    (piece,) = CsvFile(tmp_path / "t.csv")._pieces(["x"])
    assert list(piece["x"]) == words * 3 and len(set(piece["x"].codes)) == len(words)
    found = arrow_cells.cells_of(pa.array(cells * 3, pa.binary()).view(pa.string()))
    assert list(found) == ["A", "A\0", NO_CELL, "'\\udcff'", "\ufffd", "\\xff"] * 3


# ---------------------------------------------------------------- parts of CSV files

a_text = st.lists(st.sampled_from([b"\n", b"a", b",", b"\r", b'"', b"\xff\n", b"1,2\n"]), max_size=20).map(b"".join)


@given(text=a_text, chunk=st.integers(1, 9), n_rows=st.integers(1, 6))
@example(text=b"1\n2\n", chunk=4, n_rows=2)
@example(text=b"1\n2", chunk=1, n_rows=1)
def test_parts_of_a_file_are_its_lines(tmp_path_factory, text, chunk, n_rows):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_bytes(b"x,y\n" + text)
    expected = list(io.BytesIO(text))
    with patch.object(csv_file, "_CHUNK", chunk):
        table = CsvFile(path)
        parts: list[Any] = table.divided(n_rows)
        assert table.count() == len(expected) == sum(part.count() for part in parts)
    found = []
    for part in parts:
        with open(path, "rb") as handle:
            found.append(list(part._lines(handle)))
    assert [line for part in found for line in part] == expected
    assert [len(part) for part in found[:-1]] == [n_rows] * (len(found) - 1)
    assert 0 < len(found[-1]) <= n_rows or not expected


# ---------------------------------------------------------------- Arrow


def as_text(cells: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """Cells of a type of text, whether they are text or not."""
    return pa.array(cells, pa.binary()).view(pa.string()).cast(kind)


def in_a_dictionary(cells: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """With words that are not used, a null among them, and some that are there twice; an empty cell is one or the other null."""
    words = [b"unused", None, b"\xff", *cells, *cells]
    codes = [len(cells) + 3 + i if i % 2 else None if cell is None else i + 3 for i, cell in enumerate(cells)]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int16()), as_text(words, kind))


KINDS: dict[str, Any] = {
    "string": lambda cells: as_text(cells, pa.string()), "large_string": lambda cells: as_text(cells, pa.large_string()),
    "string_view": lambda cells: as_text(cells, pa.string_view()),
    "dictionary": lambda cells: in_a_dictionary(cells, pa.string()),
    "dictionary of views": lambda cells: in_a_dictionary(cells, pa.string_view()),
}  # fmt: skip
a_number = st.none() | st.floats() | st.sampled_from([0.0, -0.0, 1.0, 13.0, 2.0**53, 1e300])
whole = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 20)
TYPED: dict[pa.DataType, st.SearchStrategy] = {
    pa.float64(): a_number,
    pa.float32(): st.none() | st.floats(width=32),
    pa.int64(): st.none() | whole,
    pa.uint64(): st.none() | st.integers(0, 2**64 - 1) | st.integers(0, 20),
    pa.int8(): st.integers(-128, 127),
    pa.bool_(): st.none() | st.booleans(),
    pa.date32(): st.none() | st.integers(-(2**31), 2**31 - 1) | st.integers(10_000, 12_000),
    pa.timestamp("us", tz="Europe/Zurich"): st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(10**15, 10**15 + 9),
    pa.timestamp("ns"): st.none() | st.integers(-(2**62), 2**62),
    pa.decimal128(20, 2): st.none() | st.decimals(-(10**17), 10**17, places=2),
    pa.null(): st.none(),
}


@st.composite
def arrow_columns(draw: Any) -> list[pa.Array]:
    """The same number of cells of one type, twice: only one of them differs."""
    if draw(st.booleans()):
        make, one = KINDS[draw(st.sampled_from(list(KINDS)))], st.none() | a_cell
    else:
        kind = draw(st.sampled_from(list(TYPED)))
        make, one = (lambda cells: pa.array(cells, kind)), TYPED[kind]
    cells = draw(st.lists(one, min_size=1, max_size=8))
    return [make(cells), make([draw(one), *cells[1:]])]


def in_batches(column: pa.Array, cut: int) -> pa.Table:
    """A table in which every column of the domain has these cells, cut in two."""
    table = pa.table({name: column for name in DOMAIN.names})
    return pa.Table.from_batches([*table.slice(0, cut).to_batches(), *table.slice(cut).to_batches()], table.schema)


@few
@given(columns=arrow_columns(), cut=st.integers(0, 8), piece=st.integers(1, 9))
def test_arrow_cells_are_read_as_one_by_one(columns, cut, piece):
    """Every type as every column: the words of dictionaries, and other cells, change their own rows alone."""
    first, other = (in_pieces(in_batches(column, cut), piece) for column in columns)
    expected = slow_arrow(in_batches(columns[0], cut), DOMAIN)
    assert same_bytes(first, expected)
    assert same_bytes(other[1:], first[1:])


@few
@given(columns=arrow_columns(), piece=st.integers(1, 9))
def test_parquet_files_are_read_as_one_by_one(tmp_path_factory, columns, piece):
    path = tmp_path_factory.mktemp("t") / "t.parquet"
    for column in columns:
        if pa.types.is_dictionary(column.type):  # Parquet cannot have one with a null among its words
            words = column.dictionary.cast(pa.string())
            column = pa.DictionaryArray.from_arrays(column.indices, words).dictionary_decode().dictionary_encode()
        table = in_batches(column, 0)
        pq.write_table(table, path, row_group_size=3)
        assert same_bytes(in_pieces(path, piece), slow_arrow(table, DOMAIN))


@few
@given(texts=st.lists(st.none() | st.sampled_from(["a", "A\0", "", "1.5", "high", "😀", "nan"]), min_size=1, max_size=9))
def test_polars_frames_are_read_as_one_by_one(texts):
    polars = pytest.importorskip("polars")
    for kind in (polars.String, polars.Categorical):
        series = polars.Series("x", texts, polars.String).cast(kind)
        frame = polars.DataFrame([series.alias(name) for name in DOMAIN.names])
        expected = slow_rows([[text] * len(DOMAIN.columns) for text in texts], DOMAIN)
        assert same_bytes(in_pieces(frame, 4), expected)


def test_a_word_that_a_dictionary_does_not_have_is_no_cell():
    """A malformed dictionary must not end the reading of the other rows."""
    column = pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["A", "B"]))
    codes = pa.array([1, 7, 0], pa.int8())
    malformed = pa.DictionaryArray.from_arrays(codes, column.dictionary, safe=False)
    assert list(arrow_cells.cells_of(malformed)) == ["B", NO_CELL, "A"]


# ---------------------------------------------------------------- arrays of numbers


@pytest.mark.parametrize("kind", ["i1", "u8", "<i8", ">i8", "f2", "f4", ">f8", "longdouble"])
def test_numbers_of_an_array_have_their_own_texts(kind):
    numbers = np.array([3, 1, 3, 0, 100], dtype=kind)[::-1]
    codes, texts = factorised(numbers)
    assert [texts[code] for code in codes] == ["100", "0", "3", "1", "3"]
    codes, texts = factorised(np.array([-0.0, np.nan, 0.0, -np.nan, 1.5]))
    assert [texts[code] for code in codes] == ["0", "", "0", "", "1.5"]


# ---------------------------------------------------------------------- the slow reference: every line, and every cell, by itself


def slow_csv(path: Path, domain: Domain) -> Array:
    with open(path, "rb") as lines:
        header = cells_of_line(next(lines).removeprefix(b"\xef\xbb\xbf"))
        rows = [cells_of_line(line) for line in lines]
    places = [header.index(name) for name in domain.names]
    return slow_rows(([row[i] if i < len(row) else NO_CELL for i in places] for row in rows), domain)


def cells_of_line(line: bytes) -> list[str]:
    text = line.decode("utf-8", errors="surrogateescape").rstrip("\r\n").replace("\r", " ")
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text]), [""])
    except csv.Error:
        return text.split(",")


def slow_arrow(table: Any, domain: Domain) -> Array:
    columns = [[cell for chunk in table[name].chunks for cell in map(_python, chunk)] for name in domain.names]
    return slow_rows(zip(*columns, strict=True), domain)


def _python(cell: Any) -> Any:
    try:
        return cell.as_py()
    except Exception:
        return NO_CELL


def slow_rows(rows: Iterable[Iterable[Any]], domain: Domain) -> Array:
    found = [domain.encode({name: [cell] for name, cell in zip(domain.names, row, strict=True)})[0] for row in rows]
    return np.array(found, dtype=float).reshape(-1, domain.width)
