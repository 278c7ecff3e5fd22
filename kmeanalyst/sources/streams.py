"""Arrow streams: tables of polars, pyarrow or DuckDB, and readers of batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kmeanalyst.sources.source import INFERRED, ArrowSource, SourceError


class ArrowStream(Protocol):
    """What yields Arrow record batches through the Arrow PyCapsule interface, whatever library it comes from."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@dataclass(frozen=True, eq=False, repr=False)
class Stream(ArrowSource):
    """Batches that may come in another order when they are read again, as the answers of a database do.

    source   what yields them.
    n_rows   the number of rows, if it was announced.
    first    a reader that was opened for the schema, and is not read yet.
    """

    source: ArrowStream
    n_rows: int | None
    first: list[Any]

    @classmethod
    def of(cls, source: ArrowStream, n_rows: int | None = None) -> Stream:
        """The table behind a stream, which is read once if n_rows is given, and otherwise counted first."""
        import pyarrow.csv

        if isinstance(source, pyarrow.csv.CSVStreamingReader):
            raise SourceError(f"the reader is of a text file{INFERRED}")
        first = _opened(source)
        return cls(first.schema, source, n_rows, [first])

    @property
    def announced(self) -> int | None:
        return self.n_rows

    def count(self) -> int:
        if self.n_rows is not None:
            return self.n_rows
        if can_be_read_once(self.source):
            raise SourceError(
                "a RecordBatchReader can be read once only, so that its rows cannot be counted first. Nothing was spent. Pass "
                "their number as n_rows, or the rows as a table or a file."
            )
        return sum(batch.num_rows for batch in self.batches([]))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        return self.first.pop() if self.first else _opened(self.source)


def can_be_read_once(source: object) -> bool:
    """Whether a table is gone once it was read."""
    import pyarrow as pa

    return isinstance(source, pa.RecordBatchReader)


def _opened(source: ArrowStream) -> Any:
    import pyarrow as pa

    return pa.RecordBatchReader.from_stream(source)
