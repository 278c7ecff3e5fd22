"""Publishing units with several rows: the guarantee, and that nothing shows the number of rows."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import refusals
from click.testing import CliRunner
from file_tools import SCHEMA_TEST

import kmeanalyst
from kmeanalyst.cli.main import main as analyst
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file import validate_release
from kmeanalyst.releases.measurement import SHRINK, feature_mean, grid_sensitivity
from kmeanalyst.releases.statement import REPLACE_UNIT
from release_side.budget.ledger import Ledger
from release_side.cli.main import main
from release_side.door.mechanism import GaussianNoise, PublishError
from release_side.publishing.publish import publish

DOMAIN = Domain((Integer(name="age", lower=17, upper=90), Categorical(name="city", levels=("A", "B", "C"))))
UNITS, ROWS = 83, 391  # numbers that nothing else has
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
SIZES: dict[str, dict[str, Any]] = {
    "random-features": {"points": 10, "features": 40}, "margins": {"points": 10, "kernel": "margins"},
    "subspace": {"method": "subspace", "points": 10},
}  # fmt: skip
SMALL = SIZES["random-features"]


def table_of(n_rows: int = ROWS, units: int = UNITS) -> pd.DataFrame:
    """Units with one to many rows each, anywhere in the table."""
    rng = np.random.default_rng(7)
    owner = np.concatenate([np.arange(units), (units * rng.random(n_rows - units) ** 3).astype(int)])
    frame = DOMAIN.decode(DOMAIN.draw(n_rows, rng))
    return frame.assign(person_id=[f"Jane-Doe-{1000 + code}" for code in rng.permutation(owner)]).astype(str)


def published(frame: pd.DataFrame, unit: str | None = "person_id", **options: Any) -> kmeanalyst.Release:
    return publish(frame, DOMAIN, unit=unit, **(BUDGET | SMALL | options))


TABLE = table_of()


def test_the_guarantee_is_for_units_and_says_so(tmp_path: Path):
    release = published(TABLE, output=tmp_path / "o.kme")
    statement = release.statement
    expected = (REPLACE_UNIT, UNITS, "units of 'person_id'")
    assert (statement.neighbouring, statement.n_rows, statement.counted) == expected
    assert statement.sensitivity == pytest.approx(2 / (SHRINK * UNITS), rel=1e-12)
    scale = GaussianNoise(**BUDGET).multiplier() * statement.sensitivity
    assert statement.noise_scale == pytest.approx(scale, rel=1e-12)
    assert statement.taken_as_public[0] == (
        "the number P of units of 'person_id' (not that of their rows) and the names of the columns, 'person_id' included"
    )
    assert f"{UNITS} units of 'person_id', of equal weight" in repr(release)
    assert "private rows have" not in repr(release)
    assert validate_release(tmp_path / "o.kme") == []
    assert read_release(tmp_path / "o.kme").statement == statement


def test_the_measurement_is_the_mean_over_units_of_the_average_of_their_rows(no_noise):
    measurement = published(TABLE).measurement
    sizes = Counter(TABLE["person_id"])
    weights = np.array([1 / (UNITS * sizes[name]) for name in TABLE["person_id"]])
    expected = feature_mean(measurement.feature_map, DOMAIN.encode(TABLE), weights)
    np.testing.assert_allclose(measurement.vector, expected, atol=1e-8)
    of_rows = feature_mean(measurement.feature_map, DOMAIN.encode(TABLE))
    assert np.abs(measurement.vector - of_rows).max() > 1e-3  # a row of a unit with many rows counts less


def test_rows_without_an_identifier_are_one_unit():
    frame = TABLE.copy()
    frame.loc[:99, "person_id"] = ""
    assert published(frame).statement.n_rows == 1 + frame["person_id"][100:].nunique()


def test_error_bars_count_units_and_are_not_too_short():
    """Units of ten similar rows: the mean varies as that of units does, not as that of ten times as many rows."""
    rng = np.random.default_rng(0)
    domain = Domain((Real(name="x", lower=-6.0, upper=6.0),))
    centres = rng.normal(0, 1.5, 400)
    frame = pd.DataFrame({"x": np.repeat(centres, 10) + rng.normal(0, 0.5, 4000), "who": np.repeat(np.arange(400), 10)})
    release = publish(frame, domain, unit="who", weak=True, epsilon=100.0, delta=1e-6, points=50, features=100)
    sampling = release.expectation("x").parts["sampling"]
    spread = frame.groupby("who")["x"].mean().std() / 20
    assert spread <= sampling < 1.5 * spread
    assert sampling > 2 * frame["x"].std() / np.sqrt(4000)


def everything_seen(frame: pd.DataFrame, folder: Path, caplog: Any, size: dict[str, Any]) -> tuple[Any, ...]:
    """The file, the progress, and the log messages of a publication."""
    caplog.clear()
    folder.mkdir(exist_ok=True)
    path, steps = folder / "o.kme", []
    with caplog.at_level(logging.DEBUG):
        publish(
            frame, DOMAIN, unit="person_id", rehearsal=3, epsilon=20.0, delta=1e-6, output=path, force=True, workers=1,
            progress=lambda *step: steps.append(step), **size,
        )  # fmt: skip
    return path.read_bytes(), steps, [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("size", SIZES)
def test_nothing_depends_on_the_number_of_rows_their_order_or_the_identifiers(size, tmp_path, caplog):
    """Every row repeated, in another order, under other identifiers: the same file, progress and messages."""
    first = everything_seen(TABLE, tmp_path, caplog, SIZES[size])
    for times in (1, 3, 40):
        more = pd.concat([TABLE] * times).sample(frac=1, random_state=times)
        more["person_id"] = [f"{name[::-1]} of {times}" for name in more["person_id"]]
        assert everything_seen(more, tmp_path, caplog, SIZES[size]) == first


HOSTILE = ["nan", "inf", "-1e308", "", " ", "unseen", "9" * 400, "\ud800", "1e999", "None", '"', "A\0"]


@pytest.mark.parametrize(("size", "many"), [*((size, 10_000) for size in SIZES), ("random-features", 1)])
def test_a_unit_replaced_by_hostile_rows_shows_in_the_noisy_numbers_alone(size, many, tmp_path, caplog):
    """Neighbours under the same noise: equal messages, statement and progress, and sums within the sensitivity."""
    largest = TABLE["person_id"].value_counts().index[0]
    rng = np.random.default_rng(2)
    cells = np.array(HOSTILE, dtype=object)
    hostile = pd.DataFrame({name: rng.choice(cells, many) for name in DOMAIN.names}, dtype=object)
    hostile["person_id"] = HOSTILE[many % 7]
    neighbour = pd.concat([TABLE[TABLE["person_id"] != largest], hostile]).sample(frac=1, random_state=1)
    one, steps, messages = everything_seen(TABLE, tmp_path / "one", caplog, SIZES[size])
    other, other_steps, other_messages = everything_seen(neighbour, tmp_path / "other", caplog, SIZES[size])
    reading = [[step for step in each if step[0] == "reading rows"] for each in (steps, other_steps)]
    assert reading[0] == reading[1] != []  # later steps fit the noisy mean, and may differ as that does
    assert messages == other_messages and one != other
    a, b = (read_release(tmp_path / name / "o.kme", allow_rehearsal=True) for name in ("one", "other"))
    assert a.statement == b.statement
    sums = zip(a.measurement.noisy_sum, b.measurement.noisy_sum, strict=True)
    squared = sum((int(x) - int(y)) ** 2 for x, y in sums)
    assert 0 < squared <= grid_sensitivity(a.measurement.feature_map) ** 2 * (1 + 1e-9)


def test_default_sizes_follow_from_the_number_of_units(monkeypatch):
    for limit, size in (("DEFAULT_POINTS", 20), ("MOST_DEFAULT_POINTS", 20), ("FEATURES", 60)):
        monkeypatch.setattr(f"release_side.choices.options.{limit}", size)
    for size in ({"kernel": "margins"}, {"features": 40}, {}):
        by_unit = publish(TABLE, DOMAIN, unit="person_id", **BUDGET, **size)
        as_rows = publish(TABLE[:UNITS], DOMAIN, **BUDGET, **size)
        assert len(by_unit) == len(as_rows) and by_unit.kernel == as_rows.kernel
        assert by_unit.measurement.feature_map.dimension == as_rows.measurement.feature_map.dimension


def test_no_identifier_and_no_number_of_rows_is_in_the_file_or_on_the_screen(tmp_path):
    private, toml, output, book = (tmp_path / name for name in ("p.csv", "d.toml", "o.kme", "book"))
    toml.write_text(domain_toml(DOMAIN), encoding="utf-8")
    table = TABLE.assign(other="x")
    Ledger(book).init("people", 2.0, 1e-4)
    table.to_csv(private, index=False)
    words = (
        f"publish {private} --domain {toml} --epsilon 1 --delta 1e-6 --points 10 --features 40 --unit person_id "
        f"--output {output} --ledger {book} --table people"
    )
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 0, result.output
    text = result.stdout + result.stderr
    assert "note: columns not in the domain are ignored: other\n" in text
    assert f"table       {UNITS} units of 'person_id'" in text
    data = output.read_bytes() + book.read_bytes() + text.encode()
    assert b"Doe" not in data
    header = json.loads(zipfile.ZipFile(io.BytesIO(output.read_bytes())).read("release.json"))
    SCHEMA_TEST.validate(header)
    unnamed = header | {"statement": header["statement"] | {"unit": None, "taken_as_public": []}}
    assert "person_id" not in json.dumps(unnamed)  # the name of the unit appears nowhere else
    assert not {ROWS, len(table)} & set(numbers_in(header))
    assert not re.search(rf"\b{ROWS}\b", text)  # digests may hold its digits
    assert set(header["statement"]) == {  # no more fields than for a release of rows
        "epsilon", "delta", "neighbouring", "mechanism", "sensitivity", "noise_scale", "calibration", "rho", "n_rows",
        "public_points", "taken_as_public", "versions", "unit", "ledger_head",
    }  # fmt: skip


def numbers_in(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        return [n for item in (value.values() if isinstance(value, dict) else value) for n in numbers_in(item)]
    return [value] if isinstance(value, int | float) else []


def test_the_analyst_learns_that_units_are_protected_and_weigh_the_same(tmp_path):
    release = published(TABLE, output=tmp_path / "o.kme")
    shown = CliRunner().invoke(analyst, ["info", str(tmp_path / "o.kme")])
    assert f"{UNITS} units of 'person_id', of equal weight however many private rows they have" in shown.stdout
    assert "neighbours: replace-one-unit" in shown.stdout
    found = json.loads(CliRunner().invoke(analyst, ["info", str(tmp_path / "o.kme"), "--json"]).stdout)
    assert (found["n_rows"], found["statement"]["neighbouring"]) == (UNITS, REPLACE_UNIT)
    sample = TABLE[["age", "city"]]
    result = kmeanalyst.mmd_test(release, sample)
    assert result.n_release_rows == UNITS
    assert any("gives each unit the same weight" in note for note in result.notes)
    assert not any("unit" in note for note in kmeanalyst.mmd_test(published(TABLE, unit=None), sample).notes)


def test_a_column_that_cannot_identify_units_is_refused(tmp_path):
    def counted(frame: pd.DataFrame, unit: str) -> Any:
        try:
            return published(frame, unit, ledger=tmp_path / "book", table="people")
        except PublishError as error:
            assert "Doe" not in str(error) and not (tmp_path / "book").exists()
            raise

    names = globals() | {"counted": counted}
    refusals.check(Path(__file__).parent / "refusals_units.txt", lambda text: eval(text, names))


_DAYS = pd.to_datetime(["2024-01-01", "2024-01-02"])
_CELLS = {
    "string": ["1", "2"], "large_string": ["1", "2"], "binary": [b"1", b"2"], "int32": [1, 2], "uint8": [1, 2],
    "double": [1.0, 2.0], "decimal128(9, 1)": [Decimal(1), Decimal(2)],
    "decimal128(9, 3)": [Decimal(1), Decimal(2)],
    "date32": _DAYS.date, "timestamp[us]": _DAYS, "csv": ["1", "2"],
}  # fmt: skip


@pytest.mark.parametrize(("kinds", "is_one_kind"), [
    (("string", "large_string"), True), (("int32", "uint8"), True), (("string", "csv"), True), (("string", "binary"), False),
    (("date32", "timestamp[us]"), False), (("string", "int32"), False), (("double", "int32"), False), (("date32", "csv"), False),
    (("decimal128(9, 1)", "decimal128(9, 3)"), False),
])  # fmt: skip
def test_files_that_declare_identifiers_of_different_kinds_are_refused(kinds, is_one_kind, tmp_path):
    """One person would be two units: a day is written in one way as a date, in another as a moment."""
    for number, kind in enumerate(kinds):
        frame = pd.DataFrame({"who": list(_CELLS[kind]) * 10, "age": 5})
        if kind == "csv":
            frame.to_csv(tmp_path / f"{number}.csv", index=False)
        else:
            who = pa.array(frame["who"].tolist()).cast(
                pa.decimal128(9, int(kind[-2])) if kind.startswith("dec") else pa.type_for_alias(kind)
            )
            pq.write_table(pa.table({"who": who, "age": frame["age"]}), tmp_path / f"{number}.parquet")
    domain = Domain((Integer(name="age", lower=0, upper=90),))
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "who", "rehearsal": 1}
    if is_one_kind:
        release = publish(str(tmp_path), domain, **given, weak=True)
        assert release.statement is not None and release.statement.n_rows == 2
    else:
        with pytest.raises(PublishError, match=r"types of different kinds .*Cast it to one type"):
            publish(str(tmp_path), domain, **given)


def test_rows_that_a_killed_publication_left_on_the_disk_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for process in (dead.pid, os.getpid(), "\u00b2"):
        (tmp_path / f"release-side-{process}-x").mkdir()
    (tmp_path / f"release-side-{dead.pid}-file").touch()
    frame, domain = pd.DataFrame({"who": [1, 2] * 10, "age": 5}), Domain((Integer(name="age", lower=0, upper=90),))
    with pytest.warns(UserWarning, match="a publication that was killed left private rows in") as caught:
        publish(frame, domain, epsilon=1.0, delta=1e-6, unit="who", rehearsal=1, weak=True)
    assert [str(tmp_path / f"release-side-{dead.pid}-x") in str(warning.message) for warning in caught] == [True]


def test_the_error_of_a_damaged_file_names_the_file_alone(tmp_path):
    whole = gzip.compress("\n".join(["age,city,person_id", *map(str, np.random.default_rng(0).random(9999))]).encode())
    (tmp_path / "p.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PublishError, match=r"p\.csv\.gz is cut off, damaged or no \.gz file"):
        published(tmp_path / "p.csv.gz")
