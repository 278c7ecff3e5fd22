"""Edits of the points in a .kme file, for the tests that forge one."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

from file_tools import Members

Row = list[str]
Forgery = Callable[[dict[str, Any], Members], None]
POINTS = "points.csv"


def edited_bytes(edit: Callable[[bytes], bytes]) -> Forgery:
    """The points with other bytes."""
    return lambda header, members: members.update({POINTS: edit(members[POINTS])})


def edited_points(edit: Callable[[list[Row]], list[Row]]) -> Forgery:
    """The points with other lines; the first is that of the names, and cells are texts."""

    def forge(header: dict[str, Any], members: Members) -> None:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(edit(rows_of(members[POINTS])))
        members[POINTS] = out.getvalue().encode()

    return forge


def rows_of(points: bytes) -> list[Row]:
    return list(csv.reader(io.StringIO(points.decode())))


def with_cells(name: str, make: Callable[[str], str]) -> Callable[[list[Row]], list[Row]]:
    """The lines with every cell of a column made anew."""

    def edit(rows: list[Row]) -> list[Row]:
        place = rows[0].index(name)
        return [rows[0], *([*row[:place], make(row[place]), *row[place + 1 :]] for row in rows[1:])]

    return edit


def first(name: str, value: str) -> Callable[[list[Row]], list[Row]]:
    """The lines with another first cell in a column."""

    def edit(rows: list[Row]) -> list[Row]:
        changed = with_cells(name, lambda cell: value)(rows[:2])
        return [*changed, *rows[2:]]

    return edit
