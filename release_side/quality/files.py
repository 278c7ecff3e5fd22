"""The release that is compared, and the two files that the comparison is written to: of their owner alone, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from kmeanalyst.cli.terminal import json_text
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.file.archive import atomic_write
from release_side.errors import PublishError
from release_side.quality.page.page import quality_html
from release_side.quality.quality import Quality

_OWNER_ALONE = 0o600


def open_compared(path: str | Path, *, allow_rehearsal: bool) -> Release:
    """The release in a file; PublishError if it cannot be read."""
    try:
        return read_release(path, allow_rehearsal=allow_rehearsal)
    except ValueError as error:  # of the file alone, which is to be published
        raise PublishError(str(error)) from None


def write_quality(found: Quality, output: str | Path, json_output: str | Path | None = None) -> None:
    """Write the page, and its numbers as JSON; each file appears whole or not at all, with mode 0600."""
    _write(output, quality_html(found))
    if json_output is not None:
        _write(json_output, json_text(found.to_dict()) + "\n")


def _write(path: str | Path, text: str) -> None:
    with atomic_write(path, mode=_OWNER_ALONE) as temporary:  # so made: who opened it before a chmod could read on
        os.chmod(temporary, _OWNER_ALONE)  # whatever the umask takes away
        temporary.write_bytes(text.encode())
