"""A score that was computed from noisy numbers, with the interval that its noise leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kmeanalyst.releases.quality.parts import QUESTIONS


@dataclass(frozen=True)
class NoisyScore:
    """A number that was computed from noisy ones, with the interval that its noise leaves (95 %).

    part             "k-marginal", "columns", "groups" or "questions".
    name             the column, the group or the question; "" for the k-marginal.
    value, low, high a total variation distance, in [0, 1], or the answer to a question, in its range: the value is brought to
                     it, then the ends around that value, so that no interval has length 0. None for a group whose noisy
                     size is below five of its standard deviations.
    held             whether the release's answer to a question is within the noise of both; None for the others, and where
                     the error of the release's answer is not known.

    >>> published_scores.scores_of("columns")[0].name
    'x'
    """

    part: str
    name: str
    value: float | None
    low: float | None
    high: float | None
    held: bool | None = None

    @property
    def points(self) -> tuple[float, float, float] | None:
        """A distance as a k-marginal score of 1000 points, 1000 · (1 − TV), with its interval; None where it is not given.

        >>> NoisyScore("k-marginal", "", 0.1, 0.05, 0.25).points
        (900.0, 750.0, 950.0)
        """
        if self.value is None or self.low is None or self.high is None:
            return None
        return 1000 * (1 - self.value), 1000 * (1 - self.high), 1000 * (1 - self.low)

    def to_list(self) -> list[Any] | None:
        """As a file has it: [value, low, high], and of a question whether it held; None for a group without a score.

        >>> NoisyScore("columns", "age", 0.5, 0.25, 0.75).to_list()
        [0.5, 0.25, 0.75]
        """
        if self.value is None:
            return None
        return [self.value, self.low, self.high, *([self.held] if self.part == QUESTIONS else [])]


def points_text(score: NoisyScore) -> str:
    """A distance as points of 1000 with its interval."""
    points = score.points
    if points is None:
        return "not given"
    value, low, high = points
    return f"{value:.0f} ({low:.0f} to {high:.0f})"
