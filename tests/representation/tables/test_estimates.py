"""Tables of all columns and pairs from a measurement of some, and rows that fit them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every import every
from kernel_cases import WORKERS
from kernel_cases import workers as people
from representation_cases import measured
from scipy.stats import multivariate_normal

from kmeanalyst.kernels import ChosenMargins
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.represent import rows_from_tables
from kmeanalyst.representation.tables.estimates import Observed, column_estimates, estimate_tables, smoothed_column
from kmeanalyst.representation.tables.ordered_pairs import Order, ordered_tables
from kmeanalyst.representation.tables.tree import Pair, Tree, implied_tables
from kmeanalyst.representation.wanted import Effort, Wanted

SIZES = (2, 4, 3, 5, 4)
LETTERS = Domain(tuple(
    Categorical(name="abcde"[j], levels=tuple("uvwxy"[:size])) for j, size in enumerate(SIZES)
))  # fmt: skip


def letters(n: int, rng: np.random.Generator) -> Array:
    """Encoded rows: b follows d, a and c follow b, and e is independent of all."""
    d = rng.integers(0, 5, n)
    b = np.where(rng.random(n) < 0.8, np.minimum(d, 3), rng.integers(0, 4, n))
    c = np.where(rng.random(n) < 0.7, b % 3, rng.integers(0, 3, n))
    a = rng.random(n) < np.where(b > 1, 0.8, 0.2)
    return np.column_stack([a, b, c, d, rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])]).astype(float)


ROWS = letters(20_000, np.random.default_rng(0))


def chosen_margins(domain: Domain, chosen: tuple[Pair, ...]) -> ChosenMargins:
    """One-way tables with 30 parts, those of pairs 50, finer ones 10."""
    base = margin_kernel(domain)
    counts = [len(domain), len(chosen), sum(map(bool, base.fine))]
    parts = np.array([30, 50, 10]) * (np.array(counts) > 0)
    squares: Any = tuple((float(part / parts.sum() / n),) * n if part else () for part, n in zip(parts, counts, strict=True))
    shares: Any = tuple(map(sum, squares))
    return ChosenMargins(base.edges, base.atoms, base.missing, shares, base.fine, chosen, squares)


def measurement_of(chosen: tuple[Pair, ...], noise_scale: float, seed: int = 0) -> Measurement:
    features = MarginFeatures(chosen_margins(LETTERS, chosen))
    return measured(features, ROWS, noise_scale=noise_scale, seed=seed)


def true_table(rows: Array, *columns: int) -> Array:
    """Shares of the rows in the cells of these columns of LETTERS."""
    counts = np.zeros([SIZES[j] for j in columns])
    np.add.at(counts, tuple(rows[:, j].astype(int) for j in columns), 1)
    return counts / len(rows)


def distance(a: Array, b: Array) -> float:
    return float(np.abs(a - b).sum())


CHAIN = ((1, 2), (1, 3), (0, 1))


def test_what_is_observed_are_shares_of_the_rows_with_their_variances():
    measurement = measurement_of(CHAIN, 1e-9)
    kernel, observed = measurement.feature_map.kernel, Observed.of(measurement)
    assert observed.sizes == SIZES and set(observed.pairs) == set(CHAIN)
    for pair, (table, variance) in observed.pairs.items():
        np.testing.assert_allclose(table, true_table(ROWS, *pair), atol=1e-6)
        assert variance == pytest.approx(1e-18 / kernel.squares[1][0])
    for j, (alone, variance) in enumerate(observed.ones):
        np.testing.assert_allclose(alone, true_table(ROWS, j), atol=1e-6)
        assert variance == pytest.approx(1e-18 / kernel.squares[0][0])


def test_versions_of_a_column_weigh_as_much_as_they_are_sure():
    """(0.6, 0.4) with variance 0.01, and (0.9, 0.1), the sums of two cells each, with 0.02: (2 · 0.6 + 0.9) / 3 = 0.7."""
    observed = Observed(
        sizes=(2, 2), ones=[(np.array([0.6, 0.4]), 0.01), (np.array([0.5, 0.5]), 0.01)],
        pairs={(0, 1): (np.array([[0.15, 0.75], [0.05, 0.05]]), 0.01)},
    )  # fmt: skip
    first, second = column_estimates(observed)
    np.testing.assert_allclose(first, [0.7, 0.3])
    np.testing.assert_allclose(second, [0.4, 0.6])


@every("noise", [1e-4, 0.01, 0.1])
def test_estimates_are_shares_that_agree(noise: float):
    found = estimate_tables(measurement_of(CHAIN, noise))
    assert len(found.pairs) == len(found.ones) * (len(found.ones) - 1) // 2
    for one in found.ones:
        assert one.sum() == pytest.approx(1) and one.min() >= 0
    for (i, j), table in found.pairs.items():
        assert table.min() >= 0
        np.testing.assert_allclose(table.sum(axis=1), found.ones[i], atol=1e-9)
        np.testing.assert_allclose(table.sum(axis=0), found.ones[j], atol=1e-9)


# over eight seeds the errors were 0.44 to 0.75 of those of the noisy tables, and 0.11 to 0.43 of those of independent columns
def test_measured_tables_are_nearer_to_the_truth_than_the_noisy_ones_and_than_independent_columns():
    ours = noisy = independent = 0.0
    for seed in range(4):
        measurement = measurement_of(CHAIN, 0.01, seed)
        found, observed = estimate_tables(measurement), Observed.of(measurement)
        assert found.measured == frozenset(observed.pairs)
        for (i, j), (table, _) in observed.pairs.items():
            truth = true_table(ROWS, i, j)
            ours += distance(found.pairs[i, j], truth)
            noisy += distance(table, truth)
            independent += distance(np.outer(found.ones[i], found.ones[j]), truth)
    assert ours < 0.8 * noisy and ours < 0.5 * independent


def test_the_tree_has_the_pairs_that_are_worth_most_and_implies_those_that_were_not_measured():
    """Of b's three relations, a weaker one of a larger table, and two pairs of unrelated columns; c and d are related by b."""
    found = estimate_tables(measurement_of((*CHAIN, (0, 3), (0, 4), (3, 4)), 0.003))
    assert set(CHAIN) < edges_of(found.tree) and len(edges_of(found.tree)) == 4
    implied = implied_tables(found.tree, found.pairs)
    for pair in ((2, 3), (0, 2), (2, 4)):
        np.testing.assert_allclose(found.pairs[pair], implied[pair], atol=1e-12)
    truth = true_table(ROWS, 2, 3)
    independent_columns = np.outer(truth.sum(axis=1), truth.sum(axis=0))
    assert distance(found.pairs[2, 3], truth) < 0.15 * distance(independent_columns, truth)


def test_further_pairs_are_smoothed_around_the_tree():
    """All pairs of b, c, d are measured: two are of the tree, and the third keeps what it says beyond them."""
    rows = ROWS.copy()
    rows[:, 2] = np.where(np.random.default_rng(1).random(len(rows)) < 0.4, rows[:, 3] % 3, rows[:, 2])
    features = MarginFeatures(chosen_margins(LETTERS, ((1, 2), (1, 3), (2, 3))))
    found = estimate_tables(measured(features, rows, noise_scale=0.001))
    implied = implied_tables(found.tree, found.pairs)
    (further,) = {(1, 2), (1, 3), (2, 3)} - edges_of(found.tree)
    truth = true_table(rows, *further)
    assert distance(found.pairs[further], truth) < 0.5 * distance(implied[further], truth)  # 0.24 to 0.40


def edges_of(tree: Tree) -> set[Pair]:
    return {(min(k, parent), max(k, parent)) for k, parent in enumerate(tree.parents) if parent >= 0}


@every(("noise", "largest"), [(0.0003, 0.08), (0.005, 0.4)])
def test_rows_have_the_relation_of_a_strong_pair(noise: float, largest: float):
    """Columns that were drawn independently would be at 0.9 from the table of b and d."""
    measurement = measurement_of(CHAIN, noise)
    seen_steps: set[str] = set()
    rows = rows_from_tables(
        measurement, LETTERS, Wanted(n_points=3000, effort=Effort(0.2)), lambda what, share: seen_steps.add(what),
    )  # fmt: skip
    assert seen_steps == {"moving rows"}
    assert rows.shape == (3000, 5)
    truth = true_table(ROWS, 1, 3)
    assert distance(np.outer(truth.sum(axis=1), truth.sum(axis=0)), truth) > 0.9
    assert distance(true_table(rows, 1, 3), truth) < largest
    for j in range(5):
        assert distance(true_table(rows, j), true_table(ROWS, j)) < 0.5 * largest


def test_rows_are_values_of_the_domain():
    """With numbers, an atom, missing cells and finer ranges."""
    table = WORKERS.encode(people(5000, np.random.default_rng(1)))
    features = MarginFeatures(chosen_margins(WORKERS, ((0, 2), (1, 2))))
    measurement = measured(features, table, noise_scale=0.003)
    rows = rows_from_tables(measurement, WORKERS, Wanted(n_points=1000, effort=Effort(0.1)))
    np.testing.assert_array_equal(WORKERS.encode(WORKERS.decode(rows)), rows)
    assert (rows[:, 0] == 40).mean() == pytest.approx((table[:, 0] == 40).mean(), abs=0.02)
    assert np.isnan(rows[:, 1]).mean() == pytest.approx(np.isnan(table[:, 1]).mean(), abs=0.02)
    assert rows[:, 3].mean() == pytest.approx(table[:, 3].mean(), abs=0.02)


def bell(cells: int) -> Array:
    """(cells,) shares that rise and fall along the cells."""
    shares = np.exp(-0.5 * np.linspace(-3, 3, cells) ** 2)
    return shares / shares.sum()


# over five seeds the errors were 0.41 to 0.48, and 0.26 to 0.33, of those of the noisy tables
@every(("noise", "largest"), [(0.03, 0.55), (0.1, 0.4)])
def test_a_smoothed_table_is_nearer_to_the_truth_where_noise_is_large(noise: float, largest: float):
    rng, table = np.random.default_rng(0), bell(30)
    noisy = [table + noise * rng.standard_normal(table.shape) for _ in range(6)]
    smoothed = [smoothed_column(each, noise**2) for each in noisy]
    ours, theirs = (sum(np.abs(each - table).sum() for each in found) for found in (smoothed, noisy))
    assert ours < largest * theirs
    assert all(each.min() > 0 and each.sum() == pytest.approx(1) for each in smoothed)


def test_neighbours_share_what_is_known_of_them():
    """The same numbers in an order without neighbours are smoothed less well: the walks use the order of the cells."""
    table = bell(30)
    order = np.random.default_rng(1).permutation(30)

    def error(shares: Array) -> float:
        draws = np.random.default_rng(2)
        noisy = [shares + 0.01 * draws.standard_normal(shares.shape) for _ in range(6)]
        return float(np.mean([np.abs(smoothed_column(each, 0.01**2) - shares).sum() for each in noisy]))

    assert error(table) < 0.75 * error(table[order])  # 0.57 to 0.60 over five seeds


EDGES = (-2.0, -1.2, -0.6, 0.0, 0.6, 1.2, 2.0)
RANKS = Order(np.arange(8.0), np.zeros(8, dtype=bool))
NONE = Order(None, np.zeros(8, dtype=bool))
NUMBERS = Domain((Real(name="x", lower=-4, upper=4, edges=EDGES), Real(name="y", lower=-4, upper=4, edges=EDGES)))


def normal_table(correlation: float) -> Array:
    """(8, 8) shares of the cells of two normal columns."""
    ends = np.concatenate([[-9.0], EDGES, [9.0]])
    law = multivariate_normal([0, 0], [[1, correlation], [correlation, 1]])
    below = np.array([[law.cdf([a, b]) for b in ends] for a in ends])
    return np.diff(np.diff(below, axis=0), axis=1).clip(0)


def slope(table: Array) -> float:
    """The correlation of the cells' numbers."""
    places = np.arange(8.0)
    rows, columns = (places - table.sum(axis=axis) @ places for axis in (1, 0))
    variances = (table.sum(axis=1) @ rows**2) * (table.sum(axis=0) @ columns**2)
    return float(rows @ table @ columns) / float(np.sqrt(variances))


def estimates(correlation: float, noise: float, orders: tuple[Order, Order], draws: int) -> list[Array]:
    """Ordered tables from noisy ones, around independence."""
    rng, truth = np.random.default_rng(1), normal_table(correlation)
    guess = np.outer(truth.sum(axis=1), truth.sum(axis=0))
    noisy = [truth + noise * rng.standard_normal((8, 8)) for _ in range(draws)]
    return ordered_tables(noisy, [guess] * draws, [noise] * draws, [orders] * draws)


@every("correlation", [0.0, -0.3, 0.6])
def test_a_relation_of_numbers_is_found_without_a_pull_towards_independence(correlation: float):
    """Noise of .004 in cells of .016 on average; the mean over 10 draws has a standard error of some .015."""
    truth = normal_table(correlation)
    found = estimates(correlation, 0.004, (RANKS, RANKS), 10)
    assert np.mean([slope(table) for table in found]) == pytest.approx(slope(truth), abs=0.04)
    distances = [np.abs(table - truth).sum() for table in found]
    assert np.mean(distances) < 0.5 * 0.8 * 0.004 * 64, "half of what noise alone is"
    for table in found:
        np.testing.assert_allclose(table.sum(axis=1), truth.sum(axis=1), atol=1e-3)
        assert table.min() >= 0


def test_columns_without_an_order_keep_their_guess():
    truth = normal_table(0.6)
    (found,) = estimates(0.6, 0.001, (NONE, NONE), 1)
    np.testing.assert_array_equal(found, np.outer(truth.sum(axis=1), truth.sum(axis=0)))
    (one,) = estimates(0.6, 0.001, (NONE, RANKS), 1)
    assert slope(one) == pytest.approx(slope(truth), abs=0.05)


def test_estimates_know_the_order_from_the_domain():
    """The same measurement, with and without it: cells smoothed one by one lose a third of the relation."""
    truth = normal_table(0.5)
    kernel = Margins((EDGES, EDGES), ((), ()), (False, False), (0.3, 0.7, 0))
    features = MarginFeatures(kernel)
    exact = np.concatenate([truth.sum(axis=1), truth.sum(axis=0), truth.ravel()])
    heights = np.repeat(features.heights, [8, 8, 64])
    without, with_order = [], []
    for seed in range(5):
        noise = 0.005 * np.random.default_rng(seed).standard_normal(80)
        measurement = Measurement(
            vector=exact * heights + noise, noise_scale=0.005, noise_law="gaussian", n_rows=1000, feature_map=features,
            noisy_sum=np.zeros(80, dtype=np.int64),
        )  # fmt: skip
        without.append(slope(estimate_tables(measurement).pairs[0, 1]))
        with_order.append(slope(estimate_tables(measurement, None, NUMBERS).pairs[0, 1]))
    assert np.mean(with_order) == pytest.approx(slope(truth), abs=0.06)
    assert np.mean(without) < np.mean(with_order) - 0.05


def test_a_table_with_nearly_everything_in_one_cell_is_no_singular_system():
    """Columns that hardly vary have functions that nearly repeat each other; unguarded, 5 of these 60 raise."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        columns = 8e-10 * rng.random(12) * (rng.random(12) < 0.6)
        columns[5] += 1 - columns.sum()
        guess = np.outer([1 - 1.4e-9, 1.4e-9], columns)
        noisy = guess + 3.6e-10 * rng.standard_normal(guess.shape)
        orders = Order(None, np.zeros(2, dtype=bool)), Order(np.arange(12.0), np.zeros(12, dtype=bool))
        assert np.isfinite(ordered_tables([noisy], [guess], [3.6e-10], [orders])[0]).all()
