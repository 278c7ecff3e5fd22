"""Cells of Arrow columns as Python objects and arrays: each from itself alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL


def joined(parts: Sequence[Any], name: str, cells_of: Callable[[Any], Array]) -> Array:
    """The cells of one column; each part by itself, since each may have a dictionary of its own."""
    index = parts[0].schema.names.index(name)
    return np.concatenate([cells_of(part.column(index)) for part in parts])


def cells_of(column: Any) -> Array:
    import pyarrow as pa

    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False)
    return exact_cells_of(column)


def exact_cells_of(column: Any) -> Array:
    """Cell by cell: as an array, whole numbers in a column with an empty cell would be rounded to floats."""
    return np.fromiter((cell_of(cell) for cell in column), dtype=object, count=len(column))


def cell_of(cell: Any) -> Any:
    """A cell as a Python object; NO_CELL where there is none (a day beyond the calendar, text that is not UTF-8)."""
    try:
        return cell.as_py()
    except Exception:  # depends on the value of a private cell, so it must not leave this module
        return NO_CELL


__all__ = ["cell_of", "cells_of", "exact_cells_of", "joined"]
