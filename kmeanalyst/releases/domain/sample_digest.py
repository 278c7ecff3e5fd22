"""The digest of a sample that a domain was drafted from, as the domain's TOML file holds it.

`publish` compares it with the private table: a domain drafted from private rows would publish their levels and extremes.
It stays in the curator's file; a release holds the columns alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.statement import is_digest


@dataclass(frozen=True)
class SampleDigest:
    """What identifies a sample: the size and SHA-256 of a file's content, or those of the cells of a DataFrame.

    sha256   in lower-case hexadecimal digits.
    bytes    size of the file's content, of a .gz file that of its inflated content; None for a DataFrame.
    rows     number of rows of a DataFrame; None for a file.
    """

    sha256: str
    bytes: int | None = None
    rows: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The digest as its TOML table has it."""
        sizes = {name: size for name, size in (("bytes", self.bytes), ("rows", self.rows)) if size is not None}
        return {"sha256": self.sha256, **sizes}


def digests_of(tables: Any) -> tuple[SampleDigest, ...]:
    """The digests in the [[sample]] tables of a domain file; DomainError if one is not as a draft writes it."""
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise _malformed(tables)
    return tuple(map(_digest_of, tables))


def _digest_of(table: Any) -> SampleDigest:
    if not isinstance(table, Mapping) or set(table) not in ({"sha256", "bytes"}, {"sha256", "rows"}):
        raise _malformed(table)
    sha256, size = table["sha256"], table.get("bytes", table.get("rows"))
    is_count = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    if not (is_digest(sha256) and is_count):
        raise _malformed(table)
    return SampleDigest(**table)


def _malformed(table: Any) -> DomainError:
    return DomainError(
        f"a [[sample]] table must hold sha256 (64 hexadecimal digits) and bytes or rows, got {table!r:.200}: publish "
        "compares it with the private table. Restore it as draft-domain wrote it, or draft the domain again."
    )


__all__ = ["SampleDigest", "digests_of"]
