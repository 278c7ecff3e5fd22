"""Derived columns: names for expressions, whose answers are those of the expressions, and which travel in files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
from click.testing import CliRunner
from file_tools import SCHEMA_TEST, bare, members_of, same

import kmeanalyst as ka
from kmeanalyst.cli.main import main
from kmeanalyst.inference.compare.independence import independence_test
from kmeanalyst.kernels import Gaussian
from kmeanalyst.release import Release, from_frame, read_release
from kmeanalyst.releases.derived import Derived, named_expressions
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.expressions import parse
from kmeanalyst.releases.file import validate_release, write_release

NEW = {
    "per head": "income / (age - 10)", "older": "age > 40 and city in ['Zürich', 'St. Gallen']", "kids": "2 * children + 1",
    "share": "log(`per head`) - where(missing(kids), 0, kids)", "since": "year(joined) - 1900",
}  # fmt: skip


@pytest.fixture(scope="module")
def transformed(mixed_release: Release) -> Release:
    return mixed_release.transform(NEW)


# ---------------------------------------------------------------- what a derived column is


def test_a_derived_cell_is_its_expression_by_hand():
    frame = pd.DataFrame({"mass": [50.0, 80.0], "height": [1.0, 2.0], "weight": [0.5, 0.5]})
    made = from_frame(frame, kernel=Gaussian(1.0)).transform({"bmi": "mass / height**2", "heavy": "bmi > 25"})
    assert made.to_frame()["bmi"].tolist() == [50.0, 20.0]
    assert made.to_frame()["heavy"].tolist() == [True, False]
    assert made.mean("bmi").value == 35.0
    assert made.points["bmi"].attrs == {"expression": "mass / height**2"}
    assert list(made.points) == ["mass", "height", "bmi", "heavy"]


@pytest.mark.parametrize(
    ("question", "same_question"),
    [
        ("`per head`", "income / (age - 10)"),
        ("older", "age > 40 and city in ['Zürich', 'St. Gallen']"),
        ("since ** 2", "(year(joined) - 1900) ** 2"),
        ("where(missing(kids), -1, kids)", "where(missing(children), -1, 2 * children + 1)"),
        ("`per head` > 100 and not older", "income / (age - 10) > 100 and not (age > 40 and city in ['Zürich', 'St. Gallen'])"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_a_question_about_derived_columns_is_one_about_their_expressions(mixed_release, transformed, question, same_question):
    found, wanted = transformed.expectation(question), mixed_release.expectation(same_question)
    assert found.value == wanted.value
    assert found.parts == wanted.parts and found.standard_error > 0
    np.testing.assert_array_equal(found.terms[0][1], wanted.terms[0][1])
    assert found.interval(kind="robust") == wanted.interval(kind="robust")


def test_the_rows_of_the_population_are_derived_too_and_not_clamped(mixed_release, transformed):
    """The error needs values at rows that are no released points; bounds may be those of the points alone."""
    frame = transformed.expectation("older").terms[0][0].frame
    assert len(frame) > len(transformed)
    np.testing.assert_array_equal(frame["per head"], frame["income"] / (frame["age"] - 10))


def test_columns_given_by_conditions_tables_quantiles_and_models_know_derived_columns(mixed_release, transformed):
    assert transformed.quantile("since", 0.5).value == mixed_release.quantile("year(joined) - 1900", 0.5).value
    assert transformed.groupby("older").mean("age").loc["True", "value"] == pytest.approx(
        mixed_release.mean("age", where=NEW["older"]).value
    )
    assert transformed.histogram("per head")["probability"].sum() == pytest.approx(1.0)
    fitted = transformed.glm("since ~ older + age")
    assert fitted.names == ("intercept", "older == 'True'", "age")
    assert "since" in transformed.cov().names
    assert "per head" in transformed.resample(10, rng=0).columns


def test_kind_and_bounds_follow_from_the_public_domain(mixed_release):
    for text, kind, low, high in [
        ("2 * age - 10", "integer", 24, 170),
        ("age / 10", "real", 1.7, 9.0),
        ("abs(age - 50)", "integer", 0, 40),
        ("(age - 50) ** 2", "integer", 0, 1600),
        ("sqrt(age)", "real", 17**0.5, 90**0.5),
        ("age % 7", "integer", 0, 7),
        ("month(joined) + (age > 30)", "integer", 1, 13),
        ("round(age / 10)", "integer", 2, 9),
        ("min(age, 40)", "integer", 17, 40),
        ("where(age > 50, 1, 0.5)", "real", 0.5, 1),
        ("7", "integer", 7, 8),
    ]:
        column = mixed_release.transform({"new": text}).columns["new"]
        assert (column.kind, column.missing) == (kind, False)
        assert column.lower == pytest.approx(low, rel=1e-12) and column.upper == pytest.approx(high, rel=1e-12)
        drawn = mixed_release.domain.decode(mixed_release.domain.draw(2000, 0))
        values = parse(text).evaluate(drawn, mixed_release.domain)
        assert column.lower <= values.min() and values.max() <= column.upper


def test_interval_arithmetic_holds_every_value_of_the_domain(mixed_domain):
    for text in [
        "1 / (age - 16.5)",
        "age ** (children - 3)",
        "log(age - 16.999)",
        "-age % 13",
        "exp(-age)",
        "floor(-age / 7)",
        "max(age, 3 * children)",
        "(age - 40) ** 3",
        "log1p(age) * (children - 5)",
        "where(children > 2, age, -age)",
    ]:
        extent = parse(text).extent(mixed_domain)
        frame = mixed_domain.decode(mixed_domain.draw(20_000, 1))
        values = parse(text).evaluate(frame, mixed_domain)
        values = values[~np.isnan(values)]
        assert extent.bounded
        assert extent.low <= values.min() and values.max() <= extent.high
        assert not extent.whole or (values == np.rint(values)).all()


def test_what_may_be_infinite_or_undefined_has_no_extent(mixed_domain):
    for text in ["1 / (age - 20)", "log(age - 17)", "(age - 20) ** 0.5", "age % (age - 30)", "sqrt(age - 18)"]:
        assert parse(text).check(mixed_domain) == "number"
        assert not parse(text).extent(mixed_domain).bounded


def test_where_the_domain_bounds_nothing_the_released_values_do():
    """mass / height² lies in [0, 30 000] by the domain, in [20, 30] at the points: a tenth of that range on either side."""
    domain = Domain((Real(name="mass", lower=0, upper=300), Real(name="height", lower=0.1, upper=3)))
    release = bare(pd.DataFrame({"mass": [80.0, 120.0], "height": [2.0, 2.0]}), [0.5, 0.5], domain)
    new = {"bmi": "mass / height**2", "unbounded": "mass / (height - 1)", "product": "mass * height"}
    made = release.transform(new)
    bounds = {name: (made.columns[name].lower, made.columns[name].upper) for name in new}
    assert bounds == {"bmi": (19.0, 31.0), "unbounded": (76.0, 124.0), "product": (0.0, 900.0)}
    domain = Domain((Real(name="x", lower=0, upper=1, missing=True),))
    nowhere = bare(pd.DataFrame({"x": [np.nan, np.nan]}), [0.5, 0.5], domain).transform({"y": "1 / x"})
    assert nowhere.to_frame()["y"].isna().all() and nowhere.columns["y"].missing


def test_a_missing_cell_makes_a_missing_cell_unless_the_expression_says_otherwise(mixed_release, transformed):
    kids, children = transformed.to_frame()["kids"], mixed_release.to_frame()["children"]
    assert (kids.isna() == children.isna()).all() and kids.isna().any()
    assert str(kids.dtype) == "Int64" and transformed.columns["kids"].missing
    filled = mixed_release.transform(
        {"n": "where(missing(children), 0, children)", "m": "where(not missing(children), children, 0)"}
    )
    assert not filled.columns["n"].missing and not filled.columns["m"].missing
    assert filled.to_frame()["n"].tolist() == children.fillna(0).tolist() == filled.to_frame()["m"].tolist()
    assert transformed.columns["older"] == Boolean(name="older")


def test_a_transform_of_a_transform_is_one_of_both(mixed_release, transformed):
    names = list(NEW)
    twice = mixed_release.transform({n: NEW[n] for n in names[:3]}).transform({n: NEW[n] for n in names[3:]})
    same(twice, transformed)
    assert twice.derived == transformed.derived
    assert [one.uses for one in twice.derived][3] == ("per head", "kids")


# ---------------------------------------------------------------- what stays as it was


def test_measurement_statement_and_kernel_are_unchanged_and_thinning_keeps_derived_columns(mixed_release, transformed):
    assert transformed.statement is mixed_release.statement
    assert transformed.measurement is mixed_release.measurement
    assert transformed.domain == mixed_release.domain
    np.testing.assert_array_equal(transformed.encoded_points, mixed_release.encoded_points)
    assert "computed from the other columns (post-processing: the guarantee is unchanged)" in repr(transformed)
    assert "= income / (age - 10)" in repr(transformed) and "derived" not in repr(mixed_release)
    small = transformed.thin(20)
    assert small.derived == transformed.derived and len(small) == 20
    frame = small.to_frame()
    np.testing.assert_array_equal(frame["per head"], frame["income"] / (frame["age"] - 10))


def test_tests_look_at_the_measured_columns_and_say_so(mixed_release, transformed, mixed_domain):
    sample = mixed_domain.decode(mixed_domain.draw(80, 4)).assign(older=True, other=1)
    found, wanted = ka.mmd_test(transformed, sample), ka.mmd_test(mixed_release, sample.drop(columns="older"))
    assert (found.statistic, found.pvalue, found.mmd_squared) == (wanted.statistic, wanted.pvalue, wanted.mmd_squared)
    assert ka.mmd(transformed, mixed_release) == pytest.approx(0.0, abs=1e-7)
    text = "derived columns were left out, as they follow from the measured ones: per head, older, kids, share, since"
    assert text in found.notes and text not in wanted.notes
    assert 'ignored columns the release does not have: "other"' in found.notes
    assert text in ka.compare(transformed, sample).notes
    assert text in independence_test(transformed, "age", "city").notes


# ---------------------------------------------------------------- what is refused


def test_what_cannot_be_a_column_says_why_and_what_to_do(mixed_release, numeric_release):
    def with_column(column) -> Release:
        return numeric_release.replaced(derived=[Derived(column=column, expression="round(x) + 5")])

    assert with_column(Integer(name="n", lower=1, upper=9)).columns["n"].upper == 9
    names = globals() | {"mixed": mixed_release, "with_column": with_column}
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, names))


# ---------------------------------------------------------------- files and the command line


def test_a_transformed_release_read_back_is_the_one_written(mixed_release, transformed, tmp_path):
    write_release(transformed, tmp_path / "a.kme")
    again = read_release(tmp_path / "a.kme")
    same(transformed, again)
    assert again.derived == transformed.derived
    assert validate_release(tmp_path / "a.kme") == []
    write_release(again, tmp_path / "b.kme")
    assert (tmp_path / "a.kme").read_bytes() == (tmp_path / "b.kme").read_bytes()
    header = json.loads(members_of(tmp_path / "a.kme")["release.json"])
    SCHEMA_TEST.validate(header)
    assert header["schema_minor"] == 1
    assert header["derived"][1]["expression"] == NEW["older"] and header["derived"][1]["uses"] == ["age", "city"]
    write_release(mixed_release, tmp_path / "plain.kme")
    plain = json.loads(members_of(tmp_path / "plain.kme")["release.json"])
    assert plain["schema_minor"] == 0 and "derived" not in plain


def test_expressions_with_and_without_names():
    texts = [
        " bmi=mass / height**2", "`a = b` = x", "hours-per-day = `hours-per-week` / 7", "x == 3", "x <= 3",
        "city in ['a=b']", "city == 'a = b'",
    ]  # fmt: skip
    assert named_expressions(texts) == {
        "bmi": "mass / height**2", "a = b": "x", "hours-per-day": "`hours-per-week` / 7", "x_is_3": "x == 3",
        "x_at_most_3": "x <= 3", "city_in_a_b": "city in ['a=b']", "city_is_a_b": "city == 'a = b'",
    }  # fmt: skip


@pytest.fixture
def path(numeric_release: Release, tmp_path) -> str:
    write_release(numeric_release, tmp_path / "in.kme")
    return str(tmp_path / "in.kme")


def run(*arguments: str):
    return CliRunner().invoke(main, ["transform", *arguments])


def test_the_command_writes_what_the_method_gives(numeric_release, path, tmp_path):
    out = str(tmp_path / "out.kme")
    done = run(path, "r = sqrt(x**2 + y**2)", "far=r > 2", "x * y", "--output", out, "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert [one["column"]["name"] for one in printed["derived"]] == ["r", "far", "x_times_y"]
    assert (printed["output"], printed["epsilon"], printed["n_points"]) == (out, 1.0, len(numeric_release))
    assert "the privacy guarantee is unchanged (post-processing)" in done.stderr
    same(read_release(out), numeric_release.transform({"r": "sqrt(x**2 + y**2)", "far": "r > 2", "x_times_y": "x * y"}))
    asked = CliRunner().invoke(main, ["info", out, "--json"])
    assert json.loads(asked.stdout)["derived"] == printed["derived"]
    asked = CliRunner().invoke(main, ["expect", out, "r", "--json"])
    assert json.loads(asked.stdout)["estimates"][0]["value"] == numeric_release.expectation("sqrt(x**2 + y**2)").value
    again = run(out, "small = log(r + 1)", "--output", str(tmp_path / "twice.kme"))
    assert again.exit_code == 0 and again.stdout == ""
    names = [one.column.name for one in read_release(tmp_path / "twice.kme").derived]
    assert names == ["r", "far", "x_times_y", "small"]


def test_a_hundred_columns_are_added_to_the_frame_at_once(mixed_release):
    """Adding them one by one would fragment the frame, of which pandas warns, and copy all of it each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = mixed_release.transform({f"d{i}": f"d{i - 1} + 0.5" if i else "age" for i in range(100)})
        frame = release.to_frame()
        decoded = release.decode(release.encoded_points)
    assert (frame["d99"] == frame["age"] + 49.5).all()
    assert (decoded["d99"] == frame["d99"]).all()


def test_powers_beyond_exact_whole_numbers_allow_for_the_rounding_of_other_machines(mixed_domain):
    """17 to 90: 90³ is exact everywhere, 90²⁰ is as this machine's pow rounds it, and a file is read on others."""
    extent = parse("age ** 20").extent(mixed_domain)
    assert extent.low < 17.0**20 and extent.high > 90.0**20 and extent.whole
    assert extent.high == pytest.approx(90.0**20, rel=1e-14)
    exact = parse("age ** 3").extent(mixed_domain)
    assert (exact.low, exact.high, exact.whole) == (17.0**3, 90.0**3, True)


@pytest.mark.parametrize(("levels", "missing"), [(("1", "2.0", "-7"), False), (("1", "2", "other"), True)])
def test_a_column_of_numbers_that_levels_are_written_as_has_their_bounds(levels, missing, tmp_path):
    cells = pd.DataFrame({"code": [levels[i % 3] for i in range(9)], "weight": 1 / 9})
    release = from_frame(cells, domain=Domain((Categorical(name="code", levels=levels),)))
    column = release.transform({"x": "number(code)", "y": "where(missing(x), 0, x)"}).columns["x"]
    low = -7 if "-7" in levels else 1
    assert (column.kind, column.lower, column.upper, column.missing) == ("integer", low, 2, missing)
    known = parse("where(code == 'other', 0, number(code))").extent(release.columns) if missing else None
    assert known is None or (known.low, known.high) == (0, 2)
    if missing:
        with pytest.raises(ValueError, match=r'Exclude them with where, such as "number\(code\) == number\(code\)"'):
            release.expectation("number(code)")
        assert release.expectation("number(code)", where="number(code) == number(code)").value == pytest.approx(1.5)
    write_release(release.transform({"x": "number(code)"}), tmp_path / "numbers.kme")
    assert read_release(tmp_path / "numbers.kme").to_frame()["x"].isna().sum() == 3 * missing
