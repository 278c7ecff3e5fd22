"""Datasets of pyarrow: the files of a table, each with its own types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kmeanalyst.sources.source import BATCH_ROWS, INFERRED, ArrowSource, SourceError


def is_dataset(source: object) -> bool:
    """Whether a table is a pyarrow.dataset.Dataset."""
    import pyarrow.dataset as ds

    return isinstance(source, ds.Dataset)


def fragments_of(dataset: Any) -> list[Fragment]:
    """The files of a dataset, each with its own types: those of the dataset would be the first file's.

    Errors   SourceError for a dataset without files, with a filter, or of texts whose types would follow from their values.
    """
    import pyarrow.dataset as ds

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
