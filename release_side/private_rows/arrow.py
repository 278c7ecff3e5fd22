"""Private tables that yield Arrow record batches: Parquet files, datasets, and streams of polars, pyarrow or DuckDB.

What a column holds is judged by its declared type, before a row is read. Batches are cut again by row number: where a source
cuts them may depend on the lengths of cells. An error that a source raises while rows are read may show a row, so that none
of its text is kept: not in a message, and not in the cause or context of an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from release_side.errors import PublishError
from release_side.private_rows.table import PrivateTable, silently

_T = TypeVar("_T")
_WITHHELD = (
    "Its own message is withheld because it may hold a private value; nothing was spent. Read the source where only you see "
    "what happens, or write the table to a Parquet file and publish that."
)
_NOT_OPENED = f"the source of the private table could not be opened as a table of Arrow record batches. {_WITHHELD}"
_BROKE_OFF = f"the source of the private table failed while it was read. {_WITHHELD}"
_INFERRED = (
    ", whose types pyarrow would infer from their values: one row could change the others. Pass the path of the files, which "
    "are read as text."
)


class ArrowStream(Protocol):
    """What yields Arrow record batches through the Arrow PyCapsule interface, whatever library it comes from."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@dataclass(frozen=True, eq=False, repr=False)
class Batches(PrivateTable):
    """Arrow record batches behind a counter and an encoder.

    schema   names and types of the columns; public.
    batches  names of columns → record batches that have them, and perhaps others.
    size     the number of rows, without the value of a cell.
    n_rows   the number of rows that the curator announced, which must be that of the batches; None if it was counted.
    """

    schema: Any
    batches: Callable[[Sequence[str]], Iterator[Any]]
    size: Callable[[], int]
    n_rows: int | None = None

    @property
    def header(self) -> list[str]:
        return list(self.schema.names)

    def count(self) -> int:
        return self.size()

    def type_of(self, name: str) -> str:
        return ", ".join(f"{self.schema.field(i).type!s:.80}" for i in self.schema.get_all_field_indices(name))

    def refusal(self, name: str, column: Column | None) -> str:
        return why_refused(self.schema.field(self.header.index(name)), column)

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        for parts in self.parts(names, self.n_rows):
            yield {name: _joined(parts, name, _cells_of) for name in names}

    def identifiers(self, name: str) -> Iterator[Any]:
        return (_joined(parts, name, _exact_cells_of) for parts in self.parts([name]))

    def parts(self, names: Sequence[str], announced: int | None = None) -> Iterator[list[Any]]:
        """Parts of batches that have together `piece` rows; at the end those that are left."""
        batches = _guarded(lambda: iter(self.batches(names)), _BROKE_OFF)
        held: list[Any] = []
        n_held, n_rows = 0, 0
        while (batch := _guarded(lambda: next(batches, None), _BROKE_OFF)) is not None:
            n_rows += batch.num_rows
            if announced is not None and n_rows > announced:  # it may have no end
                raise PublishError(
                    f"the stream has more rows than the {announced} that n_rows announces. Nothing was spent. Pass the number of "
                    "rows that it has."
                )
            while batch.num_rows:
                part = batch.slice(0, self.piece - n_held)
                batch = batch.slice(part.num_rows)
                held.append(part)
                n_held += part.num_rows
                if n_held == self.piece:
                    yield held
                    held, n_held = [], 0
        if announced is not None and n_rows < announced:
            raise PublishError(
                f"the stream ended after {n_rows} rows, and n_rows announces {announced}. Nothing was spent. Pass the number of "
                "rows that it has, and a new stream if this one was read before."
            )
        if held:
            yield held


@dataclass(frozen=True, eq=False, repr=False)
class _Stream(Batches):
    """Batches that may come in another order when they are read again, as the answers of a database do."""

    def in_one_pass(self, domain: Domain) -> PrivateTable:
        return _InOnePass(self, domain)


@dataclass(frozen=True, eq=False, repr=False)
class _InOnePass(PrivateTable):
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
        for parts in self.stream.parts([name, *self.domain.names]):
            columns = {each: _joined(parts, each, _cells_of) for each in self.domain.names}
            self.kept.append(self.domain.encode(columns))
            yield _joined(parts, name, _exact_cells_of)

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        raise NotImplementedError  # the rows are encoded already

    def encoded(self, domain: Domain) -> Iterator[Array]:
        while self.kept:
            yield self.kept.pop(0)


# ---------------------------------------------------------------------- sources


def parquet_file(path: Path) -> PrivateTable:
    """The table in a Parquet file; PublishError if it is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def opened() -> Any:
        try:
            return pq.ParquetFile(path)
        except pa.ArrowInvalid:
            raise PublishError(f"{path} is not a Parquet file. Write the table again, or name another.") from None

    def batches(names: Sequence[str]) -> Iterator[Any]:
        with opened() as file:
            yield from file.iter_batches(batch_size=PrivateTable.piece, columns=list(names))

    def size() -> int:
        with opened() as file:
            return int(file.metadata.num_rows)

    with opened() as file:
        return Batches(file.schema_arrow, batches, size)


def is_dataset(source: object) -> bool:
    """Whether a table is a pyarrow.dataset.Dataset."""
    import pyarrow.dataset as ds

    return isinstance(source, ds.Dataset)


def fragments_of(dataset: Any) -> list[PrivateTable]:
    """The files of a dataset, each with its own types: those of the dataset would be the first file's.

    Errors   PublishError for a dataset without files, with a filter, or of texts whose types would follow from their values.
    """
    import pyarrow.dataset as ds

    try:
        fragments = list(dataset.get_fragments())
    except ValueError:
        raise PublishError(
            "the dataset has a filter or a projection, so that values would choose its rows. Pass the dataset as it was opened, "
            "or write the rows that are the table to a file."
        ) from None
    if any(isinstance(getattr(each, "format", None), ds.CsvFileFormat | ds.JsonFileFormat) for each in fragments):
        raise PublishError(f"the dataset is of text files{_INFERRED}")
    if not fragments:
        raise PublishError("the dataset has no files, and no rows. Name the folder that has them.")
    return [_fragment(each) for each in fragments]


def _fragment(fragment: Any) -> PrivateTable:
    return Batches(
        _guarded(lambda: fragment.physical_schema, _NOT_OPENED),
        lambda names: iter(fragment.scanner(columns=list(names), batch_size=PrivateTable.piece).to_reader()),
        lambda: _guarded(lambda: int(fragment.count_rows()), _BROKE_OFF),
    )


def can_be_read_once(source: object) -> bool:
    """Whether a table is gone once it was read."""
    import pyarrow as pa

    return isinstance(source, pa.RecordBatchReader)


def stream_of(source: ArrowStream, n_rows: int | None) -> PrivateTable:
    """The table behind an Arrow stream, which is read once if n_rows is given, and otherwise counted first."""
    import pyarrow as pa
    import pyarrow.csv

    if isinstance(source, pyarrow.csv.CSVStreamingReader):
        raise PublishError(f"the reader is of a text file{_INFERRED}")

    def opened() -> Any:
        return _guarded(lambda: pa.RecordBatchReader.from_stream(source), _NOT_OPENED)

    first = opened()
    waiting = [first]

    def reader() -> Any:
        return waiting.pop() if waiting else opened()

    def size() -> int:
        if n_rows is not None:
            return n_rows
        if can_be_read_once(source):
            raise PublishError(
                "a RecordBatchReader can be read once only, so that its rows cannot be counted first. Nothing was spent. Pass "
                "their number as n_rows, or the rows as a table or a file."
            )
        batches = reader()
        return sum(iter(lambda: _guarded(lambda: _rows_of_next(batches), _BROKE_OFF), None))

    return _Stream(first.schema, lambda names: reader(), size, n_rows)


def _rows_of_next(batches: Any) -> int | None:
    batch = next(batches, None)
    return None if batch is None else batch.num_rows


def _guarded(work: Callable[[], _T], what_failed: str) -> _T:
    """What a source returns. Its errors may show rows: none of their text, cause or context is kept."""
    interrupted = False
    try:
        return silently(work)
    except PublishError:  # our own
        raise
    except KeyboardInterrupt:
        interrupted = True
    except BaseException:  # of any library; polars has errors that are no Exception
        pass
    if interrupted:  # here, outside of `except`, the new exception has no context
        raise KeyboardInterrupt
    raise PublishError(what_failed)


# ---------------------------------------------------------------------- cells and types


def _joined(parts: Sequence[Any], name: str, cells_of: Callable[[Any], Array]) -> Array:
    """The cells of one column; each part by itself, since each may have a dictionary of its own."""
    index = parts[0].schema.names.index(name)
    return np.concatenate([cells_of(part.column(index)) for part in parts])


def _cells_of(column: Any) -> Array:
    import pyarrow as pa

    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False)
    return _exact_cells_of(column)


def _exact_cells_of(column: Any) -> Array:
    """Cell by cell: as an array, whole numbers in a column with an empty cell would be rounded to floats."""
    return np.fromiter((_cell_of(cell) for cell in column), dtype=object, count=len(column))


def _cell_of(cell: Any) -> Any:
    """A cell as a Python object; NO_CELL where there is none (a day beyond the calendar, text that is not UTF-8)."""
    try:
        return cell.as_py()
    except Exception:  # depends on the value of a private cell, so it must not leave this module
        return NO_CELL


def why_refused(declared: Any, column: Column | None) -> str:
    """Why cells of a declared type (a pyarrow.Field) are not read as this column; "" if they are. A public fact.

    column   None for a column that identifies units.
    """
    import pyarrow as pa

    kind = declared.type.storage_type if isinstance(declared.type, pa.BaseExtensionType) else declared.type
    while pa.types.is_dictionary(kind):
        kind = kind.value_type
    why, fix = _misfit(kind, _extension_of(declared), column)
    return f"column {declared.name!r:.80} has the type {declared.type!s:.80}: {why}. {fix}." if why else ""


_TO_TEXT = "Cast the column to text where the table is made, e.g. in a view"
_NO_PROBLEM = ("", "")


def _misfit(kind: Any, extension: str, column: Column | None) -> tuple[str, str]:
    """What is wrong with a type, and how to mend it; two empty texts for a type that can be read."""
    from pyarrow import types

    if extension and not (column is None and extension == "arrow.uuid") and not _is_text(kind):
        return f"{extension} is a type of its own, and what its cells mean is not known here", _TO_TEXT
    if types.is_null(kind) or _is_text(kind):
        return _NO_PROBLEM
    if types.is_timestamp(kind) and not _zone_is_known(kind):
        return "its time zone is not known here, so that no cell has a day", "Cast the column to a zone such as UTC"
    if column is None:
        return _NO_PROBLEM if _is_bytes(kind) or _is_simple(kind) else ("no cell of it identifies a unit", _TO_TEXT)
    if not _is_simple(kind):
        return "no cell of it is a number, a level, a day or a text, and each would become the default", _TO_TEXT
    is_number = column.is_number and column.kind != "date"
    if types.is_float16(kind) or types.is_float32(kind):
        if not is_number and column.kind != "boolean":
            return f"in single precision 0.1 is 0.10000000149, which no {column.kind} cell equals", _TO_TEXT
    elif (types.is_date(kind) or types.is_timestamp(kind)) and (is_number or column.kind == "boolean"):
        return (
            f"a day is no {column.kind} cell, and each would become the default",
            "Declare a date, or cast the column",
        )
    elif types.is_boolean(kind) and column.is_number:
        return f"true and false are no {column.kind} cells, and each would become the default", "Declare a boolean"
    return _NO_PROBLEM


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_bytes(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(test(kind) for test in tests)


def _is_simple(kind: Any) -> bool:
    """Numbers, days and truth values."""
    from pyarrow import types

    tests = (
        types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_date, types.is_timestamp,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _zone_is_known(kind: Any) -> bool:
    import pyarrow as pa

    return _cell_of(pa.scalar(0, kind)) is not NO_CELL


def _extension_of(declared: Any) -> str:
    """The name of a type that is not one of Arrow's own, known to pyarrow or not; "" for Arrow's own."""
    import pyarrow as pa

    if isinstance(declared.type, pa.BaseExtensionType):
        return str(declared.type.extension_name)
    metadata = declared.metadata or {}
    name = metadata.get(b"ARROW:extension:name") or metadata.get(b"ADBC:postgresql:typname") or b""
    return name.decode("utf-8", errors="replace")
