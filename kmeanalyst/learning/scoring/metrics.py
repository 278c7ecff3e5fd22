"""Scikit-learn's metrics as functions of the rows' weights, each with its derivative by every weight.

A metric is built from weighted sums (`Statistic`), so that its influence function follows (Deville 1999). Metrics of ranks sort the
rows, which is meaningless under signed weights: they need weights ≥ 0. Derivation: tutorials/derivations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from kmeanalyst.inference.estimate.statistic import Statistic, mean_of_rows
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.expressions import words

Loss = Callable[[Array, Array], Array]  # (truth, prediction), both (n,), → losses (n,)
Need = Literal["predicted", "probabilities", "scores"]
_empty = partial(np.empty, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """The truth at n rows, and what a model predicts there.

    truth          (n,) codes of classes, or numbers.
    predicted      (n,) the model's predictions, in the same form.
    probabilities  (n, K) of the classes.
    scores         (n, K) by which rows are ranked for each class.
    classes        (K,) the classes' names; None for numbers.
    positive       the code of the class in question; None: all of them, averaged.
    weights        (M,) of the first M rows; the others have none, only a derivative.

    Answers that no metric needed are empty.
    """

    truth: Array
    predicted: Array = field(default_factory=_empty)
    probabilities: Array = field(default_factory=_empty)
    scores: Array = field(default_factory=_empty)
    classes: Array | None = None
    positive: int | None = None
    weights: Array = field(default_factory=_empty)

    def with_weights(self, weights: Array) -> Predictions:
        return replace(self, weights=weights)

    def sum(self, values: Array) -> Statistic:
        return mean_of_rows(self.weights, values)

    def mean(self, values: Array) -> Statistic:
        return self.sum(values) / self.total

    @cached_property
    def total(self) -> Statistic:
        return self.sum(np.ones(len(self.truth)))

    @cached_property
    def padded(self) -> Array:
        return np.concatenate([self.weights, np.zeros(len(self.truth) - len(self.weights))])

    def at_weighted_rows(self, values: Array) -> Array:
        return values[: len(self.weights)][self.weights != 0]

    def named(self, values: Array) -> Array:
        return values if self.classes is None else self.classes[values]

    def classes_among(self, *codes: Array) -> Sequence[int]:
        """The class in question; without one, the classes among these codes at rows that have a weight."""
        if self.positive is not None:
            return [self.positive]
        found = np.unique(np.concatenate([self.at_weighted_rows(each) for each in codes]))
        return [int(code) for code in found]


Formula = Callable[[Predictions], Statistic]


@dataclass(frozen=True)
class Metric:
    """A metric: how it is computed, what it needs from a model, and what values a population can give it.

    of       the value with its derivative by each row's weight (n,); NaN where it has none.
    needs    the answers of the model that it uses.
    bounds   least and largest value under probability weights.
    ranks    whether it sorts the rows, and so needs weights ≥ 0.
    """

    name: str
    of: Formula
    needs: Need = "predicted"
    bounds: tuple[float, float] = (0.0, 1.0)
    ranks: bool = False


# ------------------------------------------------------------------------------------------------ classes


def _log_loss(rows: Predictions) -> Statistic:
    """-log of the true class's probability, which is kept above the smallest step of its precision."""
    least = np.finfo(rows.probabilities.dtype).eps
    of_truth = np.take_along_axis(rows.probabilities, rows.truth[:, None], axis=1)[:, 0]
    return rows.mean(-np.log(np.clip(of_truth, least, 1 - least)))


def _brier(rows: Predictions) -> Statistic:
    """Σ over classes of (probability - truth)²; of the class in question alone, where there is one."""
    true = rows.truth[:, None] == np.arange(rows.probabilities.shape[1])
    square = np.square(rows.probabilities - true)
    return rows.mean(square.sum(axis=1) if rows.positive is None else square[:, rows.positive])


def _f_measure(recall: float) -> Formula:
    """Σ w · both / Σ w · (a · true + (1 - a) · predicted), averaged over classes: a is 0 for precision, 1 for recall."""

    def of(rows: Predictions) -> Statistic:
        terms = []
        for k in rows.classes_among(rows.truth, rows.predicted):
            size = recall * (rows.truth == k) + (1 - recall) * (rows.predicted == k)
            terms.append(_ratio(_correct(rows, k), rows.sum(size)))
        return _average(terms)

    return of


def _balanced_accuracy(rows: Predictions) -> Statistic:
    classes = np.unique(rows.at_weighted_rows(rows.truth))
    return _average([_correct(rows, k) / rows.sum(rows.truth == k) for k in classes])


def _of_ranks(area: Callable[[Predictions, Array, Array], Statistic]) -> Formula:
    return lambda rows: _average([area(rows, rows.truth == k, rows.scores[:, k]) for k in rows.classes_among(rows.truth)])


def _roc_area(rows: Predictions, event: Array, score: Array) -> Statistic:
    """Σ w_i w_j [s_i > s_j] over events i and other rows j, ties counted half, over the sums of both weights.

    Adding weight to an event adds the others' weight below it, and vice versa.
    """
    rank = np.unique(score, return_inverse=True)[1]
    up, down = np.bincount(rank, rows.padded * event), np.bincount(rank, rows.padded * ~event)
    below, above = np.cumsum(down) - down / 2, up.sum() - np.cumsum(up) + up / 2
    pairs = Statistic(up @ below, np.where(event, below[rank], above[rank]))
    return pairs / (rows.sum(event) * rows.sum(~event))


def _precision_area(rows: Predictions, event: Array, score: Array) -> Statistic:
    """Σ (R_k - R_{k-1}) P_k over the distinct scores, from the highest: N / T, N = Σ t_k T_k / A_k.

    t_k the events' weight at score k, T_k that at it and above, A_k the weight of all rows there, T the events' in all.
    Adding weight to a row of group g adds T_g/A_g (to t_g), t_k/A_k (to T_k) and -t_k T_k/A_k² (to A_k) for each k ≥ g;
    the first two if it is an event.
    """
    group = np.unique(-score, return_inverse=True)[1]
    t, a = np.bincount(group, rows.padded * event), np.bincount(group, rows.padded)
    T, A = np.cumsum(t), np.cumsum(a)
    weighted = A > 0  # above the first weighted row there is no weight: an event there would be found with precision 1
    divisor = np.where(weighted, A, 1.0)
    precision = np.where(weighted, T / divisor, 1.0)
    onwards = np.cumsum((t / divisor)[::-1])[::-1]
    lost = np.cumsum((t * precision / divisor)[::-1])[::-1]
    slope = np.where(event, (precision + onwards)[group], 0.0) - lost[group]
    return Statistic(t @ precision, slope) / rows.sum(event)


def _correct(rows: Predictions, k: int) -> Statistic:
    return rows.sum((rows.truth == k) & (rows.predicted == k))


def _ratio(part: Statistic, whole: Statistic) -> Statistic:
    """part / whole; where the whole is 0, scikit-learn's 0, with no derivative unless no row can change it."""
    if whole.value != 0:
        return part / whole
    return Statistic(0.0, np.full_like(part.influence, np.nan if np.any(whole.influence != 0) else 0.0))


def _average(terms: Sequence[Statistic]) -> Statistic:
    total: Any = sum(terms)
    return total / len(terms)


# ------------------------------------------------------------------------------------------------ numbers


def _squared(rows: Predictions) -> Statistic:
    return rows.mean(np.square(rows.truth - rows.predicted))


def _r2(rows: Predictions) -> Statistic:
    centred = rows.truth - float(np.mean(rows.at_weighted_rows(rows.truth)))  # near 0: the variance keeps its digits
    return 1 - _squared(rows) / (rows.mean(centred**2) - rows.mean(centred) ** 2)


CLASSIFICATION = {
    metric.name: metric
    for metric in (
        Metric("accuracy", lambda rows: rows.mean(rows.truth == rows.predicted)),
        Metric("balanced_accuracy", _balanced_accuracy),
        Metric("precision", _f_measure(0)),
        Metric("recall", _f_measure(1)),
        Metric("f1", _f_measure(1 / 2)),
        Metric("log_loss", _log_loss, "probabilities", (0.0, np.inf)),
        Metric("brier_score_loss", _brier, "probabilities", (0.0, 2.0)),
        Metric("roc_auc", _of_ranks(_roc_area), "scores", ranks=True),
        Metric("average_precision", _of_ranks(_precision_area), "scores", ranks=True),
    )
}
REGRESSION = {
    metric.name: metric
    for metric in (
        Metric("r2", _r2, bounds=(-np.inf, 1.0)),
        Metric("mean_squared_error", _squared, bounds=(0.0, np.inf)),
        Metric("root_mean_squared_error", lambda rows: _squared(rows) ** 0.5, bounds=(0.0, np.inf)),
        Metric("mean_absolute_error", lambda rows: rows.mean(np.abs(rows.truth - rows.predicted)), bounds=(0.0, np.inf)),
    )
}


def metric_named(name: Any, classes: Array | None) -> Metric:
    """The metric of scikit-learn's name, or of a loss function; by default that of the task.

    name      "roc_auc" and "roc_auc_score" are the same; None: roc_auc of two classes, accuracy of more, r2 of numbers.
    classes   of the model; None for numbers.
    """
    known = REGRESSION if classes is None else CLASSIFICATION
    if name is None:
        return known["r2" if classes is None else "roc_auc" if len(classes) == 2 else "accuracy"]
    if callable(name):
        return Metric(getattr(name, "__name__", "loss"), _loss(name), bounds=(-np.inf, np.inf))
    if (plain := str(name).removesuffix("_score")) in known:
        return known[plain]
    task = "of numbers" if classes is None else "of classes"
    near = words.close(plain.removeprefix("neg_"), list(known)) or next(iter(known))
    raise ValueError(
        f"{name!r} is not a metric for a model {task}; there are {', '.join(known)} (losses as losses, not negated). "
        f'Pass one of these, such as "{near}", or a function loss(y_true, prediction) of arrays.'
    )


def _loss(loss: Loss) -> Formula:
    """The mean of a loss function of the named classes, or of numbers."""

    def of(rows: Predictions) -> Statistic:
        losses = np.asarray(loss(rows.named(rows.truth), rows.named(rows.predicted)), dtype=float)
        if losses.shape != rows.truth.shape or not np.isfinite(rows.at_weighted_rows(losses)).all():
            raise ValueError(
                f"the loss must give one finite number for each of {len(rows.truth)} rows, got shape {losses.shape}"
                f"{'' if losses.shape != rows.truth.shape else ' with undefined values'}. Return an array such as "
                "np.abs(y_true - prediction)."
            )
        return rows.mean(losses)

    return of
