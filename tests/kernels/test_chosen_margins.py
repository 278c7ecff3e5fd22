"""Margins of chosen pairs with a height for each table: their features, what they are refused for, and their header."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import refusals
from contracts import every
from kernel_cases import WORKERS as PEOPLE
from kernel_cases import workers as people

from kmeanalyst.kernels import ChosenMargins, Margins, kernel_from_dict
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel


def increasing(rng: np.random.Generator, count: int) -> tuple[float, ...]:
    return tuple(sorted(rng.choice(np.arange(-20, 20), count, replace=False) / 8))


def random_kernel(seed: int) -> ChosenMargins:
    """Of 1 to 5 columns, atoms, missing cells, finer ranges, pairs, larger sets, sets of finer cells and shares of 0."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    edges = tuple(increasing(rng, int(rng.integers(0, 4))) for _ in range(d))
    finer = [tuple(sorted({*increasing(rng, int(rng.integers(0, 5))), *own[: 9 * (rng.random() < 0.8)]})) for own in edges]
    fine = tuple(own if rng.random() < 0.5 else () for own in finer)
    pairs: list[tuple[int, ...]] = [pair for pair in combinations(range(d), 2) if rng.random() < 0.5]
    rng.shuffle(pairs)
    pairs += [each for n in (3, 4) for each in combinations(range(d), n) if rng.random() < 0.4]
    deeper = tuple((j, (*fine[j], 9.0)) for j in range(d) if fine[j] and rng.random() < 0.5)
    column = [*range(d), *(j for j in range(d) if fine[j]), *(j for j, _ in deeper)]
    sets = [own for n in (2, 3) for own in combinations(range(len(column)), n) if max(own) >= d and rng.random() < 0.3]
    within = {t for t, j in enumerate(column) if t < d or {*edges[j]} <= {*fine[j]}}
    crossed = [own for own in sets if len({column[t] for t in own}) == len(own) and {*own} <= within]
    crossed = [tuple(sorted(own, key=lambda t: column[t])) for own in crossed]
    counts = [d, len(pairs), len(column) - d + len(crossed)]
    wanted = [rng.dirichlet(np.ones(n)) * rng.uniform(0.1, 1) if n and rng.random() < 0.8 else [] for n in counts]
    squares = wanted if any(map(len, wanted)) else [np.ones(d), [], []]
    total = sum(map(sum, squares))
    parts: Any = tuple(tuple(float(square) / total for square in each) for each in squares)
    shares: Any = tuple(sum(each) for each in parts)
    return ChosenMargins(
        edges=edges,
        atoms=tuple(increasing(rng, int(rng.integers(0, 3))) for _ in range(d)),
        missing=tuple((rng.random(d) < 0.5).tolist()), shares=shares, fine=fine, chosen=tuple(pairs),
        squares=parts, deeper=deeper, crossed=tuple(crossed) if parts[2] else (),
    )  # fmt: skip


def rows_of(kernel: Margins, n: int, seed: int = 0) -> Array:
    """Rows (n, d) with values at edges and atoms, and missing ones."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-24, 24, (n, len(kernel.edges))) / 8
    return np.where((rng.random(rows.shape) < 0.2) & np.array(kernel.missing), np.nan, rows)


@every(range(25), of="seed")
def test_the_kernel_is_the_inner_product_of_features_that_are_counted_before_any_is_made(seed: int):
    """With cells of many rows found table by table as of few rows, which are found all at once; and a header gives it back."""
    kernel, rng = random_kernel(seed), np.random.default_rng(seed)
    X, Y, features = rows_of(kernel, 1200), rows_of(kernel, 30, 1), MarginFeatures(kernel)
    few = [features.cell_indices(X[start : start + 100]) for start in range(0, 1200, 100)]
    np.testing.assert_array_equal(features.cell_indices(X), np.hstack(few))
    X, u, v = X[:25], rng.normal(size=25), rng.normal(size=30)
    np.testing.assert_allclose(kernel.gram(X, Y), features(X) @ features(Y).T, atol=1e-12)
    np.testing.assert_array_equal(features.gram(X, Y), kernel.gram(X, Y))
    np.testing.assert_allclose(np.diag(kernel.gram(X, X)), 1, atol=1e-9)
    assert kernel.mean_product(X, u, Y, v) == pytest.approx(u @ kernel.gram(X, Y) @ v, abs=1e-9)
    assert kernel.n_cells == features.dimension
    fine_cells, cells = kernel.fine_cells(X), kernel.cells(X)
    for i, j in enumerate(kernel.finer):
        agree = kernel.coarser(len(kernel.edges) + i)[fine_cells[:, i]] == cells[:, j]
        assert agree.all() or not kernel.is_within(len(kernel.edges) + i)
    assert kernel.n_tables == features.width == sum(map(len, kernel.squares))
    np.testing.assert_allclose(features.heights, np.sqrt(np.concatenate(kernel.squares)))
    again = kernel_from_dict(json.loads(json.dumps(kernel.to_dict())))
    assert again == kernel and type(again) is ChosenMargins


def test_all_pairs_with_equal_heights_are_the_margins():
    all_pairs = margin_kernel(PEOPLE)
    chosen = ChosenMargins(
        edges=all_pairs.edges, atoms=all_pairs.atoms, missing=all_pairs.missing, shares=all_pairs.shares,
        fine=all_pairs.fine, chosen=all_pairs.pairs, squares=all_pairs.squared_heights,
    )  # fmt: skip
    rows = PEOPLE.encode(people(60, np.random.default_rng(1)))
    np.testing.assert_allclose(chosen.gram(rows, rows), all_pairs.gram(rows, rows), atol=1e-12)
    np.testing.assert_array_equal(MarginFeatures(chosen)(rows), MarginFeatures(all_pairs)(rows))
    assert chosen != all_pairs and chosen.n_cells == all_pairs.n_cells and chosen.n_tables == all_pairs.n_tables


@pytest.mark.parametrize("chosen", [((0, 1), (1, 2)), ((1, 2), (0, 1)), ((2, 3), (0, 2, 3))])
def test_the_mean_feature_holds_the_tables_of_the_chosen_sets_in_their_order(chosen: tuple[tuple[int, ...], ...]):
    """Against numpy's histograms, each in units of its own height."""
    base = margin_kernel(PEOPLE)
    squares: Any = ((0.1,) * 4, (0.5, 0.1), ())
    shares: Any = tuple(map(sum, squares))
    kernel = ChosenMargins(base.edges, base.atoms, base.missing, shares, base.fine, chosen=chosen, squares=squares)
    rows = PEOPLE.encode(people(300, np.random.default_rng(2)))
    cells, mean = kernel.cells(rows), MarginFeatures(kernel)(rows).mean(axis=0)
    start = sum(kernel.sizes)
    for own, square in zip(chosen, squares[1], strict=True):
        shape = [kernel.sizes[j] for j in own]
        found = mean[start : start + math.prod(shape)].reshape(shape) / np.sqrt(square)
        counts, _ = np.histogramdd(cells[:, own], [np.arange(size + 1) - 0.5 for size in shape])
        np.testing.assert_allclose(found * 300, counts, atol=1e-9)
        start += math.prod(shape)
    assert start == len(mean)


PARTS: dict[str, Any] = {
    "edges": ((0.5,), (1.0, 2.0), ()), "atoms": ((), (), (0.0,)), "missing": (False, True, False),
    "shares": (0.6, 0.4, 0), "chosen": ((0, 2),), "squares": ((0.3, 0.2, 0.1), (0.4,), ()),
}  # fmt: skip


def test_what_is_no_kernel_of_chosen_margins_is_refused():
    refusals.check(
        Path(__file__).parent / "refusals_chosen_margins.txt", lambda text: ChosenMargins(**(PARTS | eval(text, globals())))
    )
