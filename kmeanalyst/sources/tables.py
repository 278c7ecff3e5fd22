"""Tables of the analyst or of the public, from any source: samples to test, public points, samples to draft from.

Not for private rows: those go through release_side. Its rules hold here too: Arrow columns are judged by their declared types
before a row is read, and a domain encodes their cells. What libraries say about a failure is shown, since the rows are the user's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL, factorised, text_of, with_columns
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import SAMPLE, Domain, SampleCounts
from kmeanalyst.releases.expressions import words
from kmeanalyst.sources.arrow_cells import cells_of, joined, pieces
from kmeanalyst.sources.arrow_types import why_refused
from kmeanalyst.sources.files import File, files_of, is_csv, is_gzipped, open_file
from kmeanalyst.sources.source import BATCH_ROWS, ArrowSource, SourceError
from kmeanalyst.sources.sql import is_database
from kmeanalyst.sources.streams import ArrowStream, Stream, fragments_of, is_stream

TableSource: TypeAlias = str | Path | ArrowSource | ArrowStream | Any  # Any: a pyarrow Dataset, which has no types
Rename: TypeAlias = Mapping[str, str] | None  # the sample's name → the release's
Recode: TypeAlias = Mapping[str, Mapping[Any, Any]] | None  # the release's column → their value → its value


class Translation(TypedDict, total=False):
    """How a sample of the analyst's own is written as the release is."""

    rename: Rename
    recode: Recode


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table from one source.

    name    what messages call it.
    parts   CSV files and sources of Arrow batches, one after the other.
    """

    name: str
    parts: Sequence[File | ArrowSource]

    @property
    def read_once(self) -> bool:
        """Whether its rows are gone once they were read."""
        return any(isinstance(part, ArrowSource) and part.read_once for part in self.parts)

    @property
    def headers(self) -> list[list[str]]:
        """Names of the columns of each part."""
        return [list(part.schema.names if isinstance(part, ArrowSource) else _csv_header(part)) for part in self.parts]

    def encoded(self, domain: Domain) -> Iterator[tuple[Array, SampleCounts]]:
        """Encoded rows (n, d) in blocks, with counts, so that memory does not grow with the number of rows.

        Errors   DomainError: for a type that cannot be read as its column, before any row; for a damaged file, where the damage
                 is.
        """
        self.check_types(domain)
        total = 0
        for part in self.parts:
            blocks = (
                _encoded_batches(part, self.name, domain)
                if isinstance(part, ArrowSource)
                else map(domain.encode_counted, _csv_blocks(part))
            )
            for rows, counts in blocks:
                total += len(rows)
                yield rows, counts
        _check_rows(self.name, total)

    def frame(self, domain: Domain | None = None) -> pd.DataFrame:
        """All rows as a DataFrame; CSV cells stay text, so that the domain reads them."""
        if domain is not None:
            self.check_types(domain)
        frames = [_frame_of_batches(part, self.name) if isinstance(part, ArrowSource) else _whole_csv(part) for part in self.parts]
        _check_rows(self.name, sum(map(len, frames)))
        return frames[0] if len(frames) == 1 else pd.concat(filter(len, frames), join="inner", ignore_index=True)

    def check_types(self, domain: Domain) -> None:
        """DomainError if a declared type cannot be read as the domain's column of that name."""
        schemas = [part.schema for part in self.parts if isinstance(part, ArrowSource)]
        fields = [
            (schema.field(column.name), column)
            for schema in schemas
            for column in domain.columns
            if schema.names.count(column.name) == 1
        ]
        if refusals := [why for field, column in fields if (why := why_refused(field, column))]:
            raise DomainError(" ".join(dict.fromkeys(refusals)))


def table_of(source: TableSource) -> Table | None:
    """The table behind a path, folder, glob, URL, dataset, stream or `sql(…)`; None for anything else, as a DataFrame of pandas.

    Errors   DomainError that says why it cannot be read.
    """
    if isinstance(source, str | Path):
        with _as_domain_errors(str(source)):
            return Table(str(source), [file if is_csv(file.name) else open_file(file) for file in _files(source)])
    with _as_domain_errors(SAMPLE):
        if isinstance(source, ArrowSource):
            return Table(SAMPLE, [source])
        if is_stream(source):
            return Table(SAMPLE, [Stream.of(source)])
        fragments = fragments_of(source)
        return None if fragments is None else Table(SAMPLE, fragments)


def as_frame(rows: Any) -> Any:
    """Rows of any library of DataFrames (what yields Arrow batches) as a DataFrame of pandas; anything else as it is."""
    return read_table(rows) if is_stream(rows) else rows


def read_table(source: TableSource, domain: Domain | None = None) -> pd.DataFrame:
    """A table as a DataFrame in memory; DomainError says what is wrong with it.

    domain   if given, the types of its columns are judged first.
    """
    table = table_of(source)
    if table is None:
        raise TypeError(
            f"a {type(source).__name__} is not a table that can be read. Pass a path, kmeanalyst.sql(…), or what yields Arrow "
            "record batches: a DataFrame of polars (collect a lazy frame first), a table or dataset of pyarrow, a relation of "
            "DuckDB."
        )
    return table.frame(domain)


def frame_of(sample: Any, domain: Domain | None = None) -> pd.DataFrame | None:
    """A DataFrame, several of them, or a table of any source as one DataFrame; None for anything else."""
    if (table := table_of(sample)) is not None:
        return table.frame(domain)
    if isinstance(sample, pd.DataFrame):
        return sample.reset_index(drop=True)
    blocks = list(sample) if isinstance(sample, Iterable) and not hasattr(sample, "__array__") else []
    frames = bool(blocks) and all(isinstance(block, pd.DataFrame) for block in blocks)
    return pd.concat(blocks, ignore_index=True) if frames else None


def number_or_text(cells: pd.Series) -> pd.Series:
    """Cells of text that are all numbers, or empty, as numbers; others as they are, and codes such as 02116."""
    if not pd.api.types.is_string_dtype(cells.dtype):
        return cells
    present = cells.where(cells != "").astype(object)
    numbers = pd.to_numeric(present, errors="coerce")
    is_code = present.str.fullmatch(r"\s*0\d+\s*", na=False).any()
    return numbers if (numbers.notna() | present.isna()).all() and not is_code else present


def translated(sample: Any, rename: Rename = None, recode: Recode = None, columns: Sequence[str] | None = None) -> Any:
    """A sample under the release's names and codes, in memory; as it is where nothing is given. Cells are found by their text.

    Errors   ValueError for names that the sample does not have once.
    """
    if not rename and not recode and columns is None:
        return sample
    frame = frame_of(sample)
    frame = pd.DataFrame() if frame is None else frame.rename(columns=str)
    columns = [columns] if isinstance(columns, str) else columns
    if columns is not None and not len(columns):
        raise ValueError("columns is an empty list, so nothing would be compared. Name a column, or leave columns out.")
    for named in (rename or {}, recode or {}, columns or ()):
        if unknown := [name for name in named if list(frame.columns).count(name) != 1]:
            near = words.close(str(unknown[0]), list(frame.columns)) if len(frame.columns) else None
            raise ValueError(
                f"{words.names(unknown)}: rename, recode and columns name columns of a table of your own, which are "
                f"{words.names(frame.columns) or 'none, in a release or an array'}. "
                + (f"Did you mean {words.written(near)}?" if near else "Name one that is there once, or leave it out.")
            )
        frame = frame.rename(columns=dict(rename or {})) if named is rename else frame
    for name, new in (recode or {}).items():
        codes, texts = factorised(frame[name])
        known = {text_of(theirs): text_of(ours) for theirs, ours in new.items()}
        cells = [NO_CELL if text is None else known.get(text, text) for text in texts]
        frame = with_columns(frame, {name: np.array(cells, dtype=object)[codes]})
    return frame if columns is None else frame[list(columns)]


def _files(source: str | Path) -> list[File]:
    if is_database(source):
        raise DomainError(
            "this is a database, and a table of it has a name. Add --from TABLE (in Python "
            'kmeanalyst.sql("postgresql:", "schema.table")).'
        )
    return files_of(source)


def _check_rows(name: str, rows: int) -> None:
    if rows == 0:
        raise DomainError(f"{name} has a header and no rows. Name a table with rows.")


@contextmanager
def _as_domain_errors(name: str) -> Iterator[None]:
    try:
        yield
    except DomainError:
        raise
    except SourceError as error:
        raise DomainError(str(error)) from None
    except pd.errors.EmptyDataError:
        raise DomainError(f"{name} is empty: it has no header line. Name a table whose first line names its columns.") from None
    except UnicodeDecodeError:
        why = "a cell that is not text has no value of its column"
        raise DomainError(f"{name} is not UTF-8 text: {why}. Write it as UTF-8, the private table too.") from None
    except Exception as error:  # of any library
        reason = " ".join(str(error).split()).rstrip(".")
        raise DomainError(f"{name} could not be read as a table: {reason}. Write it again, or pass another.") from None


# ---------------------------------------------------------------------- CSV


@contextmanager
def _read_csv(file: File, **options: Any) -> Iterator[Any]:
    """What pandas reads of a file, cells as text."""
    compression = "gzip" if is_gzipped(file.name) else None
    with _as_domain_errors(str(file)), file.open("rb") as handle:
        yield pd.read_csv(handle, compression=compression, keep_default_na=False, encoding="utf-8-sig", **options)


def _csv_header(file: File) -> list[str]:
    """The names as they stand there: pandas would call a second "a" a.1, and one that is empty Unnamed: 0."""
    with _read_csv(file, nrows=1, header=None, index_col=False, dtype=str) as table:
        return [str(name) for name in table.iloc[0]]


def _whole_csv(file: File) -> pd.DataFrame:
    """All rows. A row's surplus cells are ignored, as on the private side; they never shift the others."""
    header = _csv_header(file)
    with _read_csv(file, usecols=range(len(header)), dtype=str) as table:
        return table.set_axis(header, axis=1)


def _csv_blocks(file: File) -> Iterator[pd.DataFrame]:
    """Cells as Python's own text (dtype object): the same text as dtype str has, but several times faster to encode."""
    header = _csv_header(file)
    with _read_csv(file, usecols=range(len(header)), dtype=object, chunksize=BATCH_ROWS) as blocks, blocks:
        yield from (block.set_axis(header, axis=1) for block in blocks)


# ---------------------------------------------------------------------- Arrow batches


def _encoded_batches(source: ArrowSource, name: str, domain: Domain) -> Iterator[tuple[Array, SampleCounts]]:
    others = domain.check_has_columns(source.schema.names, what=SAMPLE)
    index = (source.schema.pandas_metadata or {}).get("index_columns", [])  # of the DataFrame that was written
    ignored = tuple(other for other in others if other not in index)
    for parts in _pieces(source, name, domain.names_read):
        rows, counts = domain.encode_counted({each: joined(parts, each, cells_of) for each in domain.names_read})
        yield rows, replace(counts, ignored=ignored)


def _pieces(source: ArrowSource, name: str, columns: Sequence[str]) -> Iterator[list[Any]]:
    with _as_domain_errors(name):
        yield from pieces(source.batches(columns), BATCH_ROWS)


def _frame_of_batches(source: ArrowSource, name: str) -> pd.DataFrame:
    with _as_domain_errors(name):
        batches = list(source.batches(source.schema.names))
        table = pa.Table.from_batches(batches) if batches else source.schema.empty_table()
        return table.replace_schema_metadata(source.schema.metadata).to_pandas()
