"""What a model is worth that was trained on the release: its score on the table, compared with models that the table itself trains.

Three estimators: a linear one, a forest, boosted trees; roc_auc for classes, r² for numbers. The release trains through
`kmeanalyst.fit`, as its users would; the table by five-fold cross-validation with the same encoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn import ensemble
from sklearn.linear_model import LogisticRegression, Ridge

from kmeanalyst.learning.scoring.evaluation import score
from kmeanalyst.learning.training.training import fit
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.representation.progress import Progress, silent
from release_side.errors import PublishError

_FOLDS = 5
_SEED = 27  # public: which rows are in which fold
_MOST_CLASSES = 20
_WEIGHT = " weight"  # no column has a name that begins with a space


@dataclass(frozen=True)
class ModelScore:
    """One estimator.

    estimator        scikit-learn's name.
    release          trained on the release, scored on the table's rows; NaN where that gave no score, and `note` says so.
    table            mean over the folds of models that the table's other rows trained.
    table_deviation  standard deviation of the folds' scores.
    """

    estimator: str
    release: float
    table: float
    table_deviation: float
    note: str = ""


@dataclass(frozen=True)
class ModelScores:
    """Models that predict one column.

    target   the column; None where there is none to predict.
    metric   "roc_auc" or "r2".
    rows     of the table, that models are scored on.
    """

    target: str | None
    metric: str
    rows: int
    models: tuple[ModelScore, ...]


def chosen_target(release: Release, target: str | None) -> str | None:
    """The column that models predict, from public facts alone.

    The one that is named; else the last column of 2 to 20 levels; else the last number.
    None if there is none, or no other column to predict from. PublishError for a name that is not such a column.
    """
    domain = release.domain
    classes = [column.name for column in domain.columns if _has_classes(column)]
    numbers = [column.name for column in domain.columns if isinstance(column, Real | Integer)]
    if target is not None:
        if target not in {*classes, *numbers}:
            raise PublishError(
                f"the target {target!r:.80} is not a column of the release with 2 to {_MOST_CLASSES} levels, and not a number, so "
                f"no model here predicts it. Name one of its {len(domain)} columns that is."
            )
        return target
    if len(domain) < 2:
        return None
    return next(reversed(classes or numbers), None)


def _has_classes(column: Column) -> bool:
    return isinstance(column, Categorical) and 2 <= len(column.levels) <= _MOST_CLASSES


def compare_models(release: Release, target: str | None, sample: pd.DataFrame, progress: Progress = silent) -> ModelScores:
    """Train on both and score on rows of the table (m, d), in natural units and of equal weight."""
    if target is None:
        return ModelScores(None, "", len(sample), ())
    columns = [name for name in release.domain.names if not release.domain[name].is_text or name == target]
    present = sample[columns][sample[target].notna()].reset_index(drop=True)
    is_class = _has_classes(release.domain[target])
    metric, models = "roc_auc" if is_class else "r2", []
    estimators = estimators_of(is_class)
    for done, estimator in enumerate(estimators):
        progress("training models", done / len(estimators))
        models.append(_compared(estimator, release, target, present, metric))
    return ModelScores(target, metric, len(present), tuple(models))


def estimators_of(is_class: bool) -> list[Any]:
    """The scikit-learn estimators that are compared: of classes, or of numbers."""
    trees = {"n_estimators": 50, "min_samples_leaf": 5, "random_state": 0}
    if is_class:
        forest = ensemble.RandomForestClassifier(**trees)
        return [LogisticRegression(max_iter=300), forest, ensemble.HistGradientBoostingClassifier(random_state=0)]
    forest = ensemble.RandomForestRegressor(max_features=1 / 3, **trees)
    return [Ridge(), forest, ensemble.HistGradientBoostingRegressor(random_state=0)]


def _compared(estimator: Any, release: Release, target: str, rows: pd.DataFrame, metric: str) -> ModelScore:
    columns = list(rows.columns)

    def of_release() -> list[float]:
        return [_score(fit(estimator, release, target, columns=[x for x in columns if x != target]), rows, metric)]

    def of_folds() -> list[float]:
        fold = np.random.default_rng(_SEED).permutation(len(rows)) % _FOLDS
        domain, folds = Domain(tuple(release.domain[name] for name in columns)), []
        for k in range(_FOLDS):
            trained = from_frame(rows[fold != k].assign(**{_WEIGHT: 1.0}), weight=_WEIGHT, domain=domain)
            model = fit(estimator, trained, target, effective_rows=float(len(trained)))
            folds.append(_score(model, rows[fold == k], metric))
        return folds

    (trained, why), (folds, why_not) = _or_why(of_release), _or_why(of_folds)
    notes = "; ".join(filter(None, (why, why_not)))
    return ModelScore(type(estimator).__name__, trained[0], float(np.mean(folds)), float(np.std(folds)), notes)


def _score(model: Any, rows: pd.DataFrame, metric: str) -> float:
    found: Any = score(model, rows, metric)
    return float(found.value)


def _or_why(work: Callable[[], list[float]]) -> tuple[list[float], str]:
    try:
        return work(), ""
    except ValueError as error:
        return [math.nan], str(error)
