"""Exports: what other programs read is what the release holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray

from kmeanalyst.kernels import Gaussian
from kmeanalyst.releases.atomic import written_whole
from kmeanalyst.releases.columns import Integer, Real
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.export import export, write_netcdf
from kmeanalyst.releases.release import Release


def opened(path: Path) -> xarray.Dataset:
    with xarray.open_dataset(path, engine="scipy") as dataset:
        return dataset.load()


def test_csv_has_the_cells_and_weights_to_the_last_digit(mixed_release, tmp_path):
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
    encoded = mixed_release.domain.encode(text)  # the domain reads its own export
    np.testing.assert_array_equal(encoded, mixed_release.encoded_points)


def test_parquet_has_the_frame(mixed_release, tmp_path):
    export(mixed_release, tmp_path / "a.PARQUET")
    back = pd.read_parquet(tmp_path / "a.PARQUET")
    np.testing.assert_array_equal(mixed_release.domain.encode(back), mixed_release.encoded_points)
    assert back["weight"].tolist() == mixed_release.weights.tolist()


def test_netcdf_has_points_and_weights_as_netcdf_can_hold_them(mixed_release, tmp_path):
    write_netcdf(mixed_release, tmp_path / "a.nc")
    assert (tmp_path / "a.nc").read_bytes()[:3] == b"CDF"
    dataset, frame = opened(tmp_path / "a.nc"), mixed_release.to_frame()
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


def test_to_netcdf_and_export_write_the_same_bytes(numeric_release, tmp_path):
    numeric_release.to_netcdf(tmp_path / "a.nc")
    export(numeric_release, tmp_path / "b.nc")
    assert (tmp_path / "a.nc").read_bytes() == (tmp_path / "b.nc").read_bytes()


def test_whole_numbers_beyond_32_bits_become_floats_and_odd_names_are_mended(tmp_path):
    domain = Domain(
        (
            Integer(name="n", lower=-(2**40), upper=2**40),
            Real(name="a/b", lower=0, upper=1),
            Real(name="a_b", lower=0, upper=1),
            Real(name="1st", lower=0, upper=1),
            Real(name="point", lower=0, upper=1),
            Real(name="größe", lower=0, upper=1),
        )
    )
    points = domain.decode(domain.draw(5, 0))
    release = Release(
        points=points, weights=np.full(5, 0.2), measurement=None, kernel=Gaussian(1.0), domain=domain, statement=None
    )
    write_netcdf(release, tmp_path / "a.nc")
    dataset = opened(tmp_path / "a.nc")
    names = {dataset[name].attrs["long_name"]: name for name in dataset.variables}
    assert names == {
        "n": "n", "a/b": "a_b", "a_b": "a_b_", "1st": "_1st", "point": "point_", "größe": "gr__e", "weight": "weight",
    }  # fmt: skip
    assert dataset["n"].dtype == np.float64
    for column, name in names.items():
        assert dataset[name].values.tolist() == release.to_frame()[column].tolist()


def read_exactly(path):
    """Numbers as Python reads them: older pandas rounds in the last place."""
    return pd.read_csv(path, dtype=str).astype(float)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".nc"])
def test_a_resampled_view_has_rows_of_equal_weight(ending, numeric_release, tmp_path):
    export(numeric_release, tmp_path / f"a{ending}", view="resampled", rows=17, rng=3)
    reader = {".csv": read_exactly, ".parquet": pd.read_parquet, ".nc": lambda path: opened(path).to_dataframe()}[
        ending
    ]
    back = reader(tmp_path / f"a{ending}")
    expected = numeric_release.to_frame("resampled", rows=17, rng=3)
    np.testing.assert_array_equal(back.to_numpy(), expected.to_numpy())


def test_the_probability_view_is_exported_as_such(numeric_release, tmp_path):
    assert numeric_release.weights.min() < 0
    export(numeric_release, tmp_path / "a.csv", view="probability")
    weights = pd.read_csv(tmp_path / "a.csv")["weight"]
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)


def test_an_unknown_ending_says_which_are_known(numeric_release, tmp_path):
    with pytest.raises(ValueError, match=r"to .*a\.xlsx: the ending .* \.csv, \.parquet, \.nc are known\. Name"):
        export(numeric_release, tmp_path / "a.xlsx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".nc"])
def test_an_export_appears_whole_or_not_at_all(ending, numeric_release, tmp_path, monkeypatch):
    path = tmp_path / f"a{ending}"
    path.write_bytes(b"older")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
        export(numeric_release, path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"older"


def test_a_reader_never_sees_half_a_file(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(KeyboardInterrupt), written_whole(path) as temporary:
        temporary.write_text("half")
        assert temporary.parent == tmp_path
        assert not path.exists()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with written_whole(path) as temporary:
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert path.stat().st_mode & 0o777 == _ordinary_mode(tmp_path)


def _ordinary_mode(folder: Path) -> int:
    other = folder / "other"
    other.write_text("")
    return other.stat().st_mode & 0o777
