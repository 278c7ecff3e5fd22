"""How much worse a model gets when a column tells it nothing, with the error of the drop.

Permutation importance (Breiman 2001, *Random forests*; Fisher, Rudin & Dominici 2019, *All models are wrong, but many are
useful*): the column's cells are exchanged between rows. In a population that is drawing them from the column's own law,
apart from all else. Weighted rows get cells drawn from the weighted law, each as near as can be as often as its weight says
(for a sample's equal weights a permutation); the weights stay with the rows. scikit-learn's permutation_importance on
resampled rows gives the same on average, but no error from privacy noise or sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.population import Population, Statistic, Where, estimates
from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.scoring.evaluation import ScoringTask, frame_of, scoring_task, smooth_of
from kmeanalyst.learning.scoring.metrics import Loss, Metric, Smooth, metric_named
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
    level: float = 0.95,
) -> pd.DataFrame:
    """By how much a metric gets worse when a column is permuted, one row for each column, the largest first.

    data, metric, target, positive, where, view   as `score` takes them; the metric is one.
    repeats   permutations of each column, averaged; the model is asked twice at every row for each of them.
    columns   by default all that the model was fitted with, or all but the target.
    Columns   value (above 0: the model uses the column), standard_error, low, high (the interval at `level`) and the parts,
              of the difference of two scores on the same rows (a little too large where repeats are few); shuffling, the
              standard error from `repeats` draws, which the interval leaves out; view, note.

    >>> ka.feature_importance(model, sample, "accuracy", repeats=2)["value"].head(2)
    column
    marital-status    0.041
    education-num     0.029
    Name: value, dtype: float64
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}: there is nothing to average. Pass e.g. 5.")
    asked = scoring_task(model, data, target=target, positive=positive, where=where, view=view)
    shuffled = _Shuffled(asked, metric_named(metric, asked.task.classes), repeats, np.random.default_rng(rng))
    names = _columns(asked, shuffled.population.model.frame, columns)
    drops = [shuffled.drop(name) for name in names]
    frame = frame_of(estimates(shuffled.population, [drop for drop, _ in drops]), pd.Index(names, name="column"), level)
    frame.insert(frame.columns.get_loc("view"), "shuffling", [error for _, error in drops])
    return frame.sort_values("value", ascending=False, kind="stable")


@dataclass(frozen=True, eq=False)
class _Shuffled:
    """A metric of the product of a column's law and the law of all else.

    Both laws are of the same weights: adding weight to a row adds its other cells, met with cells drawn from the column,
    and its cell, met with drawn other cells. The derivative is the sum of the two.
    """

    asked: ScoringTask
    metric: Metric
    repeats: int
    rng: np.random.Generator

    @property
    def population(self) -> Population | SampleLaw:
        return self.asked.law(self.metric.ranks)

    @cached_property
    def base(self) -> Smooth:
        """The metric as it is."""
        return self._scored([self.population.model.frame])

    def drop(self, column: str) -> tuple[Statistic, float]:
        """How much worse the metric gets, and the standard error (NaN of one draw) of its mean over the draws."""
        sign = 1.0 if self.metric.greater else -1.0
        drops = [self._loss_without(column).times(sign) for _ in range(self.repeats)]
        values, slope = np.array([drop.value for drop in drops]), np.mean([drop.slope for drop in drops], axis=0)
        known = np.isfinite(slope[: len(self.population.weights)]).all()
        influence = self.population.influence(slope) if known else None
        spread = float(values.std(ddof=1) / np.sqrt(self.repeats)) if self.repeats > 1 else np.nan
        drop = Statistic(value=float(values.mean()), influence=influence, question=column, notes=self.asked.notes)
        return drop, spread

    def _loss_without(self, column: str) -> Smooth:
        """The metric less that where the column's cells are drawn from its law, once.

        The drawn rows' own derivatives, of mean 0, are taken from those of the rows they make with other cells: a column
        that is not used has no error.
        """
        frame, base = self.population.model.frame, self.base
        cells, others = self._drawn(), self._drawn()
        lent = frame.assign(**{column: frame[column].iloc[cells].array})
        met = frame.iloc[others].reset_index(drop=True).assign(**{column: frame[column].array})
        found = self._scored([lent, met])
        by_rows, by_cells = np.split(found.slope, 2)
        return Smooth(base.value - found.value, base.slope - by_rows + base.slope[others] - by_cells)

    def _scored(self, frames: list[pd.DataFrame]) -> Smooth:
        """The metric of the first frame's rows, and its derivative at those of all."""
        given = None if self.population.given is None else np.tile(self.population.given, len(frames))
        answers = self.asked.task.answers(pd.concat(frames, ignore_index=True), given, [self.metric.needs])
        return smooth_of(self.population, answers, self.metric)

    def _drawn(self) -> Array:
        """For each row (n,) another, by the law's positive weights; where the condition fails, itself."""
        population, n = self.population, len(self.population.model.frame)
        held = np.arange(n) if population.given is None else np.flatnonzero(population.given)
        drawn = np.arange(n)
        drawn[held] = self.rng.permutation(systematic_indices(_positive_weights(population), len(held), self.rng))
        return drawn


def _positive_weights(population: Population | SampleLaw) -> Array:
    """The law's weights where they are a probability's; else those of the probability view, or their positive part."""
    if (population.weights >= 0).all():
        return population.weights
    same = population.in_probability_view if isinstance(population, Population) else None
    return np.maximum(population.weights, 0) if same is None else same.weights


def _columns(asked: ScoringTask, frame: pd.DataFrame, columns: Sequence[str] | None) -> list[str]:
    known = list(asked.task.features or [name for name in frame.columns if name != asked.task.target])
    if columns is None:
        return known
    unknown = [name for name in columns if name not in known]
    if isinstance(columns, str) or unknown or not len(columns):
        raise ValueError(
            f"columns must be a list of the model's columns, got {columns!r:.80}: it has {words.names(known)}. Write some of "
            "them in brackets, or leave columns out."
        )
    return list(columns)
