"""How the reader says no: one exception, whose message has what, why and mend, and the limits it keeps.

A message may repeat what a file says, which is as suspect as the rest of it: a character that is not printable,
such as one that begins a command to the terminal, is shown by its number.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

MOST_BYTES = 2**31 - 1  # of a file: below this a zip needs no 64-bit extension
MOST_HEADER_BYTES = 2**24
MOST_HEADER_DEPTH = 32
MOST_HEADER_MARKS = 2**20  # commas and opening brackets: it has about as many values
MOST_COLUMNS = 5000
MOST_KERNEL_WORK = 100_000  # passes over a Gram matrix, one for each column and lengthscale that a part looks at
MOST_DERIVED_COLUMNS = 100
MOST_DERIVED_WORK = 2**28  # characters of their expressions × (points + 5000 + 100 × columns + 50 × levels of one)
MOST_MEMBERS = 10_000
MOST_CELLS = 10_000_000  # rows × (columns + weight) of the points
MOST_ROW_GROUPS = 1000
MOST_FOOTER_BYTES = 2**22  # of points.parquet
MOST_PAGES = 200_000
MOST_BASIS_POINTS = 10_000  # of a subspace: its Gram matrix is built on reading
MOST_FEATURES = 100_000_000  # cells of the grids of a feature map, which no array of it holds
MOST_PIVOTS = 3000  # of a released function: five products of matrices of this size prove its bound on reading
MOST_TABLES = 1_000_000  # that margins are of, in all parts of a composed feature map
MOST_BASIS_WORK = 10_000_000_000  # entries of that matrix × passes of the kernel

_AGAIN = "Fetch the file again, or ask its maker for a sound one"


class FileRefused(ValueError):
    """A file that cannot be read as a release, or is not to be trusted; the message has the mend.

    >>> ka.read_release("my_sample.csv")
    Traceback (most recent call last):
        ...
    kmeanalyst.releases.file.refusal.FileRefused: my_sample.csv: the file is not a whole zip archive: it is
        truncated, padded, or no release at all. Fetch the file again, or ask its maker for a sound one.
    """


class HoldsFunction(FileRefused):
    """A file that holds a function of a table, and no release: `read_function` reads it."""


def refusal(what: str, why: str, mend: str = _AGAIN) -> FileRefused:
    """The exception to raise, with what was found, why it is refused, and the mend."""
    return FileRefused(_printable(f"{what}: {why}. {mend}."))


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn what a hostile value provokes in `what` into a refusal."""
    try:
        yield
    except FileRefused:
        raise
    except (
        ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, OSError, MemoryError,
        RecursionError, NotImplementedError, zipfile.BadZipFile, struct.error,
    ) as error:  # fmt: skip
        raise refusal(what, f"it does not make sense ({' '.join(str(error).split()).rstrip('.'):.300})") from None
