"""The probabilities of a class given the other columns, from models of a release's rows that the measurement stops.

They are the geometric mean of those of a logistic regression of cells and of boosted trees of seven leaves. Each goes on until its
tables of the target with every other column are near enough to the measured ones (Morozov's discrepancy principle). Reasons:
tutorials/derivations.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.rows.smoothed_numbers import check_measured, known_rows, linear_features, tree_features
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.tables.estimates import Observed

PENALTY = 10.0  # of boosted trees, in rows: without one, steps of leaves where a class is improbable are far too long
_MOST_ROWS = 50_000  # rows that models are fitted to
_MOST_ENTRIES = 5 * 10**7  # of the logistic regression's features: 400 MB
_STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # C of the logistic regression
_TREES = (10, 20, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300)
_MOST_CLASSES = 60
_STEPS = 100  # of the solver, for each strength
_PART, _LEAST = 1 / 3, 0.1  # of the way to a misfit of 1, and the least step away from the rows' own
_WEIGHTS = (0.5, 0.25, 0.0)  # of the logistic regression in the mean
_SMALLEST = 1e-5  # a probability
_ABSENT = 0.5  # rows of a level that the release has no row of
_NEGLIGIBLE = 1e-6  # a probability
_LABELLED, _LABELS_OF_A_ROW = 100_000, 2  # about so many labels in all, or so many for a row if that is more


@dataclass(frozen=True, eq=False)
class SmoothedClasses:
    """A classifier on frames in natural units: see `fit_smoothed_classes`.

    classes_  (K,) all levels of the target, sorted.
    logistic  fitted to the codes of the classes that have rows, as is `boosted`: the measurement chose its C, and the number of
              the other's trees.
    weight    of the logistic regression in the geometric mean.
    """

    classes_: Array
    columns: Domain
    logistic: LogisticRegression
    boosted: HistGradientBoostingClassifier
    weight: float
    n_rows: int

    def predict_proba(self, X: pd.DataFrame) -> Array:
        """(n, K), each row of sum 1. A level that no row has is not excluded: all rows together get half a row of it."""
        mean = _geometric_mean(
            self.logistic.predict_proba(linear_features(self.columns, X)),
            self.boosted.predict_proba(tree_features(self.columns, X)),
            self.weight,
        )
        everywhere = np.full((len(X), len(self.classes_)), _ABSENT / self.n_rows)
        everywhere[:, self.logistic.classes_] = mean
        return everywhere / everywhere.sum(axis=1, keepdims=True)

    def labels_of(self, X: pd.DataFrame) -> tuple[Array, Array, Array]:
        """Labels that rows can have: the row's index (m,), ascending, the class, and its probability given the row.

        Probabilities of a row sum to one on average: of a rare class some rows represent others.
        """
        probabilities = self.predict_proba(X)
        probabilities = np.where(probabilities > _NEGLIGIBLE, probabilities, 0.0)
        probabilities = _thinned(probabilities / probabilities.sum(axis=1, keepdims=True))
        indices, levels = np.nonzero(probabilities)
        return indices, self.classes_[levels], probabilities[indices, levels]


def _thinned(probabilities: Array) -> Array:
    """Probabilities (n, K) with some of each label's set to 0 and others raised, so that their sums, nearly, stay.

    Each label is kept at as many rows as any other, or in proportion to its share if that is more: of two, at all. Smaller
    probabilities than a threshold are drawn evenly, in proportion to their size, and count as the threshold (Duffield, Lund &
    Thorup 2005).
    """
    n, K = probabilities.shape
    of_a_row = max(_LABELLED / n, _LABELS_OF_A_ROW)
    out = np.zeros_like(probabilities)
    for label, p in zip(out.T, probabilities.T, strict=True):
        wanted = n * min(1.0, of_a_row * max(1 / K, float(p.mean())))
        threshold = _threshold(p, wanted)
        ends = np.cumsum(np.minimum(p / threshold, 1.0)) + 0.5
        kept = (p >= threshold) | (np.floor(ends) > np.floor(np.append(0.5, ends[:-1])))
        label[kept] = np.maximum(p[kept], threshold)
    return out


def _threshold(p: Array, wanted: float) -> float:
    """The threshold t with Σ min(1, p/t) = wanted; the smallest positive p where fewer are positive."""
    positive = np.sort(p[p > 0])[::-1]
    if len(positive) <= wanted:
        return float(positive[-1]) if len(positive) else 1.0
    rest = positive.sum() - np.append(0.0, np.cumsum(positive)[:-1])  # all but the k largest
    thresholds = rest / np.maximum(wanted - np.arange(len(positive)), _NEGLIGIBLE)
    return float(thresholds[np.argmax(positive < thresholds)])


def fit_smoothed_classes(release: ReleaseData, target: str) -> SmoothedClasses:
    """Probabilities of a target's classes given all other columns but texts; deterministic.

    Errors  ValueError with the reason where this is not a column of few measured levels, or the rows have a single class.
    """
    check_measured(release, target)
    column: Any = release.domain[target]
    if not isinstance(column, Categorical) or isinstance(column, Tree):
        raise ValueError(f"it is a {column.kind}")
    if len(column.levels) > _MOST_CLASSES:
        raise ValueError(f"it has {len(column.levels)} levels, and more than {_MOST_CLASSES} take too long")
    levels = column.decode(np.arange(len(column.levels), dtype=float)).to_numpy()
    order = np.argsort(levels)
    columns = Domain(tuple(other for other in release.domain.columns if other.name != target and not other.is_text))
    linear_columns = len(linear_features(columns, release.frame.iloc[:1]).columns)
    rows = _Rows.of(release, target, np.argsort(order), min(_MOST_ROWS, _MOST_ENTRIES // linear_columns))
    logistic, linear = _stopped(_logistic_models(), linear_features(columns, rows.frame), rows, [])
    boosted, by_trees = _stopped(_boosted_models(), tree_features(columns, rows.frame), rows, rows.sets)
    means = ((weight, _geometric_mean(linear, by_trees, weight)) for weight in _WEIGHTS)
    enough = rows.enough(rows.sets)
    weight = next((weight for weight, mean in means if rows.misfit(mean, rows.sets) <= enough), _WEIGHTS[-1])
    return SmoothedClasses(np.array(levels[order].tolist()), columns, logistic, boosted, weight, rows.n_rows)


def _geometric_mean(linear: Array, by_trees: Array, weight: float) -> Array:
    logs = weight * np.log(np.maximum(linear, _SMALLEST)) + (1 - weight) * np.log(np.maximum(by_trees, _SMALLEST))
    mean = np.exp(logs)
    return np.asarray(mean / mean.sum(axis=1, keepdims=True))


# ---------------------------------------------------------------- models that go on until the measurement stops them


def _logistic_models() -> Iterator[LogisticRegression]:
    model = LogisticRegression(warm_start=True, max_iter=_STEPS)
    for strength in _STRENGTHS:
        yield model.set_params(C=strength)


def _boosted_models() -> Iterator[HistGradientBoostingClassifier]:
    model = HistGradientBoostingClassifier(
        max_leaf_nodes=7, l2_regularization=PENALTY, early_stopping=False, warm_start=True, random_state=0
    )
    for trees in _TREES:
        yield model.set_params(max_iter=trees)


def _stopped(models: Iterator[Any], X: pd.DataFrame, rows: _Rows, sets: list[_Table]) -> tuple[Any, Array]:
    """The first of the models that is near enough to the measurement, or the last; and its probabilities at the rows.

    sets   tables that it is compared with beside those of single columns, as far as it can fit them.
    """
    compared = [rows.singles, *([sets] if sets else [])]
    enough = [rows.enough(tables) for tables in compared]
    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a model that stops early is what is wanted
            model.fit(X, rows.codes, sample_weight=rows.weights)
        found = model.predict_proba(X)
        if all(rows.misfit(found, tables) <= most for tables, most in zip(compared, enough, strict=True)):
            break
    return model, found


# ---------------------------------------------------------------- rows, and the tables that they are compared with


@dataclass(frozen=True)
class _Table:
    """A measured table (K, cells) of the target's classes with other columns, and the variance of a cell's noise.

    columns   by their number; `sizes` their numbers of cells.
    """

    columns: tuple[int, ...]
    sizes: tuple[int, ...]
    shares: Array
    variance: float


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a release that have a target.

    codes    (n,) the target's class.
    weights  (n,) of mean 1.
    cells    (n, columns) of the measured tables.
    share    of the population that has a target.
    singles  the measured tables with one other column; sets those with two or more.
    """

    frame: pd.DataFrame
    codes: Array
    weights: Array
    cells: Array
    share: float
    singles: list[_Table]
    sets: list[_Table]
    n_rows: int

    @classmethod
    def of(cls, release: ReleaseData, target: str, class_of: Array, most: int) -> _Rows:
        """At most so many rows of the probability view.  class_of  (levels,) the class of each level."""
        measurement: Any = release.measurement
        position = release.domain.position(target)
        known, weights, share = known_rows(release, position, most)
        points = release.encoded_points[known]
        codes = class_of[points[:, position].astype(int)]
        present = np.unique(codes)
        if len(present) < 2:
            raise ValueError(f"all rows have one class of {target!r}, so there is nothing to separate. Take another target.")
        observed, levels = Observed.of(measurement), np.argsort(class_of)[present]
        singles, sets = (_tables(measured, position, levels) for measured in (observed.pairs, observed.sets))
        if not singles:
            raise ValueError("no table has it with another column")
        return cls(
            release.frame.iloc[known], codes, weights, measurement.feature_map.kernel.cells(points), share,
            singles, sets, measurement.n_rows,
        )  # fmt: skip

    def enough(self, tables: list[_Table]) -> float:
        """The misfit below which a model is near enough to the measured tables."""
        own = self.misfit((self.codes[:, None] == np.unique(self.codes)).astype(float), tables)
        return own + max(_PART * (1 - own), _LEAST)

    def misfit(self, probabilities: Array, tables: list[_Table]) -> float:
        """The mean over the tables' cells of (model − measured)² in units of the variance of noise and sampling.

        probabilities  (n, classes with rows) of each row.
        """
        mass = probabilities * (self.weights * self.share / self.weights.sum())[:, None]
        squares, cells = 0.0, 0
        for table in tables:
            own = np.ravel_multi_index(tuple(self.cells[:, table.columns].T), table.sizes)
            found = np.stack([np.bincount(own, column, table.shares.shape[1]) for column in mass.T])
            variance = table.variance + np.maximum(found - found**2, 0.0) / self.n_rows
            squares += float(((found - table.shares) ** 2 / variance).sum())
            cells += found.size
        return squares / max(cells, 1)


def _tables(measured: Mapping[Any, tuple[Array, float]], position: int, levels: Array) -> list[_Table]:
    """The measured tables of a column's levels (K,) with other columns."""
    tables = []
    for columns, (shares, variance) in measured.items():
        if position in columns:
            own = np.moveaxis(shares, columns.index(position), 0)[levels]
            others = tuple(j for j in columns if j != position)
            tables.append(_Table(others, own.shape[1:], own.reshape(len(levels), -1), variance))
    return tables
