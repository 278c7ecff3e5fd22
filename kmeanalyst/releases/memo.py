"""A memo: results computed from a value, kept as long as the value exists, and not part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Memoised:
    """A value that can carry a memo: pickles and copies exclude the memo.

    The memo is an attribute, not an entry of a weak dictionary: kept results often refer to the value itself, and such an
    entry would keep both alive forever.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_memo"}


def memo(owner: Memoised) -> dict[Any, Any]:
    """The memo of a value, empty at first."""
    found: dict[Any, Any] = owner.__dict__.setdefault("_memo", {})
    return found


def kept(owner: Memoised, key: Any, make: Callable[[], T]) -> T:
    """A value's result of this key, made once."""
    if key not in (known := memo(owner)):
        known[key] = make()
    result: T = known[key]
    return result
