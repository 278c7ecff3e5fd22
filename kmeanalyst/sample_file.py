"""An analyst's own rows in a file, gone through in blocks by the command line, which tells how far it is."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from kmeanalyst.releases.tables import table_blocks
from kmeanalyst.terminal import Tell


class ToldRows:
    """The rows of a file in blocks, as mmd_test takes them, telling how far a pass through them is.

    How many rows there are is known after the first pass; until then only those that were read are told.
    """

    def __init__(self, path: str, tell: Tell) -> None:
        self._path, self._tell = path, tell
        self._rows: int | None = None

    def __iter__(self) -> Iterator[pd.DataFrame]:
        seen = 0
        for block in table_blocks(self._path):
            seen += len(block)
            self._tell(f"testing {seen:,} rows", seen / self._rows if self._rows else None)
            yield block
        self._rows = seen
