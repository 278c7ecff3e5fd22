"""A cell as text, and text as a number: one cell at a time, so that no cell can change what another means.

Everything here runs on private rows: nothing raises and nothing warns by the value of a cell.
"""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array

BAD = None  # a text that stands for no value


def text_of(cell: Any) -> str | None:
    """The text of one cell, "" for a missing one, None for a thing that is not a cell.

    A number that is whole is written without a decimal point, so that 13 and 13.0 both match the level "13".
    """
    if isinstance(cell, str):
        return cell
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return ""
    if isinstance(cell, bool | np.bool_):
        return "True" if cell else "False"
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
    try:
        number = float(text)
    except ValueError:
        return BAD
    return BAD if math.isnan(number) or "_" in text else number


def parse_day(text: str) -> float | None:
    try:
        day = datetime.date.fromisoformat(text.strip()[:10])
    except ValueError:
        return BAD
    return float((day - datetime.date(1970, 1, 1)).days)


def factorised(cells: Any) -> tuple[Array, list[str | None]]:
    """(codes, distinct texts): each cell's text, looked at once for each distinct value."""
    if isinstance(cells, pd.Series):
        cells = cells.astype(object).to_numpy() if isinstance(cells.dtype, pd.CategoricalDtype) else cells.to_numpy()
    values = cells if isinstance(cells, np.ndarray) else np.fromiter(cells, dtype=object, count=len(cells))
    if values.dtype != object:
        codes, uniques = pd.factorize(values, use_na_sentinel=False)
        return codes, [text_of(value) for value in uniques]
    if pd.api.types.infer_dtype(values, skipna=False) != "string":  # anything may be in it, unhashable things too
        values = np.fromiter((_hashable_text(cell) for cell in values), dtype=object, count=len(values))
    codes, uniques = pd.factorize(values)
    return codes, [None if text == _NOT_A_CELL else text for text in uniques]


_NOT_A_CELL = "\udcff not a cell"  # a lone surrogate: no decoded text can equal it


def _hashable_text(cell: Any) -> str:
    text = text_of(cell)
    return _NOT_A_CELL if text is None else text
