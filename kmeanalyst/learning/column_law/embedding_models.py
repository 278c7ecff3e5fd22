"""Models straight from a release's measurement, in the place of any model trained on its rows.

Where they are better (tests/benchmarks/embedding_models.py; ROC-AUC/average precision or R², δ = 1e-5, default releases,
row-wise models trained on as many resampled rows, the best of 7 to 11 over a grid of penalties on the test rows):

    random features, no target named       ε     direct law    best row-wise
    Adult, income (2 draws)                1     .896/.735     .889/.710 logistic
    Adult, income (2 draws)                0.1   .868/.667     .818/.550 logistic, kernel
    4 numbers, label (1 draw)              1     .888/.876     .881/.869 MLP
    4 numbers, label (1 draw)              0.1   .854/.808     .860/.823 kernel logistic
    4 numbers, number (1 draw)             1     .740          .718 MLP
    4 numbers, number (1 draw)             0.1   .597          .545 kernel ridge

So the law is for releases of random features, the more so the more noise and columns there are. With the target named in
publishing (margins) train on rows: tens of thousands of them carry what the tables say, and the law is additive there. On
Adult it is no better than a logistic regression on the tables' own cells of those rows (.911/.786 to .909/.783 at ε = 1,
.881/.703 to .882/.706 at 0.1); where columns interact it is worse (the four numbers: R² .710 to .735 at ε = 1), and its
errors, which know of no interaction, are far too small.

`fit_embedding(release, target)` gives the law. The measurement must be there: a release of other origin is refused. Standard
errors of a law are those of its fit, and leave out what its basis cannot say: 95 % intervals of the simulated chances held
0.95 at ε = 1 and about 0.9 at 0.1, those of the simulated means 0.7 to 0.8 only.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.column_law.measured_law import fit_measured_law
from kmeanalyst.learning.digest import digest
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import systematic_indices, view_weights

_GRID = 24  # values that a number's law is on
_RAREST = 0.01  # share that a level is taken to have at least, before the measurement is asked
_MISSING_IS_RARE = 1e-3
EmbeddingModel: TypeAlias = "EmbeddingClassifier | EmbeddingRegressor"


def fit_embedding(release: ReleaseData, target: str) -> EmbeddingModel:
    """A fitted model of a column given all the others: its distribution fitted to the release's measurement.

    target   a column of the domain: levels and booleans are classified, numbers are regressed.
    Returns  EmbeddingClassifier or EmbeddingRegressor, a scikit-learn estimator: predict, and predict_proba and classes_ of
             a classifier, on a DataFrame in natural units.
    Errors   ValueError for a release without measurement, a target that is not there, and a column of another kind.

    >>> embedded = ka.fit_embedding(release, "income")
    >>> embedded.predict(sample.head(3))
    array(['<=50K', '<=50K', '<=50K'], dtype='<U5')
    """
    classified = target in release.domain.names and isinstance(release.domain[target], Categorical)
    return (EmbeddingClassifier(target) if classified else EmbeddingRegressor(target)).fit(release)


class _FromRelease(BaseEstimator):
    """What the models share: a target, a release to be fitted to, rows in natural units to be asked of."""

    target: str

    def _prepare(self, release: ReleaseData, kind: type | tuple[type, ...], what: str) -> Column:
        _check_release(release)
        _refuse_texts(release)
        column = _target_column(release, self.target, kind, what)
        self._domain = release.domain
        self.release_digest = digest(release)
        self._position = release.domain.position(self.target)
        others = [other for other in release.domain.columns if other.name != self.target]
        self.feature_names_in_ = np.array([other.name for other in others], dtype=object)
        self.n_features_in_ = len(others)
        return column

    def _rows(self, X: Any) -> Array:
        """Encoded rows (n, d) of a DataFrame, the target's place NaN."""
        check_is_fitted(self, "feature_names_in_")
        if not isinstance(X, pd.DataFrame):
            raise ValueError(
                f"rows to predict must be a DataFrame, got a {type(X).__name__}: columns are known by their names. Pass one "
                f"in natural units, with the columns {', '.join(self.feature_names_in_)}."
            )
        others = Domain(tuple(column for column in self._domain.columns if column.name != self.target))
        others.check_has_columns(X, what="the frame of rows to predict")
        return np.insert(others.encode(X), self._position, np.nan, axis=1)

    def _decoded(self, values: Array) -> Array:
        """Encoded values of a number (...) in natural units, not rounded."""
        column: Any = self._domain[self.target]
        return np.asarray({"log": np.exp, "log1p": np.expm1}.get(column.scale, np.positive)(values), dtype=float)


class EmbeddingClassifier(ClassifierMixin, _FromRelease):
    """P(level | the other columns), fitted to the measurement: see `measured_law` for how.

    A logistic law over levels of columns, numbers and (but for margins) a smooth function of all of them; how large each
    part is follows from the measurement and its noise. Missing cells of the target are a level of their own while it is
    fitted, and probabilities are given that the cell is not missing.

    >>> EmbeddingClassifier("income").fit(release).predict_proba(frame)    # doctest: +SKIP

    >>> embedded = ka.fit_embedding(release, "income")
    >>> embedded.classes_, embedded.predict(sample.head(2))
    (array(['<=50K', '>50K'], dtype='<U5'), array(['<=50K', '<=50K'], dtype='<U5'))
    """

    def __init__(self, target: str) -> None:
        self.target = target

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
        pi = self._probabilities(self._rows(X))[:, : len(self.classes_)]
        return pi / pi.sum(axis=1, keepdims=True)

    def standard_errors(self, X: pd.DataFrame) -> Array:
        """Of each probability (n, classes): noise, sampling and what the measurement does not settle, to first order.

        >>> ka.fit_embedding(release, "income").standard_errors(sample.head(2)).shape
        (2, 2)
        """
        rows = self._rows(X)
        known = len(self.classes_)
        errors = self.law_.standard_errors(rows, np.eye(len(self.law_.log_base))[:, :known])
        return errors / self._probabilities(rows)[:, :known].sum(axis=1, keepdims=True)

    def _probabilities(self, rows: Array) -> Array:
        return self.law_.probabilities(rows)


class EmbeddingRegressor(RegressorMixin, _FromRelease):
    """E[number | the other columns] by its whole law given them, fitted to the measurement: see `measured_law`.

    The law is on two dozen values, quantiles of the released points, and is tilted by the other columns in two ways, in
    place and in width. Rows whose number is missing are left out.

    >>> age_model = ka.fit_embedding(ka.read_release("survey.kme"), "age")
    >>> age_model.predict(sample.head(2)).shape
    (2,)
    """

    def __init__(self, target: str) -> None:
        self.target = target

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
                f"{self.target!r} has the one value {self._decoded(grid)[0]:.6g} at all points: no law can be seen there. "
                "Choose another target."
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
        self.grid_ = self._decoded(grid[: self._n_present])
        self.law_ = fit_measured_law(release, self.target, grid, scores, base)
        return self

    def predict(self, X: pd.DataFrame) -> Array:
        """The mean given each row, (n,), in natural units.

        >>> age_model.predict(sample.head(2)).shape
        (2,)
        """
        return self.chances(X) @ self.grid_

    def chances(self, X: pd.DataFrame) -> Array:
        """(n, values) of each value of `grid_` given each row.

        >>> age_model.chances(sample.head(2)).shape == (2, len(age_model.grid_))
        True
        """
        pi = self.law_.probabilities(self._rows(X))[:, : self._n_present]
        return pi / pi.sum(axis=1, keepdims=True)

    def standard_errors(self, X: pd.DataFrame) -> Array:
        """Of the mean (n,): noise, sampling and what the measurement does not settle, to first order.

        >>> age_model.standard_errors(sample.head(2)).shape
        (2,)
        """
        rows = self._rows(X)
        present = self.law_.probabilities(rows)[:, : self._n_present].sum(axis=1)
        values = np.zeros((len(self.law_.log_base), 1))
        values[: self._n_present, 0] = self.grid_ - self.grid_.mean()
        return self.law_.standard_errors(rows, values)[:, 0] / present


def _check_release(release: Any) -> None:
    if not isinstance(release, ReleaseData):
        raise ValueError(
            f"a model from an embedding is fitted to a Release, got a {type(release).__name__}: rows and labels are what "
            "other models learn from. Pass the release itself."
        )
    if release.measurement is None:
        raise ValueError(
            "the release has no measurement: these are weighted points from elsewhere, or rows that the exponential mechanism "
            "drew, and there is no embedding to learn from but their own. Train a model on its rows instead."
        )


def _refuse_texts(release: ReleaseData) -> None:
    if texts := [column.name for column in release.domain.columns if isinstance(column, Text)]:
        raise ValueError(
            f"{', '.join(texts)} is a column of texts beside which all else was measured, and models from an embedding know "
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
        raise ValueError(
            f"{target!r} is the only column: there is nothing to predict it from. Release others beside it."
        )
    return column


def _shares_of(release: ReleaseData, position: int, values: Array) -> Array:
    """Probability weight of the points with each of the target's values; a NaN is a missing cell."""
    w, own = view_weights(release, "probability"), release.encoded_points[:, position]
    return np.array([w @ (np.isnan(own) if np.isnan(value) else own == value) for value in values])


def _quantiles(release: ReleaseData, position: int) -> Array:
    """At most _GRID values of the points' numbers, of equal probability each; distinct and increasing."""
    w, own = view_weights(release, "probability"), release.encoded_points[:, position]
    known = np.isfinite(own)
    order = np.argsort(own[known])
    return np.unique(own[known][order][systematic_indices(w[known][order], _GRID)])
