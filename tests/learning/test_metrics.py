"""Metrics as functions of weights: scikit-learn's values, derivatives against moved weights, and what is undefined."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
from every import every
from hypothesis import given, settings
from hypothesis import strategies as st

from kmeanalyst.learning.scoring.metrics import CLASSIFICATION, REGRESSION, Predictions, metric_named

LABELS = np.arange(3)


def _macro(function: Callable[..., float]) -> Callable[..., float]:
    return lambda a, w: function(a.truth, a.predicted, sample_weight=w, average="macro", zero_division=0.0)


def _binary(function: Callable[..., float]) -> Callable[..., float]:
    return lambda a, w: function(a.truth, a.predicted, sample_weight=w, zero_division=0.0)


def _plain(function: Callable[..., float]) -> Callable[..., float]:
    return lambda a, w: function(a.truth, a.predicted, sample_weight=w)


OF_LABELS: dict[str, Callable[..., float]] = {
    "accuracy": _plain(sk.accuracy_score),
    "balanced_accuracy": _plain(sk.balanced_accuracy_score),
}
OF_TWO_CLASSES = OF_LABELS | {
    "precision": _binary(sk.precision_score),
    "recall": _binary(sk.recall_score),
    "f1": _binary(sk.f1_score),
    "log_loss": lambda a, w: sk.log_loss(a.truth, a.probabilities, sample_weight=w, labels=[0, 1]),
    "brier_score_loss": lambda a, w: sk.brier_score_loss(a.truth, a.probabilities[:, 1], sample_weight=w),
    "roc_auc": lambda a, w: sk.roc_auc_score(a.truth, a.scores[:, 1], sample_weight=w),
    "average_precision": lambda a, w: sk.average_precision_score(a.truth, a.scores[:, 1], sample_weight=w),
}
OF_THREE_CLASSES = OF_LABELS | {
    "precision": _macro(sk.precision_score),
    "recall": _macro(sk.recall_score),
    "f1": _macro(sk.f1_score),
    "log_loss": lambda a, w: sk.log_loss(a.truth, a.probabilities, sample_weight=w, labels=LABELS),
    "roc_auc": lambda a, w: np.mean([sk.roc_auc_score(a.truth == k, a.scores[:, k], sample_weight=w) for k in LABELS]),
    "average_precision": lambda a, w: np.mean(
        [sk.average_precision_score(a.truth == k, a.scores[:, k], sample_weight=w) for k in LABELS]
    ),
}
OF_NUMBERS: dict[str, Callable[..., float]] = {
    "r2": _plain(sk.r2_score), "mean_squared_error": _plain(sk.mean_squared_error),
    "root_mean_squared_error": _plain(sk.root_mean_squared_error), "mean_absolute_error": _plain(sk.mean_absolute_error),
}  # fmt: skip


def classified(n: int, k: int, seed: int, grain: int = 4) -> Predictions:
    """A classifier's answers at n rows, each class at two or more of them; probabilities in steps, so that many tie."""
    rng = np.random.default_rng(seed)
    truth = np.concatenate([np.repeat(np.arange(k), 2), rng.integers(0, k, n - 2 * k)])
    counts = rng.integers(0, grain, (n, k)) + np.where(truth[:, None] == np.arange(k), rng.integers(0, 3, (n, 1)), 0)
    probabilities = (counts + 1e-3) / (counts + 1e-3).sum(axis=1, keepdims=True)
    predicted = np.where(rng.random(n) < 0.8, probabilities.argmax(axis=1), rng.integers(0, k, n))
    predicted[:k] = np.arange(k)
    return Predictions(
        truth=truth, predicted=predicted, probabilities=probabilities, scores=probabilities,
        classes=np.array(["no", "yes", "what"][:k]), positive=1 if k == 2 else None,
    )  # fmt: skip


def numbered(n: int, seed: int) -> Predictions:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 6, n).astype(float)
    return Predictions(truth=truth, predicted=np.exp(0.3 * truth * rng.random(n) + 0.1 * rng.normal(size=n)))


def some_weights(n: int, seed: int, zeros: int = 0) -> np.ndarray:
    """Positive weights of any sum, the last `zeros` of them 0."""
    w = np.random.default_rng([seed, 1]).exponential(2.0, n) + 0.01
    w[n - zeros :] = 0
    return w


CASES = [
    *[(name, 2, OF_TWO_CLASSES[name]) for name in OF_TWO_CLASSES],
    *[(name, 3, OF_THREE_CLASSES[name]) for name in OF_THREE_CLASSES],
    *[(name, 0, OF_NUMBERS[name]) for name in OF_NUMBERS],
]


def case(k: int, n: int, seed: int, grain: int = 4) -> Predictions:
    return classified(n, k, seed, grain) if k else numbered(n, seed)


def metric_of(name: str, k: int) -> Any:
    return (CLASSIFICATION if k else REGRESSION)[name]


def test_every_metric_is_compared():
    assert {name for name, k, _ in CASES if k == 2} == set(CLASSIFICATION)
    assert {name for name, k, _ in CASES if k == 0} == set(REGRESSION)


@every(("name", "k", "expected"), CASES)
@settings(max_examples=10)
@given(n=st.integers(8, 60), seed=st.integers(0, 10_000), zeros=st.integers(0, 2), grain=st.integers(1, 5))
def test_metrics_are_those_of_scikit_learn(name, k, expected, n, seed, zeros, grain):
    answers, w = case(k, n, seed, grain), some_weights(n, seed, zeros)
    found = metric_of(name, k).of(answers.with_weights(w)).value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes that are never predicted
        assert found == pytest.approx(float(expected(answers, w)), abs=1e-10, rel=1e-10)


@every(("name", "k", "expected"), CASES)
@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_slopes_are_what_moved_weights_show(name, k, expected, seed):
    """At rows with weight and at rows without; ties among both. Central differences are good to step² / weight²."""
    n, m = 40, 30
    answers, metric = case(k, n, seed), metric_of(name, k)
    w = some_weights(m, seed)
    if k:  # above the first weighted row average precision has no derivative in both directions
        answers.scores[0] = answers.scores.max(axis=0)
    if not metric.ranks and name != "root_mean_squared_error":
        w[10:20] *= -0.02  # signed weights too, though no denominator near 0
    slope = metric.of(answers.with_weights(w)).influence
    step = 1e-5 * np.abs(w).sum()
    for row in (0, 3, 15, m, m + 5):
        up, down = (np.concatenate([w, np.zeros(n - m)]) for _ in range(2))
        up[row] += step
        down[row] -= step
        moved = (metric.of(answers.with_weights(up)).value - metric.of(answers.with_weights(down)).value) / (2 * step)
        assert slope[row] == pytest.approx(moved, rel=2e-3, abs=2e-5)


def test_weight_on_an_event_above_all_others_is_found_with_precision_one():
    answers = Predictions(
        truth=np.array([1, 0, 1, 1]), scores=np.array([[0.5], [0.6], [0.4], [0.9]]) * [-1, 1], positive=1,
        classes=np.array([0, 1]),
    )  # fmt: skip
    w, metric = np.array([1.0, 1.0, 1.0]), CLASSIFICATION["average_precision"]
    found = metric.of(answers.with_weights(w))
    more = metric.of(answers.with_weights(np.append(w, 1e-6)))
    assert found.value == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found.influence[3] == pytest.approx((more.value - found.value) / 1e-6, rel=1e-4)


def test_a_sum_of_weights_other_than_one_changes_no_metric():
    for name, k, _ in CASES:
        answers, w, metric = case(k, 30, 3), some_weights(30, 3), metric_of(name, k)
        once, thrice = (metric.of(answers.with_weights(factor * w)) for factor in (1, 3))
        assert thrice.value == pytest.approx(once.value, rel=1e-12)
        assert thrice.influence == pytest.approx(once.influence / 3, rel=1e-9, abs=1e-12)
        assert float(w @ once.influence) == pytest.approx(0, abs=1e-10)  # homogeneous of degree 0


def test_signed_weights_keep_the_formulas():
    answers, w = classified(40, 2, 5), np.random.default_rng(0).normal(0.03, 0.1, 40)
    rows = answers.with_weights(w)
    right = answers.truth == answers.predicted
    assert CLASSIFICATION["accuracy"].of(rows).value == pytest.approx(float(w @ right / w.sum()))
    both = float(w @ ((answers.truth == 1) & (answers.predicted == 1)))
    assert CLASSIFICATION["precision"].of(rows).value == pytest.approx(both / float(w @ (answers.predicted == 1)))


def test_a_share_of_nothing_is_scikit_learns_zero_with_a_slope_only_where_no_row_can_change_it():
    precision, w = CLASSIFICATION["precision"], np.array([1.0, 1.0])
    answers = Predictions(truth=np.array([0, 1, 1]), predicted=np.array([0, 0, 1]), positive=1, weights=w)
    changeable = precision.of(answers)
    assert changeable.value == 0 and np.isnan(changeable.influence).all()
    unchangeable = precision.of(replace(answers, predicted=np.zeros(3, dtype=int)))
    assert unchangeable.value == 0 and (unchangeable.influence == 0).all()


def test_one_class_of_three_can_be_scored():
    answers, w = classified(50, 3, 2), some_weights(50, 2)
    rows = replace(answers, positive=2, weights=w)
    true, predicted = answers.truth == 2, answers.predicted == 2
    assert CLASSIFICATION["recall"].of(rows).value == pytest.approx(sk.recall_score(true, predicted, sample_weight=w))
    area = sk.roc_auc_score(true, answers.probabilities[:, 2], sample_weight=w)
    assert CLASSIFICATION["roc_auc"].of(rows).value == pytest.approx(area)
    square = sk.brier_score_loss(true, answers.probabilities[:, 2], sample_weight=w)
    assert CLASSIFICATION["brier_score_loss"].of(rows).value == pytest.approx(square)


def test_names_are_scikit_learns_in_either_form_and_the_task_has_its_default():
    two, three = np.array([0, 1]), np.array([0, 1, 2])
    assert metric_named("roc_auc_score", two) is metric_named("roc_auc", two) is metric_named(None, two)
    assert metric_named(None, three).name == "accuracy"
    assert metric_named(None, None) is metric_named("r2_score", None)
    message = r"'neg_mean_squared_error' is not a metric.*losses as losses.*mean_squared_error"
    with pytest.raises(ValueError, match=message):
        metric_named("neg_mean_squared_error", None)
    with pytest.raises(ValueError, match=r"'r2' is not a metric for a model of classes; there are accuracy.*Pass one"):
        metric_named("r2", two)


def test_a_loss_function_gets_names_and_must_give_a_number_for_each_row():
    answers, w = classified(30, 2, 1), some_weights(30, 1)
    missed = metric_named(lambda truth, predicted: 5.0 * ((truth == "yes") & (predicted == "no")), answers.classes)
    expected = np.average(5.0 * ((answers.truth == 1) & (answers.predicted == 0)), weights=w)
    assert missed.of(answers.with_weights(w)).value == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"one finite number for each of 30 rows, got shape \(\).*Return an array"):
        metric_named(lambda truth, predicted: 1.0, answers.classes).of(answers.with_weights(w))
    with pytest.raises(ValueError, match=r"with undefined values.*Return an array"):
        metric_named(lambda truth, predicted: np.full(30, np.nan), answers.classes).of(answers.with_weights(w))


def test_classes_without_weight_are_no_part_of_an_average():
    """A third class at a row of weight 0 and at one without a weight: averages are over the other two."""
    truth, predicted = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 1, 2, 0])
    w, scores = np.array([1.0, 2.0, 3.0, 1.0, 0.0]), np.eye(3)[predicted]
    rows = Predictions(truth=truth, predicted=predicted, scores=scores, classes=LABELS, weights=w)
    assert CLASSIFICATION["balanced_accuracy"].of(rows).value == pytest.approx((1 / 3 + 1) / 2)
    assert CLASSIFICATION["recall"].of(rows).value == pytest.approx((1 / 3 + 1) / 2)
    assert CLASSIFICATION["roc_auc"].of(rows).value == pytest.approx(2 / 3)
