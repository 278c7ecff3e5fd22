"""A tree of columns, and what its tables imply for all pairs: columns are independent given those between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels.base import Array

Pair = tuple[int, int]
_TINY = 1e-15


def spanning_tree(worth: Array) -> list[Pair]:
    """The pairs (i, j), i < j, of the tree over all columns with the largest sum of `worth` (d, d) (Prim 1957)."""
    d = len(worth)
    best, parent, inside = worth[0].copy(), np.zeros(d, dtype=int), np.zeros(d, dtype=bool)
    inside[0] = True
    pairs = []
    for _ in range(d - 1):
        left = np.flatnonzero(~inside)
        new = int(left[best[left].argmax()])  # if no pair reaches it, by the pair with the first column
        pairs.append((min(new, int(parent[new])), max(new, int(parent[new]))))
        inside[new] = True
        nearer = worth[new] > best
        best, parent = np.where(nearer, worth[new], best), np.where(nearer, new, parent)
    return pairs


def connected_parts(pairs: list[Pair], n_columns: int) -> list[int]:
    """For each column the first of the columns that pairs connect it to.

    >>> connected_parts([(1, 3), (2, 4)], 5)
    [0, 1, 2, 1, 2]
    """
    part = list(range(n_columns))
    for i, j in pairs:
        first, second = sorted((part[i], part[j]))
        part = [first if own == second else own for own in part]
    return part


@dataclass(frozen=True)
class Tree:
    """Columns in an order in which each but the first comes after its parent.

    order     columns.
    parents   of each column by its number; −1 for the first one.
    """

    order: tuple[int, ...]
    parents: tuple[int, ...]

    @classmethod
    def of(cls, pairs: list[Pair], n_columns: int) -> Tree:
        near: list[list[int]] = [[] for _ in range(n_columns)]
        for i, j in pairs:
            near[i].append(j)
            near[j].append(i)
        order, parents = [0], [-1] * n_columns
        for k in order:
            for j in near[k]:
                if j != parents[k]:
                    parents[j] = k
                    order.append(j)
        return cls(tuple(order), tuple(parents))


def table_of(tables: dict[Pair, Array], i: int, j: int) -> Array:
    """(a, b) with i along a, whichever way it is kept."""
    return tables[i, j] if i < j else tables[j, i].T


def implied_tables(tree: Tree, tables: dict[Pair, Array]) -> dict[Pair, Array]:
    """The tables (a, b) of all pairs i < j under the tree, from its own."""
    found: dict[Pair, Array] = {}
    for n, k in enumerate(tree.order):
        parent = tree.parents[k]
        if parent < 0:
            continue
        own = table_of(tables, parent, k)
        given_parent = own / np.maximum(own.sum(axis=1, keepdims=True), _TINY)
        for j in tree.order[:n]:
            table = own if j == parent else table_of(found, j, parent) @ given_parent
            found[min(j, k), max(j, k)] = table if j < k else table.T
    return found
