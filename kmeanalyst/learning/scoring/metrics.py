"""Scikit-learn's metrics as functions of the rows' weights, each with its derivative by every weight.

A metric is made of weighted sums. A `Smooth` number carries its derivative by each row's weight through sums, products,
quotients and roots, so that precision or R² is written as its formula and its influence function follows (Deville 1999).
Means are divided by the sum of the weights, as scikit-learn does: accuracy and zero-one loss add up to 1 whatever it is.
Under signed weights the formulas stand as they are, and can give values that no population has.

The two metrics of ranks, the area under the ROC curve (Mann & Whitney 1947, ties counted half) and average precision
(a sum over the distinct scores), sort the rows, which signed weights make meaningless: they are for weights ≥ 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy.special import xlogy

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.expressions import words

Loss = Callable[[Array, Array], Array]  # (truth, prediction), both (n,), → losses (n,)
Need = Literal["predicted", "probabilities", "scores"]


@dataclass(frozen=True, eq=False)
class Smooth:
    """A number that depends on the rows' weights.

    slope   (n,) its derivative by each row's weight; NaN where it has none.
    """

    value: float
    slope: Array

    def __add__(self, other: Smooth) -> Smooth:
        return Smooth(self.value + other.value, self.slope + other.slope)

    def __sub__(self, other: Smooth) -> Smooth:
        return Smooth(self.value - other.value, self.slope - other.slope)

    def __mul__(self, other: Smooth) -> Smooth:
        return Smooth(self.value * other.value, self.slope * other.value + self.value * other.slope)

    def __truediv__(self, other: Smooth) -> Smooth:
        with np.errstate(all="ignore"):
            value = float(np.float64(self.value) / other.value)
            return Smooth(value, (self.slope - value * other.slope) / other.value)

    def times(self, factor: float) -> Smooth:
        """Multiplied by a number."""
        return Smooth(self.value * factor, self.slope * factor)

    def plus(self, number: float) -> Smooth:
        """With a number added."""
        return Smooth(self.value + number, self.slope)

    def root(self) -> Smooth:
        """The square root; NaN below 0, and without a derivative at 0."""
        with np.errstate(all="ignore"):
            value = float(np.sqrt(np.float64(self.value)))
            return Smooth(value, self.slope / (2 * value) if value > 0 else np.full_like(self.slope, np.nan))


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What is true of n rows, and what a model says of them.

    truth          (n,) codes of classes, or numbers.
    predicted      (n,) the same of the model's predictions; None where nobody asked.
    probabilities  (n, K) of the classes; None where nobody asked.
    scores         (n, K) by which rows are ranked for each class; None where nobody asked.
    classes        (K,) the classes' names; None for numbers.
    positive       the code of the class that is asked about; None: all of them, averaged.
    """

    truth: Array
    predicted: Array | None = None
    probabilities: Array | None = None
    scores: Array | None = None
    classes: Array | None = None
    positive: int | None = None

    def named(self, values: Array) -> Array:
        """Codes as the classes' names; numbers as they are."""
        return values if self.classes is None else self.classes[values]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Answers at n rows, the first M of which have the weights (M,); the others have none, only a derivative."""

    weights: Array
    answers: Predictions

    def sum(self, values: Array) -> Smooth:
        """Σ w · values, of values (n,)."""
        return Smooth(float(self.weights @ values[: len(self.weights)]), np.asarray(values, dtype=float))

    def mean(self, values: Array) -> Smooth:
        """Σ w · values / Σ w."""
        return self.sum(values) / self.total

    @cached_property
    def total(self) -> Smooth:
        """Σ w."""
        return self.sum(np.ones(len(self.truth)))

    @cached_property
    def padded(self) -> Array:
        """The weights (n,), 0 at the rows that have none."""
        return np.concatenate([self.weights, np.zeros(len(self.truth) - len(self.weights))])

    def weighted(self, values: Array) -> Array:
        """Values at the rows that have a weight."""
        return values[: len(self.weights)][self.weights != 0]

    @property
    def truth(self) -> Array:
        return self.answers.truth

    @property
    def predicted(self) -> Array:
        assert self.answers.predicted is not None
        return self.answers.predicted

    @property
    def probabilities(self) -> Array:
        assert self.answers.probabilities is not None
        return self.answers.probabilities

    @property
    def scores(self) -> Array:
        assert self.answers.scores is not None
        return self.answers.scores

    def asked(self, *present: Array) -> Sequence[int]:
        """The class asked about; else those among the given codes at rows that have a weight."""
        if self.answers.positive is not None:
            return [self.answers.positive]
        found = np.unique(np.concatenate([self.weighted(codes) for codes in present]))
        return [int(code) for code in found]


@dataclass(frozen=True)
class Metric:
    """A metric: how it is computed, what it needs of a model, and what values a population can give it.

    of       Evidence → the value with its derivative.
    needs    what the model is asked for.
    bounds   least and largest value under probability weights.
    greater  whether greater is better.
    ranks    whether it sorts the rows: for weights ≥ 0 alone.
    """

    name: str
    of: Callable[[Evidence], Smooth]
    needs: Need = "predicted"
    bounds: tuple[float, float] = (0.0, 1.0)
    greater: bool = True
    ranks: bool = False


# ------------------------------------------------------------------------------------------------ classes


def _accuracy(rows: Evidence) -> Smooth:
    return rows.mean(rows.truth == rows.predicted)


def _zero_one_loss(rows: Evidence) -> Smooth:
    return rows.mean(rows.truth != rows.predicted)


def _log_loss(rows: Evidence) -> Smooth:
    """-log of the true class's probability, which is kept above the smallest step of its precision."""
    least = np.finfo(rows.probabilities.dtype).eps
    chance = np.take_along_axis(rows.probabilities, rows.truth[:, None], axis=1)[:, 0]
    return rows.mean(-np.log(np.clip(chance, least, 1 - least)))


def _brier(rows: Evidence) -> Smooth:
    """Σ over classes of (probability - truth)²; of the class asked about alone, where there is one."""
    true = rows.truth[:, None] == np.arange(rows.probabilities.shape[1])
    square = np.square(rows.probabilities - true)
    positive = rows.answers.positive
    return rows.mean(square.sum(axis=1) if positive is None else square[:, positive])


def _precision(rows: Evidence) -> Smooth:
    classes = rows.asked(rows.truth, rows.predicted)
    return _averaged([_share(_both(rows, k), rows.sum(rows.predicted == k)) for k in classes])


def _recall(rows: Evidence) -> Smooth:
    classes = rows.asked(rows.truth, rows.predicted)
    return _averaged([_share(_both(rows, k), rows.sum(rows.truth == k)) for k in classes])


def _f1(rows: Evidence) -> Smooth:
    """2 · both / (true + predicted)."""
    shares = []
    for k in rows.asked(rows.truth, rows.predicted):
        sizes = rows.sum(rows.truth == k) + rows.sum(rows.predicted == k)
        shares.append(_share(_both(rows, k).times(2.0), sizes))
    return _averaged(shares)


def _balanced_accuracy(rows: Evidence) -> Smooth:
    """The mean recall of the classes that there are."""
    classes = np.unique(rows.weighted(rows.truth))
    return _averaged([_both(rows, k) / rows.sum(rows.truth == k) for k in classes])


def _matthews(rows: Evidence) -> Smooth:
    """Gorodkin 2004: (c s - Σ t p) / √((s² - Σ p²)(s² - Σ t²)) of the sums of weights; 0 where the root is."""
    classes = np.unique(np.concatenate([rows.truth, rows.predicted]))
    true, said = ([rows.sum(side == k) for k in classes] for side in (rows.truth, rows.predicted))
    square = rows.total * rows.total

    def covariance(first: Smooth, a: list[Smooth], b: list[Smooth]) -> Smooth:
        return first - _added([x * y for x, y in zip(a, b, strict=True)])

    joint = covariance(rows.sum(rows.truth == rows.predicted) * rows.total, true, said)
    spread = covariance(square, said, said) * covariance(square, true, true)
    return _share(joint, spread.root())


def _roc_auc(rows: Evidence) -> Smooth:
    return _averaged([_area(rows, rows.truth == k, rows.scores[:, k]) for k in rows.asked(rows.truth)])


def _average_precision(rows: Evidence) -> Smooth:
    return _averaged([_step_sum(rows, rows.truth == k, rows.scores[:, k]) for k in rows.asked(rows.truth)])


def _area(rows: Evidence, event: Array, score: Array) -> Smooth:
    """Σ w_i w_j [s_i > s_j] over events i and other rows j, ties counted half, over the sums of both weights.

    Adding weight to an event adds the others' weight below it, and the other way round.
    """
    place = np.unique(score, return_inverse=True)[1]
    up, down = np.bincount(place, rows.padded * event), np.bincount(place, rows.padded * ~event)
    below, above = np.cumsum(down) - down / 2, up.sum() - np.cumsum(up) + up / 2
    pairs = Smooth(float(up @ below), np.where(event, below[place], above[place]))
    return pairs / (rows.sum(event) * rows.sum(~event))


def _step_sum(rows: Evidence, event: Array, score: Array) -> Smooth:
    """Σ (R_k - R_{k-1}) P_k over the distinct scores, from the highest: N / T, N = Σ t_k T_k / A_k.

    t_k the events' weight at score k, T_k that at it and above, A_k the weight of all rows there, T the events' in all.
    Adding weight to a row of group g adds T_g/A_g (to t_g), t_k/A_k (to T_k) and -t_k T_k/A_k² (to A_k) for each k ≥ g;
    the first two if it is an event.
    """
    place = np.unique(-score, return_inverse=True)[1]
    t, a = np.bincount(place, rows.padded * event), np.bincount(place, rows.padded)
    T, A = np.cumsum(t), np.cumsum(a)
    held = A > 0  # above the first weighted row there is none: an event there would be found with precision 1
    divisor = np.where(held, A, 1.0)
    precision = np.where(held, T / divisor, 1.0)
    onwards = np.cumsum((t / divisor)[::-1])[::-1]
    lost = np.cumsum((t * precision / divisor)[::-1])[::-1]
    slope = np.where(event, (precision + onwards)[place], 0.0) - lost[place]
    return Smooth(float(t @ precision), slope) / rows.sum(event)


def _both(rows: Evidence, k: int) -> Smooth:
    """The weight of rows that are and are said to be of class k."""
    return rows.sum((rows.truth == k) & (rows.predicted == k))


def _share(part: Smooth, whole: Smooth) -> Smooth:
    """part / whole; where the whole is 0, scikit-learn's 0, with no derivative unless no row can change it."""
    if whole.value != 0:
        return part / whole
    return Smooth(0.0, np.where(np.any(whole.slope != 0), np.nan, 0.0) * np.ones_like(part.slope))


def _added(terms: Sequence[Smooth]) -> Smooth:
    return Smooth(sum(term.value for term in terms), np.sum([term.slope for term in terms], axis=0))


def _averaged(terms: Sequence[Smooth]) -> Smooth:
    return _added(terms).times(1 / len(terms))


# ------------------------------------------------------------------------------------------------ numbers


def _squared(rows: Evidence) -> Smooth:
    return rows.mean(np.square(rows.truth - rows.predicted))


def _absolute(rows: Evidence) -> Smooth:
    return rows.mean(np.abs(rows.truth - rows.predicted))


def _root_squared(rows: Evidence) -> Smooth:
    return _squared(rows).root()


def _r2(rows: Evidence) -> Smooth:
    """1 - MSE / Var y."""
    apart = rows.truth - float(np.mean(rows.weighted(rows.truth)))  # near 0: the variance keeps its digits
    first = rows.mean(apart)
    return (_squared(rows) / (rows.mean(apart**2) - first * first)).times(-1.0).plus(1.0)


def _poisson(rows: Evidence) -> Smooth:
    """The mean of 2 (y log(y/μ) - y + μ)."""
    y, mu = rows.truth, rows.predicted
    if (rows.weighted(y) < 0).any() or (rows.weighted(mu) <= 0).any():
        raise ValueError(
            "the Poisson deviance needs a target of at least 0 and predictions above 0, and some are not: it is made of "
            'logarithms. Ask for another metric, such as "mean_squared_error", or use a model of positive numbers.'
        )
    inside = (y >= 0) & (mu > 0)
    y, mu = np.where(inside, y, np.nan), np.where(inside, mu, np.nan)
    return rows.mean(2 * (xlogy(y, y / mu) - y + mu))


CLASSIFICATION = {
    metric.name: metric
    for metric in (
        Metric("accuracy", _accuracy),
        Metric("balanced_accuracy", _balanced_accuracy),
        Metric("zero_one_loss", _zero_one_loss, greater=False),
        Metric("precision", _precision),
        Metric("recall", _recall),
        Metric("f1", _f1),
        Metric("matthews_corrcoef", _matthews, bounds=(-1.0, 1.0)),
        Metric("log_loss", _log_loss, "probabilities", (0.0, np.inf), greater=False),
        Metric("brier_score_loss", _brier, "probabilities", (0.0, 2.0), greater=False),
        Metric("roc_auc", _roc_auc, "scores", ranks=True),
        Metric("average_precision", _average_precision, "scores", ranks=True),
    )
}
REGRESSION = {
    metric.name: metric
    for metric in (
        Metric("r2", _r2, bounds=(-np.inf, 1.0)),
        Metric("mean_squared_error", _squared, bounds=(0.0, np.inf), greater=False),
        Metric("root_mean_squared_error", _root_squared, bounds=(0.0, np.inf), greater=False),
        Metric("mean_absolute_error", _absolute, bounds=(0.0, np.inf), greater=False),
        Metric("mean_poisson_deviance", _poisson, bounds=(0.0, np.inf), greater=False),
    )
}


def metric_named(name: Any, classes: Array | None) -> Metric:
    """The metric of a name, as scikit-learn has it, or of a loss function; by default that of the task.

    name      "roc_auc" and "roc_auc_score" are one; None: roc_auc of two classes, accuracy of more, r2 of numbers.
    classes   of the model; None for numbers.
    """
    known = REGRESSION if classes is None else CLASSIFICATION
    if name is None:
        return known["r2" if classes is None else "roc_auc" if len(classes) == 2 else "accuracy"]
    if callable(name):
        return Metric(getattr(name, "__name__", "loss"), _loss(name), bounds=(-np.inf, np.inf), greater=False)
    if (plain := str(name).removesuffix("_score")) in known:
        return known[plain]
    task = "of numbers" if classes is None else "of classes"
    near = words.close(plain.removeprefix("neg_"), list(known)) or next(iter(known))
    raise ValueError(
        f"{name!r} is no metric for a model {task}; there are {', '.join(known)} (losses as losses, not negated). "
        f'Pass one of these, such as "{near}", or a function loss(y_true, prediction) of arrays.'
    )


def _loss(loss: Loss) -> Callable[[Evidence], Smooth]:
    """The mean of a loss function of the named classes, or of numbers."""

    def of(rows: Evidence) -> Smooth:
        losses = np.asarray(loss(rows.answers.named(rows.truth), rows.answers.named(rows.predicted)), dtype=float)
        if losses.shape != rows.truth.shape or not np.isfinite(rows.weighted(losses)).all():
            raise ValueError(
                f"the loss must give one finite number for each of {len(rows.truth)} rows, got shape {losses.shape}"
                f"{'' if losses.shape != rows.truth.shape else ' with undefined values'}. Return an array such as "
                "np.abs(y_true - prediction)."
            )
        return rows.mean(losses)

    return of
