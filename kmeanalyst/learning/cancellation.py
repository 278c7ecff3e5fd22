"""Whether an estimator obeys the signed measure Σ w δ, found by fitting it.

The live test behind `weight_support`. Each estimator is fitted to small data in which the right answer is known
without trusting the estimator with weights at all: integer weights against rows repeated so many times. Then rows
are added that leave the measure as it was (a pair of weights +a and −a at one place, a row of weight m split into
m + 2 and −2), or all but as it was (the −a a thousandth of a standard deviation away), and the fitted models are
compared by their answers on a grid. Differences are counted in units of what the weights do: the distance between
the model of the repeated rows and that of the unweighted ones.

`python -m kmeanalyst.learning.cancellation` derives the shipped table for the installed scikit-learn.
"""

from __future__ import annotations

import copy
import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn
from sklearn.base import clone, is_classifier, is_clusterer, is_outlier_detector, is_regressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import all_estimators
from threadpoolctl import threadpool_limits

TABLE_PATH = Path(__file__).with_name("weight_table.json")
EXACT, NONNEGATIVE_ONLY, SILENTLY_WRONG, NONE = "exact", "nonnegative_only", "silently_wrong", "none"

SEEDS = 10  # fits that are averaged where the answer hangs on the seed or on the order of the rows
TOLERANCE = 0.04  # share of what the weights do that two equal models may differ by: solver tolerance, rounding
LAW_TOLERANCE = 0.15  # the same for averages over seeds: a bootstrap of n rows is not quite one of Σm rows
SIGNED_SEEDS = 3  # fits that are compared one by one under negative weights
NEAR = 1e-3  # how far, in standard deviations, a nearly cancelling row stands from its partner
REGIONS = 6  # parts of the grid over which answers that vary with the seed are averaged
MOVES_NOTHING = 1e-6  # share of the answers' own size below which a difference is rounding
CLEAR_NOISE = 0.1  # standard error over the effect up to which ten seeds are enough
UNCLEAR_NOISE = 0.28  # and from which nothing can be told


OF_THEIR_PARTS = {
    *("Pipeline", "ColumnTransformer", "FeatureUnion", "GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV"),
    *("HalvingRandomSearchCV", "CalibratedClassifierCV", "StackingClassifier", "StackingRegressor", "ClassifierChain"),
    *(
        "TunedThresholdClassifierCV",
        "FixedThresholdClassifier",
        "VotingClassifier",
        "VotingRegressor",
        "RegressorChain",
    ),
    *("OneVsRestClassifier", "OneVsOneClassifier", "OutputCodeClassifier", "MultiOutputClassifier", "RFE", "RFECV"),
    *("MultiOutputRegressor", "TransformedTargetRegressor", "SelectFromModel", "SequentialFeatureSelector"),
    *("FrozenEstimator", "SelfTrainingClassifier"),
}  # scikit-learn's estimators made of others, whose answer is that of their parts


LOOK_AT_WHICH_ROWS = {"OneHotEncoder", "OrdinalEncoder", "MinMaxScaler", "MaxAbsScaler", "LabelBinarizer"}


class Finding(NamedTuple):
    """What a test found: the verdict, the behaviour seen in one sentence, and whether weights ≥ 0 are rightly used."""

    verdict: str
    reason: str
    nonnegative_ok: bool


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


class Answers(NamedTuple):
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

    def minus(self, other: Answers) -> Answers:
        """The differences, seed by seed: what both owe to the seed cancels."""
        return Answers(self.each - other.each, self.nonsense or other.nonsense)


class Unfit(Exception):
    """The estimator raised while it was fitted or asked, always or with some seeds; in its own words' first line."""

    def __init__(self, message: str, at_times: bool = False) -> None:
        super().__init__(message)
        self.at_times = at_times


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
    if _is(is_classifier, estimator):
        return [two_classes, counts, three_classes]
    if _is(is_regressor, estimator):
        return [positive_numbers, one_column, two_targets]
    if _is(is_clusterer, estimator) or _is(is_outlier_detector, estimator):
        return [clusters]
    if not hasattr(estimator, "transform"):
        return [two_classes, positive_numbers, counts, one_column, two_targets]
    return [positive_columns, counts, one_column]


def _is(question: Callable[[Any], bool], estimator: Any) -> bool:
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


def fresh(estimator: Any) -> Any:
    """An unfitted copy."""
    return clone(estimator) if hasattr(estimator, "get_params") else copy.deepcopy(estimator)


def parameters_of(estimator: Any, deep: bool = False) -> dict[str, Any]:
    """Its parameters; none for an estimator that does not tell."""
    return estimator.get_params(deep=deep) if hasattr(estimator, "get_params") else {}


def prepared(estimator: Any) -> Any:
    """A copy to test, in which nothing else is taken for a wrong use of weights.

    Iterative solvers run to tol 1e-9; ensembles and networks are small; trees are shallow, so that weights matter in
    their leaves, and leaves may hold one row; a bootstrap holds Σw rows; a kernel's width is not read off the rows.
    """
    model = fresh(estimator)
    changes = _changes(parameters_of(model))
    if type(model).__name__.startswith("Bagging") and parameters_of(model).get("estimator", 0) is None:
        changes["estimator"] = DecisionTreeClassifier() if _is(is_classifier, model) else DecisionTreeRegressor()
        changes["estimator"].set_params(max_depth=4)
        changes["n_estimators"] = 5
    return model.set_params(**changes) if changes else model


def _changes(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that `prepared` sets, of those that the estimator has."""
    changes: dict[str, Any] = {name: value for name, value in (("verbose", 0), ("n_jobs", None)) if name in parameters}
    for name, usual, instead in (
        ("min_samples_leaf", 20, 1),
        ("gamma", "scale", 0.5),
        ("hidden_layer_sizes", (100,), (10,)),
        ("n_clusters", 8, 3),
        ("n_init", "auto", 10),
        ("Cs", 10, 3),
        ("alphas", 100, 10),
        ("average", False, True),
    ):
        if name in parameters and parameters[name] == usual:
            changes[name] = instead
    if parameters.get("bootstrap") and parameters.get("max_samples", 0) is None:
        changes["max_samples"] = 1.0
    for name, most in (("n_estimators", 10), ("max_depth", 4)):
        given = parameters.get(name)
        if name in parameters and (given is None or (isinstance(given, int) and given > most)):
            changes[name] = most
    return changes | _solver_changes(parameters)


def _solver_changes(parameters: dict[str, Any]) -> dict[str, Any]:
    """tol and max_iter, where they steer a solver; in boosting, networks and stochastic descent they are the model."""
    if {"hidden_layer_sizes", "max_leaf_nodes"} & set(parameters) and isinstance(parameters.get("max_iter"), int):
        return {"max_iter": min(parameters["max_iter"], 40)}
    if {"eta0", "n_iter_no_change"} <= set(parameters):
        return {"tol": None, "max_iter": 500} | ({"alpha": 0.01} if parameters.get("alpha") == 0.0001 else {})
    if {"n_clusters", "cv"} & set(parameters):
        return {}
    changes: dict[str, Any] = {}
    if isinstance(parameters.get("tol"), float):
        changes["tol"] = min(parameters["tol"], 1e-9)
        if parameters.get("max_iter") == -1:  # no limit: a support vector machine may then never end
            return {"tol": min(parameters["tol"], 1e-6), "max_iter": 200_000}
        if isinstance(parameters.get("max_iter"), int) and parameters["max_iter"] > 0:
            changes["max_iter"] = max(parameters["max_iter"], 5000)
    return changes


def in_batches(estimator: Any, rows: int) -> Any:
    """A copy that takes its rows so many at a time, where the estimator can; else the estimator itself."""
    if "batch_size" not in parameters_of(estimator):
        return estimator
    return fresh(estimator).set_params(batch_size=rows)


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


def answers(model: Any, problem: Problem, places: np.ndarray) -> np.ndarray:
    """What the model says on the grid, as numbers that do not hang on how clusters are called; (grid, outputs)."""
    if _is(is_clusterer, model):
        return _clusterer_answers(model, problem, places)
    for name in ("predict_proba", "decision_function"):
        if not _is(is_regressor, model) and hasattr(model, name):
            said = getattr(model, name)(problem.grid)
            return _table(said[0] if isinstance(said, list) else said)
    if _is(is_classifier, model):
        return _table(
            np.asarray(model.predict(problem.grid))[:, None] == np.unique(np.asarray(problem.target))[None, :]
        )
    for name in ("predict", "score_samples", "transform"):
        if hasattr(model, name):
            return _table(getattr(model, name)(problem.grid))
    raise TypeError("the fitted estimator can neither predict, nor score, nor transform")


def _table(said: Any) -> np.ndarray:
    said = said.toarray() if hasattr(said, "toarray") else said
    numbers = np.asarray(said, dtype=float)
    return numbers.reshape(len(numbers), -1)


def _clusterer_answers(model: Any, problem: Problem, places: np.ndarray) -> np.ndarray:
    """The centre each grid point is given to; without centres, which of the problem's rows are together."""
    if hasattr(model, "cluster_centers_") and hasattr(model, "predict"):
        return np.asarray(model.cluster_centers_)[model.predict(problem.grid)]
    labels = np.asarray(model.labels_)[places][: len(problem.rows)]
    return ((labels[:, None] == labels[None, :]) & (labels >= 0)[:, None]).astype(float)


def averaged(estimator: Any, problem: Problem, design: Design, seeds: int) -> Answers:
    """Answers of fits with `seeds` seeds and orders of rows. Raises Unfit with the estimator's own words."""
    said: list[np.ndarray] = []
    nonsense = ""
    for seed in range(seeds):
        try:
            model, places = fitted(estimator, design, seed)
            one = answers(model, problem, places)
            said.append(one if seeds == 1 else _by_region(one, problem))
            nonsense = nonsense or _nonsense(model, one)
        except Exception as error:
            at_times = seed > 0 or any(_can_be_fitted(estimator, design, other) for other in range(1, min(seeds, 4)))
            raise Unfit(first_line(error), at_times) from error
    if len({one.shape for one in said}) > 1:
        raise Unfit("they have different shapes")
    return Answers(np.stack(said), nonsense)


def _can_be_fitted(estimator: Any, design: Design, seed: int) -> bool:
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
    if hasattr(model, "predict_proba") and not _is(is_regressor, model) and not _is(is_clusterer, model):
        low, high = float(said.min()), float(said.max())
        if low < -1e-9 or high > 1 + 1e-9:
            return "probabilities below 0 or above 1"
    return ""


def first_line(error: BaseException) -> str:
    """An exception's kind and first line, cut to a readable length."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}"[:160] if lines else type(error).__name__


def distance(left: Answers, right: Answers) -> float:
    """Root-mean-square difference of the mean answers; infinite where shapes differ or an answer is no number."""
    if left.each.shape[1:] != right.each.shape[1:]:
        return np.inf
    gap = float(np.sqrt(np.mean(left.minus(right).each.mean(axis=0) ** 2)))
    return gap if np.isfinite(gap) else np.inf


# ------------------------------------------------------------------------------------------------ the test


@dataclass(frozen=True)
class Bench:
    """An estimator on a problem, with what its weights do: the yardstick of every comparison."""

    estimator: Any
    problem: Problem
    seeds: int
    repeated: Answers
    unweighted: Answers
    weighted: Answers

    @property
    def effect(self) -> float:
        """How far repeating rows moves the model; where it moves nothing, the answers' own size."""
        moved = distance(self.repeated, self.unweighted)
        return moved if moved > MOVES_NOTHING * self.unweighted.size else self.unweighted.size

    @property
    def noise(self) -> float:
        """Standard error of the difference between repeating and weighting, in units of the effect."""
        return self.repeated.minus(self.weighted).error / self.effect

    @property
    def ignores(self) -> bool:
        """Whether the weighted fit is the unweighted one: rows, orders and seeds are the same."""
        moved = distance(self.repeated, self.unweighted) > MOVES_NOTHING * self.unweighted.size
        return moved and distance(self.weighted, self.unweighted) <= MOVES_NOTHING * self.effect

    def ask(self, design: Callable[[Problem], Design]) -> Answers:
        return averaged(self.estimator, self.problem, design(self.problem), self.seeds)

    def same_for_each_seed(self, left: Answers, right: Answers) -> bool:
        """Whether the models are one with every seed by itself: the seed aside, the measure alone decides."""
        if not np.isfinite(distance(left, right)):
            return False
        gaps = np.sqrt(np.mean(left.minus(right).each ** 2, axis=(1, 2)))
        return bool(gaps.max() <= TOLERANCE * self.effect)

    def same(self, left: Answers, right: Answers) -> bool:
        """Whether two models are one, up to solver tolerance or, in the mean over seeds, their spread."""
        if not np.isfinite(distance(left, right)):
            return False
        exactly = self.seeds == 1 and "cv" not in parameters_of(self.estimator)
        share = TOLERANCE if exactly else LAW_TOLERANCE
        return distance(left, right) <= share * self.effect + 2.0 * left.minus(right).error


def bench(estimator: Any, problem: Problem) -> Bench:
    """The estimator on the problem: one seed where neither seed nor order matters, else enough to see the effect."""
    tried = averaged(estimator, problem, weighted(problem), 3)
    if tried.error <= MOVES_NOTHING * tried.size:
        return _bench(estimator, problem, 1)
    trial = _bench(estimator, problem, SEEDS)
    if trial.noise <= CLEAR_NOISE:
        return trial
    return _bench(estimator, problem, 2 * SEEDS)


def _bench(estimator: Any, problem: Problem, seeds: int) -> Bench:
    asked = [averaged(estimator, problem, design(problem), seeds) for design in (repeated, unweighted, weighted)]
    return Bench(estimator, problem, seeds, *asked)


def live_test(estimator: Any) -> Finding:
    """What an estimator does with weights, found by fitting copies of it to small data. Never raises.

    estimator  an instance; it is left as it is. Under two seconds for most, under ten for slow ensembles.
    Returns    Finding, by the meaning of the four verdicts in `weight_support`.
    """
    try:
        with quietly():
            return _tested(estimator) if may_take_weights(estimator) else _without_weights(estimator)
    except Exception as error:  # an estimator's own code runs here
        return Finding(NONE, f"it could not be tested ({first_line(error)}).", False)


def may_take_weights(estimator: Any) -> bool:
    """Whether fit has an argument sample_weight, or any keywords."""
    try:
        parameters = inspect.signature(estimator.fit).parameters
    except (AttributeError, TypeError, ValueError):
        return False
    any_keyword = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return "sample_weight" in parameters or any_keyword


def _tested(estimator: Any) -> Finding:
    model = in_batches(prepared(estimator), 10_000)
    failure = ""
    for problem in (make() for make in problems_for(estimator)):
        try:
            averaged(model, problem, unweighted(problem), 1)
        except Unfit as error:
            failure = failure or str(error)
            continue
        return _tested_on(problem, estimator, model)
    return Finding(NONE, f"it could be fitted to none of the test problems ({failure}).", False)


def _tested_on(problem: Problem, estimator: Any, model: Any) -> Finding:
    try:
        averaged(model, problem, weighted(problem), 1)
    except Unfit as error:
        return Finding(NONE, f"fit takes no sample_weight, not even a positive one ({error}).", False)
    try:
        return _judged(estimator, bench(model, problem))
    except Unfit as error:
        return Finding(NONE, f"its fits with several seeds cannot be compared ({error}).", False)


def _judged(estimator: Any, trial: Bench) -> Finding:
    nonnegative_ok, how = _of_nonnegative(trial)
    verdict, reason = _of_signed(trial)
    if trial.ignores and verdict != NONNEGATIVE_ONLY:
        return Finding(NONE, "fit has an argument for weights, but the model is the unweighted one.", False)
    if verdict == EXACT and not nonnegative_ok:
        verdict, reason = SILENTLY_WRONG, "negative weights are accepted"
    if verdict == EXACT and _splits_into_folds(estimator):
        verdict, reason = SILENTLY_WRONG, "rows are split into folds, which part rows that cancel each other"
    notes = [how, *_notes(estimator, trial)]
    return Finding(verdict, "; ".join([reason, *(note for note in notes if note)]) + ".", nonnegative_ok)


def _of_nonnegative(trial: Bench) -> tuple[bool, str]:
    """Whether whole-number weights do what repeating the rows does, and what was seen if not."""
    if trial.ignores:
        return False, "weights ≥ 0 change nothing"
    if trial.noise > UNCLEAR_NOISE:
        return False, "the fits differ more from seed to seed than weights move them, so that nothing can be told"
    if not trial.same(trial.repeated, trial.weighted):
        return False, "whole-number weights give another model than rows repeated so many times"
    return True, ""


def _of_signed(trial: Bench) -> tuple[str, str]:
    """The verdict on negative weights and the behaviour it rests on."""
    batches = in_batches(trial.estimator, 32)
    if trial.seeds > 1:
        trial = _bench(batches, trial.problem, SIGNED_SEEDS)
    seen: list[str] = []
    errors: list[Unfit] = []
    for comparison in _comparisons(trial):
        try:
            seen.append(comparison())
        except Unfit as error:
            errors.append(error)
    wrong = next((fault for fault in seen if fault), "")
    if errors and not seen and not any(error.at_times for error in errors) and _refuses_the_least(trial):
        return NONNEGATIVE_ONLY, f"negative weights end in an error ({errors[0]})"
    if errors:
        return SILENTLY_WRONG, f"negative weights end in an error at times ({errors[0]}) and are accepted at others"
    if wrong:
        return SILENTLY_WRONG, f"negative weights are accepted, but {wrong}"
    return EXACT, "pairs of rows that cancel change nothing, nor do rows split into w + 2 and −2"


def _refuses_the_least(trial: Bench) -> bool:
    """Whether one row of slightly negative weight is refused too, with any seed: else an error is an accident."""
    design = with_one_negative(trial.problem)
    return not any(_can_be_fitted(trial.estimator, design, seed) for seed in range(SIGNED_SEEDS))


def _comparisons(trial: Bench) -> list[Callable[[], str]]:
    """Questions on negative weights; each answers what was wrong, or nothing, or raises Unfit."""
    pairs = [
        (with_pairs, "pairs of rows that cancel change the model"),
        (with_split_rows, "rows split into w + 2 and −2 change the model"),
    ]
    if trial.problem.continuous:
        pairs.append((with_near_pairs, "pairs of rows that all but cancel change the model grossly"))

    def of_design(design: Callable[[Problem], Design], fault: str) -> Callable[[], str]:
        return lambda: _fault(trial, trial.ask(design), trial.weighted, fault)

    def of_negative() -> str:
        fault = "rows of a negative measure, split, give another model"
        return _fault(trial, trial.ask(with_few_negative), trial.ask(with_few_negative_split), fault)

    return [*(of_design(design, fault) for design, fault in pairs), of_negative]


def _fault(trial: Bench, left: Answers, right: Answers, fault: str) -> str:
    """What is wrong with two models that should be one; empty if nothing is."""
    if left.nonsense or right.nonsense:
        return f"give {left.nonsense or right.nonsense}"
    return "" if trial.same_for_each_seed(left, right) else fault


def _splits_into_folds(estimator: Any) -> bool:
    parameters = parameters_of(estimator)
    return "cv" in parameters or parameters.get("early_stopping") is True


def _notes(estimator: Any, trial: Bench) -> list[str]:
    """What a caller should know besides."""
    parameters = parameters_of(estimator)
    notes = []
    if trial.seeds > 1:
        notes.append("judged by the mean of fits with several seeds")
    if parameters.get("gamma") == "scale":
        notes.append("gamma='scale' looks at the rows without their weights")
    if parameters.get("min_samples_leaf", 1) != 1:
        notes.append("min_samples_leaf counts rows whatever they weigh")
    if "max_samples" in parameters and parameters["max_samples"] is None:
        notes.append("a bootstrap holds as many rows as there are, whatever they weigh, unless max_samples is given")
    if parameters.get("class_weight") == "balanced":
        notes.append("class_weight='balanced' is reckoned from rows as this scikit-learn counts them")
    if parameters.get("early_stopping") == "auto":
        notes.append("above 10,000 rows it holds out a part of them, unless early_stopping=False")
    return notes + _note_on_empty_rows(trial)


def _note_on_empty_rows(trial: Bench) -> list[str]:
    try:
        return [] if trial.same(trial.ask(with_empty_rows), trial.weighted) else ["rows of weight 0 change the model"]
    except Unfit as error:
        return [f"rows of weight 0 end in an error ({error})"]


# ------------------------------------------------------------------------------------------------ without weights


def _without_weights(estimator: Any) -> Finding:
    """An estimator whose fit takes no weights: exact if it learns nothing from the values of the rows."""
    if hasattr(estimator, "transform") and not hasattr(estimator, "predict") and learns_nothing(estimator):
        return Finding(EXACT, "fitted to other rows of the same shape, it transforms alike: it learns nothing.", True)
    if type(estimator).__name__ in LOOK_AT_WHICH_ROWS and type(estimator).__module__.startswith("sklearn."):
        counts = {"min_frequency", "max_categories"} & {k for k, v in parameters_of(estimator).items() if v is not None}
        if not counts:
            reason = "fit takes no sample_weight: it looks at which rows there are, not at how often they are."
            return Finding(NONE, reason, True)
    return Finding(NONE, "fit takes no sample_weight.", False)


def learns_nothing(estimator: Any) -> bool:
    """Whether a transformer fitted to two tables of one shape transforms alike: for every kind of table it can take."""
    if hasattr(estimator, "get_support"):  # a choice of columns may be the same for other rows by chance
        return False
    known = False
    for left, right in _plain_twins():
        alike = _transforms_alike(estimator, left, right)
        if alike is False:
            return False
        known = known or bool(alike)
    return known or any(_transforms_alike(estimator, left, right) for left, right in _odd_twins())


def _transforms_alike(estimator: Any, left: Any, right: Any) -> bool | None:
    """None where the transformer cannot take the tables."""
    target = np.arange(len(left)) % 2
    try:
        first, second = (seeded(estimator, 0) for _ in range(2))
        first.fit(left, target)
        first_said = _table(first.transform(left))
    except Exception:
        return None
    try:
        second_said = _table(second.fit(right, target[::-1]).transform(left))
    except Exception:
        return False
    return first_said.shape == second_said.shape and np.array_equal(first_said, second_said, equal_nan=True)


def _plain_twins() -> list[tuple[Any, Any]]:
    """Pairs of tables of one shape and other values: numbers, numbers with gaps, whole numbers."""
    rng = np.random.default_rng(6)
    left, right = np.exp(rng.normal(size=(40, 3))), 3.0 + 5.0 * rng.uniform(size=(40, 3))
    right[:, 2] = 1.0
    gaps_left, gaps_right = left.copy(), right.copy()
    gaps_left[::3, 0], gaps_right[::4, 1] = np.nan, np.nan
    return [(left, right), (gaps_left, gaps_right), (rng.integers(0, 4, (40, 3)), rng.integers(2, 9, (40, 3)))]


def _odd_twins() -> list[tuple[Any, Any]]:
    """The same for what takes no plain table: wide tables, texts, records."""
    rng = np.random.default_rng(7)
    wide = (rng.uniform(size=(8, 2000)), rng.uniform(1, 2, (8, 2000)))
    texts = (["some words here", "and more words"] * 4, ["other ones now", "these too then"] * 4)
    records = ([{"a": 1.0, "b": 2.0}] * 8, [{"c": 3.0, "a": 1.5}] * 8)
    return [wide, texts, records]


# ------------------------------------------------------------------------------------------------ the table


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "LogisticRegression": [
        *({"solver": solver} for solver in ("liblinear", "newton-cg", "newton-cholesky", "sag", "saga")),
        {"class_weight": "balanced"},
        {"l1_ratio": 1.0, "solver": "saga"},
    ],
    "Ridge": [{"solver": solver} for solver in ("svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga")],
    "RidgeClassifier": [{"solver": "lsqr"}, {"class_weight": "balanced"}],
    "LinearRegression": [{"positive": True}],
    "SVC": [{"kernel": "linear"}, {"class_weight": "balanced"}],
    "SVR": [{"kernel": "linear"}],
    "LinearSVC": [{"dual": False}, {"class_weight": "balanced"}],
    "GradientBoostingClassifier": [{"subsample": 0.5}],
    "GradientBoostingRegressor": [{"subsample": 0.5}],
    "HistGradientBoostingClassifier": [{"early_stopping": False}],
    "HistGradientBoostingRegressor": [{"early_stopping": False}, {"loss": "poisson"}],
    "RandomForestClassifier": [{"bootstrap": False}, {"class_weight": "balanced"}],
    "RandomForestRegressor": [{"bootstrap": False}],
    "ExtraTreesClassifier": [{"bootstrap": True}],
    "DecisionTreeClassifier": [{"class_weight": "balanced"}],
    "SGDClassifier": [{"loss": "log_loss"}, {"loss": "modified_huber"}],
    "MLPClassifier": [{"solver": "lbfgs"}],
    "MLPRegressor": [{"solver": "lbfgs"}],
    "DummyClassifier": [{"strategy": "most_frequent"}],
    "DummyRegressor": [{"strategy": "median"}],
    "KBinsDiscretizer": [{"strategy": "uniform"}, {"encode": "ordinal"}],
    "SplineTransformer": [{"knots": "quantile"}],
}


def table_key(name: str, changes: Mapping[str, Any]) -> str:
    """`Ridge` for the defaults, `Ridge(solver='svd')` for others."""
    inside = ", ".join(f"{key}={changes[key]!r}" for key in sorted(changes))
    return f"{name}({inside})" if inside else name


def table_estimators() -> dict[str, Any]:
    """The estimators of the table, by key: each of scikit-learn's that needs no argument, and the named variants.

    Left out are those whose answer is that of their parts.
    """
    found: dict[str, Any] = {}
    with quietly():
        for name, kind in all_estimators():
            if name in OF_THEIR_PARTS:
                continue
            for changes in [{}, *VARIANTS.get(name, [])]:
                try:
                    found[table_key(name, changes)] = kind(**changes)
                except TypeError:  # it needs an argument, or this scikit-learn has no such parameter
                    continue
    return found


def table_entry(estimator: Any) -> dict[str, Any]:
    """One row of the table."""
    return live_test(estimator)._asdict()


def derive_table() -> dict[str, Any]:
    """The table for the installed scikit-learn: its version, and {key: verdict, reason, nonnegative_ok}. Minutes."""
    entries = {key: table_entry(estimator) for key, estimator in table_estimators().items()}
    return {"scikit-learn": sklearn.__version__, "entries": dict(sorted(entries.items()))}


def main() -> None:
    """Write the table of the installed scikit-learn to the package."""
    text = json.dumps(derive_table(), indent=1, sort_keys=True, ensure_ascii=False)
    TABLE_PATH.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
