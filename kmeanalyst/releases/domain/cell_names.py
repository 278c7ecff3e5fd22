"""What each cell of a column is, for readers: a level or a node, a range, an atom; in natural units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.domain.tree_column import Tree


def cell_names(column: Column, edges: Sequence[float], atoms: Sequence[float]) -> list[str]:
    """The name of each cell but a missing one, in the order of a table.

    edges, atoms   in encoded units, as in the kernel `margins`: inner ends of ranges, and values that are cells of their own.

    >>> cell_names(ka.Integer(name="age", lower=0, upper=99), (17.5, 64.5), (40.0,))
    ['0 to 17', '18 to 64', '65 to 99', '40']
    """
    if isinstance(column, Number):
        return [*_names_of_ranges(column, edges), *map(_shown, column.decode(np.array(atoms, dtype=float)))]
    assert isinstance(column, Categorical)
    first = np.ceil([-0.5, *edges]).astype(int)
    if isinstance(column, Tree):
        for depth in reversed(range(column.depths)):
            if np.array_equal(column.starts(depth), first):
                return column.groups(depth)
    last = np.append(first[1:] - 1, len(column.levels) - 1)
    return _joined(*([column.levels[code] for code in codes] for codes in (first, last)))


def _names_of_ranges(column: Number, edges: Sequence[float]) -> list[str]:
    """Of columns with steps the first and last value in each range, of others its ends."""
    low, high = column.bounds
    ends = np.array([low, *edges, high])
    first, last = ends[:-1], ends[1:]
    if column.spacing:
        first, after = (column.multiples(some, np.ceil) for some in (first, ends[1:-1]))
        last = column.multiples(np.append(after - column.spacing, high), np.floor)
    return _joined(*(list(map(_shown, column.decode(values))) for values in (first, last)))


def _joined(first: list[str], last: list[str]) -> list[str]:
    return [a if a == b else f"{a} to {b}" for a, b in zip(first, last, strict=True)]


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value).removesuffix(" 00:00:00")
