"""Cyclic columns: numbers on a circle, such as the hour of the day, a direction in degrees or the day of the year."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.numbers import Number


@dataclass(frozen=True, kw_only=True)
class Cyclic(Number):
    """A number on a circle: `upper` is `lower` again, and their difference is a public period.

    A value outside is moved into [lower, upper) by whole periods, 25 o'clock to 1; such a cell counts as kept. An infinite
    value is not on the circle and becomes the default. Questions treat it as a number: its mean is that of the numbers.

    >>> hour = Cyclic(name="hour", lower=0, upper=24)
    >>> hour.encode(["23.5", "25", "-1", "24"])[0], hour.period
    (array([23.5,  1. , 23. ,  0. ]), 24.0)
    """

    kind: ClassVar[str] = "cyclic"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_linear("a circle")
        if self.atoms and self.natural_bounds[1] in self._numbers(self.atoms):
            raise DomainError(
                f"column {self.name}: the atom {self.upper} is the same point as {self.lower}. Write {self.lower}."
            )
        if not math.isfinite(self.period) or self.period < 1e-100:
            raise DomainError(
                f"column {self.name}: the period must be a number from 1e-100 to 1e300, got {self.period}."
            )

    @property
    def period(self) -> float:
        """upper − lower."""
        low, high = self.bounds
        return high - low

    def _clamp(self, values: Array) -> Array:
        low, high = self.natural_bounds
        finite = np.where(np.isfinite(values), values, low)
        inside = (finite >= low) & (finite < high)  # these stay as they are, to the last bit
        wrapped = low + np.mod(finite - low, high - low)
        found = np.where(inside, finite, np.where(wrapped < high, wrapped, low))  # a sum may be rounded up to upper
        return np.where(np.isnan(values), np.nan, np.maximum(found, low))

    def _encode_numbers(self, values: Array) -> tuple[Array, Array]:
        infinite = ~np.isfinite(values)
        encoded = self._scaled(self._clamp(values))
        if infinite.any():
            encoded[infinite] = self.default_code
        return encoded, infinite

    def wrap(self, encoded: Array) -> Array:
        """Encoded numbers moved to values of the column: those beyond its bounds by whole periods.

        >>> ka.Cyclic(name="hour", lower=0, upper=24).wrap(np.array([25.0, -1.0, 6.5]))
        array([ 1. , 23. ,  6.5])
        """
        return self.rounded(encoded)
