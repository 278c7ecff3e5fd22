"""What every source of Arrow record batches can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

BATCH_ROWS = 20_000  # rows that are read at a time where a source does not decide it
INFERRED = (
    ", whose types pyarrow would infer from their values: one row could change the others. Pass the path of the files, which "
    "are read as text."
)
NO_DRIVER = "{} is read by {}, which is not installed. Run pip install 'kmeanalyst[sources]'."
TABLE_CHANGED = "the types of the table's columns were changed while it was read. Read a table that stays as it is."


class SourceError(ValueError):
    """A source that cannot be read. The message names public facts only (names, types, numbers of rows), and how to fix it.

    Its context may hold an error of a library, which may show a row: the curator's side passes the message on, and nothing else.
    """


@dataclass(frozen=True, eq=False, repr=False)
class ArrowSource(ABC):
    """A table that yields Arrow record batches (abstract).

    schema   names and types of the columns, as they were declared: not inferred from rows.
    """

    schema: Any

    @abstractmethod
    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Record batches that have these columns, and perhaps others. What the library raises may show a row."""

    @abstractmethod
    def count(self) -> int:
        """The number of rows, without the value of a cell."""

    @property
    def files(self) -> tuple[Any, ...]:
        """Files that hold the table (paths, or files in a store), as far as they are known."""
        return ()

    @property
    def read_once(self) -> bool:
        """Whether its rows are gone once they were read."""
        return False

    @property
    def announced(self) -> int | None:
        """The number of rows that its owner announced, which must be that of the batches; None if they are counted."""
        return None

    def divided(self, n_rows: int) -> list[ArrowSource]:
        """Parts of about so many rows, which are the table together and can be pickled; SourceError if there are none."""
        raise SourceError(
            "this table is in the memory of one process, or can be read from one place only, so that no other process can read "
            "a part of it. Write it to Parquet files, or leave the processes out."
        )
