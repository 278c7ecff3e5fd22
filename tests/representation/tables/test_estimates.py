"""Tables of all columns and pairs from a measurement of some, and rows that fit them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every import every
from kernel_cases import WORKERS
from kernel_cases import workers as people
from representation_cases import measured

from kmeanalyst.kernels import ChosenMargins
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables.estimates import Observed, column_estimates, estimate_tables
from kmeanalyst.representation.tables.rows_from_tables import rows_from_tables
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
    squares: Any = tuple(
        (float(part / parts.sum() / n),) * n if part else () for part, n in zip(parts, counts, strict=True)
    )
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
