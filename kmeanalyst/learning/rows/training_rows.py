"""Which rows of a release a model learns from, and with what weights.

A model of weighted rows is a model of the measure Σ w δ only where scikit-learn treats weights so (`weight_support`). What
can be prepared is prepared here: rows of weight zero are left out, weights are divided by their sum, and the sum is set to an
effective number of rows, because penalties and priors are weighed against it: with weights that sum to one the penalty
would dominate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.error_model import fitted_model
from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.rows.encoder import ENCODINGS, MISSING, DomainEncoder, Encoding, Missing
from kmeanalyst.learning.rows.labels import (
    LABELS,
    RELEASED,
    DrawnRows,
    Labels,
    LabelSource,
    find_labels,
    measured_labels,
)
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Number
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.release import ReleaseData, View
from kmeanalyst.representation.weights.reweight import nearest_probability_weights
from kmeanalyst.representation.weights.views import systematic_indices

TaskKind = Literal["classification", "regression"]
TASKS: tuple[TaskKind, ...] = ("classification", "regression")
_VIEWS: tuple[View, ...] = ("signed", "probability", "resampled", "fitted")
DRAWN_VIEWS: tuple[View, ...] = ("probability", "resampled")  # of equal weights, which take both
_CLASSES = 200  # of a whole number that is to be classified
_NO_WEIGHT = 1e-9  # of the mean weight: fitted populations have rows that hardly count
_DIGITS = 30  # binary, of a relative weight: the same weights times a constant are the same, but for one in some 2**21


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

    >>> data = release.to_sklearn("income")
    >>> data.X.shape, data.y.shape, data.sample_weight.shape
    ((288, 12), (288,), (288,))
    """

    X: pd.DataFrame
    y: Array
    sample_weight: Array


def target_of(release: ReleaseData, name: str, task: str | None = None) -> Target:
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
    if isinstance(column, Date):
        raise ValueError(
            f"{words.written(name)} is {column.describe()}, and no model predicts days as they are. Derive a number or a "
            "condition first: release.transform({...})."
        )
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


def predictors_of(release: ReleaseData, target: str | None, columns: Sequence[str] | None = None) -> list[str]:
    """The columns to predict from: those named, or all but texts, the target and what it is computed from or that from it."""
    texts = {column.name for column in release.columns.columns if isinstance(column, Text)}
    if columns is None:
        related = set() if target is None else _made_of(release, target)
        left = [name for name in release.columns.names if name not in texts and not related & _made_of(release, name)]
        if texts and not left:
            raise ValueError(
                f"all other columns are texts ({', '.join(sorted(texts))}), which no feature is made of. Derive a condition "
                f'first: release.transform({{"is_so": "{words.example(release.columns[min(texts)])}"}}).'
            )
        return left
    unknown = [name for name in columns if name not in release.columns.names]
    if isinstance(columns, str) or unknown or not len(columns):
        raise ValueError(
            f"columns must be a list of the release's columns, got {columns!r}. They are {', '.join(release.columns.names)}."
        )
    if chosen_texts := [name for name in columns if name in texts]:
        raise ValueError(
            f"{words.written(chosen_texts[0])} is a column of texts, which no feature is made of. Leave it out, or derive a "
            f'condition first: release.transform({{"is_so": "{words.example(release.columns[chosen_texts[0]])}"}}).'
        )
    if target is not None and target in columns:
        raise ValueError(
            f"{words.written(target)} is the target, and cannot be among the columns it is predicted from."
        )
    computed = [] if target is None else [name for name in columns if _is_made_with(release, name, target)]
    if target is not None and computed:
        raise ValueError(
            f"{', '.join(computed)} is computed from {words.written(target)}, the target, and would reveal it. Leave it "
            "out of columns."
        )
    return list(dict.fromkeys(columns))


def _is_made_with(release: ReleaseData, name: str, other: str) -> bool:
    """Whether a column is computed from another, by way of further ones or not."""
    uses = next((one.uses for one in release.derived if one.column.name == name), ())
    return any(used == other or _is_made_with(release, used, other) for used in uses)


def _made_of(release: ReleaseData, name: str) -> set[str]:
    """The measured columns that a column is computed from; itself, for a measured one."""
    derived = {one.column.name: one for one in release.derived}
    if name not in derived:
        return {name}
    return set().union(*(_made_of(release, used) for used in derived[name].uses)) or {name}


def check_option(name: str, value: Any, known: Sequence[str]) -> None:
    """ValueError unless the value is one of those known: any other would quietly mean one of them."""
    if value not in known:
        raise ValueError(
            f"{name} must be one of {', '.join(known)}, got {value!r:.80}. Leave it out for what is usual."
        )


def encoder_of(
    release: ReleaseData, columns: Sequence[str], *, encoding: Encoding = "onehot", missing: Missing = "mark"
) -> DomainEncoder:
    """The encoder of those columns of a release; ValueError for unknown `encoding` or `missing`."""
    check_option("encoding", encoding, ENCODINGS)
    check_option("missing", missing, MISSING)
    wanted = [one.column.name for one in release.derived if one.column.name in columns]
    measured = set().union(*(_made_of(release, name) for name in wanted))
    needed = [one for one in release.derived if wanted and _made_of(release, one.column.name) <= measured]
    return DomainEncoder(
        [release.columns[name].to_dict() for name in columns],
        derived=[one.to_dict() for one in needed],
        base=[column.to_dict() for column in release.domain.columns if column.name in measured],
        encoding=encoding,
        missing=missing,
    )


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows of a release in natural units, their labels and weights.

    frame           (n, d) in natural units, with all the release's columns.
    cells           (n,) of the target, in natural units and levels; None without a target.
    weights         (n,) float64, none of them 0, summing to `effective_rows`.
    effective_rows  the effective number of rows.
    labels          where the cells of the target come from: "drawn", "measured" or "released".
    notes           what was left out.
    """

    frame: pd.DataFrame
    cells: Array | None
    weights: Array
    effective_rows: float
    labels: Labels
    notes: tuple[str, ...] = ()


def training_rows(
    release: ReleaseData,
    goal: Target | None,
    view: View,
    *,
    effective_rows: float | None = None,
    labels: LabelSource = RELEASED,
    rng: np.random.Generator | int | None = 0,
) -> TrainingRows:
    """The rows of a view in which the target is known, with weights that sum to an effective number of rows.

    view            "signed", weights as released; "probability", the nearest probability weights; "resampled", rows of equal
                    weight drawn from these; "fitted", the most plausible population behind error bars.
    effective_rows  what the weights sum to; by default the effective size (Σp)²/Σp² of the probability view (Kish 1965),
                    or the number of rows where labels are measured, since none of those is a random draw. In the
                    resampled view the number of rows to draw; by default as many as there are to draw from.
    labels          where labels come from (`rows.labels`): the points, the measurement at the points, or rows of equal
                    weight drawn from the measurement in place of the points.
    Errors          ValueError where no row has the target, or the weights of those that have it sum to 0.
    """
    check_option("view", view, _VIEWS)
    if effective_rows is not None and not 0 < effective_rows < np.inf:
        raise ValueError(
            f"effective_rows must be a positive number of rows, got {effective_rows!r}. Leave it out, or name one."
        )
    if labels.drawn is not None:
        return _of_drawn(labels.drawn, view, effective_rows, rng)
    frame, weights = _weighted(release, view)
    known = np.ones(len(frame), dtype=bool) if goal is None else frame[goal.column.name].notna().to_numpy()
    share = fsum(weights[known])
    if not share > 0:
        raise ValueError(
            f"the rows in which the target is known have weights that sum to {share:.3g}, so there is nothing to learn from. "
            'Take view="probability", or another target.'
        )
    notes = () if goal is None or known.all() else (_left_out(goal, share),)
    kept = known & (weights != 0)
    frame, weights = frame[kept].reset_index(drop=True), weights[kept]
    cells = None if goal is None else goal.cells(frame)
    if labels.model is not None and goal is not None:
        indices, cells, probabilities = measured_labels(labels.model, goal.column, goal.task, frame)
        frame, weights = frame.iloc[indices].reset_index(drop=True), weights[indices] * probabilities
    if view == "resampled":
        drawn = _drawn(weights, effective_rows, rng)
        frame, cells = frame.iloc[drawn].reset_index(drop=True), None if cells is None else cells[drawn]
        return TrainingRows(frame, cells, np.ones(len(drawn)), float(len(drawn)), labels.name, notes)
    worth = effective_rows or (
        len(frame) if labels.name == "measured" else effective_size(probability_weights(release)) * share
    )
    weights = _relative(weights)
    kept = weights != 0
    cells = None if cells is None else cells[kept]
    return TrainingRows(frame[kept].reset_index(drop=True), cells, weights[kept] * worth, worth, labels.name, notes)


def _of_drawn(found: DrawnRows, view: View, effective_rows: float | None, rng: Any) -> TrainingRows:
    """Rows drawn from the measurement; in the resampled view as many of them as asked for."""
    if view not in DRAWN_VIEWS:
        raise ValueError(
            f"rows that are drawn from the measurement have equal weights, and no {view} ones, which are of the released points. "
            'Leave view out, or take labels="measured" or "released".'
        )
    frame, cells, n = found.frame, found.cells, len(found.cells)
    if view == "resampled" and effective_rows is not None:
        chosen = _drawn(np.full(n, 1 / n), effective_rows, rng)
        frame, cells, n = frame.iloc[chosen].reset_index(drop=True), cells[chosen], len(chosen)
    worth = float(n) if view == "resampled" or effective_rows is None else effective_rows
    return TrainingRows(frame, cells, np.full(n, worth / n), worth, "drawn")


def _left_out(goal: Target, share: float) -> str:
    return f"rows that lack {words.written(goal.column.name)} were left out: {1 - share:.3g} of the population"


def _weighted(release: ReleaseData, view: View) -> tuple[pd.DataFrame, Array]:
    """Rows of a view that is not drawn, and weights that sum to one."""
    if view == "fitted":
        model = fitted_model(release)
        weights = model.weights
        frame = model.frame.iloc[: len(weights)]
        return frame, np.where(weights > _NO_WEIGHT / len(weights), weights, 0.0)
    frame = release.frame
    return frame, signed_weights(release) if view == "signed" else probability_weights(release)


def signed_weights(release: ReleaseData) -> Array:
    """The released weights relative to their sum, (M,); ValueError where that is 0.

    Where some are negative, a row that occurs several times has the sum of its weights at its first place, and 0 at the
    others: what cancels is gone, and a model need not see it cancel.
    """
    total = fsum(release.weights)
    if abs(total) <= 1e-9 * float(np.abs(release.weights).sum()):
        raise ValueError(
            "the weights sum to 0, so they weigh no population that could be learned from. Learn from weights that sum to "
            "something, or from the probability view of a published release."
        )
    weights = release.weights / total
    if weights.min() >= 0:
        return _relative(weights)
    rows = np.where(np.isnan(release.encoded_points), np.inf, release.encoded_points)
    _, first, places = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    merged = np.zeros(len(weights))
    merged[first] = np.bincount(places.ravel(), weights)
    return _relative(merged)


def probability_weights(release: ReleaseData) -> Array:
    """The nearest probability weights to the released ones relative to their sum, (M,): 0 where these are 0."""
    weights = signed_weights(release)
    there = weights != 0
    found = np.zeros(len(weights))
    found[there] = nearest_probability_weights(release.kernel, release.encoded_points[there], weights[there])
    return _relative(np.where(found > _NO_WEIGHT / there.sum(), found, 0.0))


def _drawn(weights: Array, effective_rows: float | None, rng: Any) -> Array:
    """Indices of rows of equal weight."""
    n = len(weights) if effective_rows is None else max(1, round(effective_rows))
    return systematic_indices(_relative(weights), n, np.random.default_rng(rng))


def _relative(weights: Array) -> Array:
    """Weights that sum to one, to `_DIGITS` of the largest: times a constant, or among zeros, the same to the last bit."""
    unit = np.abs(weights).max() / 2.0**_DIGITS
    whole = np.rint(weights / unit)
    return whole / whole.sum()


def effective_size(weights: Array) -> float:
    """(Σw)²/Σw²: the number of rows of equal weight with the same information (Kish 1965)."""
    return float(fsum(weights) ** 2 / fsum(weights**2))


def to_sklearn(
    release: ReleaseData,
    target: str,
    *,
    columns: Sequence[str] | None = None,
    view: View = "probability",
    effective_rows: float | None = None,
    task: TaskKind | None = None,
    encoding: Encoding = "onehot",
    missing: Missing = "mark",
    labels: Labels = "released",
    rng: np.random.Generator | int | None = 0,
) -> TrainingData:
    """X, y and sample_weight for scikit-learn's fit: see `Release.to_sklearn`."""
    if task is not None:
        check_option("task", task, TASKS)
    check_option("labels", labels, LABELS)
    goal = target_of(release, target, task)
    names = predictors_of(release, target, columns)
    source = find_labels(labels, release, goal.column, goal.task, tuple(names))
    rows = training_rows(release, goal, view, effective_rows=effective_rows, labels=source, rng=rng)
    encoder = encoder_of(release, names, encoding=encoding, missing=missing)
    assert rows.cells is not None
    return TrainingData(encoder.transform(rows.frame), rows.cells, rows.weights)
