"""Conditional expectations: the embedding's weights, their derivative, bias and amplitude, and what their intervals hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
from simulated_releases import weighted_points

import release_side
from kmeanalyst.inference.estimate.error_model import error_model
from kmeanalyst.inference.questions import conditional
from kmeanalyst.inference.questions.conditional import Smoother, public_regulariser, smooth_kernel, smoother
from kmeanalyst.kernels import Gaussian, MultiScale
from kmeanalyst.kernels.embedding import blas
from kmeanalyst.release import Release
from kmeanalyst.releases.derived import sources_of
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.representation import wanted

LINE = Domain((Real(name="x", lower=-5, upper=5), Real(name="y", lower=-5, upper=5), Boolean(name="b")))


def plain(points: pd.DataFrame, weights: np.ndarray | None = None, domain: Domain = LINE) -> Release:
    """Weighted points without a measurement."""
    return weighted_points(points, domain, weights, kernel=table_kernel(domain))


def wave(n: int, rng: np.random.Generator) -> pd.DataFrame:
    x = np.clip(rng.normal(0, 1.8, n), -5, 5)
    y = np.clip(2 * np.sin(x) + rng.normal(0, 0.7, n), -5, 5)
    return pd.DataFrame({"x": x, "y": y, "b": rng.random(n) < 0.4})


def published_wave(seed: int, rows: int, features: int, epsilon: float) -> Release:
    """A rehearsed release of 2 sin x and noise."""
    frame, budget = wave(rows, np.random.default_rng(seed)).drop(columns="b"), {"epsilon": epsilon, "delta": 1e-6}
    return release_side.publish(
        frame, Domain(LINE.columns[:2]), **budget, features=features, points=200, rehearsal=seed, uncounted=True
    )


@pytest.fixture(scope="module")
def cloud() -> Release:
    rng = np.random.default_rng(2)
    weights = rng.uniform(0.2, 1.8, 80) / 80
    weights[:5] *= -0.2
    return plain(wave(80, rng), weights / weights.sum())


def regression(release: Release, *columns: str, **options) -> Smoother:
    return smoother(release, columns, **({"where": None, "view": None, "kernel": None} | options))


def test_conditional_weights_solve_the_weighted_ridge_twice(cloud):
    """g = b + Σ_j c_j k(x_j, ·): (KW + λ)a = K-side of one step with a free constant; the second step fits the residuals."""
    smooth = regression(cloud, "x", kernel=Gaussian(1.0))
    lam, w, x = smooth.regulariser, cloud.weights, cloud.encoded_points[:, :1]
    K, k = Gaussian(1.0).gram(x, x), Gaussian(1.0).gram(np.array([[0.7]]), x)[0]
    n = len(w)
    system = np.block([[lam * np.eye(n) + K * w, -lam * np.ones((n, 1))], [w[None, :], np.zeros((1, 1))]])

    def once(at: np.ndarray) -> np.ndarray:  # the equivalent kernel at the points, times w: (λ + KW)a = λb + k, Σwa = 1
        return w * np.linalg.solve(system, np.r_[at, 1.0])[:n]

    hat = np.array([once(row) for row in K])
    first = once(k)
    wanted = first + first @ (np.eye(n) - hat)
    found = w * smooth.weight_function(smooth.at(np.array([[0.7]])))[:n, 0]
    np.testing.assert_allclose(found, wanted, atol=2e-3 * np.abs(wanted).max())  # the basis leaves out what adds < 1e-6
    assert found.sum() == pytest.approx(1.0, abs=1e-10)
    f = cloud.to_frame()["y"].to_numpy()
    asked = cloud.conditional_expectation("y", given={"x": 0.7}, kernel="gaussian:lengthscale=1.0")
    assert asked.value == pytest.approx(found @ f, rel=1e-9)


def test_given_a_level_it_is_nearly_the_exact_condition(cloud):
    """A level's own mean, but for λ = 1/240 with a share of 0.4, twice iterated."""
    for level in (True, False):
        exact = cloud.mean("y", where=f"b == {'true' if level else 'false'}").value
        assert cloud.conditional_expectation("y", given={"b": level}).value == pytest.approx(exact, abs=0.02)


def test_a_constant_is_its_own_expectation_and_expectations_are_linear(mixed_release):
    given = {"age": [20, 50, 80], "city": "東京"}
    ones = mixed_release.conditional_expectation("3", given=given)
    assert [e.value for e in ones] == pytest.approx([3.0] * 3)
    assert max(e.standard_error for e in ones) < 1e-6
    some = mixed_release.conditional_expectation("2 * age + (married == true)", given=given)
    age, married = (mixed_release.conditional_expectation(q, given=given) for q in ("age", "married == true"))
    assert [e.value for e in some] == pytest.approx([2 * a.value + m.value for a, m in zip(age, married, strict=True)])


def test_a_further_condition_is_exact(cloud):
    """Equal weights: the rows that hold, as a release of their own, have the same λ = 1/3M."""
    rows = cloud.to_frame().drop(columns="weight")
    whole, part = plain(rows), plain(rows[rows["b"]])
    found = whole.conditional_expectation("y", given={"x": [-1.0, 0.5]}, where="b")
    wanted = part.conditional_expectation("y", given={"x": [-1.0, 0.5]})
    assert [e.value for e in found] == pytest.approx([e.value for e in wanted], rel=1e-9)
    assert found[0].question == "y | x = -1, b"


def test_the_influence_function_is_the_derivative_by_each_weight(cloud):
    for where in [None, "b or y > 0"]:
        frame = cloud.to_frame()
        options = {"where": where, "view": "signed", "kernel": Gaussian(1.0)}
        smooth = regression(cloud, "x", **options)
        values, at = smooth.population.values("exp(y / 3)"), smooth.at(np.array([[0.4], [-2.0]]))
        _, influence, _ = smooth.answers(values, at)

        def value(weights: np.ndarray, frame=frame, options=options, smooth=smooth) -> np.ndarray:
            moved = regression(plain(frame, weights), "x", **options)
            kept = replace(moved, regulariser=smooth.regulariser)
            return kept.answers(kept.population.values("exp(y / 3)"), kept.at(np.array([[0.4], [-2.0]])))[0]

        for i in (0, 7, 33, 79):
            step = np.zeros(len(frame))
            step[i] = 1e-6
            slope = (value(cloud.weights + step) - value(cloud.weights - step)) / 2e-6
            np.testing.assert_allclose(influence[i], slope, rtol=1e-4, atol=1e-5 * np.abs(influence).max())


def test_of_a_function_in_the_span_two_steps_leave_the_square_of_what_one_leaves(cloud):
    """f = φᵀθ without noise: f − ĝ = φᵀ(λGD)²θ, and what is reported of it is that with θ₂ in place of θ."""
    smooth = regression(cloud, "x", kernel=Gaussian(1.0))
    points, size = smooth.features[: len(cloud)], smooth.features.shape[1]
    penalty = smooth.regulariser * np.diag(np.r_[0.0, np.ones(size - 1)])
    kept = np.linalg.solve((points.T * cloud.weights) @ points + penalty, penalty)
    theta, at = np.random.default_rng(0).normal(size=size), smooth.at(np.array([[0.3], [-1.0]]))
    found, _, left = smooth.answers(smooth.features @ theta, at)
    np.testing.assert_allclose(at @ theta - found, at @ kept @ kept @ theta, rtol=1e-6)
    np.testing.assert_allclose(left, at @ kept @ kept @ smooth.fitted(smooth.features @ theta)[1], rtol=1e-6)


def test_resolution_includes_the_bias_and_what_the_features_cannot_see(mixed_release):
    smooth = regression(mixed_release, "age")
    of_level = mixed_release.conditional_expectation("age", given={"married": True})
    assert any("where= is of levels too" in note for note in of_level.notes)
    answer = mixed_release.conditional_expectation("married", given={"age": 40})
    influence, left = answer.terms[0][1][:-1], answer.terms[0][1][-1]
    base = error_model(mixed_release, smooth.population.weights)
    parts = base.parts(influence)
    assert left != 0
    assert answer.parts["resolution"] == pytest.approx(np.hypot(parts["resolution"], left))
    assert answer.parts["privacy"] == parts["privacy"] and answer.parts["sampling"] == parts["sampling"]
    low, high = answer.interval(kind="robust")
    least, largest = base.least_change(influence, 0.95), -base.least_change(-influence, 0.95)
    assert high == 1.0 < answer.value + largest + abs(left)  # of a probability
    assert low == pytest.approx(max(0.0, min(answer.value + least - abs(left), answer.interval()[0])))


def test_the_regulariser_is_public(mixed_release, foreign_release):
    measurement = mixed_release.measurement
    wanted = (1 / 60 + 1 / 2000) / 3 + measurement.noise_scale / measurement.feature_map.norm_bound / 3**0.5
    assert public_regulariser(mixed_release) == pytest.approx(wanted)
    assert public_regulariser(foreign_release) == pytest.approx(1 / 75)
    given = regression(mixed_release, "age", where="married")
    assert given.regulariser == pytest.approx(wanted / given.population.probability)


def test_the_kernel_has_no_scale_below_an_eighth_of_the_range(mixed_domain):
    domain = Domain(tuple(mixed_domain[name] for name in ("age", "school", "city")))
    age, school, city = smooth_kernel(domain).kernels
    assert age.lengthscales == pytest.approx([73 / 8, 73 / 4, 73 / 2, 73])
    assert school == MultiScale(lengthscales=(1.0, 2.0))
    assert city == table_kernel(domain).kernels[2]


def test_lists_frames_and_single_values_ask_the_same(mixed_release):
    one = mixed_release.conditional_expectation("married", given={"age": 40, "joined": "1990-05-17"})
    several = mixed_release.conditional_expectation("married", given={"age": [30, 40], "joined": "1990-05-17"})
    frame = pd.DataFrame({"age": [40, 30], "joined": ["1990-05-17"] * 2})
    swapped = mixed_release.conditional_expectation("married", given=frame)
    assert [several[1].value, swapped[0].value] == pytest.approx([one.value] * 2, rel=1e-12)
    assert one.question == "married | age = 40, joined = 1990-05-17"
    assert several[0].value == pytest.approx(swapped[1].value) and several[0].value != pytest.approx(one.value)
    absent = mixed_release.conditional_expectation("age", given={"school": None})
    assert absent.question == "age | school = (missing)"


def test_derived_columns_can_be_given_and_asked_for(mixed_release):
    made = mixed_release.transform({"decade": "floor(age / 10)", "half": "age / 2"})
    given = {"decade": 4, "city": "東京"}
    found = made.conditional_expectation("half", given=given)
    assert found.value == pytest.approx(made.conditional_expectation("age", given=given).value / 2)


def test_estimates_of_one_release_are_calculated_with_and_keep_what_they_share(mixed_release):
    young, old = mixed_release.conditional_expectation("married", given={"age": [20, 80]})
    assert (young - young).standard_error == 0.0
    difference = old - young
    base = (old - young).terms[0][0]
    together = base.parts(old.terms[0][1] - young.terms[0][1])
    assert difference.parts == pytest.approx(together)
    mean = mixed_release.probability("married", view="probability")
    assert (old - mean).parts == pytest.approx(base.parts(old.terms[0][1] - np.append(mean.terms[0][1], 0)))
    assert (mean - old).standard_error == pytest.approx((old - mean).standard_error)
    assert ((old - mean) + (mean - old)).standard_error == pytest.approx(0.0, abs=1e-9)


def indefinite() -> Release:
    rng = np.random.default_rng(1)
    weights = rng.normal(size=60)
    return plain(wave(60, rng), weights / weights.sum())


def test_weights_without_a_minimum_are_not_used_silently():
    release = indefinite()
    found = release.conditional_expectation("y", given={"x": 0.5})
    wanted = release.conditional_expectation("y", given={"x": 0.5}, view="probability")
    assert found.value == wanted.value and found.view == "probability"
    assert any("probability weights were used" in note for note in found.notes)
    assert not any("probability weights were used" in note for note in wanted.notes)
    with pytest.raises(ValueError, match=r"negative along some function.*saddle point.*Ask for view=\"probability\""):
        release.conditional_expectation("y", given={"x": 0.5}, view="signed")


def test_answers_far_from_the_points_and_infeasible_probabilities_have_a_note(cloud):
    near, far = cloud.conditional_expectation("y", given={"x": [0.0, -5.0]}, kernel=Gaussian(0.4))
    assert near.notes == far.notes[1:] and "hardly any weight near" in far.notes[0]
    rows = cloud.to_frame().assign(y=lambda frame: np.where(frame["x"] > 1, 3.0, -3.0))
    beyond = plain(rows).conditional_expectation("y > 0", given={"x": [-1.5, 0.0, 2.0]})
    noted = [any("is not a probability" in note for note in e.notes) for e in beyond]
    assert noted == [not 0 <= e.value <= 1 for e in beyond] and any(noted)


def test_what_cannot_be_given_says_why_and_what_to_do(cloud):
    refusals.check(Path(__file__).parent / "refusals_conditional.txt", lambda text: eval(text, globals(), {"r": cloud}))


def test_many_points_are_spanned_by_some(monkeypatch):
    rows = wave(400, np.random.default_rng(3))
    full = plain(rows).conditional_expectation("y", given={"x": 0.5}).value
    monkeypatch.setattr(conditional, "_BASIS", 100)
    assert plain(rows).conditional_expectation("y", given={"x": 0.5}).value == pytest.approx(full, abs=0.02)


GIVEN = [-2.5, -1.5, -0.75, 0.0, 0.75, 1.5, 2.5]


@pytest.fixture(scope="module")
def flat() -> Release:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "EFFORT", wanted.QUICK)
        return published_wave(0, 5000, 100, 1.0)


def amplitudes_of(release: Release, where: str | None = None) -> conditional.Amplitudes:
    smooth = regression(release, "x", where=where)
    found = conditional.amplitudes(smooth, smooth.at(np.array(GIVEN)[:, None]))
    assert found is not None
    return found


def test_what_is_given_is_not_moved_and_what_depends_on_it_is(flat):
    """p and q have the same rows of x: no change of amplitude moves E[x | x] or E[3 | x], and every one moves E[y | x]."""
    amplitudes = amplitudes_of(flat)
    for question in ("x", "3", "x > 1"):
        values = amplitudes.population.values(question)
        moved, error = amplitudes.of(question, values)
        assert not moved.any() and not error.any()
    moved, error = amplitudes.of("y", amplitudes.population.values("y"))
    assert np.abs(moved[[1, 5]]).max() > 0.01 and (error[[1, 5]] > 0.05).all() and (error >= np.abs(moved)).all()
    np.testing.assert_allclose(amplitudes.of("-2 * y", -2 * amplitudes.population.values("y")), [-2 * moved, 2 * error])


def test_the_mean_is_in_proportion_to_what_the_fit_leaves_and_the_deviation_is_not(flat):
    before, smooth = amplitudes_of(flat), regression(flat, "x")
    assert (before.deviation < conditional._PRIOR).all() and (before.deviation > 0).all()
    model = smooth.population.model
    fit = model.posterior
    away = replace(fit, target=3 * fit.target - 2 * fit.weights @ fit.seen(fit.rows))
    further = replace(smooth, population=replace(smooth.population, model=replace(model, posterior=away)))
    found = conditional.amplitudes(further, smooth.at(np.array(GIVEN)[:, None]))
    np.testing.assert_allclose(found.mean, 3 * before.mean, rtol=1e-9)
    np.testing.assert_array_equal(found.deviation, before.deviation)


def test_fewer_rows_determine_an_amplitude_less(flat):
    assert (amplitudes_of(flat, where="y > 0").deviation[[1, 5]] > amplitudes_of(flat).deviation[[1, 5]]).all()


def test_an_expectation_is_moved_and_its_resolution_includes_what_is_left_open(flat):
    smooth = regression(flat, "x")
    at = smooth.at(np.array(GIVEN)[:, None])
    values = smooth.population.values("y")
    released, influences, left = smooth.answers(values, at)
    moved, error = amplitudes_of(flat).of("y", values)
    resolution = smooth.population.model.parts(influences)["resolution"]
    answers = flat.conditional_expectation("y", given={"x": GIVEN})
    np.testing.assert_allclose([e.value for e in answers], released + moved)
    wanted = np.sqrt(resolution**2 + left**2 + error**2)
    np.testing.assert_allclose([e.parts["resolution"] for e in answers], wanted)


def test_derived_columns_are_exchanged_with_the_columns_they_come_from(flat):
    twice = flat.transform({"twice": "2 * x"})
    assert sources_of(twice.derived, ["twice"]) == {"twice", "x"}
    smooth = regression(twice, "twice")
    amplitudes = conditional.amplitudes(smooth, smooth.at(2 * np.array(GIVEN)[:, None]))
    moved, error = amplitudes.of("x", amplitudes.population.values("x"))
    assert not moved.any() and not error.any()


def test_points_without_a_measurement_have_no_amplitude(foreign_release):
    smooth = regression(foreign_release, foreign_release.columns.names[0])
    assert conditional.amplitudes(smooth, smooth.features[:1]) is None


@pytest.mark.levels
def test_intervals_hold_a_ridge_that_noise_has_flattened():
    """Of 140 intervals at 95 % at least 120; of those without amplitudes ten less, and of 1.2 below the truth at most 70."""
    truth, held = 2 * np.sin(GIVEN), np.zeros(3)
    for seed in range(20):
        release = published_wave(seed, 20_000, 500, 0.1)
        answers = release.conditional_expectation("y", given={"x": GIVEN})
        value, error = np.array([(e.value, e.standard_error) for e in answers]).T
        smooth = regression(release, "x")
        flat, influences, left = smooth.answers(smooth.population.values("y"), smooth.at(np.array(GIVEN)[:, None]))
        parts = smooth.population.model.parts(influences)
        alone = np.sqrt(sum(part**2 for part in parts.values()) + left**2)
        for k, (centre, width, at) in enumerate([(value, error, truth), (flat, alone, truth), (value, error, truth - 1.2)]):
            held[k] += (np.abs(centre - at) <= 1.96 * width).sum()
    assert held[0] >= max(120, held[1] + 10) and held[2] <= 70, held


def stepped(share: np.ndarray, edges: np.ndarray) -> Release:
    """A release of a score in ranges between edges, and whether a row was chosen, of this share (101,) by score."""
    rng = np.random.default_rng(1)
    score = np.clip(np.rint(rng.normal(56, 14, 6000)), 0, 100).astype(int)
    frame = pd.DataFrame({"score": score, "chosen": rng.random(len(score)) < share[score]})
    domain = Domain((Integer(name="score", lower=0, upper=100, edges=tuple(edges)), Boolean(name="chosen")))
    return release_side.publish(frame, domain, epsilon=10.0, delta=1e-6, rehearsal=1, uncounted=True)


@pytest.mark.parametrize("edges", [np.arange(5.0, 100.0, 10.0), np.arange(4.0, 100.0, 4.0)], ids=["within", "between"])
def test_a_jump_within_a_range_or_between_two_is_held_and_said_and_a_slope_has_nothing_of_it(edges):
    scores, asked = np.arange(101), [57, 58, 61, 62]
    for share, jumps in ((np.where(scores < 60, 0.04, 0.85), True), (np.clip(scores / 50 - 0.7, 0, 1), False)):
        answers = stepped(share, edges).conditional_expectation("chosen", given={"score": asked})
        for at, found in zip(asked, answers, strict=True):
            low, high = found.interval()
            assert low <= share[at] <= high, (at, found)
            assert any("changes faster" in note for note in found.notes) if jumps else high - low < 0.35, (at, found)


def test_answers_move_to_what_cells_show_of_what_a_regression_smooths_away():
    """Beside a jump, between edges at every second score; nowhere by a kernel that is named, nor of a column of no table."""
    share = np.where(np.arange(101) < 60, 0.04, 0.85)
    release, asked = stepped(share, np.arange(2.0, 100.0, 2.0)), np.array([[30.0], [56.0], [63.0]])
    smooth = regression(release, "score")
    values = smooth.population.values("chosen")
    found, *_ = smooth.answers(values, smooth.at(asked))
    moved, influences, errors = conditional._misfit(smooth, values, asked)
    true = share[asked[:, 0].astype(int)]
    assert (np.abs(found - true)[1:] > 0.09).all() and (np.abs(found + moved - true) < 0.5 * np.abs(found - true))[1:].all()
    assert abs((found + moved - true)[0]) < 0.05 and (errors > 0.02).all() and np.abs(influences).max() > 0
    named = regression(release, "score", kernel="gaussian:lengthscale=20")
    derived = regression(release.transform({"twice": "2 * score"}), "twice")
    for own in (named, derived):
        assert not any(part.any() for part in conditional._misfit(own, values, asked))


def test_a_question_that_is_the_same_everywhere_has_nothing_that_is_smoothed_away():
    for found in stepped(np.full(101, 0.5), np.arange(5.0, 100.0, 10.0)).conditional_expectation("3", given={"score": [30, 57]}):
        assert found.value == pytest.approx(3, abs=1e-6) and found.standard_error < 0.01
    kept, left, within = conditional._share_of_misfit(np.zeros(2), np.zeros(2), 0.0)
    assert not kept.any() and not left.any() and within == 0


def test_it_and_regressions_are_summed_up_on_one_thread(cloud, monkeypatch):
    threads = []

    def recorded(work):
        return lambda *given: threads.append(max(each["num_threads"] for each in blas().info())) or work(*given)

    monkeypatch.setattr(np.linalg, "solve", recorded(np.linalg.solve))
    monkeypatch.setattr(conditional, "_moments", recorded(conditional._moments))
    with blas().limit(limits=2):
        cloud.glm("y ~ x")
        of_regression = len(threads)
        cloud.conditional_expectation("y", given={"x": 0.123})
    assert 0 < of_regression < len(threads) and {*threads} == {1}
