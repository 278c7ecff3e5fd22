"""What the files of releases and of released functions are read and written alike by: the way in, the columns, the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file.archive import Members, atomic_write, contents, members_in, zipped
from kmeanalyst.releases.file.header import plain
from kmeanalyst.releases.file.limits import FileRefused, reading, refusal
from kmeanalyst.releases.texts import one_line


class Stamped(Protocol):
    """What says of itself whether it is a rehearsal."""

    @property
    def is_rehearsal(self) -> bool:
        """Whether it is stamped NOT PRIVATE."""


_T = TypeVar("_T", bound=Stamped)


def read_container(
    path: str | Path, parse: Callable[[Members], _T], what: str, *, allow_rehearsal: bool, large: bool
) -> _T:
    """What the file's members hold, by `parse`; FileRefused, with the path, where that or a rehearsal is refused.

    what    "release" or "function".
    large   lift the usual limits on size and work.
    """
    try:
        with reading(large=large):
            found = parse(members_in(contents(Path(path))))
        if found.is_rehearsal and not allow_rehearsal:
            raise refusal(
                "the file is stamped NOT PRIVATE",
                "it is a rehearsal, whose noise a seed gives back: nobody whose row is in it is protected",
                f"Ask its maker for the {what} itself; to read it all the same, say --allow-rehearsal "
                "(in Python allow_rehearsal=True)",
            )
        return found
    except FileRefused as refused:
        raise type(refused)(one_line(f"{path}: {refused}")) from None


def columns_in(header: dict[str, Any]) -> Domain:
    """The measured columns; ValueError where they are not written as a domain writes them."""
    domain = Domain.from_dict(header["columns"])
    if plain(domain.to_dict()) != header["columns"]:
        raise ValueError("they are not written as a domain writes them")
    return domain


def write_checked(members: dict[str, bytes], parse: Callable[[Members], Any], what: str, path: str | Path) -> None:
    """Write members as a file, which appears whole or not at all; ValueError, and no file, if its reader would refuse it.

    The reader here is one with the usual limits lifted, so that what was read with `large` can be written again.
    """
    try:
        with reading(large=True):
            parse(members)
    except FileRefused as refused:
        raise ValueError(f"this {what} cannot be written, because no reader would take it: {refused}") from None
    with atomic_write(path) as temporary:
        temporary.write_bytes(zipped(members))


__all__ = ["columns_in", "read_container", "write_checked"]
