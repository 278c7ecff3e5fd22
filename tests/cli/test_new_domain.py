"""`release-side new-domain`: a domain file to fill in, from what the curator says, or from a header that is public."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import call

from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import KINDS, read_domain
from release_side.choices.drafting import new_domain


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(*columns: str):
    return call("release-side", "new-domain", "--from-columns", *columns)


def test_what_is_said_is_a_domain_and_what_is_not_is_named_by_the_next_command():
    said = (
        "age:integer:0..120", "cost:real:-5.5..1e6", "left:date:2020-01-01..2024-12-31", "sex:categorical:F,M",
        "ill:boolean",
    )  # fmt: skip
    assert made(*said, "--output", "d.toml").exit_code == 0
    domain = read_domain("d.toml")
    assert (domain["age"].upper, domain["cost"].lower, domain["left"].upper) == (120, -5.5, "2024-12-31")
    assert domain["sex"].levels == ("F", "M") and domain.names == ("age", "cost", "left", "sex", "ill")
    for kind, missing in (("integer", "lower, upper"), ("categorical", "levels"), ("text", "length"), ("tree", "parents")):
        Path("d.toml").write_text(new_domain([f"x:{kind}"]), encoding="utf-8")
        needed = [name for name in missing.split(", ") if f"# {name} = " in Path("d.toml").read_text(encoding="utf-8")]
        assert ", ".join(needed) == missing
        if kind != "text":
            with pytest.raises(DomainError, match=f"Add {missing}"):
                read_domain("d.toml")
    Path("d.toml").write_text(new_domain(["x"]), encoding="utf-8")
    with pytest.raises(DomainError, match=f"kind must be one of {', '.join(KINDS)}"):
        read_domain("d.toml")


@pytest.mark.parametrize("kind", KINDS)
def test_every_example_of_a_key_is_one_that_the_kind_takes(kind):
    lines = [line.removeprefix("# ") for line in new_domain([f"x:{kind}"]).splitlines()[2:]]
    lines = [line for line in lines if not line.startswith("default")]
    Path("d.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read_domain("d.toml").names == ("x",)


@pytest.mark.parametrize(("said", "why"), [
    ("x:number", "kind must be one of"), ("x:integer:5", "LOWER..UPPER"), ("x:boolean:a,b", "levels of a boolean are fixed"),
    ("x:integer:9..1", "lower must be below upper"), ("x:categorical:a,a", "levels must be distinct"),
    ("weight:integer", ""),
])  # fmt: skip
def test_what_does_not_fit_is_refused(said, why):
    result = made(said)
    assert (result.exit_code, why in result.stderr) == ((1, True) if why else (0, True))


def test_a_tables_header_and_types_are_taken_where_they_are_public_and_no_row():
    Path("private.csv").write_text("age,town\nsecret 4711,\n", encoding="utf-8")
    types = {"n": pa.int32(), "x": pa.float64(), "b": pa.bool_(), "d": pa.date32(), "t": pa.timestamp("us"), "s": pa.string(),
             "m": pa.decimal128(9, 2)}  # fmt: skip
    pq.write_table(pa.schema(list(types.items())).empty_table(), "private.parquet")
    refused = made("private.csv")
    assert refused.exit_code == 2 and "--this-header-is-public" in refused.stderr and "town" not in refused.stderr
    csv = made("private.csv", "--this-header-is-public", "--json")
    assert csv.exit_code == 0 and "4711" not in csv.output
    assert [line for line in json.loads(csv.stdout)["domain"].splitlines() if line.startswith("name")] == [
        'name = "age"',
        'name = "town"',
    ]
    parquet = made("private.parquet", "--this-header-is-public").stdout
    kinds = ["integer", "real", "boolean", "date", "date", "categorical", "real"]
    assert [line for line in parquet.splitlines() if line.startswith("kind")] == [f'kind = "{kind}"' for kind in kinds]
    assert made("private.csv", "--this-header-is-public", "--output", "private.csv").exit_code == 1
    assert "would be lost" in made("age:integer:0..9", "--output", "private.csv").stderr
    Path("odd.csv").write_text("a:real,b\u202e\n1,2\n", encoding="utf-8")
    odd = made("odd.csv", "--this-header-is-public")
    assert odd.exit_code == 1 and "could change or hide" in odd.stderr
    assert new_domain([("a:real", "")]).count("a:real") == 1
