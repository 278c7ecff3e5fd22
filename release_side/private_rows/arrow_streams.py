"""Arrow streams: tables of polars, pyarrow or DuckDB, and readers of batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from release_side.errors import PublishError
from release_side.private_rows.arrow_cells import cells_of, exact_cells_of, joined
from release_side.private_rows.batches import Batches
from release_side.private_rows.foreign import BROKE_OFF, INFERRED, NOT_OPENED, guarded
from release_side.private_rows.table import PrivateTable


class ArrowStream(Protocol):
    """What yields Arrow record batches through the Arrow PyCapsule interface, whatever library it comes from."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@dataclass(frozen=True, eq=False, repr=False)
class Stream(Batches):
    """Batches that may come in another order when they are read again, as the answers of a database do.

    source   what yields them.
    n_rows   the number of rows that the curator announced, if so.
    first    a reader that was opened for the schema, and is not read yet.
    """

    source: ArrowStream
    n_rows: int | None
    first: list[Any]

    @property
    def announced(self) -> int | None:
        return self.n_rows

    def count(self) -> int:
        if self.n_rows is not None:
            return self.n_rows
        if can_be_read_once(self.source):
            raise PublishError(
                "a RecordBatchReader can be read once only, so that its rows cannot be counted first. Nothing was spent. Pass "
                "their number as n_rows, or the rows as a table or a file."
            )
        batches = self.batches([])
        return sum(iter(lambda: guarded(lambda: _rows_of_next(batches), BROKE_OFF), None))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        return self.first.pop() if self.first else _opened(self.source)

    def in_one_pass(self, domain: Domain) -> PrivateTable:
        return InOnePass(self, domain)


@dataclass(frozen=True, eq=False, repr=False)
class InOnePass(PrivateTable):
    """A stream whose rows are encoded, and kept, while its identifiers are read.

    Its number of rows is not compared with another: where units are protected it is not public.
    """

    stream: Batches
    domain: Domain
    kept: list[Array] = field(default_factory=list)

    @property
    def header(self) -> list[str]:
        return self.stream.header

    def count(self) -> int:
        return self.stream.count()

    def refusal(self, name: str, column: Column | None) -> str:
        return self.stream.refusal(name, column)

    def identifiers(self, name: str) -> Iterator[Any]:
        for parts in self.stream.cut([name, *self.domain.names]):
            columns = {each: joined(parts, each, cells_of) for each in self.domain.names}
            self.kept.append(self.domain.encode(columns))
            yield joined(parts, name, exact_cells_of)

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        raise NotImplementedError  # the rows are encoded already

    def encoded(self, domain: Domain) -> Iterator[Array]:
        while self.kept:
            yield self.kept.pop(0)


def can_be_read_once(source: object) -> bool:
    """Whether a table is gone once it was read."""
    import pyarrow as pa

    return isinstance(source, pa.RecordBatchReader)


def stream_of(source: ArrowStream, n_rows: int | None) -> PrivateTable:
    """The table behind an Arrow stream, which is read once if n_rows is given, and otherwise counted first."""
    import pyarrow.csv

    if isinstance(source, pyarrow.csv.CSVStreamingReader):
        raise PublishError(f"the reader is of a text file{INFERRED}")
    first = _opened(source)
    return Stream(first.schema, source, n_rows, [first])


def _opened(source: ArrowStream) -> Any:
    import pyarrow as pa

    return guarded(lambda: pa.RecordBatchReader.from_stream(source), NOT_OPENED)


def _rows_of_next(batches: Any) -> int | None:
    batch = next(batches, None)
    return None if batch is None else batch.num_rows


__all__ = ["ArrowStream", "InOnePass", "Stream", "can_be_read_once", "stream_of"]
