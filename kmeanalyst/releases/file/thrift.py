"""Thrift's compact protocol, in which Parquet describes itself: structs of numbered fields, read and written.

Reading is bounded by the bytes that are there: no size is believed before its bytes have been seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TRUE, FALSE, BYTE, I32, I64, DOUBLE, TEXT, LIST, STRUCT = 1, 2, 3, 5, 6, 7, 8, 9, 12  # kinds of values
_WHOLE = (4, I32, I64)
_MOST_DEPTH = 12

Struct = dict[int, Any]  # field number → value
Field = tuple[int, int, Any]  # number, kind, value


class Reader:
    """A place in bytes that moves forward as values are taken; ValueError at their end."""

    def __init__(self, data: bytes | memoryview, place: int, stop: int) -> None:
        self.data, self.place, self.stop = data, place, stop

    def take(self, size: int) -> bytes:
        """The next bytes, if there are so many."""
        if size > self.stop - self.place:
            raise ValueError("it ends within a value")
        self.place += size
        return bytes(self.data[self.place - size : self.place])

    def struct(self, depth: int = 1) -> Struct:
        """The fields of a struct, by number."""
        table: Struct = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._whole()
            if number in table:
                raise ValueError(f"field {number} occurs twice")
            table[number] = self._value(head & 15, depth)
        return table

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind in _WHOLE:
            return self._whole()
        if kind == BYTE:
            return self._byte()
        if kind in (DOUBLE, TEXT):
            return self.take(8 if kind == DOUBLE else self._size())
        if kind in (LIST, STRUCT) and depth > _MOST_DEPTH:
            raise ValueError("structs nested too deep")
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind == LIST:
            return self._list(depth)
        raise ValueError(f"values of kind {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4 if head >> 4 < 15 else self._size(), head & 15
        if kind in (TRUE, FALSE):
            raise ValueError("a list of booleans")  # would take no bytes here, and there is none in Parquet
        if size > self.stop - self.place:  # each entry takes a byte or more
            raise ValueError("a list is longer than what follows")
        return [self._value(kind, depth + 1) for _ in range(size)]

    def _whole(self) -> int:
        size = self._size()
        return (size >> 1) ^ -(size & 1)

    def _size(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a whole number of more than 64 bits")

    def _byte(self) -> int:
        if self.place >= self.stop:
            raise ValueError("it ends within a value")
        self.place += 1
        return self.data[self.place - 1]


def struct_bytes(fields: Sequence[Field]) -> bytes:
    """A struct of fields in ascending order; a list is (kind, entries), and a struct its own sequence of fields."""
    out, last = bytearray(), 0
    for number, kind, value in fields:
        out.append((number - last) << 4 | kind)  # numbers of Parquet are never 16 apart
        out += _value_bytes(kind, value)
        last = number
    return bytes(out) + b"\0"


def _value_bytes(kind: int, value: Any) -> bytes:
    if kind in _WHOLE:
        return _size_bytes(value << 1 if value >= 0 else (-value << 1) - 1)
    if kind == TEXT:
        return _size_bytes(len(value)) + value
    if kind == STRUCT:
        return struct_bytes(value)
    if kind == LIST:
        inner, entries = value
        return bytes([0xF0 | inner]) + _size_bytes(len(entries)) + b"".join(_value_bytes(inner, e) for e in entries)
    return b""  # a boolean is its kind


def _size_bytes(size: int) -> bytes:
    out = bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size])
