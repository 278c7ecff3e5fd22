"""CSV files: every line is one row, whatever quotes it has, and no line is dropped.

Quotes never span lines: a quote must not swallow other rows. Nothing here raises, warns or chooses by the value of a cell.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL
from kmeanalyst.sources.files import File
from release_side.errors import PublishError
from release_side.private_rows.foreign import GuardedBytes
from release_side.private_rows.table import PrivateTable

_T = TypeVar("_T")


@dataclass(frozen=True)
class CsvFile(PrivateTable):
    """Lines of a CSV file, each of them one row.

    lines   (offset of the first line in bytes, number of lines); None for all but the header.
    """

    path: File
    lines: tuple[int, int] | None = None

    @property
    def header(self) -> list[str]:
        with open_bytes(self.path) as handle:
            first = gunzipped(self.path, handle.readline)
        if b"\r" in first.rstrip(b"\r\n"):  # the header would contain every row, and messages show headers
            raise PublishError(
                f"{self.path} ends its lines with carriage returns alone, so that it is one long line. "
                "Write it again with newlines."
            )
        if not first.strip():
            raise PublishError(
                f"{self.path} is empty: it has no header line. Name a table whose first line names its columns."
            )
        return _cells(first.removeprefix(b"\xef\xbb\xbf"))

    def count(self) -> int:
        if self.lines is not None:
            return self.lines[1]
        with open_bytes(self.path) as handle:
            return gunzipped(self.path, lambda: sum(1 for _ in handle)) - 1

    def check_readable(self) -> None:
        self.count()

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        header = self.header
        indices = {name: header.index(name) for name in names}
        with open_bytes(self.path) as handle:
            lines = self._lines(handle)
            while rows := [_cells(line) for _, line in zip(range(self.piece), lines, strict=False)]:
                yield {name: _column(rows, index) for name, index in indices.items()}

    def _lines(self, handle: IO[bytes]) -> Iterator[bytes]:
        if self.lines is None:
            handle.readline()
            return iter(handle)
        offset, n_rows = self.lines
        handle.seek(offset)
        return islice(handle, n_rows)

    def divided(self, n_rows: int) -> list[PrivateTable]:
        if (
            self.lines is not None or not isinstance(self.path, Path) or is_gzipped(self.path)
        ):  # a line is found only by reading all
            return [self]
        parts, first, size = list[PrivateTable](), 0, 0
        with open_bytes(self.path) as handle:
            first = offset = len(handle.readline())
            for line in handle:
                offset, size = offset + len(line), size + 1
                if size == n_rows:
                    parts.append(CsvFile(self.path, (first, size)))
                    first, size = offset, 0
        return [*parts, CsvFile(self.path, (first, size))] if size or not parts else parts


def is_gzipped(path: File) -> bool:
    """Whether the name says that a file is compressed."""
    return path.name.lower().endswith(".gz")


def open_bytes(path: File) -> IO[bytes]:
    """A file for reading; a .gz file inflated."""
    if not isinstance(path, Path):
        handle = io.BufferedReader(GuardedBytes(path.open))
        return gzip.GzipFile(fileobj=handle, mode="rb") if is_gzipped(path) else handle  # type: ignore[return-value]
    return gzip.open(path, "rb") if is_gzipped(path) else open(path, "rb")  # type: ignore[return-value]


def gunzipped(path: File, read: Callable[[], _T]) -> _T:
    """What `read` returns; PublishError if the file is not a whole .gz file."""
    try:
        return read()
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise PublishError(
            f"{path} is cut off, damaged or no .gz file, so its rows cannot be read. Write it again."
        ) from None


def _cells(line: bytes) -> list[str]:
    """The cells of one line, from that line alone; a cell with an undecodable byte equals no level or number."""
    text = line.decode("utf-8", errors="surrogateescape").rstrip("\r\n").replace("\r", " ")
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text]), [""])
    except csv.Error:  # a field beyond the csv module's limit
        return text.split(",")


def _column(rows: list[list[str]], index: int) -> Array:
    cells = (row[index] if index < len(row) else NO_CELL for row in rows)
    return np.fromiter(cells, dtype=object, count=len(rows))


__all__ = ["CsvFile", "gunzipped", "is_gzipped", "open_bytes"]
