"""Refuse a private table that is passed as something public: points, pivots, a grid, the sample of a domain, a workload.

A public file is the private one if device and inode agree, or if size and SHA-256 of the content agree (of a .gz file, of the
inflated content). Public points are then compared with the private rows, in any format and order, as multisets of encoded rows with
numbers to 24 binary digits: readers of CSV differ in the last digit, and single precision has no more.

This comparison reads private bytes before the noise, and its answer depends on them: it is safe if only the curator, who has both,
chooses the public file and sees the answer. Nothing of it enters a release. What it reveals, and what it cannot detect: PROMISE.md.
"""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.sample_digest import SampleDigest
from kmeanalyst.sources.files import File, check_regular
from kmeanalyst.sources.stores import StoreFile, is_url, store_files
from kmeanalyst.sources.tables import Table as PublicTable
from kmeanalyst.sources.tables import table_of
from release_side.errors import PublishError
from release_side.private_rows.csv_file import gunzipped, open_bytes
from release_side.private_rows.rows import Table
from release_side.private_rows.table import NOT_LISTED, PrivateTable, guarded, without_warnings

_CHUNK = 2**20  # bytes read at a time
_DIGITS = 24  # binary digits of a number that are compared: those of single precision
_EMPTY_LINES = 8  # largest difference of the numbers of rows: an empty line adds one
_DIGEST_BYTES = 16


def refuse_private_as_public(
    private: PrivateTable, public: Table | None, domain: Domain, samples: Sequence[SampleDigest] = (),
    workload: object = None,
) -> None:  # fmt: skip
    """PublishError if the public rows or the workload are the private table, or the domain was drafted from it.

    private   its columns were checked.
    public    public points, pivots or a grid; None if there are none.
    domain    the columns that a release holds of the public rows.
    samples   digests of the samples from which the domain was drafted; none for a rehearsal, which protects no row and is
              best run on the public sample.
    workload  the path of a text of questions, which messages may quote; anything else is ignored.
    """
    if not isinstance(public, str | Path | pd.DataFrame | None):
        open_public(public)
    with _comparable():
        same = "" if public is None else _which_is_private(private, public)
        if public is not None and not same and _same_rows(private, public, domain):
            same = "the two hold the same rows"
        if same:
            raise PublishError(
                f"the public points are the private table itself: its rows would be in the release unchanged ({same}). "
                "Name a file of rows that are public already, or leave it out."
            )
        if samples and (same := _which_is_a_sample(private, samples)):
            raise PublishError(
                "the domain was drafted from the private table itself: its bounds and levels would reveal private values "
                f"({same}). Draft it from a public sample, a code book or common knowledge."
            )
    if isinstance(workload, str | Path):
        refuse_private_as_workload(private, workload)


def refuse_private_as_workload(private: PrivateTable, workload: str | Path) -> None:
    """PublishError if the text of questions is a file of the private table: messages would show its lines."""
    with _comparable():
        if same := _which_is_private(private, workload):
            raise PublishError(f"the workload is the private table itself ({same}). Name a text file with a question on each line.")


def samples_of(sample: Table) -> tuple[SampleDigest, ...]:
    """The digests that identify a public sample: one for each of its files, or one of a DataFrame's cells."""
    with _comparable():
        if isinstance(sample, pd.DataFrame):
            return (SampleDigest.of_frame(sample),)
        return tuple(_Content(path).whole_digest() for path in public_files(sample))


def public_files(source: str | Path) -> list[File]:
    """Every file that reading public rows from a path may touch: all files of a folder, with links followed.

    A glob is expanded too. A path that does not exist has no files: the reader of public rows refuses it.
    """
    if isinstance(source, str) and is_url(source):
        return list(guarded(lambda: store_files(source, lambda name: True), NOT_LISTED))
    path = Path(source)
    places = [path] if path.exists() else sorted(Path(match) for match in glob.glob(str(source)))
    files = [file for place in places for file in (_files_below(place) if place.is_dir() else [place])]
    for file in files:
        guarded(lambda file=file: check_regular(file), NOT_LISTED)  # type: ignore[misc]
    return list(files)


def open_public(public: Any) -> PublicTable:
    """Public rows that are no DataFrame of pandas; PublishError for what is not a table."""
    if (table := table_of(public)) is None:
        raise PublishError(
            f"public rows are a table, and a {type(public).__name__} is not: its columns have no names. Pass a path or a frame, "
            'as pd.DataFrame(X, columns=["x", "y"]) of an array X, in the columns\' own units.'
        )
    return table


def _files_below(folder: Path) -> Iterator[Path]:
    """All files in a folder and its subfolders; each folder once, even if several links lead to it."""
    seen: set[tuple[int, int] | str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        if (here := _identity(Path(parent))) in seen:
            folders.clear()
            continue
        seen.add(here)
        folders.sort()
        yield from (Path(parent) / name for name in sorted(names))


def _raise(error: OSError) -> None:
    raise error


@contextmanager
def _comparable() -> Iterator[None]:
    """PublishError for a file that cannot be read, because it might be the private table; no warnings, which could show a cell."""
    try:
        with without_warnings():
            yield
    except OSError as error:
        raise PublishError(
            f"{error.filename} could not be read, so public files cannot be compared with the private table: "
            f"{error.strerror}. Make it readable, or name another file."
        ) from None


# ---------------------------------------------------------------------- the same files, or the same frame


def _identity(path: File) -> tuple[int, int] | str:
    if isinstance(path, StoreFile):
        return path.url
    status = path.stat()
    return status.st_dev, status.st_ino


@dataclass(frozen=True)
class _Content:
    """The size and digest of a file's content, computed when needed; at most `most` bytes are read."""

    path: File
    most: int | None = None

    @cached_property
    def digest(self) -> SampleDigest | None:
        """None if there are more than `most` bytes."""
        return gunzipped(self.path, self._read)

    @cached_property
    def size(self) -> int | None:
        """Bytes of the content; None if it is compressed and there are more than `most`."""
        if not self.path.name.lower().endswith(".gz"):
            return self.path.stat().st_size if isinstance(self.path, Path) else guarded(self.path.size, NOT_LISTED)
        return None if self.digest is None else self.digest.bytes

    def whole_digest(self) -> SampleDigest:
        assert self.digest is not None  # for files without a limit
        return self.digest

    def _read(self) -> SampleDigest | None:
        digest, size = hashlib.sha256(), 0
        with open_bytes(self.path) as handle:
            while chunk := handle.read(_CHUNK):
                size += len(chunk)
                if self.most is not None and size > self.most:
                    return None
                digest.update(chunk)
        return SampleDigest(digest.hexdigest(), bytes=size)


def _which_is_private(private: PrivateTable, public: Table) -> str:
    """Which public input is a part of the private table, by its identity or its bytes, in words; "" if none is."""
    if isinstance(public, pd.DataFrame):
        return "they are one DataFrame" if public is private.pandas_frame else ""
    if not private.files:
        return ""
    identities, others = {_identity(path) for path in private.files}, public_files(public)
    for path in others:
        if _identity(path) in identities:
            return f"{path} is a file of it"
    return _with_content(private, [(file.size, file.whole_digest) for file in map(_Content, others)])


def _which_is_a_sample(private: PrivateTable, samples: Sequence[SampleDigest]) -> str:
    """Which part of the private table is one of the samples, in words; "" if none is."""
    if (frame := private.pandas_frame) is not None:
        sizes = {sample.rows for sample in samples}
        same = len(frame) in sizes and SampleDigest.of_frame(frame) in samples
        return "the DataFrame holds the cells of the sample" if same else ""
    return _with_content(private, [(sample.bytes, partial(replace, sample)) for sample in samples])


def _with_content(private: PrivateTable, contents: Sequence[tuple[int | None, Callable[[], SampleDigest]]]) -> str:
    """Which file of the table has one of these sizes and digests, in words; digests are computed only where sizes agree.

    Files without a row are ignored: empty parts of any two tables are equal.
    """
    most = max((size for size, _ in contents if size is not None), default=None)
    if most is None:
        return ""
    for part in private.parts:
        for file in (_Content(path, most) for path in part.files):
            same = any(size == file.size and digest() == file.digest for size, digest in contents)
            if same and part.count() > 0:
                return f"{file.path} has the same content"
    return ""


# ---------------------------------------------------------------------- the same rows


def _same_rows(private: PrivateTable, public: Table, domain: Domain) -> bool:
    """Whether the two tables hold the same rows, as the domain encodes them, in any order; False if public ones lack a column."""
    if private.read_once:
        raise PublishError(
            "public rows are compared with the private ones, and a RecordBatchReader can be read once only. Nothing was spent. "
            "Pass the private rows as a table or a file, or leave the public ones out."
        )
    count = private.count()
    others = _count(public, domain, most=count + _EMPTY_LINES)
    if others is None or abs(others - count) > _EMPTY_LINES or 0 in (others, count):
        return False
    digests = _Digests(domain, empty_rows=others == count)
    return digests.of(_encoded(public, domain)) == digests.of(private.encoded(domain)) != (0, 0)


def _encoded(public: Table, domain: Domain) -> Iterator[Array]:
    if isinstance(public, pd.DataFrame):
        yield domain.encode(public)
        return
    for rows, _ in open_public(public).encoded(domain):
        yield rows


def _count(public: Table, domain: Domain, *, most: int) -> int | None:
    headers = [public.columns] if isinstance(public, pd.DataFrame) else open_public(public).headers
    if any(list(header).count(name) != 1 for header in headers for name in domain.names_read):
        return None
    total = 0
    for rows in _encoded(public, domain):
        total += len(rows)
        if total > most:
            return None
    return total


class _Digests:
    """The number of rows and the sum of their keyed digests, which does not depend on their order.

    empty_rows   whether rows without a cell count.
    """

    def __init__(self, domain: Domain, *, empty_rows: bool) -> None:
        self._key = secrets.token_bytes(32)
        nothing = {name: np.array([NO_CELL], dtype=object) for name in domain.names_read}
        self._ignored = None if empty_rows else self._digest(_canonical(domain.encode(nothing))[0])

    def of(self, blocks: Iterable[Array]) -> tuple[int, int]:
        count, total = 0, 0
        for block in blocks:
            digests = [self._digest(row) for row in _canonical(block)]
            kept = [digest for digest in digests if digest != self._ignored]
            count, total = count + len(kept), total + sum(kept)
        return count, total % 2 ** (8 * _DIGEST_BYTES)

    def _digest(self, row: Array) -> int:
        return int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=_DIGEST_BYTES, key=self._key).digest())


def _canonical(rows: Array) -> Array:
    """Encoded rows to 24 binary digits, with one NaN and one zero."""
    mantissas, exponents = np.frexp(rows)
    rounded = np.ldexp(np.round(np.ldexp(mantissas, _DIGITS)), exponents - _DIGITS) + 0.0
    return np.ascontiguousarray(np.where(np.isnan(rows), np.nan, rounded))
