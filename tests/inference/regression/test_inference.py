"""Predictions against statsmodels on plain rows; intervals that invert the score on a measured release."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
import statsmodels.api as sm
from regression_rows import ROWS, N
from scipy.special import ndtri

from kmeanalyst.inference.estimate.error_model import total
from kmeanalyst.inference.regression.intervals import ScoreInterval, ScoreProfiles, _last_below
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from release_side import publish

Y = (ROWS["answer"] == "yes").to_numpy(float)
X = np.column_stack([np.ones(N), ROWS["x"], ROWS["g"] == "b", ROWS["g"] == "c"]).astype(float)


@pytest.fixture(scope="module")
def usual():
    return sm.GLM(Y, X, family=sm.families.Binomial()).fit(tol=1e-14, cov_type="HC0")


def test_predictions_are_those_of_statsmodels_with_intervals_on_the_links_scale(plain, usual):
    asked = pd.DataFrame({"x": [-3.9, 0.5], "g": ["a", "c"], "extra": [1, 2]}, index=[7, 9])
    found = plain.glm("answer ~ x + g", "binomial").predict(asked, level=0.9)
    rows = np.array([[1, -3.9, 0, 0], [1, 0.5, 0, 1]])
    expected = usual.get_prediction(rows).summary_frame(alpha=0.1)
    for ours, theirs, rel in (
        ("value", "mean", 1e-6),
        ("standard_error", "mean_se", 1e-6),
        ("low", "mean_ci_lower", 1e-4),
        ("high", "mean_ci_upper", 1e-4),
    ):
        assert found[ours].to_numpy() == pytest.approx(expected[theirs].to_numpy(), rel=rel)
    assert list(found.index) == [7, 9] and found["privacy"].isna().all()


@pytest.fixture(scope="module")
def measured(mixed_release):
    return mixed_release.glm("married ~ age + city", "binomial")


def test_an_interval_holds_the_linear_one_and_all_values_whose_score_is_less_than_z_errors_away(measured):
    z, wider = float(ndtri(0.975)), []
    for j, one in enumerate(measured.coefficients):
        rule = one.interval_by
        assert isinstance(rule, ScoreInterval)
        for end, side in zip(rule.interval(z), (-1, 1), strict=True):
            u = (end - one.value) / rule.profiles.errors[j]
            assert side * u >= z - 1e-9
            assert side * rule.profiles.ratio_at(j, end - one.value) >= z - 1e-9
            wider.append(side * u > z + 1e-6)
    assert any(wider)


def test_an_interval_holds_zero_where_its_p_value_says_so(measured):
    p = measured.pvalues
    for one, name in zip(measured.coefficients, measured.names, strict=True):
        for level in (0.5, 0.8, 0.95):
            low, high = one.interval(level)
            assert (low <= 0 <= high) == (p[name] >= 1 - level - 1e-9)


def test_the_score_of_a_slope_is_fiellers(mixed_release):
    """S(b) = Σ w x̃ (y − b x) is linear in b, and its error that of x̃ (y − b x − residual mean): t by hand two errors away."""
    found = mixed_release.glm("age ~ income")
    profiles = found["income"].interval_by.profiles
    population = found.fit.population
    x, y = (population.values(name) for name in ("income", "age"))
    w = population.weights
    distance = 2 * float(profiles.errors[1])
    b = found["income"].value + distance
    m = len(w)
    a = (w @ y[:m] - b * (w @ x[:m])) / w.sum()
    residual = y - a - b * x
    slope = (w @ x[:m]) / w.sum()
    influence = (x - slope) * residual
    error = total(population.model.parts(influence[:, None]))[0]
    assert profiles.ratio_at(1, distance) == pytest.approx(-(w @ influence[:m]) / error, rel=1e-6)


def test_a_coefficient_a_difference_of_groups_and_their_parts_have_one_error(mixed_release):
    found = mixed_release.glm("income ~ I(age > 50)")
    name = found.fit.names[1]
    apart = mixed_release.mean("income", where="age > 50") - mixed_release.mean("income", where="not (age > 50)")
    assert apart.value == pytest.approx(found[name].value)
    assert apart.parts == pytest.approx(found[name].parts)
    assert np.sqrt(np.diag(found.fit.covariance["resolution"])) == pytest.approx(
        [one.parts["resolution"] for one in found.coefficients]
    )


def test_a_coefficient_held_elsewhere_keeps_its_value_and_the_others_solve_their_equations(plain):
    fit = plain.glm("answer ~ x + g", "binomial").fit
    for index, distance in ((0, 3.0), (1, -3.0)):
        beta = fit.held_at(index, fit.beta[index] + distance, fit.beta)
        assert beta[index] == fit.beta[index] + distance
        score = fit.equations.total(beta, fit.population.weights)
        assert np.delete(score, index) == pytest.approx(0, abs=1e-8) and abs(score[index]) > 0.01


def test_an_interval_ends_where_the_ratio_passes_z_for_the_last_time():
    for t, end in [
        ([0.0, 1.0, 2.0, 3.0, 4.5], 1.959964),
        ([0.0, 2.0, 1.0, 1.5, 3.0], 3.0 + 1.5 * (1.959964 - 1.5) / 1.5),  # the last time
        ([0.0, 1.0, 1.5, 1.6, 1.62], np.inf),
        ([0.0, 1.0, 1.2, 1.5, 1.8], 4.5 + 0.159964 / 0.2),
        ([0.0], np.inf),
    ]:
        assert _last_below(np.array([0.0, 1.0, 2.0, 3.0, 4.5][: len(t)]), np.array(t), 1.959964) == pytest.approx(end)


def test_profiles_are_not_made_of_a_coefficient_without_error(mixed_release):
    found = mixed_release.glm("I(2 * age) ~ age")
    profiles = found["age"].interval_by.profiles
    assert isinstance(profiles, ScoreProfiles) and profiles.is_exact(1)
    assert found["age"].interval() == pytest.approx((2.0, 2.0))


def test_what_cannot_be_predicted_says_why_and_what_to_do(plain):
    frame = pd.DataFrame({"x": [0.5], "g": ["b"]})
    names = {"r": plain, "fit": plain.glm("answer ~ x + g", "binomial"), "frame": frame}
    refusals.check(Path(__file__).parent / "refusals_predictions.txt", lambda text: eval(text, globals(), names))


def test_predictions_at_missing_cells_are_missing_and_far_away_have_intervals(plain):
    found = plain.glm("answer ~ x + g", "binomial")
    at = found.predict(pd.DataFrame({"x": [0.5, np.nan, 0.5, 1e6, -1e6], "g": ["b", "b", None, "b", "b"]}))
    assert at["value"].isna().tolist() == [False, True, True, False, False]
    assert (at["low"] <= at["value"]).iloc[[0, 3, 4]].all() and (at["value"] <= at["high"]).iloc[[0, 3, 4]].all()


def test_a_frequent_reference_gives_finite_intervals_as_the_note_says():
    races, rng = ("few", "some", "most"), np.random.default_rng(5)
    race = rng.permutation(np.repeat(races, (80, 720, 3200)))
    rich = np.where(rng.random(4000) < 0.2, "yes", "no")
    rows = pd.DataFrame({"race": race, "rich": rich, "age": rng.integers(18, 90, 4000)}).astype(str)
    columns = Categorical(name="race", levels=races), Categorical(name="rich", levels=("no", "yes"))
    domain = Domain((*columns, Integer(name="age", lower=18, upper=90)))
    measured = publish(rows, domain, epsilon=0.5, delta=1e-6, rehearsal=1, uncounted=True)
    found = measured.glm("rich ~ race + age", "binomial")
    assert np.isinf(found["race == 'most'"].interval()).any()
    other = measured.glm("rich ~ race + age", "binomial", reference={"race": "most"})
    assert np.isfinite([other[name].interval() for name in ("intercept", "race == 'some'", "age")]).all()
    for text in (found.summary(), " ".join(found.to_dict()["notes"])):
        assert "an interval is infinite where" in text and "name one that many rows have, such as reference=" in text
    finite = measured.glm("age ~ race")
    assert np.isfinite(finite.to_frame()[["low", "high"]]).all(axis=None) and "infinite" not in repr(finite)
