"""Draws of the table for Rubin's rule, and replicate weights for a survey design: two kinds of sets, each for one rule alone.

    draws        m tables of N rows, each of which may be the private table. For Rubin's rule: Ū plus (1 + 1/m) B between tables.
    replicates   one set of rows with a weight, and R replicate weights, each a table of N rows from a draw of the table.

How they are made, and how often their intervals hold the truth: tutorials/derivations.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.error_model import fitted_model
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.expressions.arrays import numbers_of
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import systematic_indices

FEWEST_REPLICATES = 100
_RANGES = 16  # of a number by itself
_FREQUENT = 0.04  # share of a value that has a range of its own
# least shares of groups that are scores: the first with few enough products is taken
_SHARES = (0.05, 0.08, 0.11, 0.15, 0.2, 0.3)
_PRODUCTS_PER_ROW, _MOST_PRODUCTS = 0.1, 600
# ρ; with less for products of three, of which little may be known, rows could no longer have the errors of single columns
_OF_SHARES, _OF_PRODUCTS, _OF_TRIPLES = 0.001, 0.01, 0.3
_OF_POINTS = 0.2  # share of released points in the rows of a posterior that has others
_CONSTANT = 1e-9  # standard deviation relative to the largest value, below which values are constant
_MOST_STEPS, _SETTLED = 400, 2e-3  # of the gradient, relative to that at w = p


def draws(
    release: ReleaseData, m: int = 20, *, columns: Sequence[str] | None = None, rows: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> list[pd.DataFrame]:  # fmt: skip
    """m tables that the private one may have been, for Rubin's Ū + (1 + 1/m) B (`mice::pool`, Stata's `mi`).

    m        at least 2: the spread between tables is the error of privacy and resolution. Sampling is what Ū adds.
    columns  those that the analysis is about; all by default. Rows of all columns have less of the error of each relation, the
             more columns the less, and at ε = 0.1 slopes are then too narrow; what rests on three columns, an interaction a*b of
             a regression among it, has its error in rows of a few columns alone.
    rows     of each table; N, the private table's, by default. Rubin's rule is right for N alone.
    Errors   ValueError where nothing was measured: the noise is then unknown; KeyError of an unknown column.

    >>> tables = release.draws(2, columns=["age", "income"], rng=0)
    >>> len(tables), len(tables[0])
    (2, 6000)
    """
    if not is_whole(m, 2):
        raise ValueError(f"m must be at least 2, got {m!r:.80}: a whole number of tables, whose spread gives errors. Pass m=20.")
    if rows is not None and not is_whole(rows, 1):
        raise ValueError(f"rows must be at least 1, got {rows!r:.80}. Leave it out for as many as the private table has.")
    rng = np.random.default_rng(rng)
    frame, _, drawn, n = _drawn(release, m, columns, rng)
    codes = [pd.factorize(frame[name], sort=True)[0] for name in frame]
    order = np.lexsort(sorted(codes, key=lambda one: -len(np.unique(one))))  # neighbours are alike: fewest values first
    frame = frame.iloc[order]
    taken = [systematic_indices(one[order], rows or n, rng) for one in drawn.T]
    return [frame.iloc[rng.permutation(one)].reset_index(drop=True) for one in taken]


def replicates(
    release: ReleaseData, R: int = 100, *, columns: Sequence[str] | None = None,
    rng: np.random.Generator | int | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Rows with a column "weight" and R columns "replicate_1", … of replicate weights; each sums to N.

    For R's survey::svrepdesign(type = "other", scale = 1/R, rscales = 1, combined.weights = TRUE, mse = TRUE). Weights are not
    negative, as regression programs refuse negative ones; replicate weights are whole numbers. Rows of no weight in any column
    are left out.

    R        100 or more; with fewer a warning says what standard errors lose.
    columns  those that the analysis is about; all by default.
    Errors   ValueError where nothing was measured, or R < 2; KeyError of an unknown column.

    >>> release.replicates(100, columns=["age", "income"], rng=0).columns[-2:].tolist()
    ['replicate_99', 'replicate_100']
    """
    if not is_whole(R, 2):
        raise ValueError(
            f"R must be at least 2, got {R!r:.80}: a whole number of replicates, whose spread gives errors. Pass R=100."
        )
    if R < FEWEST_REPLICATES:
        warnings.warn(
            f"R = {R} replicates give standard errors that are off by ± {100 / np.sqrt(2 * R):.0f} %, and intervals need a t "
            f"distribution with {R - 1} degrees of freedom. Take R = {FEWEST_REPLICATES} or more.", stacklevel=2
        )  # fmt: skip
    rng = np.random.default_rng(rng)
    frame, weights, drawn, n = _drawn(release, R, columns, rng)
    counts = rng.multinomial(n, drawn.T).T
    columns = pd.DataFrame(counts, index=frame.index, columns=[f"replicate_{r + 1}" for r in range(R)])
    used = (weights > 0) | (counts > 0).any(axis=1)
    return pd.concat([frame.assign(weight=n * weights), columns], axis=1)[used].reset_index(drop=True)


def is_whole(number: object, least: int) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and bool(number >= least)


def _drawn(
    release: ReleaseData, k: int, columns: Sequence[str] | None, rng: np.random.Generator
) -> tuple[pd.DataFrame, Array, Array, int]:
    """Rows, their probabilities (n,), k draws of them (n, k) by privacy and resolution, and N.

    Rows of a few columns can have the errors of more questions about these than rows of all (`PositiveWeights`).
    """
    if release.measurement is None:
        raise ValueError(
            "draws are of what the measurement leaves open, and this release has none: its noise is unknown. Use a release as "
            "it was published, with its measurement."
        )
    model = fitted_model(release)
    deviations = model.deviations(k, rng)
    frame = model.frame[_names(release, columns)]
    n_first = len(model.weights)
    centre = np.append(model.weights, np.zeros(len(frame) - n_first))
    base = model.posterior.probabilities
    if not model.posterior.on_points:
        base = np.append((1 - _OF_POINTS) * base, _OF_POINTS * np.maximum(release.weights, 0.0))
        base /= base.sum()
    positive = PositiveWeights.of(frame, base, centre)
    nearest = positive.nearest(centre[:, None] + np.column_stack([np.zeros(len(centre)), deviations]))
    at, drawn = nearest[:, 0], nearest[:, 1:]
    # where weights are cut off at 0 the mean of draws is not the weights that they are around; drawn again around less of that
    drawn = positive.nearest((centre + at - drawn.mean(axis=1))[:, None] + deviations)
    return frame, at, drawn, release.measurement.n_rows


def _names(release: ReleaseData, columns: Sequence[str] | None) -> list[str]:
    """The columns that are drawn, in the release's order; an error where one is unknown or named twice, or none is named."""
    known = list(release.columns.names)
    if columns is None:
        return known
    if isinstance(columns, str) or not len(columns) or len(set(columns)) < len(columns):
        raise ValueError(
            f"columns must be a list of different columns, got {columns!r:.80}. Name each once, such as {known[:2]!r}, or leave "
            "it out for all."
        )
    return [known[j] for j in sorted(release.columns.position(name) for name in columns)]


# ---------------------------------------------------------------- weights of rows


@dataclass(frozen=True, eq=False)
class PositiveWeights:
    """Weights of rows in place of weights of either sign, with nearly the same answers.

    A draw of what a table's weights may be is normal, so that many of its weights are negative: all questions together have
    more error than a table of rows can have. What is kept are functions Ψ of mean 0 under the rows' probabilities p: shares of the
    groups of each column, over their square roots, and products of two columns' scores (numbers, or frequent groups), of variance
    1; of three columns', where these are few. With t their means under a draw, the weights w ≥ 0 minimise

        ½ Σ (w − p)²/p + ½ Σ_j (ψ_jᵀw − t_j)²/ρ_j,

    ρ_j = .001 for shares, .01 for products of two and .3 for those of three. The solution is w = p max(0, 1 + a + Ψβ), of a convex
    dual problem in (β, a), which Nesterov's steps of length 1 (2004), started anew where they overshoot (O'Donoghue & Candès 2015),
    solve in coordinates in which its curvature at w = p, nowhere exceeded, is the identity.
    Rows can depart from p by only so much (Σ (w − p)²/p is some 5 in practice, and a draw has .015 in each direction at N = 5,000
    and ε = 1): there are at most a tenth as many products as rows, of the most frequent groups, the most dependent.

    probabilities, features, ridge   p (n,), Ψ (n, G) and ρ (G,).
    """

    probabilities: Array
    features: Array
    ridge: Array

    @classmethod
    def of(cls, frame: pd.DataFrame, probabilities: Array, centre: Array) -> PositiveWeights:
        """The functions of a frame's columns; `centre` (n,) are weights that show, beside p, which columns depend on each other."""
        parts = column_shares(frame, probabilities), *products_of_scores(frame, probabilities, centre)
        ridge = np.repeat([_OF_SHARES, _OF_PRODUCTS, _OF_TRIPLES], [part.shape[1] for part in parts])
        return cls(probabilities, np.hstack(parts), ridge)

    def nearest(self, weights: Array) -> Array:
        """(n, k) probabilities with nearly the answers of weights (n, k), which sum to one."""
        root = 1 / np.sqrt(self.ridge)
        scaled = self.features * root
        mean = self.probabilities @ scaled
        covariance = (scaled.T * self.probabilities) @ scaled - np.outer(mean, mean)
        values, vectors = np.linalg.eigh(covariance + np.eye(len(root)))
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


def products_of_scores(frame: pd.DataFrame, weights: Array, centre: Array) -> tuple[Array, Array]:
    """(n, K) products of the scores of two columns, of mean 0 and variance 1: those that columns are most correlated in.

    And of three, (n, L), where these leave room, as they do for a few columns.
    """
    columns = [_scores(frame[name], weights) for name in frame]
    most = int(min(_PRODUCTS_PER_ROW * len(frame), _MOST_PRODUCTS))
    pairs = [each for own in combinations(_frequent(columns, weights, 2, most), 2) for each in product(*own)]
    if len(pairs) > most:
        related = [max(abs(float(one @ (a * b))) for one in (weights, centre)) for a, b in pairs]
        pairs = [pairs[i] for i in np.argsort(related)[::-1][:most]]
    room = most - len(pairs)
    scores = _frequent(columns, weights, 3, room) if room else []
    triples = [each for own in combinations(scores, 3) for each in product(*own)] if _count(scores, 3) <= room else []
    nothing = np.zeros((len(frame), 0))
    products = [[_standardised(np.prod(own, axis=0), weights) for own in each] for each in (pairs, triples)]
    return tuple(np.column_stack(each) if each else nothing for each in products)  # type: ignore[return-value]


def _frequent(columns: list[Any], weights: Array, order: int, most: int) -> list[list[Array]]:
    """Each column's numbers, and groups frequent enough for `most` products of so many columns, or else the most frequent."""
    for least in _SHARES:
        scores = [
            [*numbers, *(_standardised(one, weights) for one, share in groups if least < share < 1 - least)]
            for numbers, groups in columns
        ]
        if _count(scores, order) <= most:
            break
    return scores


def _count(scores: list[list[Array]], order: int) -> int:
    return sum(math.prod(map(len, own)) for own in combinations(scores, order))


def _scores(column: pd.Series, weights: Array) -> tuple[list[Array], list[tuple[Array, float]]]:
    """A column's numbers, and indicators of its groups, two ranges of a number, with their shares."""
    values, codes = as_number(column), _groups(column, weights, 2)
    shares = enumerate(np.bincount(codes, weights))
    groups = [((codes == code).astype(float), float(share)) for code, share in shares if share > 0]
    return [] if values is None else [_standardised(values, weights)], groups


def as_number(column: pd.Series) -> Array | None:
    is_bool, is_numeric = pd.api.types.is_bool_dtype(column), pd.api.types.is_numeric_dtype(column)
    return numbers_of(column) if column.dtype.kind == "M" or (is_numeric and not is_bool) else None


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
