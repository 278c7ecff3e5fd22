"""How commands are given a .kme file: the argument, the option for rehearsals, and reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmeanalyst.terminal import note

if TYPE_CHECKING:
    from kmeanalyst.releases.function import ReleasedFunction
    from kmeanalyst.releases.release import Release

release_argument = click.argument("release_path", metavar="FILE.kme", type=click.Path())
rehearsal_option = click.option(
    "--allow-rehearsal", is_flag=True, help="Read files stamped NOT PRIVATE too (rehearsals)."
)


def opened_release(path: str, allow_rehearsal: bool) -> Release:
    """The release in a file, with a note where it is a rehearsal."""
    from kmeanalyst.releases.file import read_release

    release = read_release(path, allow_rehearsal=allow_rehearsal)
    _note_if_rehearsed(path, release)
    return release


def opened_function(path: str, allow_rehearsal: bool) -> ReleasedFunction:
    """The released function in a file, likewise."""
    from kmeanalyst.releases.file import read_function

    function = read_function(path, allow_rehearsal=allow_rehearsal)
    _note_if_rehearsed(path, function)
    return function


def _note_if_rehearsed(path: str, released: Release | ReleasedFunction) -> None:
    if released.is_rehearsal:
        note(f"{path} is a rehearsal and NOT PRIVATE; show it to nobody who may not see the table")
