"""`check-source --internal`: how a table's cells are read, exact, for the curator alone."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from command_line import call
from html_pages import Page

from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.rules.rule import Rule
from release_side.choices.internal_files import STAMP

DOMAIN = Domain((
    Integer(name="age", lower=18, upper=90),
    Categorical(name="sex", levels=("F", "M"), missing=True),
    Categorical(name="town", levels=("Genève", "Bern"), default="Bern"),
    Date(name="left", lower="2024-01-01", upper="2024-12-31", missing=True),
    Real(name="cost", lower=0, upper=5000),
    Boolean(name="ill"),
))  # fmt: skip
ROWS = (
    ["age,sex,town,left,cost,ill"]
    + ['41,1,Genève,18.05.2024,"1234,56",True'] * 60
    + ["120,F,Bern,,7,"] * 30
    + ["50,,Bern,2024-02-01,8,no"] * 10
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    Path("visits.csv").write_text("\n".join(ROWS) + "\n", encoding="latin-1")
    return tmp_path


def counted(*more: str):
    return call("release-side", "check-source", "visits.csv", "--domain", "d.toml", "--internal", *more)


def test_each_columns_cells_are_counted_with_their_texts_and_nothing_of_them_is_printed(folder):
    result = counted()
    assert result.exit_code == 0, result.stderr
    numbers = json.loads(Path("cells.internal.json").read_text(encoding="utf-8"))
    assert numbers["not_for_publication"] == STAMP
    found = {own["name"]: own for own in numbers["cells"]}
    assert {name: (own["unread"], own["empty"], own["missing"], own["clamped"]) for name, own in found.items()} == {
        "age": (0, 0, 0, 30), "sex": (60, 0, 10, 0), "town": (60, 0, 0, 0), "left": (60, 0, 30, 0), "cost": (60, 0, 0, 0),
        "ill": (30, 30, 0, 0),
    }  # fmt: skip
    assert {name: own["becomes"] for name, own in found.items() if name != "age"} == {
        "sex": "missing", "town": "Bern", "left": "missing", "cost": "0.0", "ill": "False",
    }  # fmt: skip
    assert found["left"]["texts"] == [{"text": "18.05.2024", "cells": 60}]
    assert all(o["rows"] == 100 for o in found.values())
    page = Path("cells.internal.html")
    for path in (page, page.with_suffix(".json")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not any(text in result.stdout + result.stderr for text in ("18.05", "60", "1234"))
    texts = Page(page.read_text(encoding="utf-8")).texts
    assert "NOT FOR PUBLICATION" in texts["title"][0]
    assert any("left: 60 of 100 cells are no value of the domain and become missing" in text for text in texts["bdi"])


def test_derived_columns_and_rows_that_break_rules_are_counted(folder):
    rules = (Rule("derive", "age - cost", ("less",)), Rule("never", "ill and age > 40"), Rule("always", "cost < 9"))
    domain = Domain((*DOMAIN.columns, Integer(name="less", lower=0, upper=50)), rules)
    Path("d.toml").write_text(domain_toml(domain), encoding="utf-8")
    assert counted().exit_code == 0
    found = {own["name"]: own for own in json.loads(Path("cells.internal.json").read_text(encoding="utf-8"))["cells"]}
    assert found["less"]["rows"] == 100 and found["less"]["clamped"] == 30
    assert (found["rule 2 (never ill and age > 40)"]["unread"], found["rule 3 (always cost < 9)"]["unread"]) == (60, 0)
    assert "rule 2 (never ill and age &gt; 40): 60 of 100 rows break it" in Path("cells.internal.html").read_text()


def test_a_table_that_is_read_well_raises_no_alarm(folder):
    Path("visits.csv").write_text("\n".join([ROWS[0], *["41,F,Bern,2024-05-18,12.5,True"] * 9]), encoding="utf-8")
    assert counted("--output", "own.internal.html").exit_code == 0
    assert "Nearly every cell is read as it stands." in Path("own.internal.html").read_text(encoding="utf-8")


def test_the_page_says_in_its_name_that_it_is_internal_and_replaces_no_input(folder):
    for more, said in (
        (("--output", "page.html"), ".internal"),
        (("--output", "visits.csv"), ".internal"),
        (("--output", "no/such/x.internal.html"), "does not exist"),
    ):
        result = counted(*more)
        assert result.exit_code == 1 and said in result.stderr
    plain = call("release-side", "check-source", "visits.csv", "--domain", "d.toml", "--output", "x.internal.html")
    assert plain.exit_code == 1 and "--internal" in plain.stderr and sorted(folder.iterdir()) == [
        folder / "d.toml", folder / "visits.csv"
    ]  # fmt: skip
