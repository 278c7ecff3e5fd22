"""Room 5: which rows of a release a model learns from, and with what weights.

A model of weighted rows is that of the measure Σ w δ only where scikit-learn treats weights so (`weight_support`). What can
be done before it sees any is done here: rows of weight zero are left out, weights are taken relative to their sum, and the
sum is set to an effective number of rows, because penalties and priors are weighed against it: weights that sum to one would
leave hardly anything but the penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from kmeanalyst.inference.error_model import fitted_model
from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.encoder import DomainEncoder, Levels, Missing
from kmeanalyst.releases.columns import Boolean, Categorical, Column, Integer, Number
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.release import Release, View
from kmeanalyst.releases.text_column import Text
from kmeanalyst.representation.reweight import nearest_probability_weights

TaskKind = Literal["classification", "regression"]
_VIEWS: tuple[View, ...] = ("signed", "probability", "resampled", "fitted")
_CLASSES = 200  # of a whole number that is to be classified
_NO_WEIGHT = 1e-9  # of the mean weight: fitted populations have rows that hardly count
_DIGITS = 40  # binary, of a relative weight: the same weights times a constant are the same weights


@dataclass(frozen=True)
class Target:
    """What is to be learned.

    column   the target's column.
    task     "classification" or "regression".
    classes  sorted, all the domain's; None for a regression.
    """

    column: Column
    task: str
    classes: Array | None

    def cells(self, frame: pd.DataFrame) -> Array:
        """(n,) the target as an estimator wants it: text, booleans, whole numbers, or float64."""
        cells = frame[self.column.name]
        if self.classes is None:
            return cells.to_numpy(dtype=np.float64)
        kind = {"b": bool, "i": np.int64}.get(self.classes.dtype.kind, object)
        return cells.to_numpy(dtype=kind)


class TrainingData(NamedTuple):
    """What scikit-learn's fit takes.

    X              (n, F) features, a DataFrame with a name for each.
    y              (n,) the target in natural units and levels.
    sample_weight  (n,) float64, none of them 0; their sum is the effective number of rows.
    """

    X: pd.DataFrame
    y: Array
    sample_weight: Array


def target_of(release: Release, name: str, task: str | None = None) -> Target:
    """The target of that name; ValueError where it is none for the task.

    task   "classification", "regression", or None: numbers and dates are regressed, all else is classified.
    """
    if name not in release.columns.names:
        raise ValueError(
            f"no column {words.written(name)} to learn; the columns are {', '.join(release.columns.names)}. Name one of "
            "them, or derive one first: release.transform({...})."
        )
    column = release.columns[name]
    number = isinstance(column, Number)
    task = task or ("regression" if number else "classification")
    if task == "regression":
        if not number and not isinstance(column, Boolean):
            raise ValueError(
                f"{words.written(name)} is {column.describe()}, and a regression needs numbers. Take a classifier, or derive "
                "a number first: release.transform({...})."
            )
        return Target(column, task, None)
    classes = _classes(column)
    if isinstance(column, Text):
        raise ValueError(
            f"{words.written(name)} is {column.describe()}, and a classifier needs classes. Derive a condition first: "
            f'release.transform({{"is_so": "{words.example(column)}"}}).'
        )
    if classes is None:
        raise ValueError(
            f"{words.written(name)} is {column.describe()}, and a classifier needs classes. Take a regressor, or derive a "
            f'condition first: release.transform({{"high": "{words.column(name)} > ..."}}).'
        )
    return Target(column, task, classes)


def _classes(column: Column) -> Array | None:
    """All classes, sorted as scikit-learn sorts them; None for what has none, or too many."""
    if isinstance(column, Boolean):
        return np.array([False, True])
    if isinstance(column, Categorical):
        return np.array(sorted(column.levels), dtype=object)
    if isinstance(column, Integer) and column.upper - column.lower < _CLASSES:
        return np.arange(int(column.lower), int(column.upper) + 1)
    return None


def predictors_of(release: Release, target: str | None, columns: Sequence[str] | None = None) -> list[str]:
    """The columns to predict from: those named, or all but texts, the target and what it is computed from or that from it."""
    texts = {column.name for column in release.columns.columns if isinstance(column, Text)}
    if columns is None:
        kin = set() if target is None else _made_of(release, target)
        return [name for name in release.columns.names if name not in texts and not kin & _made_of(release, name)]
    unknown = [name for name in columns if name not in release.columns.names]
    if isinstance(columns, str) or unknown or not len(columns):
        raise ValueError(
            f"columns must be a list of the release's columns, got {columns!r}. They are {', '.join(release.columns.names)}."
        )
    if told := [name for name in columns if name in texts]:
        raise ValueError(
            f"{words.written(told[0])} is a column of texts, which no feature is made of. Leave it out, or derive a condition "
            f'first: release.transform({{"is_so": "{words.example(release.columns[told[0]])}"}}).'
        )
    if target is not None and target in columns:
        raise ValueError(
            f"{words.written(target)} is the target, and cannot be among the columns it is predicted from."
        )
    return list(dict.fromkeys(columns))


def _made_of(release: Release, name: str) -> set[str]:
    """The measured columns that a column is computed from; itself, for a measured one."""
    derived = {one.column.name: one for one in release.derived}
    if name not in derived:
        return {name}
    return set().union(*(_made_of(release, used) for used in derived[name].uses)) or {name}


def encoder_of(
    release: Release, columns: Sequence[str], *, levels: Levels = "onehot", missing: Missing = "mark"
) -> DomainEncoder:
    """The encoder of those columns of a release."""
    wanted = [one.column.name for one in release.derived if one.column.name in columns]
    measured = set().union(*(_made_of(release, name) for name in wanted))
    needed = [one for one in release.derived if wanted and _made_of(release, one.column.name) <= measured]
    return DomainEncoder(
        [release.columns[name].to_dict() for name in columns],
        derived=[one.to_dict() for one in needed],
        base=[column.to_dict() for column in release.domain.columns if column.name in measured],
        levels=levels,
        missing=missing,
    )


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Rows of a release in natural units, and their weights.

    frame    (n, d) in natural units, with all the release's columns.
    weights  (n,) float64, none of them 0, summing to `size`.
    size     the effective number of rows.
    notes    what was left out.
    """

    frame: pd.DataFrame
    weights: Array
    size: float
    notes: tuple[str, ...] = ()

    def scaled(self, weights: Array) -> WeightedRows:
        """The same rows with other weights (n,), relative to their sum."""
        kept = weights != 0
        return WeightedRows(self.frame[kept], _relative(weights)[kept] * self.size, self.size, self.notes)


def weighted_rows(
    release: Release,
    target: str | None,
    view: View,
    size: float | None = None,
    *,
    rng: np.random.Generator | int | None = 0,
) -> WeightedRows:
    """The rows of a view in which the target is known, with weights that sum to an effective number of rows.

    view   "signed", weights as released; "probability", the nearest probability weights; "resampled", rows of equal weight
           drawn from these; "fitted", the most plausible population behind error bars.
    size   what the weights sum to; by default what the points are worth, (Σp)²/Σp² of the probability view (Kish 1965). For
           resampled rows, how many; by default as many as there are points with a weight.
    Errors ValueError where no row has the target, or the weights of those that have sum to nothing.
    """
    if view not in _VIEWS:
        raise ValueError(f"view must be one of {', '.join(_VIEWS)}, got {view!r}.")
    if size is not None and not 0 < size < np.inf:
        raise ValueError(f"size must be a positive number of rows, got {size!r}. Leave it out, or name one.")
    if view == "resampled":
        frame, weights = _resampled(release, size, rng)
        size = len(frame)
    else:
        frame, weights = _weighted(release, view)
    known = np.ones(len(frame), dtype=bool) if target is None else frame[target].notna().to_numpy()
    share = float(weights[known].sum())
    if not share > 0:
        raise ValueError(
            f"the rows in which the target is known have weights that sum to {share:.3g}, so there is nothing to learn from. "
            'Take view="probability", or another target.'
        )
    notes = () if known.all() else (f"rows that lack {target} were left out: {1 - share:.3g} of the population",)
    kept = known & (weights != 0)
    worth = size or effective_size(probability_weights(release)) * share
    return WeightedRows(frame[kept].reset_index(drop=True), _relative(weights[kept]) * worth, worth, notes)


def _weighted(release: Release, view: View) -> tuple[pd.DataFrame, Array]:
    """Rows of a view that is not drawn, and weights that sum to one."""
    if view == "fitted":
        model = fitted_model(release)
        weights = model.weights
        frame = model.frame.iloc[: len(weights)]
        return frame, np.where(weights > _NO_WEIGHT / len(weights), weights, 0.0)
    frame = release.to_frame().drop(columns="weight")
    return frame, probability_weights(release) if view == "probability" else signed_weights(release)


def signed_weights(release: Release) -> Array:
    """The released weights relative to their sum, (M,); ValueError where that is 0."""
    total = float(release.weights.sum())
    if abs(total) <= 1e-9 * float(np.abs(release.weights).sum()):
        raise ValueError(
            "the weights sum to 0, so they weigh no population that could be learned from. Learn from weights that sum to "
            "something, or from the probability view of a published release."
        )
    return release.weights / total


def probability_weights(release: Release) -> Array:
    """The nearest probability weights to the released ones relative to their sum, (M,): 0 where these are 0."""
    weights = signed_weights(release)
    there = weights != 0
    found = np.zeros(len(weights))
    found[there] = nearest_probability_weights(release.kernel, release.encoded_points[there], weights[there])
    return np.where(found > _NO_WEIGHT / len(found), found, 0.0)


def _resampled(release: Release, size: float | None, rng: Any) -> tuple[pd.DataFrame, Array]:
    """Rows of equal weight: systematic resampling of the probability view (Kitagawa 1996)."""
    p = probability_weights(release)
    there = np.flatnonzero(p)
    n = len(there) if size is None else max(1, round(size))
    cumulative = np.cumsum(_relative(p[there]))
    places = (np.arange(n) + np.random.default_rng(rng).random()) / n * cumulative[-1]
    drawn = there[np.minimum(np.searchsorted(cumulative, places, side="right"), len(there) - 1)]
    return release.to_frame().drop(columns="weight").iloc[drawn], np.full(n, 1 / n)


def _relative(weights: Array) -> Array:
    """Weights that sum to one, to 40 binary digits of the largest: times a constant, they are the same to the last bit."""
    unit = np.abs(weights).max() / 2.0**_DIGITS
    whole = np.rint(weights / unit)
    return whole / whole.sum()


def effective_size(weights: Array) -> float:
    """(Σw)²/Σw²: how many rows of equal weight would tell as much (Kish 1965)."""
    return float(weights.sum() ** 2 / (weights @ weights))


def to_sklearn(
    release: Release,
    target: str,
    *,
    columns: Sequence[str] | None = None,
    view: View = "probability",
    size: float | None = None,
    task: TaskKind | None = None,
    levels: Levels = "onehot",
    missing: Missing = "mark",
    rng: np.random.Generator | int | None = 0,
) -> TrainingData:
    """X, y and sample_weight for scikit-learn's fit: see `Release.to_sklearn`."""
    goal = target_of(release, target, task)
    rows = weighted_rows(release, target, view, size, rng=rng)
    encoder = encoder_of(release, predictors_of(release, target, columns), levels=levels, missing=missing)
    return TrainingData(encoder.transform(rows.frame), goal.cells(rows.frame), rows.weights)
