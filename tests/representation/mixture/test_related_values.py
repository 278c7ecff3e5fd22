"""Values of numbers within cells: they follow the relation between cells, and cells keep theirs."""

from __future__ import annotations

import numpy as np
import pytest

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.representation.mixture.related_values import with_related_values
from kmeanalyst.representation.mixture.within_cells import FineRanges, rows_in_cells

N = 6000


def shuffled(x: Array, ranges: Array, rng: np.random.Generator) -> Array:
    """The values of each column, exchanged at random within each range: what independent draws would give."""
    found = x.copy()
    for j in range(x.shape[1]):
        for cell in np.unique(ranges[:, j]):
            rows = np.flatnonzero(ranges[:, j] == cell)
            found[rows, j] = x[rng.permutation(rows), j]
    return found


def correlated(rho: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Two skewed numbers whose ranks are those of normals with this correlation, and their ranges: three, and two."""
    x = np.exp(rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], N))
    return x, np.column_stack([np.digitize(x[:, 0], [0.6, 1.8]), np.digitize(x[:, 1], [1.0])])


@pytest.mark.parametrize("rho", [0.9, -0.7, 0.0])
def test_a_relation_between_ranges_is_continued_within_them(rho: float):
    rng = np.random.default_rng(0)
    x, ranges = correlated(rho, rng)
    drawn = shuffled(x, ranges, rng)
    found = with_related_values(drawn, ranges, ranges, rng)
    true, lost, kept = (np.corrcoef(np.log(each).T)[0, 1] for each in (x, drawn, found))
    assert abs(kept - true) < 0.04
    assert rho == 0 or abs(lost - true) > 0.15


def test_every_group_keeps_its_values():
    rng = np.random.default_rng(1)
    x, ranges = correlated(0.8, rng)
    x[:50, 1] = np.nan
    groups = 10 * ranges + rng.integers(0, 2, (N, 2))
    groups[:50, 1] = 99
    found = with_related_values(x, ranges, groups, rng)
    for j in range(2):
        for group in np.unique(groups[:, j]):
            own = groups[:, j] == group
            np.testing.assert_array_equal(np.sort(found[own, j]), np.sort(x[own, j]))
    assert np.isnan(found[:50, 1]).all() and np.isfinite(found[50:]).all()


def test_one_column_and_no_rows_are_left_as_they_are():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(5, 1))
    assert with_related_values(x, np.zeros((5, 1), int), np.zeros((5, 1), int), rng) is x
    assert with_related_values(np.empty((0, 2)), np.empty((0, 2), int), np.empty((0, 2), int), rng).shape == (0, 2)


def test_numbers_that_repeat_one_another_are_no_error():
    rng = np.random.default_rng(3)
    x = np.repeat(rng.random((200, 1)), 3, axis=1)
    ranges = np.floor(3 * x).astype(int)
    found = with_related_values(shuffled(x, ranges, rng), ranges, ranges, rng)
    assert np.corrcoef(found.T).min() > 0.95
    constant = np.column_stack([x[:, 0], np.full(200, 0.5)])
    assert np.isfinite(with_related_values(constant, np.zeros((200, 2), int), np.zeros((200, 2), int), rng)).all()


@pytest.mark.parametrize("target", [-1, 2])
def test_rows_in_cells_relate_numbers_and_stay_in_their_cells(target: int):
    domain = Domain((
        Real(name="x", lower=0, upper=1), Real(name="y", lower=0, upper=1, atoms=(0.5,)), Categorical(name="z", levels=("a", "b")),
    ))  # fmt: skip
    edges = tuple((i + 1) / 4 for i in range(3))
    shares = (0.5, 0, 0.5, 0, 0, 0) if target < 0 else (0.5, 0.5, 0, 0, 0, 0)
    kernel = Margins((edges, edges, (0.5,)), ((), (0.5,), ()), (False, False, False), shares, target)  # type: ignore[arg-type]
    rng = np.random.default_rng(4)
    first = rng.integers(0, 4, N)
    cells = np.column_stack([first, np.where(rng.random(N) < 0.1, 4, first), rng.integers(0, 2, N)])
    of_target = cells[:, 2] if target >= 0 else np.zeros(N, dtype=int)
    halves = np.tile(
        [[1.0, 0.0], [0.0, 1.0]], (1, 4)
    )  # finer ranges of x: the lower half of each cell, or the upper one
    fine = FineRanges(np.linspace(0, 1, 9), np.repeat(np.arange(4), 2), halves if target >= 0 else np.full((1, 8), 0.5))
    rows = rows_in_cells(kernel, domain, cells, of_target, {0: fine}, rng)
    np.testing.assert_array_equal(kernel.cells(rows), cells)
    if target >= 0:
        np.testing.assert_array_equal((8 * rows[:, 0]).astype(int) % 2, of_target)
    within = np.flatnonzero((first == 0) & (cells[:, 1] == 0) & (of_target == 0))
    assert np.corrcoef(rows[within, :2].T)[0, 1] > 0.5
