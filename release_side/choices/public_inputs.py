"""Refuse a private table that is passed as something public: points, pivots, a grid, the sample of a domain.

The released file holds public points unchanged, and a drafted domain holds the levels and extremes of its sample. Both
sides are expanded to the files that would be read. A file is the private one if device and inode agree, or if size and
SHA-256 of the content agree (of a .gz file, of the inflated content). DataFrames are compared cell by cell. Public points
are then compared with the private rows, in any format and order, as the domain encodes them (same_rows.py).

This comparison reads private bytes before the noise, and its answer depends on them. A refusal reveals that a file which
the curator calls public is a file of the private table, or that the two tables hold the same rows. This is safe if only
the curator, who has both, chooses the public file and sees the answer. Nothing of the comparison enters a release.
A curator who lets others propose public files must not let them learn the answer: it would confirm a guess of a whole
file, or of a whole table in the compared columns. With `unit` the number of rows is not public, and a refusal confirms it
only together with every row of such a guess. PROMISE.md says so.

Not detected: selections of the private rows, private rows among others, rows that were changed, and for the sample of a
domain also other formats and orders.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from kmeanalyst.releases.domain.cells import cell_by_cell, text_of
from kmeanalyst.releases.domain.domain import Domain, SampleDigest
from kmeanalyst.sources.files import File, check_regular
from kmeanalyst.sources.stores import StoreFile, is_url, store_files
from release_side.choices.same_rows import same_rows
from release_side.errors import PublishError
from release_side.private_rows.csv_file import gunzipped, open_bytes
from release_side.private_rows.foreign import NOT_LISTED, guarded
from release_side.private_rows.rows import PrivateSource, Table, has_rows, is_path, paths_of
from release_side.private_rows.table import silently

_CHUNK = 2**20  # bytes read at a time


def refuse_private_as_public(
    private: PrivateSource, public: Table | None, domain: Domain, samples: Sequence[SampleDigest] = ()
) -> None:
    """PublishError if the public rows are the private table, or the domain was drafted from it.

    public    public points, pivots or a grid; None if there are none.
    domain    the columns that a release holds of the public rows.
    samples   digests of the samples from which the domain was drafted; none for a rehearsal, which protects no row and is
              best run on the public sample.
    """
    with _comparable():
        found = "" if public is None else _which_is_private(private, public)
        if public is not None and not found and same_rows(private, public, domain):
            found = "the two hold the same rows"
        if found:
            raise PublishError(
                f"the public points are the private table itself: its rows would be in the release unchanged ({found}). "
                "Name a file of rows that are public already, or leave it out."
            )
        if samples and (found := _which_is_a_sample(private, samples)):
            raise PublishError(
                "the domain was drafted from the private table itself: its bounds and levels would reveal private values "
                f"({found}). Draft it from a public sample, a code book or common knowledge."
            )


def refuse_private_as_workload(private: PrivateSource, workload: str | Path) -> None:
    """PublishError if the text of questions is a file of the private table: messages would show its lines."""
    with _comparable():
        if found := _which_is_private(private, workload):
            raise PublishError(
                f"the workload is the private table itself ({found}). Name a text file with a question on each line."
            )


def samples_of(sample: Table) -> tuple[SampleDigest, ...]:
    """The digests that identify a public sample: one for each of its files, or one of a DataFrame's cells."""
    if isinstance(sample, pd.DataFrame):
        return (_digest_of_frame(sample),)
    with _comparable():
        return tuple(_File(path).whole_content() for path in public_files(sample))


def public_files(source: str | Path) -> list[File]:
    """Every file that reading public rows from a path may touch: all files of a folder, with links followed.

    A glob is expanded too. A path that does not exist has no files: the reader of public rows refuses it.
    """
    if isinstance(source, str) and is_url(source):
        return list(guarded(lambda: store_files(source, lambda name: True), NOT_LISTED))
    path = Path(source)
    found = [path] if path.exists() else sorted(Path(match) for match in glob.glob(str(source)))
    files = [file for each in found for file in (_files_below(each) if each.is_dir() else [each])]
    for file in files:
        guarded(lambda file=file: check_regular(file), NOT_LISTED)  # type: ignore[misc]
    return list(files)


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


def _identity(path: File) -> tuple[int, int] | str:
    if isinstance(path, StoreFile):
        return path.url
    status = path.stat()
    return status.st_dev, status.st_ino


@contextmanager
def _comparable() -> Iterator[None]:
    """PublishError for a file that cannot be read, because it might be the private table."""
    try:
        yield
    except OSError as error:
        raise PublishError(
            f"{error.filename} could not be read, so public files cannot be compared with the private table: "
            f"{error.strerror}. Make it readable, or name another file."
        ) from None


@dataclass(frozen=True)
class _File:
    """A file with the size and digest of its content, computed when needed; at most `most` bytes are read."""

    path: File
    most: int | None = None

    @cached_property
    def content(self) -> SampleDigest | None:
        """Size and digest; None if there are more than `most` bytes."""
        return gunzipped(self.path, self._read)

    @cached_property
    def size(self) -> int | None:
        """Size of the content; None if it is compressed and there are more than `most` bytes."""
        if not self.path.name.lower().endswith(".gz"):
            return self.path.stat().st_size if isinstance(self.path, Path) else guarded(self.path.size, NOT_LISTED)
        return None if self.content is None else self.content.bytes

    def whole_content(self) -> SampleDigest:
        assert self.content is not None  # for files without a limit
        return self.content

    def _read(self) -> SampleDigest | None:
        digest, size = hashlib.sha256(), 0
        with open_bytes(self.path) as handle:
            while chunk := handle.read(_CHUNK):
                size += len(chunk)
                if self.most is not None and size > self.most:
                    return None
                digest.update(chunk)
        return SampleDigest(digest.hexdigest(), bytes=size)


def _which_is_private(private: PrivateSource, public: Table) -> str:
    """Which public input is a part of the private table, in words; "" if none was found."""
    if isinstance(private, pd.DataFrame) and isinstance(public, pd.DataFrame):
        return "the two DataFrames hold the same cells" if _same_cells(private, public) else ""
    if not is_path(private) or not is_path(public):
        return ""
    own, others = paths_of(private), public_files(public)
    identities = {_identity(path) for path in own}
    for path in others:
        if _identity(path) in identities:
            return f"{path} is a file of it"
    known = [(file.size, file.whole_content) for file in map(_File, others)]
    return _with_known_content(own, known)


def _which_is_a_sample(private: PrivateSource, samples: Sequence[SampleDigest]) -> str:
    """Which part of the private table is one of the samples, in words; "" if none is."""
    if isinstance(private, pd.DataFrame):
        sizes = {sample.rows for sample in samples}
        same = len(private) in sizes and _digest_of_frame(private) in samples
        return "the DataFrame holds the cells of the sample" if same else ""
    if not is_path(private):
        return ""
    known = [(sample.bytes, lambda sample=sample: sample) for sample in samples]
    return _with_known_content(paths_of(private), known)


def _with_known_content(paths: Iterable[File], known: Sequence[tuple[int | None, Callable[[], SampleDigest]]]) -> str:
    """Which file has content of known size and digest, in words; digests are computed only where sizes agree.

    Files without a row are ignored: empty parts of any two tables are equal.
    """
    most = max((size for size, _ in known if size is not None), default=None)
    if most is None:
        return ""
    for file in (_File(path, most) for path in paths):
        same = any(size == file.size and content() == file.content for size, content in known)
        if same and has_rows(file.path):
            return f"{file.path} has the same content"
    return ""


def _same_cells(private: pd.DataFrame, public: pd.DataFrame) -> bool:
    """Whether two frames have the same rows, in the same order, in all columns that both have.

    A selection of private rows is accepted: a curator may publish some of them on purpose (PROMISE.md).
    """
    if private is public:
        return True
    ours, theirs = _columns_of(private), _columns_of(public)
    common = [name for name in ours if name in theirs]
    if not common or len(private) != len(public) or len(private) == 0:
        return False
    return silently(lambda: all(_texts(ours[name]) == _texts(theirs[name]) for name in common))


def _columns_of(frame: pd.DataFrame) -> dict[str, pd.Series]:
    return {str(name): frame.iloc[:, j] for j, name in enumerate(frame.columns)}


def _texts(cells: pd.Series) -> list[str | None]:
    return [text_of(cell) for cell in cell_by_cell(cells)]


def _digest_of_frame(frame: pd.DataFrame) -> SampleDigest:
    """The digest of a frame's cells as texts; it does not depend on types, index or order of columns."""
    digest = hashlib.sha256()
    for name, cells in sorted(_columns_of(frame).items()):
        for text in (name, *silently(lambda cells=cells: _texts(cells))):  # type: ignore[misc]
            data = b"" if text is None else text.encode("utf-8", errors="surrogatepass")
            digest.update(b"%d:" % (-1 if text is None else len(data)) + data)
    return SampleDigest(digest.hexdigest(), rows=len(frame))
