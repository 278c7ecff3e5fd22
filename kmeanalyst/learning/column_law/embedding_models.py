"""Models straight from a release's measurement, in place of models trained on its rows.

Where they are better (tests/benchmarks/embedding_models.py; ROC-AUC/average precision or R², δ = 1e-5, default releases,
row-wise models trained on as many resampled rows, the best of 7 to 11 over a grid of penalties on the test rows):

    random features, no target named       ε     measured      best row-wise
    Adult, income (2 draws)                1     .896/.735     .889/.710 logistic
    Adult, income (2 draws)                0.1   .868/.667     .818/.550 logistic, kernel
    4 numbers, label (1 draw)              1     .888/.876     .881/.869 MLP
    4 numbers, label (1 draw)              0.1   .854/.808     .860/.823 kernel logistic
    4 numbers, number (1 draw)             1     .740          .718 MLP
    4 numbers, number (1 draw)             0.1   .597          .545 kernel ridge

So these models are for releases of random features, the more so the more noise and columns there are. If publishing named
the target (margins), train on rows: tens of thousands of them carry what the tables say, and the model here is additive. On
Adult it is no better than a logistic regression on the tables' own cells of those rows (.911/.786 and .909/.783 at ε = 1,
.881/.703 and .882/.706 at 0.1). Where columns interact it is worse (the four numbers: R² .710 against .735 at ε = 1), and
its errors, which ignore interactions, are far too small.

Standard errors are those of the fit, and leave out what the basis cannot express: 95 % intervals of the simulated
probabilities covered them in 0.95 of cases at ε = 1 and about 0.9 at 0.1, those of the simulated means in 0.7 to 0.8 only.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.column_law.exponential_family import ConditionalExponentialFamily
from kmeanalyst.learning.column_law.measured_law import fit_measured_law
from kmeanalyst.learning.digest import digest
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import systematic_indices, view_weights

_GRID = 24  # values that a number's distribution is on
_RAREST = 0.01  # the smallest share of a level before the fit
_MISSING_IS_RARE = 1e-3
EmbeddingModel: TypeAlias = "EmbeddingClassifier | EmbeddingRegressor"


def fit_embedding(release: ReleaseData, target: str) -> EmbeddingModel:
    """A model of a column given all the others: its distribution fitted to the release's measurement.

    target   a column of the domain: levels and booleans are classified, numbers are regressed.
    Returns  EmbeddingClassifier or EmbeddingRegressor, a scikit-learn estimator on DataFrames in natural units, with predict
             and for a classifier predict_proba and classes_.
    Errors   ValueError for a release without measurement, an unknown target, and a column of another kind.

    >>> embedded = ka.fit_embedding(release, "income")
    >>> embedded.predict(sample.head(3))
    array(['<=50K', '<=50K', '<=50K'], dtype='<U5')
    """
    classified = target in release.domain.names and release.domain[target].has_levels
    return (EmbeddingClassifier(target) if classified else EmbeddingRegressor(target)).fit(release)


class _FromRelease(BaseEstimator):
    """What the models share: a target, a release to fit, and rows in natural units to predict for."""

    law_: ConditionalExponentialFamily
    _n_present: int  # the first values of the distribution; after them comes that of a missing cell

    def __init__(self, target: str) -> None:
        self.target = target

    def _prepare(self, release: ReleaseData, kind: type | tuple[type, ...], what: str) -> Column:
        """The target's column; ValueError for a release or target that the model cannot be fitted to."""
        _check_release(release)
        column = _target_column(release, self.target, kind, what)
        self._domain = release.domain
        self.release_digest = digest(release)
        self._position = release.domain.position(self.target)
        self.feature_names_in_ = np.array([name for name in release.domain.names if name != self.target], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return column

    def _rows(self, X: Any) -> Array:
        """Encoded rows (n, d) of a DataFrame, NaN in the target's position."""
        check_is_fitted(self, "feature_names_in_")
        if not isinstance(X, pd.DataFrame):
            raise ValueError(
                f"rows to predict must be a DataFrame, got a {type(X).__name__}: columns are known by their names. Pass one "
                f"in natural units, with the columns {', '.join(self.feature_names_in_)}."
            )
        others = Domain(tuple(self._domain[name] for name in self.feature_names_in_))
        others.check_has_columns(X, what="the frame of rows to predict")
        return np.insert(others.encode(X), self._position, np.nan, axis=1)

    def _probabilities(self, X: pd.DataFrame) -> Array:
        """(n, values) of the target's values given each row and that the cell is not missing."""
        pi = self.law_.probabilities(self._rows(X))[:, : self._n_present]
        return pi / pi.sum(axis=1, keepdims=True)

    def _standard_errors(self, X: pd.DataFrame, values: Array) -> Array:
        """(n, k) of the means of functions of the target's values, (values, k), given the same."""
        rows = self._rows(X)
        everywhere = np.zeros((len(self.law_.log_base), values.shape[1]))
        everywhere[: self._n_present] = values
        present = self.law_.probabilities(rows)[:, : self._n_present].sum(axis=1, keepdims=True)
        return self.law_.standard_errors(rows, everywhere) / present


class EmbeddingClassifier(ClassifierMixin, _FromRelease):
    """P(level | the other columns), fitted to the measurement: see `measured_law` for how.

    A logistic model on levels of columns, numbers and (except for margins) a smooth function of all of them; the size of
    each part follows from the measurement and its noise. In the fit missing cells of the target are a level of their own;
    predicted probabilities are conditional on a cell that is not missing.

    >>> embedded = ka.fit_embedding(release, "income")
    >>> embedded.classes_, embedded.predict(sample.head(2))
    (array(['<=50K', '>50K'], dtype='<U5'), array(['<=50K', '<=50K'], dtype='<U5'))
    """

    def fit(self, release: ReleaseData, y: None = None) -> EmbeddingClassifier:
        """Fit to a release's measurement; y is not used.

        >>> from kmeanalyst.learning.column_law.embedding_models import EmbeddingClassifier
        >>> EmbeddingClassifier("income").fit(release).predict(sample.head(2))
        array(['<=50K', '<=50K'], dtype='<U5')
        """
        column = self._prepare(release, Categorical, "a column of levels, or a boolean")
        levels = column.decode(np.arange(len(column.levels), dtype=float)).to_numpy()  # type: ignore[attr-defined]
        self._codes = np.argsort(levels)
        self.classes_ = np.array(levels[self._codes].tolist())
        self._n_present = len(levels)
        values = self._codes.astype(float)
        if release.domain[self.target].missing:
            values = np.append(values, np.nan)
        shares = np.maximum(_shares_of(release, self._position, values), _RAREST)
        scores = np.array([[-0.5], [0.5]]) if len(values) == 2 else np.eye(len(values))
        self.law_ = fit_measured_law(release, self.target, values, scores, shares / shares.sum())
        return self

    def predict(self, X: pd.DataFrame) -> Array:
        """The most probable class of each row, (n,).

        >>> ka.fit_embedding(release, "income").predict(sample.head(2))
        array(['<=50K', '<=50K'], dtype='<U5')
        """
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: pd.DataFrame) -> Array:
        """(n, classes), each row of sum 1.

        >>> ka.fit_embedding(release, "income").predict_proba(sample.head(2))
        array([[0.8969..., 0.1030...],
               [0.8765..., 0.1234...]])
        """
        return self._probabilities(X)

    def standard_errors(self, X: pd.DataFrame) -> Array:
        """Of each probability (n, classes): noise, sampling and what the measurement leaves open, to first order.

        >>> ka.fit_embedding(release, "income").standard_errors(sample.head(2)).shape
        (2, 2)
        """
        return self._standard_errors(X, np.eye(self._n_present))


class EmbeddingRegressor(RegressorMixin, _FromRelease):
    """E[number | the other columns] by its distribution given them, fitted to the measurement: see `measured_law`.

    The distribution is on two dozen values, quantiles of the released points, and the other columns change its location and
    width. Rows whose number is missing are left out.

    >>> age_model = ka.fit_embedding(ka.read_release("survey.kme"), "age")
    >>> age_model.predict(sample.head(2)).shape
    (2,)
    """

    def fit(self, release: ReleaseData, y: None = None) -> EmbeddingRegressor:
        """Fit to a release's measurement; y is not used.

        >>> from kmeanalyst.learning.column_law.embedding_models import EmbeddingRegressor
        >>> EmbeddingRegressor("age").fit(ka.read_release("survey.kme")).predict(sample.head(2)).shape
        (2,)
        """
        column = self._prepare(release, (Integer, Real), "a column of numbers")
        grid = _quantiles(release, self._position)
        if len(grid) < 2:
            raise ValueError(
                f"{self.target!r} has the one value {_in_natural_units(column, grid)[0]:.6g} at all points: there is nothing to "
                "predict. Choose another target."
            )
        standard = (grid - grid.mean()) / grid.std()
        scores = np.column_stack([standard, standard**2 - 1])
        base = np.full(len(grid), 1 / len(grid))
        self._n_present = len(grid)
        if column.missing:
            absent = max(float(_shares_of(release, self._position, np.array([np.nan]))[0]), _MISSING_IS_RARE)
            scores = np.pad(scores, ((0, 1), (0, 1)))
            scores[-1, -1] = 1.0
            grid, base = np.append(grid, np.nan), np.append((1 - absent) * base, absent)
        self.grid_ = _in_natural_units(column, grid[: self._n_present])
        self.law_ = fit_measured_law(release, self.target, grid, scores, base)
        return self

    def predict(self, X: pd.DataFrame) -> Array:
        """The mean given each row, (n,), in natural units.

        >>> age_model.predict(sample.head(2)).shape
        (2,)
        """
        return self.chances(X) @ self.grid_

    def chances(self, X: pd.DataFrame) -> Array:
        """(n, values) the probability of each value of `grid_` given each row.

        >>> age_model.chances(sample.head(2)).shape == (2, len(age_model.grid_))
        True
        """
        return self._probabilities(X)

    def standard_errors(self, X: pd.DataFrame) -> Array:
        """Of the mean (n,): noise, sampling and what the measurement leaves open, to first order.

        >>> age_model.standard_errors(sample.head(2)).shape
        (2,)
        """
        return self._standard_errors(X, self.grid_[:, None] - self.grid_.mean())[:, 0]


def _check_release(release: Any) -> None:
    if not isinstance(release, ReleaseData):
        raise ValueError(
            f"a model from an embedding is fitted to a Release, got a {type(release).__name__}: other models learn from rows "
            "and labels. Pass the release itself."
        )
    if release.measurement is None:
        raise ValueError(
            "the release has no measurement: these are weighted points from elsewhere, or rows that the exponential mechanism "
            "drew, and there is no embedding to learn from but their own. Train a model on its rows instead."
        )
    if texts := [column.name for column in release.domain.columns if column.is_text]:
        raise ValueError(
            f"{', '.join(texts)} is a column of texts with which all else was measured, and models from an embedding take "
            "levels and numbers only. Train a model on the release's rows instead: kmeanalyst.fit leaves texts out."
        )


def _target_column(release: ReleaseData, target: str, kind: type | tuple[type, ...], what: str) -> Column:
    if target not in release.domain.names:
        raise ValueError(
            f"target: there is no column {target!r:.80} in the measurement, which is of {', '.join(release.domain.names)}. "
            "Name one of them; a derived column was not measured."
        )
    column = release.domain[target]
    if not isinstance(column, kind):
        raise ValueError(
            f"target: {target!r} is {column.describe()}, and this model is for {what}. Choose a model of the other kind, or "
            "another target."
        )
    if len(release.domain) < 2:
        raise ValueError(f"{target!r} is the only column: there is nothing to predict it from. Release others with it.")
    return column


def _shares_of(release: ReleaseData, position: int, values: Array) -> Array:
    """Probability weight of the points with each of the target's values; a NaN is a missing cell."""
    w, own = view_weights(release, "probability"), release.encoded_points[:, position]
    return np.array([w @ (np.isnan(own) if np.isnan(value) else own == value) for value in values])


def _in_natural_units(column: Any, values: Array) -> Array:
    """Encoded values of a number, not rounded."""
    return np.asarray({"log": np.exp, "log1p": np.expm1}.get(column.scale, np.positive)(values), dtype=float)


def _quantiles(release: ReleaseData, position: int) -> Array:
    """At most _GRID values of the points' numbers, of equal probability each; distinct and increasing."""
    w, own = view_weights(release, "probability"), release.encoded_points[:, position]
    known = np.isfinite(own)
    order = np.argsort(own[known])
    return np.unique(own[known][order][systematic_indices(w[known][order], _GRID)])
