"""All kinds of column, by name: how a domain file or a header says which column is meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kmeanalyst.releases.columns import Boolean, Categorical, Column, Date, DomainError, Integer, Ordinal, Real
from kmeanalyst.releases.cyclic_column import Cyclic
from kmeanalyst.releases.text_column import Text

KINDS: dict[str, type[Column]] = {
    column.kind: column for column in (Real, Integer, Categorical, Ordinal, Boolean, Date, Cyclic, Text)
}


def column_from_dict(table: Any) -> Column:
    """A column from its TOML table or header entry; DomainError says what is wrong with it."""
    if not isinstance(table, dict):
        raise DomainError(f"a column must be a table of name, kind and so on, got {table!r:.80}.")
    name, kind = table.get("name", "(unnamed)"), table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise DomainError(f"column {name}: kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    arguments: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in table.items() if key != "kind"
    }
    try:
        return KINDS[kind](**arguments)
    except TypeError:
        known = list(KINDS[kind].__dataclass_fields__)
        needed = ("name",) if kind == "boolean" else ("name", "lower", "upper", "levels", "length")
        unknown = sorted(set(arguments) - set(known))
        absent = [field for field in needed if field in known and field not in arguments]
        raise DomainError(
            f"column {name}: a {kind} column has {', '.join(known)}; "
            + (f"unknown here: {', '.join(unknown)}. " if unknown else "")
            + (f"Add {', '.join(absent)}." if absent else "Remove what is unknown.")
        ) from None


def sequence_of_columns(tables: Sequence[Any]) -> tuple[Column, ...]:
    """Columns from their tables, in order."""
    return tuple(column_from_dict(table) for table in tables)
