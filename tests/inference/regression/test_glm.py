"""Generalised linear models: against statsmodels on plain rows, influences by changed weights, and what has no answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
import statsmodels.api as sm
from scipy.special import expit
from simulated_releases import weighted_points
from statsmodels.stats.sandwich_covariance import cov_white_simple

from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real

DOMAIN = Domain((
    Real(name="x", lower=-4, upper=4), Real(name="z", lower=0, upper=3),
    Categorical(name="g", levels=("a", "b", "c")), Categorical(name="answer", levels=("no", "yes")),
    Boolean(name="paid"), Integer(name="visits", lower=0, upper=40), Real(name="cost", lower=0, upper=100),
    Categorical(name="asked", levels=("n", "j"), missing=True),
))  # fmt: skip
N = 800
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


def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    x, z, g = rng.normal(size=N).clip(-4, 4), rng.uniform(0, 3, N), rng.choice(list("abc"), N, p=[0.6, 0.3, 0.1])
    eta = 0.5 * x - 0.3 * z + 0.7 * (g == "b")
    return pd.DataFrame(
        {
            "x": x, "z": z, "g": g, "answer": np.where(rng.random(N) < expit(eta), "yes", "no"),
            "paid": rng.random(N) < expit(-eta), "visits": rng.poisson(1.5 + 0.5 * z),
            "cost": rng.gamma(4, 0.25 * np.exp(0.3 * z + 0.2 * (g == "c"))) + 0.05,
            "asked": np.where(rng.random(N) < 0.1, None, np.where(x > 0, "j", "n")),
        }
    )  # fmt: skip


ROWS = table()


def released(weights: np.ndarray | None = None, rows: pd.DataFrame = ROWS) -> Release:
    return from_frame(rows.assign(weight=1 / len(rows) if weights is None else weights), domain=DOMAIN)


@pytest.fixture(scope="module")
def plain() -> Release:
    return released()


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
    hc0 = np.sqrt(np.diag(cov_white_simple(usual, use_correction=False)))
    assert [one.standard_error for one in found.coefficients] == pytest.approx(hc0.tolist(), rel=1e-6)
    assert found.pvalues.tolist() == pytest.approx(
        usual.get_robustcov_results("HC0", use_t=False).pvalues.tolist(), rel=1e-5
    )
    low, high = found["z"].interval(0.9)
    assert (low, high) == pytest.approx(
        tuple(usual.get_robustcov_results("HC0", use_t=False).conf_int(0.1)[4]), rel=1e-6
    )


def test_regression_is_glm_of_the_gaussian_family(plain):
    one, other = plain.regression("cost", ["x", "g"]), plain.glm("cost ~ x + g")
    assert one.to_frame().equals(other.to_frame())
    assert list(one.to_frame().columns[:8]) == [
        "value", "standard_error", "low", "high", "pvalue", "privacy", "sampling", "resolution",
    ]  # fmt: skip
    assert one.to_frame().index.name == "term"


def test_names_that_are_not_identifiers_need_backticks_in_formulas_alone(mixed_release):
    listed = mixed_release.regression("capital.gain", ["age"], where="not missing(`capital.gain`)")
    written = mixed_release.glm("`capital.gain` ~ age", where="not missing(`capital.gain`)")
    assert listed["age"].value == written["age"].value and listed.target == "`capital.gain`"


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


class Unbounded:
    """An interval without a lower end."""

    def interval(self, z: float) -> tuple[float, float]:
        return -np.inf, 1.0

    def robust(self, level: float) -> tuple[float, float]:
        return -np.inf, 1.0


def test_an_infinite_end_is_explained():
    found = released().glm("answer ~ g", "binomial")
    assert "infinite" not in repr(found)
    unbounded = type(found.coefficients)(replace(one, interval_by=Unbounded()) for one in found.coefficients)
    for said in (repr(wide := replace(found, coefficients=unbounded)), "".join(wide.to_dict()["notes"])):
        assert "intervals are infinite" in said and "too few for this noise" in said


def test_a_target_of_two_levels_a_boolean_and_a_condition_are_binomial(plain):
    named = plain.glm("answer ~ x", "binomial")
    assert named.notes == ("success is answer == 'yes'",) and "note: success is" in repr(named)
    assert named["x"].value == plain.glm("answer == 'yes' ~ x", "binomial")["x"].value
    assert named["x"].value == pytest.approx(-plain.glm("answer == 'no' ~ x", "binomial")["x"].value)
    assert plain.glm("paid ~ x", "binomial")["x"].value == plain.glm("paid == true ~ x", "binomial")["x"].value


def test_a_condition_fits_the_rows_that_meet_it(plain):
    some = ROWS[ROWS["g"] != "a"].reset_index(drop=True)
    for formula, family in (("cost ~ x + g", "gamma"), ("answer ~ x + g", "binomial"), ("visits ~ x", "poisson")):
        given = plain.glm(formula, family, where="g != 'a'")
        alone = released(rows=some).glm(formula, family)
        assert [e.value for e in given.coefficients] == pytest.approx([e.value for e in alone.coefficients])
    assert given.target == "visits" and "g != 'a'" in given["x"].question


def test_the_influence_is_the_derivative_by_each_rows_weight():
    for family, link, target in LINKS:
        rows, step = ROWS.iloc[:60].reset_index(drop=True), 1e-6
        formula = f"{target} ~ z" if link == "identity" else f"{target} ~ z + x"

        def fitted(weights, rows=rows, asked=(formula, family, link)):
            return released(weights, rows).glm(*asked[:2], link=asked[2], view="signed")["z"]

        weights = np.full(60, 1 / 50)
        influence = fitted(weights).terms[0][1]
        for m in (0, 17, 41):
            up, down = (fitted(weights + sign * step * np.eye(60)[m]).value for sign in (1, -1))
            assert influence[m] == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-6)


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
    assert any(
        "nearly collinear: x, x + 0.0001 * z" in note for note in plain.glm("cost ~ x + I(x + 0.0001 * z)").notes
    )
    assert not any("collinear" in note for note in plain.glm("cost ~ z + I(z ** 2) + g").notes)


def test_the_table_is_printed_as_statsmodels_prints_it(plain):
    lines = repr(plain.glm("answer ~ x + g", "binomial")).splitlines()
    assert lines[0] == "answer == 'yes': binomial family, logit link (probability weights)"
    assert lines[2].split() == [
        "value",
        "std",
        "err",
        "z",
        "P>|z|",
        "[0.025",
        "0.975]",
        "privacy",
        "sampling",
        "resolution",
    ]
    assert {len(line) for line in lines[1:9] if line.startswith(("=", "-", "x", "g", "i"))} == {len(lines[1])}
    assert [line.split()[0] for line in lines[4:6]] == ["intercept", "x"]


def test_points_from_elsewhere_are_fitted_by_their_weights():
    """A Release that is not a frame of rows: signed weights that do not sum to one."""
    points = DOMAIN.decode(DOMAIN.draw(200, 1))
    weights = np.random.default_rng(5).normal(0.01, 0.003, 200)
    found = weighted_points(points, DOMAIN, weights).glm("cost ~ x + z")
    X = np.column_stack([np.ones(200), points["x"], points["z"]])
    beta = np.linalg.solve(X.T @ (weights[:, None] * X), X.T @ (weights * points["cost"]))
    assert [e.value for e in found.coefficients] == pytest.approx(beta.tolist())
