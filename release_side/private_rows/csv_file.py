"""CSV files: every line is one row, whatever quotes it has, and no line is dropped.

Quotes never span lines: a quote must not swallow other rows. Nothing here raises, warns or chooses by the value of a cell.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import pyarrow as pa

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL, CodedCells
from kmeanalyst.sources.arrow_cells import distinct
from kmeanalyst.sources.files import File, is_gzipped
from release_side.errors import PublishError
from release_side.private_rows.table import GuardedBytes, PrivateTable

_T = TypeVar("_T")
_CHUNK = 2**20  # bytes, as many as are counted at a time
_COMMA, _NEWLINE = b",\n"
_QUOTED = re.compile(rb'(?:"[^",\r]*+"|[^",\r]*+)(?:,(?:"[^",\r]*+"|[^",\r]*+))*+')
_LONGEST = 2**17  # the csv module's limit of a field


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
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise PublishError(f"{self.path} is UTF-16, and tables are read as UTF-8. Write it again as UTF-8.")
        if b"\r" in first.rstrip(b"\r\n"):  # the header would contain every row, and messages show headers
            raise PublishError(
                f"{self.path} ends its lines with carriage returns alone, so that it is one long line. "
                "Write it again with newlines."
            )
        if not first.strip():
            what = "begins with a blank line" if first else "is empty: it has no header line"
            raise PublishError(f"{self.path} {what}. Name a table whose first line names its columns.")
        return _cells(first.removeprefix(b"\xef\xbb\xbf"))

    @property
    def files(self) -> tuple[File, ...]:
        return (self.path,)

    def count(self) -> int:
        if self.lines is not None:
            return self.lines[1]
        with open_bytes(self.path) as handle:
            return gunzipped(self.path, lambda: sum(chunk.count(b"\n") for chunk in _chunks(handle))) - 1

    def check_readable(self) -> None:
        self.count()

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        header = self.header
        indices = [header.index(name) for name in names]
        with open_bytes(self.path) as handle:
            lines = self._lines(handle)
            while piece := list(islice(lines, self.piece)):
                yield dict(zip(names, _columns(piece, indices), strict=True))

    def _lines(self, handle: IO[bytes]) -> Iterator[bytes]:
        if self.lines is None:
            handle.readline()
            return iter(handle)
        offset, n_rows = self.lines
        handle.seek(offset)
        return islice(handle, n_rows)

    def divided(self, n_rows: int) -> list[PrivateTable]:
        on_disk = isinstance(self.path, Path) and not is_gzipped(self.path.name)
        if self.lines is not None or not on_disk:  # elsewhere a line is found only by reading all before it
            return [self]
        starts, rows = list[int](), 0
        with open_bytes(self.path) as handle:
            starts.append(offset := len(handle.readline()))
            for chunk in _chunks(handle):
                before, found = rows % n_rows, chunk.count(b"\n")
                if before + found >= n_rows:
                    ends = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == _NEWLINE)
                    starts += (offset + 1 + ends[n_rows - 1 - before :: n_rows]).tolist()
                rows, offset = rows + found, offset + len(chunk)
        if rows and rows % n_rows == 0:
            starts.pop()  # the end of the file
        return [CsvFile(self.path, (start, min(n_rows, rows - i * n_rows))) for i, start in enumerate(starts)]


def open_bytes(path: File) -> IO[bytes]:
    """A file for reading; a .gz file inflated."""
    if isinstance(path, Path):
        # without a buffer around it, Python code would read each line of a .gz file
        return io.BufferedReader(gzip.open(path, "rb")) if is_gzipped(path.name) else open(path, "rb")
    stored = io.BufferedReader(GuardedBytes(path.open))
    return io.BufferedReader(gzip.GzipFile(fileobj=stored)) if is_gzipped(path.name) else stored


def _chunks(handle: IO[bytes]) -> Iterator[bytes]:
    """The bytes of a file, and a newline after a last line that has none."""
    last = b"\n"
    while chunk := handle.read(_CHUNK):
        yield (last := chunk)
    if not last.endswith(b"\n"):
        yield b"\n"


def gunzipped(path: File, read: Callable[[], _T]) -> _T:
    """What `read` returns; PublishError if the file is not a whole .gz file."""
    try:
        return read()
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise PublishError(f"{path} is cut off, damaged or no .gz file, so its rows cannot be read. Write it again.") from None


def _cells(line: bytes) -> list[str]:
    """The cells of one line, from that line alone; a cell with an undecodable byte equals no level or number."""
    text = line.decode("utf-8", errors="surrogateescape").rstrip("\r\n").replace("\r", " ")
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text]), [""])
    except csv.Error:  # a field beyond the csv module's limit
        return text.split(",")


def _columns(lines: Sequence[bytes], indices: Sequence[int]) -> list[CodedCells]:
    """The cells of these columns, line by line; NO_CELL where a line ends before.

    A text of cells, each with the comma or newline before it, is cut at these bytes, whatever others it has. No library looks for
    lines, quotes, numbers or empty cells in it.
    """
    text, odd = _plain(lines)
    letters = np.frombuffer(text, dtype=np.uint8)
    cuts = np.flatnonzero((letters == _COMMA) | (letters == _NEWLINE))
    cells = pa.Array.from_buffers(pa.large_binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), pa.py_buffer(text)])
    firsts = np.flatnonzero(letters[cuts] == _NEWLINE)
    return [_column(cells, firsts, index, odd) for index in indices]


def _plain(lines: Sequence[bytes]) -> tuple[bytes, dict[int, list[str]]]:
    """Lines, a newline before each and one at the end, and the cells of odd lines by number, in whose place empty lines are."""
    text = b"".join(lines)
    if b'"' not in text and b"\r" not in text:
        return b"\n" + text + b"\n" * (not text.endswith(b"\n")), {}
    bare = [_without_quotes(line.rstrip(b"\r\n")) for line in lines]
    odd = {i: _cells(line) for i, line in enumerate(bare) if b'"' in line or b"\r" in line}
    return b"\n".join([b"", *(b"" if i in odd else line for i, line in enumerate(bare)), b""]), odd


def _without_quotes(line: bytes) -> bytes:
    """A line of the same cells, if its quotes are around whole cells and no cell has a comma; else the line."""
    return line.replace(b'"', b"") if b'"' in line and len(line) < _LONGEST and _QUOTED.fullmatch(line) else line


def _column(cells: Any, firsts: Array, index: int, odd: dict[int, list[str]]) -> CodedCells:
    """The cells of one column, from those of all; `firsts` has the first of each line, and the end."""
    places = firsts[:-1] + index
    codes, found = distinct(cells.take(pa.array(places, mask=places >= firsts[1:])))
    words: list[Any] = [word[1:].decode("utf-8", errors="surrogateescape") for word in found.to_pylist()]
    words.append(NO_CELL)
    codes[list(odd)] = np.arange(len(words), len(words) + len(odd))
    words += [row[index] if index < len(row) else NO_CELL for row in odd.values()]
    return CodedCells(codes, words)
