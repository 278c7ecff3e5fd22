"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary path in the folder of `path`; what is written there becomes `path` when the block ends well.

    Until then an older file at `path` stays as it was. If the block raises, the temporary file is removed.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: a file cannot take its place. Name a file within it.")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    _create(temporary)
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the folder's entry must reach the disk as well; other systems cannot open a folder
        _flush(target.parent, os.O_RDONLY)


def _create(temporary: Path) -> None:
    """A new empty file, with the rights that new files have here."""
    try:
        temporary.open("xb").close()
    except FileNotFoundError:
        folder = temporary.parent
        raise FileNotFoundError(f"there is no folder {folder}, so nothing was written. Create it first.") from None


def _flush(path: Path, flags: int = os.O_RDWR) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
