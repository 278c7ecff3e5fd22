"""Small data in which it is known what weights should do, and estimators fitted to them: for `derive_weight_table`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import sklearn
from sklearn.base import is_classifier, is_clusterer, is_outlier_detector, is_regressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from threadpoolctl import threadpool_limits

from kmeanalyst.learning.weights.weight_support import fresh, parameters_of

NEAR = 1e-3  # distance in standard deviations of a nearly cancelling row from its partner


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


def _mixed(rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    """24 extra rows around and beyond the given ones, each column by itself."""
    return rows[:24] + rows.std(axis=0) * rng.normal(0, 1.0, (24, rows.shape[1]))


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


def counts() -> Problem:
    """Whole numbers 0 to 4 in four columns and two classes, for models of counts and categories."""
    rng = np.random.default_rng(2)
    target = rng.integers(0, 2, 120)
    probabilities = np.array([[4, 3, 2, 1, 1], [1, 2, 2, 3, 3]]) / 11.0
    rows = np.array([[rng.choice(5, p=probabilities[label]) for _ in range(4)] for label in target])
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
    extra, extra_target = _mixed(rng, rows), rng.uniform(0.2, 8.0, (24, targets))
    grid = rng.uniform(-2, 2, (60, columns))
    if targets == 1:
        target, extra_target = target[:, 0], extra_target[:, 0]
    return Problem(rows, target, repeats, extra, extra_target, grid)


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
    """Skewed positive columns with two classes as the target, for transformers."""
    plain, grid = two_classes(), np.exp(0.4 * np.random.default_rng(5).normal(size=(60, 2)))
    return replace(plain, rows=np.exp(0.4 * plain.rows), extra_rows=np.exp(0.6 * plain.extra_rows), grid=grid)


def problems_for(estimator: Any) -> list[Callable[[], Problem]]:
    """The problems to try, in this order, until one can be fitted without weights."""
    one_column, two_targets = partial(positive_numbers, columns=1), partial(positive_numbers, targets=2)
    if holds(is_classifier, estimator):
        return [two_classes, counts, partial(two_classes, 3)]
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


def design(problem: Problem, name: str) -> Design:
    """The problem's rows and weights m, and more rows, in one of these ways.

    repeated, unweighted  each row m times or once, without weights; weighted: once, with weight m
    empty rows            the extra rows with weight 0
    pairs, near pairs     the extra rows twice, with weights +a and −a, a from 1 to 10; the −a a thousandth of a standard
                          deviation away
    split rows            every third row as two rows of weights m + 2 and −2
    negative              every ninth row with weight −0.3, a measure that is not positive; in one: one row with weight −0.01
    negative, split       the same measure, each row of weight w as two rows of weights w + 1 and −1
    """
    m, n, k = problem.repeats.astype(float), len(problem.rows), len(problem.extra_rows)
    own, extra, sizes = np.arange(n), n + np.arange(k), np.linspace(1.0, 10.0, k)
    negative = np.where(own % 9 == 0, -0.3, m)
    pairs = m, np.tile(extra, 2), np.concatenate([sizes, -sizes])
    ways: dict[str, tuple[Any, Any, Any]] = {  # weights of the rows, further rows of the problem, and their weights
        "repeated": (None, np.repeat(own, problem.repeats - 1), None), "unweighted": (None, [], None),
        "weighted": (m, [], []), "empty rows": (m, extra, np.zeros(k)), "pairs": pairs, "near pairs": pairs,
        "split rows": (np.where(own % 3 == 0, m + 2.0, m), own[::3], np.full(len(own[::3]), -2.0)),
        "negative": (negative, [], []), "one negative": (np.where(own == 5, -0.01, m), [], []),
        "negative, split": (negative + 1.0, own, np.full(n, -1.0)),
    }  # fmt: skip
    weights, further, of_further = ways[name]
    index = np.concatenate([own, np.array(further, dtype=int)])
    rows = np.concatenate([problem.rows, problem.extra_rows])[index]
    if name == "near pairs":
        rows[n + k :] += NEAR * problem.rows.std(axis=0)
    target = None
    if problem.target is not None and problem.extra_target is not None:
        target = np.concatenate([problem.target, problem.extra_target])[index]
    return Design(rows, target, None if weights is None else np.concatenate([weights, of_further]))


REGIONS = 6  # parts of the grid over which answers that vary with the seed are averaged


class Predictions(NamedTuple):
    """Answers on the grid of the fits with each seed (seeds, grid, outputs), and what was nonsense in one of them."""

    each: np.ndarray
    nonsense: str

    @property
    def size(self) -> float:
        """Root-mean-square answer; never zero, so that it can be divided by."""
        return float(np.sqrt(np.mean(self.each**2))) + 1e-12

    @property
    def error(self) -> float:
        """Root-mean-square standard error of the mean over seeds; 0 for one seed."""
        seeds = len(self.each)
        return float(np.sqrt(np.mean(self.each.var(axis=0, ddof=1)) / seeds)) if seeds > 1 else 0.0

    def minus(self, other: Predictions) -> Predictions:
        """The differences, seed by seed: what both owe to the seed cancels."""
        return Predictions(self.each - other.each, self.nonsense or other.nonsense)


class FitFailed(Exception):
    """The estimator raised while it was fitted or asked, always or with some seeds; in its own words' first line."""

    def __init__(self, message: str, at_times: bool = False) -> None:
        super().__init__(message)
        self.at_times = at_times


# ------------------------------------------------------------------------------------------------ fitting and asking


@contextmanager
def quietly() -> Iterator[None]:
    """No warnings, one thread, scikit-learn's own settings: what a test of a few rows should be."""
    with (
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
        threadpool_limits(1),
        sklearn.config_context(enable_metadata_routing=False, transform_output="default"),
    ):
        warnings.simplefilter("ignore")
        yield


def prepared(estimator: Any) -> Any:
    """A copy to test, in which nothing else is taken for a wrong use of weights.

    Iterative solvers run to tol 1e-9; ensembles and networks are small; trees are shallow, so that weights matter in
    their leaves, and leaves may hold one row; a bootstrap holds Σw rows; a kernel's width is not read off the rows.
    """
    model = fresh(estimator)
    changes = _changes(parameters_of(model))
    if type(model).__name__.startswith("Bagging") and parameters_of(model).get("estimator", 0) is None:
        changes["estimator"] = DecisionTreeClassifier() if holds(is_classifier, model) else DecisionTreeRegressor()
        changes["estimator"].set_params(max_depth=4)
        changes["n_estimators"] = 5
    return model.set_params(**changes) if changes else model


def _changes(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that `prepared` sets, of those that the estimator has."""
    changes: dict[str, Any] = {name: value for name, value in (("verbose", 0), ("n_jobs", None)) if name in parameters}
    usual = {
        "min_samples_leaf": (20, 1), "gamma": ("scale", 0.5), "hidden_layer_sizes": ((100,), (10,)), "n_clusters": (8, 3),
        "n_init": ("auto", 10), "Cs": (10, 3), "alphas": (100, 10), "average": (False, True),
    }  # fmt: skip
    changes |= {n: instead for n, (default, instead) in usual.items() if n in parameters and parameters[n] == default}
    if parameters.get("bootstrap") and parameters.get("max_samples", 0) is None:
        changes["max_samples"] = 1.0
    for name, most in (("n_estimators", 10), ("max_depth", 4)):
        given = parameters.get(name)
        if name in parameters and (given is None or (isinstance(given, int) and given > most)):
            changes[name] = most
    return changes | _solver_changes(parameters)


def _solver_changes(parameters: dict[str, Any]) -> dict[str, Any]:
    """tol and max_iter, where they steer a solver; in boosting, networks and stochastic descent they are the model."""
    tol, most = parameters.get("tol"), parameters.get("max_iter")
    if {"hidden_layer_sizes", "max_leaf_nodes"} & set(parameters) and isinstance(most, int):
        return {"max_iter": min(most, 40)}
    if {"eta0", "n_iter_no_change"} <= set(parameters):
        return {"tol": None, "max_iter": 500} | ({"alpha": 0.01} if parameters.get("alpha") == 0.0001 else {})
    if {"n_clusters", "cv"} & set(parameters) or not isinstance(tol, float):
        return {}
    if most == -1:  # no limit: a support vector machine may then never end
        return {"tol": min(tol, 1e-6), "max_iter": 200_000}
    return {"tol": min(tol, 1e-9)} | ({"max_iter": max(most, 5000)} if isinstance(most, int) and most > 0 else {})


def in_batches(estimator: Any, rows: int) -> Any:
    """A copy that takes its rows so many at a time, where the estimator can; else the estimator itself."""
    return fresh(estimator).set_params(batch_size=rows) if "batch_size" in parameters_of(estimator) else estimator


def seeded(estimator: Any, seed: int) -> Any:
    """A copy with every random_state set."""
    model = fresh(estimator)
    names = [name for name in parameters_of(model, deep=True) if name.split("__")[-1] == "random_state"]
    return model.set_params(**{name: seed for name in names}) if names else model


def fitted(estimator: Any, design: Design, seed: int) -> tuple[Any, np.ndarray]:
    """The estimator fitted to the design's rows in an order drawn from the seed, and where each row came to stand."""
    order = np.random.default_rng(seed).permutation(len(design.rows))
    arguments = {} if design.weights is None else {"sample_weight": design.weights[order]}
    model = seeded(estimator, seed)
    target = () if design.target is None else (design.target[order],)
    fitted_model = model.fit(design.rows[order], *target, **arguments)
    return (model if fitted_model is None else fitted_model), np.argsort(order)


def answers(model: Any, problem: Problem, indices: np.ndarray) -> np.ndarray:
    """What the model says on the grid, as numbers that do not hang on how clusters are called; (grid, outputs)."""
    if holds(is_clusterer, model):
        return _clusterer_answers(model, problem, indices)
    for name in ("predict_proba", "decision_function"):
        if not holds(is_regressor, model) and hasattr(model, name):
            said = getattr(model, name)(problem.grid)
            return as_table(said[0] if isinstance(said, list) else said)
    if holds(is_classifier, model):
        return as_table(
            np.asarray(model.predict(problem.grid))[:, None] == np.unique(np.asarray(problem.target))[None, :]
        )
    for name in ("predict", "score_samples", "transform"):
        if hasattr(model, name):
            return as_table(getattr(model, name)(problem.grid))
    raise TypeError("the fitted estimator can neither predict, nor score, nor transform")


def as_table(said: Any) -> np.ndarray:
    """What a model said, (n,) or (n, outputs), dense or sparse, as float64 (n, outputs)."""
    said = said.toarray() if hasattr(said, "toarray") else said
    numbers = np.asarray(said, dtype=float)
    return numbers.reshape(len(numbers), -1)


def _clusterer_answers(model: Any, problem: Problem, indices: np.ndarray) -> np.ndarray:
    """The centre each grid point is given to; without centres, which of the problem's rows are together."""
    if hasattr(model, "cluster_centers_") and hasattr(model, "predict"):
        return np.asarray(model.cluster_centers_)[model.predict(problem.grid)]
    labels = np.asarray(model.labels_)[indices][: len(problem.rows)]
    return ((labels[:, None] == labels[None, :]) & (labels >= 0)[:, None]).astype(float)


def averaged(estimator: Any, problem: Problem, design: Design, seeds: int) -> Predictions:
    """Answers of fits with `seeds` seeds and orders of rows. Raises FitFailed with the estimator's own words."""
    said: list[np.ndarray] = []
    nonsense = ""
    for seed in range(seeds):
        try:
            model, indices = fitted(estimator, design, seed)
            one = answers(model, problem, indices)
            said.append(one if seeds == 1 else _by_region(one, problem))
            nonsense = nonsense or _nonsense(model, one)
        except Exception as error:
            at_times = seed > 0 or any(can_be_fitted(estimator, design, other) for other in range(1, min(seeds, 4)))
            raise FitFailed(first_line(error), at_times) from error
    if len({one.shape for one in said}) > 1:
        raise FitFailed("they have different shapes")
    return Predictions(np.stack(said), nonsense)


def can_be_fitted(estimator: Any, design: Design, seed: int) -> bool:
    """Whether the estimator takes the design's rows without raising."""
    try:
        fitted(estimator, design, seed)
    except Exception:
        return False
    return True


def _by_region(said: np.ndarray, problem: Problem) -> np.ndarray:
    """Mean answers in six parts of the grid, cut along the first column: what one seed does to one leaf averages out."""
    if len(said) != len(problem.grid):
        return said
    order = np.argsort(problem.grid[:, 0], kind="stable")
    return np.stack([said[part].mean(axis=0) for part in np.array_split(order, REGIONS)])


def _nonsense(model: Any, said: np.ndarray) -> str:
    """What no model may answer; empty where all is well."""
    if not np.isfinite(said).all():
        return "answers that are no numbers"
    shares = hasattr(model, "predict_proba") and not holds(is_regressor, model) and not holds(is_clusterer, model)
    return "probabilities below 0 or above 1" if shares and (said.min() < -1e-9 or said.max() > 1 + 1e-9) else ""


def first_line(error: BaseException) -> str:
    """An exception's kind and first line, cut to a readable length."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}"[:160] if lines else type(error).__name__


def distance(left: Predictions, right: Predictions) -> float:
    """Root-mean-square difference of the mean answers; infinite where shapes differ or an answer is no number."""
    if left.each.shape[1:] != right.each.shape[1:]:
        return np.inf
    gap = float(np.sqrt(np.mean(left.minus(right).each.mean(axis=0) ** 2)))
    return gap if np.isfinite(gap) else np.inf
