"""Noisy tables smoothed by the distribution of their lifts, and projected to known margins."""

from __future__ import annotations

import numpy as np
from every import every
from scipy.optimize import minimize

from kmeanalyst.kernels.base import Array
from kmeanalyst.representation.tables.lifts import smoothed_tables, with_margins


def related_tables(count: int, strength: float, rng: np.random.Generator) -> tuple[list[Array], list[Array]]:
    """Tables (8, 8) of shares whose lifts have logarithms of about this standard deviation; and the products of their margins."""
    tables = []
    for _ in range(count):
        rows, columns = rng.dirichlet(np.full(8, 2.0)), rng.dirichlet(np.full(8, 2.0))
        table = np.outer(rows, columns) * np.exp(strength * rng.standard_normal((8, 8)))
        tables.append(table / table.sum())
    return tables, [np.outer(table.sum(axis=1), table.sum(axis=0)) for table in tables]


def errors(found: list[Array], tables: list[Array]) -> float:
    """The mean L1 distance."""
    return float(np.mean([np.abs(a - b).sum() for a, b in zip(found, tables, strict=True)]))


# largest error of the smoothed tables, relative to that of the noisy ones: twice what another seed gave
@every(("strength", "noise", "largest"), [(0.0, 0.003, 0.5), (0.0, 0.03, 0.2), (0.3, 0.01, 0.65), (1.0, 0.03, 0.6)])
def test_smoothed_tables_are_nearer_to_the_truth_than_noisy_ones(strength: float, noise: float, largest: float):
    rng = np.random.default_rng(0)
    tables, guesses = related_tables(20, strength, rng)
    noisy = [table + noise * rng.standard_normal(table.shape) for table in tables]
    smoothed = smoothed_tables(noisy, guesses, [noise] * 20)
    assert errors(smoothed, tables) < largest * errors(noisy, tables)
    assert min(table.min() for table in smoothed) >= 0


def test_smoothed_tables_are_nearer_to_the_truth_than_their_guesses():
    """The guess alone would be an estimate without noise: what was measured is used."""
    rng = np.random.default_rng(1)
    tables, guesses = related_tables(20, 1.0, rng)
    noisy = [table + 0.003 * rng.standard_normal(table.shape) for table in tables]
    assert errors(smoothed_tables(noisy, guesses, [0.003] * 20), tables) < 0.4 * errors(guesses, tables)


def nearest_table(table: Array, rows: Array, columns: Array) -> Array:
    """The exact projection: max(0, table + u_i + v_j), u and v by the dual problem, which is smooth and has no conditions."""

    def dual(uv: Array) -> tuple[float, Array]:
        u, v = uv[: len(rows)], uv[len(rows) :]
        x = np.maximum(table + u[:, None] + v, 0)
        return 0.5 * (x**2).sum() - u @ rows - v @ columns, np.concatenate([x.sum(1) - rows, x.sum(0) - columns])

    u, v = np.split(minimize(dual, np.zeros(sum(table.shape)), jac=True, method="BFGS", tol=1e-9).x, [len(rows)])
    return np.maximum(table + u[:, None] + v, 0)


def a_table(shape: tuple[int, ...], noise: float, rng: np.random.Generator) -> tuple[Array, Array]:
    table = rng.dirichlet(np.full(int(np.prod(shape)), 0.5)).reshape(shape)
    return table, table + noise * rng.standard_normal(shape)


@every("noise", [0.01, 0.03, 0.1])
def test_tables_with_margins_are_nearly_the_exact_projection(noise: float):
    rng = np.random.default_rng(0)
    for _ in range(5):
        table, noisy = a_table((3, 4), noise, rng)
        rows, columns = table.sum(axis=1), table.sum(axis=0)
        found, exact = with_margins(noisy, rows, columns), nearest_table(noisy, rows, columns)
        np.testing.assert_allclose(exact.sum(axis=1), rows, atol=1e-6)  # the reference meets its own conditions
        assert np.abs(found - exact).sum() < 1e-3 * np.abs(noisy - exact).sum()


@every("shape", [(2, 2), (3, 7), (12, 5), (1, 4)])
def test_margins_are_met_and_no_cell_is_negative(shape: tuple[int, int]):
    rng = np.random.default_rng(1)
    for _ in range(10):
        table, noisy = a_table(shape, 0.02, rng)
        noisy.flat[0] = -0.02
        found = with_margins(noisy, table.sum(axis=1), table.sum(axis=0))
        assert found.min() >= 0
        np.testing.assert_allclose(found.sum(axis=1), table.sum(axis=1), atol=1e-9)
        np.testing.assert_allclose(found.sum(axis=0), table.sum(axis=0), atol=1e-9)
