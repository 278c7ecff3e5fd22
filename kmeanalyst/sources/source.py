"""What every source of Arrow record batches can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

BATCH_ROWS = 20_000  # rows that are read at a time where a source does not decide it
INFERRED = (
    ", whose types pyarrow would infer from their values: one row could change the others. Pass the path of the files, which "
    "are read as text."
)
WHOLE = (
    "this table is in the memory of one process, or can be read from one place only, so that no other process can read a part of "
    "it. Write it to Parquet files, or leave the processes out."
)
NO_DRIVER = "{} is read by {}, which is not installed. Run pip install 'kmeanalyst[sources]'."


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
        raise SourceError(WHOLE)


@dataclass(frozen=True, eq=False, repr=False)
class DatabaseTable(ArrowSource):
    """A table or view of a database, whose count and rows are read in one session (abstract).

    database   what a session connects to.
    relation   the name of the table, quoted.
    counted    the session of the last count, until its rows are read.
    """

    database: Any
    relation: str
    counted: list[Any] = field(default_factory=list)

    @abstractmethod
    def session(self) -> Any:
        """A session with one read-only transaction, all of whose queries see one moment."""

    @abstractmethod
    def reading(self, session: Any, query: str) -> AbstractContextManager[Any]:
        """A reader of the rows of a query, in batches."""

    def count(self) -> int:
        session = self.session()
        with self.reading(session, f"select count(*) from {self.relation}") as reader:
            n_rows = reader.read_all()[0][0].as_py()
        self.counted[:] = [session]
        return int(n_rows)

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        session = self.counted.pop() if self.counted else self.session()
        columns = ", ".join(quoted(name) for name in names)
        with self.reading(session, f"select {columns} from {self.relation}") as reader:
            if reader.schema.types != [self.schema.field(name).type for name in names]:
                raise SourceError(
                    "the types of the table's columns were changed while it was read. Read a table that stays as it is."
                )
            yield from reader


def quoted(*names: str) -> str:
    """A name of one or several parts as SQL has it, whatever characters it has."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)
