"""Calls into the libraries that read sources: what they raise may show a row, so that none of its text is kept.

Not in a message, and not in the cause or context of an exception.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO, Any, TypeVar

from kmeanalyst.sources.source import SourceError
from release_side.errors import PublishError
from release_side.private_rows.table import silently

_T = TypeVar("_T")
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
