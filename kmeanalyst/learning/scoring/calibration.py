"""Calibration: among rows with a predicted probability near 30 %, are about 30 % in the class? Is a predicted number the mean?

Rows are divided into bins by what is predicted of them, and each bin's share of the class, or mean of the number, has an error
bar. The bins are computed from the predictions alone, at the released points or the sample's rows, and are treated as fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.inference.estimate.population import Population, Where, answer, estimate, estimates
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.scoring.evaluation import ScoringTask, scoring_task
from kmeanalyst.learning.scoring.metrics import Predictions
from kmeanalyst.learning.scoring.sample_law import SampleLaw
from kmeanalyst.releases.release import View

Strategy = Literal["quantile", "uniform"]


def calibration(
    model: Any,
    data: Any,
    *,
    bins: int = 10,
    strategy: Strategy = "quantile",
    target: str | None = None,
    positive: Any = None,
    where: Where = None,
    view: View | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Observed shares of a class by bins of its predicted probability, or means of a number by bins of its prediction.

    One row for each bin with weight.
    data      a Release, or a sample, as `score` takes it.
    strategy  "quantile": bins of about equal weight. "uniform": bins of equal width in [0, 1], or
              between the least and the largest predicted number.
    positive  the class, if there are more than two; of two the second.
    view      the probability view by default: under signed weights a bin's weight can be 0 or negative.
    Columns   predicted (mean in the bin), observed, standard_error, low, high (the interval at `level`), the parts, share
              (of all rows), view, note; the index is the range of predictions. Numbers are in their own units,
              dates in days since 1970-01-01.

    >>> ka.calibration(model, sample, bins=3)[["predicted", "observed", "standard_error"]]
                      predicted  observed  standard_error
    bin
    0.0289 to 0.0773   0.058368   0.01996        0.006249
    0.0773 to 0.38     0.183414   0.13745        0.015368
    0.38 to 0.735      0.466321   0.54326        0.022344
    """
    scoring = scoring_task(model, data, target=target, positive=positive, where=where, view=view)
    binned = _binned(scoring, bins, strategy, view)
    population, rows, inside = binned.population, binned.rows, binned.inside
    weight = rows.sum(inside)
    observed = rows.sum(inside * binned.event[:, None]) / weight
    statistics = []
    for k, (label, share) in enumerate(zip(binned.labels, observed.value, strict=True)):
        impossible = scoring.task.classes is not None and not -1e-9 <= share <= 1 + 1e-9
        notes = (f"{share:.4g} is not a share: signed weights can give one",) if impossible else ()
        statistics.append(answer(population, observed[k], label, (*scoring.notes, *notes)))
    frame = estimates(population, statistics).to_frame(level).rename(columns={"value": "observed"})
    frame.insert(0, "predicted", (rows.sum(inside * binned.predicted[:, None]) / weight).value)
    frame.insert(frame.columns.get_loc("view"), "share", (weight / rows.total).value)
    return frame.set_axis(pd.Index(binned.labels, name="bin"), axis=0)


def expected_calibration_error(
    model: Any,
    data: Any,
    *,
    bins: int = 10,
    strategy: Strategy = "quantile",
    target: str | None = None,
    positive: Any = None,
    where: Where = None,
    view: View | None = None,
) -> Estimate:
    """Σ over bins of share · |observed - mean predicted| (Naeini, Cooper & Hauskrecht 2015); options as `calibration`.

    Of numbers it is in their units.
    A sum of absolute values of noisy differences is biased upwards. A note gives what a perfectly calibrated model would
    show, Σ √(2/π) · standard error of each bin's difference. A value not clearly above it shows no miscalibration.

    >>> ka.expected_calibration_error(model, sample, bins=5).value
    0.06630...
    """
    scoring = scoring_task(model, data, target=target, positive=positive, where=where, view=view)
    binned = _binned(scoring, bins, strategy, view)
    population = binned.population
    gaps = binned.rows.mean(binned.inside * (binned.event - binned.predicted)[:, None])
    influence = population.influence(np.asarray(gaps.influence))
    parts = population.model.parts(influence)
    errors = np.sqrt(sum(np.square(part) for part in parts.values() if part is not None))
    calibrated = float(np.sqrt(2 / np.pi) * errors.sum())
    note = f"biased upwards by the errors: a perfectly calibrated model would show about {calibrated:.3g} in these bins"
    statistic = Statistic(
        value=np.abs(gaps.value).sum(),
        influence=influence @ np.sign(gaps.value),
        question=population.text(f"expected_calibration_error({scoring.task.target})"),
        notes=(*scoring.notes, note),
    )
    return estimate(population, statistic)


@dataclass(frozen=True, eq=False)
class _Binned:
    """Rows by bins of their prediction.

    predicted   (n,) probability of the class, and event (n,) whether the row is in it; or the number, and event the true one.
    inside      (n, K) whether a row is in each of the K bins that have weight; labels (K,) of the bins.
    """

    population: Population | SampleLaw
    rows: Predictions
    predicted: Array
    event: Array
    inside: Array
    labels: Sequence[str]


def _binned(scoring: ScoringTask, bins: int, strategy: Strategy, view: View | None) -> _Binned:
    """The rows in bins, of weights without negative ones where no view is named; ValueError where no class is in question."""
    if strategy not in ("quantile", "uniform") or bins < 1:
        raise ValueError(
            f'calibration needs at least one bin and a strategy "quantile" or "uniform", got {bins!r} and {strategy!r}. '
            'Pass e.g. bins=10, strategy="quantile".'
        )
    positive, classes = scoring.task.positive, scoring.task.classes
    if positive is None and classes is not None:
        raise ValueError(
            f"calibration is of one class's probability, and the model has {len(classes)} classes. Pass positive=, the class "
            "in question."
        )
    population = scoring.population(view is None)
    weights = population.weights
    rows = scoring.answers(["predicted" if classes is None else "probabilities"], ranks=view is None).with_weights(
        weights
    )
    predicted = rows.predicted if classes is None else rows.probabilities[:, positive].astype(float)
    event = rows.truth if classes is None else rows.truth == positive
    edges = _edges(predicted[: len(weights)], weights, bins, strategy, within=None if classes is None else (0.0, 1.0))
    inside = np.searchsorted(edges[1:-1], predicted, side="left")[:, None] == np.arange(len(edges) - 1)
    held = np.flatnonzero(weights @ inside[: len(weights)])
    labels = [f"{edges[k]:.3g} to {edges[k + 1]:.3g}" for k in held]
    return _Binned(population, rows, predicted, event, inside[:, held], labels)


def _edges(
    predicted: Array, weights: Array, bins: int, strategy: Strategy, *, within: tuple[float, float] | None
) -> Array:
    """Edges of bins, inner ones increasing: each bin contains its right edge, and the first one both.

    within   of uniform bins: the ends; None for the least and the largest prediction.
    """
    used, orders = weights > 0, np.arange(1, bins) / bins
    if strategy == "uniform":
        low, high = within or (float(predicted[used].min()), float(predicted[used].max()))
        return np.linspace(low, high, bins + 1)
    inner = np.quantile(predicted[used], orders, weights=weights[used], method="inverted_cdf")
    return np.concatenate([[predicted[used].min()], np.unique(inner), [predicted[used].max()]])
