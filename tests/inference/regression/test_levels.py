"""Targets of several levels: multinomial logit and proportional odds against statsmodels, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
import statsmodels.api as sm
from statsmodels.miscmodels.ordinal_model import OrderedModel

from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Integer, Real

DOMAIN = Domain((
    Real(name="x", lower=-4, upper=4), Categorical(name="g", levels=("a", "b")),
    Ordinal(name="grade", levels=("low", "middle", "high", "never")), Integer(name="stars", lower=1, upper=5),
    Integer(name="score", lower=0, upper=500),
))  # fmt: skip
N = 700
FAMILIES = ("multinomial", "ordinal")


def table() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    x, g = rng.normal(size=N).clip(-4, 4), rng.choice(list("ab"), N)
    score = 0.8 * x - 0.6 * (g == "b") + rng.logistic(size=N)
    grade = np.select([score < -1, score < 0.7], ["low", "middle"], "high")
    return pd.DataFrame(
        {"x": x, "g": g, "grade": grade, "stars": np.clip(3 + score.round(), 1, 5), "score": (40 * score).clip(0)}
    )


ROWS = table()
X = pd.DataFrame({"x": ROWS["x"], "b": (ROWS["g"] == "b").astype(float)})
CODES = ROWS["grade"].map({"low": 0, "middle": 1, "high": 2})


def released(weights: np.ndarray | None = None, rows: pd.DataFrame = ROWS) -> Release:
    return from_frame(rows.assign(weight=1 / len(rows) if weights is None else weights), domain=DOMAIN)


@pytest.fixture(scope="module")
def plain() -> Release:
    return released()


def test_multinomial_coefficients_and_effects_are_those_of_statsmodels(plain):
    usual = sm.MNLogit(CODES, sm.add_constant(X)).fit(disp=0, tol=1e-12)
    found = plain.glm("grade ~ x + g", "multinomial")
    assert [e.value for e in found.coefficients] == pytest.approx(usual.params.to_numpy().T.ravel().tolist(), rel=1e-6)
    assert found.names[:2] == ("middle: intercept", "middle: x") and "never" not in " ".join(found.names)
    x, k = sm.add_constant(X).to_numpy(), 3
    residual = np.eye(3)[CODES] - usual.predict().reshape(-1, 3)
    psi = (residual[:, 1:, None] * x[:, None]).reshape(N, 2 * k)
    J = np.linalg.inv(-usual.model.hessian(usual.params.to_numpy()))
    errors = np.sqrt(np.diag(J @ psi.T @ psi @ J))
    assert [e.standard_error for e in found.coefficients] == pytest.approx(errors.tolist(), rel=1e-5)
    effects = usual.get_margeff(dummy=True).margeff  # (2, 3)
    assert [e.value for e in found.average_marginal_effects()] == pytest.approx(effects.ravel().tolist(), rel=1e-5)


def test_ordinal_coefficients_are_those_of_statsmodels(plain):
    model = OrderedModel(
        pd.Series(pd.Categorical.from_codes(CODES, ["low", "middle", "high"], ordered=True)), X, distr="logit"
    )
    usual = model.fit(disp=0, method="bfgs", gtol=1e-9)
    found = plain.glm("grade ~ x + g", "ordinal")
    thresholds = model.transform_threshold_params(usual.params.to_numpy())[1:-1]
    expected = [*thresholds, *usual.params.to_numpy()[:2]]
    assert [e.value for e in found.coefficients] == pytest.approx(expected, rel=1e-5)
    assert found.names == ("low|middle", "middle|high", "x", "g == 'b'")
    assert found.fit.equations.means(found.fit.beta, found.fit.equations.X)[0] == pytest.approx(
        usual.predict(), abs=1e-6
    )


def test_influences_are_the_derivatives_by_each_rows_weight():
    for family in FAMILIES:
        rows, step = ROWS.iloc[:80].reset_index(drop=True), 1e-6
        asked = {"coefficient": lambda f: f.coefficients[-1], "effect": lambda f: f.average_marginal_effects()[1]}
        weights = np.full(80, 1 / 70)

        def fitted(weights, rows=rows, family=family):
            return released(weights, rows).glm("grade ~ x + g", family, view="signed")

        for question, ask in asked.items():
            influence = ask(fitted(weights)).terms[0][1]
            for m in (0, 33):
                up, down = (ask(fitted(weights + sign * step * np.eye(80)[m])).value for sign in (1, -1))
                assert influence[m] == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-6), question


def test_predictions_of_all_outcomes_sum_to_one_and_effects_to_zero(plain):
    for family in FAMILIES:
        found = plain.glm("grade ~ x * g", family)
        assert sum(e.value for e in found.average_marginal_effects()[:3]) == pytest.approx(0, abs=1e-12)
        table = found.predict(ROWS.iloc[:4])
        assert list(table["outcome"].unique()) == ["low", "middle", "high"]
        assert table.groupby(level=0)["value"].sum().to_numpy() == pytest.approx(np.ones(4))
        assert (
            (table["low"] < table["value"]).all()
            and (table["value"] < table["high"]).all()
            and (table["low"] > 0).all()
        )


def test_a_column_or_term_stands_for_all_its_coefficients_in_tests(plain):
    found = plain.glm("grade ~ x + g", "multinomial")
    assert found.wald_test(["x"]).terms == ("middle: x", "high: x") and found.wald_test(["x"]).df == 2
    assert found.score_test(["g"]).df == 2
    assert plain.glm("grade ~ x + g", "ordinal").wald_test(["g"]).terms == ("g == 'b'",)


def test_whole_numbers_of_few_values_are_levels(plain):
    assert plain.glm("stars ~ x", "ordinal").names == ("1|2", "2|3", "3|4", "4|5", "x")


def test_a_level_that_never_occurs_given_the_condition_is_no_outcome(plain):
    found = plain.glm("grade ~ x", "ordinal", where="grade != 'middle'")
    assert found.names == ("low|high", "x")
    binomial = plain.glm("grade == 'high' ~ x", "binomial", where="grade != 'middle'")
    assert found["x"].value == pytest.approx(binomial["x"].value) and found["x"].standard_error == pytest.approx(
        binomial["x"].standard_error
    )


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
    unordered = Domain(
        (*DOMAIN.columns[:2], Categorical(name="grade", levels=("low", "middle", "high")), *DOMAIN.columns[3:])
    )
    same = from_frame(ROWS.assign(weight=1 / N), domain=unordered)
    note = "the levels of grade have no order in the domain, and are taken in the one that it lists them in: low < middle < high"
    assert any(note in each for each in same.glm("grade ~ x", "ordinal").notes)
    for found in (
        same.glm("grade ~ x", "multinomial"),
        same.glm("g ~ x", "ordinal"),
        plain.glm("grade ~ x", "ordinal"),
    ):
        assert not any("no order" in each for each in found.notes)


def test_an_ordinal_target_that_a_condition_gives_is_refused_without_warnings(plain):
    with pytest.raises(ValueError, match=r"perfectly separated|no root under the"):
        plain.glm("grade ~ (grade == 'low')", "ordinal")
