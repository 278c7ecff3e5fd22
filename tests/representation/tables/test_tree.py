"""A tree of columns: the heaviest one, its order, and the tables that it implies, against all trees and the whole joint table."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from every import every

from kmeanalyst.kernels.base import Array
from kmeanalyst.representation.tables.tree import Pair, Tree, implied_tables, spanning_tree

SIZES = (2, 3, 4, 2, 3)
EVERY_TREE = every("pairs", [[(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 1), (0, 2), (0, 3), (0, 4)], [(0, 3), (1, 3), (2, 4), (1, 4)]])


def spans(pairs: tuple[Pair, ...], n_columns: int) -> bool:
    reached = {0}
    for _ in range(n_columns):
        reached |= {k for pair in pairs if set(pair) & reached for k in pair}
    return len(reached) == n_columns


def worth_of(worth: Array, pairs: list[Pair] | tuple[Pair, ...]) -> tuple[int, float]:
    """What a tree is worth: first the number of pairs that can be had at all, then the sum of what they are worth."""
    own = [worth[i, j] for i, j in pairs]
    return sum(np.isfinite(own)), sum(each for each in own if np.isfinite(each))


@every("absent", [0.0, 0.5, 1.0])
@every("d", [1, 2, 3, 4, 5])
def test_no_tree_is_worth_more_than_the_spanning_tree(d: int, absent: float):
    rng = np.random.default_rng(d)
    for _ in range(8):
        worth = rng.normal(size=(d, d))
        worth[rng.random((d, d)) < absent] = -np.inf
        worth = np.minimum(worth, worth.T)
        found = spanning_tree(worth)
        every_tree = [pairs for pairs in combinations(combinations(range(d), 2), d - 1) if spans(pairs, d)]
        assert tuple(sorted(found)) in every_tree
        assert worth_of(worth, found) == pytest.approx(max(worth_of(worth, pairs) for pairs in every_tree))


def margin(joint: Array, *columns: int) -> Array:
    return joint.sum(axis=tuple(axis for axis in range(joint.ndim) if axis not in columns))


def joint_of_tree(joint: Array, tree: Tree) -> Array:
    """The joint table with the tree's own tables, in which each column depends on its parent alone."""
    d = joint.ndim
    found = np.ones_like(joint)
    for k in tree.order:
        columns = sorted({k, tree.parents[k]} - {-1})
        shape = [joint.shape[j] if j in columns else 1 for j in range(d)]
        found *= margin(joint, *columns).reshape(shape)
        if tree.parents[k] >= 0:
            above = [joint.shape[j] if j == tree.parents[k] else 1 for j in range(d)]
            found /= np.maximum(margin(joint, tree.parents[k]).reshape(above), 1e-300)
    return found


@EVERY_TREE
def test_implied_tables_are_the_margins_of_the_trees_joint_table(pairs: list[Pair]):
    """With a level that no row has, whose conditional distribution is not defined."""
    joint = np.random.default_rng(1).dirichlet(np.full(int(np.prod(SIZES)), 0.3)).reshape(SIZES)
    joint[:, 1] = 0.0
    joint /= joint.sum()
    tree, d = Tree.of(pairs, len(SIZES)), len(SIZES)
    own = {pair: margin(joint, *pair) for pair in pairs}
    found, expected = implied_tables(tree, own), joint_of_tree(joint, tree)
    assert set(found) == set(combinations(range(d), 2))
    for pair, table in found.items():
        np.testing.assert_allclose(table, margin(expected, *pair), atol=1e-14)
        if pair in own:
            np.testing.assert_array_equal(table, own[pair])
