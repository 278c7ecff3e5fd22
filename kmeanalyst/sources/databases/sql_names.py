"""Names in SQL: what is a name of a table, and how it and its columns are quoted."""

from __future__ import annotations

import re

from kmeanalyst.sources.source import SourceError

_PART = r"(?:[^\W\d][\w$]*|\"(?:[^\"\x00-\x1f]|\"\")+\")"
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")


def parts_of(table: str) -> tuple[str | None, str]:
    """(schema or None, name) of "table" or "schema.table"; SourceError for anything else, which is never run as SQL."""
    found = _NAME.fullmatch(table) if isinstance(table, str) else None
    if found is None:
        raise SourceError(
            f"{table!r:.80} is no name of a table: write table or schema.table, and a name with other characters in double quotes. "
            "SQL is not run; make a view of the rows that are the table (create view …), and name that."
        )
    schema, name = (part and _unquoted(part) for part in found.groups())
    return schema, str(name)


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def quoted(*names: str) -> str:
    """A name of one or several parts as SQL has it, whatever characters it has."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)
