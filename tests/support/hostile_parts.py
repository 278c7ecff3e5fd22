"""Parts of a private table that fail where they are read; importable in other processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release_side.private_rows.table import PrivateTable

MARKER = "HIV-4711"


@dataclass(frozen=True, eq=False, repr=False)
class HostilePart(PrivateTable):
    """Raises by the value of a cell, or ends its process; with `once`, a file, only before that file exists."""

    part: PrivateTable
    ends: bool = False
    once: Path | None = None

    @property
    def header(self) -> list[str]:
        return self.part.header

    def count(self) -> int:
        return self.part.count()

    def divided(self, n_rows: int) -> list[PrivateTable]:
        first, *others = self.part.divided(n_rows)
        return [HostilePart(first, self.ends, self.once), *others]

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        for piece in self.part._pieces(names):
            if self.once is None or not self.once.exists():
                if self.once is not None:
                    self.once.touch()
                if self.ends:
                    os._exit(1)
                raise ValueError(f"could not convert {MARKER} of row 17")
            yield piece
