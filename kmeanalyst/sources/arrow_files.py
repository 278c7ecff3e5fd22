"""Arrow IPC files, which Feather is another name for: their types are declared in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmeanalyst.sources.source import ArrowSource, SourceError
from kmeanalyst.sources.stores import StoreFile


@dataclass(frozen=True, eq=False, repr=False)
class ArrowFile(ArrowSource):
    """The record batches of an Arrow IPC file. One batch is in memory at a time."""

    path: Path | StoreFile

    @classmethod
    def of(cls, path: Path | StoreFile) -> ArrowFile:
        """The table in a file; SourceError if it is no Arrow IPC file."""
        with _opened(path) as file:
            return cls(file.schema, path)

    def count(self) -> int:
        return sum(batch.num_rows for batch in self.batches(self.schema.names[:1]))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        with _opened(self.path, [self.schema.names.index(name) for name in names]) as file:
            yield from (file.get_batch(i) for i in range(file.num_record_batches))

    def divided(self, n_rows: int) -> list[ArrowSource]:
        return [self]


@contextmanager
def _opened(path: Path | StoreFile, columns: list[int] | None = None) -> Iterator[Any]:
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=columns)
    with pa.OSFile(str(path)) if isinstance(path, Path) else path.open() as handle:
        try:
            file = pa.ipc.open_file(handle, options=options)
        except pa.ArrowInvalid:
            raise SourceError(f"{path} is not an Arrow IPC file. Write the table again, or name another.") from None
        yield file
