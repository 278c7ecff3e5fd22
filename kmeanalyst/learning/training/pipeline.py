"""A trained model, which predicts on frames in natural units and knows what it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain

_LABELS = {
    "measured": "each that a point can have by its chance given the other columns",
    "drawn": 'as the rows, from laws fitted to the measurement: the released points (labels="released") are too few to tell them',
}


@dataclass(frozen=True)
class TrainingReport:
    """What was chosen for a model, and why; plain values, so that a file of the model can hold it.

    estimator       its class.
    target, task    what it predicts.
    columns         what it predicts it from.
    view            the weights it learned from: "signed", "probability", "resampled" or "fitted".
    why             why that view.
    support         how it treats weights: see `weight_support`.
    rows            how many rows it saw.
    size            what their weights summed to: the effective number of rows.
    levels          how levels were encoded: see `DomainEncoder`.
    labels          where labels came from: "released", the points' own; "measured", their law given the other columns; or
                    "drawn", with rows of their own, from laws fitted to the measurement.
    notes           what else a reader should know.
    release_digest  SHA-256 of the release, so that a score on it can say that it is of the rows learned from.
    epsilon, delta  the release's promise, which the model inherits (post-processing); None where there is none.

    >>> report = model.report
    >>> report.estimator, report.view, report.epsilon, len(report.columns)
    ('LogisticRegression', 'probability', 1.0, 6)
    """

    estimator: str
    target: str | None
    task: str
    columns: tuple[str, ...]
    view: str
    why: str
    support: str
    rows: int
    size: float
    levels: str
    labels: str
    notes: tuple[str, ...]
    release_digest: str
    epsilon: float | None
    delta: float | None
    rehearsal: bool
    scikit_learn: str = sklearn.__version__

    def __str__(self) -> str:
        promise = "none" if self.epsilon is None else f"ε = {self.epsilon:g}, δ = {self.delta:g}"
        lines = [
            f"{self.estimator} for {self.target or 'no target'} ({self.task}) from {len(self.columns)} columns ({self.levels})",
            f"weights: {self.view}, {self.why}",
            *([f"labels: {self.labels}, {_LABELS[self.labels]}"] if self.labels in _LABELS else []),
            f"rows: {self.rows:,} with weights that sum to {self.size:,.0f}",
            f"promise: {promise}"
            + (", NOT PRIVATE (a rehearsal)" if self.rehearsal else "")
            + (", inherited from the release" if self.epsilon is not None else ""),
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _learned(method: str) -> Any:
    return available_if(lambda self: hasattr(self._final_estimator, method))


class TrainedPipeline(Pipeline):
    """A scikit-learn pipeline that was trained on a release: it predicts on DataFrames in natural units and levels.

    `pipeline["columns"]` encodes a frame by the domain, `pipeline["model"]` is the fitted estimator.

    report    TrainingReport: what was chosen and why; print it.
    classes_  of a classifier, all the domain's levels, sorted; predicted probabilities have a column for each, 0 for those
              that the release does not have.

    >>> model.predict(sample.head(3))
    array(['<=50K', '<=50K', '<=50K'], dtype='<U5')
    >>> model.classes_, model.target, model.domain.names[:2]
    (array(['<=50K', '>50K'], dtype=object), 'income', ('age', 'education-num'))
    >>> print(model.report)
    LogisticRegression for income (classification) from 6 columns (onehot)
    weights: probability, as released: they are probabilities, up to their sum
    labels: measured, each that a point can have by its chance given the other columns
    rows: 576 with weights that sum to 576
    promise: ε = 1, δ = 1e-06, inherited from the release
    """

    report: TrainingReport | None = None
    levels_: Array | None = None
    target_table: dict[str, Any] | None = None

    @property
    def target(self) -> str | None:
        """The column it predicts; None for a model without a target."""
        return None if self.target_table is None else self.target_table["name"]

    @property
    def domain(self) -> Domain:
        """The columns it predicts from, those that derived ones among them are computed from, and the target."""
        tables = [*self["columns"].columns, *self["columns"].base, *([self.target_table] if self.target_table else [])]
        return Domain.from_dict(list({table["name"]: table for table in tables}.values()))

    def __sklearn_is_fitted__(self) -> bool:
        return self.report is not None or super().__sklearn_is_fitted__()

    def __getitem__(self, step: Any) -> Any:
        """A step; of a slice a plain pipeline, which tells of no training."""
        return Pipeline(self.steps[step]) if isinstance(step, slice) else super().__getitem__(step)

    @property
    def classes_(self) -> Array:
        if self.levels_ is None and self.report is None:  # fitted by scikit-learn, as cross-validation does to copies
            found: Array = super().classes_
            return found
        if self.levels_ is None:
            raise AttributeError("this model predicts numbers, and has no classes_")
        return self.levels_

    @_learned("predict_proba")
    def predict_proba(self, X: pd.DataFrame, **params: Any) -> Array:
        """(n, classes) probabilities, in the order of classes_.

        >>> model.predict_proba(sample.head(2)).shape
        (2, 2)
        """
        return self._for_all_levels(super().predict_proba(X, **params), absent=0.0)

    @_learned("predict_log_proba")
    def predict_log_proba(self, X: pd.DataFrame, **params: Any) -> Array:
        """(n, classes) logarithms of probabilities.

        >>> model.predict_log_proba(sample.head(2)).shape
        (2, 2)
        """
        return self._for_all_levels(super().predict_log_proba(X, **params), absent=-np.inf)

    @_learned("decision_function")
    def decision_function(self, X: pd.DataFrame, **params: Any) -> Array:
        """(n,) for two classes, the second's, or (n, classes); -inf for levels that the release does not have.

        >>> model.decision_function(sample.head(2)).shape
        (2,)
        """
        scores = super().decision_function(X, **params)
        if self.levels_ is not None and scores.ndim == 1 and len(self.levels_) > 2:
            scores = np.column_stack([-scores, scores])
        return self._for_all_levels(scores, absent=-np.inf)

    def _for_all_levels(self, found: Array, absent: float) -> Array:
        if self.levels_ is None or found.ndim == 1 or found.shape[1] != len(self._final_estimator.classes_):
            return found  # scores of pairs of classes are no class's
        places = np.searchsorted(self.levels_, self._final_estimator.classes_)
        out = np.full((len(found), len(self.levels_)), absent)
        out[:, places] = found
        return out

    def write(self, path: Any) -> None:
        """Write the model as a .skops file, which holds no code: see `kmeanalyst.write_model`.

        >>> model.write("model.skops")
        """
        from kmeanalyst.learning.training.model_file import write_model

        write_model(self, path)


__all__ = ["TrainedPipeline", "TrainingReport"]
