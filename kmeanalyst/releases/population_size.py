"""How large a population is, and what was counted, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from kmeanalyst.releases.statement import counted_as, neighbouring_of


@dataclass(frozen=True)
class PopulationSize:
    """The public size of a table.

    count   N, the number of rows; with a unit the number of units.
    unit    the column that identifies the units; None where rows are protected.
    """

    count: int
    unit: str | None = None

    @property
    def counted(self) -> str:
        """What was counted, in words: "rows", or the units that the column identifies."""
        return counted_as(self.unit)

    @property
    def neighbouring(self) -> str:
        """What is replaced in a neighbouring table, as statements name it."""
        return neighbouring_of(self.unit)
