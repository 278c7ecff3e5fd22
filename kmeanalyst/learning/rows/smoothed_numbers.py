"""Values of a number given other columns: means of even parts of the rows of a release whose predicted mean is alike.

A ridge regression of cells, and boosted trees of what it leaves over, predict the mean; rows are grouped by their sum (predictive
mean matching; Little 1988). Reasons: tutorials/derivations.md. What it gives is in tutorials/measured.md
(tests/benchmarks/numeric_targets.py).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.learning.rows.encoder import DomainEncoder
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.expressions.arrays import numbers_of
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import systematic_indices, view_weights

_MOST_ROWS = 50_000  # rows that models are fitted to
_MOST_ENTRIES = 5 * 10**7  # of the ridge regression's features: 400 MB
_PENALTY, _TREES, _LEAVES = 1.0, 150, 7
_LABELLED, _FEWEST, _MOST = 80_000, 2, 4  # values: about so many in all, and of a row at least and at most
_GROUPS = 1 / 3  # groups, times the root of the number of rows


@dataclass(frozen=True, eq=False)
class SmoothedNumbers:
    """Values of a number for frames in natural units: see `fit_smoothed_numbers`.

    linear  of the number in encoded units, and `boosted` of what it leaves over.
    ends    (G − 1,) of predicted means, in encoded units, between groups.
    values  (G, K) means of K even parts of each group's values, ascending, in natural units (dates in days since 1970-01-01).
    """

    columns: Domain
    linear: Ridge
    boosted: HistGradientBoostingRegressor
    ends: Array
    values: Array

    def values_of(self, X: pd.DataFrame) -> Array:
        """(n, K) values, equally probable, that each row can have."""
        means = _means(self.linear, self.boosted, linear_features(self.columns, X), tree_features(self.columns, X))
        return np.asarray(self.values[np.searchsorted(self.ends, means, side="right")])

    def labels_of(self, X: pd.DataFrame) -> tuple[Array, Array, Array]:
        """Each value that each row can have: the row's index (m,), ascending, the value, and its probability given the row."""
        values = self.values_of(X)
        n, K = values.shape
        return np.repeat(np.arange(n), K), values.ravel().astype(float), np.full(values.size, 1 / K)


def check_measured(release: ReleaseData, target: str) -> None:
    """ValueError with the reason where no table of the target was measured."""
    if release.measurement is None:
        raise ValueError("there is no measurement")
    if not isinstance(release.measurement.feature_map, MarginFeatures):
        raise ValueError("no tables were measured")
    if target not in release.domain.names:
        raise ValueError("it was not measured, but computed")


def fit_smoothed_numbers(release: ReleaseData, target: str, predictors: Collection[str] = ()) -> SmoothedNumbers:
    """The values that a number can have given other columns; deterministic.

    predictors  the columns that a model will see: values given more than these would vary among rows that are alike to it.
                Where none are named, or some were computed, all others but texts.
    Errors  ValueError with the reason where this is not a measured number, or no row or other column has something to learn from.
    """
    check_measured(release, target)
    if not isinstance(release.domain[target], Number):
        raise ValueError(f"it is a {release.domain[target].kind}")
    if not _others(release, target, ()).columns:
        raise ValueError("there is no other column")
    columns, position = _others(release, target, predictors), release.domain.position(target)
    width = len(linear_features(columns, release.frame.iloc[:1]).columns)
    chosen, weights, _ = known_rows(release, position, min(_MOST_ROWS, _MOST_ENTRIES // width))
    frame, y = release.frame.iloc[chosen], release.encoded_points[chosen, position]
    X, codes = linear_features(columns, frame), tree_features(columns, frame)
    linear = Ridge(alpha=_PENALTY).fit(X, y, sample_weight=weights)
    boosted = HistGradientBoostingRegressor(
        max_iter=_TREES, max_leaf_nodes=_LEAVES, l2_regularization=10.0, early_stopping=False, random_state=0
    ).fit(codes, y - linear.predict(X), sample_weight=weights)
    means = _means(linear, boosted, X, codes)
    parts = int(np.clip(_LABELLED // len(release), _FEWEST, _MOST))
    ends, values = _grouped(means, numbers_of(frame[target]), y, weights, parts)
    return SmoothedNumbers(columns, linear, boosted, ends, values)


def _others(release: ReleaseData, target: str, predictors: Collection[str]) -> Domain:
    names = release.domain.names
    used = set(predictors) if predictors and set(predictors) <= set(names) else set(names)
    return Domain(tuple(
        column for column in release.domain.columns if column.name in used - {target} and not column.is_text
    ))  # fmt: skip


def known_rows(release: ReleaseData, position: int, most: int) -> tuple[Array, Array, float]:
    """Indices of at most so many rows of the probability view that have a value of the column, their weights, of mean 1, and
    the share of the population that has one.
    """
    weights = view_weights(release, "probability")
    known = np.flatnonzero((weights > 0) & ~np.isnan(release.encoded_points[:, position]))
    if not len(known):
        raise ValueError("no row has a value of it, so there is nothing to learn. Take another target.")
    share = float(weights[known].sum())
    if len(known) > most:
        return known[systematic_indices(weights[known] / share, most)], np.ones(most), share
    return known, weights[known] / weights[known].mean(), share


def _means(linear: Any, boosted: Any, X: pd.DataFrame, codes: pd.DataFrame) -> Array:
    return np.asarray(linear.predict(X) + boosted.predict(codes))


def _grouped(means: Array, cells: Array, y: Array, weights: Array, parts: int) -> tuple[Array, Array]:
    """Ends of groups of equal weight by predicted mean, and the means of even parts of each group's cells.

    cells   (n,) in natural units, of which y (n,) is the order.
    """
    count = max(int(_GROUPS * np.sqrt(len(means))), 1)
    order = np.argsort(means, kind="stable")
    reached = np.cumsum(weights[order])
    group = np.minimum((reached - weights[order] / 2) * count / reached[-1], count - 1).astype(int)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    ends = (means[order][starts[1:]] + means[order][starts[1:] - 1]) / 2
    return ends, np.array([
        _means_of_parts(cells[rows], y[rows], weights[rows], parts) for rows in np.split(order, starts[1:])
    ])  # fmt: skip


def _means_of_parts(cells: Array, y: Array, weights: Array, parts: int) -> Array:
    """(parts,) means of cells in even parts of the weight, in the order of y; a cell between two parts is in both."""
    order = np.argsort(y, kind="stable")
    reached = np.append(0.0, np.cumsum(weights[order]))
    sums = np.append(0.0, np.cumsum(weights[order] * cells[order]))
    ends = np.linspace(0, reached[-1], parts + 1)
    return np.asarray(np.diff(np.interp(ends, reached, sums)) * parts / reached[-1])


def linear_features(columns: Domain, frame: pd.DataFrame) -> pd.DataFrame:
    return DomainEncoder(columns.to_dict(), encoding="cells").transform(frame)


def tree_features(columns: Domain, frame: pd.DataFrame) -> pd.DataFrame:
    return DomainEncoder(columns.to_dict(), encoding="codes", missing="nan").transform(frame)
