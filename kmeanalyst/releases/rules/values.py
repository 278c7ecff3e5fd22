"""Values of a column at which rules are tried: all of them, or some of each range."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.numbers import FROM_SCALE, Number, Real

_MOST_VALUES = {1: 100_000, 2: 1000}  # of a column of whole numbers, in a rule of so many columns
_FEW_VALUES = 40  # in a rule of more
_OF_A_RANGE = {1: 9, 2: 9}
_FEW_OF_A_RANGE = 4
_BESIDE_END = 1e-9  # of a range's width


def values_of(column: Column, edges: Sequence[float], atoms: Sequence[float], coupled: int) -> Array:
    """Encoded values of a column, increasing, NaN last where a cell can be missing.

    edges     where ranges end, in encoded units: each range has values at its ends and inside.
    atoms     single values to have in any case.
    coupled   columns that are tried together: the more, the fewer values of each.

    >>> values_of(ka.Integer(name="age", lower=0, upper=500), (14.5,), (40,), 4)
    array([  0.,   4.,   9.,  14.,  15.,  40., 176., 338., 500.])
    """
    if column.has_levels:
        return column.with_missing(np.arange(len(column.levels), dtype=float))  # type: ignore[attr-defined]
    every = column.every_value(_MOST_VALUES.get(coupled, _FEW_VALUES))
    if every is not None:
        return every
    assert isinstance(column, Number)
    low, high = column.ends
    ends = np.unique([low, high, *(edge for edge in edges if low < edge < high)])
    inside = [_of_range(column, a, b, _OF_A_RANGE.get(coupled, _FEW_OF_A_RANGE)) for a, b in pairwise(ends)]
    own = [*atoms, *column.atom_codes, *([low, high] if isinstance(column, Real) else [])]
    return column.with_missing(np.unique(column.rounded(np.concatenate([*inside, np.array(own, dtype=float)]))))


def _of_range(column: Number, below: float, above: float, most: int) -> Array:
    """Values of [below, above): its ends and some inside; none where no whole number lies in it."""
    if isinstance(column, Real) or column.kind == "cyclic":
        # not the end itself: a cell where a comparison holds at its end alone has hardly a row for which it does
        inside = np.linspace(below, above, most)[:-1] + _BESIDE_END * (above - below) * (np.arange(most - 1) == 0)
        return np.append(inside, np.nextafter(above, below))
    first, last = np.ceil(FROM_SCALE[column.scale](np.array([below, above]))) - (0.0, 1.0)
    return (
        np.asarray(column._scaled(np.unique(np.floor(np.linspace(first, last, most)))))
        if first <= last
        else np.zeros(0)
    )
