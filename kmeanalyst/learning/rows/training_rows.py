"""Which rows of a release a model learns from, and with what weights.

Rows of weight zero are left out, and weights are scaled so that they sum to an effective number of rows. Penalties and priors
are relative to that sum: with weights that sum to one the penalty would dominate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.error_model import fitted_model
from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.rows.encoder import ENCODINGS, MISSING, DomainEncoder, Encoding, Missing, refuse_texts
from kmeanalyst.learning.rows.labels import LABELS, LabelModel, Labels, find_labels
from kmeanalyst.releases.derived import Derived, sources_of
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.expressions.arrays import numbers_of
from kmeanalyst.releases.release import ReleaseData, View
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.representation.weights.reweight import nearest_probability_weights
from kmeanalyst.representation.weights.views import systematic_indices

_VIEWS: tuple[View, ...] = ("signed", "probability", "resampled", "fitted")
_CLASSES = 200  # the most values of a whole number that can be classified
_NO_WEIGHT = 1e-9  # share of the mean weight below which a weight is 0: fitted populations have rows that hardly count
_OF_LABELS = 0x6C6162656C  # "label": the stream of their order
_DIGITS = 30  # binary, of a relative weight: hides the rounding of weights times a constant, but for one in some 2**21


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
        """(n,) the target as an estimator wants it: text, booleans, whole numbers, or float64; dates as days since 1970-01-01."""
        cells = frame[self.column.name]
        if self.classes is None:
            return numbers_of(cells)
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
    """The target of that name; ValueError where it does not suit the task.

    task   "classification", "regression", or None: numbers and dates are regressed, all else is classified.
    """
    if name not in release.columns.names:
        raise ValueError(
            f"no column {words.written(name)} to learn; the columns are {', '.join(release.columns.names)}. Name one of "
            "them, or derive one first: release.transform({...})."
        )
    column = release.columns[name]
    described, name = f"{words.written(name)} is {column.describe()}", words.column(name)
    task = task or ("regression" if column.is_number else "classification")
    if task == "regression":
        if not column.is_number and not isinstance(column, Boolean):
            raise ValueError(
                f"{described}, and a regression needs numbers. Use a classifier, or derive a number first: "
                "release.transform({...})."
            )
        return Target(column, task, None)
    if column.is_text:
        raise ValueError(
            f"{described}, and a classifier needs classes. Derive a condition first: "
            f'release.transform({{"is_so": "{words.example(column)}"}}).'
        )
    if (classes := _classes(column)) is None:
        raise ValueError(
            f"{described}, and a classifier needs classes. Use a regressor, or derive a condition first: "
            f'release.transform({{"high": "{name} > ..."}}).'
        )
    return Target(column, task, classes)


def _classes(column: Column) -> Array | None:
    """All classes, sorted as in scikit-learn; None for a column that has none, or too many."""
    if isinstance(column, Boolean):
        return np.array([False, True])
    if isinstance(column, Categorical):
        return np.array(sorted(column.levels), dtype=object)
    if isinstance(column, Integer) and column.upper - column.lower < _CLASSES:
        return np.arange(int(column.lower), int(column.upper) + 1)
    return None


def predictors_of(release: ReleaseData, target: str | None, columns: Sequence[str] | None = None) -> list[str]:
    """The columns to predict from: those named, or all but texts, the target, what it is computed from and what uses that."""
    if columns is None:
        texts = [column for column in release.columns.columns if column.is_text]
        names = [column.name for column in release.columns.columns if not column.is_text]
        related = set() if target is None else sources_of(_derived(release), [target])
        left = [name for name in names if not related & sources_of(_derived(release), [name])]
        if not left and not texts:
            raise ValueError(
                f"the release has no column to predict {words.written(str(target))} from: it has {', '.join(names)} alone. "
                "Take a release of more columns."
            )
        if texts and not left:
            raise ValueError(
                f"all other columns are texts ({', '.join(sorted(text.name for text in texts))}), which no feature is made of. "
                f'Derive a condition first: release.transform({{"is_so": "{words.example(texts[0])}"}}).'
            )
        return left
    unknown = [name for name in columns if name not in release.columns.names]
    if isinstance(columns, str) or unknown or not len(columns):
        raise ValueError(
            f"columns must be a list of the release's columns, got {columns!r}. They are {', '.join(release.columns.names)}."
        )
    refuse_texts([release.columns[name] for name in columns])
    if target is None:
        return list(dict.fromkeys(columns))
    if target in columns:
        raise ValueError(
            f"{words.written(target)} is the target, and cannot be among the columns it is predicted from. Leave it out."
        )
    if computed := [name for name in columns if target in sources_of(_derived(release), [name])]:
        raise ValueError(
            f"{', '.join(computed)} is computed from {words.written(target)}, the target, and would reveal it. Leave it "
            "out of columns."
        )
    return list(dict.fromkeys(columns))


def _derived(release: ReleaseData) -> list[Derived]:
    """The derived columns of the domain's rules, then those of the release."""
    columns, of_rules = release.domain.columns, rules_of(release.domain).derived
    return [Derived(column=columns[j], expression=own.text) for j, own in of_rules.items()] + [*release.derived]


def check_option(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r:.80}. Leave it out for the default.")


def encoder_of(
    release: ReleaseData, columns: Sequence[str], *, encoding: Encoding = "onehot", missing: Missing = "mark"
) -> DomainEncoder:
    check_option("encoding", encoding, ENCODINGS)
    check_option("missing", missing, MISSING)
    derived = _derived(release)
    computed = {one.column.name for one in derived}
    sources = sources_of(derived, computed.intersection(columns))
    return DomainEncoder(
        [release.columns[name].to_dict() for name in columns],
        derived=[one.to_dict() for one in derived if one.column.name in sources],
        base=[column.to_dict() for column in release.domain.columns if column.name in sources - computed],
        encoding=encoding, missing=missing,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows of a release in natural units, their labels and weights.

    frame           (n, d) in natural units, with all the release's columns.
    cells           (n,) of the target, in natural units and levels; None without a target.
    weights         (n,) float64, none of them 0, summing to `effective_rows`.
    effective_rows  the effective number of rows.
    labels          where the cells of the target come from: "smoothed" or "released".
    notes           what was left out.
    """

    frame: pd.DataFrame
    cells: Array | None
    weights: Array
    effective_rows: float
    labels: Labels
    notes: tuple[str, ...] = ()


class Sampling(TypedDict, total=False):
    """How rows are taken from a release: the view, their effective number, and of drawn rows the random numbers."""

    view: View | None
    effective_rows: float | None
    rng: np.random.Generator | int | None


def training_rows(
    release: ReleaseData, goal: Target | None, view: View, *, effective_rows: float | None = None,
    labels: LabelModel | None = None, rng: np.random.Generator | int | None = 0,
) -> TrainingRows:  # fmt: skip
    """The rows of a view in which the target is known, with weights that sum to an effective number of rows.

    view            "signed", weights as released; "probability", the nearest probability weights; "resampled", rows of equal
                    weight drawn from these; "fitted", the most plausible population behind error bars.
    effective_rows  the sum of the weights; by default the effective size (Σp)²/Σp² of the probability view (Kish 1965),
                    In the resampled view the number of rows to draw; by default as many as there are to draw from.
    labels          the model of smoothed labels (`rows.labels`); None for the released ones.
    Errors          ValueError where no row has the target, or the weights of those that have it do not have a positive sum.
    """
    check_option("view", view, _VIEWS)
    if effective_rows is not None and not 0 < effective_rows < np.inf:
        raise ValueError(f"effective_rows must be a positive number of rows, got {effective_rows!r}. Leave it out, or name one.")
    frame, weights = _weighted(release, view)
    known = np.ones(len(frame), dtype=bool) if goal is None else frame[goal.column.name].notna().to_numpy()
    share = fsum(weights[known])
    if goal is not None and not known.any():
        raise ValueError(
            f"no row of the release has {words.written(goal.column.name)}: its cells are missing in all of them, so there is "
            "nothing to learn from. Take another target."
        )
    if not share > 0:
        raise ValueError(
            f"the rows in which the target is known have weights that sum to {share:.3g}, so there is nothing to learn from. "
            'Take view="probability", or another target.'
        )
    notes: tuple[str, ...] = ()
    name: Labels = "released" if labels is None else "smoothed"
    if goal is not None and not known.all():
        notes = (f"rows without {words.written(goal.column.name)} were left out: {1 - share:.3g} of the population",)
    kept = known & (weights != 0)
    frame, weights = frame[kept].reset_index(drop=True), weights[kept]
    cells = None if goal is None else goal.cells(frame)
    indices = np.arange(len(frame))
    if labels is not None and goal is not None:
        indices, cells, probabilities = labels.labels_of(frame)
        frame, weights = frame.iloc[indices].reset_index(drop=True), weights[indices] * probabilities
    if view == "resampled":
        if labels is not None and effective_rows is None and np.ptp(weights) <= _NO_WEIGHT:
            drawn = np.arange(len(weights))  # every label of every row: they have equal weights
        elif labels is not None:
            drawn = _drawn_labels(indices, weights, effective_rows, rng)
        else:
            drawn = _drawn(weights, effective_rows, rng)
        frame, cells = frame.iloc[drawn].reset_index(drop=True), None if cells is None else cells[drawn]
        return TrainingRows(frame, cells, np.ones(len(drawn)), float(len(drawn)), name, notes)
    if effective_rows is None:
        effective_rows = effective_size(probability_weights(release)) * share
    weights = _relative(weights)
    kept = weights != 0
    frame, cells = frame[kept].reset_index(drop=True), None if cells is None else cells[kept]
    return TrainingRows(frame, cells, weights[kept] * effective_rows, effective_rows, name, notes)


def _weighted(release: ReleaseData, view: View) -> tuple[pd.DataFrame, Array]:
    """Rows and weights that sum to one, of a view or, for "resampled", of the view that its rows are drawn from."""
    if view == "fitted":
        model = fitted_model(release)
        if model.posterior.on_points:  # best answers have negative weights: rows without these are worse than the points
            return release.frame, probability_weights(release)
        weights = model.weights
        frame = model.frame.iloc[: len(weights)]
        return frame, np.where(weights > _NO_WEIGHT / len(weights), weights, 0.0)
    return release.frame, signed_weights(release) if view == "signed" else probability_weights(release)


def signed_weights(release: ReleaseData) -> Array:
    """The released weights relative to their sum, (M,); ValueError where that is 0.

    Where some are negative, a row that occurs several times has the sum of its weights at its first occurrence, and 0 at the
    others, so that weights that cancel are gone.
    """
    total = fsum(release.weights)
    if abs(total) <= 1e-9 * float(np.abs(release.weights).sum()):
        raise ValueError(
            "the weights sum to 0, so they describe no population to learn from. Use weights with another sum, or the "
            "probability view of a published release."
        )
    weights = release.weights / total
    if weights.min() >= 0:
        return _relative(weights)
    rows = np.where(np.isnan(release.encoded_points), np.inf, release.encoded_points)
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    merged = np.zeros(len(weights))
    merged[first] = np.bincount(group.ravel(), weights)
    return _relative(merged)


def probability_weights(release: ReleaseData) -> Array:
    """The nearest probability weights to the released ones relative to their sum, (M,): 0 where these are 0."""
    weights = signed_weights(release)
    used = weights != 0
    found = np.zeros(len(weights))
    found[used] = nearest_probability_weights(release.kernel, release.encoded_points[used], weights[used])
    return _relative(np.where(found > _NO_WEIGHT / used.sum(), found, 0.0))


def _drawn(weights: Array, effective_rows: float | None, rng: Any) -> Array:
    n = len(weights) if effective_rows is None else max(1, round(effective_rows))
    return systematic_indices(_relative(weights), n, np.random.default_rng(rng))


def _drawn_labels(indices: Array, weights: Array, effective_rows: float | None, rng: Any) -> Array:
    """Indices of rows drawn likewise, each with one of its labels: at quantiles that are even over the rows, in any order.

    indices  (n,) of the row that a label is of, ascending; weights (n,) of the labels.

    The order has a stream of its own. Publishing orders the cells of a release's rows by an offset and a permutation, with seeds
    that anybody may use again: the same stream would give the lowest quantiles to the lowest cells.
    """
    rng = np.random.default_rng(rng)
    ends = np.cumsum(weights)
    own = np.bincount(indices, weights)
    rows = _drawn(own, effective_rows, rng)
    stream = np.random.default_rng([_OF_LABELS, int(rng.integers(2**63))])
    quantiles = stream.permutation((np.arange(len(rows)) + 0.5) / len(rows))
    last = np.searchsorted(indices, rows, side="right") - 1
    return np.searchsorted(ends, ends[last] - own[rows] * (1 - quantiles))


def _relative(weights: Array) -> Array:
    """Weights that sum to one, rounded to `_DIGITS` of the largest: a constant factor or added zeros change no bit."""
    unit = np.abs(weights).max() / 2.0**_DIGITS
    whole = np.rint(weights / unit)
    return whole / whole.sum()


def effective_size(weights: Array) -> float:
    """(Σw)²/Σw²: the number of rows of equal weight with the same information (Kish 1965)."""
    return float(fsum(weights) ** 2 / fsum(weights**2))


def to_sklearn(
    release: ReleaseData, target: str, *, columns: Sequence[str] | None, encoding: Encoding, missing: Missing, labels: Labels,
    **sampling: Any,
) -> TrainingData:  # fmt: skip
    """What scikit-learn's fit takes, of the rows that `training_rows` takes from a release."""
    check_option("labels", labels, LABELS)
    goal, names = target_of(release, target), predictors_of(release, target, columns)
    source = find_labels(labels, release, goal.column, goal.task, tuple(names))
    rows = training_rows(release, goal, labels=source, **sampling)
    encoder = encoder_of(release, names, encoding=encoding, missing=missing)
    assert rows.cells is not None
    return TrainingData(encoder.transform(rows.frame), rows.cells, rows.weights)
