"""The Release: what it shows of itself, its points in several forms, and what it refuses to be."""

from __future__ import annotations

import html
import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
from file_tools import bare

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.representation.weights.views import view_weights

RELEASES = ["levels_release", "foreign_release"]  # what was measured, and signed weights from elsewhere


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    return request.getfixturevalue(request.param)


def weighted(weights: Any, **changes: Any) -> Release:
    """A release of points 0, 1, 2, ... with these weights and no measurement."""
    usual = {"points": pd.DataFrame({"x": np.arange(len(weights))}), "domain": Domain((Integer(name="x", lower=0, upper=99),))}
    return bare(weights=weights, **usual | changes)


# ---------------------------------------------------------------------- summary


def test_a_release_shows_rows_guarantee_mechanism_noise_and_weights(mixed_release):
    shown = repr(mixed_release)
    statement, measurement = mixed_release.statement, mixed_release.measurement
    total = measurement.noise_scale * np.sqrt(200)
    for line in (
        r"table +2,000 private rows",
        rf"privacy +ε = 1, δ = 1e-06 \(neighbours: replace-one; ρ = {statement.rho:.3g}\)",
        rf"mechanism +discrete gaussian, sensitivity {statement.sensitivity:.3g}, analytic calibration",
        rf"noise +{statement.noise_scale:.3g} on each of 200 features \(total {total:.3g}, kernel scale 1\)",
        r"points +60 weighted rows × 10 columns \(random-features, probability weights\)",
        r"weights +Σw = 1, Σ\|w\| = 1, 0% negative",
        r"columns +10",
        r" age +integer 17 to 90",
        r" income +real 1\.0 to 1000000\.0 \(log scale\)",
        r' city +categorical Zürich, St\. Gallen, 東京, "quoted, text"',
        r" left +date 1950-01-01 to 2024-12-31, may be missing",
    ):
        assert re.search(f"^ +{line}$", shown, re.MULTILINE), line


def test_a_release_shows_what_it_is_and_claims_no_more(foreign_release, mixed_release):
    """Weights 2, −1, 0.5, −0.25: the sum is 1.25, the sum of absolutes 3.75, and half are negative."""
    assert "Σw = 1.25, Σ|w| = 3.75, 50% negative" in repr(weighted([2.0, -1.0, 0.5, -0.25]))
    release = mixed_release.replaced(statement=replace(mixed_release.statement, public_points=12))
    assert "2,000 private rows, 12 of the points given as public rows" in repr(release)
    shown = repr(foreign_release) + foreign_release._repr_html_()
    assert shown.count("none known: weighted points without a measurement") == 2
    assert not any(word in shown for word in ("ε", "δ", "mechanism", "private rows"))


def test_html_shows_what_the_text_shows(release):
    shown = html.unescape(release._repr_html_())
    for label, text in release.summary().items():
        assert f">{label}</th>" in shown and f">{text}</td>" in shown
    for column in release.domain.columns:
        assert f">{column.name}</th>" in shown and f">{column.describe()}</td>" in shown
    assert f"<summary>{len(release.domain)} columns</summary>" in shown


def test_html_escapes_names_and_levels():
    """A file from a stranger must not bring a script into a notebook."""
    evil = "<script>alert(\"1\")</script> & 'x' two spaces"
    domain = Domain((Categorical(name=evil, levels=("<img src=x onerror=alert(1)>", "b")),))
    release = weighted([1.0], points=pd.DataFrame({evil: ["b"]}), domain=domain, weight_view="<i>")
    shown = release._repr_html_()
    tags = set(re.findall(r"</?(\w+)", shown))
    assert tags == {"div", "strong", "table", "tr", "th", "td", "details", "summary"}
    assert "&lt;script&gt;" in shown and "&lt;img" in shown and "&quot;" in shown and "&lt;i&gt;" in shown
    assert f">{evil}</th>" in html.unescape(shown)  # whole
    assert evil in repr(release)


# ---------------------------------------------------------------------- the points, in several forms


def test_the_signed_view_is_what_was_released(release):
    frame = release.to_frame()
    assert list(frame) == [*release.domain.names, "weight"]
    assert frame["weight"].to_numpy().tobytes() == release.weights.tobytes()
    for rows in (frame, release.points):
        np.testing.assert_array_equal(release.domain.encode(rows), release.encoded_points)
    assert len(frame) == len(release)
    dataset = release.to_xarray()
    assert list(dataset) == [*release.domain.names, "weight"] and dataset["weight"].dims == ("point",)
    assert dataset["weight"].values.tolist() == release.weights.tolist()


def test_the_probability_view_has_the_same_points_with_probabilities(release):
    frame = release.to_frame("probability")
    pd.testing.assert_frame_equal(frame.drop(columns="weight"), release.to_frame().drop(columns="weight"))
    assert frame["weight"].min() >= 0
    assert frame["weight"].sum() == pytest.approx(1.0, abs=1e-9)
    if release.is_probability:
        assert frame["weight"].tolist() == release.weights.tolist()


def test_the_probability_view_is_the_nearest_one():
    """Points at large distances: the kernel is the identity, and the nearest probabilities are the Euclidean ones.

    Weights (0.5, 0.8, −1) project to (0.35, 0.65, 0).
    """
    domain, points = Domain((Integer(name="x", lower=0, upper=9999),)), pd.DataFrame({"x": [0, 1000, 2000]})
    release = weighted([0.5, 0.8, -1.0], domain=domain, points=points)
    np.testing.assert_allclose(view_weights(release, "probability"), [0.35, 0.65, 0.0], atol=1e-6)


def test_the_resampled_view_has_rows_of_equal_weight(release):
    frame = release.to_frame("resampled", rows=40, rng=0)
    assert len(frame) == 40
    assert frame["weight"].tolist() == [1 / 40] * 40
    pd.testing.assert_frame_equal(frame.drop(columns="weight"), release.resample(40, rng=0))
    assert len(release.to_frame("resampled", rng=0)) == len(release)


def test_a_point_is_drawn_np_times_rounded_down_or_up():
    """Systematic resampling: no count is off by one or more. Plain draws with replacement would be, nearly always."""
    for n in [1, 7, 60, 1000]:
        rng = np.random.default_rng(4)
        p = rng.dirichlet(np.full(50, 0.3))
        p[7] = 0.0
        release = weighted(p / p.sum())
        for seed in range(5):
            counts = np.bincount(release.resample(n, rng=seed)["x"], minlength=50)
            assert_systematic(counts, n * release.weights)
            assert counts[7] == 0
        if n == 1000:
            with pytest.raises(AssertionError):
                assert_systematic(rng.multinomial(n, release.weights), n * release.weights)
    for weights, whole in (([0.5, 0.0, 0.3, 0.2, 0.0], [5, 0, 3, 2, 0]), (np.full(7, 1 / 7), [1] * 7)):
        drawn = weighted(weights).resample(sum(whole), rng=1)["x"]
        assert np.bincount(drawn, minlength=len(whole)).tolist() == whole


def assert_systematic(counts: Array, expected: Array) -> None:
    assert (counts >= np.floor(expected - 1e-9)).all() and (counts <= np.ceil(expected + 1e-9)).all()


def test_resampled_rows_are_in_random_order_and_repeat_with_a_seed():
    release = weighted(np.full(50, 0.02))
    rows = release.resample(200, rng=1)["x"].tolist()
    assert rows != sorted(rows)
    assert rows == release.resample(200, rng=np.random.default_rng(1))["x"].tolist()
    assert rows != release.resample(200)["x"].tolist()


def test_the_dataset_has_natural_units_and_levels(mixed_release):
    points, frame = mixed_release.points, mixed_release.to_frame()
    assert list(points) == list(mixed_release.domain.names)
    assert points.sizes == {"point": 60}
    assert points["age"].values.dtype == np.int64 and points["married"].values.dtype == np.bool_
    assert points["age"].values.tolist() == frame["age"].tolist()
    assert points["city"].values.tolist() == frame["city"].astype(str).tolist()
    assert points["school"].values.tolist() == frame["school"].astype(object).fillna("").tolist()
    assert points["left"].values.dtype.kind == "M"
    for name in ("children", "capital.gain", "insured"):
        assert np.isnan(points[name].values).tolist() == frame[name].isna().tolist()
        assert np.isnan(points[name].values).any()  # a missing cell is among them
    assert np.isnat(points["left"].values).tolist() == frame["left"].isna().tolist()


def test_nothing_that_is_returned_or_was_passed_can_change_the_release(release):
    before = release.to_frame()
    for array in (release.weights, release.encoded_points, *(v.values for v in release.points.values())):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    points = release.points
    points["mine"] = ("point", np.zeros(len(release)))
    del points[release.domain.names[0]]
    assert list(release.points) == list(release.domain.names)
    frame = release.to_frame()
    frame.loc[:, "weight"] = 7.0
    frame[release.domain.names[0]] = frame[release.domain.names[0]].iloc[0]
    release.to_xarray()["weight"][:] = 7.0
    pd.testing.assert_frame_equal(release.to_frame(), before)
    weights, own = np.array([0.25, 0.75]), pd.DataFrame({"x": [3, 4]}, index=[9, 8])
    made = weighted(weights, points=own)
    weights[0], own.loc[9, "x"] = 7.0, 5
    assert made.to_frame().to_dict("list") == {"x": [3, 4], "weight": [0.25, 0.75]}
    assert made.to_frame().index.tolist() == [0, 1] and weights.flags.writeable


def test_the_embedding_has_the_weights_as_released(numeric_release):
    embedding = numeric_release.embedding
    at = numeric_release.encoded_points[:3]
    gram = numeric_release.kernel.gram(at, numeric_release.encoded_points)
    np.testing.assert_allclose(embedding.evaluate(at), gram @ numeric_release.weights, rtol=1e-12)


# ---------------------------------------------------------------------- weighted data from elsewhere


def foreign_frame() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return pd.DataFrame({"age": rng.integers(20, 60, 30), "city": rng.choice(["A", "B"], 30), "w": rng.normal(size=30)})


def test_signed_weights_from_elsewhere_are_kept_as_they_are():
    frame = foreign_frame()
    release = from_frame(frame, weight="w")
    assert release.weights.tolist() == frame["w"].tolist()
    assert (release.weights < 0).any() and release.weights.sum() != pytest.approx(1.0)
    assert (release.measurement, release.statement, release.fit_distance) == (None, None, None)
    assert (release.method, release.weight_view) == ("foreign", "given")
    assert release.to_frame()["age"].tolist() == frame["age"].tolist()
    assert release.to_frame()["city"].tolist() == frame["city"].tolist()


def test_the_drafted_domain_holds_the_frame_and_a_given_one_is_used():
    frame = foreign_frame()
    drafted = from_frame(frame, weight="w").domain
    assert drafted.names == ("age", "city")
    assert drafted["age"].lower <= frame["age"].min() and drafted["age"].upper >= frame["age"].max()
    domain = Domain((Integer(name="age", lower=0, upper=50), Categorical(name="city", levels=("B", "A"))))
    release = from_frame(frame, weight="w", domain=domain)
    assert release.domain == domain
    assert release.to_frame()["age"].tolist() == frame["age"].clip(upper=50).tolist()


def test_weighted_data_may_be_text_and_a_kernel_a_value_or_its_text():
    frame = foreign_frame()
    read = from_frame(frame.astype(str), weight="w")  # as a CSV reader returns it
    assert read.weights.tolist() == frame["w"].tolist() and read.to_frame()["age"].tolist() == frame["age"].tolist()
    numbers = frame.drop(columns="city")
    by_text, by_value = (from_frame(numbers, weight="w", kernel=k).kernel for k in ("gaussian:lengthscale=2.5", Gaussian(2.5)))
    assert by_text == by_value == Gaussian(2.5) != from_frame(numbers.rename(columns={"w": "weight"})).kernel


# ---------------------------------------------------------------------- refusals


def test_help_and_completion_show_every_option_of_functions_that_take_them_together():
    last = {ka.fit: "rng", ka.score: "recode", release_side.publish_function: "progress", Release: "thinning_error"}
    for function, name in last.items():
        assert list(inspect.signature(function).parameters)[-1] == name  # and no **options


TWO = Domain((Real(name="x", lower=0, upper=1), Real(name="y", lower=0, upper=1)))


def test_impossible_fields_and_questions_are_refused_with_the_fix(mixed_release):
    path = Path(__file__).parent / "refusals_release.txt"
    refusals.check(path, lambda text: eval(text, globals(), {"mixed": mixed_release}))
