"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOM = 2**20  # bytes; a release of usual size has less


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary path in the folder of `path`; what is written there becomes `path` when the block ends well.

    Until then an older file at `path` stays as it was. If the block raises, the temporary file is removed.
    """
    target = Path(path)
    temporary = _temporary(target)
    _create(temporary)
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(target.parent)


def check_place(path: str | Path) -> None:
    """OSError or ValueError now if `written_whole(path)` would fail later: every step of it but the last is taken.

    A temporary file of `_ROOM` bytes is written and removed; `path` is not touched. A larger file may still find no room.
    """
    temporary = _temporary(Path(path))
    _create(temporary)
    try:
        temporary.write_bytes(bytes(_ROOM))
        _flush(temporary)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(temporary.parent)


def _temporary(target: Path) -> Path:
    """A new name in the folder of `target`."""
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: a file cannot take its place. Name a file within it.")
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")


def _create(temporary: Path) -> None:
    """A new empty file, with the rights that new files have here."""
    try:
        temporary.open("xb").close()
    except FileNotFoundError:
        folder = temporary.parent
        raise FileNotFoundError(f"there is no folder {folder}, so nothing was written. Create it first.") from None


def _flush_folder(folder: Path) -> None:
    """Bring a folder's entries to the disk as well; systems other than POSIX cannot open a folder."""
    if os.name == "posix":
        _flush(folder, os.O_RDONLY)


def _flush(path: Path, flags: int = os.O_RDWR) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
