"""How the reader refuses a file: one exception, whose message has what, why and fix, and the limits on a file.

A message may repeat a text of the file, which cannot be trusted: the message is one line, and a character without a shape,
such as one that begins a command to the terminal, is written as its escape.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from kmeanalyst.releases.texts import one_line

MOST_BYTES = 2**31 - 1  # size of a file: up to it a zip needs no 64-bit extension
MOST_HEADER_DEPTH = 32
MOST_MEMBERS = 10_000
MOST_DERIVED_COLUMNS = 100
MOST_KERNEL_WORK = 100_000  # passes over a Gram matrix, one for each column and lengthscale of a part


@dataclass(frozen=True)
class Limits:
    """Bounds on the work that a reader does for a file: a small file can ask for much.

    columns        numbers in an encoded row.
    header_bytes   of release.json.
    header_marks   commas and opening brackets of the header: it has about as many values, including levels.
    points_bytes   of points.csv, inflated; more than the allowed cells can have.
    points         rows of points.csv.
    cells          points × (columns + 1 for the weight); a long level counts as several, and so does a text.
    derived_work   characters of the derived columns' expressions ×
                   (points + 5000 + 100 × columns + 50 × the most levels that a column has).
    rule_work      (characters of each rule's expression + 40) × (points + values of their columns at which they are tried).
    basis_points   of a subspace: matrices of that size are built on reading, and one is factorised.
    basis_work     entries of the subspace's Gram matrix × passes of the kernel.
    pivots         of a released function: five products of matrices of that size prove its bound on reading.
    pivot_work     entries of the pivots' Gram matrix × passes of the kernel; it is built four times.
    features       cells of the grids of a feature map, which are in none of its arrays.
    tables         of margins, in all parts of a composed feature map.
    feature_work   numbers that the feature map computes at the points, when `validate` recomputes what a file claims.
    """

    columns: int = 3000
    header_bytes: int = 2**22
    header_marks: int = 2**18
    points_bytes: int = 2**28
    points: int = 250_000
    cells: int = 5_100_000  # 50,000 points of 100 columns have 5,050,000
    derived_work: int = 2**26
    rule_work: int = 2**29
    basis_points: int = 3000
    basis_work: int = 600_000_000
    pivots: int = 1000
    pivot_work: int = 100_000_000
    features: int = 10_000_000
    tables: int = 200_000
    feature_work: int = 1_200_000_000


USUAL = Limits()
LARGE = Limits(
    columns=5000, header_bytes=2**24, header_marks=2**20, points_bytes=2**29, points=10_000_000, cells=10_000_000,
    derived_work=2**28, rule_work=2**36, basis_points=10_000, basis_work=10_000_000_000, pivots=3000, pivot_work=10_000_000_000,
    features=100_000_000, tables=1_000_000, feature_work=10**15,
)  # fmt: skip
_in_force: ContextVar[Limits] = ContextVar("limits", default=USUAL)


def limits() -> Limits:
    """The limits in force for the file that is being read."""
    return _in_force.get()


@contextmanager
def reading(*, large: bool) -> Iterator[None]:
    """Apply the usual limits to files, or the larger ones that a user asked for.

    Sums of a file's numbers may overflow without a warning: the checks refuse what is not finite.
    """
    token = _in_force.set(LARGE if large else USUAL)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _in_force.reset(token)


_AGAIN = "Fetch the file again, or ask its maker for a sound one"
_LARGE = "If you trust its maker, read it with --large (in Python large=True), which takes longer and more memory"


class FileRefused(ValueError):
    """A file that cannot be read as a release, or cannot be trusted; the message says how to fix it.

    >>> ka.read_release("my_sample.csv")
    Traceback (most recent call last):
        ...
    kmeanalyst.releases.file.limits.FileRefused: my_sample.csv: the file is not a whole zip archive: it is
        truncated, padded, or no release at all. Fetch the file again, or ask its maker for a sound one.
    """


class HoldsFunction(FileRefused):
    """A file that holds a function of a table, and no release: `read_function` reads it."""


def refusal(what: str, why: str, hint: str = _AGAIN) -> FileRefused:
    """The exception to raise, with what was found, why it is refused, and the fix."""
    return FileRefused(one_line(f"{what}: {why}. {hint}."))


def too_large(what: str, why: str) -> FileRefused:
    """The refusal of a file beyond the limits in force; the fix is to lift them, if that is possible."""
    return refusal(what, why, _AGAIN if limits() == LARGE else _LARGE)


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn the error that a hostile value causes in `what` into a refusal."""
    try:
        yield
    except FileRefused:
        raise
    except (
        ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, OSError, MemoryError,
        RecursionError, NotImplementedError, zipfile.BadZipFile, struct.error,
    ) as error:  # fmt: skip
        raise refusal(what, f"it does not make sense ({' '.join(str(error).split()).rstrip('.'):.300})") from None
