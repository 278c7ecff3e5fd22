"""What tests of file points share with others."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from file_tools import Members


def parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **({"compression": "none", "store_schema": False} | options))
    return out.getvalue()


def edited_points(edit: Callable[[pa.Table], pa.Table], **options: Any) -> Callable[[dict[str, Any], Members], None]:
    def forge(header: dict[str, Any], members: Members) -> None:
        table = pq.read_table(io.BytesIO(members["points.parquet"]))
        members["points.parquet"] = parquet(edit(table), **options)

    return forge


def with_column(name: str, make: Callable[[list[Any]], Any]) -> Callable[[pa.Table], pa.Table]:
    def edit(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        return table.set_column(place, name, make(table[name].to_pylist()))

    return edit


def first(name: str, value: Any, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    """The table with another first cell in a column."""
    return with_column(name, lambda cells: pa.array([value, *cells[1:]], kind, from_pandas=False))
