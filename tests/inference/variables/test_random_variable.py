"""Random variables on releases: exact identities, one distribution by identity, error bars, bounded growth, what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
from simulated_releases import DOMAIN, MAPS, NOISE_SCALE, N, noisy, population

import kmeanalyst as ka
from kmeanalyst.inference.variables import distance as variable_distance
from kmeanalyst.inference.variables import product_distribution
from kmeanalyst.kernels import Gaussian, KernelMean, Laplacian
from kmeanalyst.release import Release
from kmeanalyst.representation.weights.reweight import weights_for


def measured(seed: int, *, shift: float = 0.0) -> Release:
    """A release of 500 rows at about ε = 1 whose weights were fitted to its measurement."""
    rng = np.random.default_rng(seed)
    feature_map = MAPS["random-features"]
    made = noisy(feature_map, feature_map(population(N, rng, shift)).mean(axis=0), NOISE_SCALE[1.0], rng)
    points = DOMAIN.draw(40, rng)
    return made.replaced(points=DOMAIN.decode(points), weights=weights_for("probability", points, made.measurement))


def weighted(seed: int, n: int = 7, *, mean: float = 3.0, signed: bool = False) -> Release:
    """Weighted points of one column v, their weights of sum 1."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=n) if signed else rng.dirichlet(np.ones(n))
    frame = pd.DataFrame({"v": rng.normal(mean, 0.5, n), "weight": weights / weights.sum()})
    return ka.from_frame(frame, kernel=Gaussian(0.5))


@pytest.fixture(scope="module")
def first() -> Release:
    return measured(1)


@pytest.fixture(scope="module")
def second() -> Release:
    return measured(2, shift=0.5)


# ---------------------------------------------------------------- one release


def test_a_variable_of_one_release_has_the_number_and_the_error_of_the_same_expression(first):
    x, y = first["x0"], first["x1"]
    for two in (2, 2.0, np.float64(2), np.int64(2), np.array(2)):
        assert (two * x).mean().value == (x * two).mean().value == (2 * x).mean().value
    for variable, expression in [
        (x + y, "x0 + x1"), (2 * x - y / 3, "2 * x0 - x1 / 3"), (1 / (6 + x) % 2, "1 / (6 + x0) % 2"),
        ((x + 6) ** 0.5 + 2**y, "(x0 + 6) ** 0.5 + 2 ** x1"), (-x + abs(y), "-x0 + abs(x1)"),
        (np.log(x + 6) * np.maximum(x, y), "log(x0 + 6) * max(x0, x1)"), (np.float64(2) * x, "2 * x0"),
        ((x > 0) + (y <= 1), "(x0 > 0) + (x1 <= 1)"), (ka.pushforward(lambda a, b: a * b, x, y), "x0 * x1"),
    ]:  # fmt: skip
        found, same = variable.mean(), first.expectation(expression)
        assert found.value == pytest.approx(same.value, rel=1e-12), expression
        assert found.parts == pytest.approx(same.parts, rel=1e-9), expression


def test_conditions_mean_what_they_mean_in_expressions_missing_cells_included(mixed_release):
    r = mixed_release
    for variable, expression in [
        ((r["age"] > 40) & (r["city"] == "Zürich"), "age > 40 and city == 'Zürich'"),
        ((r["age"] > 40) | ~(r["married"] == 1), "age > 40 or not married == true"),
        (r["children"] != 3, "children != 3"), (~(r["children"] > 3), "not children > 3"),
        (r["school"] < "degree", "school < 'degree'"), (r["city"] != "東京", "city != '東京'"),
        (r["joined"] >= "1990-01-01", "joined >= '1990-01-01'"), (r["age"] < 30, "age < 30"),
        (np.logical_and(r["age"] > 30, r["insured"]), "age > 30 and insured"),
        (r["school"].missing(), "missing(school)"), (r["children"].missing(), "missing(children)"),
        (r["insured"].missing(), "missing(insured)"), ((r["children"] + 1).missing(), "missing(children)"),
        (r["city"] == r["city"], "age > 0"), (r["school"] == r["school"], "not missing(school)"),
    ]:  # fmt: skip
        found, same = variable.probability(), r.probability(expression)
        assert (found.value, found.standard_error) == pytest.approx((same.value, same.standard_error), rel=1e-9), expression


def test_statistics_of_a_column_are_those_of_the_release(first):
    x = first["x0"]
    for ours, theirs in [
        (x.mean(), first.mean("x0")), (x.var(), first.var("x0")), (x.std(), first.std("x0")),
        (x.quantile(0.3), first.quantile("x0", 0.3)), (x.cdf(0.5), first.cdf("x0", 0.5)),
        (x.given(first["x1"] > 0).mean(), first.expectation("x0", where="x1 > 0")),
        (x.in_view("probability").given(first["x1"] > 0).mean(), first.expectation("x0", where="x1 > 0")),
        (x.in_view("signed").mean(), first.mean("x0", view="signed")),
    ]:  # fmt: skip
        assert (ours.value, ours.standard_error) == pytest.approx((theirs.value, theirs.standard_error), rel=1e-12)
        assert ours.interval() == pytest.approx(theirs.interval(), rel=1e-12)
    pd.testing.assert_frame_equal(x.histogram(bins=4), first.histogram("x0", bins=4))


def test_estimates_of_variables_keep_their_correlation_with_those_of_the_release(first):
    rest = (first["x0"] + first["x1"]).mean() - first.mean("x0") - first.mean("x1")
    assert abs(rest.value) < 1e-12
    assert rest.standard_error < 1e-9


def test_a_variable_is_the_same_wherever_it_occurs(first):
    x = first["x0"]
    for zero in (x - x, x / x - 1, (x * 2) - x - x):
        assert abs(zero.mean().value) < 1e-12
        assert zero.var().value < 1e-24


# ---------------------------------------------------------------- several releases


def test_sums_and_products_of_independent_variables_have_exact_means():
    x, y, z = (weighted(seed, signed=True)["v"] for seed in range(3))
    a, b, c = (v.mean().value for v in (x, y, z))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ka.UnboundedWeights)
        assert (x + y).mean().value == pytest.approx(a + b, rel=1e-12)
        assert (x * y).mean().value == pytest.approx(a * b, rel=1e-12)
        assert (x * y - z / 2).mean().value == pytest.approx(a * b - c / 2, rel=1e-12)
        assert ka.pushforward(lambda v: v, x).mean().value == pytest.approx(a, rel=1e-12)
        assert (x + y).var().value == pytest.approx(x.var().value + y.var().value, rel=1e-9)


def test_a_product_by_hand():
    """X is 1 or 3, Y is 2 or 6, weights ¼ ¾ and ½ ½: P(X < Y) = 1 - P(X = 3, Y = 2) = 5/8; E[X/Y] = 2.5 · 1/3."""
    x = ka.from_frame(pd.DataFrame({"x": [1.0, 3.0], "weight": [0.25, 0.75]}))["x"]
    y = ka.from_frame(pd.DataFrame({"y": [2.0, 6.0], "weight": [0.5, 0.5]}))["y"]
    assert (x < y).probability().value == pytest.approx(5 / 8)
    assert (x / y).mean().value == pytest.approx(2.5 / 3)
    assert (x * y).quantile([0.1, 0.3, 0.6]).to_frame()["value"].tolist() == [2.0, 6.0, 6.0]
    assert x.given(x < y).mean().value == pytest.approx((0.25 * 1 + 0.375 * 3) / 0.625)
    assert (x + y).to_frame().sort_values("x + y")["weight"].tolist() == [0.125, 0.375, 0.125, 0.375]
    assert (x * y).histogram(bins=[0, 6, 18])["probability"].tolist() == pytest.approx([0.125, 0.875])


def test_the_mean_of_a_product_has_the_error_of_the_product_of_means(first, second):
    """E[XZ] = E[X]E[Z] of independent variables, and so has its error to first order."""
    x, z = first["x0"], second["x0"]
    found, expected = (x * z).mean(), x.mean() * z.mean()
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    assert found.parts == pytest.approx(expected.parts, rel=1e-6)
    assert (x + z).var().parts == pytest.approx((x.var() + z.var()).parts, rel=1e-6)
    assert any("independent" in note for note in found.notes)


def with_more_weight(release: Release, index: int, step: float) -> Release:
    moved = release.weights.copy()
    moved[index] += step
    return release.replaced(weights=moved)


def test_the_influence_is_the_derivative_by_a_releases_weights(first, second):
    """Moving the weights by δ moves the statistic by δ · influence, whatever the statistic."""
    x, z = first["x0"], second["x0"]
    step, index = 1e-6, 3
    changed = with_more_weight(first, index, step)
    for statistic in (lambda a, b: (a * b**2).mean(), lambda a, b: (a - b).var(), lambda a, b: a.given(a < b).mean()):
        was, now = statistic(x, z), statistic(changed["x0"], z)
        assert (now.value - was.value) / step == pytest.approx(was.terms[0][1][index], rel=1e-4)


def test_what_one_release_does_not_know_the_other_does(first):
    both = first["x0"] + weighted(0)["v"]
    found = both.mean()
    assert found.parts["privacy"] == pytest.approx(first.mean("x0").parts["privacy"], rel=1e-9)
    assert found.parts["sampling"] > first.mean("x0").parts["sampling"]
    assert any("no measurement" in note for note in found.notes)
    assert not both.mmd_test(np.arange(5.0)).noise_aware


def test_infeasible_signed_values_have_a_note_with_the_probability_views():
    x, y = weighted(0, signed=True), weighted(1, signed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ka.UnboundedWeights)
        found = (x["v"] > y["v"]).probability()
    if not 0 <= found.value <= 1:
        assert "probability view gives" in found.notes[0]
    assert 0 <= (x["v"] > y["v"]).in_view("probability").probability().value <= 1


def test_two_objects_of_one_measurement_are_not_independent(first):
    thinned = first.thin(20)
    with pytest.raises(ValueError, match=r"one measurement .* not independent .* Ask one Release object"):
        first["x0"] + thinned["x0"]
    with pytest.raises(ValueError, match="one measurement"):
        first["x0"].given(thinned["x1"] > 0)


# ---------------------------------------------------------------- growth


def test_too_many_combinations_are_drawn_and_a_note_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(product_distribution, "MOST_COMBINATIONS", 5_000)
    monkeypatch.setattr(product_distribution, "DRAWN", 20_000)
    x, y, z = (weighted(seed, 40)["v"] for seed in range(3))
    total = x + y * z
    assert total.n_points == 20_000
    assert any("20,000 of 64,000 combinations" in note and "0.0071" in note for note in total.mean().notes)
    exact = x.mean().value + y.mean().value * z.mean().value
    assert total.mean().value == pytest.approx(exact, abs=5 * total.std().value / 20_000**0.5)
    kernel = Gaussian(1.0)
    drawn = total.embedding(kernel)
    monkeypatch.setattr(product_distribution, "MOST_COMBINATIONS", 1_000_000)
    assert drawn.distance((x + y * z).embedding(kernel)) < 2 * 0.0071


@pytest.mark.parametrize(("kernel", "signed"), [(Gaussian(0.5), True), (Laplacian(2.0), False)])
def test_cells_are_as_near_to_all_values_as_they_claim(monkeypatch: pytest.MonkeyPatch, kernel, signed):
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.standard_t(3, 4000)])
    weights = rng.dirichlet(np.ones(4000)) * (np.where(rng.random(4000) < 0.2, -1, 1) if signed else 1)
    monkeypatch.setattr(variable_distance, "_CELLS", 300)
    cells = variable_distance.gathered(values, weights, kernel, ("v",))
    assert len(cells) <= 300
    assert cells.weights.sum() == pytest.approx(weights.sum())
    true = KernelMean(kernel, values, weights).distance(cells.embedding)
    assert true <= cells.rkhs_error + 1e-7
    # a kernel with a kink bends at every cell
    assert cells.rkhs_error < (0.2 if isinstance(kernel, Laplacian) else 0.02)


def test_a_thinned_variable_has_bounded_weights_and_its_stated_error(first, second):
    product = first["x0"] * second["x0"]
    for kind in ("probability", "signed", "uniform"):
        points = product.thin(12, weights=kind)
        assert len(points) <= 12
        assert np.abs(points.weights).sum() <= 1 + 1e-9
        assert points.embedding.distance(product.embedding(points.kernel)) == pytest.approx(points.rkhs_error, abs=1e-6)
        assert points.stands_for == 1600
    assert product.thin(12).rkhs_error < product.thin(4).rkhs_error


def power_of_normals(kernel: Gaussian) -> KernelMean:
    """The embedding of X^Y, X ~ N(3, 0.5), Y ~ N(4, 0.5): the trapezoidal rule, exact to 1e-6."""
    z = np.linspace(-5.5, 5.5, 61)
    w = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    x, y = (ka.from_frame(pd.DataFrame({"v": mean + 0.5 * z, "weight": w}))["v"] for mean in (3, 4))
    return (x**y).thin(100, kernel=kernel).embedding


def squared_errors(n: int, draw: int, truth: KernelMean) -> dict[str, float]:
    """Of N points for X^Y, as the benchmark has them."""
    rng, kernel = np.random.default_rng([n, draw]), truth.kernel
    x, y = rng.normal(3, 0.5, n), rng.normal(4, 0.5, n)
    pairs = ka.from_frame(pd.DataFrame({"x": x, "y": y, "weight": 1 / n}))
    X, Y = (ka.from_frame(pd.DataFrame({"v": v, "weight": 1 / n}), kernel=Gaussian(0.5))["v"] for v in (x, y))
    return {
        "pairs": (pairs["x"] ** pairs["y"]).embedding(kernel).squared_distance(truth),
        "thinned": (X**Y).thin(n, kernel=kernel).embedding.squared_distance(truth),
    }


@pytest.mark.levels
def test_a_bounded_reduced_set_is_no_worse_than_pairs_and_keeps_falling():
    means: dict[int, dict[str, float]] = {20: {}, 200: {}}
    truth = power_of_normals(Gaussian(127.0))
    for n in means:
        found = [squared_errors(n, draw, truth) for draw in range(5)]
        means[n] = {kind: np.mean([each[kind] for each in found]) for kind in ("pairs", "thinned")}
    slope = np.log(means[200]["pairs"] / means[20]["pairs"]) / np.log(10)
    assert -1.4 < slope < -0.6
    assert means[200]["thinned"] <= means[200]["pairs"]
    assert means[200]["thinned"] < 0.3 * means[20]["thinned"]


def test_unbounded_weights_fail_behind_a_function_and_are_warned_about():
    rng = np.random.default_rng(1)
    wild = []
    for mean in (3.0, 4.0):
        draws = ka.from_frame(pd.DataFrame({"v": rng.normal(mean, 0.5, 500), "weight": 1 / 500}), kernel=Gaussian(0.5))
        Z = np.maximum(rng.normal(mean, 0.75, 20), 0.1)[:, None]
        w = np.linalg.lstsq(Gaussian(0.5).gram(Z, Z), draws.embedding.evaluate(Z), rcond=1e-14)[0]
        wild.append(ka.from_frame(pd.DataFrame({"v": Z[:, 0], "weight": w}), kernel=Gaussian(0.5)))
        assert wild[-1].embedding.distance(draws.embedding) < 0.05  # in their own kernel they fit
    power = wild[0]["v"] ** wild[1]["v"]
    with pytest.warns(ka.UnboundedWeights, match=r"Σ\|w\| = .* theorem 1.*in_view\(\"probability\"\).*bounded"):
        norm = power.embedding(Gaussian(127.0)).squared_norm()
    assert norm > 2  # no distribution's embedding is longer than 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert power.in_view("probability").embedding(Gaussian(127.0)).squared_norm() <= 1
        wild[0]["v"].mean()  # nothing is pushed


# ---------------------------------------------------------------- distances and the test


def test_the_distance_of_two_variables_and_to_a_sample(first, second):
    x, z, kernel = first["x0"], second["x0"], Gaussian(1.0)
    exact = x.embedding(kernel).distance(z.embedding(kernel))
    found = x.distance(z, kernel)
    assert found.value == pytest.approx(exact, rel=1e-6)
    assert 0 < found.standard_error < 1
    sample = np.linspace(-2, 2, 50)
    assert x.mmd(sample, kernel) == pytest.approx(
        ka.mmd((x.to_frame()[["x0"]].to_numpy(), first.weights), sample[:, None], kernel), rel=1e-6
    )
    assert x.distance(x + 0).value == 0


def test_the_influence_of_a_distance_is_its_derivative(first, second):
    x, z, kernel = first["x0"] + first["x1"], second["x0"], Gaussian(1.0)
    found, step, index = x.distance(z, kernel), 1e-5, 5
    changed = with_more_weight(first, index, step)
    now = (changed["x0"] + changed["x1"]).distance(z, kernel)
    influence = found.terms[0][1]
    assert (now.value - found.value) / step == pytest.approx(influence[index] + 0.0, abs=0.02)


def test_features_together_have_the_means_and_influences_that_they_have_one_by_one(first, second):
    node = (first["x0"] * second["x1"]).given(first["x0"] < second["x0"])
    joint = node._distribution
    values = joint.values(node.nodes[0])
    means, influences = joint.features(values, lambda v: np.column_stack([v, v**2]))
    for k, power in enumerate((1, 2)):
        assert means[k] == pytest.approx(joint.mean(values**power), rel=1e-9)
        assert influences[:, k] == pytest.approx(joint.influence(values**power), rel=1e-6, abs=1e-9)


def test_a_sample_of_the_same_distribution_is_accepted_and_another_rejected(first, second):
    rng = np.random.default_rng(8)
    x, z = first["x0"], second["x0"]
    same = population(300, rng)[:, 0] * population(300, rng, 0.5)[:, 0]
    accepted, rejected = (x * z).mmd_test(same), (x * z).mmd_test(same + 3)
    assert accepted.pvalue > 0.05
    assert rejected.pvalue < 0.01
    assert rejected.mmd_interval[0] > 0
    assert accepted.noise_aware and accepted.n_sample_rows == 300 and accepted.n_release_points == 1600
    assert first[["x0", "x1"]].mmd_test(population(300, rng) + np.array([4, 0])).pvalue < 0.01


@pytest.mark.slow
def test_the_test_holds_its_level_and_has_power():
    """60 releases: at 5 %, 9 or more true hypotheses rejected would have probability 0.003; a shift of 1 shows."""
    pvalues, shifted = [], []
    for seed in range(60):
        release, rng = measured(seed), np.random.default_rng([seed, 1])
        total = release["x0"] + release["x1"]
        pvalues.append(total.mmd_test(population(300, rng).sum(axis=1)).pvalue)
        shifted.append(total.mmd_test(population(300, rng, 0.5).sum(axis=1)).pvalue)
    assert np.sum(np.array(pvalues) < 0.05) < 9
    assert np.mean(np.array(shifted) < 0.05) > 0.8


@pytest.mark.slow
def test_intervals_of_functions_of_two_releases_hold_the_truth():
    """40 pairs of releases. At 95 %, 33 or fewer held would have probability 0.003; of the variance of a sum 33 do, as both
    fits lean towards the wide reference: an error of one sign, which is counted as two independent ones.
    """
    rng = np.random.default_rng(0)
    a, b = population(400_000, rng)[:, 0], population(400_000, rng, 0.5)[:, 0]
    truth = {"sum": np.mean(a + b), "product": np.mean(a * b), "spread": np.var(a + b), "above": np.mean(a > b)}
    held = dict.fromkeys(truth, 0)
    for seed in range(40):
        x, z = measured(2 * seed)["x0"], measured(2 * seed + 1, shift=0.5)["x0"]
        found = {
            "sum": (x + z).mean(), "product": (x * z).mean(), "spread": (x + z).var(), "above": (x > z).probability(),
        }  # fmt: skip
        for name, estimate in found.items():
            low, high = estimate.interval()
            held[name] += low <= truth[name] <= high
    assert held.pop("spread") >= 32 and min(held.values()) >= 34, held


# ---------------------------------------------------------------- any function, several components


def test_any_function_of_several_variables_and_components(first, second):
    x, z = first["x0"], second["x0"]
    both = ka.pushforward(lambda a, b: np.column_stack([a + b, a * b]), x, z)
    assert len(both) == 2
    assert both[0].mean().value == pytest.approx((x + z).mean().value, rel=1e-12)
    assert both[1].mean().parts == pytest.approx((x * z).mean().parts, rel=1e-6)
    frame = ka.pushforward(lambda f, k: f["x0"] * f["x1"] + k, first[["x0", "x1"]], 2.0)
    assert frame.mean().value == pytest.approx(first.expectation("x0 * x1 + 2").value, rel=1e-12)
    assert ka.pushforward(lambda a: a > 0, x).probability().value == pytest.approx(first.probability("x0 > 0").value)
    assert [one.mean().value for one in first[["x0", "x1"]] * 2] == pytest.approx(
        [2 * first.mean(name).value for name in ("x0", "x1")], rel=1e-12
    )


def test_levels_can_be_pushed(mixed_release):
    length = ka.pushforward(lambda city, age: np.char.str_len(city) * age, mixed_release["city"], mixed_release["age"])
    frame = mixed_release.to_frame("fitted")
    by_hand = (frame["city"].astype(str).str.len() * frame["age"].astype(float) * frame["weight"]).sum()
    assert length.mean().value == pytest.approx(by_hand, rel=1e-12)


def test_it_shows_itself_in_one_line(first, second, mixed_release):
    total = (first["x0"] + second["x0"]).named("X + Z")
    assert repr(total).startswith("X + Z: ") and "±" in repr(total) and repr(total).endswith("(1,600 points)")
    assert "X + Z" in total._repr_html_()
    assert repr(mixed_release["city"]) == "city: levels (16,000 points)"
    assert "no mean" in repr(mixed_release["children"])
    assert repr(((first["x0"] + 1) * 2).nodes[0].text) == "'(x0 + 1) * 2'"


def test_a_plot_takes_and_returns_axes(first, second, mixed_release):
    from matplotlib.figure import Figure

    for variable in (first["x0"] * second["x0"], first["x0"], mixed_release["city"]):
        ax = Figure().add_subplot()
        assert ka.plots.histogram(variable, ax=ax) is ax
        assert ax.get_xlabel() == variable.names[0]
        assert len(ax.containers) > 0


# ---------------------------------------------------------------- what is refused, and the hint


def test_what_makes_no_sense_is_refused_with_a_hint(mixed_release):
    names = {**globals(), "r": mixed_release}
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, names))


def test_the_histogram_of_a_condition_is_false_and_true(first, second):
    for condition in (first["x0"] > 0, first["x0"] > second["x0"]):
        frame = condition.histogram()
        assert list(frame.index) == ["False", "True"]
        held = condition.probability()
        assert frame.loc["True", "probability"] == pytest.approx(held.value)
        assert frame["standard_error"].to_numpy() == pytest.approx(held.standard_error)
        assert frame["probability"].sum() == pytest.approx(1)


def test_a_function_of_a_row_may_round_and_be_undefined(first, second):
    """What is refused is a value that other rows change, beyond single precision."""
    shaken = ka.pushforward(lambda x, y: np.float32(x) * np.float32(y), first["x0"], second["x0"])
    assert shaken.mean().value == pytest.approx((first["x0"] * second["x0"]).mean().value, rel=1e-4, abs=1e-5)
    assert ka.pushforward(lambda x: np.where(x == x, np.nan, x), first["x0"]).missing().mean().value == pytest.approx(1)


def test_a_release_knows_its_columns_and_is_not_gone_through(first):
    assert "x0" in first and "x2" not in first
    with pytest.raises(TypeError):
        iter(first)


def test_variables_differ_by_identity_and_can_be_kept_in_sets(first):
    x = first["x0"]
    assert len({x, x, first["x0"]}) == 2
    assert (x == 1).nodes[0].kind == "condition"
    assert variable_distance.at_points(x._distribution, x.nodes[0]).shape == (40,)
