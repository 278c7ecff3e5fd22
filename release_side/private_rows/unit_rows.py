"""Encoded rows by unit, in memory or in files: what the door averages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from kmeanalyst.kernels.base import Array

MOST_ROWS = 2**34  # the first rows of a unit, which count: their integers add up in 64 bits
CHUNK_ROWS = 20_000  # records read at a time
Chunk: TypeAlias = bytes | Path  # records of one bucket, in memory or in a file


@dataclass(frozen=True, eq=False, repr=False)
class UnitRows:
    """Encoded rows, grouped by unit. A slice takes whole units, however many rows they have.

    encoded   (n, d) the rows of the table, in its own order.
    order     indices of rows, sorted by unit.
    bounds    (P + 1,) where each unit begins in `order`, and where the last one ends; a unit has 1 to 2³⁴ rows.
    """

    encoded: Array
    order: Array
    bounds: Array

    @classmethod
    def grouped(cls, encoded: Array, units: Array) -> UnitRows:
        """Rows (n, d) by unit: of each the first 2³⁴ rows. units (n, k): equal whole numbers for rows of one unit."""
        order = np.lexsort(units.T)
        changes = (units[order[1:]] != units[order[:-1]]).any(axis=1)
        starts = np.flatnonzero(np.concatenate([[True], changes]))
        sizes = np.diff(np.append(starts, len(order)))
        if sizes.max() > MOST_ROWS:
            number = np.arange(len(order)) - np.repeat(starts, sizes)
            order, sizes = order[number < MOST_ROWS], np.minimum(sizes, MOST_ROWS)
        return cls(encoded, order, np.concatenate([[0], np.cumsum(sizes)]))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, units: slice) -> UnitRows:
        start, stop, _ = units.indices(len(self))
        return replace(self, bounds=self.bounds[start : stop + 1])

    @property
    def sizes(self) -> Array:
        """The number of rows (P,) of each unit."""
        return np.diff(self.bounds)

    def chunks(self, most: int) -> Iterator[tuple[Array, Array]]:
        """(unit of each row (n_i,) in rising order, encoded rows (n_i, d)), at most that many rows at a time."""
        for start in range(self.bounds[0], self.bounds[-1], most):
            indices = np.arange(start, min(start + most, self.bounds[-1]))
            yield np.searchsorted(self.bounds, indices, side="right") - 1, self.encoded[self.order[indices]]


@dataclass(frozen=True, eq=False, repr=False)
class OneUnit(UnitRows):
    """A unit of so many rows that they stay on the disk. `encoded` and `order` are empty.

    bucket   the files, one after the other.
    """

    bucket: Sequence[Chunk]

    def chunks(self, most: int) -> Iterator[tuple[Array, Array]]:
        left = int(self.bounds[-1])
        for records in records_of(self.bucket, record_of(self.encoded.shape[1]), most):
            rows = records["row"][:left]
            left -= len(rows)
            if len(rows):
                yield np.zeros(len(rows), dtype=np.intp), rows


# ---------------------------------------------------------------------- records


def record_of(width: int) -> np.dtype[Any]:
    """A row with the digest of its unit's identifier."""
    return np.dtype([("unit", "<u8", 2), ("row", "<f8", (width,))])


def size_of(bucket: Sequence[Chunk]) -> int:
    """Bytes of the records of a bucket."""
    return sum(len(chunk) if isinstance(chunk, bytes) else chunk.stat().st_size for chunk in bucket)


def records_of(bucket: Sequence[Chunk], record: np.dtype[Any], most: int) -> Iterator[Array]:
    """The records of a bucket, at most so many at a time."""
    for chunk in bucket:
        if isinstance(chunk, bytes):
            held = np.frombuffer(chunk, dtype=record)
            yield from (held[start : start + most] for start in range(0, len(held), most))
            continue
        with open(chunk, "rb") as file:
            while len(found := np.fromfile(file, dtype=record, count=most)):
                yield found


def is_one_unit(bucket: Sequence[Chunk], record: np.dtype[Any]) -> bool:
    """Whether all records of a bucket, one at least, are of one unit."""
    first = next(records_of(bucket, record, 1))["unit"][0]
    return all((each["unit"] == first).all() for each in records_of(bucket, record, CHUNK_ROWS))
