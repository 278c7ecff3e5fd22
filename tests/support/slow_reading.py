"""The slow reference of how private tables are read: every line, and every cell, by itself and in plain Python."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL
from kmeanalyst.releases.domain.domain import Domain


def encoded_csv(path: Path, domain: Domain) -> Array:
    """The encoded rows of a CSV file that is not compressed."""
    with open(path, "rb") as lines:
        header = cells_of_line(next(lines).removeprefix(b"\xef\xbb\xbf"))
        rows = [cells_of_line(line) for line in lines]
    places = [header.index(name) for name in domain.names]
    return encoded(([row[i] if i < len(row) else NO_CELL for i in places] for row in rows), domain)


def cells_of_line(line: bytes) -> list[str]:
    text = line.decode("utf-8", errors="surrogateescape").rstrip("\r\n").replace("\r", " ")
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text]), [""])
    except csv.Error:
        return text.split(",")


def encoded_arrow(table: Any, domain: Domain) -> Array:
    """The encoded rows of a pyarrow table."""
    columns = [[cell for chunk in table[name].chunks for cell in map(_python, chunk)] for name in domain.names]
    return encoded(zip(*columns, strict=True), domain)


def _python(cell: Any) -> Any:
    try:
        return cell.as_py()
    except Exception:
        return NO_CELL


def encoded(rows: Iterable[Iterable[Any]], domain: Domain) -> Array:
    """Rows of cells, each encoded alone."""
    found = [domain.encode({name: [cell] for name, cell in zip(domain.names, row, strict=True)})[0] for row in rows]
    return np.array(found, dtype=float).reshape(-1, domain.width)
