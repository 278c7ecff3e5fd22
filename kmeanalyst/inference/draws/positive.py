"""Weights of rows in place of weights of either sign, with nearly the same answers.

A draw of what a table's weights may be is normal, so that many of its weights are negative: each question has its own error,
but all of them together are more than a table of rows can have. No table is negative, and a square of weights' relative
departures of κ for each of thousands of directions needs weights of both signs. What is kept are the shares of the groups
of each column and of each pair of columns, and means and products of numbers: with Ψ these functions and t their means
under a draw, the weights w ≥ 0 minimise

    ½ Σ (w − p)²/p + ½ ‖Ψᵀw − t‖²/ρ,

p the rows' own probabilities. The solution is w = p max(0, 1 + a + Ψβ), of a convex dual problem in (β, a), solved by L-BFGS.
ρ is the noise variance of a share relative to κ. Questions of three columns and more keep what their pairs explain of their error.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, hstack

from kmeanalyst.kernels.base import Array

_GROUPS = 24  # of a column, in pairs of columns
_RANGES, _RANGES_ALONE = 12, 48  # of a number, in pairs of columns and by itself
_FREQUENT = 0.04  # share of a value that has a range of its own
_MOST_PAIRS = 300  # of columns: those that depend on each other most
_MOST_STEPS, _REMEMBERED = 120, 20
_NOISE = 0.5  # ρ, in units of a share's mean variance over draws, relative to κ


@dataclass(frozen=True, eq=False)
class PositiveWeights:
    """Rows of probabilities p (n,), the functions Ψ (n, G) that are kept, and ρ."""

    probabilities: Array
    features: Any
    ridge: float

    @classmethod
    def of(cls, frame: pd.DataFrame, probabilities: Array, drawn: Array, spread: float) -> PositiveWeights:
        """The functions of a frame's columns, and ρ from draws (n, k) of either sign around a centre, and κ."""
        features = low_order_features(frame, probabilities)
        transposed = features.T.tocsr()
        shares, variances = transposed @ probabilities, (transposed @ drawn).var(axis=1)
        of_cells = shares > 0
        noise = float(shares[of_cells] @ variances[of_cells] / shares[of_cells].sum())
        return cls(probabilities, features, _NOISE * noise / spread)

    def nearest(self, weights: Array) -> Array:
        """(n, k) probabilities with nearly the answers of weights (n, k), which sum to one."""
        transposed = self.features.T.tocsr()
        mean = transposed @ self.probabilities
        return np.column_stack([self._nearest(transposed, mean, target) for target in (transposed @ weights).T])

    def _nearest(self, transposed: Any, mean: Array, target: Array) -> Array:
        p, features, ridge = self.probabilities, self.features, self.ridge
        missing = target - mean

        def dual(at: Array) -> tuple[float, Array]:
            beta, level = at[:-1], at[-1]
            ratio = np.maximum(1 + level + features @ beta - mean @ beta, 0.0)
            w = p * ratio
            slope = transposed @ w - mean * w.sum() - missing + ridge * beta
            return float(w @ ratio / 2 - missing @ beta - level + ridge * (beta @ beta) / 2), np.append(
                slope, w.sum() - 1
            )

        options = {
            "maxiter": _MOST_STEPS,
            "maxcor": _REMEMBERED,
            "maxfun": 2 * _MOST_STEPS,
            "ftol": 1e-13,
            "gtol": 1e-9,
        }
        found = minimize(dual, np.zeros(len(target) + 1), jac=True, method="L-BFGS-B", options=options).x
        w = p * np.maximum(1 + found[-1] + features @ found[:-1] - mean @ found[:-1], 0.0)
        return w / w.sum()


def low_order_features(frame: pd.DataFrame, weights: Array) -> Any:
    """(n, G) sparse: indicators of groups of columns and of pairs of columns; numbers, their squares and products."""
    alone = [_indicators(_groups(frame[name], weights, _RANGES_ALONE)) for name in frame]
    few = [_fewer(_groups(frame[name], weights, _RANGES), weights) for name in frame]
    pairs = sorted((_pair(a, b, weights) for a, b in combinations(few, 2)), key=lambda pair: -pair[0])
    together = [_indicators(cells) for _, cells in pairs[:_MOST_PAIRS]]
    return hstack([*alone, *together, csr_matrix(_numbers(frame, weights))]).tocsr()


def _indicators(codes: Array) -> Any:
    n = len(codes)
    return csr_matrix((np.ones(n), codes, np.arange(n + 1)), (n, int(codes.max()) + 1))


def _as_number(column: pd.Series) -> Array | None:
    """A column's values as numbers, days of dates; None of any other kind."""
    if pd.api.types.is_datetime64_any_dtype(column):
        days = column.to_numpy().astype("datetime64[D]")
        return np.where(np.isnat(days), np.nan, days.astype("int64"))
    if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
        return None
    return column.to_numpy(dtype=float, na_value=np.nan)


def _groups(column: pd.Series, weights: Array, ranges: int) -> Array:
    """(n,) the group of each cell: a level, one of some ranges of numbers between quantiles, or missing."""
    values = _as_number(column)
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


def _fewer(codes: Array, weights: Array) -> Array:
    """The groups with most weight, and one of all others."""
    shares = np.bincount(codes, weights)
    rank = np.empty(len(shares), dtype=np.intp)
    rank[np.argsort(-shares)] = np.arange(len(shares))
    return np.minimum(rank, _GROUPS - 1)[codes]


def _pair(a: Array, b: Array, weights: Array) -> tuple[float, Array]:
    """The pair's mean squared contingency plus 1 (Pearson 1904), and the cell of its table that each row is in."""
    size = int(b.max()) + 1
    cells = a * size + b
    table = np.bincount(cells, weights, minlength=(int(a.max()) + 1) * size).reshape(-1, size)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0))
    used = expected > 0
    return float((table[used] ** 2 / expected[used]).sum()), np.unique(cells, return_inverse=True)[1]


def _numbers(frame: pd.DataFrame, weights: Array) -> Array:
    """(n, ·) numbers, their squares and products: of mean 0 and variance 1 each, 0 where missing."""
    found = [values for name in frame if (values := _as_number(frame[name])) is not None]
    scaled = [_standardised(values, weights) for values in found][:_GROUPS]
    products = [_standardised(a * b, weights) for i, a in enumerate(scaled) for b in scaled[i:]]
    columns = [*scaled, *products]
    return np.column_stack(columns) if columns else np.zeros((len(frame), 0))


def _standardised(values: Array, weights: Array) -> Array:
    there = np.isfinite(values)
    known = weights * there
    filled = np.where(there, values, 0.0)
    centred = np.where(there, filled - known @ filled / max(known.sum(), 1e-300), 0.0)
    scale = np.sqrt(weights @ centred**2)
    return centred / scale if scale > 0 else centred
