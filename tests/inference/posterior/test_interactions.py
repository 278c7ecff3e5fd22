"""κ by set of columns: each has its own, of pairs that were not counted from noisy scores, and all add up."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import release_side
from kmeanalyst.inference.posterior import cells_of_rows, heaps_and_bends, interactions, scored_distances
from kmeanalyst.inference.posterior.cells_of_rows import CellsOfRows
from kmeanalyst.inference.posterior.column_sums import OF_COLUMNS
from kmeanalyst.inference.posterior.interactions import Interactions
from kmeanalyst.inference.posterior.scored_distances import squared_distances
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Choice, DrawnSets, Scores
from kmeanalyst.representation.tables.estimates import implied_by_pairs

# two columns, and each again
CELLS = np.repeat([[0, 0, 0, 0], [0, 1, 0, 1], [1, 0, 1, 0], [1, 1, 1, 1]], 1000, axis=0).T


def over(cells: Array, sizes: tuple[int, ...], values: Any = None, **fields: Any) -> Interactions:
    """Of rows of equal weight in these cells, with values (n,) or (d, n) by which cells have parts: of two kinds by default."""
    n = cells.shape[1]
    even, values = np.full(n, 1 / n), np.broadcast_to(np.arange(n) % 2 if values is None else values, cells.shape)
    within = tuple(cells_of_rows._parts(own, own, v, even) for own, v in zip(cells, values, strict=True))
    rows = CellsOfRows(n, slice(None), even, cells, sizes, sizes, fields.pop("within", within))
    pairs = fields.setdefault("pairs", tuple(combinations(range(len(sizes)), 2)))
    fields.setdefault("counted", tuple(combinations(range(len(sizes)), 2)))
    unknown = {"most": np.full(len(pairs), 1e9), "squared": np.full(len(pairs), np.nan), "usual": np.zeros(len(pairs))}
    return Interactions(rows, **unknown | fields)


def sets(spreads: tuple[float, ...], most: float = 1e9, columns: int = 2, squared: float = np.nan) -> Interactions:
    """Of two columns with two cells each, equally frequent, or of these and their copies; values in a cell are of two kinds."""
    cells = np.ascontiguousarray(CELLS[:columns]).astype(np.int32)
    size = len(spreads)
    return over(cells, (2,) * columns, spreads=np.array(spreads), most=np.full(size, most), squared=np.full(size, squared))


def variances(own: Interactions, rest: Array, ranges: Array) -> Array:
    return own.left_open(rest, ranges).diagonal()


def interaction() -> Array:
    """(4000, 1): +1 where the two columns agree, else −1."""
    return np.where(CELLS[0] == CELLS[1], 1.0, -1.0)[:, None]


def test_each_set_of_columns_has_a_spread_of_its_own():
    """Functions of variance 1: of a column, of two, of a kind of values within a cell, and of none of these."""
    column, kind = 2.0 * CELLS[0] - 1, 2.0 * (np.arange(4000) % 2) - 1
    other = np.where(np.arange(4000) // 2 % 2, 1.0, -1.0)
    h = np.column_stack([column, interaction()[:, 0], kind, other])
    found = variances(sets((0.3,)), h, np.full(4, 2.0))
    triples, heaps = interactions._OF_TRIPLES, heaps_and_bends.OF_HEAPS
    # within a cell of half of the mass the kind has all of its variance: in both columns
    assert found == pytest.approx([OF_COLUMNS, 0.3, 2 * heaps / 2 + triples, triples], rel=0.02)


def test_a_larger_set_that_was_counted_has_a_spread_of_its_own_of_what_no_pair_has():
    cells = np.repeat(np.indices((2, 2, 2)).reshape(3, -1), 500, axis=1).astype(np.int32)
    signs, pairs = 2.0 * cells - 1, ((0, 1), (0, 2), (1, 2), (0, 1, 2))
    found = over(cells, (2, 2, 2), pairs=pairs, spreads=np.array([0.3, 0.3, 0.3, 0.2]))
    h = np.column_stack([signs.prod(axis=0), signs[0] * signs[1]])
    assert variances(found, h, np.full(2, 2.0)) == pytest.approx([0.2, 0.3], rel=0.03)


def test_no_event_departs_by_more_than_half_of_the_distance_that_the_score_allows():
    """An event has range 1: 1.96 standard errors are at most half of the largest distance."""
    event = (interaction() + 1) / 2
    found = variances(sets((0.9,), most=0.1), event - 0.5, np.array([1.0]))
    assert 1.96 * np.sqrt(found) == pytest.approx(np.array([0.05]))


def test_a_pair_that_nobody_looked_at_departs_as_far_as_its_columns_shares_allow():
    """Whether two even columns agree may have any probability, and so has both being 1, of .25, from 0 to .5; a rare event less."""
    rare = (CELLS[0] == 1) & (CELLS[1] == 1) & (np.arange(4000) % 1000 < 100)
    h = np.column_stack([interaction()[:, 0] / 2, CELLS[0] * CELLS[1] - 0.25, rare - rare.mean()])
    free = sets((9.0,), most=np.inf)
    reach = free._most(0, np.ones(3), *(np.array(each) for each in _of_cells(free, h)))
    assert reach == pytest.approx([0.5, 0.25, 0.025])
    assert 1.96 * np.sqrt(variances(free, interaction() * [0.5, 0.25], np.ones(2))) == pytest.approx([0.5, 0.25], rel=0.05)


def _of_cells(found: Interactions, h: Array) -> tuple[Array, Array, Array]:
    rows, weights = found.rows, found.rows.weights
    _, means, roots, cells = next(rows.between(rows.sums_of([(0, 1)]), weights[:, None] * h, weights @ h**2))
    return cells, means, roots


def test_a_pair_with_a_score_may_have_a_trend_that_many_cells_do_not_make_smaller():
    """Ten times ten even cells: along both columns' ranks a deviation of u, of a single cell of sixty about as without."""
    cells = np.repeat(np.indices((10, 10)).reshape(2, -1), 40, axis=1).astype(np.int32)
    pair = over(cells, (10, 10), spreads=np.array([0.001]), squared=np.array([0.04]))
    first, second = (own - own.mean(axis=1, keepdims=True) for own in (cells * 1.0, cells == 3))
    h = np.column_stack([first[0] * first[1], second[0] * second[1]]) / np.array([8.25, 0.09])
    along, level = variances(pair, h, np.full(2, 1e3))
    assert along == pytest.approx(0.04 + 0.001, rel=0.02) and level < 0.1 * along
    # cells that do not stand in the order of their values
    atoms_last = replace(pair, rows=replace(pair.rows, cells=(cells - 3) % 10, values=cells))
    np.testing.assert_allclose(variances(atoms_last, h, np.full(2, 1e3)), [along, level])
    drawn = pair.draws(400, np.random.default_rng(0))
    assert (h.T @ drawn)[0].var() == pytest.approx(along + interactions._OF_TRIPLES, rel=0.25)


def test_a_rare_level_may_have_all_of_the_distance_that_a_score_leaves_likely():
    """Of a distance u a level of share p has a correlation with a number's ranks of u / (2 √(p(1 − p)) · E|ranks|)."""
    cells = np.zeros((2, 10_000), dtype=np.int32)
    cells[1] = np.arange(10_000) % 10
    ranks = (cells[1] - 4.5) / math.sqrt(8.25)
    for share, u in ((0.5, 0.05), (0.05, 0.01)):
        cells[0] = np.arange(10_000) >= 10_000 * (1 - share)
        pair = over(cells, (2, 10), spreads=np.full(1, 1e-9), squared=np.full(1, u**2), usual=np.full(1, u))
        values = cells + np.array([[0.0], [1e-5]]) * np.arange(10_000)  # ranges, of many values each
        pair = replace(pair, rows=replace(pair.rows, values=values))
        root = math.sqrt(share * (1 - share))
        h = ((cells[0] - share) / root * ranks)[:, None]
        rho = 0.75 * u / (2 * root * np.abs(ranks).mean())
        # without a score it is a correlation that is told, whatever the level
        for each, expected in ((pair, rho), (replace(pair, usual=np.zeros(1)), u)):
            other = variances(replace(each, squared=np.zeros(1)), h, np.full(1, 1e3))
            assert variances(each, h, np.full(1, 1e3)) - other == pytest.approx([expected**2], rel=0.02)


def test_levels_have_a_part_of_the_distance_each_and_no_more_than_their_shares_allow():
    """Three levels, in whatever order: each may have half of it (its square), a rare one what it can be correlated by."""
    cells = np.zeros((2, 9000), dtype=np.int32)
    cells[0], cells[1] = np.repeat([0, 1, 2], 3000), np.arange(9000) % 3
    pair = over(cells, (3, 3), values=cells, spreads=np.full(1, 1e-9), squared=np.full(1, 0.01), usual=np.full(1, 0.1))
    middle = (cells == 1) - 1 / 3
    h = (middle[0] * middle[1])[:, None] / (2 / 9)
    assert variances(pair, h, np.full(1, 1e3))[0] > (0.75 * 0.1 / (8 / 9)) ** 2 / 4  # of ranks, the middle is uncorrelated
    far = replace(pair, squared=np.full(1, 0.16), usual=np.full(1, 0.4))
    drawn = (h.T @ far.draws(1000, np.random.default_rng(0)))[0]
    assert drawn.var() == pytest.approx(variances(far, h, np.full(1, 1e3))[0], rel=0.2)  # .004 without levels
    cells[0] = np.arange(9000) >= 8910
    cells[0, 8901:8910] = 2
    rare = over(cells, (3, 3), values=cells, spreads=np.full(1, 1e-9), squared=np.full(1, 0.25), usual=np.full(1, 0.5))
    rho, apart = rare._trends[0, 1].rho, math.sqrt(0.001 * 0.999)
    assert rho[3, 1:] == pytest.approx(np.full(3, apart / math.sqrt(2 / 9) / 2), rel=0.01) and (rho <= 1).all()


def test_rare_levels_may_be_tied_to_each_other_which_hardly_makes_a_distance():
    """Of levels of 2 % each both hold at most together in 2 %; levels that half of the distance is less than depart as κ says."""
    cells = np.zeros((2, 10_000), dtype=np.int32)
    cells[0, :200], cells[0, 200:4000], cells[1, 100:102], cells[1, 300:498], cells[1, 5000:] = 1, 2, 1, 1, 2
    tied = over(cells, (3, 3), spreads=np.full(1, 1e-4), usual=np.full(1, 0.1))
    rare, frequent = (np.prod(cells == level, axis=0) - (cells[0] == level).mean() * (cells[1] == level).mean() for level in (1, 2))
    found, others = (
        variances(each, np.column_stack([rare, frequent]), np.ones(2)) for each in (tied, replace(tied, usual=np.zeros(1)))
    )
    most = 0.02 * 0.98
    assert found[0] == pytest.approx(interactions._OF_FEW * most**2, rel=0.1) and found[0] > 3 * others[0]
    assert found[1] == pytest.approx(others[1])
    bounded, none = (variances(replace(tied, most=np.full(1, one)), rare[:, None], np.ones(1)) for one in (1e-3, 0.0))
    assert 1.96 * np.sqrt(bounded - none) == pytest.approx([0.0005], rel=0.01)


def test_rows_without_weight_have_no_part_wherever_their_cells_stand():
    rows = replace(sets((0.3,)).rows, weights=np.where(CELLS[0] + CELLS[1] > 0, 1 / 3000, 0.0))  # none in the first cell
    sums = list(rows.sums_of([(0, 1)]))
    ((_, means, roots, cells),) = rows.between(sums, rows.weights[:, None] * np.eye(2)[CELLS[0]], np.ones(2))
    assert sums[0].sums.indices.min() == 0 and list(cells) == [1, 2, 3]
    assert means / roots[:, None] == pytest.approx(np.array([[1, 0], [0, 1], [0, 1]]))


def test_columns_that_copy_each_other_do_not_add_up():
    """The interaction is one of four pairs of columns, and no more than all of its variance."""
    found = variances(sets((0.3, 0, 0.3, 0.3, 0, 0.3), columns=4), interaction(), np.array([2.0]))
    assert found == pytest.approx([0.3])


def test_scores_of_larger_sets_say_how_far_they_and_all_further_ones_may_depart():
    """Of even columns of two values Σ√E is √8 and one number of eight is free: κ = π/2 · 7 u²/8 less what chance gives."""
    cells = np.repeat(np.indices((2,) * 5).reshape(5, -1), 200, axis=1).astype(np.int32)
    n, triples = cells.shape[1], tuple(combinations(range(5), 3))
    free = over(cells, (2,) * 5, pairs=(*combinations(range(5), 2), *triples), spreads=np.full(20, 0.3))

    def scored(usual: float, *, counted: bool = False) -> Interactions:
        step, N = 1000, 10_000
        noisy = np.rint(step * N * np.array([0.3, *[usual] * 9])).astype(np.int64)
        drawn = DrawnSets(triples, 8, Choice(1, step, 1.0), Scores(noisy, step))
        measurement: Any = SimpleNamespace(drawn=drawn, n_rows=N, noise_scale=1e-6, grid_steps=step)
        return replace(free, spreads=free.spreads.copy(), squared=free.squared.copy())._with_sets(
            measurement, {triples[0]} if counted else set()
        )

    def kappa(u: float) -> float:
        return math.pi / 2 * 7 * u**2 / 8 - 1 / 10_000 - 1 / n

    assert scored(0.0).further == interactions._LEAST_OF_TRIPLES
    assert scored(0.02).further == pytest.approx(interactions._OF_EVENTS * kappa(0.02), rel=1e-3)
    assert scored(0.2).further == pytest.approx(interactions._OF_EVENTS * kappa(0.2), rel=1e-3)
    found = scored(0.02)
    assert found.spreads[10] == pytest.approx(interactions._OF_EVENTS * kappa(0.3), rel=1e-3)
    np.testing.assert_allclose(found.spreads[11:], found.further, rtol=1e-6)
    assert not found.squared[10:].any() and found.scored[triples[0]] == pytest.approx(0.3, rel=0.01)
    (columns, g), *others = found._directions
    trend = g.reshape(2, 2, 2) / 8  # times shares: what the score leaves likely, and no part of it is in pairs
    assert columns == triples[0] and len(others) == 9 and np.abs(trend).sum() == pytest.approx(0.3, rel=0.01)
    assert max(np.abs(trend.sum(axis=axis)).max() for axis in range(3)) < 1e-12
    assert triples[0] not in scored(0.02, counted=True).scored
    assert scored(0.02, counted=True).spreads[10] == 0.3 and np.isnan(scored(0.02, counted=True).squared[10])


def test_draws_of_what_may_be_have_the_variances_of_their_sets():
    """400 draws: a variance is known to 7 %. Those of pairs have the parts of columns with them."""
    own = sets((0.3,))
    drawn = own.draws(400, np.random.default_rng(0))
    assert np.abs(drawn.sum(axis=0)).max() < 1e-12
    kind = (2.0 * (np.arange(4000) % 2) - 1)[:, None]
    h = np.hstack([interaction(), kind])
    wanted = [*(variances(own, h, np.full(2, 2.0)) + np.array([interactions._OF_TRIPLES, 0.0]))]
    assert (h.T @ drawn).var(axis=1) == pytest.approx(wanted, rel=0.25)


def test_a_score_alone_says_more_of_a_distance_than_with_what_is_usual():
    """Cut off at 0, a normal score of distance 3 noises has E u² near 10 squared noises; of 0 noises it has 1."""
    moments = scored_distances._second_moments(np.array([3.0, 0.0]), 0.1)
    assert moments == pytest.approx([0.1 + 1e-4 * 1.33, 0.01], rel=1e-3)
    assert (squared_distances(np.array([0.3, 0.0]), 0.1, np.ones(2)) < [0.1, 0.01]).all()


def test_the_distance_that_chance_gives_a_table_of_unrelated_columns_is_no_relation():
    """20 × 20 even cells, N = 1,000: the scores of unrelated columns show no relation, those of related ones theirs."""
    rng, cells, n = np.random.default_rng(0), 400, 1000
    wave = np.tile(np.where(np.arange(20) % 2, 1.0, -1.0), 20)
    for share in (0.0, 0.8):  # the distance of the population's table
        tables = rng.multinomial(n, (1 + share * wave) / cells, size=40) / n
        scores = np.abs(tables - 1 / cells).sum(axis=1) + 0.01 * rng.standard_normal(40)
        found = scored_distances.squares_beyond(scores, 0.01, np.full(40, 20.0), n)
        assert np.sqrt(found.mean()) == pytest.approx(share, rel=0.05, abs=0.15) and (scores > 0.4).all()


def test_intervals_hold_where_noise_drowns_the_table():
    """200 rows at ε = .05: the noise on a share is about 1, so that anything may be true of a column."""
    rows = pd.DataFrame({"c": ["u"] * 140 + ["v"] * 50 + ["w"] * 10, "y": np.linspace(-1, 4, 200)})
    domain = Domain((Categorical(name="c", levels=("u", "v", "w")), Real(name="y", lower=-2, upper=5)))
    held = 0
    for seed in range(8):
        release = release_side.publish(rows, domain, epsilon=0.05, delta=1e-6, uncounted=True, rehearsal=seed)
        low, high = release.probability("c == 'u'").interval()
        held += low <= 0.7 <= high
    assert held >= 7  # 1 or 2 of 8 where κ alone counts
    (model, h), (_, other) = (release.probability(f"c == '{level}'").terms[0] for level in "uv")
    joint, parts = model.covariance(np.column_stack([h, other])), model.parts(np.column_stack([h, other]))
    for name in ("privacy", "sampling", "resolution"):
        assert np.sqrt(np.diag(joint[name])) == pytest.approx(parts[name])
    assert joint["resolution"][0, 1] < 0  # of levels that exclude each other


def test_variances_are_the_diagonals_of_joint_covariances_and_signs_are_kept():
    rest = np.hstack([interaction(), -2 * interaction(), np.random.default_rng(0).normal(size=(4000, 1))])
    rest -= rest.mean(axis=0)
    own, ranges = sets((0.04,)), np.array([2.0, 4.0, 8.0])
    joint = own.left_open(rest, ranges)
    for k in range(3):
        np.testing.assert_allclose(variances(own, rest[:, [k]], ranges[[k]]), joint[k, k])
    assert joint[0, 1] == pytest.approx(-2 * joint[0, 0]) and np.linalg.eigvalsh(joint).min() > -1e-12
    assert joint[2, 2] == pytest.approx(interactions._OF_TRIPLES, rel=0.3)  # chance alone puts little between cells


def test_distances_are_calibrated_given_their_scores():
    """Exponential distances of means .02 r, and as much noise: posterior means of squares are right for low and high scores."""
    rng = np.random.default_rng(1)
    r = rng.uniform(2, 12, 20_000)
    distances = rng.exponential(0.02 * r)
    scores = distances + 0.1 * rng.normal(size=len(r))
    found = squared_distances(scores, 0.1, r)
    for part in np.array_split(np.argsort(scores), 4):
        assert found[part].mean() == pytest.approx((distances[part] ** 2).mean(), rel=0.15)
    high = scores > 0
    assert (scores[high] ** 2).mean() > 1.1 * (distances[high] ** 2).mean()  # scores as they are would not be


def test_events_depart_as_independent_cells_do_only_where_cells_are():
    """Mean departure²/(κ Var) over pairs of thresholds: 1 for independent cells, ten times that for smooth departures."""
    for smooth in [True, False]:
        one = np.diff(ndtr(np.arange(-6, 7) / 2)) / (ndtr(3) - ndtr(-3))
        ratios, rng = [], np.random.default_rng(2)
        for _ in range(20):
            away = 0.01 * np.sqrt(np.outer(one, one)) * rng.normal(size=(12, 12))
            if smooth:
                away = 0.1 * np.outer(one * np.arange(-5.5, 6), one * np.arange(-5.5, 6))
            away -= np.outer(away.sum(axis=1), one) + np.outer(one, away.sum(axis=0)) - away.sum() * np.outer(one, one)
            kappa = np.pi / 2 * np.abs(away).sum() ** 2 / np.sqrt(one).sum() ** 4
            variance = np.cumsum(one) * (1 - np.cumsum(one))
            ratios.append((away.cumsum(0).cumsum(1) ** 2).sum() / (kappa * variance.sum() ** 2))
        assert np.mean(ratios) > interactions._OF_EVENTS if smooth else 0.5 < np.mean(ratios) < 2


def test_what_chance_gives_to_many_cells_is_no_departure():
    """Noise among 2,000 rows in 1,600 cells has four fifths of its variance between them, and no part of a pair."""
    rng, n = np.random.default_rng(0), 2000
    cells = rng.integers(0, 40, (2, n)).astype(np.int32)
    many = over(cells, (40, 40), spreads=np.array([0.3]), within=((cells[0], np.arange(40)),) * 2)
    h = rng.standard_normal((n, 20))
    assert variances(many, h - h.mean(axis=0), np.full(20, 8.0)).mean() < 0.05


def bends(cells: Array, values: Array, h: Array) -> float:
    """The deviation of a mean from how columns may depend on each other within ranges of one of them."""
    rows = replace(over(cells, tuple(cells.max(axis=1) + 1), spreads=np.full(1, 1e-9)).rows, values=values)
    found = interactions._along(*heaps_and_bends.bends(rows, rows.weights[:, None] * (h[:, None] - h.mean())))
    return float(np.sqrt(found[0, 0]))


def test_within_a_range_a_column_may_change_at_once_to_what_it_is_beside():
    """A level is so from 4.5 on, in the midst of one of ten ranges, where rows know that half of them have it."""
    rng, n = np.random.default_rng(0), 20_000
    cell = rng.integers(0, 10, n).astype(np.int32)
    x = cell + rng.random(n)
    known = (rng.random(n) < np.where(cell == 4, 0.5, cell > 4)).astype(np.int32)

    def found(level: Array) -> float:
        return bends(np.stack([cell, level]), np.stack([x, level]), ((x > 4.5) & (level == 1)).astype(float))

    away = np.mean((x > 4.5) & (x > 4.5)) - np.mean((x > 4.5) & (known == 1))
    assert 0.9 * away < 1.96 * found(known) < 2 * away
    assert found(rng.permutation(known)) < 0.25 * found(known)


def test_where_one_range_has_nearly_all_rows_a_column_may_depend_on_the_number_as_it_likes():
    rng, n = np.random.default_rng(0), 20_000
    x, level = 9 * rng.random(n) ** 3, rng.integers(0, 2, n).astype(np.int32)

    def found(ranges: int) -> float:
        cell = np.searchsorted(np.quantile(x, np.arange(1, ranges) / ranges), x).astype(np.int32)
        return bends(np.stack([cell, level]), np.stack([x, level]), x * level)

    spread = x.std() / 2  # of x level, if one were all of the other
    assert found(1) == pytest.approx(heaps_and_bends._ANY_BEND * spread, rel=0.2)
    assert found(20) < 0.05 * found(1)


def test_tables_of_other_columns_hide_a_part_of_a_trend():
    """Columns 0 and 1, and 1 and 2, were counted and agree in .8 of rows: R² of the ranks of one by the other's is .36."""
    cells = np.repeat(np.indices((2, 2, 2)).reshape(3, -1), [64, 16, 4, 16, 16, 4, 16, 64], axis=1).astype(np.int32)
    agree = 2.0 * (cells[0] == cells[2])[:, None] - 1.36  # of mean 0
    every, some = ((0, 1), (0, 2), (1, 2)), ((0, 1), (1, 2))

    def variance(squared: float, counted: Any) -> float:
        own = over(cells, (2, 2, 2), counted=counted, spreads=np.zeros(3), squared=np.array([0.0, squared, 0.0]))
        return float(variances(own, agree, np.full(1, 2.0))[0])

    factor = 1 / (1 - 0.36 / (1 + cells_of_rows._RIDGE))
    trends = over(cells, (2, 2, 2), counted=some, spreads=np.zeros(3), squared=np.ones(3))._trends
    assert [trends[pair].rho[0, 0] for pair in every] == pytest.approx([1, factor, 1], rel=1e-3)
    trend = variance(0.01, every) - variance(0.0, every)
    assert trend > 0.005 and variance(0.01, some) - variance(0.0, some) == pytest.approx(factor**2 * trend, rel=1e-3)


def test_what_rows_show_of_three_columns_through_a_fourth_may_not_be_so():
    """Columns 0 and 1 are even, 2 is whether both are 1 and 3 agrees with it in .8 of rows, as only (0, 1, 2) and (2, 3) show."""
    cells = np.array([(a, b, a * b, (a * b) ^ (k < 2)) for a in (0, 1) for b in (0, 1) for k in range(10)] * 20, dtype=np.int32).T
    own = over(cells, (2,) * 4, counted=((0, 1, 2), (2, 3)), spreads=np.zeros(6))
    assert [columns for columns, _ in own._directions] == [(0, 1, 3)]
    both = ((cells[0] == cells[1]) * 2.0 - 1)[:, None] * (2.0 * cells[3] - 1)[:, None]
    both -= both.mean()
    table = np.bincount(cells[0] * 4 + cells[1] * 2 + cells[3], minlength=8).reshape(2, 2, 2) / cells.shape[1]
    sums = [table.sum(axis=axis) for axis in (2, 1, 0)]
    pairs = {(0, 1): sums[0], (0, 2): sums[1], (1, 2): sums[2]}
    signs = np.array([[[a == b, a == b] for b in (0, 1)] for a in (0, 1)]) * 2 - 1
    shift = ((table - implied_by_pairs((0, 1, 2), pairs)) * signs * [-1, 1]).sum()
    assert abs(shift) > 0.05 and own._dependence(both / len(both))[1:].ravel() == pytest.approx(own.rows.hidden(3, {2}) * shift)
    known = replace(own, counted=((0, 1, 2, 3),))
    assert variances(own, both, np.full(1, 2.0)) >= variances(known, both, np.full(1, 2.0)) + 0.99 * shift**2
    drawn = np.array([float((both.T @ each.draws(400, np.random.default_rng(0))).var()) for each in (own, known)])
    assert drawn[0] > drawn[1] + 0.5 * shift**2
