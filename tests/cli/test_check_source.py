"""`release-side check-source`: names, types and refusals, and no row."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import call

from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from release_side.private_rows import csv_file
from release_side.private_rows.rows import Batches

DOMAIN = Domain((Integer(name="age", lower=17, upper=90), Categorical(name="city", levels=("A", "B"))))
GOOD = pa.table({"age": [30], "city": ["A"], "who": [1], "note": ["x"]})
SINGLE = GOOD.set_column(1, "city", pa.array([0.5], pa.float32()))


@pytest.fixture(autouse=True)
def no_row_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((csv_file.CsvFile, "_pieces"), (csv_file.CsvFile, "count"), (Batches, "cut"), (Batches, "count")):
        monkeypatch.setattr(owner, name, lambda *_: pytest.fail("a row was read"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    Path("good.csv").write_text("age,city,who,note\nsecret 4711,\n", encoding="utf-8")
    Path("short.csv").write_text("age,who\nsecret 4711,\n", encoding="utf-8")
    Path("semicolons.csv").write_text("city;age\nsecret 4711;\n", encoding="utf-8")
    Path("headless.csv").write_text("secret 4711;39\n", encoding="utf-8")
    pq.write_table(GOOD, "good.parquet")
    pq.write_table(SINGLE, "single.parquet")
    Path("parts").mkdir()
    for number, table in enumerate((GOOD, SINGLE)):
        pq.write_table(table, f"parts/{number}.parquet")
    return tmp_path


def checked(*words: str):
    return call("release-side", "check-source", *words, "--domain", "d.toml")


def test_types_of_a_table_that_can_be_read_are_listed(folder):
    for source, types in {"good.csv": ["text"] * 3, "good.parquet": ["int64", "string", "int64"]}.items():
        result = checked(source, "--unit", "who")
        assert result.exit_code == 0, result.stderr
        assert [line.split() for line in result.stdout.splitlines()] == [
            ["column", "kind", "type"], ["age", "integer", types[0]], ["city", "categorical", types[1]], ["who", "unit", types[2]],
        ]  # fmt: skip
        assert result.stderr == "note: columns not in the domain are ignored: note\n"
        listed = json.loads(checked(source, "--json").stdout)
        assert listed == {"source": source, "columns": [
            {"name": "age", "kind": "integer", "type": types[0]}, {"name": "city", "kind": "categorical", "type": types[1]},
        ]}  # fmt: skip


def test_a_table_that_publish_would_refuse_is_refused_and_its_types_are_listed(folder):
    for words, line, message in (
        ("single.parquet", "city categorical float", "column 'city' has the type float: in single precision"),
        ("parts", "city categorical string, float", "column 'city' has the type float: in single precision"),
        ("short.csv", "city categorical absent", 'the private table lacks "city"'),
        (
            "semicolons.csv",
            "city categorical absent",
            "with the separator ';' between them, and cells are separated by commas. Write",
        ),
        ("headless.csv", "city categorical absent", "it may be a row, and it is not shown"),
        ("good.csv --unit owner", "owner unit absent", "no column 'owner', so the rows of a unit"),
        ("good.csv --unit age", "age unit text", "column 'age' is named as the unit and is in the domain"),
    ):
        result = checked(*words.split())
        assert result.exit_code == 1
        assert line.split() in [shown.split() for shown in result.stdout.splitlines()]
        assert message in result.stderr and "4711" not in result.stdout + result.stderr
