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


def estimates_of(
    joint: Array, pairs: list[Pair], measured: frozenset[Pair] = frozenset(combinations(range(4), 2))
) -> TableEstimates:
    """All tables of a joint table (*SIZES), without error."""
    axes = set(range(joint.ndim))
    ones = [joint.sum(axis=tuple(axes - {j})) for j in range(joint.ndim)]
    tables = {(i, j): joint.sum(axis=tuple(axes - {i, j})) for i, j in combinations(range(joint.ndim), 2)}
    return TableEstimates(ones, tables, measured, Tree.of(pairs, len(ones)))


def joint_table(seed: int = 0, evenness: float = 0.2) -> Array:
    return np.random.default_rng(seed).dirichlet(np.full(int(np.prod(SIZES)), evenness)).reshape(SIZES)


def counted(cells: Array, estimates: TableEstimates) -> dict[Pair, Array]:
    """The number of rows in each cell of each pair's table."""
    found = {pair: np.zeros(table.shape) for pair, table in estimates.pairs.items()}
    for (i, j), counts in found.items():
        np.add.at(counts, (cells[:, i], cells[:, j]), 1)
    return found


@EVERY_TREE
def test_drawn_rows_meet_the_trees_conditional_distributions_to_one_row(pairs: list[Pair]):
    """Of the rows with a value of the parent, each value of a column has its share, but for one row."""
    estimates = estimates_of(joint_table(), pairs)
    cells = draw_cells(estimates, 997, np.random.default_rng(0))
    assert cells.shape == (997, 4)
    assert np.abs(np.bincount(cells[:, 0], minlength=SIZES[0]) - 997 * estimates.ones[0]).max() <= 1 + 1e-9
    counts = counted(cells, estimates)
    for k in estimates.tree.order[1:]:
        parent = estimates.tree.parents[k]
        pair = min(parent, k), max(parent, k)
        found, table = (each[pair] if parent < k else each[pair].T for each in (counts, estimates.pairs))
        share = table / np.maximum(table.sum(axis=1, keepdims=True), 1e-300)
        assert np.abs(found - share * found.sum(axis=1, keepdims=True)).max() <= 1 + 1e-9


def test_columns_with_one_parent_are_independent_given_it():
    """Each is in random order among the rows of a parent's value: else both would be drawn in one order."""
    joint = np.zeros((2, 4, 2, 5))
    joint += 1 / joint.size
    cells = draw_cells(estimates_of(joint, STAR), 4000, np.random.default_rng(0))
    counts = counted(cells, estimates_of(joint, STAR))
    statistic = ((counts[1, 3] - 200) ** 2 / 200).sum()  # χ² of 12 degrees of freedom: above 50 with probability 1e-6
    assert statistic < 50


def test_a_value_without_a_table_of_its_own_is_drawn_from_the_column():
    """The tree's table has no rows of a = 1, which the column has: b is then drawn from its own table."""
    found = estimates_of(np.full((2, 4), 1 / 8), [(0, 1)])
    found.pairs[0, 1][1] = 0
    cells = draw_cells(found, 400, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(cells[cells[:, 0] == 1, 1]), [50] * 4)


def misfit(cells: Array, estimates: TableEstimates, unmeasured: float = 0.1) -> float:
    """Σ weight · (difference)² over all cells of all pairs."""
    return sum(
        (1.0 if pair in estimates.measured else unmeasured) * float(((counts / len(cells) - estimates.pairs[pair]) ** 2).sum())
        for pair, counts in counted(cells, estimates).items()
    )


@every("measured", [[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], [(0, 1), (2, 3)]])
def test_moved_rows_are_nearer_to_the_estimates(measured: list[Pair]):
    """From rows of the tree, which know nothing of the other pairs."""
    estimates = estimates_of(joint_table(), CHAIN, frozenset(measured))
    cells = draw_cells(estimates, 2000, np.random.default_rng(0))
    given = cells.copy()
    moved = move_cells(estimates, cells, np.random.default_rng(1), sweeps=60)
    assert misfit(moved, estimates) < 0.25 * misfit(cells, estimates)  # 0.06 to 0.17
    np.testing.assert_array_equal(cells, given)  # the rows that were given stay as they are
    assert moved.shape == cells.shape and moved.min() >= 0 and (moved.max(axis=0) < SIZES).all()
