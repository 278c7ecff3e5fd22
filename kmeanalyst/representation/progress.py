"""Callbacks by which long computations report their progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]  # the current step, and the completed share of the whole, 0 to 1


def silent(what: str, share: float) -> None:
    """Report nothing."""


def between(low: float, high: float, progress: Progress) -> Progress:
    """A callback for the part of a computation between two shares of the whole."""
    return lambda what, share: progress(what, low + (high - low) * share)
