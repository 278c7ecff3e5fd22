"""Where the labels of training rows come from: the rows' own, or every label that a row can have.

A row of a release of margins has one drawn label of the many that it can have, and a model also learns this accident. The
distribution of the target given the other columns has few parameters, which the measured tables determine better:

released  the rows' own labels.
smoothed  on releases of margins. For classes every label that a row can have, weighted by its probability given the row's
          other columns in models of the rows that the measurement stops (`smoothed_classes`). For numbers two to four values
          that a row can have, from rows whose predicted mean is alike (`smoothed_numbers`). Trees gain most, since they
          follow drawn labels most (tutorials/measured.md). With more than two classes a rare label is represented by some of
          the rows that can have it, with larger weights.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.rows.smoothed_classes import SmoothedClasses, fit_smoothed_classes, smoothed_unavailable
from kmeanalyst.learning.rows.smoothed_numbers import SmoothedNumbers, fit_smoothed_numbers, numbers_unavailable
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData

Labels = Literal["released", "smoothed"]
LABELS: tuple[Labels, ...] = ("released", "smoothed")
_NEGLIGIBLE = 1e-6  # a probability
_LABELLED, _LABELS_OF_A_ROW = 100_000, 2  # of classes: about so many in all, or so many for a row if that is more


LabelModel: TypeAlias = SmoothedClasses | SmoothedNumbers


def choose_labels(release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]) -> LabelModel | None:
    """The model of smoothed labels where a release has one for a target, else None."""
    try:
        return find_labels("smoothed", release, column, task, predictors)
    except ValueError:
        return None


def find_labels(
    name: Labels, release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]
) -> LabelModel | None:
    """The model of labels of that name, None of released ones; ValueError with the reason where a release has none."""
    if name == "released":
        return None
    regressed, target = task == "regression", column.name
    reason = (numbers_unavailable if regressed else smoothed_unavailable)(release, target)
    if reason is None:
        models = memo(release)
        key = ("smoothed", target, tuple(sorted(predictors)) if regressed else None)
        try:
            if key not in models:
                models[key] = (
                    fit_smoothed_numbers(release, target, predictors)
                    if regressed
                    else fit_smoothed_classes(release, target)
                )
            found: LabelModel = models[key]
            return found
        except ValueError as error:  # the rows have a single class, or no number
            reason = str(error)
    raise ValueError(
        f'labels of {words.written(target)} cannot be "smoothed" here: {reason}. Leave labels out, or take "released".'
    )


def smoothed_labels(model: LabelModel, frame: pd.DataFrame) -> tuple[Array, Array, Array]:
    """The labels that rows can have, with their probabilities given the other columns.

    Returns  (indices, cells, probabilities), each (m,): the index of the row, ascending; a label in natural units and levels;
             and its probability given the row. The probabilities of a row sum to one; those of classes, of which some rows
             represent others, sum to one on average.
    """
    if isinstance(model, SmoothedNumbers):
        values = model.values_of(frame)
        n, K = values.shape
        return np.repeat(np.arange(n), K), values.ravel().astype(float), np.full(values.size, 1 / K)
    probabilities = model.predict_proba(frame)
    probabilities = np.where(probabilities > _NEGLIGIBLE, probabilities, 0.0)
    probabilities = _thinned(probabilities / probabilities.sum(axis=1, keepdims=True))
    indices, levels = np.nonzero(probabilities)
    return indices, model.classes_[levels], probabilities[indices, levels]


def _thinned(probabilities: Array) -> Array:
    """Probabilities (n, K) with some of each label's set to 0 and others raised, so that their sums, nearly, stay.

    Each label is kept at as many rows as any other, or in proportion to its share if that is more: of two, at all. Smaller
    probabilities than a threshold are drawn evenly, in proportion to their size, and count as the threshold (Duffield, Lund &
    Thorup 2005).
    """
    n, K = probabilities.shape
    of_a_row = max(_LABELLED / n, _LABELS_OF_A_ROW)
    out = np.zeros_like(probabilities)
    for label, p in zip(out.T, probabilities.T, strict=True):
        wanted = n * min(1.0, of_a_row * max(1 / K, float(p.mean())))
        threshold = _threshold(p, wanted)
        ends = np.cumsum(np.minimum(p / threshold, 1.0)) + 0.5
        kept = (p >= threshold) | (np.floor(ends) > np.floor(np.append(0.5, ends[:-1])))
        label[kept] = np.maximum(p[kept], threshold)
    return out


def _threshold(p: Array, wanted: float) -> float:
    """The threshold t with Σ min(1, p/t) = wanted; the smallest positive p where fewer are positive."""
    positive = np.sort(p[p > 0])[::-1]
    if len(positive) <= wanted:
        return float(positive[-1]) if len(positive) else 1.0
    rest = positive.sum() - np.append(0.0, np.cumsum(positive)[:-1])  # all but the k largest
    thresholds = rest / np.maximum(wanted - np.arange(len(positive)), _NEGLIGIBLE)
    return float(thresholds[np.argmax(positive < thresholds)])
