"""Generalised linear models: against statsmodels on plain rows, influences by changed weights, and what has no answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
import statsmodels.api as sm
from regression_rows import ROWS, N, released
from statsmodels.stats.sandwich_covariance import cov_white_simple

LINKS = [
    ("gaussian", "identity", "cost"), ("binomial", "logit", "answer"), ("binomial", "probit", "answer"),
    ("binomial", "cloglog", "answer"), ("poisson", "log", "visits"), ("gamma", "inverse", "cost"), ("gamma", "log", "cost"),
    ("gaussian", "log", "cost"), ("poisson", "identity", "visits"),
]  # fmt: skip
OF_STATSMODELS = {
    "gaussian": sm.families.Gaussian, "binomial": sm.families.Binomial, "poisson": sm.families.Poisson, "gamma": sm.families.Gamma,
    "identity": sm.families.links.Identity, "log": sm.families.links.Log, "inverse": sm.families.links.InversePower,
    "logit": sm.families.links.Logit, "probit": sm.families.links.Probit, "cloglog": sm.families.links.CLogLog,
}  # fmt: skip


def design_of(rows: pd.DataFrame) -> np.ndarray:
    b, c = (rows["g"] == "b").to_numpy(float), (rows["g"] == "c").to_numpy(float)
    return np.column_stack([np.ones(len(rows)), rows["x"], b, c, rows["z"], rows["x"] * b, rows["x"] * c])


@pytest.mark.filterwarnings("ignore:The .* link function does not respect")
def test_coefficients_are_those_of_statsmodels(plain):
    for family, link, target in LINKS:
        y = (ROWS[target] == "yes") if target == "answer" else ROWS[target]
        right = "x * g + z" if link != "identity" or family == "gaussian" else "z"  # whose means are positive
        X = design_of(ROWS) if "x" in right else np.column_stack([np.ones(N), ROWS["z"]])
        model = sm.GLM(y.to_numpy(float), X, family=OF_STATSMODELS[family](link=OF_STATSMODELS[link]()))
        usual = model.fit(tol=1e-14, maxiter=200)
        found = plain.glm(f"{target} ~ {right}", family, link=link)
        assert [one.value for one in found.coefficients] == pytest.approx(usual.params.tolist(), rel=1e-6)
        assert found.names[:2] == (("intercept", "x") if "x" in right else ("intercept", "z"))
        J = -model.hessian(usual.params, observed=True)
        scores = model.score_obs(usual.params)
        sandwich = np.linalg.inv(J) @ (scores.T @ scores) @ np.linalg.inv(J)
        errors = [one.standard_error for one in found.coefficients]
        assert errors == pytest.approx(np.sqrt(np.diag(sandwich)).tolist(), rel=1e-5)


def test_standard_errors_are_hc0(plain):
    usual = sm.OLS(ROWS["cost"], design_of(ROWS)).fit()
    found = plain.glm("cost ~ x * g + z")
    hc0, robust = cov_white_simple(usual, use_correction=False), usual.get_robustcov_results("HC0", use_t=False)
    errors = [one.standard_error for one in found.coefficients]
    assert errors == pytest.approx(np.sqrt(np.diag(hc0)).tolist(), rel=1e-6)
    assert found.pvalues.tolist() == pytest.approx(robust.pvalues.tolist(), rel=1e-5)
    assert found["z"].interval(0.9) == pytest.approx(tuple(robust.conf_int(0.1)[4]), rel=1e-6)


def test_names_that_are_not_identifiers_need_backticks_in_formulas_alone(mixed_release):
    explained = mixed_release.glm("age ~ `capital.gain`", where="not missing(`capital.gain`)")
    assert explained.names == ("intercept", "`capital.gain`") == tuple(explained)
    assert explained["capital.gain"] is explained["`capital.gain`"]
    with pytest.raises(KeyError, match=r"no coefficient 'gain': there are intercept, `capital\.gain`\. Name one"):
        explained["gain"]


def test_levels_are_coded_as_r_codes_them(plain):
    assert plain.glm("cost ~ 0 + g + answer").names == ("g == 'a'", "g == 'b'", "g == 'c'", "answer == 'yes'")
    assert plain.glm("cost ~ x:g").names == ("intercept", "x:g == 'a'", "x:g == 'b'", "x:g == 'c'")
    assert plain.glm("cost ~ x + x:g").names == ("intercept", "x", "x:g == 'b'", "x:g == 'c'")
    assert plain.glm("cost ~ answer * g").names[-2:] == ("answer == 'yes':g == 'b'", "answer == 'yes':g == 'c'")
    assert plain.glm("cost ~ 1").names == ("intercept",)


def test_levels_are_compared_with_the_reference_that_is_named(plain):
    usual, found = plain.glm("cost ~ x + g"), plain.glm("cost ~ x + g", reference={"g": "b"})
    assert found.names == ("intercept", "x", "g == 'a'", "g == 'c'")
    assert found["g == 'a'"].value == pytest.approx(-usual["g == 'b'"].value)
    assert found["g == 'c'"].value == pytest.approx(usual["g == 'c'"].value - usual["g == 'b'"].value)
    assert found["x"].standard_error == pytest.approx(usual["x"].standard_error)


def test_a_target_of_two_levels_a_boolean_and_a_condition_are_binomial(plain):
    named = plain.glm("answer ~ x", "binomial")
    assert named.notes == ("success is answer == 'yes'",) and "note: success is" in repr(named)
    assert named["x"].value == plain.glm("answer == 'yes' ~ x", "binomial")["x"].value
    assert named["x"].value == pytest.approx(-plain.glm("answer == 'no' ~ x", "binomial")["x"].value)
    assert plain.glm("paid ~ x", "binomial")["x"].value == plain.glm("paid == true ~ x", "binomial")["x"].value
    one_of_three = plain.glm("(g == 'a') ~ x", "binomial")  # as the refusal of a target of three levels says
    assert one_of_three["x"].value == plain.glm("g == 'a' ~ x", "binomial")["x"].value


def test_a_condition_fits_the_rows_that_meet_it(plain):
    some = ROWS[ROWS["g"] != "a"].reset_index(drop=True)
    for formula, family in (("cost ~ x + g", "gamma"), ("answer ~ x + g", "binomial"), ("visits ~ x", "poisson")):
        given = plain.glm(formula, family, where="g != 'a'")
        alone = released(rows=some).glm(formula, family)
        assert [e.value for e in given.coefficients] == pytest.approx([e.value for e in alone.coefficients])
    assert given.target == "visits" and "g != 'a'" in given["x"].question


def test_influences_of_coefficients_are_the_derivatives_by_each_rows_weight():
    linear = [(f"{target} ~ z" + " + x" * (link != "identity"), *of, link) for *of, link, target in LINKS]
    factors = [
        ("answer ~ x * g", "binomial", None), ("answer ~ x + g", "binomial", "probit"), ("cost ~ x + g", "gamma", "log"),
    ]  # fmt: skip
    rows, step, weights = ROWS.groupby("g").head(27).reset_index(drop=True), 1e-6, np.full(81, 1 / 70)
    for formula, family, link in [*linear, *factors]:

        def asked(weights, formula=formula, family=family, link=link):
            return released(weights, rows).glm(formula, family, link=link, view="signed").coefficients[1:]

        here = asked(weights)
        for m in (0, 17, 33):
            up, down = (asked(weights + sign * step * np.eye(81)[m]) for sign in (1, -1))
            for one, above, below in zip(here, up, down, strict=True):
                slope = (above.value - below.value) / (2 * step)
                assert one.terms[0][1][m] == pytest.approx(slope, rel=1e-4, abs=1e-6), (one.question, family)


def test_weights_without_a_root_fall_back_on_the_probability_view_and_say_so():
    weights = np.full(N, 1.0)
    some = np.flatnonzero((ROWS["g"] == "c") & (ROWS["answer"] == "yes"))
    weights[some[::2]] = -1.1  # the rate of c is negative: no logit is
    found = released(weights / weights.sum()).glm("answer ~ g", "binomial", view="signed")
    assert found.view == "probability" and any("the signed weights" in note for note in found.notes)
    few = np.where(np.arange(N) % 40 == 0, -0.2, 1.0)  # some negative weights are no obstacle
    assert released(few / few.sum()).glm("answer ~ g + x", "binomial", view="signed").view == "signed"


def test_what_cannot_be_fitted_says_why_and_what_to_do(plain):
    refusals.check(Path(__file__).parent / "refusals_glm.txt", lambda text: eval(text, globals(), {"r": plain}))


def test_an_identity_of_columns_is_said_to_be_one(plain):
    found = plain.glm("I(2 * x + 1) ~ x")
    assert found["x"].value == pytest.approx(2.0)
    assert any("x + 1 exactly in every row: an identity" in note for note in found.notes)
    assert not any("exactly" in note for note in plain.glm("cost ~ x").notes)


def test_columns_that_nearly_determine_one_another_have_a_note(plain):
    notes = plain.glm("cost ~ x + I(x + 0.0001 * z)").notes
    assert any("nearly collinear: x, x + 0.0001 * z" in note for note in notes)
    assert not any("collinear" in note for note in plain.glm("cost ~ z + I(z ** 2) + g").notes)


def test_the_table_is_printed_as_statsmodels_prints_it(plain):
    lines = repr(plain.glm("answer ~ x + g", "binomial")).splitlines()
    frame = plain.glm("answer ~ x + g", "binomial").to_frame()
    assert " ".join(frame.columns) == "value standard_error low high pvalue privacy sampling resolution"
    assert frame.index.name == "term"
    assert lines[0] == "answer == 'yes': binomial family, logit link (probability weights)"
    assert " ".join(lines[2].split()) == "value std err z P>|z| [0.025 0.975] privacy sampling resolution"
    assert {len(line) for line in lines[1:9] if line.startswith(("=", "-", "x", "g", "i"))} == {len(lines[1])}
    assert [line.split()[0] for line in lines[4:6]] == ["intercept", "x"]
