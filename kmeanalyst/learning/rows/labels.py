"""Labels for training from the measurement itself, in the place of the released points' own.

Released points are some thousand rows that stand for a whole joint law, and each has one label of the many it could have:
a model of them learns that chance as well. The law of the target given the other columns is a few numbers, and the
measurement tells those better (`measured_law`). So every point is given each label in proportion to its chance, and
estimators are trained on the law itself, seen at the points.

On Adult's default releases gradient boosting gains .05 to .08 of ROC-AUC by that, a decision tree .2, at ε = 1 as at 0.1
(tests/benchmarks/learning.py). A number's law is told at 24 values of it here, and only where all points are seen: of 2,000
at most. Models of numbers therefore learn from rows drawn anew where they can (`drawn_rows`). Releases of margins have tens of
thousands of points, whose labels say what the tables say.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.learning.column_law.embedding_models import EmbeddingClassifier, EmbeddingRegressor, fit_embedding
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData

Labels = Literal["drawn", "measured", "released"]
LABELS: tuple[Labels, ...] = ("drawn", "measured", "released")
_NUMBERS = 8  # that stand for the law of a number at a point: its quantiles
_NO_CHANCE = 1e-6


def why_not_measured(release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]) -> str | None:
    """Why labels cannot come from the measurement; None where they can."""
    if release.measurement is None:
        return "there is no measurement"
    if release.method != "random-features" or isinstance(release.measurement.feature_map, MarginFeatures):
        return "their points carry what was measured of it"
    if any(isinstance(other, Text) for other in release.domain.columns):
        return "it was measured beside texts"
    if column.name not in release.domain.names or len(release.domain) < 2:
        return "it was not measured beside others"
    if not isinstance(column, Categorical | Integer | Real):
        return f"it is a {column.kind}"
    if task == "classification" and not isinstance(column, Categorical):
        return "the law of a number is told by its quantiles, which are not all its values"
    derived = {one.column.name for one in release.derived}
    return "columns are computed from others" if derived & set(predictors) else None


def measured_labels(release: ReleaseData, column: Column, task: str, frame: pd.DataFrame) -> tuple[Array, Array, Array]:
    """Labels that rows can have, as chances given their other columns.

    Returns  (places, cells, chances), each (m,): positions in the frame, in order, a label in natural units and levels, and
             its chance given the row; those of a row sum to one.
    Errors   ValueError where the law has too many numbers to find.
    """
    model = law_of(release, column.name)
    if isinstance(model, EmbeddingRegressor):
        numbers = np.clip(_numbers(model, frame), *_ends(column))
        return np.repeat(np.arange(len(frame)), _NUMBERS), numbers.ravel(), np.full(numbers.size, 1 / _NUMBERS)
    chances = model.predict_proba(frame)
    chances = np.where(chances > _NO_CHANCE, chances, 0.0)
    chances /= chances.sum(axis=1, keepdims=True)
    places, levels = np.nonzero(chances)
    cells = model.classes_[levels]
    return places, cells.astype(float) if task == "regression" else cells, chances[places, levels]


def law_of(release: ReleaseData, target: str) -> EmbeddingClassifier | EmbeddingRegressor:
    """The law of the target given the other columns, fitted once for a release; ValueError where it has too many numbers."""
    key = ("measured law", target)
    if key not in memo(release):
        memo(release)[key] = fit_embedding(release, target)
    found: Any = memo(release)[key]
    return found


def _ends(column: Any) -> tuple[float, float]:
    """The public bounds: models of logarithms or counts take no number beyond them."""
    return float(column.lower), float(column.upper)


def _numbers(model: EmbeddingRegressor, frame: pd.DataFrame) -> Array:
    """Quantiles (n, _NUMBERS) of the law given each row, moved so that their mean is its mean."""
    grid, chances = model.grid_, model.chances(frame)
    reached = np.cumsum(chances, axis=1) - chances / 2
    wanted = (np.arange(_NUMBERS) + 0.5) / _NUMBERS
    found = np.array([np.interp(wanted, row, grid) for row in reached])
    return found + (chances @ grid - found.mean(axis=1))[:, None]


__all__ = ["LABELS", "Labels", "law_of", "measured_labels", "why_not_measured"]
