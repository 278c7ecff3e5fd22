"""What expressions compute with: cells of a decoded frame as float64, NaN where missing, and signs and functions of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.levels import Boolean, Categorical

COMPARE = {
    "==": np.equal, "!=": np.not_equal,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip


def power(base: Array, exponent: Array) -> Array:
    """base ** exponent, but NaN where either is: numpy's own nan ** 0 and 1 ** nan are 1."""
    return np.where(np.isnan(base) | np.isnan(exponent), np.nan, np.power(base, exponent))


CALCULATE: dict[str, Callable[..., Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.mod, "**": power,
    "abs": np.abs, "log": np.log, "log1p": np.log1p, "exp": np.exp, "sqrt": np.sqrt,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def compared(sign: str, a: Array, b: Array) -> Array:
    """a sign b for numbers: it does not hold where a side is NaN."""
    holds: Array = COMPARE[sign](a, b) & ~np.isnan(a) & ~np.isnan(b)
    return holds


def numbers_in(cells: pd.Series) -> Array:
    return cells.to_numpy(dtype=np.float64, na_value=np.nan)


def numbers_of(cells: pd.Series) -> Array:
    """Cells as float64, NaN where missing; days are counted from 1970-01-01."""
    return days_of(cells) if cells.dtype.kind == "M" else numbers_in(cells)


def codes_of(cells: pd.Series, column: Categorical) -> Array:
    if isinstance(column, Boolean):
        return numbers_in(cells)
    levels = list(column.levels)
    if isinstance(cells.dtype, pd.CategoricalDtype) and list(cells.cat.categories) == levels:
        codes = cells.cat.codes.to_numpy()
    else:
        codes = pd.Index(levels, dtype=object).get_indexer(pd.Index(cells, dtype=object))
    return np.where(codes < 0, np.nan, codes)


def days_of(cells: pd.Series) -> Array:
    """Days since 1970-01-01, NaN where missing."""
    days = cells.to_numpy().astype("datetime64[D]")
    return np.where(np.isnat(days), np.nan, days.astype(np.int64))


def calendar_of(days: Array, unit: Literal["Y", "M"]) -> Array:
    missing = np.isnan(days)
    dates = np.where(missing, 0, days).astype(np.int64).astype("datetime64[D]")
    return np.where(missing, np.nan, dates.astype(f"datetime64[{unit}]").astype(np.int64))
