"""Train scikit-learn's estimators on a release, each with weights that it handles correctly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier, is_clusterer, is_outlier_detector, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import QuantileRegressor
from sklearn.naive_bayes import CategoricalNB
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, TargetEncoder
from sklearn.utils import get_tags

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.lazy import refuse_unknown, spelled_out
from kmeanalyst.learning.rows.encoder import DomainEncoder, Encoding, Missing
from kmeanalyst.learning.rows.labels import LABELS, LabelModel, Labels, find_labels
from kmeanalyst.learning.rows.smoothed_classes import PENALTY
from kmeanalyst.learning.rows.training_rows import (
    Sampling,
    Target,
    TrainingRows,
    check_option,
    encoder_of,
    predictors_of,
    signed_weights,
    target_of,
    training_rows,
)
from kmeanalyst.learning.training.pipeline import TrainedPipeline, TrainingReport, digest
from kmeanalyst.learning.training.weights import fit_with_weights, inner_estimators, why_unweighted
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.release import ReleaseData, View

_CODES = re.compile(r"Tree|Forest|GradientBoosting|GaussianNB|CategoricalNB|LGBM|XGB|CatBoost")  # these split by values
_TREES_INSIDE = ("AdaBoost", "Bagging")  # estimators of trees by default
_VIEWS = ("probability", "resampled", "fitted")
_OF_DATES = 'predictions are days since 1970-01-01: pd.to_datetime(predictions, unit="D") makes dates of them'
_CHANGED = {
    "early_stopping": "early_stopping is off: folds of a release's rows are not independent; pass True for it to have it",
    "l2_regularization": f"l2_regularization is {PENALTY:g}: smoothed labels weigh little; with 1e-9 there is no penalty",
    "bootstrap": "bootstrap is off: it would part the labels of a row; pass max_samples=1.0 with it to have it",
}


@spelled_out(Sampling, rng=0)
def fit(
    estimator: Any, release: ReleaseData, target: str | None = None, *, columns: Sequence[str] | None = None,
    encoding: Encoding | None = None, labels: Labels | None = None, **sampling: Unpack[Sampling],
) -> TrainedPipeline:  # fmt: skip
    """Train a scikit-learn estimator on a release.

    estimator       a classifier, regressor, clusterer or detector, a pipeline or a search over parameters; it is cloned.
    target          the column to predict; None for an estimator that needs none. Dates are predicted in days since 1970-01-01.
    columns         the columns to predict from; by default all columns but the target, those it is computed from, and those
                    computed from it.
    view            "probability", "resampled" or "fitted"; by default probability weights, and rows of equal weight for an
                    estimator that takes no weights, or misuses them. None gets negative ones.
    effective_rows  the sum of the weights, which sets the relative size of penalties: by default the effective size of the
                    points (Kish). In the resampled view, the number of rows.
    encoding        "onehot", "cells", "codes" (for trees) or "natural" (for pipelines that encode columns themselves), see
                    `DomainEncoder`; by default what suits the estimator, and cells where the release measured them.
    labels          "released", the rows' own; or "smoothed", every label that a row can have, weighted by its probability: on
                    releases of margins (not for a quantile of a number) the default, which takes some seconds once for a
                    release and target. See `kmeanalyst.learning.rows.labels`.
    Returns         TrainedPipeline, predicting on DataFrames in natural units. Its report gives the choices and the reasons.
    Errors          ValueError where the view named would give a wrong model, or the target does not suit the estimator.

    Multiplying all weights by a constant, or adding rows of weight 0, changes no model. The model inherits the guarantee of
    the release: post-processing (Dwork & Roth 2014, proposition 2.1).

    >>> from sklearn.linear_model import LogisticRegression
    >>> model = ka.fit(LogisticRegression(max_iter=1000), release, target="income")
    >>> model.predict(sample.head(3))
    array(['<=50K', '<=50K', '<=50K'], dtype=object)
    >>> model.report.view, model.report.labels
    ('probability', 'released')
    """
    refuse_unknown(fit, sampling)
    training = Training.of(estimator, release, target, columns, encoding, labels)
    named = sampling.get("view")
    view, why = _view_for(training) if named is None else (named, "as requested")
    _check_view(view, training)
    return _train(training, view, why, sampling)


@dataclass(frozen=True, eq=False)
class Training:
    """What is to be fitted, except the rows.

    goal     the target; None for an estimator that needs none.
    encoder  from natural units to features of `columns`.
    drawn    why the estimator learns from drawn rows rather than from weights; empty where it can use these.
    labels   the model of smoothed labels; None for the released ones.
    """

    estimator: Any
    release: ReleaseData
    goal: Target | None
    columns: tuple[str, ...]
    encoder: DomainEncoder
    drawn: str
    labels: LabelModel | None

    @classmethod
    def of(
        cls, estimator: Any, release: ReleaseData, target: str | None, columns: Sequence[str] | None,
        encoding: Encoding | None, labels: Labels | None,
    ) -> Training:  # fmt: skip
        if not isinstance(release, ReleaseData):
            raise TypeError(
                f"a model is trained on a Release, got a {type(release).__name__}. Read one: kmeanalyst.read_release(path), or "
                "make one from weighted rows: kmeanalyst.from_frame(frame)."
            )
        if not hasattr(estimator, "fit") or isinstance(estimator, type):
            raise TypeError(
                f"an estimator must be an instance with a fit method, such as LogisticRegression(), got {estimator!r:.80}."
            )
        goal = _goal(estimator, release, target)
        names = tuple(predictors_of(release, target, columns))
        encoding = encoding or preferred_encoding(estimator, release)
        missing: Missing = "nan" if get_tags(estimator).input_tags.allow_nan else "mark"
        encoder = encoder_of(release, names, encoding=encoding, missing=missing)
        _check_features(estimator, encoder)
        known = "released" if labels is None and goal is not None and _is_of_quantiles(estimator, release) else labels
        found = _labels(release, goal, names, known)
        return cls(estimator, release, goal, names, encoder, why_unweighted(estimator), found)

    @property
    def classes(self) -> Array | None:
        return None if self.goal is None else self.goal.classes

    def fit_clone(self, X: pd.DataFrame, rows: TrainingRows, *, weighted: bool) -> Any:
        estimator = _with_levels(clone(self.estimator), self.encoder)
        for part, name, value in self.better_defaults(estimator):
            part.set_params(**{name: value})
        return fit_with_weights(estimator, X, rows.cells, rows.weights if weighted else None)

    def better_defaults(self, estimator: Any) -> list[tuple[Any, str, Any]]:
        """Parts of an estimator of classes with a parameter that was left at its default, and the value that it gets.

        Histogram boosting of published rows does not stop by a fold of them: they were drawn to fit the same tables, so that no
        fold is independent of the others, and a class of one row would end the fit. Of smoothed labels, most of which weigh little,
        it gets a penalty: steps of leaves where a class is improbable would be far too long. Trees of a forest see all smoothed
        labels: a bootstrap that takes one label of a row and leaves out another would spoil its probabilities.
        """
        changes: list[tuple[Any, str, Any]] = []
        smoothed = self.labels is not None
        for part in (estimator, *inner_estimators(estimator)) if self.release.statement is not None else ():
            if isinstance(part, HistGradientBoostingClassifier):
                if part.early_stopping == "auto":
                    changes.append((part, "early_stopping", False))
                if smoothed and part.l2_regularization == 0:
                    changes.append((part, "l2_regularization", PENALTY))
            plain = isinstance(part, RandomForestClassifier) and part.max_samples is None and part.oob_score is False
            if plain and smoothed and part.bootstrap is True:
                changes.append((part, "bootstrap", False))
        return changes


def _train(training: Training, view: View, why: str, sampling: Sampling) -> TrainedPipeline:
    labels = None if view == "fitted" else training.labels
    asked: Any = sampling | {"view": view}
    rows = training_rows(training.release, training.goal, labels=labels, **asked)
    if training.goal is not None and training.classes is not None and len(present := _classes_of(rows)) < 2:
        raise ValueError(
            f"all rows have {training.goal.column.name} = {present[0]}, so there are no classes to separate. Choose another "
            "target: the release has too few rows of the other levels to learn them."
        )
    X = training.encoder.transform(rows.frame)
    model = training.fit_clone(X, rows, weighted=view != "resampled")
    return _pipeline(training, model, rows, view, why)


def _view_for(training: Training) -> tuple[View, str]:
    if training.drawn:
        return "resampled", f"equal, on rows drawn from the probability view: {training.drawn}"
    if signed_weights(training.release).min() >= 0:
        return "probability", "as released: they are probabilities, up to their sum"
    return "probability", "the nearest ones that are not negative"


def _check_view(view: View, training: Training) -> None:
    check_option("view", view, _VIEWS)
    if view != "resampled" and training.drawn:
        raise ValueError(f'weights would give a wrong model: {training.drawn}. Take view="resampled", or leave it out.')


def _goal(estimator: Any, release: ReleaseData, target: str | None) -> Target | None:
    if target is not None:
        if is_clusterer(estimator) or is_outlier_detector(estimator):
            raise ValueError(
                f"{type(estimator).__name__} is unsupervised, so target={target!r} would be ignored. Leave target out; to "
                "exclude the column use columns=[...]."
            )
        task: Any = "classification" if is_classifier(estimator) else "regression" if is_regressor(estimator) else None
        return target_of(release, target, task)
    if get_tags(estimator).target_tags.required:
        raise ValueError(
            f"{type(estimator).__name__} learns to predict a column, and no target is named. Pass target, one of "
            f"{', '.join(release.columns.names)}."
        )
    return None


def _labels(release: ReleaseData, goal: Target | None, columns: tuple[str, ...], name: Labels | None) -> LabelModel | None:
    if name is not None:
        check_option("labels", name, LABELS)
    return None if goal is None else find_labels(name, release, goal.column, goal.task, columns)


def _classes_of(rows: TrainingRows) -> Array:
    assert rows.cells is not None
    return np.unique(rows.cells)


# ---------------------------------------------------------------- what suits an estimator


def preferred_encoding(estimator: Any, release: ReleaseData) -> Encoding:
    """Natural columns for pipelines that encode them, codes for trees, else indicators: of cells where these were measured."""
    encoders = ColumnTransformer | OneHotEncoder | OrdinalEncoder | TargetEncoder
    if all(isinstance(first, encoders) for first in input_estimators(estimator)):
        return "natural"
    name = type(final_estimator(estimator)).__name__
    if _CODES.search(name) or name.startswith(_TREES_INSIDE):
        return "codes"
    return "cells" if _has_tables(release) else "onehot"


def _has_tables(release: ReleaseData) -> bool:
    return release.measurement is not None and isinstance(release.measurement.feature_map, MarginFeatures)


def wrapped_estimator(estimator: Any) -> Any:
    """The estimator that another one repeats, searches over or transforms targets for; None where there is none."""
    inner = getattr(estimator, "estimator", None)
    return getattr(estimator, "regressor", None) if inner is None else inner


def final_estimator(estimator: Any) -> Any:
    inner = estimator.steps[-1][1] if hasattr(estimator, "steps") else wrapped_estimator(estimator)
    return estimator if inner is None or isinstance(inner, str) else final_estimator(inner)


def input_estimators(estimator: Any) -> list[Any]:
    """The estimators that get the features first, one for each of parallel estimators (votes, stacks)."""
    if isinstance(parallel := getattr(estimator, "estimators", None), list) and parallel:
        return [first for _, one in parallel if not isinstance(one, str) for first in input_estimators(one)]
    inner = estimator.steps[0][1] if hasattr(estimator, "steps") else wrapped_estimator(estimator)
    return [estimator] if inner is None or isinstance(inner, str) else input_estimators(inner)


def _is_of_quantiles(estimator: Any, release: ReleaseData) -> bool:
    """Whether an estimator learns a quantile of a number on a release of margins: the few smoothed values are too coarse for it."""
    final = final_estimator(estimator)
    return _has_tables(release) and (isinstance(final, QuantileRegressor) or getattr(final, "loss", None) == "quantile")


def _check_features(estimator: Any, encoder: DomainEncoder) -> None:
    numbers = [column.name for column in encoder.domain.columns if not column.has_levels]
    if isinstance(estimator, CategoricalNB) and numbers:
        raise ValueError(
            f"CategoricalNB takes levels, and would truncate {', '.join(numbers)} to whole numbers without a warning. "
            "Leave them out by columns=[...], or put a KBinsDiscretizer before it in a pipeline."
        )


def _with_levels(estimator: Any, encoder: DomainEncoder) -> Any:
    """CategoricalNB with the number of levels of each column set: the points of a release need not have them all."""
    if isinstance(estimator, CategoricalNB) and estimator.min_categories is None:
        columns = (column for column in encoder.domain.columns if isinstance(column, Categorical))
        sizes = [len(column.levels) + column.missing for column in columns]
        estimator.set_params(min_categories=sizes)
    return estimator


# ---------------------------------------------------------------- the result


def _pipeline(training: Training, model: Any, rows: TrainingRows, view: View, why: str) -> TrainedPipeline:
    pipeline = TrainedPipeline([("columns", training.encoder), ("model", model)])
    pipeline.levels_ = training.classes
    pipeline.target_table = None if training.goal is None else training.goal.column.to_dict()
    statement = training.release.statement
    declared = statement is not None and statement.declared_by is not None
    pipeline.report = TrainingReport(
        estimator=type(training.estimator).__name__,
        target=pipeline.target,
        task=training.goal.task if training.goal else "no target",
        columns=training.columns,
        view=view,
        why=why,
        rows=len(rows.weights),
        effective_rows=rows.effective_rows,
        encoding=training.encoder.encoding,
        labels=rows.labels,
        notes=(*rows.notes, *_notes(training, rows), *([statement.claim] if statement and declared else [])),
        release_digest=digest(training.release),
        epsilon=statement.epsilon if statement and not declared else None,
        delta=statement.delta if statement and not declared else None,
        rehearsal=training.release.is_rehearsal,
    )
    return pipeline


def _notes(training: Training, rows: TrainingRows) -> Iterator[str]:
    if training.classes is not None:
        present = set(_classes_of(rows))
        if absent := [str(level) for level in training.classes if level not in present]:
            yield f"the release has no row of {', '.join(absent)}: they are never predicted"
    changed = {name for _, name, _ in training.better_defaults(training.estimator)}
    yield from (why for name, why in _CHANGED.items() if name in changed)
    if training.goal is not None and training.classes is None and isinstance(training.goal.column, Date):
        yield _OF_DATES
