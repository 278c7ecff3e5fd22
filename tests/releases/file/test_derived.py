"""Refusals of derived columns in a file: false entries, cells that differ from their expression, hostile expressions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from file_tools import (
    SCHEMA_TEST,
    SENSELESS,
    Edit,
    Forgery,
    Members,
    Row,
    all_of,
    dropping,
    edited_points,
    forged,
    members_of,
    refused,
    same,
    setting,
    with_cells,
)  # fmt: skip

from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.file import FileRefused, write_release
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
        {"column": {"name": f"d{i}", "kind": "integer", "lower": -100000, "upper": 100000}, "uses": ["age"]}
        for i in range(8)
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


ENTRY = "a derived column"
ENTRIES: dict[str, tuple[Edit, str, str]] = {
    "no list": (setting("derived", to={}), "field derived", "a list with at least one entry"),
    "an empty list": (setting("derived", to=[]), "field derived", "a list with at least one entry"),
    "absent at minor 1": (dropping("derived"), r"release\.json", r"missing fields \['derived'\]"),
    "there at minor 0": (setting("schema_minor", to=0), r"release\.json", r"unknown fields \['derived'\]"),
    "a text": (setting("derived", TWICE, to="2 * age"), ENTRY, "a table of column, expression, uses"),
    "a field more": (entry(TWICE, "code", to="1"), ENTRY, "a table of column, expression, uses"),
    "no expression": (without(TWICE, "expression"), ENTRY, "a table of column, expression, uses"),
    "an expression that is a number": (entry(TWICE, "expression", to=2), ENTRY, "a text of 1 to 10000 characters"),
    "an empty expression": (entry(TWICE, "expression", to=""), ENTRY, "a text of 1 to 10000 characters"),
    "a long expression": (said(TWICE, "2*age" + "+0" * 5000, "age"), ENTRY, "a text of 1 to 10000 characters"),
    "expressions that take too long": (heavy, "expressions of derived columns have 9645 characters", "at most 67108864"),
    "parts that take too long": (wordy, "expressions of derived columns have 76024 characters", "at most 67108864"),
    "remainders that take too long": (divided, "expressions of derived columns have 53145 characters", "at most 67108864"),
    "levels that take too long": (recoded, "expressions of derived columns have 368 characters", "at most 67108864"),
    "many columns": (many, "the file has 400 derived columns", "at most 100"),
    "Python": (said(TWICE, "__import__('os').getpid()"), ENTRY, SENSELESS),
    "a column that is not there": (said(TWICE, "2 * agee", "agee"), ENTRY, "no column agee"),
    "a column of a later entry": (backwards, ENTRY, "no column twice"),
    "itself": (said(TWICE, "twice + 1", "twice"), ENTRY, "no column twice"),
    "a line break": (said(OLD, "twice\n> 100", "twice"), "a text with a control character", "could pass for"),
    "other uses": (entry(TWICE, "uses", to=["age", "income"]), ENTRY, "what it uses is what its expression names"),
    "a name that is taken": (entry(TWICE, "column", "name", to="age"), ENTRY, "names must be distinct"),
    "the name weight": (entry(TWICE, "column", "name", to="weight"), ENTRY, 'named "weight" is refused'),
    "another kind": (entry(TWICE, "column", "kind", to="real"), ENTRY, "said to be real, .* gives integer cells"),
    "a kind that is none": (entry(TWICE, "column", "kind", to="categorical"), ENTRY, SENSELESS),
    "a condition for a number": (said(OLD, "twice", "twice"), ENTRY, "said to be boolean, .* gives integer cells"),
    "a scale": (entry(RATE, "column", "scale", to="log1p"), ENTRY, "not written as a derived column is"),
    "a default": (entry(TWICE, "column", "default", to=40), ENTRY, "not written as a derived column is"),
    "not missing": (without(KIDS, "column", "missing"), "column kids", "it has empty cells"),
    "missing": (entry(TWICE, "column", "missing", to=True), "the release", "which may be missing|expression gives integer"),
    "narrow bounds": (entry(TWICE, "column", "upper", to=60), "column twice", "values outside its bounds"),
    "another number": (said(TWICE, "3 * age", "age"), "the release|derived column twice", "3 \\* age|to [0-9]"),
    "another condition": (said(OLD, "twice < 100", "twice"), "derived column old", "are not what its expression"),
    "infinite": (said(RATE, "log(income) / (age - age)", "income", "age"), "the release", "infinite or undefined"),
}  # fmt: skip


@pytest.mark.parametrize("case", ENTRIES)
@pytest.mark.slow(but="expressions that take too long")
def test_a_false_entry_is_refused(path, tmp_path, case):
    edit, what, why = ENTRIES[case]
    refused(forged(path, edit), tmp_path, what, why)


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


@pytest.mark.parametrize("case", CELLS)
def test_cells_that_are_not_what_their_expression_gives_are_refused(path, tmp_path, case):
    column, value = CELLS[case]
    named = "twice" if column == "age" else column
    refused(
        forged(path, with_cell(column, value)), tmp_path, f"derived column {named}", "1 of its cells are not what its"
    )


@pytest.mark.parametrize("bound", [1e5, 1e300, 1.7e308])
def test_wide_bounds_and_missing_cells_do_not_allow_other_cells(tmp_path, mixed_release, bound):
    """A cell may depart by 10⁻⁹ of the cells' own spread, or of the bounds if these are narrower."""
    write_release(mixed_release.transform({"part": "`capital.gain` / 7"}), tmp_path / "derived.kme")
    change = with_cell("part", lambda old: "900.0")

    def edit(header: dict[str, Any], members: Members) -> None:
        header["derived"][0]["column"] |= {"lower": -bound, "upper": bound}
        change(header, members)

    refused(forged(tmp_path / "derived.kme", edit), tmp_path, "derived column part", "1 of its cells are not")


def test_rounding_of_another_machine_is_accepted(path, tmp_path, mixed_release):
    path.write_bytes(forged(path, with_cell("rate", lambda old: repr(float(old) * (1 + 1e-14)))))
    same(read_release(path), mixed_release.transform(NEW))  # computed here, whatever the last digit says


@pytest.mark.parametrize(
    "edit", [setting("schema_minor", to=4), all_of(setting("schema_minor", to=4), setting("remark", to=[1]))]
)
def test_a_later_minor_version_may_have_them_too(path, mixed_release, edit):
    path.write_bytes(forged(path, edit))
    same(read_release(path), mixed_release.transform(NEW))


@pytest.mark.parametrize(
    "case",
    [k for k, (_, _, why) in ENTRIES.items() if "a table of" in why or "at least one entry" in why or "fields" in why],
)
def test_the_schema_refuses_the_same_shapes(path, case):
    header = json.loads(members_of(path)["release.json"])
    SCHEMA_TEST.validate(header)
    ENTRIES[case][0](header, {})
    assert not SCHEMA_TEST.is_valid(header)


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
