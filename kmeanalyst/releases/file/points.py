"""points.csv: weighted points in natural units, as Domain.decode returns them, with every cell within the domain.

The file is split into lines here, so that a quotation mark cannot reach beyond its line. Arrow's CSV reader then
splits the lines into texts, without guessing types, and each text is matched against the pattern of its column's kind
before it is converted. Conversion does not depend on the locale.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Cyclic, Date, Integer, Number
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file.archive import BLOCK, POINTS, Member
from kmeanalyst.releases.file.limits import limits, refusal, refusing, too_large

_CELLS_OF_A_TEXT = 4  # what a text counts as, at least: each becomes an object
_BYTES_OF_A_CELL = 24  # the longest number, -2.2250738585072014e-308
_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")
_REAL = r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"  # regular expressions of RE2, for the cells that are no texts
_PATTERNS: dict[type[Column], str] = {
    Boolean: "true|false", Date: "[0-9]{4}-[0-9]{2}-[0-9]{2}", Integer: "-?[0-9]+",
}  # fmt: skip
_LINES = re.compile(rb'(?:(?:"[^"\n]*+(?:""[^"\n]*+)*+"|[^",\n]*+)[,\n])*+')  # possessive: never read twice


def check_size(n_points: int, domain: Domain) -> None:
    """FileRefused for more points, or cells of points, than the limits."""
    if n_points > limits().points:
        raise too_large(f"{n_points} points", f"at most {limits().points} are read")
    if (cells := n_points * cells_of_a_row(domain)) > limits().cells:
        raise too_large(
            f"{n_points} points of {len(domain)} columns", f"they make {cells} cells, and at most {limits().cells} are read"
        )


def cells_of_a_row(domain: Domain) -> int:
    """The cells that a row counts as: 1 for a number and for the weight, more for long levels and texts (FORMAT.md §8)."""
    return 1 + sum(map(_cells_of, domain.columns))


def _cells_of(column: Column) -> int:
    if isinstance(column, Text):
        return max(_CELLS_OF_A_TEXT, column.width, -(-column.length // 8))
    if is_text(column):
        return -(-max(len(quoted(level).encode()) for level in column.levels) // _BYTES_OF_A_CELL)  # type: ignore[attr-defined]
    return 1


def is_text(column: Column) -> bool:
    return isinstance(column, Text) or (isinstance(column, Categorical) and not isinstance(column, Boolean))


def quoted(text: str) -> str:
    """A text as a cell of a CSV file, in quotation marks where RFC 4180 needs them.

    >>> quoted("Basel"), quoted('5" pipe, old')
    ('Basel', '"5"" pipe, old"')
    """
    return '"' + text.replace('"', '""') + '"' if '"' in text or "," in text else text


def arrow_type(column: Column) -> Any:
    if is_text(column):
        return pa.string()
    return {Boolean: pa.bool_(), Date: pa.date32(), Integer: pa.int64()}.get(type(column), pa.float64())


def points_and_weights(member: Member, domain: Domain, n_points: int) -> tuple[pd.DataFrame, Array]:
    """Points in natural units and levels, as Domain.decode returns them, and weights (M,)."""
    check_size(n_points, domain)
    with refusing(POINTS):
        *cells, weight = _arrow_columns(member, domain, n_points)
        columns = {column.name: _series(column, found) for column, found in zip(domain.columns, cells, strict=True)}
        if weight.null_count:
            raise refusal(f"{POINTS}, column weight", "a missing weight means nothing")
        weights = weight.to_numpy()
    if not np.isfinite(weights).all():
        raise refusal(f"{POINTS}, column weight", "a weight that is infinite means nothing")
    return pd.DataFrame(columns), weights


def _arrow_columns(member: Member, domain: Domain, n_points: int) -> list[Any]:
    """The columns of the file and the weight as Arrow's chunked arrays of n_points cells, an empty cell as null.

    Texts are dictionaries: a text that is repeated a million times is held once.
    """
    tables, n_rows = [], 0
    for i, block in enumerate(_whole_lines(member)):
        lines = _after_header(block, [*domain.names, "weight"]) if i == 0 else block
        if lines:
            tables.append(_table(lines, domain.columns))
            n_rows += len(tables[-1])
        if n_rows > n_points:
            raise refusal(f"{POINTS} has more than {n_points} rows", f"the header declares {n_points}")
    if n_rows != n_points:
        raise refusal(f"{POINTS} has {n_rows} rows", f"the header declares {n_points}")
    return list(pa.concat_tables(tables).unify_dictionaries().combine_chunks().columns)


def _whole_lines(member: Member) -> Iterator[bytes]:
    """The member in blocks of whole lines, none with a control character or an open quotation mark."""
    rest = b""
    for piece in member.blocks():
        block = rest + piece
        end = block.rfind(b"\n") + 1
        lines, rest = block[:end], block[end:]
        if len(rest) > BLOCK:
            raise refusal(POINTS, f"it has a line of more than {BLOCK} bytes")
        if _CONTROL.search(lines):
            raise refusal(POINTS, "it has a control character; lines end with U+000A, and there is no other")
        if lines.startswith(b"\n") or b"\n\n" in lines:  # Arrow would read a row of missing cells
            raise refusal(POINTS, "it has an empty line")
        if b'"' in lines and not _LINES.fullmatch(lines):
            raise refusal(POINTS, "it has a quotation mark that does not enclose a cell on one line")
        if lines:
            yield lines
    if rest:
        raise refusal(POINTS, "its last line does not end with U+000A")


def _after_header(lines: bytes, names: list[str]) -> bytes:
    header, _, others = lines.partition(b"\n")
    found = next(csv.reader([header.decode()], strict=True), [])
    if len(found) != len(names):
        raise refusal(f"{POINTS} has {len(found)} columns", f"domain and weight make {len(names)}")
    for one, name in zip(found, names, strict=True):
        if one != name:
            raise refusal(f"{POINTS} has other columns than declared", f"{one!r:.80} is in the place of {name!r:.80}")
    return others


def _table(lines: bytes, columns: Sequence[Column]) -> Any:
    text, names = pa.string(), [str(j) for j in range(len(columns) + 1)]
    types = [pa.dictionary(pa.int32(), text) if is_text(column) else text for column in columns]
    found = arrow_csv.read_csv(
        pa.BufferReader(lines),
        arrow_csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=names),
        arrow_csv.ParseOptions(ignore_empty_lines=False),
        arrow_csv.ConvertOptions(
            column_types=dict(zip(names, [*types, text], strict=True)), null_values=[""], strings_can_be_null=True
        ),
    )
    cells = [
        found.column(j)
        if is_text(column)
        else _convert(column.name, found.column(j), _PATTERNS.get(type(column), _REAL), arrow_type(column))
        for j, column in enumerate(columns)
    ]
    weight = _convert("weight", found.column(len(columns)), _REAL, pa.float64())
    return pa.Table.from_arrays([*cells, weight], names=names)


def _convert(name: str, cells: Any, pattern: str, kind: Any) -> Any:
    matched = pc.match_substring_regex(cells, f"^(?:{pattern})$")
    if pc.all(matched).as_py() is False:
        odd = cells.filter(pc.invert(matched))[0].as_py()
        raise refusal(f"{POINTS}, column {name}", f"{odd!r:.80} is not written as its kind is: {pattern}")
    with refusing(f"{POINTS}, column {name}"):
        return cells.cast(kind)


def _series(column: Column, values: Any) -> pd.Series:
    """A column as Domain.decode returns it; FileRefused for a value outside the domain or an undeclared empty cell."""
    if isinstance(column, Text):
        return _strings(column, values)
    if values.null_count and not column.missing:
        raise refusal(f"{POINTS}, column {column.name}", "it has empty cells, and the domain declares no missing value")
    if is_text(column):
        return column.decode(_codes(column, values))
    if isinstance(column, Boolean):
        return column.decode(values.cast("uint8").cast("float64").to_numpy())
    if isinstance(column, Date):
        days = values.cast("int32").cast("float64").to_numpy()
        _check_bounds(column, days, values.null_count, column.bounds)
        return column.decode(days)
    assert isinstance(column, Number)
    low, high = column.natural_bounds
    if isinstance(column, Integer):
        return _whole_numbers(column, values, math.ceil(low), math.floor(high))
    numbers = values.to_numpy()
    _check_bounds(column, numbers, values.null_count, (low, high))
    if isinstance(column, Cyclic) and (numbers == high).any():
        raise refusal(f"{POINTS}, column {column.name}", "it has its upper bound as a value, which stands for the lower one")
    return pd.Series(np.array(numbers), name=column.name)


def _whole_numbers(column: Column, values: Any, low: int, high: int) -> pd.Series:
    """Integers, compared with the bounds as integers: float64 has no 2^53 + 1."""
    whole = np.array(values.fill_null(low))
    _check_bounds(column, whole, 0, (low, high))
    if column.missing:
        return pd.Series(pd.arrays.IntegerArray(whole, np.array(values.is_null())), name=column.name)
    return pd.Series(whole, name=column.name)


def _strings(column: Text, values: Any) -> pd.Series:
    """Strings as Domain.decode returns them, each checked once, however often it is repeated."""
    has_empty = not column.missing and column.default is None
    if values.null_count and not (column.missing or has_empty):
        raise refusal(f"{POINTS}, column {column.name}", "it has empty cells, and neither a missing value nor an empty string")
    chunk = values.chunk(0)
    texts = chunk.dictionary.to_pylist()
    odd = [text for text in texts if column.held(text) != text]
    if odd:
        raise refusal(f"{POINTS}, column {column.name}", f"{odd[0]!r:.80} is not a string of its alphabet and length")
    codes = chunk.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    empty = np.full((1, column.width), 0.0 if has_empty else np.nan)
    return column.decode(np.vstack([column.encode(texts)[0], empty])).take(codes).reset_index(drop=True)


def _codes(column: Column, values: Any) -> Array:
    chunk = values.chunk(0)
    codes = {level: code for code, level in enumerate(column.levels)}  # type: ignore[attr-defined]
    levels = chunk.dictionary.to_pylist()
    unseen = [level for level in levels if level not in codes]
    if unseen:
        raise refusal(f"{POINTS}, column {column.name}", f"{unseen[0]!r:.80} is not one of its levels")
    indices = chunk.indices.cast("float64").to_numpy(zero_copy_only=False)
    missing = np.isnan(indices)
    known = np.array([float(codes[level]) for level in levels] or [0.0])
    return np.where(missing, np.nan, known[np.where(missing, 0, indices).astype(np.int64)])


def _check_bounds(column: Column, numbers: Array, n_missing: int, bounds: tuple[Any, Any]) -> None:
    inside = (numbers >= bounds[0]) & (numbers <= bounds[1])  # false for NaN, which stands for a missing cell
    if int(inside.sum()) + n_missing != len(numbers):
        raise refusal(f"{POINTS}, column {column.name}", "it has values outside its bounds")
