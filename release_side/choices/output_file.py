"""Check the output file of a release: an output that would fail is refused before anything is spent.

A draw of noise counts whether or not its file is written, so an output that cannot be written would waste budget.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kmeanalyst.releases.file.archive import check_place
from kmeanalyst.releases.texts import shown
from release_side.errors import PublishError
from release_side.private_rows.table import PrivateTable

_OF_LEDGER = ("", "-journal", "-wal", "-shm")  # SQLite keeps files of these names next to a database


@dataclass(frozen=True)
class Output:
    """The file that is written at the end.

    path    None for none.
    force   whether an older ordinary file may be replaced.
    what    is written, for messages.
    """

    path: str | Path | None = None
    force: bool = False
    what: str = "release"

    def check(self, private: PrivateTable, ledger: str | Path | None, others: tuple[object, ...] = ()) -> None:
        """PublishError, before anything is spent, if the file could not be written or would replace another.

        private, ledger   the private table and the ledger: never replaced, and no file is added to the table.
        others            further inputs, never replaced either; values that are not paths are ignored.
        Not detected      a file system with room for a mebibyte and no more; files that change between this check and the end.
        """
        if self.path is None:
            return
        path = self._place()
        for other in _inputs(private, ledger, others):
            if is_same_file(path, other):
                raise PublishError(
                    f"{self.path} is named as the {self.what}'s file and as another ({other}), which it would replace. "
                    "Name a new file."
                )
        if private.would_read(path):
            raise PublishError(f"{self.path} would be read as a part of the private table the next time. Name a file elsewhere.")
        self._check_older(path)

    def check_finished(self, partial: Path, ledger: str | Path | None) -> None:
        """PublishError if the file cannot be written, or would replace what was drawn, the ledger or an older file."""
        path = self._place()
        for other in (partial, *_of_ledger(ledger)):
            if is_same_file(path, other):
                raise PublishError(f"{other} is read here, and the release would replace it. Name another output.")
        self._check_older(path)

    def _place(self) -> Path:
        """The path; PublishError where no file can be written there."""
        _check_name(self.path or "", self.what)
        path = Path(self.path or "")
        _check_writable(path)
        return path

    def _check_older(self, path: Path) -> None:
        if os.path.lexists(path):
            _check_replaceable(path, self.what, force=self.force)

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Keep the name for one publication: PublishError, before anything is spent, if another is under way, or has ended."""
        if self.path is None:
            yield
            return
        marker, partial = marker_of(self.path), partial_of(self.path)
        try:
            mark(marker)
        except OSError as error:
            found = "exists, so another publication to this file is under way, or was stopped"
            why = found if isinstance(error, FileExistsError) else f"cannot be made: {error.strerror}"
            kept = os.path.lexists(partial)
            drawn = f", what it drew, and counted, is in {partial}: release-side finish makes the release of it" if kept else ""
            raise PublishError(
                f"{marker} {why}{drawn}. Nothing is spent now. Wait for it, remove what it left, or name another file."
            ) from None
        try:
            if os.path.lexists(partial):
                raise PublishError(
                    f"{partial} holds what an earlier publication to this file drew, and counted. Nothing is spent. Make the "
                    f"release of it with release-side finish {partial}, or remove it."
                )
            self._check_older(Path(self.path))
            yield
        finally:
            with suppress(OSError):  # the next publication to this file names what is left
                marker.unlink(missing_ok=True)


def partial_of(output: str | Path) -> Path:
    """The file beside an output that keeps what was drawn until the release is written."""
    return Path(f"{output}.partial")


def marker_of(output: str | Path) -> Path:
    """The file beside an output that keeps its name for one publication."""
    return Path(f"{output}.under-way")


def mark(marker: Path) -> None:
    """Make a marker of this process; FileExistsError where there is one."""
    file = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.write(file, str(os.getpid()).encode())
    os.close(file)


def under_way(marker: Path) -> int | None:
    """The process that a marker names, if it runs; None for no marker, and for one that a killed process left."""
    with suppress(OSError, ValueError):
        process = int(marker.read_text(encoding="ascii"))
        return process if is_running(process) else None
    return None


def is_running(process: int) -> bool:
    """Whether a process with this number runs on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user
        pass
    return process > 0


def _check_name(output: str | Path, what: str) -> None:
    if not str(output):
        raise PublishError("the output has no name, so nothing could be written. Name a file, such as table.kme.")
    if str(output).endswith(tuple(filter(None, (os.sep, os.altsep)))):
        raise PublishError(f"{output} names a folder, and a {what} is one file. Name a file within it.")


def _check_writable(path: Path) -> None:
    """PublishError if writing fails: a trial file is written next to the output."""
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise PublishError(
            f"the folder {path.absolute().parent} does not exist or is not writable, so {path} could not be written. Make it first."
        )
    try:
        check_place(path)
    except IsADirectoryError as error:
        raise PublishError(str(error)) from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise PublishError(
            f"{shown(path)!r:.300} cannot be written: {reason}. Nothing is spent. Name another file, in a folder with room "
            "and with a shorter name if this one is too long."
        ) from None


def _inputs(private: PrivateTable, ledger: str | Path | None, others: tuple[object, ...]) -> Iterator[Path]:
    yield from (file for file in private.files if isinstance(file, Path))  # no output is in a store
    yield from _of_ledger(ledger)
    yield from (Path(other) for other in others if isinstance(other, str | Path))


def _of_ledger(ledger: str | Path | None) -> Iterator[Path]:
    # SQLite's journal is beside the file behind a link
    names = set() if ledger is None else {str(ledger), os.path.realpath(ledger)}
    yield from (Path(f"{name}{ending}") for name in names for ending in _OF_LEDGER)


def is_same_file(path: Path, other: Path) -> bool:
    """Whether two paths name one file, now or once both exist: through links and other spellings too."""
    if path.exists() and other.exists():
        return path.samefile(other)
    return os.path.realpath(path) == os.path.realpath(other)


def _check_replaceable(path: Path, what: str, *, force: bool) -> None:
    """PublishError unless this is an ordinary file that may and can be replaced."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise PublishError(
            f"{path} is a symbolic link: the {what} would replace the link, and not the file behind it. Name a file that is "
            "not a link."
        )
    if not stat.S_ISREG(status.st_mode) or os.path.ismount(path):
        raise PublishError(
            f"{path} is not an ordinary file (it is a device, pipe or socket, or is mounted), and a {what} cannot replace it. "
            "Name a new file."
        )
    if not force:
        raise PublishError(
            f"{path} exists, and a replaced release cannot be drawn again. Name a new file, or pass --force (in "
            "Python force=True) to replace it."
        )
    if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise PublishError(f"{path} is read-only, so it is not replaced. Name a new file, or make this one writable.")
    folder = os.stat(path.absolute().parent)
    if os.name == "posix" and folder.st_mode & stat.S_ISVTX and os.geteuid() not in (0, status.st_uid, folder.st_uid):
        raise PublishError(f"{path} belongs to another user, in a folder where only owners may replace a file. Name a new file.")
