"""Publishing persons with several rows: what is promised, what goes out, and that the number of rows does not."""

from __future__ import annotations

import gzip
import io
import json
import logging
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
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
from kmeanalyst.releases.statement import REPLACE_ROW, REPLACE_UNIT
from release_side.budget.ledger import Ledger
from release_side.cli.main import main
from release_side.door.mechanism import GaussianNoise, PublishError
from release_side.publishing.publish import publish

DOMAIN = Domain((Integer(name="age", lower=17, upper=90), Categorical(name="city", levels=("A", "B", "C"))))
PERSONS, ROWS = 83, 391  # numbers that nothing else has
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
SIZES: dict[str, dict[str, Any]] = {
    "random-features": {"points": 10, "features": 40},
    "margins": {"points": 10, "kernel": "margins"},
    "subspace": {"method": "subspace", "points": 10},
}
SMALL = SIZES["random-features"]

pytestmark = pytest.mark.usefixtures("rough_representation")


def table_of(n_rows: int = ROWS, persons: int = PERSONS) -> pd.DataFrame:
    """Persons with one to many rows each, anywhere in the table."""
    rng = np.random.default_rng(7)
    owner = np.concatenate([np.arange(persons), (persons * rng.random(n_rows - persons) ** 3).astype(int)])
    frame = DOMAIN.decode(DOMAIN.draw(n_rows, rng))
    return frame.assign(person_id=[f"Jane-Doe-{1000 + code}" for code in rng.permutation(owner)]).astype(str)


TABLE = table_of()


# ---------------------------------------------------------------------- what is promised and measured


def test_the_promise_is_to_persons_and_says_so(tmp_path: Path):
    release = publish(TABLE, DOMAIN, unit="person_id", **BUDGET, **SMALL, output=tmp_path / "o.kme")
    promise = release.statement
    assert promise is not None and release.measurement is not None
    assert (promise.neighbouring, promise.n_rows, promise.counted) == (
        REPLACE_UNIT, PERSONS, "units of 'person_id'",
    )  # fmt: skip
    assert promise.sensitivity == pytest.approx(2 / (SHRINK * PERSONS), rel=1e-12)
    assert promise.noise_scale == pytest.approx(GaussianNoise(**BUDGET).multiplier() * promise.sensitivity, rel=1e-12)
    assert promise.taken_as_public[0] == (
        "the number P of units of 'person_id' (not that of their rows) and the names of the columns, 'person_id' included"
    )
    assert f"{PERSONS} units of 'person_id', of equal weight" in repr(release) and "private rows have" not in repr(
        release
    )
    assert validate_release(tmp_path / "o.kme") == []
    assert read_release(tmp_path / "o.kme").statement == promise


def test_the_measurement_is_the_mean_over_persons_of_their_rows_average(no_noise):
    release = publish(TABLE, DOMAIN, unit="person_id", **BUDGET, **SMALL)
    sizes = Counter(TABLE["person_id"])
    weights = np.array([1 / (PERSONS * sizes[name]) for name in TABLE["person_id"]])
    assert release.measurement is not None
    expected = feature_mean(release.measurement.feature_map, DOMAIN.encode(TABLE), weights)
    np.testing.assert_allclose(release.measurement.vector, expected, atol=1e-8)
    of_rows = feature_mean(release.measurement.feature_map, DOMAIN.encode(TABLE))
    assert np.abs(release.measurement.vector - of_rows).max() > 1e-3  # a row of many counts less


@pytest.mark.parametrize("size", SIZES)
def test_persons_of_one_row_give_the_release_of_the_rows(size: str):
    frame = TABLE.assign(person_id=[f"{number}" for number in range(ROWS)])
    both = [publish(frame, DOMAIN, unit=unit, rehearsal=3, **BUDGET, **SIZES[size]) for unit in ("person_id", None)]
    persons, rows = (release.measurement for release in both)
    assert persons is not None and rows is not None
    np.testing.assert_array_equal(persons.noisy_sum, rows.noisy_sum)
    assert (persons.n_rows, persons.noise_scale) == (rows.n_rows, rows.noise_scale)
    np.testing.assert_array_equal(both[0].weights, both[1].weights)
    assert [release.statement.neighbouring for release in both] == [REPLACE_UNIT, REPLACE_ROW]  # type: ignore[union-attr]


def test_rows_without_an_identifier_are_one_person():
    frame = TABLE.copy()
    frame.loc[:99, "person_id"] = ""
    promise = publish(frame, DOMAIN, unit="person_id", **BUDGET, **SMALL).statement
    assert promise is not None and promise.n_rows == 1 + frame["person_id"][100:].nunique()


def test_error_bars_count_persons_and_are_not_too_short():
    """Persons of ten rows that are alike: the mean varies as that of persons does, not as that of ten times the rows."""
    rng = np.random.default_rng(0)
    domain = Domain((Real(name="x", lower=-6.0, upper=6.0),))
    centres = rng.normal(0, 1.5, 400)
    frame = pd.DataFrame({"x": np.repeat(centres, 10) + rng.normal(0, 0.5, 4000), "who": np.repeat(np.arange(400), 10)})
    release = publish(frame, domain, unit="who", weak=True, epsilon=100.0, delta=1e-6, points=50, features=100)
    sampling = release.expectation("x").parts["sampling"]
    spread = frame.groupby("who")["x"].mean().std() / 20
    assert spread <= sampling < 1.5 * spread
    assert sampling > 2 * frame["x"].std() / np.sqrt(4000)


# ---------------------------------------------------------------------- what goes out


def everything_seen(frame: pd.DataFrame, folder: Path, caplog: Any, size: dict[str, Any]) -> tuple[Any, ...]:
    """The file, and what is said on the way to it."""
    caplog.clear()
    path, told = folder / "o.kme", []
    with caplog.at_level(logging.DEBUG):
        publish(
            frame, DOMAIN, unit="person_id", rehearsal=3, epsilon=20.0, delta=1e-6, output=path, force=True, workers=1,
            progress=lambda *said: told.append(said), **size,
        )  # fmt: skip
    return path.read_bytes(), told, [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("size", SIZES)
def test_nothing_depends_on_the_number_of_rows_their_order_or_anybodys_name(size, tmp_path, caplog):
    """Every row written several times, in another order, under other names: the same file, word and progress."""
    first = everything_seen(TABLE, tmp_path, caplog, SIZES[size])
    for times in (1, 3, 40):
        more = pd.concat([TABLE] * times).sample(frac=1, random_state=times)
        more["person_id"] = [f"{name[::-1]} of {times}" for name in more["person_id"]]
        assert everything_seen(more, tmp_path, caplog, SIZES[size]) == first


def said_before_noise(told: list[Any]) -> list[Any]:
    """Progress while rows are read; what follows is of the fit to the noisy mean, and may differ as that does."""
    return [said for said in told if said[0] == "reading rows"]


HOSTILE = ["nan", "inf", "-1e308", "", " ", "unseen", "9" * 400, "\ud800", "1e999", "None", '"', "A\0"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("many", [1, 10_000])
def test_a_person_replaced_by_hostile_rows_shows_in_the_noisy_numbers_alone(size, many, tmp_path, caplog):
    """Neighbours under frozen noise: the same words, promise and progress, and sums within the sensitivity."""
    largest = TABLE["person_id"].value_counts().index[0]
    rng = np.random.default_rng(2)
    hostile = pd.DataFrame(
        {name: rng.choice(np.array(HOSTILE, dtype=object), many) for name in DOMAIN.names}, dtype=object
    )
    hostile["person_id"] = HOSTILE[many % 7]
    neighbour = pd.concat([TABLE[TABLE["person_id"] != largest], hostile]).sample(frac=1, random_state=1)
    (one, *told), (other, *told_of_neighbour) = (
        everything_seen(frame, tmp_path / str(i), caplog, SIZES[size])
        for i, frame in enumerate((TABLE, neighbour))
        if (tmp_path / str(i)).mkdir() is None
    )
    assert said_before_noise(told[0]) == said_before_noise(told_of_neighbour[0]) != []
    assert told[1] == told_of_neighbour[1] and one != other
    (tmp_path / "one.kme").write_bytes(one), (tmp_path / "other.kme").write_bytes(other)
    a, b = (read_release(tmp_path / f"{name}.kme", allow_rehearsal=True) for name in ("one", "other"))
    assert a.statement == b.statement and a.measurement is not None and b.measurement is not None
    apart = sum((int(x) - int(y)) ** 2 for x, y in zip(a.measurement.noisy_sum, b.measurement.noisy_sum, strict=True))
    assert 0 < apart <= grid_sensitivity(a.measurement.feature_map) ** 2 * (1 + 1e-9)


@pytest.mark.parametrize("size", [{"kernel": "margins"}, {"features": 40}, {}])
def test_default_sizes_follow_from_the_number_of_persons(size, monkeypatch):
    for limit in ("DEFAULT_POINTS", "MOST_DEFAULT_POINTS"):
        monkeypatch.setattr(f"release_side.choices.options.{limit}", 20)
    monkeypatch.setattr("release_side.choices.options.FEATURES", 60)
    by_person = publish(TABLE, DOMAIN, unit="person_id", **BUDGET, **size)
    as_rows = publish(TABLE[:PERSONS], DOMAIN, **BUDGET, **size)
    for release in (by_person, as_rows):
        assert release.measurement is not None
    assert len(by_person) == len(as_rows) and by_person.kernel == as_rows.kernel
    assert by_person.measurement.feature_map.dimension == as_rows.measurement.feature_map.dimension


@pytest.mark.parametrize("source", ["frame", "csv", "parquet"])
def test_no_identifier_and_no_number_of_rows_is_in_the_file_or_on_the_screen(source, tmp_path):
    private, toml, output, book = (tmp_path / name for name in (f"p.{source}", "d.toml", "o.kme", "book"))
    toml.write_text(domain_toml(DOMAIN), encoding="utf-8")
    table = TABLE.assign(other="x")
    text = ""
    Ledger(book).init("people", 2.0, 1e-4)
    if source == "frame":
        publish(table, DOMAIN, unit="person_id", output=output, ledger=book, table="people", **BUDGET, **SMALL)
    else:
        table.to_csv(private, index=False) if source == "csv" else table.to_parquet(private)
        words = ("publish", private, "--domain", toml, "--epsilon", 1, "--delta", 1e-6, "--points", 10, "--features",
                 40, "--unit", "person_id", "--output", output, "--ledger", book, "--table", "people")  # fmt: skip
        result = CliRunner().invoke(main, [str(word) for word in words])
        assert result.exit_code == 0, result.output
        text = result.stdout + result.stderr
        assert "note: columns not in the domain are ignored: other\n" in text
        assert f"table       {PERSONS} units of 'person_id'" in text
    data = output.read_bytes() + book.read_bytes() + text.encode()
    assert b"Doe" not in data
    header = json.loads(zipfile.ZipFile(io.BytesIO(output.read_bytes())).read("release.json"))
    SCHEMA_TEST.validate(header)
    unnamed = header | {"statement": header["statement"] | {"unit": None, "taken_as_public": []}}
    assert "person_id" not in json.dumps(unnamed)  # the name stands there alone
    assert not {ROWS, len(table)} & set(numbers_in(header)) and str(ROWS) not in text.replace(str(tmp_path), "")
    assert set(header["statement"]) == {  # that of a release of rows: no field more
        "epsilon", "delta", "neighbouring", "mechanism", "sensitivity", "noise_scale", "calibration", "rho", "n_rows",
        "public_points", "taken_as_public", "versions", "unit", "ledger_head",
    }  # fmt: skip


def numbers_in(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        return [n for item in (value.values() if isinstance(value, dict) else value) for n in numbers_in(item)]
    return [value] if isinstance(value, int | float) else []


def test_the_analyst_is_told_of_persons(tmp_path):
    publish(TABLE, DOMAIN, unit="person_id", output=tmp_path / "o.kme", **BUDGET, **SMALL)
    shown = CliRunner().invoke(analyst, ["info", str(tmp_path / "o.kme")])
    assert f"{PERSONS} units of 'person_id', of equal weight however many private rows they have" in shown.stdout
    assert "neighbours: replace-one-unit" in shown.stdout
    found = json.loads(CliRunner().invoke(analyst, ["info", str(tmp_path / "o.kme"), "--json"]).stdout)
    assert (found["n_rows"], found["statement"]["neighbouring"]) == (PERSONS, REPLACE_UNIT)


def test_a_comparison_says_that_each_person_weighs_the_same():
    release = publish(TABLE, DOMAIN, unit="person_id", **BUDGET, **SMALL)
    result = kmeanalyst.mmd_test(release, TABLE[["age", "city"]])
    assert result.n_release_rows == PERSONS
    assert any("gives each unit the same weight" in note for note in result.notes)
    of_rows = publish(TABLE, DOMAIN, **BUDGET, **SMALL)
    assert not any("unit" in note for note in kmeanalyst.mmd_test(of_rows, TABLE[["age", "city"]]).notes)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("unit", "frame", "message"),
    [
        ("who", TABLE, r"no column 'who', so the rows of a unit cannot be found\. Name the one column"),
        ("age", TABLE, r"'age' is named as the unit and is in the domain: .* never published\. Remove it from"),
        ("x", TABLE.set_axis(["age", "city", "x"], axis=1).assign(y=1).rename(columns={"y": "x"}),
         r"more than one column 'x', so the rows of a unit cannot be found\. Name the one column"),
        ("person_id", TABLE[:0], r"the table has no rows: nothing can be released"),
    ],
)  # fmt: skip
def test_a_column_that_cannot_tell_persons_apart_is_refused(unit, frame, message, tmp_path):
    with pytest.raises(PublishError, match=message) as caught:
        publish(frame, DOMAIN, unit=unit, ledger=tmp_path / "book", table="people", **BUDGET, **SMALL)
    assert "Doe" not in str(caught.value) and not (tmp_path / "book").exists()


def test_a_damaged_file_is_told_of_by_its_name_alone(tmp_path):
    whole = gzip.compress("\n".join(["age,city,person_id", *map(str, np.random.default_rng(0).random(9999))]).encode())
    (tmp_path / "p.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PublishError, match=r"p\.csv\.gz is cut off, damaged or no \.gz file"):
        publish(tmp_path / "p.csv.gz", DOMAIN, unit="person_id", **BUDGET, **SMALL)


# ---------------------------------------------------------------------- the ledger


def test_the_ledger_counts_persons_and_does_not_mix_them_with_rows(tmp_path):
    ledger = Ledger(tmp_path / "book")
    for table in ("persons", "rows"):
        ledger.init(table, 3.0, 1e-5)
    for _ in range(2):
        publish(TABLE, DOMAIN, ledger=ledger.path, table="rows", **BUDGET, **SMALL)
        publish(TABLE, DOMAIN, unit="person_id", ledger=ledger.path, table="persons", **BUDGET, **SMALL)
    persons, rows = ledger.accounts()
    assert {(spend.n_rows, spend.neighbouring) for spend in persons.spends} == {(PERSONS, REPLACE_UNIT)}
    assert {(spend.n_rows, spend.neighbouring) for spend in rows.spends} == {(ROWS, REPLACE_ROW)}
    assert persons.total_epsilon == rows.total_epsilon
    for table, unit, words in (
        ("rows", "person_id", ("rows", "units of 'person_id'")),
        ("persons", None, ("units of 'person_id'", "rows")),
    ):
        message = f"'{table}' in the ledger protect {words[0]}, and this one would protect {words[1]}: .* another name"
        with pytest.raises(PublishError, match=message):
            publish(TABLE, DOMAIN, unit=unit, ledger=ledger.path, table=table, **BUDGET, **SMALL)
        other = next(account for account in (persons, rows) if account.name != table)
        with pytest.raises(PublishError, match=message):
            ledger.record(table, other.spends[0])
        with pytest.raises(PublishError, match=message):
            ledger.check(table, other.spends[0])
    assert [len(account.releases) for account in ledger.accounts()] == [2, 2]
    shown = CliRunner().invoke(main, ["ledger", "show", str(ledger.path)]).stdout
    assert shown.count(f"  {PERSONS} units  ") == 2 and shown.count(f"  {ROWS} rows  ") == 2
    assert "unit    units of 'person_id'" in shown
