"""A noisy table of two columns of which one has an order at least: what the order says of it, with few parameters.

log lift = Σ θ_kl P_k(i) Q_l(j), polynomials of the columns' normal scores (a level, an atom or a missing cell is a function of its
own), normal priors on θ, averaged by evidence.

Source   Goodman 1979, Simple models for the analysis of association in cross-classifications having ordered categories.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, softmax

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Ordinal
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.representation.tables.lifts import scaled_to

_DEGREE = 3  # of the polynomials
_SPREADS = (0.03, 0.1, 0.3, 0.9)  # prior standard deviations of the terms of the lowest degree
_BY_DEGREE = (0.1, 0.4)  # each further degree has this part of it
_MOST_TERMS, _MOST_CELLS = 60, 5000  # of a table; larger ones are left to their guess
_NEWTON_STEPS = 20
_ENOUGH = 1e-4  # of the loss, or of a step's length
_FURTHEST = 20.0  # log lift
_LEAST = 1e-4  # distance of a score's quantile from 0 and 1
_TINY, _ROUNDING = 1e-15, 1e-13


@dataclass(frozen=True)
class Order:
    """What is known of the order of a column's cells.

    rank      (a,) of each cell along the order; NaN for one that has no place there, such as a missing one. None without an order.
    special   (a,) whether the cell is a single value or a missing one, and may differ from its neighbours.
    """

    rank: Array | None
    special: Array

    def functions(self, shares: Array) -> tuple[Array, Array]:
        """Functions (a, p) of the cells, orthonormal under these shares and to 1, and their degrees (p,) less one."""
        shares = np.maximum(shares, _TINY) / np.maximum(shares, _TINY).sum()
        a = len(shares)
        own = np.eye(a)[:, self.special] if self.rank is not None else np.eye(a)[:, 1:]
        powers = np.zeros((a, 0)) if self.rank is None else _powers(self.rank, shares)
        degrees = np.concatenate([np.arange(powers.shape[1]), np.zeros(own.shape[1], dtype=int)])
        root = np.sqrt(shares)[:, None]
        q, r = np.linalg.qr(root * np.column_stack([np.ones(a), powers, own]))
        kept = np.abs(np.diag(r)[1:]) > 1e-6
        return (q / root)[:, 1 : len(r)][:, kept[: a - 1]], degrees[: len(r) - 1][kept]


def _powers(rank: Array, shares: Array) -> Array:
    placed = np.flatnonzero(~np.isnan(rank))
    order = placed[np.argsort(rank[placed], kind="stable")]
    part = shares[order] / shares[order].sum()
    scores = np.zeros(len(rank))
    scores[order] = ndtri(np.clip(np.cumsum(part) - part / 2, _LEAST, 1 - _LEAST))
    found = scores[:, None] ** np.arange(1, min(_DEGREE, len(order) - 1) + 1)
    found[np.isnan(rank)] = 0.0
    return found


def orders_of(domain: Domain, kernel: Margins) -> tuple[Order, ...]:
    return tuple(_order(domain, kernel, j) for j in range(len(kernel.edges)))


def _order(domain: Domain, kernel: Margins, j: int) -> Order:
    ranges, atoms = len(kernel.edges[j]) + 1, np.array(kernel.atoms[j])
    special = np.arange(kernel.sizes[j]) >= ranges
    if not isinstance(domain.columns[j], Number | Ordinal | Boolean):
        return Order(None, special)
    places = np.searchsorted(np.array(kernel.edges[j]), atoms, side="right").astype(float)
    return Order(np.concatenate([np.arange(ranges), places, [np.nan] * kernel.missing[j]]), special)


def ordered_tables(
    noisy: Sequence[Array], guesses: Sequence[Array], noise: Sequence[float], orders: Sequence[tuple[Order, Order]]
) -> list[Array]:
    """Each table (a, b) of shares as its columns' orders explain it, with the margins of its guess.

    noisy, guesses   with normal noise of one deviation a table; guesses without an order, or of too many terms, are returned as
                     they are.
    orders           of the rows and of the columns.
    """
    found = []
    for table, guess, deviation, own in zip(noisy, guesses, noise, orders, strict=True):
        some = any(order.rank is not None for order in own) and guess.size <= _MOST_CELLS
        found.append(_moved(table, guess, deviation, own) if some else guess)
    return found


def _moved(noisy: Array, guess: Array, noise: float, orders: tuple[Order, Order]) -> Array:
    (rows, of_rows), (columns, of_columns) = (
        order.functions(guess.sum(axis=axis)) for order, axis in zip(orders, (1, 0), strict=True)
    )
    if not 0 < rows.shape[1] * columns.shape[1] <= _MOST_TERMS:
        return guess
    terms = np.einsum("ik,jl->klij", rows, columns).reshape(-1, *guess.shape)
    degrees = np.add.outer(of_rows, of_columns).ravel()
    tables, evidences = zip(*_fits(noisy, guess, noise, terms, degrees), strict=True)
    return np.tensordot(softmax(evidences), np.array(tables), 1)


def _fits(noisy: Array, guess: Array, noise: float, terms: Array, degrees: Array) -> Iterator[tuple[Array, float]]:
    for by_degree in _BY_DEGREE:
        start = np.zeros(len(terms))
        for spread in _SPREADS:
            precision = (spread * by_degree**degrees) ** -2.0
            table, start, evidence = _most_plausible(noisy, guess, noise, terms, precision, start)
            yield table, evidence


def _most_plausible(
    noisy: Array, guess: Array, noise: float, terms: Array, precision: Array, start: Array
) -> tuple[Array, Array, float]:
    """The table, its parameters and the evidence by Laplace's approximation; by damped Gauss-Newton steps."""

    def loss_at(theta: Array) -> tuple[float, Array]:
        lifts = np.exp(np.clip(np.tensordot(theta, terms, 1), -_FURTHEST, _FURTHEST))
        table = scaled_to(guess * lifts, guess.sum(axis=1), guess.sum(axis=0))
        return 0.5 * float(((noisy - table) ** 2).sum() / noise**2 + precision @ theta**2), table

    theta, (loss, table) = start, loss_at(start)
    for _ in range(_NEWTON_STEPS):
        slopes = _slopes(table, terms)
        curvature = slopes @ slopes.T / noise**2 + np.diag(precision)
        curvature[np.diag_indices_from(curvature)] += _ROUNDING * np.trace(curvature)
        step = np.linalg.solve(curvature, slopes @ (table - noisy).ravel() / noise**2 + precision * theta)
        length, before, (tried, moved) = 1.0, loss, loss_at(theta - step)
        while tried > loss and length > _ENOUGH:
            length /= 2
            tried, moved = loss_at(theta - length * step)
        if length > _ENOUGH:
            theta, loss, table = theta - length * step, tried, moved
        if before - loss < _ENOUGH * (1 + abs(loss)):
            break
    evidence = -loss - 0.5 * float(np.linalg.slogdet(curvature)[1] - np.log(precision).sum())
    return table, theta, evidence


def _slopes(table: Array, terms: Array) -> Array:
    """(terms, a·b) derivatives of a table with fixed margins in its parameters."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    system = np.block([[np.diag(rows), table], [table.T, np.diag(columns)]]) + _TINY * np.eye(sum(table.shape))
    system[: len(rows), : len(rows)] += np.outer(rows, rows)  # one function of the rows is one of the columns too: 1
    weighted = table * terms
    sums = np.hstack([weighted.sum(axis=2), weighted.sum(axis=1)])
    of_margins = np.linalg.solve(system, sums.T).T
    own, other = of_margins[:, : len(rows), None], of_margins[:, None, len(rows) :]
    return (table * (terms - own - other)).reshape(len(terms), -1)
