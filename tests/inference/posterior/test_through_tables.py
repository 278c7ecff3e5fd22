"""Errors through all cells of measured tables: the solution is the one it claims, and its intervals are honest."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from representation_cases import measured
from simulated_releases import measured_release

from kmeanalyst.inference.estimate.error_model import MeasuredErrors, error_model
from kmeanalyst.inference.posterior import column_sums, equations, feature_covariance, posterior, through_tables
from kmeanalyst.inference.posterior.column_sums import ColumnSums
from kmeanalyst.inference.posterior.equations import Equations
from kmeanalyst.inference.posterior.feature_covariance import FeatureCovariance, inverse_of
from kmeanalyst.inference.posterior.pair_sums import PairSums
from kmeanalyst.inference.posterior.posterior import Posterior
from kmeanalyst.inference.posterior.through_tables import around_points, posterior_around, spread_from_independence
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import blas
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.learning.rows.training_rows import target_of, training_rows
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.rules.rule import Rule
from kmeanalyst.representation.represent import represent
from kmeanalyst.representation.tables.allowed_cells import allowed_cells
from kmeanalyst.representation.wanted import Wanted
from release_side import publish

DOMAIN = Domain((
    Integer(name="age", lower=0, upper=59), Categorical(name="work", levels=("a", "b", "c", "d", "e")),
    Categorical(name="place", levels=("p", "q", "r", "s")), Boolean(name="rich"), Categorical(name="sex", levels=("f", "m")),
))  # fmt: skip
FEATURES = MarginFeatures(margin_kernel(DOMAIN))
NOISE_SCALE = 0.001


def table(n: int, rng: np.random.Generator, *, dependent: bool = True) -> Array:
    """Rows whose age, work and wealth depend on one another, or whose columns are shuffled."""
    work = rng.choice(5, n, p=[0.3, 0.3, 0.2, 0.15, 0.05])
    age = np.clip(np.rint(rng.normal(22 + 5 * work, 9)), 0, 59)
    rich = rng.random(n) < 1 / (1 + np.exp(3 - age / 12 - 0.3 * work))
    place = (work + rng.choice(4, n, p=[0.6, 0.2, 0.1, 0.1])) % 4
    rows = np.column_stack([age, work, place, rich, rng.random(n) < 0.5]).astype(float)
    return rows if dependent else np.column_stack([rng.permutation(column) for column in rows.T])


@pytest.fixture(scope="module")
def measurement() -> Measurement:
    return measured(FEATURES, table(3000, np.random.default_rng(0)), noise_scale=NOISE_SCALE)


@pytest.fixture(scope="module")
def fit(measurement: Measurement) -> Posterior:
    """Around other rows of the population, of unequal weights."""
    rng = np.random.default_rng(1)
    rows = table(500, rng)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(through_tables, "_LEFT", 1e-6)
        patched.setattr(equations, "_EXACT", 1e-8)
        return posterior_around(measurement, rows, rng.dirichlet(np.full(len(rows), 5.0)), 0.02, 60.0)


def test_a_pair_that_was_counted_may_have_the_trend_that_its_table_shows(fit: Posterior):
    """Of the ten pairs of the table, as far as ranks of other rows and a noise of about .09 on each let it be seen."""
    cells = FEATURES.kernel.cells(table(3000, np.random.default_rng(0)))
    ranks = np.array([own[cells[:, j]] for j, own in enumerate(fit.prior.rows.ranks)])
    shown = np.abs(ranks @ ranks.T / 3000)[np.triu_indices(5, 1)]
    np.testing.assert_allclose(np.sqrt(fit.prior.squared), shown, atol=0.12)
    assert shown.max() > 0.4 and shown.min() < 0.05


def questions(rows: Array) -> Array:
    """(n, 12): a number, events of it, levels, pairs, a triple, and a product that ranges of the number do not determine."""
    age, work, place, rich, sex = rows.T
    pairs = [
        (work == 0) & (rich == 1), (place == 1) & (age < 20), (work == 4) & (age >= 40), (work == 1) & (place == 1),
    ]  # fmt: skip
    alone = [age, age > 30, age < 20, work == 2, rich, (place == 2) & (sex == 1)]
    return np.column_stack([*alone, *pairs, (work == 3) & (rich == 1) & (age > 35), age * rich]).astype(float)


def parts_of(fit: Posterior, values: Array) -> dict[str, Array]:
    return {name: np.sqrt(one.diagonal()) for name, one in fit.covariance(values).items()}


def dense(fit: Posterior, values: Array) -> Array:
    """a by solving the equations at once, and that of the sums of columns."""
    features, p = FEATURES(fit.rows), fit.probabilities
    alone, of_columns = fit.sums.part(values - p @ values)
    centred = features - p @ features
    C = (centred * p[:, None]).T @ centred
    system = fit.spread * C + NOISE_SCALE**2 * np.eye(len(C))
    return np.linalg.solve(system, fit.spread * (centred * p[:, None]).T @ (values - alone)) + of_columns


def test_answers_follow_the_sums_of_all_tables_over_the_cells_of_a_column(fit: Posterior):
    """By hand: shares of levels by their precision, of sum 1; weights that differ least for the gain, as least squares has them."""
    cells, sums, precision = FEATURES.kernel.cells(fit.rows)[:, 1], np.zeros(5), 0.0
    for group in FEATURES.groups:
        for tables, ends, square in zip(group.tables, group.ranges, group.squares, strict=True):
            if 1 in tables:
                own = (fit.target[slice(*ends)] / np.sqrt(square)).reshape([group.sizes[t] for t in tables])
                others = tuple(axis for axis, t in enumerate(tables) if t != 1)
                own, weight = own.sum(axis=others), square * 5 / own.size / NOISE_SCALE**2
                sums, precision = sums + weight * own, precision + weight
    shares = sums / precision
    of_work = slice(FEATURES.kernel.sizes[0], FEATURES.kernel.sizes[0] + 5)
    assert isinstance(fit.sums, PairSums)
    columns, p = fit.sums.columns, fit.probabilities
    found = columns.shares(fit.target[:, None], 1.0)
    np.testing.assert_allclose(found[of_work, 0], shares + (1 - shares.sum()) / 5, atol=1e-12)
    np.testing.assert_allclose(columns.noise[of_work], 1 / precision)
    np.testing.assert_allclose(np.bincount(cells, fit.answers), found[of_work, 0], atol=2e-5)
    E, V = columns.indicators[:, columns.used].toarray(), columns.noise[columns.used]
    E = E - p @ E
    prior = column_sums.OF_COLUMNS * p[:, None] * E
    by_hand = p + prior @ np.linalg.solve(
        E.T @ prior + np.diag(V), (found[columns.used, 0] - columns.indicators.T @ p)[columns.used]
    )
    np.testing.assert_allclose(columns.calibrated(p[:, None], found)[:, 0], by_hand, rtol=1e-9)


def test_a_column_of_one_cell_has_no_part_in_errors():
    """Its share is 1 but for rounding, above or below."""
    domain = Domain((*DOMAIN.columns, Categorical(name="country", levels=("c",))))
    features, rng = MarginFeatures(margin_kernel(domain)), np.random.default_rng(0)
    rows = np.column_stack([table(500, rng), np.zeros(500)])
    for _ in range(10):
        p = rng.dirichlet(np.full(500, 5.0))
        found = posterior_around(measured(features, rows, noise_scale=NOISE_SCALE), rows, p, 0.02, 60.0)
        assert all(np.isfinite(part).all() for part in parts_of(found, questions(rows[:, :5])).values())


def test_sums_of_a_column_leave_out_what_rules_exclude(measurement: Measurement):
    """Rich is nobody who works at e: the noise on that cell has no part in either share."""
    domain = replace(DOMAIN, rules=(Rule("never", "work == 'e' and rich"),))
    rows = table(500, np.random.default_rng(1))
    rows = rows[~((rows[:, 1] == 4) & (rows[:, 3] == 1))]
    allowed = allowed_cells(domain, FEATURES.kernel)
    even, (start, _) = np.full(len(rows), 1 / len(rows)), FEATURES.groups[1].ranges[FEATURES.kernel.pairs.index((1, 3))]
    sums = [ColumnSums.of(measurement, rows, even, each) for each in (None, allowed)]
    excluded = start + 4 * 2 + 1
    assert [bool(abs(own.of_features[:, [excluded]]).sum()) for own in sums] == [True, False]
    assert (sums[1].noise <= sums[0].noise).all() and sums[1].noise.sum() < sums[0].noise.sum()


def test_the_parts_are_those_of_the_equations_solved_at_once(fit: Posterior, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(posterior, "_GAIN", 1e-9)
    monkeypatch.setattr(equations, "_EXACT", 1e-8)
    h = questions(fit.rows)
    a = dense(fit, h)
    p = fit.probabilities
    rest = (h - p @ h) - (FEATURES(fit.rows) - p @ FEATURES(fit.rows)) @ a
    inflation = 1 / (1 - 60 * p @ p) ** 2
    parts = parts_of(fit, h)
    np.testing.assert_allclose(parts["privacy"], NOISE_SCALE * np.linalg.norm(a, axis=0), rtol=1e-3)
    b = fit.spread * fit.equations.solved_exactly(fit.target - fit.equations.covariance.mean)
    still_to_go = 2 * (p * fit.equations.covariance.at_rows(b)) @ rest
    left_open = fit.prior.left_open(rest, np.ptp(h, axis=0)).diagonal()
    least = (fit.sums.drowned(h - p @ h) ** 2).sum(axis=0)
    expected = np.sqrt(np.maximum(inflation * left_open + still_to_go**2, least - parts["privacy"] ** 2))
    np.testing.assert_allclose(parts["resolution"], expected, rtol=1e-3, atol=2e-7)
    assert np.abs(still_to_go).max() > 0.1 * expected.max()
    np.testing.assert_allclose(parts["sampling"] ** 2 * 3000, p @ (h - p @ h) ** 2)


def test_the_best_answers_are_means_under_one_column_of_weights(fit: Posterior, measurement: Measurement):
    h = questions(fit.rows)
    a = dense(fit, h)
    residual = measurement.vector - fit.probabilities @ FEATURES(fit.rows)
    expected = fit.probabilities @ h + a.T @ residual
    assert np.abs(a.T @ residual).max() > 10 * np.abs(fit.weights @ h - expected).max()
    np.testing.assert_allclose(fit.weights @ h, expected, rtol=1e-3)
    assert fit.weights.sum() == pytest.approx(1)


def test_a_few_steps_solve_what_the_preconditioner_is_made_for(fit: Posterior):
    """Of twelve questions at once; with the diagonal alone the error is 50 times as large after as many."""
    found, B = (
        [],
        fit.spread * fit.equations.covariance.with_features(questions(fit.rows) - fit.probabilities @ questions(fit.rows)),
    )
    diagonal = fit.spread * fit.equations.covariance.diagonal + fit.equations.noise_variance
    for inverse in (fit.equations.inverse, np.diag(1 / diagonal)):
        system = replace(fit.equations, inverse=inverse)
        found.append(np.linalg.norm(system @ system.solved(B, most=12) - B) / np.linalg.norm(B))
    assert found[0] < 1e-3 and found[0] < 0.02 * found[1]


def test_a_question_alone_is_answered_as_among_others(fit: Posterior):
    """Each column ends by its own gains: in single precision, and where all ended together, errors differed by up to a half."""
    h = questions(fit.rows)
    together = parts_of(fit, h)
    for k in range(h.shape[1]):
        alone = parts_of(fit, h[:, [k]])
        for name, part in together.items():
            assert alone[name][0] == pytest.approx(part[k], rel=1e-9), (k, name)


def test_equations_without_a_solution_give_no_answer(fit: Posterior):
    broken = replace(fit.equations.covariance, mean=fit.equations.covariance.mean * np.nan)
    for covariance, spread in ((broken, fit.spread), (fit.equations.covariance, -1.0)):
        system = replace(fit.equations, covariance=covariance, spread=spread)
        with pytest.raises(ValueError, match=r"were not solved: step \d has no length.*no answer"):
            system.solved(np.ones((len(fit.equations.covariance.mean), 2)))


def test_the_best_answers_are_solved_for_to_the_end_or_not_at_all(fit: Posterior, monkeypatch: pytest.MonkeyPatch):
    b = fit.target - fit.equations.covariance.mean
    a = fit.equations.solved_exactly(b)
    assert np.linalg.norm(fit.equations @ a[:, None] - b[:, None]) <= 2 * equations._EXACT * NOISE_SCALE
    monkeypatch.setattr(equations, "_MOST_STEPS_EXACTLY", 3)
    with pytest.raises(ValueError, match=r"were not solved: after 3 steps .* times the tolerance is left.*no answer"):
        fit.equations.solved_exactly(b)


def test_tables_are_cut_into_blocks_that_hold_each_cell_once(fit: Posterior, monkeypatch: pytest.MonkeyPatch):
    for related, largest, together in ((0.85, 512, 2000), (0.3, 512, 2000), (0.3, 7, 0)):
        for name, value in (("_RELATED", related), ("_LARGEST", largest), ("_MOST_TOGETHER", together)):
            monkeypatch.setattr(equations, name, value)
        covariance = FeatureCovariance.of(fit.seen(fit.rows), fit.probabilities)
        every = np.arange(FEATURES.dimension)
        blocks = Equations.of(covariance, FEATURES, 0.02, 1e-6).inverse.blocks
        np.testing.assert_array_equal(np.sort(np.concatenate([every[block.cells] for block in blocks])), every)
        assert max(sizes_of(blocks)) <= max(largest, together)


def sizes_of(blocks: list[Any]) -> list[int]:
    """Of each block, or of its parts, how many cells are inverted at once."""
    return [
        n
        for block in blocks
        for n in (sizes_of(block.inverse.blocks) if hasattr(block.inverse, "blocks") else [len(block.inverse)])
    ]


def left_after(steps: int, features: MarginFeatures, rows: Array) -> float:
    """The share of a right side that is left."""
    small = measured(features, rows, noise_scale=3e-6)
    system = posterior_around(small, rows, np.full(len(rows), 1 / len(rows)), 0.02, 60.0).equations
    b = system.covariance @ np.random.default_rng(3).standard_normal((len(small.vector), 1))
    return float(np.linalg.norm(system @ system.solved(b, most=steps) - b) / np.linalg.norm(b))


def test_tables_of_columns_that_copy_each_other_are_solved_together(monkeypatch: pytest.MonkeyPatch):
    """In one block, or in one for each table beside functions that they share; with one of these much more is left."""
    rows, left = table(2000, np.random.default_rng(2)), []
    rows[:, 2] = rows[:, 1] % 4
    for together, shared in ((2000, 1), (20, 60), (20, 1)):
        monkeypatch.setattr(equations, "_MOST_TOGETHER", together)
        monkeypatch.setattr(equations, "_MOST_SHARED", shared)
        left.append(left_after(40, FEATURES, rows))
    assert max(left[:2]) < 0.01 * left[2], left


def test_sets_that_share_a_pair_are_solved_together(monkeypatch: pytest.MonkeyPatch):
    base, chosen, squares = margin_kernel(DOMAIN), ((1, 2), (1, 2, 3), (1, 2, 4)), ((0.1,) * 5, (0.5 / 3,) * 3, ())
    cells = base.edges, base.atoms, base.missing
    features = MarginFeatures(ChosenMargins(*cells, (0.5, 0.5, 0.0), base.fine, chosen=chosen, squares=squares))
    rows = table(2000, np.random.default_rng(2))
    together = left_after(10, features, rows)
    monkeypatch.setattr(equations, "_MOST_TOGETHER", 60)
    assert together < 0.01 * left_after(10, features, rows)


def test_sets_of_two_columns_that_copy_each_other_share_a_pair():
    base, chosen, squares = margin_kernel(DOMAIN), ((1, 2, 3), (1, 2, 4)), ((0.1,) * 5, (0.25,) * 2, ())
    cells = base.edges, base.atoms, base.missing
    features = MarginFeatures(ChosenMargins(*cells, (0.5, 0.5, 0.0), base.fine, chosen=chosen, squares=squares))
    sets = {own for group in features.groups if group.kind == "sets" for own in group.ranges}
    blocks = [set(ranges) for ranges, _ in equations._together(np.array([0, 1, 1, 3, 4]), features, 2000).values()]
    assert len(sets) == 2 and sets in [block & sets for block in blocks]


def test_two_threads_sum_up_as_one_does(fit: Posterior, monkeypatch: pytest.MonkeyPatch):
    A, covariance = np.random.default_rng(0).standard_normal((FEATURES.dimension, 3)), fit.equations.covariance
    by_one = covariance @ A, covariance.at_rows(A)
    solved = fit.equations.inverse @ A
    monkeypatch.setattr(feature_covariance, "_WORTH_THREADS", 1)
    assert len(feature_covariance._halves(covariance.joint)) == 2
    np.testing.assert_array_equal(by_one[0], covariance @ A)
    np.testing.assert_array_equal(by_one[1], covariance.at_rows(A))
    np.testing.assert_array_equal(solved, fit.equations.inverse @ A)


def test_features_of_rows_are_those_of_their_joint_cells(measurement: Measurement):
    """In a group of tables a row is in one cell; those of fewer groups than tables are put together again."""
    rows, p = table(3000, np.random.default_rng(2)), np.random.default_rng(3).dirichlet(np.full(3000, 5.0))
    uneven = replace(measurement, relative_noise=np.random.default_rng(4).uniform(0.3, 1, FEATURES.dimension))
    for one in (measurement, uneven):
        joint, features = feature_covariance.joint_cells(one, rows)
        assert set(joint.data) == {1.0} and joint.nnz / 3000 <= 0.6 * FEATURES.width
        np.testing.assert_array_equal((joint @ features).toarray(), one.even_features(rows).toarray())
        found, plainly = FeatureCovariance.of_tables(one, rows, p), FeatureCovariance.of(one.even_features(rows), p)
        np.testing.assert_allclose(found.diagonal, plainly.diagonal, atol=1e-15)
        np.testing.assert_allclose(found.within(np.arange(30)), plainly.within(np.arange(30)), atol=1e-15)


def test_blocks_are_smaller_where_cells_are_many(fit: Posterior, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(equations, "_MOST_ENTRIES", 40 * FEATURES.dimension)
    covariance = FeatureCovariance.of(fit.seen(fit.rows), fit.probabilities)
    assert 20 < max(sizes_of(Equations.of(covariance, FEATURES, 0.02, 1e-6).inverse.blocks)) <= 40


def test_many_questions_are_solved_for_in_blocks_of_columns(fit: Posterior, monkeypatch: pytest.MonkeyPatch):
    h = questions(fit.rows)
    monkeypatch.setattr(posterior, "_GAIN", 1e-4)
    at_once = fit.covariance(h)
    monkeypatch.setattr(posterior, "_TOGETHER", 5)
    for name, covariance in fit.covariance(h).items():
        np.testing.assert_allclose(np.diag(covariance), np.diag(at_once[name]), rtol=0.06)


def test_a_solver_that_stops_early_gives_wider_intervals(fit: Posterior, monkeypatch: pytest.MonkeyPatch):
    def squared_errors() -> Array:
        parts = parts_of(fit, questions(fit.rows))
        return parts["privacy"] ** 2 + parts["resolution"] ** 2

    monkeypatch.setattr(posterior, "_STILL_TO_GO", 0.0)
    monkeypatch.setattr(posterior, "_GAIN", 1e-9)
    best = squared_errors()
    monkeypatch.setattr(posterior, "_GAIN", 10.0)
    assert (squared_errors() > 0.95 * best).all() and (squared_errors() / best).mean() > 1.1


def test_the_spread_is_the_dependence_between_columns(measurement: Measurement):
    """Of independent columns κ is a tenth of that of dependent ones, or less."""
    found = {}
    for dependent in (True, False):
        rows = table(3000, np.random.default_rng(2), dependent=dependent)
        of_rows = measured(FEATURES, rows, noise_scale=NOISE_SCALE)
        found[dependent], determined = spread_from_independence(
            of_rows, DOMAIN, rows, np.full(3000, 1 / 3000), np.random.default_rng(3)
        )
        assert 0 < determined < FEATURES.dimension
    assert found[False] < 0.1 * found[True]


def test_many_rows_are_asked_through_cells():
    for n_points, noise, through_cells in [(3200, 1, True), (400, 1, False), (3200, 30, True)]:
        rng = np.random.default_rng(4)
        measurement = measured(FEATURES, table(3000, rng), noise_scale=noise * NOISE_SCALE)
        release = measured_release(measurement, DOMAIN, table(n_points, rng))
        model = error_model(release, release.weights)
        assert isinstance(model, MeasuredErrors) and model.posterior.on_points == through_cells
        assert len(model.frame) == (n_points if through_cells else n_points + len(model.posterior.rows))
        answer = release.probability("rich and age > 30")
        assert answer.interval()[0] < answer.value < answer.interval()[1]
        frame = release.to_frame("fitted")
        assert answer.view == "fitted" and len(frame) == (n_points if through_cells else len(model.posterior.rows))
        assert answer.value == pytest.approx(frame["weight"] @ (frame["rich"] & (frame["age"] > 30)))
        trained = training_rows(release, target_of(release, "rich"), "fitted")
        assert trained.weights.min() > 0 and (not through_cells or len(trained.frame) == n_points)
        released = release.probability("rich and age > 30", view="probability")
        assert released.value == pytest.approx(np.mean(release.frame["rich"] & (release.frame["age"] > 30)))
        away = abs(released.value - answer.value)
        further = away if through_cells else away * np.sqrt(0.75)  # half of the distance is in the error already
        assert released.parts["resolution"] == pytest.approx(np.hypot(answer.parts["resolution"], further), rel=0.01)


@cache
def truth() -> Array:
    return questions(table(400_000, np.random.default_rng(5))).mean(axis=0)


def fitted(noise: float, seed: int) -> tuple[Posterior, Array]:
    """The fit of a table of 4,000 rows whose relations are strong, and the questions' values at its rows."""
    measurement = measured(FEATURES, table(4000, np.random.default_rng(100 + seed)), noise_scale=noise * NOISE_SCALE, seed=seed)
    points, weights = represent(measurement, DOMAIN, Wanted(n_points=3200))
    found = around_points(measurement, DOMAIN, points, weights)
    assert found is not None
    return found, questions(points)


def test_much_noise_leaves_the_spread_of_usual_tables(rough_representation: None):
    """Four tables of 4,000 rows with strong relations, which are known ever less; read off the measurement κ would vanish."""
    for noise, least in [(3, 0.8), (30, 0.75)]:
        held, spreads = [], []
        for seed in range(4):
            found, values = fitted(noise, seed)
            errors = np.sqrt(sum(part**2 for part in parts_of(found, values).values()))
            held.append(np.abs(found.weights @ values - truth()) <= 1.96 * errors)
            spreads.append(found.spread)
        assert np.mean(held) > least
        assert 0.02 < np.mean(spreads) < 0.05


def test_what_answers_have_still_to_go_is_twice_what_a_second_step_adds(monkeypatch: pytest.MonkeyPatch):
    """Around even rows, of a population whose columns agree in .7: the answer goes a share s of the way, and 1 − s is left."""
    monkeypatch.setattr(through_tables, "with_pairs", lambda columns, *_: columns)  # which go all the way at once
    for share in [0.5, 0.9]:
        features = MarginFeatures(margin_kernel(Domain((Boolean(name="x"), Boolean(name="y")))))
        rows = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        even, x = np.full(4, 0.25), (rows[:, :1] == rows[:, 1:]) * 1.0
        found = measured(features, rows, noise_scale=0.01)
        measurement = replace(found, vector=feature_mean(features, rows, np.array([0.35, 0.15, 0.15, 0.35])))
        fits = [posterior_around(measurement, rows, even, spread, 0.0) for spread in np.geomspace(1e-6, 0.1, 200)]
        gone = np.array([(fit.weights @ x[:, 0] - 0.5) / 0.2 for fit in fits])
        best = int(np.abs(gone - share).argmin())
        assert gone[best] == pytest.approx(share, abs=0.02)
        centred = fits[best]._centred(x)
        a = fits[best]._solved(centred)
        own = gone[best]
        rest = centred - fits[best].equations.covariance.at_rows(a)
        still_to_go = posterior._STILL_TO_GO * (fits[best].weights - even) @ rest
        assert abs(still_to_go[0]) == pytest.approx(2 * own * (1 - own) * 0.2, rel=0.02)


def test_intervals_hold_the_population_and_would_not_without_their_parts(rough_representation: None):
    """95 % intervals of six tables of 4,000 rows hold at least 90 %, and less than 80 % without noise and resolution."""
    held, held_without = [], []
    for seed in range(6):
        found, values = fitted(1.5, seed)
        errors = parts_of(found, values)
        away = np.abs(found.weights @ values - truth())
        held.append(away <= 1.96 * np.sqrt(sum(part**2 for part in errors.values())))
        held_without.append(away <= 1.96 * errors["sampling"])
    assert np.mean(held) > 0.9
    assert np.mean(held_without) < 0.8


def test_the_leading_directions_are_of_the_rows(fit: Posterior, measurement: Measurement):
    """`compatible` sees the rows along directions in which their mean is that of the features."""
    coordinates = fit.compatible.coordinates
    assert coordinates.shape[0] == len(fit.rows)
    residual = feature_mean(FEATURES, fit.rows, fit.probabilities) - measurement.vector
    assert np.linalg.norm(fit.probabilities @ coordinates) <= np.linalg.norm(residual) * (1 + 1e-9)


def test_leading_directions_are_found_one_after_the_other_where_there_are_many_features(fit: Posterior):
    covariance = fit.equations.covariance
    found = covariance.leading(5)
    every = np.linalg.eigvalsh(covariance.within(np.arange(len(covariance.mean))))[::-1]
    assert len(covariance.mean) > 160  # else all are found at once
    np.testing.assert_allclose(found.variances, every[:5], rtol=0.02)
    np.testing.assert_allclose(np.diag(found.vectors.T @ (covariance @ found.vectors)), found.variances, rtol=1e-6)
    assert len(covariance.leading(len(every)).variances) < len(every)


def test_all_that_leads_to_an_answer_is_summed_up_on_one_thread(measurement: Measurement, monkeypatch):
    """Sums in another order would stop the solver at another step."""
    threads = []

    def recorded(self: Equations, *given, solved=Equations.solved, **named) -> Array:
        threads.append(max(each["num_threads"] for each in blas().info()))
        return solved(self, *given, **named)

    monkeypatch.setattr(Equations, "solved", recorded)
    rows = table(4000, np.random.default_rng(1))
    with blas().limit(limits=2):
        found = around_points(measurement, DOMAIN, rows, np.full(len(rows), 1 / len(rows)))
        before = len(threads)
        found.covariance(questions(rows)), found.least(rows[:, 0], 0.95), found.deviations(1, np.random.default_rng(0))
        assert len(threads) > before + 2 and {*threads} == {1}
        assert max(each["num_threads"] for each in blas().info()) == 2


def test_compatible_populations_agree_with_the_best_answer_of_the_question_itself(fit: Posterior):
    """Along the leading directions alone, twice as much is left open of one measured cell; and the table's share is within."""
    few = (fit.rows[:, 1] == 4).astype(float)
    low, high = fit.least(few, 0.95), -fit.least(-few, 0.95)
    alone = -fit.compatible.least(-few, 0.95) - fit.compatible.least(few, 0.95)
    assert low <= (table(3000, np.random.default_rng(0))[:, 1] == 4).mean() <= high
    assert high - low < alone / 2


@pytest.mark.slow
def test_the_share_of_a_rare_flag_is_as_far_off_as_is_said():
    """Of 30 tables of 6,000 rows with seven other columns; 1.24 standard errors where answers alone count."""
    numbers = [Integer(name=name, lower=0, upper=99, edges=tuple(range(10, 100, 10))) for name in "abcd"]
    levels = [Categorical(name=name, levels=tuple("uvwxyz")) for name in "efg"]
    domain, off = Domain((*numbers, *levels, Boolean(name="flag"))), []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        together = rng.normal(size=6000)
        rows = {name: np.clip(50 + 12 * together + 16 * rng.normal(size=6000), 0, 99).astype(int) for name in "abcd"}
        rows |= {name: rng.choice(list("uvwxyz"), 6000, p=[0.4, 0.2, 0.2, 0.1, 0.07, 0.03]) for name in "efg"}
        table = pd.DataFrame(rows | {"flag": rng.random(6000) < 0.008}).astype(str)
        found = publish(table, domain, epsilon=1, delta=1e-6, rehearsal=seed, workers=1, uncounted=True).probability("flag")
        off.append((found.value - 0.008) / found.standard_error)
    assert np.sqrt(np.mean(np.square(off))) < 1.1


def test_an_inverse_is_symmetric_to_the_last_bit_and_refuses_what_is_not_definite():
    root = np.random.default_rng(0).standard_normal((300, 400))
    found = inverse_of(matrix := root @ root.T)
    assert (found == found.T).all()
    np.testing.assert_allclose(found @ matrix, np.eye(300), atol=1e-9)
    with pytest.raises(np.linalg.LinAlgError):
        inverse_of(matrix - 2 * np.eye(300) * np.linalg.eigvalsh(matrix)[0])
