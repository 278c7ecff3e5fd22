"""Tables in which a unit has several rows: which unit has which, and the rows of each together.

A unit is whatever the identifiers of one column tell apart: a patient, a household, a visit. The number of units is
public, as the number of rows is elsewhere; how many rows there are, in all or of one unit, is not: nothing here says,
counts aloud or refuses anything by it. Identifiers are compared as text and forgotten; what is kept of them is which
rows belong together.

Source   Balog, Tolstikhin & Schölkopf 2018, §7: rows that are identically distributed, but not independent.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import cell_by_cell
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.statement import LONGEST_UNIT, is_unit_name
from release_side.errors import PublishError
from release_side.private_rows.rows import PrivateTable, silently

NO_IDENTIFIER = ""  # of an empty cell: all such rows are the rows of one unit
_MOST_ROWS = 2**32  # of one unit that count, the first ones: their integers add up in 64 bits


def check_unit(unit: str, header: list[str], domain: Domain) -> None:
    """PublishError unless the column of identifiers is there, once, has a name to publish, and is not published itself."""
    if unit in domain.names:
        raise PublishError(
            f"column {unit!r} is named as the unit and is in the domain: what identifies units is never published. "
            "Remove it from the domain."
        )
    if header.count(unit) != 1:
        found = "no column" if unit not in header else "more than one column"
        raise PublishError(
            f"the private table has {found} {unit!r}, so the rows of a unit cannot be found. Name the one column that "
            "identifies the units."
        )
    if not is_unit_name(unit):
        raise PublishError(
            f"column {unit!r:.80} is named as the unit, and its name cannot stand in a file: it has more than {LONGEST_UNIT} "
            "characters, or some that cannot be printed. Rename the column."
        )


def units_of(table: PrivateTable, column: str, domain: Domain) -> Units:
    """The units that the cells of this column tell apart; PublishError, by the header alone, if none can be."""
    check_unit(column, table.header, domain)
    return Units.of(table, column)


@dataclass(frozen=True, eq=False, repr=False)
class Units:
    """Which unit each row of a table is of.

    codes   (n,) the unit of each row, 0, 1, …, in the order in which they are met.
    count   P, how many units there are; public.
    """

    codes: Array
    count: int

    @classmethod
    def of(cls, table: PrivateTable, column: str) -> Units:
        """The units that the cells of this column tell apart. Reads the column, and keeps no identifier."""
        places: dict[str | bytes, int] = {}
        table.count()  # what is wrong with the files is told there; the number is not used
        pieces = table.identifiers(column)
        parts = [np.zeros(0, dtype=np.intp)]
        while (keys := silently(lambda: _identifiers(next(pieces, None)))) is not None:
            parts.append(np.fromiter((places.setdefault(key, len(places)) for key in keys), np.intp, len(keys)))
        return cls(np.concatenate(parts), len(places))

    def grouped(self, encoded: Iterable[Array]) -> Iterator[UnitRows]:
        """The table's encoded rows, by unit, as one piece: what the door takes. Read when the door asks for it."""
        rows, filled = np.zeros((len(self.codes), 0)), 0
        for piece in encoded:
            rows = rows if filled else np.empty((len(self.codes), piece.shape[1]))
            rows[filled : filled + len(piece)] = piece[: len(rows) - filled]
            filled += len(piece)
        if filled != len(rows):
            raise PublishError("the private table was changed while it was read. Publish a table that stays as it is.")
        order = np.argsort(self.codes, kind="stable")
        sizes = np.bincount(self.codes, minlength=self.count)
        if sizes.max() > _MOST_ROWS:
            place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            order, sizes = order[place < _MOST_ROWS], np.minimum(sizes, _MOST_ROWS)
        yield UnitRows(rows, order, np.concatenate([[0], np.cumsum(sizes)]))


@dataclass(frozen=True, eq=False, repr=False)
class UnitRows:
    """Encoded rows of units, of which slices are taken like those of an array: unit by unit, whatever rows they have.

    encoded   (n, d) the rows of the table, in its own order.
    order     numbers of rows, those of a unit one after the other.
    bounds    (P + 1,) where in `order` each unit begins, and the last one ends; a unit has 1 to 2³² rows.
    """

    encoded: Array
    order: Array
    bounds: Array

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, units: slice) -> UnitRows:
        start, stop, _ = units.indices(len(self))
        return UnitRows(self.encoded, self.order, self.bounds[start : stop + 1])

    @property
    def sizes(self) -> Array:
        """(P,) how many rows each unit has."""
        return np.diff(self.bounds)

    def chunks(self, most: int) -> Iterator[tuple[Array, Array]]:
        """(unit of each row (n_i,) in rising order, encoded rows (n_i, d)), at most so many rows at a time."""
        for start in range(self.bounds[0], self.bounds[-1], most):
            places = np.arange(start, min(start + most, self.bounds[-1]))
            yield np.searchsorted(self.bounds, places, side="right") - 1, self.encoded[self.order[places]]


def _identifiers(cells: Any) -> list[str | bytes] | None:
    return None if cells is None else [identifier(cell) for cell in cell_by_cell(cells)]


def identifier(cell: Any) -> str | bytes:
    """What a cell says of whose row it is; NO_IDENTIFIER for an empty cell, and for a thing that names nobody.

    Whole numbers are told apart exactly however long they are, and 13, 13.0 and "13" are one identifier. Never raises.
    """
    try:
        return _identifier(cell)
    except Exception:  # by the value of a private cell: whatever it is, it must not leave this module
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
    """In decimal; in hexadecimal where Python would refuse to write it in decimal."""
    return str(number) if abs(number) < 2**1024 else hex(number)
