"""Tables in which a unit has several rows: which unit has which, and the rows of each together.

The identifiers in one column distinguish the units: patients, households, visits. The number of units is public, as the
number of rows is elsewhere. The number of rows, in all or of one unit, is not: no message, count or refusal here depends
on it. Identifiers are compared as text and discarded; only the information which rows belong together remains.

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
from release_side.private_rows.table import PrivateTable, silently

NO_IDENTIFIER = ""  # the identifier in an empty cell: all such rows are the rows of one unit
_MOST_ROWS = 2**34  # the first rows of a unit, which count: their integers add up in 64 bits


def units_of(table: PrivateTable, column: str, domain: Domain) -> Units:
    """The units that the cells of this column distinguish; PublishError as `check_unit`."""
    check_unit(table, column, domain)
    return Units.of(table, column)


def check_unit(table: PrivateTable, column: str, domain: Domain) -> None:
    """Check that a column can identify units.

    Errors   PublishError, by the header and the declared types alone, unless the column is there, once, has a name that can
             be published and a type that can identify, and is not published itself.
    """
    header = table.header
    if column in domain.names:
        raise PublishError(
            f"column {column!r} is named as the unit and is in the domain: what identifies units is never published. "
            "Remove it from the domain."
        )
    if header.count(column) != 1:
        found = "no column" if column not in header else "more than one column"
        raise PublishError(
            f"the private table has {found} {column!r}, so the rows of a unit cannot be found. Name the one column that "
            "identifies the units."
        )
    if not is_unit_name(column):
        raise PublishError(
            f"column {column!r:.80} is named as the unit, and its name cannot stand in a file: it has more than {LONGEST_UNIT} "
            "characters, or some that cannot be printed. Rename the column."
        )
    if why := table.refusal(column, None):
        raise PublishError(why)


@dataclass(frozen=True, eq=False, repr=False)
class Units:
    """The unit of each row of a table.

    codes   (n,) the unit of each row: 0, 1, …, in the order of their first rows.
    count   P, the number of units; public.
    """

    codes: Array
    count: int

    @classmethod
    def of(cls, table: PrivateTable, column: str) -> Units:
        """The units that the cells of this column distinguish. Reads the column, and stores no identifier."""
        codes: dict[str | bytes, int] = {}
        table.check_readable()
        pieces = table.identifiers(column)
        parts = [np.zeros(0, dtype=np.intp)]
        while (keys := silently(lambda: _identifiers(next(pieces, None)))) is not None:
            parts.append(np.fromiter((codes.setdefault(key, len(codes)) for key in keys), np.intp, len(keys)))
        return cls(np.concatenate(parts), len(codes))

    def grouped(self, encoded: Iterable[Array]) -> Iterator[UnitRows]:
        """The table's encoded rows, by unit, as one piece for the door. They are read when the door iterates."""
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
            number = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            order, sizes = order[number < _MOST_ROWS], np.minimum(sizes, _MOST_ROWS)
        yield UnitRows(rows, order, np.concatenate([[0], np.cumsum(sizes)]))


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

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, units: slice) -> UnitRows:
        start, stop, _ = units.indices(len(self))
        return UnitRows(self.encoded, self.order, self.bounds[start : stop + 1])

    @property
    def sizes(self) -> Array:
        """The number of rows (P,) of each unit."""
        return np.diff(self.bounds)

    def chunks(self, most: int) -> Iterator[tuple[Array, Array]]:
        """(unit of each row (n_i,) in rising order, encoded rows (n_i, d)), at most that many rows at a time."""
        for start in range(self.bounds[0], self.bounds[-1], most):
            indices = np.arange(start, min(start + most, self.bounds[-1]))
            yield np.searchsorted(self.bounds, indices, side="right") - 1, self.encoded[self.order[indices]]


def _identifiers(cells: Any) -> list[str | bytes] | None:
    return None if cells is None else [identifier(cell) for cell in cell_by_cell(cells)]


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
    """In decimal; in hexadecimal where Python would refuse to write it in decimal."""
    return str(number) if abs(number) < 2**1024 else hex(number)
