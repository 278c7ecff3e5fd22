"""Which declared types of Arrow columns can be read as which columns of a domain: public facts, known before a row is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types

from kmeanalyst.releases.domain.cells import NO_CELL
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.sources.arrow_cells import cell_of


def why_refused(declared: Any, column: Column | None) -> str:
    """Why cells of a declared type (a pyarrow.Field) are not read as this column; "" if they are. A public fact.

    column   None for a column that identifies units.
    """
    kind = declared.type.storage_type if isinstance(declared.type, pa.BaseExtensionType) else declared.type
    while pa.types.is_dictionary(kind):
        kind = kind.value_type
    why, fix = _misfit_of_postgresql(declared, column)
    if not why:
        why, fix = _misfit(kind, _extension_of(declared), column)
    if not why and _is(kind, _NUMBERS):
        return why_zeros_are_lost(declared.name, declared.type, column)
    return f"column {declared.name!r:.80} has the type {declared.type!s:.80}: {why}. {fix}." if why else ""


def why_zeros_are_lost(name: str, declared: Any, column: Column | None) -> str:
    """Why numbers are not read as levels of which one is digits after a zero, such as "01"; "" if none is."""
    lost = next((level for level in getattr(column, "levels", ()) if re.fullmatch(r"0\d+", level)), "")
    return lost and (
        f"column {name!r:.80} has the type {declared!s:.80}: a number has no leading zeros, so that no cell of it is the level "
        f"{lost!r:.80}, and each would become the default. Read the column as text (dtype=str, or a cast in the query)."
    )


_TO_TEXT = "Cast the column to text where the table is made, e.g. in a view"
_NO_PROBLEM = ("", "")


def _misfit_of_postgresql(declared: Any, column: Column | None) -> tuple[str, str]:
    """As `_misfit`, for types of PostgreSQL that become other types of Arrow; for domains of these too."""
    facts = declared.metadata or {}
    name = facts.get(b"POSTGRESQL:type", b"")
    if name == b"money":
        return "it is money, which arrives as a whole number of cents", "Cast the column to numeric, e.g. in a view"
    if name == b"oid":
        return "it is oid, whose larger numbers arrive as negative ones", "Cast the column to bigint, e.g. in a view"
    if name == b"bpchar" and _has_levels_of_other_lengths(column, length := int(facts.get(b"POSTGRESQL:typmod", 0)) - 4):
        return (
            f"it is char({length}), whose cells are padded with blanks to that length, and a level has another",
            "Cast the column to text, which drops the blanks, e.g. in a view",
        )
    return _NO_PROBLEM


def _has_levels_of_other_lengths(column: Column | None, length: int) -> bool:
    if length < 1 or not isinstance(column, Categorical) or column.kind == "boolean":
        return False
    return any(len(level) != length for level in column.levels)


def _misfit(kind: Any, extension: str, column: Column | None) -> tuple[str, str]:
    """What is wrong with a type, and how to mend it; two empty texts for a type that can be read."""
    if extension == "arrow.json":
        return "it is JSON, of which one value can be written in many ways", _TO_TEXT
    if extension and not (column is None and extension == "arrow.uuid") and not _is(kind, _TEXTS):
        return f"{extension} is a type of its own, and what its cells mean is not known here", _TO_TEXT
    if types.is_null(kind) or _is(kind, _TEXTS):
        return _NO_PROBLEM
    if types.is_timestamp(kind) and not _zone_is_known(kind):
        return "its time zone is not known here, so that no cell has a day", "Cast the column to a zone such as UTC"
    if column is None:
        return _NO_PROBLEM if _is(kind, _BYTES) or _is(kind, _SIMPLE) else ("no cell of it identifies a unit", _TO_TEXT)
    if not _is(kind, _SIMPLE):
        return "no cell of it is a number, a level, a day or a text, and each would become the default", _TO_TEXT
    is_number = column.is_number and column.kind != "date"
    if types.is_float16(kind) or types.is_float32(kind):
        if not is_number and column.kind != "boolean":
            return f"in single precision 0.1 is 0.10000000149, which no {column.kind} cell equals", _TO_TEXT
    elif (types.is_date(kind) or types.is_timestamp(kind)) and (is_number or column.kind == "boolean"):
        return (f"a day is no {column.kind} cell, and each would become the default", "Declare a date, or cast the column")
    elif types.is_boolean(kind) and column.is_number:
        return f"true and false are no {column.kind} cells, and each would become the default", "Declare a boolean"
    return _NO_PROBLEM


_TEXTS = ("string", "large_string", "string_view")
_BYTES = ("binary", "large_binary", "fixed_size_binary", "binary_view")
_NUMBERS = ("integer", "floating", "decimal")
_SIMPLE = (*_NUMBERS, "boolean", "date", "timestamp")


def _is(kind: Any, names: Sequence[str]) -> bool:
    """Whether an Arrow type is one of these, as pyarrow.types names them."""
    return any(getattr(types, f"is_{name}")(kind) for name in names)


def _zone_is_known(kind: Any) -> bool:
    return cell_of(pa.scalar(0, kind)) is not NO_CELL


def _extension_of(declared: Any) -> str:
    if isinstance(declared.type, pa.BaseExtensionType):
        return str(declared.type.extension_name)
    metadata = declared.metadata or {}
    name = metadata.get(b"ARROW:extension:name") or metadata.get(b"ADBC:postgresql:typname") or b""
    return name.decode("utf-8", errors="replace")
