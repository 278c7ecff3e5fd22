"""Parquet's own description of points.parquet, read and held against the header before pyarrow sees it.

A forged footer has ended the process (an uncaught C++ exception in pyarrow's metadata classes), and what it says
of sizes must be known before anything is read. So it is parsed here: a struct of Thrift's compact protocol, whose
fields are numbered as in parquet.thrift.
"""

from __future__ import annotations

import io
from typing import Any

from kmeanalyst.releases.file.archive import POINTS
from kmeanalyst.releases.file.refusal import MOST_FOOTER_BYTES, MOST_ROW_GROUPS, refusal

_MOST_THRIFT_DEPTH = 12


def footer_of(data: bytes | memoryview) -> dict[int, Any]:
    """The footer as {field number: value}; ValueError or IndexError if it cannot be one."""
    size = int.from_bytes(data[-8:-4], "little")
    if not (data[:4] == data[-4:] == b"PAR1" and 0 < size <= min(len(data) - 12, MOST_FOOTER_BYTES)):
        raise ValueError("not a Parquet file, or its footer does not fit")
    return _thrift_struct(io.BytesIO(data[-8 - size : -8]), depth=1)


def check_footer(footer: dict[int, Any], n_columns: int, n_points: int, n_bytes: int) -> None:
    """Rows, columns and sizes as declared, and nothing compressed."""
    if footer[3] != n_points:
        raise refusal(f"{POINTS} has {footer[3]} rows", f"the header declares {n_points}")
    if any(entry[1] == b"ARROW:schema" for entry in footer.get(5, ())):
        raise refusal(f"{POINTS} has an ARROW:schema entry", "the types of a release are those of Parquet itself")
    groups = footer[4]
    if len(groups) > MOST_ROW_GROUPS:
        raise refusal(f"{POINTS} has {len(groups)} row groups", f"at most {MOST_ROW_GROUPS} are read")
    if sum(group[3] for group in groups) != n_points or any(group[3] < 0 for group in groups):
        raise refusal(f"{POINTS} has row groups", f"they do not make {n_points} rows")
    for group in groups:
        if len(group[1]) != n_columns:
            raise refusal(f"{POINTS} has {len(group[1])} columns", f"domain and weight make {n_columns}")
        for chunk in group[1]:
            _check_chunk(chunk, group[3], n_bytes)


def _check_chunk(chunk: dict[int, Any], n_rows: int, n_bytes: int) -> None:
    described = chunk[3]
    what = f"{POINTS}, column {b'.'.join(described[3]).decode()!r:.80}"
    if described[4] != 0:
        raise refusal(f"{what} is compressed", "its size cannot be known beforehand")
    elsewhere = {1, 8, 9} & set(chunk)  # another file's path, or encryption
    if elsewhere or described[5] != n_rows or not 0 <= described[7] == described[6] <= n_bytes:
        raise refusal(what, "its description does not fit the file")


def _thrift_struct(stream: io.BytesIO, *, depth: int) -> dict[int, Any]:
    """A struct of Thrift's compact protocol."""
    table: dict[int, Any] = {}
    number = 0
    while head := stream.read(1)[0]:
        number = number + (head >> 4) if head >> 4 else _thrift_whole(stream)
        if number in table:
            raise ValueError(f"field {number} occurs twice")
        table[number] = _thrift_value(stream, head & 15, depth=depth)
    return table


def _thrift_value(stream: io.BytesIO, kind: int, *, depth: int) -> Any:
    if kind in (1, 2):  # a boolean, which is its kind
        return kind == 1
    if kind in (4, 5, 6):
        return _thrift_whole(stream)
    if kind in (3, 7, 8):
        size = {3: 1, 7: 8}.get(kind) or _thrift_size(stream)
        return stream.read(size)
    if kind in (9, 12) and depth > _MOST_THRIFT_DEPTH:
        raise ValueError("structs nested too deep")
    if kind == 9:
        head = stream.read(1)[0]
        size = head >> 4 if head >> 4 < 15 else _thrift_size(stream)
        if head & 15 in (1, 2):
            raise ValueError("a list of booleans")  # would take no bytes here, and there is none in a footer
        return [_thrift_value(stream, head & 15, depth=depth + 1) for _ in range(size)]
    if kind == 12:
        return _thrift_struct(stream, depth=depth + 1)
    raise ValueError(f"values of kind {kind}")


def _thrift_whole(stream: io.BytesIO) -> int:
    size = _thrift_size(stream)
    return (size >> 1) ^ -(size & 1)


def _thrift_size(stream: io.BytesIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = stream.read(1)[0]  # IndexError at the end
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise ValueError("a whole number of more than 64 bits")
