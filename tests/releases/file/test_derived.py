"""Refusals of derived columns in a file: false entries, cells that differ from their expression, hostile expressions."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_tools import (
    SCHEMA_TEST,
    Edit,
    Forgery,
    Members,
    Row,
    all_of,
    check_refusals,
    dropping,
    edited_points,
    forged,
    header_of,
    refused,
    same,
    setting,
    with_cells,
    with_verdict_of_schema,
)  # fmt: skip

from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.file import FileRefused, reading, write_release
from kmeanalyst.releases.file.limits import MOST_DERIVED_COLUMNS

NEW = {"twice": "2 * age", "old": "twice > 100", "rate": "log(income) / age", "kids": "children + 1"}
TWICE, OLD, RATE, KIDS = range(4)
CITY = 4  # the index of this column in the table


@pytest.fixture
def path(mixed_release: Release, tmp_path: Path) -> Path:
    write_release(mixed_release.transform(NEW), tmp_path / "derived.kme")
    return tmp_path / "derived.kme"


def entry(which: int, *keys: str, to: Any) -> Edit:
    return setting("derived", which, *keys, to=to)


def without(which: int, *keys: str) -> Edit:
    return dropping("derived", which, *keys)


def said(which: int, expression: str, *uses: str) -> Edit:
    return all_of(entry(which, "expression", to=expression), entry(which, "uses", to=list(uses)))


def many(header: dict[str, Any], members: Members) -> None:
    header["derived"] *= MOST_DERIVED_COLUMNS


def heavy(header: dict[str, Any], members: Members) -> None:
    said(TWICE, "2*age" + "+0*age" * 1600, "age")(header)
    header["n_points"] = 30_000


def wordy(header: dict[str, Any], members: Members) -> None:
    """Few points, and every part of an expression costs some microseconds all the same."""
    header["derived"] = [
        {"column": {"name": f"d{i}", "kind": "integer", "lower": -100000, "upper": 100000}, "uses": ["age"]} for i in range(8)
    ]
    for each in range(8):
        said(each, "age" + "+-age" * 1900, "age")(header)


def divided(header: dict[str, Any], members: Members) -> None:
    """Each remainder of numbers of very different size is a long division, bit by bit: some microseconds."""
    said(TWICE, "2*age" + "+1e300%age" * 900, "age")(header)
    header["n_points"] = 20_000


def recoded(header: dict[str, Any], members: Members) -> None:
    """To compare two columns of levels, all the levels are looked up."""
    header["columns"][CITY]["levels"] += [f"town {i}" for i in range(200_000)]
    said(OLD, "city == city" + " or city == city" * 20, "city")(header)


def backwards(header: dict[str, Any], members: Members) -> None:
    header["derived"].reverse()


def test_a_false_entry_is_refused(path, tmp_path):
    """Of those that are not shapes, the schema says nothing."""
    SCHEMA_TEST.validate(header_of(path.read_bytes()))
    check_refusals("derived", lambda edit: with_verdict_of_schema(forged(path, edit), tmp_path, SCHEMA_TEST), **globals())


def with_cell(column: str, make: Callable[[str], str]) -> Forgery:
    """The first cell of a column of the points made anew from what it says."""
    return edited_points(lambda rows: [*with_cells(column, make)(rows[:2]), *rows[2:]])


CELLS = {
    "a whole number": ("twice", lambda old: "36" if old != "36" else "38"),
    "a truth value": ("old", lambda old: "false" if old == "true" else "true"),
    "a real number": ("rate", lambda old: repr(float(old) * (1 + 1e-6))),
    "a missing cell": ("kids", lambda old: "" if old else "3"),
    "what it is made of": ("age", lambda old: "41" if old != "41" else "42"),
}


def test_cells_that_are_not_what_their_expression_gives_are_refused(path, tmp_path):
    for case in CELLS:
        column, value = CELLS[case]
        named = "twice" if column == "age" else column
        refused(
            forged(path, with_cell(column, value)), tmp_path, f"derived column {named}", "1 of its cells are not what its",
        )  # fmt: skip


def test_small_cells_of_a_log_scale_are_compared_with_themselves():
    tolerances = reading._tolerances(Real(name="x", lower=1e-6, upper=1e8, scale="log"), np.array([6e-6, 4e6]))
    assert np.isclose(6e-6 * (1 + 1e-10), 6e-6, **tolerances) and not np.isclose(9e-6, 6e-6, **tolerances)


def test_wide_bounds_and_missing_cells_do_not_allow_other_cells(tmp_path, mixed_release):
    """A cell may depart by 10⁻⁹ of the cells' own spread, or of the bounds if these are narrower."""
    for bound in [1e5, 1e300, 1.7e308]:
        write_release(mixed_release.transform({"part": "`capital.gain` / 7"}), tmp_path / "derived.kme")
        change = with_cell("part", lambda old: "900.0")

        def edit(header: dict[str, Any], members: Members, bound: float = bound, change: Forgery = change) -> None:
            header["derived"][0]["column"] |= {"lower": -bound, "upper": bound}
            change(header, members)

        refused(forged(tmp_path / "derived.kme", edit), tmp_path, "derived column part", "1 of its cells are not")


def test_rounding_of_another_machine_is_accepted(path, tmp_path, mixed_release):
    path.write_bytes(forged(path, with_cell("rate", lambda old: repr(float(old) * (1 + 1e-14)))))
    same(read_release(path), mixed_release.transform(NEW))  # computed here, whatever the last digit says


@pytest.mark.parametrize("edit", [setting("schema_minor", to=4), all_of(setting("schema_minor", to=4), setting("remark", to=[1]))])
def test_a_later_minor_version_may_have_them_too(path, mixed_release, edit):
    path.write_bytes(forged(path, edit))
    same(read_release(path), mixed_release.transform(NEW))


def test_a_column_that_nothing_declares_is_refused(mixed_path, tmp_path):
    def with_one_more(rows: list[Row]) -> list[Row]:
        return [[*row[:-1], "more" if row is rows[0] else "1.0", row[-1]] for row in rows]

    refused(forged(mixed_path, edited_points(with_one_more)), tmp_path, r"points\.csv", "column")


def test_the_longest_expressions_that_are_read_are_read_quickly(path, tmp_path):
    """Deep, long, of costly parts: within the limits an expression costs seconds at most, and a refusal nothing."""
    deep = "(" * 55 + "age" + ")" * 55 + "**0.5" * 1900
    path.write_bytes(forged(path, said(RATE, deep, "age")))
    begin = time.process_time()
    with pytest.raises(FileRefused):
        read_release(path)
    assert time.process_time() - begin < 5
