"""A cell as text, and text as a number: one cell at a time, so that no cell can change what another means.

Everything here runs on private rows: nothing raises and nothing warns by the value of a cell.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array

BAD = None  # a text that stands for no value
NO_CELL = object()  # an object that is not a cell


@dataclass(frozen=True, eq=False, repr=False)
class CodedCells:
    """The cells of a column, each distinct one once: it is then parsed once.

    codes   (n,) the index of each cell in `words`.
    words   the distinct cells; two may be equal, and some may not occur.
    """

    codes: Array
    words: Any

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Any]:
        return (self.words[code] for code in self.codes)


def text_of(cell: Any) -> str | None:
    """The text of one cell, "" for a missing one, None for an object that is not a cell.

    A number that is whole is written without a decimal point, so that 13 and 13.0 both match the level "13".
    """
    if isinstance(cell, str):
        return cell if type(cell) is str else str.__str__(cell)
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return ""
    if isinstance(cell, bool | np.bool_):
        return "True" if cell else "False"
    if isinstance(cell, np.timedelta64):  # numpy counts it among the integers
        return None
    if isinstance(cell, int | np.integer):
        return _number_text(float(cell)) if abs(int(cell)) < 2**1000 else ("inf" if cell > 0 else "-inf")
    if isinstance(cell, float | np.floating):
        return "" if math.isnan(cell) else _number_text(float(cell))
    if isinstance(cell, decimal.Decimal):
        return "" if cell.is_nan() else _number_text(float(cell))
    if isinstance(cell, datetime.date):  # a datetime, a pandas Timestamp too
        return cell.isoformat()
    if isinstance(cell, np.datetime64):
        return "" if np.isnat(cell) else str(cell)
    return None


def _number_text(number: float) -> str:
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def parse_number(text: str) -> float | None:
    """The number a text stands for, infinite ones too, U+2212 is a minus too; BAD for NaN, separators, anything else."""
    try:
        number = float(text.replace("−", "-"))
    except ValueError:
        return BAD
    return BAD if math.isnan(number) or "_" in text else number


def parse_day(text: str, form: str | None = None) -> float | None:
    """Days since 1970-01-01 of an ISO date, whatever time of day follows it, or of a date of this form; BAD for anything else."""
    text, moment = text.strip(), datetime.datetime
    try:
        day = (moment.fromisoformat(text) if form is None else moment.strptime(text, form)).date()
    except (ValueError, re.error):
        return BAD
    return float((day - datetime.date(1970, 1, 1)).days)


def factorised(cells: Any) -> tuple[Array, list[str | None]]:
    """(codes, distinct texts): each cell's text, so that a text is parsed once.

    Texts are distinguished by Python's own equality: the hash tables of data-frame libraries have taken "A" and
    "A\\0", or an undecodable byte and its escape, for one text, and a row then changes what others mean. Numbers are
    distinguished by their bits.
    """
    cells = _by_bits(cells)
    if isinstance(cells, CodedCells):
        codes, texts = factorised(cells.words)
        return codes[cells.codes], texts
    try:
        texts = [text_of(cell) for cell in cell_by_cell(cells)]
    except Exception:  # by the value of a cell, such as a date whose time zone fails: it alone is not a cell
        texts = [_read(partial(text_of, cell), failed=None) for cell in cell_by_cell(cells)]
    code_of: dict[str | None, int] = {}
    codes = np.fromiter((code_of.setdefault(text, len(code_of)) for text in texts), dtype=np.intp, count=len(texts))
    return codes, list(code_of)


def texts_of(cells: Any, chosen: Array) -> Counter[str]:
    """How many of the chosen cells (n,) have each text; one that is not a cell has the empty text."""
    codes, texts = factorised(cells)
    counts = np.bincount(codes[chosen], minlength=len(texts))
    found = Counter[str]()
    for i in np.flatnonzero(counts):
        found[texts[i] or ""] += int(counts[i])
    return found


def _by_bits(cells: Any) -> Any:
    numbers = cells.to_numpy() if isinstance(cells, pd.Series) and isinstance(cells.dtype, np.dtype) else cells
    if not (isinstance(numbers, np.ndarray) and numbers.dtype.kind in "iuf" and numbers.itemsize <= 8):
        return cells
    _, first, codes = np.unique(numbers.view(f"u{numbers.itemsize}"), return_index=True, return_inverse=True)
    return CodedCells(codes, numbers[first].tolist())


def cell_by_cell(cells: Any) -> Iterable[Any]:
    """The cells one at a time; one that its library cannot turn into a Python value is not a cell."""
    if not isinstance(cells, pd.Series):
        return cells
    dtype = cells.dtype
    if not isinstance(dtype, pd.api.extensions.ExtensionDtype) or isinstance(dtype, pd.CategoricalDtype):
        return cells.to_numpy() if isinstance(dtype, np.dtype) else cells.astype(object).to_numpy()
    array = cells.array
    if getattr(dtype, "storage", "") == "pyarrow" or isinstance(dtype, pd.ArrowDtype):
        return (_read(cell.as_py) for cell in array.__arrow_array__())
    return (_read(lambda i=i: array[i]) for i in range(len(array)))  # type: ignore[misc]


def _read(read: Callable[[], Any], failed: Any = NO_CELL) -> Any:
    try:
        return read()
    except Exception:  # a day beyond the calendar, bytes that are no text: by the value of a cell
        return failed


def with_columns(frame: pd.DataFrame, cells: Mapping[str, Any]) -> pd.DataFrame:
    """The frame with these columns in place of its own, or beside them, whatever their names (`assign` takes no `self`).

    >>> with_columns(pd.DataFrame({"self": [1]}), {"self": [2]})["self"].tolist()
    [2]
    """
    found = frame.copy(deep=False)
    for name, own in cells.items():
        found[name] = own
    return found
