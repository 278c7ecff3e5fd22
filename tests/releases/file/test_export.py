"""Exports: what other programs read is what the release holds."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray
from click.testing import CliRunner
from file_tools import bare
from sklearn.linear_model import LinearRegression

import kmeanalyst as ka
from kmeanalyst.cli.main import main
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file.archive import atomic_write
from kmeanalyst.releases.file.export import export, export_sdnist, without_formulas, write_netcdf


def read_netcdf(path: Path) -> xarray.Dataset:
    with xarray.open_dataset(path, engine="scipy") as dataset:
        return dataset.load()


def test_csv_and_parquet_have_the_cells_and_weights_to_the_last_digit(mixed_release, tmp_path):
    export(mixed_release, tmp_path / "a.csv")
    text = pd.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False)
    frame = mixed_release.to_frame()
    assert list(text) == list(frame)
    assert text["weight"].astype(float).tolist() == frame["weight"].tolist()
    assert text["income"].astype(float).tolist() == frame["income"].tolist()
    assert text["city"].tolist() == frame["city"].tolist()
    assert text["joined"].tolist() == frame["joined"].dt.strftime("%Y-%m-%d").tolist()
    for name in ("children", "capital.gain", "school", "insured", "left"):
        assert (text[name] == "").tolist() == frame[name].isna().tolist()
    export(mixed_release, tmp_path / "a.PARQUET")
    back = pd.read_parquet(tmp_path / "a.PARQUET")
    assert back["weight"].tolist() == mixed_release.weights.tolist()
    for table in (text, back):  # the domain reads its own export
        np.testing.assert_array_equal(mixed_release.domain.encode(table), mixed_release.encoded_points)


def test_netcdf_has_points_and_weights_as_netcdf_can_hold_them(mixed_release, tmp_path):
    write_netcdf(mixed_release, tmp_path / "a.nc")
    assert (tmp_path / "a.nc").read_bytes()[:3] == b"CDF"
    dataset, frame = read_netcdf(tmp_path / "a.nc"), mixed_release.to_frame()
    assert set(dataset.variables) == set(frame)
    assert dataset["age"].dtype == np.int32
    assert dataset["married"].dtype == np.int8
    assert dataset["weight"].values.tolist() == frame["weight"].tolist()
    assert dataset["age"].values.tolist() == frame["age"].tolist()
    assert dataset["city"].values.tolist() == frame["city"].tolist()
    assert dataset["school"].values.tolist() == frame["school"].astype(object).fillna("").tolist()
    assert dataset["married"].values.astype(bool).tolist() == frame["married"].tolist()
    for name in ("children", "capital.gain", "insured"):
        expected = frame[name].to_numpy(dtype=float, na_value=np.nan)
        np.testing.assert_array_equal(dataset[name].values, expected)
    for name in ("joined", "left"):
        np.testing.assert_array_equal(dataset[name].values.astype("datetime64[D]"), frame[name].to_numpy())


def test_whole_numbers_beyond_32_bits_become_floats_and_odd_names_are_changed(tmp_path):
    odd = ("a/b", "a_b", "1st", "point", "größe")
    domain = Domain((Integer(name="n", lower=-(2**40), upper=2**40), *(Real(name=name, lower=0, upper=1) for name in odd)))
    points = domain.decode(domain.draw(5, 0))
    release = bare(points, np.full(5, 0.2), domain)
    write_netcdf(release, tmp_path / "a.nc")
    dataset = read_netcdf(tmp_path / "a.nc")
    names = {dataset[name].attrs["long_name"]: name for name in dataset.variables}
    assert names == {
        "n": "n", "a/b": "a_b", "a_b": "a_b_", "1st": "_1st", "point": "point_", "größe": "gr__e", "weight": "weight",
    }  # fmt: skip
    assert dataset["n"].dtype == np.float64
    for column, name in names.items():
        assert dataset[name].values.tolist() == release.to_frame()[column].tolist()


READERS = {
    ".csv": lambda path: pd.read_csv(path, dtype=str).astype(float),  # older pandas rounds in the last digit
    ".parquet": pd.read_parquet,
    ".nc": lambda path: read_netcdf(path).to_dataframe(),
}


def test_a_resampled_view_has_rows_of_equal_weight(numeric_release, tmp_path):
    for ending in READERS:
        expected = numeric_release.to_frame("resampled", rows=17, rng=3)
        export(numeric_release, tmp_path / f"a{ending}", frame=expected)
        np.testing.assert_array_equal(READERS[ending](tmp_path / f"a{ending}").to_numpy(), expected.to_numpy())


def test_an_unknown_ending_says_which_are_known(numeric_release, tmp_path):
    with pytest.raises(ValueError, match=r"to .*a\.xls: the ending .* \.csv, \.parquet, \.nc, .* are known\. Name"):
        export(numeric_release, tmp_path / "a.xls")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", READERS)
def test_an_export_appears_whole_or_not_at_all(ending, numeric_release, tmp_path, monkeypatch):
    path = tmp_path / f"a{ending}"
    path.write_bytes(b"older")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
        export(numeric_release, path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"older"


STATISTICS = {
    ".xlsx": ("openpyxl", pd.read_excel), ".dta": ("pandas", pd.read_stata), ".sav": ("pyreadstat", pd.read_spss),
}  # fmt: skip


@pytest.mark.parametrize("ending", STATISTICS)
def test_excel_stata_and_spss_read_the_cells_and_weights(ending, mixed_release, tmp_path):
    needed, read = STATISTICS[ending]
    pytest.importorskip(needed)
    frame = mixed_release.frame.assign(weight=mixed_release.weights).head(200)
    export(mixed_release, tmp_path / f"rows{ending}", frame=frame)
    back = read(tmp_path / f"rows{ending}")
    assert len(back.columns) == len(frame.columns)
    np.testing.assert_allclose(back["weight"], frame["weight"], rtol=1e-12)
    np.testing.assert_allclose(back["age"], frame["age"])
    assert back["city"].astype(str).tolist() == frame["city"].astype(str).tolist()
    np.testing.assert_allclose(back["children"].astype(float), frame["children"].astype(float))  # with missing cells


def test_names_that_stata_does_not_allow_are_changed_and_kept_as_labels(numeric_release, tmp_path):
    frame = pd.DataFrame({"a-b": [1], "a.b": [2], "2nd": [3], "n" * 40: [4], "weight": [1.0]})
    export(numeric_release, tmp_path / "odd.dta", frame=frame)
    with pd.io.stata.StataReader(tmp_path / "odd.dta") as reader:
        assert list(reader.variable_labels().values()) == list(frame.columns)
        assert reader.read().iloc[0].tolist() == [1, 2, 3, 4, 1.0]


def test_names_that_spss_does_not_allow_are_changed_too(numeric_release, tmp_path):
    pyreadstat = pytest.importorskip("pyreadstat")
    frame = pd.DataFrame({"a-b": [1], "a_b": [2], "2nd": [3], "_x": [4], "weight": [1.0]})
    export(numeric_release, tmp_path / "odd.sav", frame=frame)
    back, about = pyreadstat.read_sav(tmp_path / "odd.sav")
    assert about.column_labels == list(frame.columns) and back.iloc[0].tolist() == [1, 2, 3, 4, 1.0]


def test_a_package_that_is_absent_is_named(mixed_release, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"written by the package openpyxl.*pip install openpyxl.*\.csv"):
        export(mixed_release, tmp_path / "rows.xlsx")
    assert not list(tmp_path.iterdir())


def test_a_workbook_has_no_formula(mixed_release, tmp_path):
    pytest.importorskip("openpyxl")
    assert export(mixed_release, tmp_path / "f.xlsx", frame=pd.DataFrame({"x": ["=1+1", "a"], "weight": [1.0, 2.0]})) == 1
    assert pd.read_excel(tmp_path / "f.xlsx")["x"].tolist() == ["'=1+1", "a"]


def test_libraries_that_read_arrow_read_a_release_and_are_read(mixed_release, numeric_release):
    table = mixed_release.to_arrow()
    assert pa.RecordBatchReader.from_stream(mixed_release).read_all().equals(table)
    np.testing.assert_array_equal(table["weight"].to_numpy(), mixed_release.weights)
    assert table.schema.metadata[b"privacy"].decode() == mixed_release.summary()["privacy"]
    frame = numeric_release.frame.head(300).assign(w=1 / 300)
    rows, fit = pa.Table.from_pandas(frame, preserve_index=False), numeric_release.glm("x ~ y")
    assert ka.from_frame(rows, weight="w").mean("x") == ka.from_frame(frame, weight="w").mean("x")
    pd.testing.assert_frame_equal(fit.predict(rows), fit.predict(frame))
    model = ka.fit(LinearRegression(), numeric_release, "x")
    np.testing.assert_array_equal(model.predict(rows), model.predict(frame))


def test_a_reader_never_sees_half_a_file(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as temporary:
        temporary.write_text("half")
        assert temporary.parent == tmp_path
        assert not path.exists()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with atomic_write(path) as temporary:
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    (other := tmp_path / "other").write_text("")
    assert path.stat().st_mode & 0o777 == other.stat().st_mode & 0o777


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", '"=1+1', "'=1+1", "＝1+1", "=cmd|'/C calc'!A0"]
PLAIN = ["<=50K", "a=b", "-5", "+3.5e2", "- x", "x", "'quoted'", "1-2"]


def with_levels(levels: list[str], name: str = "level") -> Release:
    domain = Domain((Categorical(name=name, levels=tuple(levels)), Integer(name="n", lower=-9, upper=9)))
    return bare(pd.DataFrame({name: levels, "n": range(-2, len(levels) - 2)}), np.ones(len(levels)), domain)


def test_a_csv_has_no_text_that_a_spreadsheet_would_run_unless_it_is_asked_for(tmp_path):
    for formula in FORMULAS:
        release = with_levels([formula, "x", "y"])
        assert export(release, tmp_path / "a.csv") == 1
        back = pd.read_csv(tmp_path / "a.csv")
        assert back["level"].tolist() == ["'" + formula, "x", "y"] and back["n"].tolist() == [-2, -1, 0]
        assert export(release, tmp_path / "a.csv", keep_formulas=True) == 0
        assert pd.read_csv(tmp_path / "a.csv")["level"].tolist() == [formula, "x", "y"]
        for name in ("a.parquet", "a.nc"):
            assert export(release, tmp_path / name) == 0
        assert pd.read_parquet(tmp_path / "a.parquet")["level"].tolist() == [formula, "x", "y"]
        release.write(tmp_path / "a.kme")
        assert read_release(tmp_path / "a.kme").to_frame()["level"].tolist() == [formula, "x", "y"]


def test_a_text_of_any_column_is_defused_spaces_before_it_or_not():
    """Texts of a text column may begin with spaces, which names and levels may not."""
    for formula in [*FORMULAS, " =1+1", "\u00a0=1+1"]:
        defused, count = without_formulas(pd.DataFrame({"text": [formula, "x", "- "]}))
        assert defused["text"].tolist() == ["'" + formula, "x", "'- "] and count == 2


def test_texts_that_no_spreadsheet_runs_and_numbers_are_left_alone_and_names_are_defused_too(tmp_path):
    assert export(with_levels(PLAIN), tmp_path / "a.csv") == 1  # "- x", which is not a number
    back = pd.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False)
    assert back["level"].tolist() == [("'" if text == "- x" else "") + text for text in PLAIN]
    assert export(with_levels(["x", "y"], name="=1+1"), tmp_path / "a.csv") == 1
    assert list(pd.read_csv(tmp_path / "a.csv")) == ["'=1+1", "n", "weight"]


def rehearsed(release: Release) -> Release:
    statement = replace(release.statement, mechanism="rehearsal of " + release.statement.mechanism)
    measurement = replace(release.measurement, noise_law=statement.mechanism)
    return release.replaced(statement=statement, measurement=measurement)


def test_every_export_of_a_rehearsal_says_so_in_each_row_and_in_its_metadata(mixed_release, tmp_path):
    stamped = rehearsed(mixed_release)
    assert stamped.is_rehearsal
    for name, view in (("a.csv", "signed"), ("a.parquet", "probability"), ("b.csv", "resampled"), ("a.nc", "signed")):
        export(stamped, tmp_path / name, frame=stamped.to_frame(view))
    stamped.to_netcdf(tmp_path / "b.nc")
    parquet = pd.read_parquet(tmp_path / "a.parquet")
    for frame in (pd.read_csv(tmp_path / "a.csv"), pd.read_csv(tmp_path / "b.csv"), parquet):
        assert (frame["NOT_PRIVATE"] == "rehearsal").all()
        assert stamped.domain.encode(frame).shape == (60, 10)
    assert parquet.attrs["privacy"].startswith("NOT PRIVATE: a rehearsal")
    for name in ("a.nc", "b.nc"):
        dataset = read_netcdf(tmp_path / name)
        assert dataset.attrs["privacy"].startswith("NOT PRIVATE")
        assert (dataset["NOT_PRIVATE"].values == "rehearsal").all()
    export(mixed_release, tmp_path / "c.csv")
    assert "NOT_PRIVATE" not in pd.read_csv(tmp_path / "c.csv")


def test_what_is_made_from_a_rehearsal_is_one(mixed_release, tmp_path):
    stamped = rehearsed(mixed_release)
    made = {"thin": stamped.thin(5), "transform": stamped.transform({"twice": "age * 2"})}
    for name, release in made.items():
        release.write(tmp_path / f"{name}.kme")
        with pytest.raises(ValueError, match="NOT PRIVATE"):
            read_release(tmp_path / f"{name}.kme")
        assert read_release(tmp_path / f"{name}.kme", allow_rehearsal=True).is_rehearsal


def test_the_command_says_how_many_cells_it_defused_and_how_to_leave_them(tmp_path):
    with_levels(["=1+1", "@x", "y"]).write(tmp_path / "a.kme")
    arguments = ["export", str(tmp_path / "a.kme"), str(tmp_path / "a.csv")]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert "note: 2 text cells begin like a formula" in done.stderr and "--keep-formulas leaves them" in done.stderr
    assert json.loads(done.stdout) | {"output": ""} == {
        "output": "", "view": "signed", "rows": 3, "defused_cells": 2, "rehearsal": False,
    }  # fmt: skip
    kept = CliRunner().invoke(main, [*arguments, "--keep-formulas"])
    assert kept.exit_code == 0 and "formula" not in kept.stderr
    assert pd.read_csv(tmp_path / "a.csv")["level"].tolist() == ["=1+1", "@x", "y"]


@pytest.fixture
def excerpt() -> Release:
    """Four columns of the excerpts and one of our own."""
    domain = Domain((
        Categorical(name="PUMA", levels=("25-00503", "25-00703")),
        Integer(name="AGEP", lower=0, upper=99),
        Integer(name="NPF", lower=2, upper=20, missing=True),
        Real(name="PINCP", lower=-9000, upper=1341000, missing=True),
        Categorical(name="own", levels=("a", "b")),
    ))  # fmt: skip
    points = domain.decode(np.array([[0, 3, np.nan, np.nan, 0], [1, 40, 4, 5000.5, 1]]))
    return bare(points, [0.5, 0.5], domain)


def test_sdnist_gets_the_columns_that_it_knows_with_n_for_a_missing_cell(excerpt, tmp_path):
    export_sdnist(excerpt, tmp_path / "new", name="rows", frame=excerpt.to_frame("resampled", rng=0))
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"rows.csv", "rows.json"}
    head, *lines = (tmp_path / "new" / "rows.csv").read_text().splitlines()
    assert head == "PUMA,AGEP,NPF,PINCP"
    assert sorted(lines) == ["25-00503,3,N,N", "25-00703,40,4,5000.5"]


def test_the_excerpt_of_sdnist_is_that_of_the_states(tmp_path):
    for codes, target in {
        ("25-00503", "25-00703"): "ma2019", ("48-02510",): "tx2019", ("01-01301", "25-00503"): "national2019",
    }.items():  # fmt: skip
        domain = Domain((Categorical(name="PUMA", levels=codes),))
        release = bare(domain.decode(np.arange(len(codes), dtype=float)[:, None]), np.full(len(codes), 1 / len(codes)), domain)
        labels = export_sdnist(release, tmp_path, name="rows", frame=release.to_frame("resampled"))
        assert labels["target dataset"] == target


def test_labels_for_sdnist_are_texts_with_the_guarantee_or_the_stamp_of_a_rehearsal(mixed_release, tmp_path):
    """The age of the mixed table, under the name that the excerpts have for it."""
    frame = mixed_release.to_frame("resampled", rng=0).rename(columns={"age": "AGEP"})
    labels = export_sdnist(mixed_release, tmp_path, name="rows", frame=frame)
    assert json.loads((tmp_path / "rows.json").read_text()) == labels
    assert all(isinstance(text, str) for text in labels.values())
    statement = mixed_release.statement
    assert (labels["epsilon"], labels["delta"]) == (f"{statement.epsilon:g}", f"{statement.delta:g}")
    assert labels["features list"] == "AGEP" and "target dataset" not in labels
    stamped = rehearsed(mixed_release)
    frame = stamped.to_frame("resampled", rng=0).rename(columns={"age": "AGEP"})
    labels = export_sdnist(stamped, tmp_path, name="stamped", frame=frame)
    assert labels["privacy category"] == "NOT PRIVATE: rehearsal" and "epsilon" not in labels
    assert (pd.read_csv(tmp_path / "stamped.csv")["NOT_PRIVATE"] == "rehearsal").all()


def test_a_release_of_another_table_has_no_report_of_sdnist(mixed_release, tmp_path):
    message = r"releases of NIST's Diverse Communities .*none of their columns \(PUMA, .*quality"
    with pytest.raises(ValueError, match=message):
        export_sdnist(mixed_release, tmp_path, name="rows", frame=mixed_release.to_frame("resampled"))
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_for_sdnist_and_names_its_command(excerpt, tmp_path):
    excerpt.write(tmp_path / "ma.kme")
    result = CliRunner().invoke(main, ["export", str(tmp_path / "ma.kme"), "--sdnist", str(tmp_path / "out"), "--rows", "4"])
    assert result.exit_code == 0, result.stderr
    out = tmp_path / "out"
    assert result.stdout == f"python -m sdnist.report {out / 'ma.csv'} MA --labels {out / 'ma.json'}\n"
    assert "leaves them out: own" in result.stderr
    assert len((out / "ma.csv").read_text().splitlines()) == 5
