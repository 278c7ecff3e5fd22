"""Rows of cells: drawn evenly from a tree, then moved until all pairs' tables fit."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from every import every

from kmeanalyst.kernels.base import Array
from kmeanalyst.representation.tables.estimates import TableEstimates
from kmeanalyst.representation.tables.even_rows import draw_cells, move_cells
from kmeanalyst.representation.tables.tree import Pair, Tree

SIZES = (3, 4, 2, 5)
STAR, CHAIN, BACKWARDS = [(0, 1), (0, 2), (0, 3)], [(0, 1), (1, 2), (2, 3)], [(0, 3), (1, 3), (1, 2)]
EVERY_TREE = every("pairs", [STAR, CHAIN, BACKWARDS])
EVERY_TARGET = every("values", [1, 2])


def estimates_of(
    joint: Array, pairs: list[Pair], measured: frozenset[Pair] = frozenset(combinations(range(4), 2))
) -> TableEstimates:
    """All tables of a joint table (Y, *SIZES), without error."""
    axes, every = set(range(1, joint.ndim)), list(combinations(range(joint.ndim - 1), 2))
    ones = [joint.sum(axis=tuple(axes - {j + 1})) for j in range(joint.ndim - 1)]
    tables = {(i, j): joint.sum(axis=tuple(axes - {i + 1, j + 1})) for i, j in every}
    return TableEstimates(joint.sum(axis=tuple(axes)), ones, tables, measured, Tree.of(pairs, len(ones)))


def joint_table(values: int, seed: int = 0, evenness: float = 0.2) -> Array:
    shares = np.random.default_rng(seed).dirichlet(np.full(values * int(np.prod(SIZES)), evenness))
    return shares.reshape(values, *SIZES)


def counted(target: Array, cells: Array, estimates: TableEstimates) -> dict[Pair, Array]:
    """The number of rows in each cell of each pair's table."""
    found = {pair: np.zeros(table.shape) for pair, table in estimates.pairs.items()}
    for (i, j), counts in found.items():
        np.add.at(counts, (target, cells[:, i], cells[:, j]), 1)
    return found


@EVERY_TREE
@EVERY_TARGET
def test_drawn_rows_meet_the_trees_conditional_distributions_to_one_row(pairs: list[Pair], values: int):
    """Of the rows with a value of the target and of the parent, each value of a column has its share, but for one row."""
    estimates = estimates_of(joint_table(values), pairs)
    target, cells = draw_cells(estimates, 997, np.random.default_rng(0))
    assert target.shape == (997,) and cells.shape == (997, 4)
    assert np.abs(np.bincount(target, minlength=values) - 997 * estimates.target).max() <= 1
    root = np.zeros((values, SIZES[0]))
    np.add.at(root, (target, cells[:, 0]), 1)
    expected = estimates.ones[0] / estimates.ones[0].sum(axis=1, keepdims=True) * root.sum(axis=1, keepdims=True)
    assert np.abs(root - expected).max() <= 1 + 1e-9
    counts = counted(target, cells, estimates)
    for k in estimates.tree.order[1:]:
        parent = estimates.tree.parents[k]
        pair = min(parent, k), max(parent, k)
        found, table = (each[pair] if parent < k else each[pair].swapaxes(1, 2) for each in (counts, estimates.pairs))
        share = table / np.maximum(table.sum(axis=2, keepdims=True), 1e-300)
        assert np.abs(found - share * found.sum(axis=2, keepdims=True)).max() <= 1 + 1e-9


def test_columns_with_one_parent_are_independent_given_it():
    """Each is in random order among the rows of a parent's value: else both would be drawn in one order."""
    joint = np.zeros((1, 2, 4, 2, 5))
    joint += 1 / joint.size
    target, cells = draw_cells(estimates_of(joint, STAR), 4000, np.random.default_rng(0))
    counts = counted(target, cells, estimates_of(joint, STAR))
    statistic = ((counts[1, 3] - 200) ** 2 / 200).sum()  # χ² of 12 degrees of freedom: above 50 with probability 1e-6
    assert statistic < 50


def test_a_value_without_a_table_of_its_own_is_drawn_from_the_column():
    """The tree's table has no rows of a = 1, which the column has: b is then drawn from its own table."""
    found = estimates_of(np.full((1, 2, 4), 1 / 8), [(0, 1)])
    found.pairs[0, 1][0, 1] = 0
    _, cells = draw_cells(found, 400, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(cells[cells[:, 0] == 1, 1]), [50] * 4)


def misfit(target: Array, cells: Array, estimates: TableEstimates, unmeasured: float = 0.1) -> float:
    """Σ weight · (difference)² over all cells of all pairs."""
    return sum(
        (1.0 if pair in estimates.measured else unmeasured)
        * float(((counts / len(cells) - estimates.pairs[pair]) ** 2).sum())
        for pair, counts in counted(target, cells, estimates).items()
    )


@EVERY_TARGET
@every("measured", [[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], [(0, 1), (2, 3)]])
def test_moved_rows_are_nearer_to_the_estimates(values: int, measured: list[Pair]):
    """From rows of the tree, which know nothing of the other pairs."""
    estimates = estimates_of(joint_table(values), CHAIN, frozenset(measured))
    target, cells = draw_cells(estimates, 2000, np.random.default_rng(0))
    given, of_target = cells.copy(), target.copy()
    moved = move_cells(estimates, target, cells, np.random.default_rng(1), sweeps=60)
    assert misfit(target, moved, estimates) < 0.25 * misfit(target, cells, estimates)  # 0.06 to 0.17
    np.testing.assert_array_equal(target, of_target)
    np.testing.assert_array_equal(cells, given)  # the rows that were given stay as they are
    assert moved.shape == cells.shape and moved.min() >= 0 and (moved.max(axis=0) < SIZES).all()
