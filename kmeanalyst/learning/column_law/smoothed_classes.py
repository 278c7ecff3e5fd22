"""The probabilities of a class given the other columns, from models of a release's rows that the measurement stops.

Rows of a release of margins fit its tables, and one drawn label each. A model that follows every label learns the drawing and
the noise with it: trees above all. So probabilities are the geometric mean of those of two models that stop early, a logistic
regression of cells (few parameters, the right form for what tables of single columns with the target say) and boosted trees of
seven leaves (columns that act together). Each is let go on, with a weaker penalty or more trees, until its tables of the target
with every other column are as near to the measured ones as a third of the way from the rows' own misfit to 1, which is the
misfit of the truth: the mean over cells of (model − measured)², in units of the variance of privacy noise and sampling
(Morozov's discrepancy principle; Engl, Hanke & Neubauer 1996, §4.3). No fold of the rows takes part: rows that are drawn to fit
the same tables are not independent.

What it gives is in tutorials/measured.md (tests/benchmarks/class_targets.py): any classifier that learns these probabilities
in place of labels gains, trees most.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.learning.rows.encoder import DomainEncoder
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.tables.estimates import Observed
from kmeanalyst.representation.weights.views import systematic_indices, view_weights

_MOST_ROWS = 50_000  # rows that models are fitted to
_MOST_ENTRIES = 5 * 10**7  # of the logistic regression's features: 400 MB
_STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # C of the logistic regression
_TREES = (10, 20, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300)
_MOST_CLASSES = 60
_STEPS = 100  # of the solver, for each strength
_PART, _LEAST = 1 / 3, 0.1  # of the way to a misfit of 1, and the least step away from the rows' own
_SMALLEST = 1e-5  # a probability
_ABSENT = 0.5  # rows of a level that the release has no row of


@dataclass(frozen=True, eq=False)
class SmoothedClasses:
    """A classifier on frames in natural units: see `fit_smoothed_classes`.

    classes_  (K,) all levels of the target, sorted.
    logistic  fitted to the codes of the classes that have rows, as is `boosted`: the measurement chose its C, and the number of
              the other's trees.
    """

    classes_: Array
    columns: Domain
    logistic: LogisticRegression
    boosted: HistGradientBoostingClassifier
    n_rows: int

    def predict_proba(self, X: pd.DataFrame) -> Array:
        """(n, K), each row of sum 1. A level that no row has is not excluded: all rows together get half a row of it."""
        found = [
            self.logistic.predict_proba(_linear_features(self.columns, X)),
            self.boosted.predict_proba(_tree_features(self.columns, X)),
        ]
        mean = np.exp(np.mean([np.log(np.maximum(each, _SMALLEST)) for each in found], axis=0))
        everywhere = np.full((len(X), len(self.classes_)), _ABSENT / self.n_rows)
        everywhere[:, self.logistic.classes_] = mean / mean.sum(axis=1, keepdims=True)
        return everywhere / everywhere.sum(axis=1, keepdims=True)


def smoothed_unavailable(release: ReleaseData, target: str) -> str | None:
    """Why classes cannot be smoothed, as far as known before a fit; None where they can."""
    if release.measurement is None:
        return "there is no measurement"
    if not isinstance(release.measurement.feature_map, MarginFeatures):
        return "no tables were measured"
    if target not in release.domain.names:
        return "it was not measured, but computed"
    column = release.domain[target]
    if not isinstance(column, Categorical) or isinstance(column, Tree):
        return f"it is a {column.kind}"
    if len(column.levels) > _MOST_CLASSES:
        return f"it has {len(column.levels)} levels, and more than {_MOST_CLASSES} take too long"
    return (
        None if _tables(release.measurement, release.domain.position(target)) else "no table has it with another column"
    )


def fit_smoothed_classes(release: ReleaseData, target: str) -> SmoothedClasses:
    """Probabilities of a target's classes given all other columns but texts; deterministic.

    Errors  ValueError where `smoothed_unavailable` gives a reason, or the rows have a single class.
    """
    if (reason := smoothed_unavailable(release, target)) is not None:
        raise ValueError(f"classes of {target!r} cannot be smoothed: {reason}. Train a model on the released rows.")
    column: Any = release.domain[target]
    levels = column.decode(np.arange(len(column.levels), dtype=float)).to_numpy()
    order = np.argsort(levels)
    columns = Domain(tuple(other for other in release.domain.columns if other.name != target and not other.is_text))
    linear_columns = len(_linear_features(columns, release.frame.iloc[:1]).columns)
    rows = _Rows.of(release, target, np.argsort(order), min(_MOST_ROWS, _MOST_ENTRIES // linear_columns))
    assert release.measurement is not None
    return SmoothedClasses(
        classes_=np.array(levels[order].tolist()),
        columns=columns,
        logistic=_stopped(_logistic_models(), _linear_features(columns, rows.frame), rows),
        boosted=_stopped(_boosted_models(), _tree_features(columns, rows.frame), rows),
        n_rows=release.measurement.n_rows,
    )


def _linear_features(columns: Domain, frame: pd.DataFrame) -> pd.DataFrame:
    return DomainEncoder(columns.to_dict(), encoding="cells").transform(frame)


def _tree_features(columns: Domain, frame: pd.DataFrame) -> pd.DataFrame:
    return DomainEncoder(columns.to_dict(), encoding="codes", missing="nan").transform(frame)


# ---------------------------------------------------------------- models that go on until the measurement stops them


def _logistic_models() -> Iterator[LogisticRegression]:
    """The same model with ever weaker penalties, each from where the last one ended."""
    model = LogisticRegression(warm_start=True, max_iter=_STEPS)
    for strength in _STRENGTHS:
        yield model.set_params(C=strength)


def _boosted_models() -> Iterator[HistGradientBoostingClassifier]:
    """The same model with ever more trees."""
    model = HistGradientBoostingClassifier(
        max_leaf_nodes=7, l2_regularization=10.0, early_stopping=False, warm_start=True, random_state=0
    )
    for trees in _TREES:
        yield model.set_params(max_iter=trees)


def _stopped(models: Iterator[Any], X: pd.DataFrame, rows: _Rows) -> Any:
    """The first of the models that is near enough to the measurement, or the last."""
    own = rows.misfit(np.eye(rows.n_classes)[rows.codes])
    enough = own + max(_PART * (1 - own), _LEAST)
    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a model that stops early is what is wanted
            model.fit(X, rows.codes, sample_weight=rows.weights)
        found = np.zeros((len(X), rows.n_classes))
        found[:, model.classes_] = model.predict_proba(X)
        if rows.misfit(found) <= enough:
            break
    return model


# ---------------------------------------------------------------- rows, and the tables that they are compared with


@dataclass(frozen=True)
class _Table:
    """A measured table (K, cells) of the target's classes with another column, and the variance of a cell's noise."""

    column: int
    shares: Array
    variance: float


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a release that have a target.

    codes    (n,) the target's class.
    weights  (n,) of sum n.
    cells    (n, columns) of the measured tables.
    share    of the population that has a target.
    """

    frame: pd.DataFrame
    codes: Array
    weights: Array
    cells: Array
    share: float
    tables: list[_Table]
    n_rows: int
    n_classes: int

    @classmethod
    def of(cls, release: ReleaseData, target: str, class_of: Array, most: int) -> _Rows:
        """At most so many rows of the probability view.  class_of  (levels,) the class of each level."""
        measurement: Any = release.measurement
        position = release.domain.position(target)
        weights = view_weights(release, "probability")
        known = np.flatnonzero((weights > 0) & ~np.isnan(release.encoded_points[:, position]))
        share = float(weights[known].sum())
        if len(known) > most:
            known = known[systematic_indices(weights[known] / share, most)]
            weights = np.ones(len(weights))
        points, weights = release.encoded_points[known], weights[known]
        codes = class_of[points[:, position].astype(int)]
        if len(np.unique(codes)) < 2:
            raise ValueError(
                f"all rows have one class of {target!r}, so there is nothing to separate. Take another target."
            )
        tables = [
            _Table(table.column, table.shares[np.argsort(class_of)], table.variance)
            for table in _tables(measurement, position)
        ]
        return cls(
            frame=release.frame.iloc[known],
            codes=codes,
            weights=weights / weights.mean(),
            cells=measurement.feature_map.kernel.cells(points),
            share=share,
            tables=tables,
            n_rows=measurement.n_rows,
            n_classes=len(class_of),
        )

    def misfit(self, probabilities: Array) -> float:
        """The mean over the tables' cells of (model − measured)² in units of the variance of noise and sampling.

        probabilities  (n, K) of the classes of each row.
        """
        mass = probabilities * (self.weights * self.share / self.weights.sum())[:, None]
        squares, cells = 0.0, 0
        for table in self.tables:
            own = self.cells[:, table.column]
            found = np.stack([np.bincount(own, column, table.shares.shape[1]) for column in mass.T])
            variance = table.variance + np.maximum(found - found**2, 0.0) / self.n_rows
            squares += float(((found - table.shares) ** 2 / variance).sum())
            cells += found.size
        return squares / cells


def _tables(measurement: Measurement, position: int) -> list[_Table]:
    """The measured tables of a column's levels with each other column, by level."""
    kernel: Any = measurement.feature_map.kernel
    observed, others = Observed.of(measurement), kernel.others
    missing = kernel.missing[position]
    if position == kernel.target:
        tables = [
            _Table(j, shares, variance)
            for j, parts in zip(others, observed.ones, strict=True)
            for shares, variance in parts
        ]
    else:
        own = others.index(position)
        tables = [
            _Table(others[j if i == own else i], _of_first(table.sum(axis=0), i == own), variance * observed.values)
            for (i, j), (table, variance) in observed.pairs.items()
            if own in (i, j)
        ]
        tables += [_Table(kernel.target, shares.T, variance) for shares, variance in observed.ones[own]]
    return [_Table(t.column, t.shares[: len(t.shares) - missing], t.variance) for t in tables]


def _of_first(table: Array, first: bool) -> Array:
    """A table of two columns with the one in question first."""
    return table if first else table.T


__all__ = ["SmoothedClasses", "fit_smoothed_classes", "smoothed_unavailable"]
