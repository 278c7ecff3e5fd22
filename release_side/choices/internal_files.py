"""Files of exact numbers from private rows: how they are named and marked, and whether some lie where a release is to be written.

The page of `release-side quality` and its JSON are for the curator alone. Their names say so, and no other user can read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kmeanalyst.releases.texts import one_line
from release_side.errors import PublishError

if TYPE_CHECKING:
    from release_side.private_rows.table import PrivateTable

STAMP = (
    "not for publication: computed from private rows without noise; what is decided from it (publish or not, which of several "
    "draws, which options next) is covered by no ε"
)
INTERNAL = ".internal"
BESIDE = "next to the output lies"  # how the warning begins
_ENDINGS = ("*.internal.html", "*.internal.json")
_HEAD = 2000  # bytes of a file in which the stamp stands
_MOST_FILES = 1000  # of a folder that are looked at


def check_internal_outputs(
    outputs: tuple[str | Path | None, ...], *, private: PrivateTable, others: tuple[object, ...] = ()
) -> None:
    """PublishError, before anything is read, unless each file has .internal in its name, can be written and replaces no input.

    outputs   None for a file that is not wanted. An older ordinary file is replaced.
    others    the release and further inputs.
    """
    from release_side.choices.output_file import Output, is_same_file  # late: it imports pandas

    wanted = [output for output in outputs if output is not None]
    for output in wanted:
        if INTERNAL not in Path(output).name:
            raise PublishError(
                f"{output} will hold exact numbers of private rows, and its name does not say so. Nothing was read. Name it with "
                f"{INTERNAL}, such as {Path(output).stem or 'quality'}{INTERNAL}{Path(output).suffix or '.html'}."
            )
        Output(output, force=True, what="page").check(private, None, others)
    if any(is_same_file(Path(one), Path(other)) for i, one in enumerate(wanted) for other in wanted[:i]):
        raise PublishError(f"{wanted[0]} is named as two files, of which one would replace the other. Name another.")


def warning_of_internal_files(output: str | Path) -> str | None:
    """A warning if the folder of a release that is to be written has a page of exact numbers, or its JSON; None if not.

    Looks at names and at the stamp in the first bytes of files so named. It cannot know where else pages are, nor what was decided.
    """
    folder = Path(output).absolute().parent
    named = sorted(path for ending in _ENDINGS for path in folder.glob(ending))[:_MOST_FILES]
    found = [path for path in named if _is_stamped(path)]
    if not found:
        return None
    return (
        f"{BESIDE} {one_line(found[0].name)}, with exact numbers of private rows. If this release is made, or will be chosen, "
        "because of what such a page shows, no ε covers that choice, and the ledger cannot count it. Choose from release-side "
        "plan, or from releases themselves."
    )


def _is_stamped(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return STAMP.encode() in file.read(_HEAD)
    except OSError:
        return False
