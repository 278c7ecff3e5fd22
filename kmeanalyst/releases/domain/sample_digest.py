"""What identifies the public sample from which a domain was drafted, so that it can be compared with a private table."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from kmeanalyst.releases.domain.cells import cell_by_cell, text_of
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.statement import is_digest, is_whole


@dataclass(frozen=True)
class SampleDigest:
    """What identifies a sample: the size and SHA-256 of a file's content, or those of the cells of a DataFrame.

    `publish` compares it with the private table: a domain drafted from private rows would publish their levels and extremes.
    It stays in the curator's domain file; a release holds the columns alone.

    sha256   in lower-case hexadecimal digits.
    bytes    size of the file's content, of a .gz file that of its inflated content; None for a DataFrame.
    rows     number of rows of a DataFrame; None for a file.
    """

    sha256: str
    bytes: int | None = None
    rows: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The digest as its TOML table has it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of_frame(cls, frame: pd.DataFrame) -> SampleDigest:
        """The digest of a frame's cells as texts; it does not depend on types, index or order of columns."""
        digest = hashlib.sha256()
        columns = {str(name): frame.iloc[:, j] for j, name in enumerate(frame.columns)}
        for name, cells in sorted(columns.items()):
            for text in (name, *map(text_of, cell_by_cell(cells))):
                data = b"" if text is None else text.encode("utf-8", errors="surrogatepass")
                digest.update(b"%d:" % (-1 if text is None else len(data)) + data)
        return cls(digest.hexdigest(), rows=len(frame))


def digests_of(tables: Any) -> tuple[SampleDigest, ...]:
    """The digests in the [[sample]] tables of a domain file; DomainError if one is not as a draft writes it."""
    if not isinstance(tables, list) or not all(map(_is_digest_table, tables)):
        raise DomainError(
            f"a [[sample]] table must hold sha256 (64 hexadecimal digits) and bytes or rows, got {tables!r:.200}: publish "
            "compares it with the private table. Restore it as draft-domain wrote it, or draft the domain again."
        )
    return tuple(SampleDigest(**table) for table in tables)


def _is_digest_table(table: Any) -> bool:
    if not isinstance(table, dict) or set(table) not in ({"sha256", "bytes"}, {"sha256", "rows"}):
        return False
    size = table.get("bytes", table.get("rows"))
    return is_digest(table["sha256"]) and is_whole(size) and size >= 0
