"""Where the labels of training rows come from: the released points, or the measurement itself.

A thousand released points or so represent a whole joint distribution, and each has one of the many labels it could have: a
model of them also learns this accident. The distribution of the target given the other columns has few parameters, and the
measurement determines these better. So there are four sources, of which `choose_labels` takes one:

released  the points' own labels.
measured  every label that a point can have, weighted by its probability given the point's other columns (`measured_law`).
          On Adult's default releases gradient boosting gains .05 to .08 of ROC-AUC, a decision tree .2, at ε = 1 and at 0.1
          (tests/benchmarks/learning.py). A number is represented by 8 quantiles, and only on releases of at most 2,000
          points. Releases of margins have tens of thousands of points, whose labels already carry what the tables say.
smoothed  on releases of margins. For classes every label that a row can have, weighted by its probability given the row's
          other columns in models of the rows that the measurement stops (`smoothed_classes`). For numbers two to four values
          that a row can have, from rows whose predicted mean is alike (`smoothed_numbers`). Trees gain most,
          since they follow drawn labels most: at ε = 1 a decision tree on Adult .16 of ROC-AUC, a forest .017, histogram
          boosting .005 (tests/benchmarks/class_targets.py), and on a simulated table .5, .07 and .005 of R²
          (tests/benchmarks/numeric_targets.py). With more than two classes a rare label is represented by some of the rows that
          can have it, with larger weights.
drawn     for numbers on releases of random features: new rows. Their columns are drawn from the mixture of product
          distributions behind the measurement (`denoise`), and each row gets several labels, evenly along the distribution
          of the target given the others (`number_law`). A forest then sees as many rows as a table has, with the same
          spread. On simulated tables of 20,000 rows at ε = 1 linear models gain .04 to .06 of R², boosting .04 to .05 and
          neighbours .09 to .14; at ε = 0.1 everything loses .1 and more, so under much noise models of numbers learn from
          the points. So do models of numbers with long tails: labels drawn in a tail are mostly noise, and trees and
          neighbours follow it (without this, R² of gradient boosting on a simulated income fell from .14 to −.17). The
          mixture takes about as long as publishing did, once for a release; the distribution some seconds for a target.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.learning.column_law.embedding_models import EmbeddingModel, EmbeddingRegressor, fit_embedding
from kmeanalyst.learning.column_law.measured_law import MOST_POINTS
from kmeanalyst.learning.column_law.number_law import Bins, NumberLaw, fit_number_law, rows_for
from kmeanalyst.learning.column_law.smoothed_classes import (
    SmoothedClasses,
    fit_smoothed_classes,
    smoothed_unavailable,
)
from kmeanalyst.learning.column_law.smoothed_numbers import (
    SmoothedNumbers,
    fit_smoothed_numbers,
    numbers_unavailable,
)
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData, View
from kmeanalyst.representation.mixture.denoise import denoise_measurement
from kmeanalyst.representation.mixture.mixture import Mixture

Labels = Literal["drawn", "measured", "released", "smoothed"]
LABELS: tuple[Labels, ...] = ("drawn", "measured", "released", "smoothed")
_QUANTILES = 8  # quantiles that represent the distribution of a number at a point
_NEGLIGIBLE = 1e-6  # a probability
_LABELLED, _LABELS_OF_A_ROW = (
    100_000,
    2,
)  # labels of classes: about so many in all, or so many for a row if that is more
_ROWS, _LABELS = 5000, 4  # rows drawn, and labels of each
_LAW_ROWS = 8192  # rows on which a number's distribution is fitted
_VALUES = 20_000  # values of the number from which bins are made
_LONG_TAILS = 10  # a normal distribution has a kurtosis of 3, an exponential one of 9
_MOST_NOISE = 0.05  # noise on one frequency, in units of its size: .02 at ε = 1 and 20,000 rows, .13 at 0.1


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Rows of equal weight with their labels.

    frame  (n, columns) in natural units, each row _LABELS times; the target's own cells mean nothing.
    cells  (n,) float64, the target in natural units.
    """

    frame: pd.DataFrame
    cells: Array


@dataclass(frozen=True, eq=False)
class LabelSource:
    """One source of labels, with what it needs; see `find_labels` and `choose_labels`.

    name   "released", "measured", "smoothed" or "drawn".
    model  of measured and smoothed labels: the fitted distribution of the target given the other columns.
    drawn  of drawn labels: the rows.
    """

    name: Labels
    model: EmbeddingModel | SmoothedClasses | SmoothedNumbers | None = None
    drawn: DrawnRows | None = None


RELEASED = LabelSource("released")


# ---------------------------------------------------------------- the choice


def choose_labels(
    release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...], view: View | None
) -> LabelSource:
    """The best source that a release has for a target; with a view of the points, rows are not drawn anew."""
    drawn: tuple[Labels, ...] = ("drawn",) if view in (None, "resampled") else ()
    if task == "classification":
        names: tuple[Labels, ...] = ("measured", "smoothed")
    else:
        names = ("smoothed", *drawn) if len(release) > MOST_POINTS else ("smoothed", *drawn, "measured")
    for name in names:
        with suppress(ValueError):
            return find_labels(name, release, column, task, predictors)
    return RELEASED


def find_labels(
    name: Labels, release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]
) -> LabelSource:
    """The source of that name; ValueError with the reason where a release does not have it for a target."""
    if name == "released":
        return RELEASED
    reason = _unavailable(name, release, column, task, predictors)
    if reason is None:
        try:
            return _label_source(name, release, column, task, predictors)
        except ValueError as error:  # the distribution has too many parameters to fit, or long tails
            reason = str(error)
    raise ValueError(
        f'labels of {words.written(column.name)} cannot be "{name}" here: {reason}. Leave labels out, or take "released".'
    )


def _unavailable(
    name: Labels, release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]
) -> str | None:
    if name != "smoothed":
        unavailable = drawn_unavailable if name == "drawn" else measured_unavailable
        return unavailable(release, column, task, predictors)
    return (numbers_unavailable if task == "regression" else smoothed_unavailable)(release, column.name)


def _label_source(
    name: Labels, release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]
) -> LabelSource:
    if name == "drawn":
        return LabelSource(name, drawn=drawn_rows(release, column))
    if name == "smoothed" and task == "regression":
        return LabelSource(name, model=smoothed_numbers(release, column.name, predictors))
    return LabelSource(name, model=(smoothed_model if name == "smoothed" else measured_model)(release, column.name))


def _once(release: ReleaseData, key: Any, make: Callable[[], Any]) -> Any:
    """What `make` gives, computed once for a release."""
    known = memo(release)
    if key not in known:
        known[key] = make()
    return known[key]


def measured_unavailable(release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]) -> str | None:
    """Why labels cannot come from the measurement, as far as known before a fit; None where they can."""
    if release.measurement is None:
        return "there is no measurement"
    if release.method != "random-features" or isinstance(release.measurement.feature_map, MarginFeatures):
        return "the released points already carry what was measured of it"
    if any(other.is_text for other in release.domain.columns):
        return "it was measured together with texts"
    if column.name not in release.domain.names or len(release.domain) < 2:
        return "it was not measured together with other columns"
    if not (column.has_levels or isinstance(column, Integer | Real)):
        return f"it is a {column.kind}"
    if task == "classification" and not column.has_levels:
        return "the distribution of a number is represented by quantiles, which are not all its values"
    derived = {one.column.name for one in release.derived}
    return "columns are computed from others" if derived & set(predictors) else None


def drawn_unavailable(release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]) -> str | None:
    """Why rows cannot be drawn for a target, as far as known before a fit; None where they can."""
    if task == "classification":
        return "they are for numbers, and classes are measured at the released points"
    if (reason := measured_unavailable(release, column, task, predictors)) is not None:
        return reason
    if column.has_levels:
        return "they are for numbers, and a boolean is measured at the released points"
    assert release.measurement is not None
    features = release.measurement.feature_map
    if not isinstance(features, RandomFourier):
        return "the measurement is not of random Fourier features"
    noise = release.measurement.noise_scale * features.n_frequencies**0.5 / features.norm_bound
    if noise > _MOST_NOISE:
        return f"the noise is {noise:.2g} of a feature's size, and above {_MOST_NOISE} the released points are better"
    return None


# ---------------------------------------------------------------- measured labels


def measured_model(release: ReleaseData, target: str) -> EmbeddingModel:
    """The target's distribution given the other columns, fitted once for a release; ValueError for too many parameters."""
    return _once(release, ("measured law", target), lambda: fit_embedding(release, target))


def smoothed_model(release: ReleaseData, target: str) -> SmoothedClasses:
    """The target's smoothed probabilities, fitted once for a release; ValueError where its rows have a single class."""
    return _once(release, ("smoothed classes", target), lambda: fit_smoothed_classes(release, target))


def smoothed_numbers(release: ReleaseData, target: str, predictors: tuple[str, ...]) -> SmoothedNumbers:
    """The values of a number given these columns, fitted once for a release; ValueError where no row has it."""
    key = ("smoothed numbers", target, tuple(sorted(predictors)))
    return _once(release, key, lambda: fit_smoothed_numbers(release, target, predictors))


def measured_labels(
    model: EmbeddingModel | SmoothedClasses | SmoothedNumbers, column: Column, task: str, frame: pd.DataFrame
) -> tuple[Array, Array, Array]:
    """The labels that rows can have, with their probabilities given the other columns.

    Returns  (indices, cells, probabilities), each (m,): the index of the row, ascending; a label in natural units and levels;
             and its probability given the row. The probabilities of a row sum to one; those of smoothed labels, of which
             some rows represent others, sum to one on average.
    """
    if isinstance(model, SmoothedNumbers):
        values = model.values_of(frame)
        n, K = values.shape
        return np.repeat(np.arange(n), K), values.ravel().astype(float), np.full(values.size, 1 / K)
    if isinstance(model, EmbeddingRegressor):
        known: Any = column
        # within the public bounds: models of logarithms or counts take no number beyond them
        numbers = np.clip(_quantiles(model, frame), float(known.lower), float(known.upper))
        return np.repeat(np.arange(len(frame)), _QUANTILES), numbers.ravel(), np.full(numbers.size, 1 / _QUANTILES)
    probabilities = model.predict_proba(frame)
    probabilities = np.where(probabilities > _NEGLIGIBLE, probabilities, 0.0)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    if isinstance(model, SmoothedClasses):
        probabilities = _thinned(probabilities)
    indices, levels = np.nonzero(probabilities)
    cells = model.classes_[levels]
    return indices, cells.astype(float) if task == "regression" else cells, probabilities[indices, levels]


def _quantiles(model: EmbeddingRegressor, frame: pd.DataFrame) -> Array:
    """Quantiles (n, _QUANTILES) of the distribution given each row, moved so that their mean is its mean."""
    grid, probabilities = model.grid_, model.chances(frame)
    reached = np.cumsum(probabilities, axis=1) - probabilities / 2
    wanted = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    found = np.array([np.interp(wanted, row, grid) for row in reached])
    return found + (probabilities @ grid - found.mean(axis=1))[:, None]


def _thinned(probabilities: Array) -> Array:
    """Probabilities (n, K) with some of each label's set to 0 and others raised, so that their sums, nearly, stay.

    Each label is kept at as many rows as any other, or in proportion to its share if that is more: of two, at all. Smaller
    probabilities than a threshold are drawn evenly, in proportion to their size, and count as the threshold (Duffield, Lund &
    Thorup 2005).
    """
    n, K = probabilities.shape
    of_a_row = max(_LABELLED / n, _LABELS_OF_A_ROW)
    found = np.zeros_like(probabilities)
    for own, p in zip(found.T, probabilities.T, strict=True):
        wanted = n * min(1.0, of_a_row * max(1 / K, float(p.mean())))
        threshold = _threshold(p, wanted)
        ends = np.cumsum(np.minimum(p / threshold, 1.0)) + 0.5
        kept = (p >= threshold) | (np.floor(ends) > np.floor(np.append(0.5, ends[:-1])))
        own[kept] = np.maximum(p[kept], threshold)
    return found


def _threshold(p: Array, wanted: float) -> float:
    """The threshold t with Σ min(1, p/t) = wanted; the smallest positive p where fewer are positive."""
    positive = np.sort(p[p > 0])[::-1]
    if len(positive) <= wanted:
        return float(positive[-1]) if len(positive) else 1.0
    rest = positive.sum() - np.append(0.0, np.cumsum(positive)[:-1])  # all but the k largest
    thresholds = rest / np.maximum(wanted - np.arange(len(positive)), _NEGLIGIBLE)
    return float(thresholds[np.argmax(positive < thresholds)])


# ---------------------------------------------------------------- drawn rows


def drawn_rows(release: ReleaseData, column: Column) -> DrawnRows:
    """Rows for learning a number from the other columns, the same each time; ValueError where they cannot be drawn.

    They depend on the measurement alone, not on the released points or weights.
    """
    return _once(release, ("drawn rows", column.name), lambda: _draw_rows(release, column))


def number_law(release: ReleaseData, target: str) -> NumberLaw:
    """A number's distribution given the other columns, fitted once for a release; ValueError for too many parameters."""
    return _once(release, ("number law", target), lambda: _fit_law(release, target))


def _fit_law(release: ReleaseData, target: str) -> NumberLaw:
    measurement: Any = release.measurement
    position = release.domain.position(target)
    rows = _mixture(release).draw(_VALUES, np.random.default_rng(0))
    X = rows[: rows_for(measurement.feature_map, position, _LAW_ROWS)]
    _check_tails(release.domain[target], rows[:, position])
    return fit_number_law(measurement, release.domain, position, X, rows[:, position])


def _mixture(release: ReleaseData) -> Mixture:
    """The mixture behind the release's measurement, fitted once."""
    measurement: Any = release.measurement
    return _once(release, "fitted mixture", lambda: denoise_measurement(measurement, release.domain, rng=0).mixture)


def _check_tails(column: Any, values: Array) -> None:
    """ValueError where a few extreme values dominate the number's variance, by its kurtosis in natural units."""
    natural = column.decode(values[~np.isnan(values)]).to_numpy(dtype=float)
    centred = natural - natural.mean()
    kurtosis = float((centred**4).mean() / max((centred**2).mean(), 1e-300) ** 2)
    if kurtosis > _LONG_TAILS:
        raise ValueError(
            f"{column.name!r} has long tails (a kurtosis of {kurtosis:.0f}, above {_LONG_TAILS}): labels drawn there would be "
            'mostly noise. Leave labels out, or take "released".'
        )


def _draw_rows(release: ReleaseData, column: Column) -> DrawnRows:
    law, rng = number_law(release, column.name), np.random.default_rng(1)
    rows = _mixture(release).draw(_ROWS, rng)
    values = _draw_labels(law.bins, law.probabilities(rows), rng)
    order = rng.permutation(values.size)  # unshuffled, nearest neighbours would see only the first labels of a row
    known: Any = column
    natural = known.decode(known.rounded(values.ravel()[order])).to_numpy(dtype=float)
    return DrawnRows(release.decode(rows).iloc[order // _LABELS].reset_index(drop=True), natural)


def _draw_labels(bins: Bins, probabilities: Array, rng: np.random.Generator) -> Array:
    """(n, _LABELS) encoded values, evenly along each row's distribution from a random offset; never missing."""
    members = [part for part in bins.members if not np.isnan(part[0])]
    probabilities = probabilities[:, : len(members)]  # missing cells are the last
    ends = np.cumsum(probabilities, axis=1) / probabilities.sum(axis=1, keepdims=True)
    uniform = (np.arange(_LABELS) + rng.random((len(probabilities), 1))) / _LABELS
    chosen = (uniform[:, :, None] > ends[:, None, :-1]).sum(axis=2)
    below = np.take_along_axis(np.pad(ends, ((0, 0), (1, 0))), chosen, axis=1)
    width = np.take_along_axis(ends, chosen, axis=1) - below
    within = np.clip((uniform - below) / np.maximum(width, 1e-12), 0, 1 - 1e-9)
    out = np.empty(chosen.shape)
    for c, part in enumerate(members):
        own = chosen == c
        out[own] = part[(within[own] * len(part)).astype(int)]
    return out
