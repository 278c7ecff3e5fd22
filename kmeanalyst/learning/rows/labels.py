"""Where the labels of training rows come from: the released points, or the measurement itself.

Released points are a thousand rows or so that stand for a whole joint distribution, and each has one label of the many it
could have: a model of them learns that accident as well. The distribution of the target given the other columns is a few
numbers, and the measurement determines those better. So there are three sources, of which `choose_labels` takes one:

released  the points' own labels.
measured  every label that a point can have, weighted by its probability given the point's other columns (`measured_law`).
          On Adult's default releases gradient boosting gains .05 to .08 of ROC-AUC, a decision tree .2, at ε = 1 and at 0.1
          (tests/benchmarks/learning.py). A number is represented by 8 quantiles, and only on releases of at most 2,000
          points. Releases of margins have tens of thousands of points, whose labels already say what the tables say.
drawn     for numbers on releases of random features: new rows. The mixture of product distributions behind the measurement
          (`denoise`) gives their columns, the distribution of the target given the others (`number_law`) several labels for
          each row, evenly along it. A forest then sees as many rows as a table has, with as much spread. On simulated
          tables of 20,000 rows at ε = 1 linear models gain .04 to .06 of R², boosting .04 to .05 and neighbours .09 to .14;
          at ε = 0.1 everything loses .1 and more, so under much noise models of numbers learn from the points. Numbers with
          long tails are left to the points too: what is drawn of a tail is mostly noise, and trees and neighbours follow it
          (R² of gradient boosting on a simulated income fell from .14 to −.17 without this). The mixture takes about as
          long as publishing did, once for a release; the distribution some seconds for a target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.learning.column_law.embedding_models import EmbeddingClassifier, EmbeddingRegressor, fit_embedding
from kmeanalyst.learning.column_law.measured_law import MOST_POINTS
from kmeanalyst.learning.column_law.number_law import Bins, NumberLaw, fit_number_law, rows_for
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData, View
from kmeanalyst.representation.mixture.denoise import denoise_measurement
from kmeanalyst.representation.mixture.mixture import Mixture

Labels = Literal["drawn", "measured", "released"]
LABELS: tuple[Labels, ...] = ("drawn", "measured", "released")
_QUANTILES = 8  # that represent the distribution of a number at a point
_NEGLIGIBLE = 1e-6  # a probability
_ROWS, _LABELS = 5000, 4  # rows drawn, and labels of each
_LAW_ROWS = 8192  # that a number's distribution is fitted on
_VALUES = 20_000  # of the number, that bins are made of
_LONG_TAILS = 10  # a normal distribution has a kurtosis of 3, an exponential one of 9
_MOST_NOISE = 0.05  # of one frequency, in units of its size: .02 at ε = 1 and 20,000 rows, .13 at 0.1


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
    """One source of labels, with all that it needs; made by `find_labels` and `choose_labels`.

    name   "released", "measured" or "drawn".
    model  of measured labels: the fitted distribution of the target given the other columns.
    drawn  of drawn labels: the rows.
    """

    name: Labels
    model: EmbeddingClassifier | EmbeddingRegressor | None = None
    drawn: DrawnRows | None = None


RELEASED = LabelSource("released")


# ---------------------------------------------------------------- the choice


def choose_labels(
    release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...], view: View | None
) -> LabelSource:
    """The best source that a release has for a target; a requested view of the points gets no other rows."""
    drawn: tuple[Labels, ...] = ("drawn",) if view in (None, "resampled") else ()
    names = drawn if task == "regression" and len(release) > MOST_POINTS else (*drawn, "measured")
    for name in names:
        found = _source(name, release, column, task, predictors)
        if isinstance(found, LabelSource):
            return found
    return RELEASED


def find_labels(
    name: Labels, release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]
) -> LabelSource:
    """The source of that name; ValueError with the reason where a release does not have it for a target."""
    found = _source(name, release, column, task, predictors)
    if isinstance(found, str):
        raise ValueError(
            f'labels of {words.written(column.name)} cannot be "{name}" here: {found}. Leave labels out, or take "released".'
        )
    return found


def _source(
    name: Labels, release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]
) -> LabelSource | str:
    """The source of that name, or why there is none."""
    if name == "released":
        return RELEASED
    unavailable = drawn_unavailable if name == "drawn" else measured_unavailable
    if (reason := unavailable(release, column, task, predictors)) is not None:
        return reason
    try:
        if name == "drawn":
            return LabelSource(name, drawn=drawn_rows(release, column))
        return LabelSource(name, model=measured_model(release, column.name))
    except ValueError as error:  # the distribution has too many numbers to fit, or long tails
        return str(error)


def measured_unavailable(release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]) -> str | None:
    """Why labels cannot come from the measurement, as far as that shows before a fit; None where they can."""
    if release.measurement is None:
        return "there is no measurement"
    if release.method != "random-features" or isinstance(release.measurement.feature_map, MarginFeatures):
        return "the released points already carry what was measured of it"
    if any(isinstance(other, Text) for other in release.domain.columns):
        return "it was measured together with texts"
    if column.name not in release.domain.names or len(release.domain) < 2:
        return "it was not measured together with other columns"
    if not isinstance(column, Categorical | Integer | Real):
        return f"it is a {column.kind}"
    if task == "classification" and not isinstance(column, Categorical):
        return "the distribution of a number is represented by quantiles, which are not all its values"
    derived = {one.column.name for one in release.derived}
    return "columns are computed from others" if derived & set(predictors) else None


def drawn_unavailable(release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]) -> str | None:
    """Why rows cannot be drawn for a target, as far as that shows before a fit; None where they can."""
    if task == "classification":
        return "they are for numbers, and classes are measured at the released points"
    if (reason := measured_unavailable(release, column, task, predictors)) is not None:
        return reason
    if isinstance(column, Categorical):
        return "they are for numbers, and a boolean is measured at the released points"
    assert release.measurement is not None
    features = release.measurement.feature_map
    if not isinstance(features, RandomFourier):
        return "the measurement is not of random Fourier features"
    noise = release.measurement.noise_scale * features.n_frequencies**0.5 / features.norm_bound
    if noise > _MOST_NOISE:
        return f"the noise is {noise:.2g} of a feature's size, and above {_MOST_NOISE} the released points say more"
    return None


# ---------------------------------------------------------------- measured labels


def measured_model(release: ReleaseData, target: str) -> EmbeddingClassifier | EmbeddingRegressor:
    """The target's distribution given the other columns, fitted once for a release; ValueError for too many numbers."""
    key = ("measured law", target)
    if key not in memo(release):
        memo(release)[key] = fit_embedding(release, target)
    found: Any = memo(release)[key]
    return found


def measured_labels(
    model: EmbeddingClassifier | EmbeddingRegressor, column: Column, task: str, frame: pd.DataFrame
) -> tuple[Array, Array, Array]:
    """The labels that rows can have, with their probabilities given the other columns.

    Returns  (indices, cells, probabilities), each (m,): the row of the frame, in order; a label in natural units and levels;
             and its probability given the row. Those of a row sum to one.
    """
    if isinstance(model, EmbeddingRegressor):
        known: Any = column
        # within the public bounds: models of logarithms or counts take no number beyond them
        numbers = np.clip(_quantiles(model, frame), float(known.lower), float(known.upper))
        return np.repeat(np.arange(len(frame)), _QUANTILES), numbers.ravel(), np.full(numbers.size, 1 / _QUANTILES)
    probabilities = model.predict_proba(frame)
    probabilities = np.where(probabilities > _NEGLIGIBLE, probabilities, 0.0)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
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


# ---------------------------------------------------------------- drawn rows


def drawn_rows(release: ReleaseData, column: Column) -> DrawnRows:
    """Rows for learning a number from the other columns, the same each time; ValueError where they cannot be drawn.

    They depend on the measurement alone, not on the released points or weights.
    """
    key = ("drawn rows", column.name)
    if key not in memo(release):
        memo(release)[key] = _draw_rows(release, column)
    found: DrawnRows = memo(release)[key]
    return found


def number_law(release: ReleaseData, target: str) -> NumberLaw:
    """A number's distribution given the other columns, fitted once for a release; ValueError for too many numbers."""
    key = ("number law", target)
    if key not in memo(release):
        assert release.measurement is not None
        position, features = release.domain.position(target), release.measurement.feature_map
        assert isinstance(features, RandomFourier)
        rows = _mixture(release).draw(_VALUES, np.random.default_rng(0))
        X = rows[: rows_for(features, position, _LAW_ROWS)]
        _check_tails(release.domain[target], rows[:, position])
        memo(release)[key] = fit_number_law(release.measurement, release.domain, position, X, rows[:, position])
    found: NumberLaw = memo(release)[key]
    return found


def _mixture(release: ReleaseData) -> Mixture:
    """The mixture behind the release's measurement, fitted once."""
    key = "fitted mixture"
    if key not in memo(release):
        assert release.measurement is not None
        memo(release)[key] = denoise_measurement(release.measurement, release.domain, rng=0).mixture
    found: Mixture = memo(release)[key]
    return found


def _check_tails(column: Any, values: Array) -> None:
    """ValueError where a few extreme values decide the number's variance, by its kurtosis in natural units."""
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
    order = rng.permutation(values.size)  # in order, nearest neighbours would see only the first labels of a row
    frame = release.decode(rows)
    known: Any = column
    natural = known.decode(known.rounded(values.ravel()[order])).to_numpy(dtype=float)
    return DrawnRows(frame.iloc[order // _LABELS].reset_index(drop=True), natural)


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


__all__ = [
    "LABELS", "RELEASED", "DrawnRows", "LabelSource", "Labels", "choose_labels", "drawn_rows", "find_labels",
    "measured_labels", "measured_model", "number_law",
]  # fmt: skip
