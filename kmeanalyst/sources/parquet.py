"""Parquet files, on this machine or in a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmeanalyst.sources.source import BATCH_ROWS, ArrowSource, SourceError
from kmeanalyst.sources.stores import StoreFile

_BUFFER = 2**20  # bytes of a column that are read at a time


@dataclass(frozen=True, eq=False, repr=False)
class ParquetFile(ArrowSource):
    """Row groups of a Parquet file.

    groups   (first, last + 1) of the row groups; None for all.
    """

    path: Path | StoreFile
    groups: tuple[int, int] | None = None

    @classmethod
    def of(cls, path: Path | StoreFile) -> ParquetFile:
        """The table in a file; SourceError if it is no Parquet file."""
        with _opened(path) as file:
            return cls(file.schema_arrow, path)

    def count(self) -> int:
        with _opened(self.path) as file:
            return sum(file.metadata.row_group(i).num_rows for i in self._groups(file))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        with _opened(self.path) as file:
            for group in self._groups(
                file
            ):  # together, and with threads, they take memory that grows with their number
                yield from file.iter_batches(BATCH_ROWS, [group], list(names), use_threads=False)

    def divided(self, n_rows: int) -> list[ArrowSource]:
        with _opened(self.path) as file:
            groups = self._groups(file)
            sizes = [file.metadata.row_group(i).num_rows for i in groups]
        parts, first, size = list[ArrowSource](), groups.start, 0
        for i, rows in zip(groups, sizes, strict=True):
            size += rows
            if size >= n_rows or i == groups.stop - 1:
                parts.append(ParquetFile(self.schema, self.path, (first, i + 1)))
                first, size = i + 1, 0
        return parts

    def _groups(self, file: Any) -> range:
        return range(file.num_row_groups) if self.groups is None else range(*self.groups)


def _opened(path: Path | StoreFile) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if isinstance(path, Path):  # a row group may be the whole table
            return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
        return pq.ParquetFile(path.open(cache="none"))
    except pa.ArrowInvalid:
        raise SourceError(f"{path} is not a Parquet file. Write the table again, or name another.") from None
