"""Targets of several levels: multinomial logit and proportional odds against statsmodels, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
import statsmodels.api as sm
from regression_rows import DOMAIN, ROWS, N, released
from statsmodels.miscmodels.ordinal_model import OrderedModel

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical

FAMILIES = ("multinomial", "ordinal")
X = pd.DataFrame({"x": ROWS["x"], **{level: (ROWS["g"] == level).astype(float) for level in "bc"}})
CODES = ROWS["grade"].map({"low": 0, "middle": 1, "high": 2})


def test_multinomial_coefficients_and_effects_are_those_of_statsmodels(plain):
    x, k = sm.add_constant(X[["x"]]).assign(yes=(ROWS["answer"] == "yes").astype(float)).to_numpy(), 3
    usual = sm.MNLogit(CODES, x).fit(disp=0, tol=1e-12)
    found = plain.glm("grade ~ x + answer", "multinomial")
    assert [e.value for e in found.coefficients] == pytest.approx(np.asarray(usual.params).T.ravel().tolist(), rel=1e-6)
    assert found.names[:2] == ("middle: intercept", "middle: x") and "never" not in " ".join(found.names)
    residual = np.eye(3)[CODES] - usual.predict().reshape(-1, 3)
    psi = (residual[:, 1:, None] * x[:, None]).reshape(N, 2 * k)
    J = np.linalg.inv(-usual.model.hessian(np.asarray(usual.params)))
    errors = np.sqrt(np.diag(J @ psi.T @ psi @ J))
    assert [e.standard_error for e in found.coefficients] == pytest.approx(errors.tolist(), rel=1e-5)
    effects = usual.get_margeff(dummy=True).margeff  # (2, 3)
    assert [e.value for e in found.average_marginal_effects()] == pytest.approx(effects.ravel().tolist(), rel=1e-5)


def test_ordinal_coefficients_are_those_of_statsmodels(plain):
    grades = pd.Series(pd.Categorical.from_codes(CODES, ["low", "middle", "high"], ordered=True))
    model = OrderedModel(grades, X, distr="logit")
    usual = model.fit(disp=0, method="bfgs", gtol=1e-9)
    found = plain.glm("grade ~ x + g", "ordinal")
    thresholds = model.transform_threshold_params(usual.params.to_numpy())[1:-1]
    expected = [*thresholds, *usual.params.to_numpy()[:3]]
    assert [e.value for e in found.coefficients] == pytest.approx(expected, rel=1e-5)
    assert found.names == ("low|middle", "middle|high", "x", "g == 'b'", "g == 'c'")
    means = found.fit.equations.means(found.fit.beta, found.fit.equations.X)[0]
    assert means == pytest.approx(usual.predict(), abs=1e-6)


def test_predictions_of_all_outcomes_sum_to_one_and_effects_to_zero(plain):
    for family in FAMILIES:
        found = plain.glm("grade ~ x * g", family)
        assert sum(e.value for e in found.average_marginal_effects()[:3]) == pytest.approx(0, abs=1e-12)
        table = found.predict(ROWS.iloc[:4])
        assert list(table["outcome"].unique()) == ["low", "middle", "high"]
        assert table.groupby(level=0)["value"].sum().to_numpy() == pytest.approx(np.ones(4))
        ordered = (table["low"] > 0) & (table["low"] < table["value"]) & (table["value"] < table["high"])
        assert ordered.all()


def test_a_column_or_term_stands_for_all_its_coefficients_in_tests(plain):
    found = plain.glm("grade ~ x + g", "multinomial")
    assert found.wald_test(["x"]).terms == ("middle: x", "high: x") and found.wald_test(["x"]).df == 2
    assert found.score_test(["g"]).df == 4
    assert plain.glm("grade ~ x + g", "ordinal").wald_test(["g"]).terms == ("g == 'b'", "g == 'c'")


def test_whole_numbers_of_few_values_are_levels(plain):
    assert plain.glm("stars ~ x", "ordinal").names == ("1|2", "2|3", "3|4", "4|5", "x")


def test_a_level_that_never_occurs_given_the_condition_is_no_outcome(plain):
    found = plain.glm("grade ~ x", "ordinal", where="grade != 'middle'")
    assert found.names == ("low|high", "x")
    binomial = plain.glm("grade == 'high' ~ x", "binomial", where="grade != 'middle'")
    for name in ("value", "standard_error"):
        assert getattr(found["x"], name) == pytest.approx(getattr(binomial["x"], name))


def test_a_threshold_held_beyond_its_neighbours_moves_them_along(plain):
    """The second threshold is 1.7 above the first: with the first held 3 higher the others still have a root."""
    fit = plain.glm("grade ~ x + g", "ordinal").fit
    for index, distance in ((0, 3.0), (1, -3.0)):
        beta = fit.held_at(index, fit.beta[index] + distance, fit.beta)
        assert beta[index] == fit.beta[index] + distance and beta[0] < beta[1]
        score = fit.equations.total(beta, fit.population.weights)
        assert np.delete(score, index) == pytest.approx(0, abs=1e-8) and abs(score[index]) > 0.01


def test_the_target_of_a_multinomial_model_has_the_reference_that_is_named(plain):
    usual, other = (plain.glm("grade ~ x", "multinomial", reference=ref) for ref in (None, {"grade": "middle"}))
    assert other.names == ("low: intercept", "low: x", "high: intercept", "high: x")
    assert [one.notes for one in (usual, other)] == [
        (f"the levels of grade are compared with {level}",) for level in ("low", "middle")
    ]
    assert other["low: x"].value == pytest.approx(-usual["middle: x"].value)
    assert other["high: x"].value == pytest.approx(usual["high: x"].value - usual["middle: x"].value)
    assert other["low: x"].standard_error == pytest.approx(usual["middle: x"].standard_error)


def test_a_level_of_negative_share_is_left_out_and_a_note_says_so():
    rows = pd.concat([ROWS, ROWS.iloc[[0]].assign(grade="never")], ignore_index=True)
    found = released(np.append(np.full(N, 1 / N), -0.001), rows).glm("grade ~ x", "multinomial", view="signed")
    without = released().glm("grade ~ x", "multinomial", view="signed")
    assert found.names == without.names
    assert [one.value for one in found.coefficients] == pytest.approx([one.value for one in without.coefficients])
    assert "grade == 'never' is left out: its share is estimated as -0.001" in " ".join(found.notes)


def test_what_cannot_be_fitted_says_why_and_what_to_do(plain):
    refusals.check(Path(__file__).parent / "refusals_levels.txt", lambda text: eval(text, globals(), {"r": plain}))


def test_levels_without_an_order_are_said_to_be_taken_in_the_domains(plain):
    grade = Categorical(name="grade", levels=("low", "middle", "high"))
    same = released(domain=Domain(tuple(grade if column.name == "grade" else column for column in DOMAIN.columns)))
    note = "the levels of grade have no order in the domain, and are taken in the one that it lists them in: low < middle < high"
    assert any(note in each for each in same.glm("grade ~ x", "ordinal").notes)
    for release, asked in (
        (same, ("grade ~ x", "multinomial")),
        (same, ("answer ~ x", "ordinal")),
        (plain, ("grade ~ x", "ordinal")),
    ):
        assert not any("no order" in each for each in release.glm(*asked).notes)


def test_an_ordinal_target_that_a_condition_gives_is_refused_without_warnings(plain):
    with pytest.raises(ValueError, match=r"perfectly separated|no root under the"):
        plain.glm("grade ~ (grade == 'low')", "ordinal")
