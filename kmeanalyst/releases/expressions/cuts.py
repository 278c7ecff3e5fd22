"""Where comparisons cut columns of numbers: ranges that end there answer them exactly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kmeanalyst.releases.domain.column import Columns
from kmeanalyst.releases.domain.numbers import Number


def cuts_of(compared: Iterable[tuple[str, str, Any]], domain: Columns) -> dict[int, set[float]]:
    """For columns of numbers that are compared with a value, by their index, where this changes, in encoded units.

    compared   columns with signs and values, as `Expression.compared` has them.
    Returns    the cuts within the column's bounds, between two values of a whole number; an empty set where there is none.
    """
    found: dict[int, set[float]] = {}
    for name, sign, value in compared:
        column = domain[name]
        if isinstance(column, Number):
            low, high = column.ends
            with np.errstate(all="ignore"):  # a value that has no logarithm
                inside = {cut for cut in _cuts(column, sign, value) if low < cut < high}
            found.setdefault(domain.names.index(name), set()).update(inside)
    return found


def _cuts(column: Number, sign: str, value: Any) -> list[float]:
    """Where a comparison with this value changes, between two values of a column that has steps."""
    below, above = column.cuts([value]), column.cuts_above([value])
    if column.grain is None:
        return below.tolist() if sign in ("<", "<=", ">", ">=") else []
    wanted = {"<": [below], ">=": [below], "<=": [above], ">": [above]}.get(sign, [below, above])
    return [float(cut[0]) for cut in wanted]
