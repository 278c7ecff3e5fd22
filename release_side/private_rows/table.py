"""A private table: rows behind a counter and an encoder, whatever holds them.

Nothing here raises, warns or chooses by the value of a cell; the header, the types of the columns and the number of rows are
public. What a library raises while it reads may show a row, so that none of its text is kept: not in a message, and not in the
cause or context of an exception.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.statement import LONGEST_UNIT, is_unit_name
from kmeanalyst.releases.texts import other_separator
from kmeanalyst.sources.files import File
from kmeanalyst.sources.source import WHOLE, SourceError
from release_side.errors import PublishError

_T = TypeVar("_T")


class PrivateTable(ABC):
    """Private rows behind a counter and an encoder (abstract).

    piece   rows that are read at a time.
    """

    piece: ClassVar[int] = 20_000

    @property
    @abstractmethod
    def header(self) -> list[str]:
        """Column names; public."""

    @abstractmethod
    def count(self) -> int:
        """N, the number of rows; public."""

    @abstractmethod
    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Columns of cells, some rows at a time."""

    def type_of(self, name: str) -> str:
        """What the table declares about the cells of a column; public."""
        return "text"

    def refusal(self, name: str, column: Column | None) -> str:
        """Why the declared type of a column cannot be read; "" if it can. `column` is None for identifiers of units."""
        return ""

    def check_readable(self) -> None:
        """PublishError for a damaged file."""
        return None

    # ------------------------------------------------------------------ its identity: is a public input this table?

    @property
    def pandas_frame(self) -> pd.DataFrame | None:
        """The DataFrame of pandas that holds it; None if another thing does."""
        return None

    @property
    def parts(self) -> tuple[PrivateTable, ...]:
        """The tables that it consists of."""
        return (self,)

    @property
    def files(self) -> tuple[File, ...]:
        """The files that hold it, as far as they are known."""
        return ()

    @property
    def read_once(self) -> bool:
        """Whether its rows are gone once they were read."""
        return False

    def would_read(self, path: Path) -> bool:
        """Whether a file at `path`, once it exists, would belong to the table."""
        return False

    # ------------------------------------------------------------------ its rows

    def identified(self, column: str, domain: Domain) -> Iterator[tuple[Any, Array]]:
        """(cells of a column, encoded rows) in one pass, piece by piece: a source may give its rows in another order each time."""
        for piece in self._pieces([column, *domain.names_read]):
            yield piece[column], domain.encode(piece)

    def divided(self, n_rows: int) -> list[PrivateTable]:
        """Parts of about so many rows, which are the table together, for processes to read each by itself.

        Errors   PublishError for a table that other processes cannot read.
        """
        raise PublishError(WHOLE)

    def check_columns(self, domain: Domain, unit: str | None = None) -> list[str]:
        """PublishError or DomainError unless the table has every column of the domain, with a type that can be read.

        By the header and the declared types alone. Returns the other columns.

        unit   the column that identifies units, if there is one.
        """
        header = self.header
        if (mark := other_separator(header)) and set(header[0].split(mark)) & set(domain.names_read):
            raise PublishError(
                f"the header of the private table names columns of the domain with the separator {mark!r} between them, and "
                "cells are separated by commas. Write the table with commas."
            )
        if not set(header) & set(domain.names_read):
            raise PublishError(
                "the header of the private table names no column of the domain, so it may be a row, and it is not shown. "
                "Give the table a first line that names its columns, or correct the names in the domain."
            )
        others = domain.check_has_columns(header, what="the private table")
        if refusals := [why for name in domain.names_read if (why := self.refusal(name, domain[name]))]:
            raise PublishError(" ".join(refusals))
        if unit is not None:
            _check_unit(self, unit, domain)
        return others

    def encoded(self, domain: Domain) -> Iterator[Array]:
        """Encoded rows (n_i, d), piece by piece, without a warning, which could reveal the value of a cell."""
        pieces = self._pieces(domain.names_read)
        while (rows := silently(lambda: _next_encoded(pieces, domain))) is not None:
            yield rows


def _next_encoded(pieces: Iterator[dict[str, Any]], domain: Domain) -> Array | None:
    piece = next(pieces, None)
    return None if piece is None else domain.encode(piece)


def silently(work: Callable[[], _T]) -> _T:
    """What `work` returns, without warnings, which could reveal the value of a cell; in any number of threads."""
    with without_warnings():
        return work()


@contextmanager
def without_warnings() -> Iterator[None]:
    """Without warnings of floats and libraries; in any number of threads."""
    with np.errstate(all="ignore"), _NO_WARNINGS:
        yield


class _NoWarnings:
    """No warnings while any thread is inside: the filters are the process's, and the last one to leave restores them."""

    def __init__(self) -> None:
        self._lock, self._inside, self._filters = threading.Lock(), 0, warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._filters.__exit__(None, None, None)


_NO_WARNINGS = _NoWarnings()


def _check_unit(table: PrivateTable, column: str, domain: Domain) -> None:
    """PublishError unless the column is there, once, has a name for a file and a type that can identify, and is not published."""
    header = table.header
    if column in domain.names:
        raise PublishError(
            f"column {column!r} is named as the unit and is in the domain: what identifies units is never published. "
            "Remove it from the domain."
        )
    if header.count(column) != 1:
        found = "no column" if column not in header else "more than one column"
        raise PublishError(
            f"the private table has {found} {column!r}, so the rows of a unit cannot be found. Name the one column that "
            "identifies the units."
        )
    if not is_unit_name(column):
        raise PublishError(
            f"column {column!r:.80} is named as the unit, and its name cannot stand in a file: it has more than {LONGEST_UNIT} "
            "characters, or some that cannot be printed. Rename the column."
        )
    if why := table.refusal(column, None):
        raise PublishError(why)
    types = dict.fromkeys(part.type_of(column) for part in table.parts)
    if len({_kind_of_type(declared) for declared in types}) > 1:
        raise PublishError(
            f"the files of the private table declare {column!r} with types of different kinds ({', '.join(types)}), in which one "
            "identifier can be written in several ways: one unit would count as two. Cast it to one type in all files."
        )


def _kind_of_type(declared: str) -> str:
    """What kind of cells a declared type has, as far as two types of one kind write the same identifier alike."""
    name = re.sub(r"^dictionary<values=([^,>]*).*", r"\1", declared)
    if name.startswith(("timestamp", "decimal")):
        return name  # a unit, a time zone, a scale change how a value is written
    name = re.sub(r"^(large_|fixed_size_|u)|(_view)$|[\d(\[].*", "", name)
    return "text" if name == "string" else name


# ---------------------------------------------------------------------- what libraries raise

WITHHELD = (
    "Its own message is withheld because it may hold a private value; nothing was spent. Read the source where only you see "
    "what happens, or write the table to a Parquet file and publish that."
)
NOT_OPENED = f"the source of the private table could not be opened as a table of Arrow record batches. {WITHHELD}"
NOT_LISTED = f"the files of the private table could not be listed. {WITHHELD}"
BROKE_OFF = f"the source of the private table failed while it was read. {WITHHELD}"


def guarded(work: Callable[[], _T], what_failed: str) -> _T:
    """What a source returns. Its errors may show rows: none of their text, cause or context is kept."""
    interrupted, said = False, what_failed
    try:
        return silently(work)
    except PublishError:  # our own
        raise
    except SourceError as error:  # public facts alone, but perhaps a library's error as its context
        said = str(error)
    except KeyboardInterrupt:
        interrupted = True
    except BaseException:  # of any library; polars has errors that are no Exception
        pass
    if interrupted:  # here, outside of `except`, the new exception has no context
        raise KeyboardInterrupt
    raise PublishError(said)


class GuardedBytes(io.RawIOBase):
    """A file of another library, read behind `guarded`."""

    def __init__(self, opened: Callable[[], IO[bytes]]) -> None:
        self._file: Any = guarded(opened, NOT_OPENED)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = guarded(lambda: self._file.read(len(buffer)), BROKE_OFF)
        buffer[: len(found)] = found
        return len(found)
