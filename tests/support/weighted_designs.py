"""Small data in which it is known what weights should do, and writings of one measure: designs of `cancellation`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier, is_clusterer, is_outlier_detector, is_regressor

NEAR = 1e-3  # how far, in standard deviations, a nearly cancelling row stands from its partner


@dataclass(frozen=True)
class Problem:
    """Small data to fit: rows (n, d), targets (n,) or (n, t) or None, whole-number weights (n,), extra rows, a grid."""

    rows: np.ndarray
    target: np.ndarray | None
    repeats: np.ndarray
    extra_rows: np.ndarray
    extra_target: np.ndarray | None
    grid: np.ndarray
    continuous: bool = True


class Design(NamedTuple):
    """Rows, targets and weights (or None) to fit, which start with the problem's own n rows in their order."""

    rows: np.ndarray
    target: np.ndarray | None
    weights: np.ndarray | None


# ------------------------------------------------------------------------------------------------ the data


def _mixed(rng: np.random.Generator, rows: np.ndarray, count: int = 24) -> np.ndarray:
    """Extra rows around and beyond the given ones, each column by itself."""
    spread = rows.std(axis=0)
    return rows[:count] + spread * rng.normal(0, 1.0, (count, rows.shape[1]))


def two_classes(labels: int = 2) -> Problem:
    """Overlapping classes in the plane; the rows of class 1 on one side weigh more, the extra rows are mislabelled."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(120, 2))
    slopes = np.array([[0.0, 0.0], [1.2, -0.8], [-0.6, 1.4]])[:labels]
    target = np.argmax(rows @ slopes.T + rng.gumbel(size=(120, labels)), axis=1)
    repeats = 1 + 4 * ((target == 1) & (rows.sum(axis=1) > -0.3)) + rng.integers(0, 2, 120)
    extra = _mixed(rng, rows)
    wrong = (np.argmax(extra @ slopes.T, axis=1) + 1) % labels
    return Problem(rows, target, repeats, extra, wrong, rng.normal(size=(60, 2)))


def three_classes() -> Problem:
    """Two classes and one more."""
    return two_classes(3)


def counts() -> Problem:
    """Whole numbers 0 to 4 in four columns and two classes, for models of counts and categories."""
    rng = np.random.default_rng(2)
    target = rng.integers(0, 2, 120)
    chances = np.array([[4, 3, 2, 1, 1], [1, 2, 2, 3, 3]]) / 11.0
    rows = np.array([[rng.choice(5, p=chances[label]) for _ in range(4)] for label in target])
    rows[:10] = np.repeat(np.arange(5), 2)[:, None]
    target[:10] = np.tile([0, 1], 5)
    repeats = 1 + 4 * ((target == 1) & (rows[:, 0] < 3)) + rng.integers(0, 2, 120)
    return Problem(rows, target, repeats, rows[:24], 1 - target[:24], rng.integers(0, 5, (60, 4)), continuous=False)


def positive_numbers(columns: int = 2, targets: int = 1) -> Problem:
    """A positive number that grows with the columns; the rows above the trend on one side weigh more."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(120, columns))
    slopes = np.array([[0.5, 0.3], [-0.3, 0.2]])[:columns, :targets]
    noise = rng.normal(0, 0.4, (120, targets))
    target = np.exp(0.5 + rows @ slopes + noise)
    repeats = 1 + 4 * ((noise[:, 0] > 0) & (rows[:, 0] > -0.3)) + rng.integers(0, 2, 120)
    extra = _mixed(rng, rows)
    extra_target = rng.uniform(0.2, 8.0, (24, targets))
    grid = rng.uniform(-2, 2, (60, columns))
    if targets == 1:
        target, extra_target = target[:, 0], extra_target[:, 0]
    return Problem(rows, target, repeats, extra, extra_target, grid)


def one_column() -> Problem:
    """Positive targets of a single column."""
    return positive_numbers(columns=1)


def two_targets() -> Problem:
    """Positive targets, two of them."""
    return positive_numbers(targets=2)


def clusters() -> Problem:
    """Three round clusters, two of them near each other; the rows to the right weigh more, extra rows fill the gap."""
    rng = np.random.default_rng(4)
    angles = rng.uniform(0, 2 * np.pi, 90)
    offsets = 0.5 * np.sqrt(rng.uniform(size=90))[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
    rows = np.repeat([[0.0, 0.0], [1.9, 0.0], [8.0, 5.0]], 30, axis=0) + offsets
    repeats = 1 + 4 * (offsets[:, 0] > 0) + rng.integers(0, 2, 90)
    between = np.column_stack([rng.uniform(0.8, 1.1, 24), rng.uniform(-0.2, 0.2, 24)])
    between[12:] = rng.uniform(rows.min(axis=0), rows.max(axis=0), (12, 2))
    return Problem(rows, None, repeats, between, None, rows + rng.normal(0, 0.05, rows.shape))


def positive_columns() -> Problem:
    """Skewed positive columns with two classes beside them, for transformers."""
    rng = np.random.default_rng(5)
    plain = two_classes()
    grid = np.exp(0.4 * rng.normal(size=(60, 2)))
    assert plain.extra_target is not None
    return Problem(
        np.exp(0.4 * plain.rows), plain.target, plain.repeats, np.exp(0.6 * plain.extra_rows), plain.extra_target, grid
    )


def problems_for(estimator: Any) -> list[Callable[[], Problem]]:
    """The problems to try, in this order, until one can be fitted without weights."""
    if holds(is_classifier, estimator):
        return [two_classes, counts, three_classes]
    if holds(is_regressor, estimator):
        return [positive_numbers, one_column, two_targets]
    if holds(is_clusterer, estimator) or holds(is_outlier_detector, estimator):
        return [clusters]
    if not hasattr(estimator, "transform"):
        return [two_classes, positive_numbers, counts, one_column, two_targets]
    return [positive_columns, counts, one_column]


def holds(question: Callable[[Any], bool], estimator: Any) -> bool:
    """What scikit-learn's is_classifier and its like say, or the estimator's own declaration where it has no tags."""
    try:
        return bool(question(estimator))
    except (AttributeError, TypeError):  # not derived from scikit-learn's base: it has no tags
        return question.__name__ == f"is_{getattr(estimator, '_estimator_type', '')}"


# ------------------------------------------------------------------------------------------------ the designs


def _with(problem: Problem, weights: np.ndarray, rows: np.ndarray, which: np.ndarray, more: np.ndarray) -> Design:
    """The problem's rows with some weights, and the extra rows `which`, standing at `rows`, with weights `more`."""
    target = None
    if problem.target is not None and problem.extra_target is not None:
        target = np.concatenate([problem.target, problem.extra_target[which]])
    return Design(np.concatenate([problem.rows, rows]), target, np.concatenate([weights, more]).astype(float))


def repeated(problem: Problem) -> Design:
    """Each row as often as its weight says, without weights."""
    which = np.repeat(np.arange(len(problem.rows)), problem.repeats - 1)
    rows = np.concatenate([problem.rows, problem.rows[which]])
    target = None if problem.target is None else np.concatenate([problem.target, problem.target[which]])
    return Design(rows, target, None)


def unweighted(problem: Problem) -> Design:
    """The rows as they are, without weights."""
    return Design(problem.rows, problem.target, None)


def weighted(problem: Problem) -> Design:
    """Each row once, with its repeats as its weight."""
    return Design(problem.rows, problem.target, problem.repeats.astype(float))


def with_empty_rows(problem: Problem) -> Design:
    """The extra rows with weight 0."""
    all_of_them = np.arange(len(problem.extra_rows))
    return _with(problem, problem.repeats, problem.extra_rows, all_of_them, np.zeros(len(all_of_them)))


def with_pairs(problem: Problem) -> Design:
    """The extra rows twice, with weights +a and −a, a from 1 to 10."""
    which = np.arange(len(problem.extra_rows))
    sizes = np.linspace(1.0, 10.0, len(which))
    rows = np.concatenate([problem.extra_rows, problem.extra_rows])
    return _with(problem, problem.repeats, rows, np.tile(which, 2), np.concatenate([sizes, -sizes]))


def with_near_pairs(problem: Problem) -> Design:
    """The same pairs, with the −a a thousandth of a standard deviation away."""
    which = np.arange(len(problem.extra_rows))
    sizes = np.linspace(1.0, 10.0, len(which))
    moved = problem.extra_rows + NEAR * problem.rows.std(axis=0)
    rows = np.concatenate([problem.extra_rows, moved])
    return _with(problem, problem.repeats, rows, np.tile(which, 2), np.concatenate([sizes, -sizes]))


def with_split_rows(problem: Problem) -> Design:
    """Every third row of weight m as two rows of weights m + 2 and −2."""
    which = np.arange(0, len(problem.rows), 3)
    weights = problem.repeats.astype(float)
    weights[which] += 2.0
    rows = np.concatenate([problem.rows, problem.rows[which]])
    target = None if problem.target is None else np.concatenate([problem.target, problem.target[which]])
    return Design(rows, target, np.concatenate([weights, np.full(len(which), -2.0)]))


def with_few_negative(problem: Problem) -> Design:
    """Every ninth row with weight −0.3: a measure that is not positive."""
    weights = problem.repeats.astype(float)
    weights[::9] = -0.3
    return Design(problem.rows, problem.target, weights)


def with_one_negative(problem: Problem) -> Design:
    """One row with weight −0.01."""
    weights = problem.repeats.astype(float)
    weights[5] = -0.01
    return Design(problem.rows, problem.target, weights)


def with_few_negative_split(problem: Problem) -> Design:
    """The same measure, each row of weight w as two rows of weights w + 1 and −1."""
    once = with_few_negative(problem)
    assert once.weights is not None
    target = None if once.target is None else np.concatenate([once.target, once.target])
    weights = np.concatenate([once.weights + 1.0, np.full(len(once.weights), -1.0)])
    return Design(np.concatenate([once.rows, once.rows]), target, weights)
