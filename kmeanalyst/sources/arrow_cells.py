"""Cells of Arrow columns as Python objects and arrays: each from itself alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL, CodedCells


def pieces(batches: Iterable[Any], rows: int) -> Iterator[list[Any]]:
    """Parts of batches that have together so many rows; at the end those that are left."""
    held: list[Any] = []
    n_held = 0
    for batch in batches:
        while batch.num_rows:
            part = batch.slice(0, rows - n_held)
            batch = batch.slice(part.num_rows)
            held.append(part)
            n_held += part.num_rows
            if n_held == rows:
                yield held
                held, n_held = [], 0
    if held:
        yield held


def joined(parts: Sequence[Any], name: str, cells_of: Callable[[Any], Any]) -> Any:
    """The cells of one column; each part by itself, since each may have a dictionary of its own."""
    index = parts[0].schema.names.index(name)
    found = [cells_of(part.column(index)) for part in parts]
    if not isinstance(found[0], CodedCells):
        return np.concatenate(found)
    starts = np.cumsum([0, *(len(each.words) for each in found)])
    codes = [each.codes + start for each, start in zip(found, starts[:-1], strict=True)]
    return CodedCells(np.concatenate(codes), [word for each in found for word in each.words])


def cells_of(column: Any) -> Any:
    """Numbers as an array, which has NaN for an empty cell; other cells as CodedCells."""
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False)
    try:
        return _coded(column)
    except Exception:  # a type that pyarrow cannot compare, or a word that a dictionary does not have: one by one
        return CodedCells(np.arange(len(column)), exact_cells_of(column))


def _coded(column: Any) -> CodedCells:
    """The words of a dictionary that occur, or distinct values; None for the others."""
    if not pa.types.is_dictionary(column.type):
        codes, words = distinct(column)
        return CodedCells(codes, [*map(cell_of, words), None])
    codes, used = distinct(column.indices)
    return CodedCells(codes, [*(cell_of(column.dictionary[i]) for i in used.to_pylist()), None])


def distinct(column: Any) -> tuple[Array, Any]:
    """(codes, distinct values) of Arrow cells, which it compares byte by byte. The code of a null is the number of values."""
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    return codes.astype(np.intp), encoded.dictionary


def exact_cells_of(column: Any) -> Array:
    """Cell by cell: as an array, whole numbers in a column with an empty cell would be rounded to floats."""
    return np.fromiter((cell_of(cell) for cell in column), dtype=object, count=len(column))


def cell_of(cell: Any) -> Any:
    """A cell as a Python object; NO_CELL where there is none (a day beyond the calendar, text that is not UTF-8)."""
    try:
        return cell.as_py()
    except Exception:  # depends on the value of a private cell, so it must not leave this module
        return NO_CELL
