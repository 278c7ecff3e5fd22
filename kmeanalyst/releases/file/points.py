"""points.parquet: weighted points in natural units, as Domain.decode gives them, every cell within the domain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import text_of
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.cyclic_column import Cyclic
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file.archive import POINTS
from kmeanalyst.releases.file.limits import limits, refusal, refusing, too_large
from kmeanalyst.releases.file.parquet_footer import chunks_of
from kmeanalyst.releases.file.parquet_pages import plain_parquet

_OF_A_TEXT = 4  # cells that a text counts as, at least: each is handled as an object


def points_and_weights(data: bytes | memoryview, domain: Domain, n_points: int) -> tuple[pd.DataFrame, Array]:
    """Points in natural units and levels, as Domain.decode gives them, and weights (M,)."""
    check_size(n_points, domain)
    with refusing(POINTS):
        table = _arrow_table(data, domain, n_points)
        table.validate(full=True)
        columns = {column.name: _series(column, table.column(j)) for j, column in enumerate(domain.columns)}
        weight = table.column(len(domain))
        if weight.null_count:
            raise refusal(f"{POINTS}, column weight", "a missing weight means nothing")
        weights = weight.to_numpy()
    if not np.isfinite(weights).all():
        raise refusal(f"{POINTS}, column weight", "a weight that is infinite or not a number means nothing")
    return pd.DataFrame(columns), weights


def check_size(n_points: int, domain: Domain) -> None:
    """FileRefused for more points, or cells of points, than are read."""
    if n_points > limits().points:
        raise too_large(f"{n_points} points", f"at most {limits().points} are read")
    if (cells := n_points * cells_of_a_row(domain)) > limits().cells:
        raise too_large(
            f"{n_points} points of {len(domain)} columns",
            f"they make {cells} cells, and at most {limits().cells} are read",
        )


def cells_of_a_row(domain: Domain) -> int:
    """How many numbers a point takes: its cells and its weight; a text takes 4, or one for each eight characters."""
    return 1 + sum(
        max(_OF_A_TEXT, column.width, -(-column.length // 8)) if isinstance(column, Text) else 1
        for column in domain.columns
    )


def is_text(column: Column) -> bool:
    """Whether the file holds the column's cells as texts: strings and levels, but not truth values."""
    return isinstance(column, Text) or (isinstance(column, Categorical) and not isinstance(column, Boolean))


def arrow_type(column: Column) -> Any:
    """The column's type in the file (FORMAT.md §3)."""
    import pyarrow as pa

    if is_text(column):
        return pa.string()
    return {Boolean: pa.bool_(), Date: pa.date32(), Integer: pa.int64()}.get(type(column), pa.float64())


def _arrow_table(data: bytes | memoryview, domain: Domain, n_points: int) -> Any:
    """The Parquet table, read only once its own description fits the header, and from pages that we described.

    Levels are read as dictionaries: a text that is repeated a million times is held once.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = [_parquet_kind(column) for column in domain.columns] + ["real"]
    groups = chunks_of(data, list(zip([*domain.names, "weight"], kinds, strict=True)), n_points)
    texts = [str(j) for j, kind in enumerate(kinds) if kind == "text"]
    plain = pa.BufferReader(pa.py_buffer(plain_parquet(data, groups)))
    table = pq.ParquetFile(plain, read_dictionary=texts).read(use_threads=False)
    return table.unify_dictionaries().combine_chunks()


def _parquet_kind(column: Column) -> str:
    if is_text(column):
        return "text"
    return "real" if isinstance(column, Cyclic) else column.kind


def _series(column: Column, values: Any) -> pd.Series:
    """A column as Domain.decode gives it; every value within the domain, nulls only where declared."""
    if values.null_count and not column.missing:
        raise refusal(f"{POINTS}, column {column.name}", "it has nulls, and the domain declares no missing value")
    if isinstance(column, Text):
        return _strings(column, values)
    if is_text(column):
        return column.decode(_codes(column, values))
    if isinstance(column, Boolean):
        return column.decode(values.cast("uint8").cast("float64").to_numpy())
    if isinstance(column, Date):
        days = values.cast("int32").cast("float64").to_numpy()
        _check_bounds(column, days, values.null_count, column.bounds)
        return column.decode(days)
    numbers = values.to_numpy()
    low, high = (column.parse(text_of(bound) or "") for bound in (column.lower, column.upper))  # type: ignore[attr-defined]
    _check_bounds(column, numbers, values.null_count, (low, high))
    if isinstance(column, Cyclic) and (numbers == high).any():
        raise refusal(
            f"{POINTS}, column {column.name}", "it has its upper bound as a value, which is its lower one again"
        )
    if isinstance(column, Integer) and column.missing:
        whole = pd.arrays.IntegerArray(np.array(values.fill_null(0)), np.array(values.is_null()))
        return pd.Series(whole, name=column.name)
    return pd.Series(np.array(numbers), name=column.name)


def _strings(column: Text, values: Any) -> pd.Series:
    """Strings as Domain.decode gives them, each of which is one of the column; an entry of the dictionary is looked at once."""
    chunk = values.chunk(0)
    texts = chunk.dictionary.to_pylist()
    if not all(texts) and (column.missing or column.default is not None):
        raise refusal(f"{POINTS}, column {column.name}", "an empty string is no value of it: it is a missing cell")
    odd = [text for text in texts if column.held(text) != text]
    if odd:
        raise refusal(f"{POINTS}, column {column.name}", f"{odd[0]!r:.80} is no string of its alphabet and length")
    place = chunk.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    known = np.vstack([column.encode(texts)[0], np.full((1, column.width), np.nan)])
    return column.decode(known).take(place).reset_index(drop=True)


def _codes(column: Column, values: Any) -> Array:
    """Level codes as float64, NaN where missing."""
    chunk = values.chunk(0)
    codes = {level: code for code, level in enumerate(column.levels)}  # type: ignore[attr-defined]
    levels = chunk.dictionary.to_pylist()
    unseen = [level for level in levels if level not in codes]
    if unseen:
        raise refusal(f"{POINTS}, column {column.name}", f"{unseen[0]!r:.80} is not one of its levels")
    place = chunk.indices.cast("float64").to_numpy(zero_copy_only=False)
    missing = np.isnan(place)
    known = np.array([float(codes[level]) for level in levels] or [0.0])
    return np.where(missing, np.nan, known[np.where(missing, 0, place).astype(np.int64)])


def _check_bounds(column: Column, numbers: Array, n_missing: int, bounds: tuple[Any, Any]) -> None:
    inside = (numbers >= bounds[0]) & (numbers <= bounds[1])  # false for NaN, which only a null may have become
    if int(inside.sum()) + n_missing != len(numbers):
        raise refusal(f"{POINTS}, column {column.name}", "it has values outside its bounds, or NaN that is not null")
