"""Rows brought together by unit, in bounded memory: each goes to a bucket that its unit's digest chooses.

A first pass scatters the rows of every part of a table, a second divides the buckets that are too large to be held. What memory
does not hold is in files of a folder that the caller removes.
"""

from __future__ import annotations

import datetime
import decimal
import math
import secrets
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import cell_by_cell
from kmeanalyst.releases.domain.domain import Domain
from release_side.private_rows import unit_rows
from release_side.private_rows.table import PrivateTable

_BITS = 6  # of a digest choose a bucket
BUCKETS = 2**_BITS
_LEVELS = 10  # how often a bucket can be divided
_MOST_BYTES = 2**22  # bytes of a bucket that are held while its units are read


class _Spool:
    """Records by bucket: so many bytes are held, and what goes beyond is written to files, one for each bucket.

    level   which bits of a unit's digest choose its bucket.
    """

    def __init__(self, folder: str | None, level: int, most: int) -> None:
        self._name = None if folder is None else Path(folder, secrets.token_hex(8))
        self._shift, self._most, self._n_held = np.uint64(_BITS * level), most, 0
        self._held: list[list[bytes]] = [[] for _ in range(BUCKETS)]
        self._written = [False] * BUCKETS

    def add(self, records: Array) -> None:
        bucket = (records["unit"][:, 0] >> self._shift) & np.uint64(BUCKETS - 1)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(BUCKETS + 1, dtype=np.uint64))
        for each, start, stop in zip(self._held, ends, ends[1:], strict=False):
            if start < stop:
                each.append(records[order[start:stop]].tobytes())
        self._n_held += records.nbytes
        if self._name is not None and self._n_held > self._most:
            self._write()

    def buckets(self) -> list[unit_rows.Chunk]:
        """The records of each bucket."""
        if any(self._written):
            self._write()
        return [self._path(i) if written else b"".join(self._held[i]) for i, written in enumerate(self._written)]

    def _write(self) -> None:
        for i, held in enumerate(self._held):
            if held:
                with open(self._path(i), "ab") as file:
                    file.writelines(held)
                held.clear()
                self._written[i] = True
        self._n_held = 0

    def _path(self, bucket: int) -> Path:
        assert self._name is not None
        return self._name.with_suffix(f".{bucket}")


@dataclass(frozen=True, eq=False, repr=False)
class Scatter:
    """The work of a first pass: a part of a table → its records in each bucket.

    key      of the digests: others could find two identifiers with one digest if they knew it.
    folder   for records beyond so many bytes; None where all are held.
    """

    column: str
    domain: Domain
    key: bytes
    folder: str | None
    most: int

    def __call__(self, part: PrivateTable) -> list[unit_rows.Chunk]:
        part.check_readable()
        spool, record = _Spool(self.folder, 0, self.most), unit_rows.record_of(self.domain.width)
        for cells, encoded in part.identified(self.column, self.domain):
            records = np.empty(len(encoded), dtype=record)
            records["unit"] = digests(cells, self.key)
            records["row"] = encoded
            spool.add(records)
        return spool.buckets()


@dataclass(frozen=True, eq=False, repr=False)
class Settle:
    """The work of a second pass: a bucket → its number of units, and the smaller buckets that it was divided into, or None."""

    width: int
    folder: str | None

    def __call__(self, bucket: Sequence[unit_rows.Chunk]) -> tuple[int, list[list[unit_rows.Chunk]] | None]:
        if not self._is_large(bucket):
            return self._count(bucket), None
        leaves = list(self._leaves(bucket, 1))
        return sum(map(self._count, leaves)), leaves

    def _leaves(self, bucket: list[unit_rows.Chunk] | Sequence[unit_rows.Chunk], level: int) -> Iterator[list[unit_rows.Chunk]]:
        if level == _LEVELS or not self._is_large(bucket) or unit_rows.is_one_unit(bucket, unit_rows.record_of(self.width)):
            yield list(bucket)
            return
        spool = _Spool(self.folder, level, _MOST_BYTES)
        for records in unit_rows.records_of(bucket, unit_rows.record_of(self.width), unit_rows.CHUNK_ROWS):
            spool.add(records)
        for chunk in spool.buckets():
            yield from self._leaves([chunk], level + 1)

    def _is_large(self, bucket: Sequence[unit_rows.Chunk]) -> bool:
        return self.folder is not None and unit_rows.size_of(bucket) > _MOST_BYTES

    def _count(self, bucket: Sequence[unit_rows.Chunk]) -> int:
        return sum(map(len, ReadUnits(self.width)(bucket)))


@dataclass(frozen=True, eq=False, repr=False)
class ReadUnits:
    """A bucket → its units, each with all its rows."""

    width: int

    def __call__(self, bucket: Sequence[unit_rows.Chunk]) -> Iterator[unit_rows.UnitRows]:
        record, size = unit_rows.record_of(self.width), unit_rows.size_of(bucket)
        if not size:
            return
        if size > _MOST_BYTES and unit_rows.is_one_unit(bucket, record):
            n_rows = min(size // record.itemsize, unit_rows.MOST_ROWS)
            yield unit_rows.OneUnit(np.zeros((0, self.width)), np.zeros(0, np.intp), np.array([0, n_rows]), bucket)
            return
        units, rows = np.empty((size // record.itemsize, 2), np.uint64), np.empty((size // record.itemsize, self.width))
        filled = 0
        for records in unit_rows.records_of(bucket, record, unit_rows.CHUNK_ROWS):
            place = slice(filled, filled + len(records))
            units[place], rows[place] = records["unit"], records["row"]
            filled += len(records)
        yield unit_rows.UnitRows.grouped(rows, units)


# ---------------------------------------------------------------------- identifiers

NO_IDENTIFIER = ""  # the identifier in an empty cell: all such rows are the rows of one unit


def digests(cells: Any, key: bytes) -> Array:
    """Of the identifiers in cells: (n, 2) unsigned, 128 bits each. Different identifiers have different ones.

    key   others could find two identifiers with one digest if they knew it.
    """
    found: dict[str | bytes, bytes] = {}
    identifiers = [identifier(cell) for cell in cell_by_cell(cells)]
    for each in identifiers:
        if each not in found:
            found[each] = blake2b(_as_bytes(each), digest_size=16, key=key).digest()
    return np.frombuffer(b"".join(found[each] for each in identifiers), dtype="<u8").reshape(-1, 2)


def _as_bytes(each: str | bytes) -> bytes:
    """Different bytes for different identifiers: text is not bytes."""
    return b"t" + each.encode("utf-8", "surrogatepass") if isinstance(each, str) else b"b" + each


def identifier(cell: Any) -> str | bytes:
    """The identifier in a cell, as text; NO_IDENTIFIER for an empty cell, and for an object that identifies no unit.

    Whole numbers are exact however long they are, and 13, 13.0 and "13" are one identifier. Never raises.
    """
    try:
        return _identifier(cell)
    except Exception:  # depends on the value of a private cell, so it must not leave this module
        return NO_IDENTIFIER


def _identifier(cell: Any) -> str | bytes:
    if isinstance(cell, str):
        return str.__str__(cell)
    if isinstance(cell, bytes):
        return bytes(cell) or NO_IDENTIFIER
    if isinstance(cell, bool | np.bool_):
        return "True" if cell else "False"
    if isinstance(cell, int | np.integer) and not isinstance(cell, np.timedelta64):
        return _whole(int(cell))
    if isinstance(cell, decimal.Decimal):
        return _of_number(cell, small=cell.is_finite() and cell.adjusted() < 300)
    if isinstance(cell, float | np.floating):
        return _of_number(cell, small=math.isfinite(cell))
    if isinstance(cell, datetime.date):
        return NO_IDENTIFIER if cell != cell else cell.isoformat()
    if isinstance(cell, uuid.UUID | np.datetime64):
        return NO_IDENTIFIER if cell != cell else str(cell)
    return NO_IDENTIFIER


def _of_number(number: Any, *, small: bool) -> str:
    """A number as text: exact, and as a whole number where it is one that can be written out."""
    if number != number:
        return NO_IDENTIFIER
    return _whole(int(number)) if small and number == int(number) else str(number)


def _whole(number: int) -> str:
    return str(number) if abs(number) < 2**1024 else hex(number)
