"""Statistics of a release: values against numpy, influences against changed weights, and notes on what is infeasible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
from simulated_releases import weighted_points

import release_side
from kmeanalyst.inference.estimate.population import estimates, mean_statistic, population_of
from kmeanalyst.inference.posterior import equations
from kmeanalyst.inference.questions import moments, quantiles
from kmeanalyst.inference.questions.groups import groups_of
from kmeanalyst.inference.questions.statistics import ask
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Cyclic, Integer, Real
from kmeanalyst.releases.expressions import parse
from release_side.choices.workload import STATISTICS

DOMAIN = Domain((
    Real(name="x", lower=-5, upper=5), Real(name="y", lower=-5, upper=5), Integer(name="n", lower=0, upper=9),
    Categorical(name="job", levels=("a", "b", "c")), Integer(name="m", lower=0, upper=50, missing=True),
))  # fmt: skip
POINTS = DOMAIN.decode(DOMAIN.draw(40, 3))
SIGNED = np.random.default_rng(4).normal(0.03, 0.03, 40)  # sum about 1.3: statistics must not count on 1


def published(domain: Domain, rows: pd.DataFrame, epsilon: float) -> Release:
    return release_side.publish(rows, domain, epsilon=epsilon, delta=1e-6, uncounted=True, rehearsal=1)


INSTEAD = "is not a {}: signed weights can give one. The probability view gives {:.4g}."


def weighted(weights: np.ndarray) -> Release:
    return weighted_points(POINTS, DOMAIN, weights)


@pytest.fixture(scope="module")
def signed() -> Release:
    return weighted(SIGNED)


@pytest.fixture(scope="module")
def plain() -> Release:
    p = np.abs(SIGNED)
    return weighted(p / p.sum())


def test_moments_are_those_of_numpy(plain):
    w, frame = plain.weights, plain.to_frame()
    rows = frame[["x", "y", "n"]].to_numpy()
    covariance = np.cov(rows.T, aweights=w, ddof=0)
    assert plain.var("x").value == pytest.approx(covariance[0, 0])
    some = frame[frame["job"] == "b"]
    given = np.cov(some["x"], aweights=some["weight"], ddof=0)
    assert plain.var("x", where="job == 'b'").value == pytest.approx(float(given))
    assert plain.std("x").value == pytest.approx(np.sqrt(covariance[0, 0]))
    found = plain.cov(["x", "y", "n"])
    assert found.value.to_numpy() == pytest.approx(covariance)
    scale = np.sqrt(np.diag(covariance))
    correlation = plain.corr(["x", "y", "n"])
    assert correlation.value.to_numpy() == pytest.approx(covariance / np.outer(scale, scale))
    assert list(correlation.value.columns) == list(correlation.standard_error.index) == ["x", "y", "n"]
    assert correlation["y", "x"].value == correlation.value.loc["x", "y"]
    assert correlation.standard_error.loc["x", "y"] == correlation["x", "y"].standard_error > 0


def test_quantiles_are_numpys_inverted_cdf(plain):
    for where in [None, "job != 'a'"]:
        frame = plain.to_frame()
        some = frame if where is None else frame[frame["job"] != "a"]
        orders = [0.0, 0.1, 0.25, 0.5, 0.77, 1.0]
        found = plain.quantile("x", orders, where=where)
        expected = np.quantile(some["x"], orders, weights=some["weight"], method="inverted_cdf")
        assert [e.value for e in found] == pytest.approx(expected.tolist())
        assert plain.quantile("x", 0.5, where=where).value == pytest.approx(expected[3])


def test_a_quantile_is_reached_exactly_though_sums_of_tenths_are_rounded():
    found = weighted_points(POINTS.iloc[:10], DOMAIN).quantile("x", [k / 10 for k in range(1, 11)])
    assert [e.value for e in found] == sorted(POINTS["x"].iloc[:10])


def test_quantiles_rise_with_their_order_and_never_leave_the_data_nor_their_intervals_the_bounds(mixed_release):
    found = mixed_release.quantile("income", np.linspace(0, 1, 41))
    values, income = [e.value for e in found], mixed_release.to_frame("fitted")["income"]
    assert values == sorted(values)
    assert set(values) <= set(income)
    for estimate in found:
        low, high = estimate.interval(0.99)
        assert 1.0 <= low <= estimate.value <= high <= 1e6
        assert estimate.view == "fitted"
    ends = [end for e in found for end in e.interval(0.99)]
    assert 1.0 in ends and 1e6 in ends  # an uncertain tail reaches the bounds


def test_a_quantiles_interval_inverts_the_interval_of_the_distribution_function(mixed_release):
    median = mixed_release.quantile("age", 0.5)
    low, high = median.interval(0.8)
    for sign, share in ((1, mixed_release.probability(f"age < {low}")), (-1, mixed_release.probability(f"age <= {high}"))):
        error = 1.2815515655 * share.standard_error
        assert 0.05 > sign * (0.5 - share.value) - error > -0.1 * error
    wide = np.diff(median.interval(0.95))[0]
    assert median.standard_error == pytest.approx(wide / (2 * 1.959964), rel=1e-6)
    assert sum(part**2 for part in median.parts.values()) == pytest.approx(median.standard_error**2)


def test_a_quantile_in_a_heap_is_within_the_cell_that_holds_it():
    """80 % of pays at one value of a range: within it the distribution function is not known, at its ends it is."""
    pays = np.where(np.arange(5000) < 4000, 65_000, 20_000 + 26 * np.arange(5000))
    domain = Domain((Integer(name="pay", lower=0, upper=200_000, edges=(30_000, 50_000, 60_000, 70_000, 90_000)),))
    release = published(domain, pd.DataFrame({"pay": pays}), 1.0)
    at = release.cdf("pay", release.quantile("pay", 0.5).value)
    assert at.standard_error > 0.1  # q ± 1.96 of these are quantiles from one end of the column to the other
    low, high = release.quantile("pay", 0.5).interval()
    assert 60_000 <= low <= 65_000 <= high <= 70_000


def test_quantiles_keep_their_correlation(mixed_release):
    low, high = mixed_release.quantile("age", [0.25, 0.75])
    assert (high - low).value == high.value - low.value
    assert (low - low).standard_error == 0
    assert abs((high - low).standard_error - np.hypot(low.standard_error, high.standard_error)) > 1e-3


def test_the_distribution_function_is_the_weight_at_or_below(signed):
    frame = signed.to_frame()
    at = frame["x"].iloc[0]
    found = signed.cdf("x", [-1.0, at, 7.0])
    assert [e.value for e in found] == pytest.approx([frame.loc[frame["x"] <= t, "weight"].sum() for t in (-1.0, at, 7.0)])
    assert signed.cdf("x", -1.0).value == found[0].value
    assert found[0].view == "signed"


def test_a_thousand_expectations_are_those_asked_one_by_one(mixed_release):
    questions = [f"age > {age}" for age in range(20, 80, 7)] + ["income", "age * (married == true)"]
    together = mixed_release.expectations(questions, where="age < 85")
    for question, found in zip(questions, together, strict=True):
        alone = mixed_release.expectation(question, where="age < 85")
        assert (found.value, found.question) == (alone.value, alone.question)
        assert found.parts == pytest.approx(alone.parts, rel=1e-7)
    frame = together.to_frame(0.9)
    assert list(frame["low"]) == pytest.approx([e.interval(0.9)[0] for e in together])
    assert frame.loc["income | age < 85", "value"] == together[-2].value


def test_many_questions_share_one_solve(mixed_release, monkeypatch):
    solves = []
    solve = equations.Equations.solved
    mixed_release.mean("age")  # prepared
    monkeypatch.setattr(equations.Equations, "solved", lambda *a, **k: solves.append(1) or solve(*a, **k))
    mixed_release.expectations([f"age > {age}" for age in range(20, 80)])
    mixed_release.groupby("city").mean("age")
    mixed_release.corr(["age", "income", "married"])
    assert len(solves) == 4  # sixty questions are solved for in two


def test_values_where_the_condition_fails_do_not_matter(mixed_release):
    """The fix that the refusal of missing cells recommends."""
    frame = mixed_release.to_frame("fitted")
    there = frame[frame["children"].notna()]
    assert 0 < len(there) < len(frame)
    expected = np.average(there["children"].astype(float), weights=there["weight"])
    assert mixed_release.mean("children", where="not missing(children)").value == pytest.approx(expected)
    assert mixed_release.std("children", where="not missing(children)").standard_error > 0
    with pytest.raises(ValueError, match=r"no finite value at \d+ of 16000 points.*\"not missing\(children\)\""):
        mixed_release.mean("children", where="age > 0")


def test_levels_that_never_occur_are_left_out_with_a_note(plain):
    fit = plain.glm("y ~ x + job", where="job != 'a'")
    assert fit.names == ("intercept", "x", "job == 'c'")
    assert fit.notes == ("job == 'a' never occurs and is left out",)
    assert "job == 'a' never occurs" in repr(fit)


MEASURED: list[Callable[[Release], Any]] = [
    lambda r: r.mean("x", where="n > 3", view="signed"),
    lambda r: r.var("x", view="signed"),
    lambda r: r.std("x * y", view="signed"),
    lambda r: r.std("m", where="not missing(m)", view="signed"),
    lambda r: r.cov(["x", "y"], where="n > 3", view="signed")["x", "y"],
    lambda r: r.corr(["x", "y"], view="signed")["x", "y"],
    lambda r: r.corr(["x", "n"], where="n > 3", view="signed")["x", "n"],
    lambda r: r.mean("x", where="n > 3", view="signed") / r.mean("y + 10", where="n > 3", view="signed"),
    lambda r: r.glm("y ~ x + n", view="signed")["intercept"],
    lambda r: r.glm("y ~ x + n", where="job != 'a'", view="signed")["x"],
    lambda r: np.sqrt(r.var("x", view="signed")) / (r.mean("y", view="signed") + 3),
]


def test_the_influence_is_the_derivative_by_each_points_weight():
    """Weights of sum 1.3, moved by ± 1e-6 at one point: exact for signed weights that do not sum to one."""
    weights, step = SIGNED + 0.01, 1e-6
    for statistic in MEASURED:
        influence = statistic(weighted(weights)).terms[0][1]
        for m in (0, 7, 19, 33):
            up, down = (statistic(weighted(weights + sign * step * np.eye(40)[m])).value for sign in (1, -1))
            assert influence[m] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-6)
        assert np.abs(influence[[0, 7, 19, 33]]).max() > 1e-3


def test_correlation_matrices_are_positive_semi_definite_in_the_probability_view(signed):
    found = signed.corr(["x", "y", "n", "x + y", "n > 4"], view="probability")
    assert np.linalg.eigvalsh(found.value.to_numpy())[0] > -1e-12
    assert found.view == "probability" and np.diag(found.value) == pytest.approx(1.0, abs=0)
    assert np.diag(found.standard_error).max() == 0


def test_infeasible_values_are_shown_with_the_probability_views():
    weights = np.where(np.abs(POINTS["x"]) > 2, -0.02, 0.08)
    release = weighted(weights / weights.sum())
    variance = release.var("x")
    assert variance.value < 0 and variance.view == "signed"
    feasible = release.var("x", view="probability").value
    assert INSTEAD.format("variance", feasible) in variance.notes[0]
    deviation = release.std("x")
    assert np.isnan(deviation.value) and np.isnan(deviation.standard_error)
    assert f"The probability view gives {release.std('x', view='probability').value:.4g}" in deviation.notes[0]
    assert np.isnan(release.corr(["x", "y"])["x", "y"].value)
    assert release.cov("y", "x")["x", "x"].notes[0] == variance.notes[0]
    assert not release.var("x", view="probability").notes[:-1]  # but for the missing measurement


def test_a_correlation_beyond_one_is_shown_as_such():
    x, y = POINTS["x"].to_numpy(), POINTS["y"].to_numpy()
    for seed in range(100):
        release = weighted(np.random.default_rng(seed).normal(1 / 40, 0.1, 40))
        w = release.weights
        a, b = x - w @ x, y - w @ y
        if (w @ a**2) > 0 and (w @ b**2) > 0 and abs(w @ (a * b)) > 1.2 * np.sqrt((w @ a**2) * (w @ b**2)):
            break
    found = release.corr(["x", "y"])["x", "y"]
    assert abs(found.value) > 1.2
    feasible = release.corr(["x", "y"], view="probability")["x", "y"].value
    assert INSTEAD.format("correlation", feasible) in found.notes[0]


def test_an_infeasible_conditional_probability_is_compared_under_the_same_condition():
    weights = np.where((POINTS["x"] > 0) & (POINTS["n"] > 3), -0.01, 0.05)
    release = weighted(weights)
    found = release.probability("x > 0", where="n > 3")
    feasible = release.probability("x > 0", where="n > 3", view="probability").value
    assert found.value < 0
    assert INSTEAD.format("probability", feasible) in found.notes[0]


def test_every_answer_names_its_view(signed):
    for view in ("signed", "probability"):
        assert {signed.var("x", view=view).view, signed.corr(["x", "y"], view=view).view} == {view}
        assert set(signed.histogram("x", view=view)["view"]) == set(signed.table("n", "job", view=view)["view"]) == {view}
        assert set(signed.groupby("job", view=view).mean("x")["view"]) == {view}
        assert signed.glm("x ~ y", view=view).view == view
    assert signed.var("x").view == "signed" and signed.quantile("x", 0.5).view == "probability"
    assert set(signed.groupby("job").quantile("x")["view"]) == {"probability"}


def test_every_row_is_in_exactly_one_group(mixed_domain):
    rows = mixed_domain.draw(400, 5)
    rows[:50, mixed_domain.position("capital.gain")] = mixed_domain["capital.gain"].atom_codes[0]
    for j, column in enumerate(mixed_domain.columns):
        if column.kind in ("real", "integer", "date"):
            rows[:2, j] = column.bounds
    frame = mixed_domain.decode(rows)
    for name in mixed_domain.names:
        groups = groups_of(mixed_domain, name)
        held = np.array([parse(group.condition).evaluate(frame, mixed_domain) for group in groups])
        assert (held.sum(axis=0) == 1).all(), name
        assert len(groups) > 1 and len({group.label for group in groups}) == len(groups)


def test_groups_are_public_edges_atoms_levels_or_ranges(mixed_domain):
    labels = {name: [group.label for group in groups_of(mixed_domain, name)] for name in mixed_domain.names}
    assert labels["age"] == ["[17, 30)", "[30, 50)", "[50, 90]"]
    assert labels["children"] == [*map(str, range(13)), "(missing)"]
    assert labels["school"] == ["none", "some", "degree", "(missing)"]
    assert labels["capital.gain"][0] == "0" and labels["capital.gain"][-1] == "(missing)"
    assert len(labels["capital.gain"]) == 12 and len(labels["joined"]) == 10
    assert labels["income"][0] == "[1, 3.98107)"  # ten ranges on the column's scale


def test_groups_have_different_labels():
    number = Real(name="x", lower=0, upper=9000000, edges=(1234567,))
    domain = Domain((number, Categorical(name="job", levels=("(missing)", "a"), missing=True)))
    assert [group.label for group in groups_of(domain, "job")] == ["job == '(missing)'", "job == 'a'", "missing(job)"]
    assert [group.label for group in groups_of(domain, "x")] == ["[0, 1234567)", "[1234567, 9000000]"]
    near = groups_of(domain, "x", bins=[1234567, 1234567.1, 1234567.2])
    assert [group.label for group in near] == ["[1234567, 1234567.1)", "[1234567.1, 1234567.2]"]


def test_a_histogram_is_the_weight_in_each_bin(plain):
    frame = plain.to_frame()
    for bins, edges in ((4, np.linspace(-5, 5, 5)), ([-2, 0, 0.5, 3], [-2, 0, 0.5, 3])):
        found = plain.histogram("x", bins=bins)
        expected, _ = np.histogram(frame["x"], edges, weights=frame["weight"])
        assert found["probability"].to_numpy() == pytest.approx(expected)
        assert [*found["left"], found["right"].iloc[-1]] == pytest.approx(list(edges))
    one = plain.probability("0 <= x < 0.5")
    row = found.iloc[1]
    assert (row["standard_error"], row["low"]) == pytest.approx((one.standard_error, one.interval()[0]))


def test_a_table_unstacks_into_the_crosstab_in_the_order_of_levels(plain, mixed_release):
    ordered = mixed_release.table("age", "school")["probability"].unstack()
    assert list(ordered.columns) == ["none", "some", "degree", "(missing)"]
    assert list(ordered.index) == ["[17, 30)", "[30, 50)", "[50, 90]"]
    frame = plain.to_frame()
    found = plain.table("n", "job", where="x > 0")
    some = frame[frame["x"] > 0]
    expected = pd.crosstab(some["n"], some["job"], some["weight"], aggfunc="sum", normalize="all", dropna=False)
    crosstab = found["probability"].unstack()
    assert list(crosstab.columns) == ["a", "b", "c"] and list(crosstab.index) == [str(n) for n in range(10)]
    for n in expected.index:
        for job in expected.columns:
            assert crosstab.loc[str(n), job] == pytest.approx(expected.loc[n, job])
    assert found["probability"].sum() == pytest.approx(1.0)
    wide = found.reset_index().pivot(index="n", columns="job", values="probability")
    assert wide.to_numpy() == pytest.approx(crosstab.to_numpy())
    assert plain.table("job")["probability"].to_numpy() == pytest.approx(frame.groupby("job", observed=False)["weight"].sum())
    three = plain.table("job", "n", "x")["probability"]
    assert three.index.names == ["job", "n", "x"] and three.groupby(["n", "job"]).sum().loc["0", "a"] == pytest.approx(
        plain.probability("n == 0 and job == 'a'").value
    )
    with pytest.raises(TypeError, match="a table needs names of columns, one after the other, got"):
        plain.table(["n", "job"])
    with pytest.raises(TypeError, match="where is a condition in quotes, or several in a list"):
        plain.mean("x", where={"job": "a"})


def test_groups_of_a_release_are_its_answers_given_each_level(mixed_release):
    found = mixed_release.groupby("city", where="age > 20", level=0.9)
    means, expected = found.mean("income"), mixed_release.mean("income", where="(age > 20) and city == 'Zürich'")
    assert means.loc["Zürich", "value"] == pytest.approx(expected.value)
    assert means.loc["Zürich", "privacy"] == pytest.approx(expected.parts["privacy"])
    assert means.loc["Zürich", "low"] == pytest.approx(expected.interval(0.9)[0])
    given = "age > 20 and city == 'Zürich'"
    questions = {"quantile": "age", "probability": "married", "std": "age", "var": "age", "expectation": "age * 2"}
    for name, column in questions.items():
        order = [0.5] * (name == "quantile")
        asked = getattr(mixed_release, name)(column, *order, where=given)
        assert getattr(found, name)(column, *order).loc["Zürich", "value"] == pytest.approx(asked.value)
    assert list(means.index) == list(mixed_release.domain["city"].levels)


def test_a_group_without_weight_is_not_a_number_and_says_why(plain):
    found = plain.groupby("job", where="job != 'b'").mean("x")
    assert np.isnan(found.loc["b", "value"]) and "probability 0" in found.loc["b", "note"]
    assert np.isfinite(found.drop("b")["value"]).all()


def test_names_and_levels_longer_than_a_line_are_asked_like_any_other():
    """Messages cut long texts; questions and conditions must not."""
    found, levels = [], ("a" * 70 + "'1'", "a" * 70 + '"2"')
    for name in ("n" * 200, "n"):
        columns = (
            Integer(name=name, lower=0, upper=9), Real(name="x", lower=0, upper=1),
            Categorical(name="job " * 20 + "s", levels=levels),
        )  # fmt: skip
        domain = Domain(columns)
        release = weighted_points(domain.decode(domain.draw(30, 1)), domain)
        found.append([release.std(name).value, release.quantile(name, 0.5).value, release.corr([name, "x"])[name, "x"].value])
        assert release.table("job " * 20 + "s")["probability"].sum() == pytest.approx(1.0)
    assert found[0] == found[1]


def test_ranges_of_a_circle_go_all_the_way_round():
    domain = Domain((Cyclic(name="hour", lower=0, upper=24), Real(name="x", lower=0, upper=1)))
    groups = groups_of(domain, "hour")
    assert (len(groups), groups[0].left, groups[-1].right) == (10, 0.0, 24)
    frame = domain.decode(domain.draw(500, 1))
    assert frame["hour"].max() > 21.6  # or nothing could be lost
    shares = from_frame(frame.assign(weight=1 / 500), domain=domain).histogram("hour")["probability"]
    assert shares.sum() == pytest.approx(1.0)


def test_one_row_that_meets_a_condition_is_not_all_that_may():
    """Of what is not seen of the others' y two rows of all count: a mean is within 1.96 √(2/3) standard deviations of theirs."""
    rows = DOMAIN.decode(DOMAIN.draw(2000, 5))[["x", "y", "job"]]
    release = published(Domain(tuple(DOMAIN[name] for name in rows)), rows, epsilon=5)
    spread, last = release.std("y").value, np.sort(release.frame["x"])[-2:].mean()
    where = f"x > {last:.9g} and x < 4.9999999"
    mean, deviation = release.mean("y", where=where), release.std("y", where=where)
    assert np.ptp(mean.interval()) > 0.7 * spread and deviation.interval()[1] > spread
    for name in ("x", "y"):
        assert np.ptp(release.quantile(name, 0.5, where=where).interval()) > spread
    many = release.mean("y", where="x > 0")
    assert many.standard_error < 0.1 * spread


def test_a_negative_variance_of_a_group_has_the_error_of_the_group():
    """Middle values count more than once and outer ones less than nothing; its root's interval is from the variance's."""
    rows = DOMAIN.decode(DOMAIN.draw(4000, 5))[["x", "job"]]
    release = published(Domain(tuple(DOMAIN[name] for name in rows)), rows, epsilon=5)
    population = population_of(release, where="job == 'a'")
    weights = population.weights * np.where(population.values("x")[: len(population.weights)] ** 2 < 3, 1.0, -0.1)
    odd = replace(population, weights=weights / weights.sum())
    variance, root = (estimates(odd, [of(odd, "x")])[0] for of in (moments.variance_of, moments.deviation_of))
    assert variance.value == root.value == 0 and f"{variance.standard_error:.2g} by noise" in root.notes[0]
    assert root.interval()[1] == pytest.approx(np.sqrt(1.96 * variance.standard_error), rel=1e-3)


def test_a_column_that_does_not_vary_has_a_deviation_of_zero_and_no_known_error(plain):
    constant = plain.std("0 * x + 0.1")
    assert constant.value == 0 and np.isnan(constant.standard_error)
    assert any("no first-order error" in note for note in constant.notes)
    assert np.isnan(plain.corr(["x", "0 * x + 0.1"])["x", "0 * x + 0.1"].value)


def test_no_interval_leaves_what_the_domains_bounds_and_the_statistic_allow():
    """Of a column at its lower bound in 200 rows: the mean's interval would begin below it."""
    domain = Domain((Real(name="pay-day", lower=0, upper=900, edges=(1,)), Real(name="y", lower=-2, upper=5)))
    release = published(domain, pd.DataFrame({"pay-day": 1.0, "y": [-2.0] * 199 + [5.0]}), 0.3)
    y, everyone = release.mean("y"), population_of(release)
    (hardly,) = estimates(everyone, [replace(mean_statistic(everyone, 1e3 * everyone.values("y")), possible=(-2, 5))])
    assert y.value - 1.96 * y.standard_error < -2 == y.interval()[0]
    assert hardly.interval() == (-2, 5) and "is all that is possible" in hardly.notes[-1] not in y.notes
    for question, possible in {
        "`pay-day` * 2 + y": (-2, 1805), "`pay-day`": (0, 900), "where(y > 0, 1, 3)": (1, 3), "abs(y)": (0, 5), "y > 1": (0, 1),
    }.items():  # fmt: skip
        assert release.expectation(question).possible == possible
    assert release.corr(["pay-day", "y"])["pay-day", "y"].possible == (-1, 1)
    assert release.var("y").possible[0] == 0 == release.cov(["y"])["y", "y"].possible[0]


def test_a_table_of_estimates_prints_errors_and_notes_in_80_columns(mixed_release):
    table = mixed_release.groupby("city").mean("age")
    lines = repr(table).splitlines()
    note = lines.index(next(line for line in lines if line.startswith("(")))
    assert max(map(len, lines[:note])) <= 80 and "± error" in lines[0]
    first = table.iloc[0]
    assert f"{first['standard_error']:.2g}" in lines[2].split()[2]
    told = [line for line in lines if line.startswith("note: ")]
    assert len(told) == len(set(told)) and {n for n in table["note"] if n and "; " not in n} <= {x[6:] for x in told}
    assert repr(table[["value", "low"]]) == repr(pd.DataFrame(table)[["value", "low"]])
    assert "±" in table._repr_html_() and "± error" not in table[["value"]]._repr_html_()
    assert table._repr_html_().count("<svg") == len(table)
    assert repr(mixed_release.groupby("city")).startswith("GroupBy(column='city', where=None")


def test_columns_with_missing_cells_are_left_out_of_matrices_with_a_note(plain):
    found = plain.corr()
    assert found.names == ("x", "y", "n")
    assert found.notes == ("left out, as their cells may be missing: m; name them, and exclude those with where",)
    named = plain.corr(["x", "m"], where="not missing(m)")
    assert -1 <= named["x", "m"].value <= 1


def test_points_from_elsewhere_have_no_privacy_part_in_any_statistic(plain):
    correlation = plain.corr(["x", "y"])["x", "y"]
    for estimate in (plain.mean("x"), plain.var("x"), plain.quantile("x", 0.5), correlation):
        assert estimate.parts["privacy"] is None and estimate.parts["resolution"] is None
        assert estimate.standard_error > 0 and "privacy unknown" in repr(estimate)
        assert any("privacy noise is unknown" in note for note in estimate.notes)
    assert plain.histogram("x")["privacy"].isna().all()


def test_questions_that_cannot_be_answered_say_why_and_what_to_do(plain, mixed_release):
    domain = Domain((Categorical(name="job", levels=("a", "b")),))
    releases = {"r": plain, "mixed": mixed_release, "jobs": weighted_points(domain.decode(domain.draw(5, 0)), domain)}
    refusals.check(Path(__file__).parent / "refusals_statistics.txt", lambda text: eval(text, globals(), releases))
    assert mixed_release.histogram("joined", bins=3)["probability"].sum() == pytest.approx(1.0)


def test_a_distribution_function_that_falls_stays_at_what_it_reached():
    """Best answers may have negative weights: the quantile is where the order is reached first."""
    support, cumulative = quantiles._steps(np.array([3.0, 1.0, 2.0, 2.0]), np.array([0.5, 0.6, -0.3, 0.2]))
    np.testing.assert_allclose(support, [1, 2, 3])
    np.testing.assert_allclose(cumulative, [0.6, 0.6, 1.0])


def test_every_statistic_that_a_text_names_has_the_answer_of_the_method_of_its_name(plain):
    arguments = {"table": ["n", "job"], "quantile": ["x", "0.3"], "cov": ["x", "y"], "corr": ["x", "y"]}
    for name in STATISTICS:
        found = ask(plain, name, arguments.get(name, ["x"]), where="n > 3")
        if name == "table":
            assert found.equals(plain.table("n", "job", where="n > 3"))
        elif name in ("cov", "corr"):
            assert found.value == getattr(plain, name)(["x", "y"], where="n > 3")["x", "y"].value
        else:
            assert found == getattr(plain, name)("x", *[0.3] * (name == "quantile"), where="n > 3")


def test_a_variance_that_noise_makes_negative_has_the_root_of_its_interval(mixed_release, monkeypatch):
    made = moments._central_moments
    negative = lambda own, *rest: [replace(each, value=-4.0) if own.view == "fitted" else each for each in made(own, *rest)]  # noqa: E731
    monkeypatch.setattr(moments, "_central_moments", negative)
    variance, root = mixed_release.var("age"), mixed_release.std("age")
    assert root.value == 0 and root.interval() == (0, pytest.approx(np.sqrt(1.95996 * variance.standard_error), rel=1e-4))
    assert "the variance is -4 ±" in root.notes[0]


@pytest.fixture(scope="module")
def few_in_a_cell() -> Release:
    """Rare levels that go together in a few rows, and ages that were not counted with them."""
    rng, n = np.random.default_rng(0), 2500
    rows = pd.DataFrame({
        "g": rng.choice(list("abc"), n, p=[0.9, 0.09, 0.01]), "h": rng.choice(list("uvw"), n, p=[0.9, 0.09, 0.01]),
        "age": rng.integers(11, 19, n), "x": rng.integers(0, 5, n),
    })  # fmt: skip
    columns = [Categorical(name="g", levels=("a", "b", "c")), Categorical(name="h", levels=("u", "v", "w"))]
    numbers = [
        Integer(name="age", lower=10, upper=19, edges=tuple(range(11, 20))),
        Integer(name="x", lower=0, upper=4, edges=(1, 2, 3, 4)),
    ]
    return release_side.publish(rows, Domain((*columns, *numbers)), epsilon=1.0, delta=1e-6, uncounted=True, rehearsal=2)


def test_a_mean_of_rows_with_one_value_may_be_any_where_it_was_not_counted_with_what_they_meet(few_in_a_cell: Release) -> None:
    """Asked as a condition of its own, a number was refused, and with it the whole table of groups."""
    release, met = few_in_a_cell, 0
    frame = release.to_frame("fitted")
    for _, rows in frame.groupby(["g", "h", "x"]):
        g, h, x = rows.iloc[0][["g", "h", "x"]]
        if rows["age"].nunique() > 1 or rows["weight"].sum() <= 1e-9:
            continue
        found = release.mean("age", where=f"g == '{g}' and h == '{h}' and x == {x}")
        if any("it may be any other" in note for note in found.notes):
            met += 1
            assert found.interval() == (10.0, 19.0)
    assert met and len(release.groupby("x", where="g == 'b'").mean("age")) == 5


def test_no_deviation_is_larger_than_bounds_allow_and_no_standardised_mean_beyond_them(few_in_a_cell: Release) -> None:
    release, rare = few_in_a_cell, "g == 'c'"
    for question, most in (("age", 4.5), ("x", 2.0), ("age > 15", 0.5), ("2 * age", 9.0)):
        assert release.std(question, where=rare).interval()[1] <= most
        assert release.var(question, where=rare).interval()[1] <= most**2
    assert release.std("age", where=rare).standard_error > 1  # what cuts the intervals off is needed
    low, high = release.standardised("age", by="g", population={"c": 1}).interval()
    assert 10 <= low < high <= 19


def test_a_matrix_names_its_columns_to_who_asks_for_others() -> None:
    with pytest.raises(KeyError, match=r"no column 'z'.*x, y"):
        weighted(np.full(40, 1 / 40)).corr(["x", "y"])["x", "z"]
