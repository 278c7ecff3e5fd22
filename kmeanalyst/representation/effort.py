"""How much work goes into a representation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """The share of the usual steps, starts and draws that is made."""

    share: float

    def of(self, count: int) -> int:
        """This share of a number, and at least 1."""
        return max(1, round(self.share * count))


FULL = Effort(1.0)
QUICK = Effort(0.02)  # rough points in a moment, for tests of what comes before and after them
