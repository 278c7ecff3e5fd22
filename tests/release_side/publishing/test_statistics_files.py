"""Files of SPSS, Stata and SAS: the integers of the CSV file, cells that depend on their own row alone, and refusals.

pyreadstat is optional (`pip install '.[sources]'`): without it these tests are skipped.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import paths
import pyarrow as pa
import pytest
from command_line import call
from exception_texts import everything_of
from hypothesis import given, settings
from hypothesis import strategies as st
from source_cases import DOMAIN, SMALL, N, as_csv, integers, people

from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.sources import statistics_files
from release_side import Ledger, PublishError, publish
from release_side.private_rows.rows import open_private
from release_side.private_rows.table import PrivateTable

pyreadstat: Any = pytest.importorskip("pyreadstat", reason="pyreadstat, of the extra [sources], is not installed")
pytestmark = pytest.mark.usefixtures("rough_representation")

Writer = Callable[..., None]
WRITERS: dict[str, tuple[Writer, str, dict[str, Any]]] = {  # writer, format of days, options
    "a.sav": (pyreadstat.write_sav, "DATE11", {}),
    "compressed.sav": (pyreadstat.write_sav, "EDATE10", {"row_compress": True}),
    "a.zsav": (pyreadstat.write_sav, "SDATE10", {"compress": True}),
    "a.dta": (pyreadstat.write_dta, "%tdDD/NN/CCYY", {}),
    "a.xpt": (pyreadstat.write_xport, "DATE9", {"file_format_version": 5}),
    "version8.xpt": (pyreadstat.write_xport, "YYMMDD10", {"file_format_version": 8}),
}
FORMATS = tuple(WRITERS)
SPSS_1970, SAS_1970 = 12_219_379_200, 3653  # seconds since 1582-10-14; days since 1960


def write(frame: pd.DataFrame, path: Path, days: tuple[str, ...] = (), **options: Any) -> Path:
    """The frame as a file of the format that the name says; `days` are numbers of days since 1970."""
    writer, day, own = WRITERS[path.name]
    shown = frame.copy()
    for name in days:
        shown[name] = shown[name] * 86_400.0 + SPSS_1970 if writer is pyreadstat.write_sav else shown[name] + SAS_1970
    writer(shown, str(path), variable_format=dict.fromkeys(days, day), **own, **options)
    return path


def as_statistics(table: pa.Table, path: Path) -> Path:
    frame = table.to_pandas()
    frame["joined"] = table["joined"].cast(pa.int32()).to_numpy().astype(float)
    return write(frame, path, days=("joined",))


@pytest.mark.parametrize("who", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_the_noisy_integers_are_those_of_the_csv_file(name, who, tmp_path, monkeypatch):
    table = people(who)
    path, csv = as_statistics(table, tmp_path / name), as_csv(table, tmp_path / "t.csv")
    assert integers(path) == integers(csv)
    monkeypatch.setattr(PrivateTable, "piece", 19)
    monkeypatch.setattr(statistics_files, "BATCH_ROWS", 37)
    assert integers(path) == integers(csv)
    assert integers(path, unit="who") == integers(csv, unit="who") != integers(csv)


def test_a_file_of_sas_is_read():
    """Forty invented rows, written by the library ReadStat; SAS itself has not written it."""
    table = open_private(paths.TESTS / "golden" / "statistics" / "people.sas7bdat")
    domain = Domain((DOMAIN["age"], DOMAIN["city"], DOMAIN["joined"]))
    rows = np.concatenate([rows for part in table.divided(17) for rows in part.encoded(domain)])
    i = np.arange(40)
    assert table.count() == 40 and table.type_of("joined") == "date32[day]"
    np.testing.assert_array_equal(rows[:, 0], np.where(i % 7 == 3, 40, 20 + i))
    np.testing.assert_array_equal(rows[:, 1], np.array([0, 0, 2, 0])[i % 4])  # Basel, "", "13" and Zürich
    np.testing.assert_array_equal(rows[:, 2], 11_323 + i)  # from 2001-01-01


@pytest.mark.parametrize("name", FORMATS)
def test_parts_are_the_table_and_can_be_pickled(name, tmp_path):
    table = open_private(as_statistics(people(), tmp_path / name))
    parts = pickle.loads(pickle.dumps(table.divided(77)))
    assert [part.count() for part in parts] == [77, 77, 77, 69]
    rows = np.concatenate([rows for part in parts for rows in part.encoded(DOMAIN)])
    np.testing.assert_array_equal(rows, np.concatenate(list(table.encoded(DOMAIN))))


# ---------------------------------------------------------------------- cells

NUMBERS = st.sampled_from([None, 0.0, -0.0, 1.5, 13.0, -1e9, 2.0**53, 1e300, -1e300, 1e-300])
TEXTS = st.sampled_from(["", " ", "Zürich", "13", " 13", "13  ", "nan", ".", "A" * 190, "\u202e", "'", '"'])
ROWS: dict[str, list[Any]] = {
    "age": [30.0, None, 41.0, 50.0, 17.0, None], "gain": [None, 1.5, 2.5, 0.0, 1e5, 7.0],
    "city": ["13", "", "Zürich", "Bern", "13", "Basel, Stadt"], "joined": [11_000.0, 12_000.0, None, 13_000.0, 0.0, 11_323.0],
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=50, deadline=None)
@given(index=st.integers(0, 5), row=st.tuples(NUMBERS, NUMBERS, TEXTS, NUMBERS))
def test_a_row_changes_no_other_row(name, index, row, tmp_path_factory):
    """Days beyond every calendar, empty cells and texts that are longer than all others included."""
    folder = tmp_path_factory.mktemp("rows")

    def encoded(columns: dict[str, list[Any]]) -> np.ndarray:
        numbers = {name: np.array(cells, dtype=float) for name, cells in columns.items() if name != "city"}
        path = write(pd.DataFrame({**numbers, "city": columns["city"]}), folder / name, days=("joined",))
        return np.concatenate(list(open_private(path).encoded(DOMAIN)))

    changed = {
        name: [*cells[:index], cell, *cells[index + 1 :]] for (name, cells), cell in zip(ROWS.items(), row, strict=True)
    }
    expected, found = np.delete(encoded(ROWS), index, axis=0), np.delete(encoded(changed), index, axis=0)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", FORMATS)
def test_a_day_beyond_the_calendar_is_the_default_of_its_column(name, tmp_path):
    days = [1e300, -1e300, 11_000.0, 5e6, np.nan, 11_323.9]
    path = write(pd.DataFrame({"joined": days, "x": 1.0}), tmp_path / name, days=("joined",))
    domain = Domain((Date(name="joined", lower="2000-01-01", upper="2020-12-31", default="2002-02-02"),))
    (rows,) = open_private(path).encoded(domain)
    assert rows[:, 0].tolist() == [11_720.0, 11_720.0, 11_000.0, 11_720.0, 11_720.0, 11_323.0]


def test_moments_have_days_and_times_of_a_day_are_numbers(tmp_path):
    moments = np.array([0.0, 86_399.5, -1.0, np.nan])
    frame = pd.DataFrame({"seen": moments + SPSS_1970, "hour": [0.0, 3600.0, 1.0, 2.0], "seen2": moments})
    pyreadstat.write_sav(frame, str(tmp_path / "a.sav"), variable_format={"seen": "DATETIME20", "hour": "TIME8"})
    stata = pd.DataFrame({"seen": moments * 1000 + SAS_1970 * 86_400_000})
    pyreadstat.write_dta(stata, str(tmp_path / "a.dta"), variable_format={"seen": "%tcDDmonCCYY_HH:MM:SS"})
    sas = pd.DataFrame({"seen": moments + SAS_1970 * 86_400})
    pyreadstat.write_xport(sas, str(tmp_path / "a.xpt"), variable_format={"seen": "DATETIME19"})
    domain = Domain((Date(name="seen", lower="1960-01-01", upper="1980-01-01", missing=True),))
    for name in ("a.sav", "a.dta", "a.xpt"):
        table = open_private(tmp_path / name)
        assert table.type_of("seen") == "timestamp[us]"
        assert np.concatenate(list(table.encoded(domain)))[:, 0].tolist()[:3] == [0.0, 0.0, -1.0]
    table = open_private(tmp_path / "a.sav")
    assert table.type_of("hour") == "double"
    hours = Domain((Real(name="hour", lower=0, upper=86_400),))
    assert np.concatenate(list(table.encoded(hours)))[:, 0].tolist() == [0.0, 3600.0, 1.0, 2.0]


def test_levels_are_codes_and_declared_missing_values_are_empty(tmp_path):
    """Labels are not applied, so that the domain lists "1" and "2"; 9 is missing because the header says so."""
    frame = pd.DataFrame({"sex": [1.0, 2.0, 9.0, 3.0, np.nan]})
    labels = {"sex": {1: "man", 2: "woman", 9: "no answer"}}
    pyreadstat.write_sav(frame, str(tmp_path / "a.sav"), variable_value_labels=labels, missing_ranges={"sex": [9]})
    domain = Domain((Categorical(name="sex", levels=("1", "2", "9"), missing=True, default="2"),))
    (rows,) = open_private(tmp_path / "a.sav").encoded(domain)
    codes = [domain.encode({"sex": np.array([cell], dtype=object)})[0, 0] for cell in ("1", "2", "", "2", "")]
    np.testing.assert_array_equal(rows[:, 0], codes)


def test_whole_numbers_of_stata_stay_whole_whether_or_not_one_is_empty(tmp_path):
    """Two identifiers that differ in the last digit, in a column of 32 bits."""
    frame = pd.DataFrame({"who": pd.array([2**31 - 200, 2**31 - 199, None], dtype="Int32"), "x": [1.0, 2.0, 3.0]})
    frame.to_stata(tmp_path / "a.dta", write_index=False)
    table = open_private(tmp_path / "a.dta")
    assert table.type_of("who") == "int32"
    cells, _ = next(table.identified("who", Domain((Real(name="x", lower=0, upper=9),))))
    assert cells.tolist() == [2**31 - 200, 2**31 - 199, None]


# ---------------------------------------------------------------------- numbers of rows, refusals


def test_rows_at_the_end_of_a_transport_file_count_though_they_are_empty(tmp_path):
    frame = pd.DataFrame({"x": [1.0, np.nan, np.nan], "s": ["a", "", ""]})
    for name in ("a.xpt", "version8.xpt"):
        table = open_private(write(frame, tmp_path / name))
        rows = np.concatenate(list(table.encoded(Domain((Real(name="x", lower=0, upper=9, default=5),)))))
        assert table.count() == len(rows) == 3


def test_the_number_of_rows_of_a_transport_file_is_that_of_its_rows_whatever_fills_it_up(tmp_path):
    for n in range(1, 12):
        path = write(pd.DataFrame({"x": np.arange(n, dtype=float), "s": ["a"] * n}), tmp_path / "a.xpt")
        table = open_private(path)
        assert table.count() == n == sum(map(len, table.encoded(Domain((Real(name="x", lower=0, upper=9),)))))


def refused(source: Any, message: str, domain: Domain = DOMAIN) -> None:
    with pytest.raises(PublishError, match=message) as caught:
        publish(source, domain, **SMALL)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_transport_file_of_texts_alone_is_refused(tmp_path):
    texts = pd.DataFrame({"city": ["13", "", ""], "s": ["a", "", ""]})
    refused(
        write(texts, tmp_path / "a.xpt"), r"a\.xpt has columns of text alone .* what fills up the file\. Save it in"
    )
    table = open_private(write(texts, tmp_path / "version8.xpt"))  # says how many rows it has
    assert table.count() == sum(map(len, table.encoded(Domain((DOMAIN["city"],))))) == 3


def test_an_empty_table_is_refused(tmp_path):
    for name in ("a.sav", "a.dta", "a.xpt"):
        refused(as_statistics(people()[:0], tmp_path / name), "has no rows: nothing can be released")


@pytest.mark.parametrize("ending", [".sav", ".zsav", ".dta", ".xpt", ".sas7bdat"])
def test_what_is_no_file_of_a_package_is_refused(ending, tmp_path):
    path = tmp_path / f"t{ending}"
    for content in (b"", b"age,city\n1,2\n" * 99):
        path.write_bytes(content)
        refused(path, rf"t\{ending} is no (SPSS|Stata|SAS) file that pyreadstat can read, or .* Save the table again")


@pytest.mark.parametrize("ending", [".xlsx", ".XLS", ".ods"])
def test_a_spreadsheet_is_refused(ending, tmp_path):
    path = tmp_path / f"t{ending}"
    path.write_bytes(b"PK")
    refused(path, rf"t\{ending} is a spreadsheet, .* guess it from all cells\. Save the sheet as CSV")


def test_without_pyreadstat_the_extra_is_named(tmp_path, monkeypatch):
    path = as_statistics(people(), tmp_path / "a.sav")
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    refused(path, r"a\.sav is read by pyreadstat, which is not installed\. Type pip install 'kmeanalyst\[sources\]'")


def test_single_precision_of_stata_is_no_level(tmp_path):
    pd.DataFrame({"x": np.array([0.1], np.float32)}).to_stata(tmp_path / "a.dta", write_index=False)
    assert open_private(tmp_path / "a.dta").type_of("x") == "float"
    column: Column = Categorical(name="x", levels=("0.1", "a"))
    refused(tmp_path / "a.dta", r"column 'x' has the type float: in single precision", Domain((column,)))


def test_days_are_no_numbers(tmp_path):
    path = as_statistics(people(), tmp_path / "a.sav")
    refused(path, r"column 'joined' .* a day is no integer cell", Domain((Integer(name="joined", lower=0, upper=9),)))


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_is_cut_off_shows_no_cell(name, tmp_path, capfd, caplog):
    marker = "HIV+ 4711"
    rng = np.random.default_rng(1)
    texts = [f"{marker} {x}" for x in rng.random(2000)]
    path = write(pd.DataFrame({"age": rng.random(2000), "city": texts}), tmp_path / name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    ledger = Ledger(tmp_path / "budget.ledger")
    ledger.init("people", epsilon=2, delta=1e-5)
    domain = Domain((DOMAIN["age"], DOMAIN["city"]))
    options = SMALL | {"rehearsal": None, "ledger": ledger.path, "table": "people", "output": tmp_path / "a.kme"}
    with pytest.raises(PublishError, match=r"withheld .* nothing was spent|is no \w+ file|is cut off") as caught:
        publish(path, domain, **options)
    assert not any("HIV" in each for each in (everything_of(caught.value), *capfd.readouterr(), caplog.text))
    assert ledger.account("people").total_epsilon == 0 and not (tmp_path / "a.kme").exists()


@pytest.mark.parametrize("name", FORMATS)
def test_a_text_that_cannot_be_decoded_shows_no_cell(name, tmp_path, capfd, caplog):
    """pyreadstat stops at it, or it is no level; the other rows keep theirs."""
    path = write(pd.DataFrame({"age": [1.0, 2.0], "city": ["HIV+ 4711", "13"]}), tmp_path / name)
    content = path.read_bytes()
    if b"+ 4711" not in content:  # compressed by zlib
        return
    path.write_bytes(content.replace(b"+ 4711", b"+ \xff\xfe\x80\xc3"))
    try:
        (rows,) = open_private(path).encoded(Domain((DOMAIN["city"],)))
        assert rows[:, 0].tolist() == [0.0, 2.0]
    except PublishError as error:
        assert "withheld" in str(error)
        assert not any("HIV" in each for each in (everything_of(error), *capfd.readouterr(), caplog.text))


def test_the_command_line_reads_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    as_statistics(people(), tmp_path / "a.sav")
    Path("d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    result = call("release-side", "check-source", "a.sav", "--domain", "d.toml", "--unit", "who")
    assert [line.split()[2:] for line in result.stdout.splitlines()[1:]] == [
        ["double"], ["double"], ["string"], ["date32[day]"], ["double"],
    ]  # fmt: skip
    words = ["--epsilon", 1, "--delta", 1e-6, "--points", 5, "--features", 64, "--rehearsal", 1, "--output", "a.kme"]
    assert call("release-side", "publish", "a.sav", "--domain", "d.toml", *words).exit_code == 0
    assert Path("a.kme").exists() and N == 300
