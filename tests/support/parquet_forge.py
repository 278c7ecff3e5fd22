"""A forger's tools for Parquet: its descriptions taken apart with every kind kept, edited, and put together again."""

from __future__ import annotations

import struct
from typing import Any

Fields = list[list[Any]]  # [number, kind, value] of a Thrift struct; a list is (kind of its entries, entries)


def uvarint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def parsed_struct(data: bytes, place: int = 0) -> tuple[Fields, int]:
    """The fields of a struct, and where it ends."""
    fields, number = [], 0
    while (head := data[place]) != 0:
        number, place = number + (head >> 4), place + 1
        value, place = _parsed(data, place, head & 15)
        fields.append([number, head & 15, value])
    return fields, place + 1


def _parsed(data: bytes, place: int, kind: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, place
    if kind == 3:
        return data[place], place + 1
    if kind == 12:
        return parsed_struct(data, place)
    if kind == 9:
        size, inner, place = data[place] >> 4, data[place] & 15, place + 1
        size, place = _uvarint_at(data, place) if size == 15 else (size, place)
        entries = []
        for _ in range(size):
            entry, place = _parsed(data, place, inner)
            entries.append(entry)
        return (inner, entries), place
    size, place = _uvarint_at(data, place)
    return (data[place : place + size], place + size) if kind == 8 else ((size >> 1) ^ -(size & 1), place)


def _uvarint_at(data: bytes, place: int) -> tuple[int, int]:
    end = next(i for i in range(place, len(data)) if data[i] < 128)
    return sum((data[i] & 127) << 7 * (i - place) for i in range(place, end + 1)), end + 1


def struct_of(fields: Fields) -> bytes:
    out, last = bytearray(), 0
    for number, kind, value in fields:
        out += bytes([(number - last) << 4 | (2 - value if kind in (1, 2) else kind)]) + _of(kind, value)
        last = number
    return bytes(out) + b"\0"


def _of(kind: int, value: Any) -> bytes:
    if kind in (1, 2):
        return b""
    if kind == 3:
        return bytes([value])
    if kind == 12:
        return struct_of(value)
    if kind == 9:
        return bytes([0xF0 | value[0]]) + uvarint(len(value[1])) + b"".join(_of(value[0], v) for v in value[1])
    return uvarint(len(value)) + value if kind == 8 else uvarint((value << 1) ^ (value >> 63))


def at(fields: Fields, *numbers: int) -> Any:
    """The value of a field within a field, and so on; an entry of a list is reached by its place from 1."""
    value: Any = fields
    for number in numbers:
        value = value[1][number - 1] if isinstance(value, tuple) else next(f[2] for f in value if f[0] == number)
    return value


def put(fields: Fields, *numbers: int, to: Any) -> None:
    next(f for f in at(fields, *numbers[:-1]) if f[0] == numbers[-1])[2] = to


class Forge:
    """A Parquet file in parts: the footer, and for each row group and column its pages as [header, body]."""

    def __init__(self, data: bytes) -> None:
        size = int.from_bytes(data[-8:-4], "little")
        self.footer = parsed_struct(data[-8 - size : -8])[0]
        self.original, self.pages_end = data, len(data) - 8 - size
        self.groups = [[self._pages(data, chunk) for chunk in at(g, 1)[1]] for g in at(self.footer, 4)[1]]

    @staticmethod
    def _pages(data: bytes, chunk: Fields) -> list[list[Any]]:
        described = {f[0]: f[2] for f in at(chunk, 3)}
        place, pages = described.get(11) or described[9], []
        stop = place + described[7]
        while place < stop:
            header, begin = parsed_struct(data, place)
            place = begin + at(header, 3)
            pages.append([header, data[begin:place]])
        return pages

    def with_footer(self) -> bytes:
        """The pages as they were, and the footer as it is now."""
        return closed(self.original[: self.pages_end], self.footer)

    def with_pages(self) -> bytes:
        """The pages as they are now, and a footer that knows where they are."""
        out = bytearray(b"PAR1")
        for group, columns in zip(at(self.footer, 4)[1], self.groups, strict=True):
            for chunk, pages in zip(at(group, 1)[1], columns, strict=True):
                begin, places = len(out), {}
                for header, body in pages:
                    places.setdefault(at(header, 1) == 2, len(out))
                    out += struct_of(header) + body
                for number, place in ((6, len(out) - begin), (7, len(out) - begin), (9, places.get(False, begin))):
                    put(chunk, 3, number, to=place)
                if True in places:
                    put(chunk, 3, 11, to=places[True])
        return closed(bytes(out), self.footer)


def closed(pages: bytes, footer: Fields | bytes) -> bytes:
    """A file of these pages and this footer."""
    text = footer if isinstance(footer, bytes) else struct_of(footer)
    return pages + text + struct.pack("<I", len(text)) + b"PAR1"


def sized(page: list[Any], body: bytes) -> None:
    """Give a page another body, and its header the length of it."""
    page[1] = body
    for number in (2, 3):
        put(page[0], number, to=len(body))
