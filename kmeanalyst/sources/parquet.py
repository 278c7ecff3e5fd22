"""Parquet files, on this machine or in a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmeanalyst.sources.source import ArrowSource, SourceError
from kmeanalyst.sources.stores import StoreFile

_BATCH_ROWS = 20_000


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
            groups = list(self._groups(file))
            yield from file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, columns=list(names))

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
        return pq.ParquetFile(path if isinstance(path, Path) else path.open(cache="none"))
    except pa.ArrowInvalid:
        raise SourceError(f"{path} is not a Parquet file. Write the table again, or name another.") from None


__all__ = ["ParquetFile"]
