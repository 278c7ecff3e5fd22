"""What commands read: the argument FILE.kme with its options, and the rows of an analyst's own file, block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.terminal import OnProgress, note
from kmeanalyst.releases.texts import one_line

if TYPE_CHECKING:
    import pandas as pd

    from kmeanalyst.release import Release
    from kmeanalyst.releases.function import ReleasedFunction

release_argument = click.argument("release_path", metavar="FILE.kme", type=click.Path())
_LARGE = "kmeanalyst.large"


def rehearsal_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that reads a .kme file: --allow-rehearsal, and --large, which `opened_*` look up."""
    large = click.option(
        "--large",
        is_flag=True,
        expose_value=False,
        callback=lambda context, _, value: context.meta.update({_LARGE: value}),
        help="Read files beyond the usual limits too: they may take minutes and gigabytes.",
    )
    rehearsal = click.option("--allow-rehearsal", is_flag=True, help="Read files stamped NOT PRIVATE too (rehearsals).")
    return rehearsal(large(command))


def reads_large() -> bool:
    """Whether the running command has the option --large."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_LARGE))


def check_not_read(output: str, *sources: str | None) -> None:
    """Raise ValueError if the output would replace a file that the command reads."""
    for source in (source for source in sources if source is not None):
        if os.path.exists(output) and os.path.exists(source) and os.path.samefile(output, source):
            raise ValueError(f"{output} is a file that is read, and writing would replace it. Name a new file.")


def opened_release(path: str, allow_rehearsal: bool) -> Release:
    """The release in a file, with a note where it is a rehearsal."""
    from kmeanalyst.release import read_release

    release = read_release(path, allow_rehearsal=allow_rehearsal, large=reads_large())
    _note_if_rehearsed(path, release)
    return release


def opened_function(path: str, allow_rehearsal: bool) -> ReleasedFunction:
    """The released function in a file, with a note where it is a rehearsal."""
    from kmeanalyst.releases.file import read_function

    function = read_function(path, allow_rehearsal=allow_rehearsal, large=reads_large())
    _note_if_rehearsed(path, function)
    return function


def _note_if_rehearsed(path: str, released: Release | ReleasedFunction) -> None:
    if released.is_rehearsal:
        note(f"{one_line(path)} is a rehearsal and NOT PRIVATE; show it to nobody who may not see the table")


class RowsWithProgress:
    """The rows of a file in blocks, as mmd_test takes them; each block reports the progress.

    The number of rows is known after the first pass; until then only the number read is reported.
    """

    def __init__(self, path: str, on_progress: OnProgress) -> None:
        self._path, self._on_progress = path, on_progress
        self._rows: int | None = None

    def __iter__(self) -> Iterator[pd.DataFrame]:
        from kmeanalyst.releases.domain.tables import table_blocks

        seen = 0
        for block in table_blocks(self._path):
            seen += len(block)
            self._on_progress(f"testing {seen:,} rows", seen / self._rows if self._rows else None)
            yield block
        self._rows = seen
