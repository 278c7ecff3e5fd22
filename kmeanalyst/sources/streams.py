"""Arrow streams (tables of polars, pyarrow or DuckDB, readers of batches), and datasets of pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv

from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.sources.source import BATCH_ROWS, INFERRED, ArrowSource, SourceError


class ArrowStream(Protocol):
    """What yields Arrow record batches through the Arrow PyCapsule interface, whatever library it comes from."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def is_stream(source: object) -> TypeGuard[ArrowStream]:
    """Whether a table yields Arrow batches whose types were declared: those of pandas would follow from values.

    A release yields batches too, and is not a table of plain rows: its rows have weights.
    """
    others = isinstance(source, pd.DataFrame | pd.Series | ReleaseData)
    return hasattr(source, "__arrow_c_stream__") and not others


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
        if isinstance(source, arrow_csv.CSVStreamingReader):
            raise SourceError(f"the reader is of a text file{INFERRED}")
        first = _opened(source)
        return cls(first.schema, source, n_rows, [first])

    @property
    def read_once(self) -> bool:
        return isinstance(self.source, pa.RecordBatchReader)

    @property
    def announced(self) -> int | None:
        return self.n_rows

    def count(self) -> int:
        if self.n_rows is not None:
            return self.n_rows
        if self.read_once:
            raise SourceError(
                "a RecordBatchReader can be read once only, so that its rows cannot be counted first. Nothing was spent. Pass "
                "their number as n_rows, or the rows as a table or a file."
            )
        return sum(batch.num_rows for batch in self.batches([]))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        return self.first.pop() if self.first else _opened(self.source)


def _opened(source: ArrowStream) -> Any:
    """A reader; one that can be read once is itself, so that what is refused before it is read can be passed again."""
    return source if isinstance(source, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(source)


def fragments_of(dataset: Any) -> list[Fragment] | None:
    """The files of a pyarrow.dataset.Dataset, each with its own types, not the first file's; None for anything else.

    Errors   SourceError for a dataset without files, with a filter, or of texts whose types would follow from their values.
    """
    import pyarrow.dataset as ds

    if not isinstance(dataset, ds.Dataset):
        return None
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:
        raise SourceError(
            "the dataset has a filter or a projection, so that values would choose its rows. Pass the dataset as it was opened, "
            "or write the rows that are the table to a file."
        ) from None
    if any(isinstance(getattr(each, "format", None), ds.CsvFileFormat | ds.JsonFileFormat) for each in fragments):
        raise SourceError(f"the dataset is of text files{INFERRED}")
    if not fragments:
        raise SourceError("the dataset has no files, and no rows. Name the folder that has them.")
    return [Fragment(each.physical_schema, each) for each in fragments]


@dataclass(frozen=True, eq=False, repr=False)
class Fragment(ArrowSource):
    """One file of a dataset."""

    fragment: Any

    def count(self) -> int:
        return int(self.fragment.count_rows())

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        return iter(self.fragment.scanner(columns=list(names), batch_size=BATCH_ROWS).to_reader())

    def divided(self, n_rows: int) -> list[ArrowSource]:
        return [self]
