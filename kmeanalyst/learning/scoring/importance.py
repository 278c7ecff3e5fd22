"""How much worse a model predicts when one column carries no information, with the error of the drop.

Permutation importance (Breiman 2001, *Random forests*; Fisher, Rudin & Dominici 2019, *All models are wrong, but many are
useful*): the column's cells are exchanged between rows. In a population this means drawing them from the column's own
distribution, independently of all else. Weighted rows get cells drawn from the weighted distribution, each as often as its
weight says, up to rounding (for a sample's equal weights a permutation); the weights stay with the rows. scikit-learn's
permutation_importance on resampled rows agrees on average, but has no error from privacy noise or sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.population import Population, Where, answer, estimates
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.scoring.evaluation import ScoringTask, metric_under, scoring_task
from kmeanalyst.learning.scoring.metrics import Loss, Metric, metric_named
from kmeanalyst.learning.scoring.sample_law import SampleLaw
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.release import View
from kmeanalyst.representation.weights.views import systematic_indices


def feature_importance(
    model: Any,
    data: Any,
    metric: str | Loss | None = None,
    *,
    repeats: int = 5,
    rng: np.random.Generator | int = 0,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    positive: Any = None,
    where: Where = None,
    view: View | None = None,
) -> pd.DataFrame:
    """By how much a metric gets worse when a column is permuted, one row for each column, the largest first.

    data, metric, target, positive, where, view   as in `score`; one metric.
    repeats   permutations of each column, averaged; for each one the model predicts twice at every row.
    columns   by default all that the model was fitted with, or all but the target.
    Columns   value (above 0: the model uses the column), standard_error, low, high (the 95 % interval) and the parts, of the
              difference of two scores on the same rows (a little too large where repeats are few); shuffling, the standard
              error from `repeats` draws, which the interval leaves out; view, note.

    >>> ka.feature_importance(model, sample, "accuracy", repeats=2)["value"].head(2)
    column
    marital-status    0.034333
    capital-gain      0.033333
    Name: value, dtype: float64
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}: there is nothing to average. Pass e.g. 5.")
    scoring = scoring_task(model, data, target=target, positive=positive, where=where, view=view)
    shuffled = _Shuffled(scoring, metric_named(metric, scoring.task.classes), repeats, np.random.default_rng(rng))
    names = _columns(scoring, shuffled.population.model.frame, columns)
    drops, spreads = zip(*(shuffled.drop(name) for name in names), strict=True)
    frame = estimates(shuffled.population, drops).to_frame().set_axis(pd.Index(names, name="column"), axis=0)
    frame.insert(frame.columns.get_loc("view"), "shuffling", spreads)
    return frame.sort_values("value", ascending=False, kind="stable")


@dataclass(frozen=True, eq=False)
class _Shuffled:
    """A metric where one column and all else are independent, each with its own distribution.

    Both distributions have the same weights: adding weight to a row adds its other cells, combined with cells drawn from the
    column, and its cell, combined with drawn other cells. The derivative is the sum of the two.
    """

    scoring: ScoringTask
    metric: Metric
    repeats: int
    rng: np.random.Generator

    @property
    def population(self) -> Population | SampleLaw:
        return self.scoring.population(self.metric.ranks)

    @cached_property
    def base(self) -> Statistic:
        """The metric on the rows as they are."""
        return self._metric_of([self.population.model.frame])

    def drop(self, column: str) -> tuple[Statistic, float]:
        """How much worse the metric gets, and the standard error (NaN of one draw) of its mean over the draws."""
        sign = 1.0 if self.metric.greater else -1.0
        drops = [self._drop_once(column) * sign for _ in range(self.repeats)]
        drop: Statistic = sum(drops) / self.repeats
        if not np.isfinite(np.asarray(drop.influence)[: len(self.population.weights)]).all():
            drop = Statistic(drop.value, None)
        values = [drop.value for drop in drops]
        spread = float(np.std(values, ddof=1) / np.sqrt(self.repeats)) if self.repeats > 1 else np.nan
        return answer(self.population, drop, column, self.scoring.notes), spread

    def _drop_once(self, column: str) -> Any:
        """The metric minus its value where the column's cells are drawn once.

        The drawn rows' own derivatives have mean 0. They are subtracted from the derivatives at the rows that combine them
        with other cells, so that a column that is not used has no error.
        """
        frame, base = self.population.model.frame, self.base
        cells, others = self._drawn_indices(), self._drawn_indices()
        with_drawn_cells = frame.assign(**{column: frame[column].iloc[cells].array})
        with_drawn_others = frame.iloc[others].reset_index(drop=True).assign(**{column: frame[column].array})
        found = self._metric_of([with_drawn_cells, with_drawn_others])
        by_rows, by_cells = np.split(np.asarray(found.influence), 2)
        own = np.asarray(base.influence)
        with np.errstate(invalid="ignore"):  # a metric that is undefined has no drop either: NaN, and `score` says why
            return Statistic(base.value - found.value, own - by_rows + own[others] - by_cells)

    def _metric_of(self, frames: list[pd.DataFrame]) -> Statistic:
        given = None if self.population.given is None else np.tile(self.population.given, len(frames))
        answers = self.scoring.task.answers(pd.concat(frames, ignore_index=True), given, [self.metric.needs])
        return metric_under(self.population, answers, self.metric)

    def _drawn_indices(self) -> Array:
        """For each row (n,) another, drawn by positive weights; where the condition fails, the row itself."""
        population, drawn = self.population, np.arange(len(self.population.model.frame))
        held = drawn.copy() if population.given is None else np.flatnonzero(population.given)
        drawn[held] = self.rng.permutation(systematic_indices(_positive_weights(population), len(held), self.rng))
        return drawn


def _positive_weights(population: Population | SampleLaw) -> Array:
    """The weights where all are ≥ 0; else those of the probability view, or their positive part."""
    if (population.weights >= 0).all():
        return population.weights
    return np.maximum((population.in_probability_view or population).weights, 0)


def _columns(scoring: ScoringTask, frame: pd.DataFrame, columns: Sequence[str] | None) -> list[str]:
    known = list(scoring.task.features or [name for name in frame.columns if name != scoring.task.target])
    if columns is None:
        return known
    unknown = [name for name in columns if name not in known]
    if isinstance(columns, str) or unknown or not len(columns):
        raise ValueError(
            f"columns must be a list of the model's columns, got {columns!r:.80}: it has {words.names(known)}. Name some of "
            "them in a list, or leave columns out."
        )
    return list(columns)
