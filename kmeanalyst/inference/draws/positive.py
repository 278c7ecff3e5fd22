"""Weights of rows in place of weights of either sign, with nearly the same answers.

A draw of what a table's weights may be is normal, so that many of its weights are negative: each question has its own error,
but all of them together are more than a table of rows can have. What is kept are functions Ψ, each of mean 0 under the rows' own
probabilities p, and most of them of variance near 1: the shares of the groups of each column, over their square roots, and
products of two columns' scores. A score is a number, or whether a cell is in a frequent group. With t the means of Ψ under a draw,
the weights w ≥ 0 minimise

    ½ Σ (w − p)²/p + ½ Σ_j (ψ_jᵀw − t_j)²/ρ_j,

ρ_j = .001 for shares and .01 for products. The solution is w = p max(0, 1 + a + Ψβ), of a convex dual problem in (β, a).
In coordinates in which its curvature at w = p is the identity it is nowhere more, so that Nesterov's gradient steps of length 1
(2004), started anew where they overshoot (O'Donoghue & Candès 2015), solve it for all draws at once.

Rows can depart from p by only so much: Σ (w − p)²/p is some 5 at most in practice, and a draw has .015 of it in each direction at
N = 5,000 and ε = 1. So there are at most a tenth as many products as rows: of the most frequent groups, and of these the most
dependent. Of fewer columns more of their products are kept, and these are closer to what they should be. Questions of other
functions keep what these explain of their error.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array

_RANGES = 16  # of a number by itself
_FREQUENT = 0.04  # share of a value that has a range of its own
_SHARES = (
    0.05,
    0.08,
    0.11,
    0.15,
    0.2,
    0.3,
)  # least shares of groups that are scores: the first with few enough products
_PRODUCTS_PER_ROW, _MOST_PRODUCTS = 0.1, 600
_OF_SHARES, _OF_PRODUCTS = 0.001, 0.01  # ρ
_CONSTANT = 1e-9  # standard deviation relative to the largest value, below which values are constant
_MOST_STEPS, _SETTLED = 400, 2e-3  # of the gradient, relative to that at w = p


@dataclass(frozen=True, eq=False)
class PositiveWeights:
    """Rows of probabilities p (n,), the functions Ψ (n, G) of mean 0 that are kept, and their ρ (G,)."""

    probabilities: Array
    features: Array
    ridge: Array

    @classmethod
    def of(cls, frame: pd.DataFrame, probabilities: Array, centre: Array) -> PositiveWeights:
        """The functions of a frame's columns; `centre` (n,) are weights that show, beside p, which columns depend on each other."""
        shares, products = column_shares(frame, probabilities), products_of_scores(frame, probabilities, centre)
        ridge = np.repeat([_OF_SHARES, _OF_PRODUCTS], [shares.shape[1], products.shape[1]])
        return cls(probabilities, np.hstack([shares, products]), ridge)

    def nearest(self, weights: Array) -> Array:
        """(n, k) probabilities with nearly the answers of weights (n, k), which sum to one."""
        root = 1 / np.sqrt(self.ridge)
        scaled = self.features * root
        mean = self.probabilities @ scaled
        values, vectors = np.linalg.eigh(
            (scaled.T * self.probabilities) @ scaled - np.outer(mean, mean) + np.eye(len(root))
        )
        whiten = vectors / np.sqrt(values)
        missing = whiten.T @ (scaled.T @ weights - mean[:, None] * weights.sum(axis=0))
        return self._solved((scaled - mean) @ whiten, whiten.T @ whiten, missing)

    def _solved(self, along: Array, pull: Array, missing: Array) -> Array:
        """Weights (n, k) by the dual, of functions (n, G) with curvature I − pull at w = p, and what they should add (G, k)."""
        single, G, k = np.float32, len(pull) + 1, missing.shape[1]
        A = np.column_stack([np.ones(len(along)), along]).astype(single)
        M, b, p = np.zeros((G, G), single), np.zeros((G, k), single), self.probabilities[:, None].astype(single)
        M[1:, 1:], b[1:], b[0] = pull, missing, 1.0
        enough = _SETTLED * np.maximum(np.linalg.norm(b[1:], axis=0), _SETTLED)
        at, ahead = np.zeros_like(b), np.zeros_like(b)
        momentum: Array = np.ones(k, single)
        for _ in range(_MOST_STEPS):
            slope = A.T @ (p * np.maximum(1 + A @ ahead, 0)) - b + M @ ahead
            moved = ahead - slope - at
            over = (slope * moved).sum(axis=0) > 0
            momentum = np.where(over, 1, momentum).astype(single)
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            at = at + moved
            ahead = at + np.where(over, 0, (momentum - 1) / following).astype(single) * moved
            momentum = following
            if (np.linalg.norm(slope, axis=0) < enough).all():
                break
        w = self.probabilities[:, None] * np.maximum(1 + (A @ at).astype(float), 0.0)
        return w / w.sum(axis=0)


# ---------------------------------------------------------------- functions


def column_shares(frame: pd.DataFrame, weights: Array) -> Array:
    """(n, G) indicators of the groups of each column, less their shares, over the square roots of these."""
    found = []
    for name in frame:
        codes = _groups(frame[name], weights, _RANGES)
        shares = np.bincount(codes, weights)
        present = np.flatnonzero(shares > 0)
        found.append(((codes[:, None] == present) - shares[present]) / np.sqrt(shares[present]))
    return np.hstack(found)


def products_of_scores(frame: pd.DataFrame, weights: Array, centre: Array) -> Array:
    """(n, K) products of the scores of two columns, of mean 0 and variance 1: those that columns are most correlated in."""
    columns = [(_numbers(frame[name], weights), _indicators(frame[name], weights)) for name in frame]
    most = int(min(_PRODUCTS_PER_ROW * len(frame), _MOST_PRODUCTS))
    for least in _SHARES:
        scores = [
            [*numbers, *(_standardised(one, weights) for one, share in groups if least < share < 1 - least)]
            for numbers, groups in columns
        ]
        count = sum(len(a) * len(b) for a, b in combinations(scores, 2))
        if count <= most:
            break
    pairs = [(a, b) for first, second in combinations(scores, 2) for a in first for b in second]
    if len(pairs) > most:
        related = [max(abs(float(one @ (a * b))) for one in (weights, centre)) for a, b in pairs]
        pairs = [pairs[i] for i in np.argsort(related)[::-1][:most]]
    products = [_standardised(a * b, weights) for a, b in pairs]
    return np.column_stack(products) if products else np.zeros((len(frame), 0))


def _numbers(column: pd.Series, weights: Array) -> list[Array]:
    values = as_number(column)
    return [] if values is None else [_standardised(values, weights)]


def _indicators(column: pd.Series, weights: Array) -> list[tuple[Array, float]]:
    """Indicators of a column's groups, two ranges of a number, with their shares."""
    codes = _groups(column, weights, 2)
    shares = np.bincount(codes, weights)
    return [((codes == code).astype(float), float(share)) for code, share in enumerate(shares) if share > 0]


def as_number(column: pd.Series) -> Array | None:
    """A column's values as numbers, days of dates; None of any other kind."""
    if pd.api.types.is_datetime64_any_dtype(column):
        days = column.to_numpy().astype("datetime64[D]")
        return np.where(np.isnat(days), np.nan, days.astype("int64"))
    if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
        return None
    return column.to_numpy(dtype=float, na_value=np.nan)


def _groups(column: pd.Series, weights: Array, ranges: int) -> Array:
    """(n,) the group of each cell: a level, one of some ranges of numbers between quantiles, or missing."""
    values = as_number(column)
    if values is None or len(np.unique(values)) <= 2 * ranges:
        codes = pd.factorize(column, use_na_sentinel=False)[0]
        return np.asarray(codes, dtype=np.intp)
    there = np.isfinite(values)
    distinct, place = np.unique(values[there], return_inverse=True)
    shares = np.bincount(place, weights[there])
    shares = shares / shares.sum()
    frequent = np.flatnonzero(shares > _FREQUENT)
    ends = np.searchsorted(np.cumsum(shares), np.arange(1, ranges) / ranges)
    last = np.unique(np.concatenate([ends, frequent, frequent - 1]).clip(0))  # of each range
    return np.where(there, np.searchsorted(distinct[last], values), len(last) + 1)


def _standardised(values: Array, weights: Array) -> Array:
    """Of mean 0 and variance 1 under the weights; 0 where missing, and everywhere if the values are constant."""
    there = np.isfinite(values)
    known = weights * there
    filled = np.where(there, values, 0.0)
    centred = np.where(there, filled - known @ filled / max(known.sum(), 1e-300), 0.0)
    scale = np.sqrt(weights @ centred**2)
    return centred / scale if scale > _CONSTANT * np.abs(filled).max() else np.zeros_like(centred)
