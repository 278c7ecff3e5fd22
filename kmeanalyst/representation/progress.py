"""How long work tells what it is doing, and how much of it is done."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]  # what is being done, and the share of all that is done, 0 to 1


def silent(what: str, share: float) -> None:
    """Progress that nobody listens to."""


def between(low: float, high: float, progress: Progress) -> Progress:
    """A progress callback for one part of a longer way."""
    return lambda what, share: progress(what, low + (high - low) * share)
