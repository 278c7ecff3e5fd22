"""Identifiers of units: the text in a cell, compared exactly, and a digest that stands for it."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from hashlib import blake2b
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import cell_by_cell

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
    """Different bytes for different identifiers: text is no bytes."""
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
    """In decimal; in hexadecimal where Python would refuse to write it in decimal."""
    return str(number) if abs(number) < 2**1024 else hex(number)
