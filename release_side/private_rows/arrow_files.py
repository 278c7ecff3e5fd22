"""Files of Arrow record batches: Parquet, and the files of a dataset, each with its own types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release_side.errors import PublishError
from release_side.private_rows.batches import Batches
from release_side.private_rows.foreign import BROKE_OFF, INFERRED, NOT_OPENED, guarded
from release_side.private_rows.table import PrivateTable


@dataclass(frozen=True, eq=False, repr=False)
class ParquetFile(Batches):
    """Row groups of a Parquet file.

    groups   (first, last + 1) of the row groups; None for all.
    """

    path: Path
    groups: tuple[int, int] | None = None

    @classmethod
    def of(cls, path: Path) -> ParquetFile:
        """The table in a file; PublishError if it is no Parquet file."""
        with _opened(path) as file:
            return cls(file.schema_arrow, path)

    def count(self) -> int:
        with _opened(self.path) as file:
            return sum(file.metadata.row_group(i).num_rows for i in self._groups(file))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        with _opened(self.path) as file:
            yield from file.iter_batches(
                batch_size=self.piece, row_groups=list(self._groups(file)), columns=list(names)
            )

    def divided(self, n_rows: int) -> list[PrivateTable]:
        parts, first, size = list[PrivateTable](), 0, 0
        with _opened(self.path) as file:
            for i in self._groups(file):
                size += file.metadata.row_group(i).num_rows
                if size >= n_rows or i == file.num_row_groups - 1:
                    parts.append(ParquetFile(self.schema, self.path, (first, i + 1)))
                    first, size = i + 1, 0
        return parts

    def _groups(self, file: Any) -> range:
        return range(file.num_row_groups) if self.groups is None else range(*self.groups)


def _opened(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid:
        raise PublishError(f"{path} is not a Parquet file. Write the table again, or name another.") from None


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
        raise PublishError(f"the dataset is of text files{INFERRED}")
    if not fragments:
        raise PublishError("the dataset has no files, and no rows. Name the folder that has them.")
    return [Fragment(guarded(lambda each=each: each.physical_schema, NOT_OPENED), each) for each in fragments]  # type: ignore[misc]


@dataclass(frozen=True, eq=False, repr=False)
class Fragment(Batches):
    """One file of a dataset."""

    fragment: Any

    def count(self) -> int:
        return guarded(lambda: int(self.fragment.count_rows()), BROKE_OFF)

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        return iter(self.fragment.scanner(columns=list(names), batch_size=self.piece).to_reader())

    def divided(self, n_rows: int) -> list[PrivateTable]:
        return [self]


__all__ = ["Fragment", "ParquetFile", "fragments_of", "is_dataset"]
