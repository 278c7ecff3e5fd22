"""Expectations: the value is the weighted sum, and each part of the error is what it says."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
from simulated_releases import weighted_points

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer


def test_the_value_is_the_weighted_sum_of_the_view(mixed_release, numeric_release):
    for view in ("fitted", "probability"):
        frame = mixed_release.to_frame(view)
        assert mixed_release.mean("age", view=view).value == pytest.approx(frame["weight"] @ frame["age"], abs=1e-12)
        condition = (frame["age"] > 50) & (frame["city"] == "Zürich")
        asked = mixed_release.probability("age > 50 and city == 'Zürich'", view=view)
        assert asked.value == pytest.approx(frame["weight"] @ condition, abs=1e-12)
    for view in ("signed", "probability", "fitted"):
        frame, answer = numeric_release.to_frame(view), numeric_release.mean("x", view=view)
        assert answer.value == pytest.approx(frame["weight"] @ frame["x"], abs=1e-12) and answer.view == view


def test_the_default_view_is_of_the_best_answers_unless_weights_are_given(numeric_release, mixed_release, foreign_release):
    assert numeric_release.mean("x").view == mixed_release.quantile("age", 0.5).view == "fitted"
    assert foreign_release.mean("age").view == "signed"
    given = mixed_release.replaced(weights=mixed_release.weights[::-1].copy())
    views = given.weight_view, given.mean("age").view, given.quantile("age", 0.5).view
    assert views == ("given", "probability", "probability")
    assert given.mean("age").value == pytest.approx(given.weights @ given.frame["age"])


def test_what_pandas_users_type_has_an_answer(mixed_release, foreign_release):
    """Sums and counts are N times expectations, given a condition those of the rows that meet it; other names are of others."""
    r, where = mixed_release, "city == '東京'"
    of_all, counted = r.expectation("age * (age > 30)"), r.count("age > 30", where=where)
    assert r.sum("age * (age > 30)").interval() == pytest.approx(np.multiply(2000, of_all.interval()), rel=1e-9)
    assert counted.value == pytest.approx(2000 * r.probability(f"age > 30 and {where}").value, rel=1e-9)
    assert counted.standard_error == pytest.approx(2000 * r.probability(f"age > 30 and {where}").standard_error, rel=0.02)
    assert r.sum("age", where=where).value == pytest.approx(2000 * r.expectation(f"age * ({where})").value, rel=1e-9)
    assert counted.question == f"count(age > 30) | {where}" and counted.possible == (0, 2000)
    assert r.mean("age * 2").value == pytest.approx(2 * r.mean("age").value) == r.mean("`age` + age").value
    assert foreign_release.mean("age", view="signed").question == "age"
    assert r.median("age").value == r.quantile("age", 0.5).value
    assert r.value_counts("city").equals(r.table("city"))
    assert r.crosstab("city", "married").equals(r.table("city", "married"))
    assert r._ipython_key_completions_() == list(r.columns) and "\n  'age': integer 17 to 90\n" in repr(r.columns)
    assert not hasattr(r, "head") and copy.deepcopy(r).mean("age").value == r.mean("age").value


def test_what_missing_cells_leave_open_is_said_with_its_share():
    """Of ten rows two have no age and one of them no sex; one more would be too few to be worth a note."""
    ages, sexes = [30, 50, 70, 90, *[40] * 4, None, None], ["F", "M"] * 4 + ["F", None]
    columns = (Integer(name="age", lower=0, upper=99, missing=True), Categorical(name="sex", levels=("F", "M"), missing=True))
    release = weighted_points(pd.DataFrame({"age": pd.array(ages, dtype="Int64"), "sex": sexes}), Domain(columns))

    def note(found):
        return [each for each in found.notes if "no comparison with a missing cell holds" in each]

    for asked in (release.probability("age > 50"), release.expectation("not age > 50"), (release["age"] > 50).probability()):
        assert note(asked) == [
            '20.0% of rows have no age, and no comparison with a missing cell holds: the condition "not missing(age)" leaves '
            "these rows out"
        ]
    assert "10.0% of rows have no age, sex," in note(release.probability("age > 50 and sex == 'M'"))[0]  # F is not M
    assert note(release.mean("age", where="age > 50")) == note(release.probability("age > 50"))
    shares = {"sex == 'F'": 1, "sex == 'M'": 1}
    for asked in (release.odds_ratio("age > 45", "sex == 'M'"), release.standardised("age > 45", population=shares)):
        assert note(asked)[0].startswith("20.0% of rows have no age")
    known = "not missing(age)"
    for found in (release.probability("age > 50", where=known), release.probability(f"age > 50 and {known}")):
        assert not note(found)
    assert not note(release.probability("missing(age)")) and not note(release.expectation("where(missing(age), 0, 1)"))
    rare = weighted_points(release.frame, Domain(columns), [0.12] * 8 + [0.004, 0.0])
    assert not note(rare.probability("age > 50")) and "age is 0 to 99" in rare.probability("age > 200").notes[0]


def test_a_function_of_a_frame_and_its_expression_agree(mixed_release):
    by_text = mixed_release.expectation("age ** 2")
    by_call = mixed_release.expectation(lambda frame: frame["age"] ** 2)
    assert by_call.value == pytest.approx(by_text.value, rel=1e-12)
    assert by_call.standard_error == pytest.approx(by_text.standard_error, rel=1e-9)


def test_the_privacy_part_is_what_the_noise_does_to_a_question_the_features_see(mixed_release):
    """h = Σ c_r φ_r(x) is seen exactly: its error from the noise is τ‖c‖ up to the ridge, and nothing is unseen."""
    measurement = mixed_release.measurement
    rng = np.random.default_rng(0)
    coefficients = rng.normal(size=measurement.feature_map.dimension)

    def seen(frame: pd.DataFrame) -> np.ndarray:
        return measurement.feature_map(mixed_release.domain.encode(frame)) @ coefficients

    parts = mixed_release.expectation(seen).parts
    assert 0 < parts["privacy"] <= measurement.noise_scale * np.linalg.norm(coefficients)
    less = measurement.noise_scale / 10
    quieter = mixed_release.replaced(
        measurement=replace(measurement, noise_scale=less), statement=replace(mixed_release.statement, noise_scale=less)
    )
    assert quieter.expectation(seen).parts["privacy"] < 0.5 * parts["privacy"]


def test_the_sampling_part_is_the_standard_error_of_a_mean_over_n_rows(mixed_release):
    """The spread of the age is that of the fitted population, which is near the released points."""
    frame = mixed_release.to_frame()
    centre = frame["weight"] @ frame["age"]
    expected = np.sqrt(frame["weight"] @ (frame["age"] - centre) ** 2 / 2000)
    assert mixed_release.mean("age").parts["sampling"] == pytest.approx(expected, rel=0.2)


def test_a_constant_has_no_error(mixed_release):
    estimate = mixed_release.expectation("1 + 0 * age")
    assert estimate.value == pytest.approx(1.0, abs=1e-9)
    assert estimate.standard_error == 0 and len(mixed_release.mean("where(age > 0, 1, 2)").notes) == 1


def test_questions_that_cannot_be_answered_say_why_and_what_to_do(mixed_release, foreign_release):
    path = Path(__file__).parent / "refusals_expectation.txt"
    refusals.check(path, lambda text: eval(text, globals(), {"r": mixed_release, "foreign": foreign_release}))


def test_what_the_features_cannot_see_is_not_explained_away_by_interpolation(mixed_release):
    """A coin tossed by the last digits of a number: 60 points could be fitted, and no smooth feature sees it.

    A density is taken to be smooth, so that its truth is near 0; the points' own mean of it is all error.
    """

    def coin(frame: pd.DataFrame) -> np.ndarray:
        return np.sign(np.sin(1e7 * frame["income"].to_numpy()))

    estimate = mixed_release.expectation(coin)
    assert estimate.parts["privacy"] < 0.3 * estimate.parts["resolution"]
    assert abs(estimate.value) < 3 * estimate.standard_error
    assert mixed_release.probability("married").parts["resolution"] < 0.35 * max(estimate.parts["resolution"], 0.1)
