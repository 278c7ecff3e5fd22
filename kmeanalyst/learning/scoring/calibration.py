"""Whether rows to which a model gives a chance of 30 % are so in 30 of 100 cases, with the error of each share.

Bins are of predicted values alone, at the released points or the sample's rows, and are taken as fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.inference.estimate.population import Population, Statistic, Where, estimate, estimates
from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.scoring.evaluation import ScoringTask, frame_of, positive_shares, scoring_task
from kmeanalyst.learning.scoring.metrics import Evidence, Smooth
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
    """Observed shares of a class by bins of its predicted probability, one row for each bin with weight.

    data      a Release, or a sample, as `score` takes it.
    strategy  "quantile": bins of about equal weight. "uniform": of equal width in [0, 1].
    positive  the class, of more than two; of two the second.
    view      the probability view by default: under signed weights a bin can weigh nothing, or less.
    Columns   predicted (mean in the bin), observed, standard_error, low, high (the interval at `level`), the parts, share
              (of all rows), view, note; the index is the range of predicted probabilities.

    >>> ka.calibration(model, sample, bins=3)[["predicted", "observed", "standard_error"]]
                       predicted  observed  standard_error
    bin
    0.00771 to 0.0592   0.032095  0.011976        0.004860
    0.0592 to 0.333     0.154969  0.138000        0.015424
    0.333 to 0.9        0.489781  0.549098        0.022275
    """
    binned = _binned(model, data, bins, strategy, target, positive, where, view)
    found = estimates(binned.population, [binned.observed(k) for k in range(len(binned.labels))])
    frame = frame_of(found, pd.Index(binned.labels, name="bin"), level).rename(columns={"value": "observed"})
    means = [binned.rows.sum(binned.within(k) * binned.chance) / binned.weight(k) for k in range(len(found))]
    frame.insert(0, "predicted", [mean.value for mean in means])
    shares = [(binned.weight(k) / binned.rows.total).value for k in range(len(found))]
    frame.insert(frame.columns.get_loc("view"), "share", shares)
    return frame


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

    A sum of absolute values of noisy differences is too large: a note says what about a perfectly calibrated model would
    show, Σ √(2/π) · standard error of each bin's difference. What is not clearly above it shows no miscalibration.

    >>> ka.expected_calibration_error(model, sample, bins=5).value
    0.02873...
    """
    binned = _binned(model, data, bins, strategy, target, positive, where, view)
    gaps = [binned.gap(k) for k in range(len(binned.labels))]
    slopes = binned.population.influence(np.column_stack([gap.slope for gap in gaps]))
    parts = binned.population.model.parts(slopes)
    errors = np.sqrt(sum(np.square(part) for part in parts.values() if part is not None))
    chance_alone = float(np.sqrt(2 / np.pi) * errors.sum())
    told = (
        f"biased upwards by the errors: a perfectly calibrated model would show about {chance_alone:.3g} in these bins"
    )
    statistic = Statistic(
        value=sum(abs(gap.value) for gap in gaps),
        influence=slopes @ np.sign([gap.value for gap in gaps]),
        question=binned.population.text(f"expected_calibration_error({binned.asked.task.target})"),
        notes=(*binned.asked.notes, told),
    )
    return estimate(binned.population, statistic)


@dataclass(frozen=True, eq=False)
class _Binned:
    """Rows by bins of their predicted chance.

    chance   (n,) predicted; event (n,) whether it is so; place (n,) the bin; labels of the bins.
    """

    asked: ScoringTask
    population: Population | SampleLaw
    rows: Evidence
    chance: Array
    event: Array
    place: Array
    labels: Sequence[str]

    def within(self, k: int) -> Array:
        return self.place == k

    def weight(self, k: int) -> Smooth:
        return self.rows.sum(self.within(k))

    def observed(self, k: int) -> Statistic:
        """The share of the class in a bin."""
        share = self.rows.sum(self.within(k) & self.event) / self.weight(k)
        notes = list(self.asked.notes)
        if not -1e-9 <= share.value <= 1 + 1e-9:
            notes.append(f"{share.value:.4g} is no share: signed weights can give one")
        influence = self.population.influence(share.slope)
        return Statistic(value=share.value, influence=influence, question=self.labels[k], notes=tuple(notes))

    def gap(self, k: int) -> Smooth:
        """share · (observed - mean predicted)."""
        return self.rows.mean(self.within(k) * (self.event - self.chance))


def _binned(
    model: Any,
    data: Any,
    bins: int,
    strategy: Strategy,
    target: str | None,
    positive: Any,
    where: Where,
    view: View | None,
) -> _Binned:
    if strategy not in ("quantile", "uniform") or bins < 1:
        raise ValueError(
            f'calibration needs at least one bin and a strategy "quantile" or "uniform", got {bins!r} and {strategy!r}. '
            'Pass e.g. bins=10, strategy="quantile".'
        )
    asked = scoring_task(model, data, target=target, positive=positive, where=where, view=view)
    answers = asked.answers(["probabilities"] if asked.task.positive is not None else [], ranks=view is None)
    chance, event = positive_shares(asked, answers)
    population = asked.law(view is None)  # the probability view where none is named
    rows = Evidence(population.weights, answers)
    edges = _edges(chance[: len(population.weights)], population.weights, bins, strategy)
    place = np.searchsorted(edges[1:-1], chance, side="left")
    held = [k for k in range(len(edges) - 1) if population.weights @ (place[: len(population.weights)] == k) != 0]
    labels = [f"{edges[k]:.3g} to {edges[k + 1]:.3g}" for k in held]
    renumbered = np.full(len(edges) - 1, -1)
    renumbered[held] = np.arange(len(held))
    return _Binned(asked, population, rows, chance, event, renumbered[place], labels)


def _edges(chance: Array, weights: Array, bins: int, strategy: Strategy) -> Array:
    """Edges of bins, inner ones increasing: each bin holds its right one, and the first both."""
    if strategy == "uniform":
        return np.linspace(0, 1, bins + 1)
    used, orders = weights > 0, np.arange(1, bins) / bins
    inner = np.quantile(chance[used], orders, weights=weights[used], method="inverted_cdf")
    return np.concatenate([[chance[used].min()], np.unique(inner), [chance[used].max()]])
