"""What scikit-learn's estimators do with weights, derived for the installed version: do they obey the signed measure Σ w δ?

`python tests/benchmarks/derive_weight_table.py` writes the table of `weight_support` into the package. The slow tests derive every
entry anew. Each estimator is fitted to small data in which the right answer is known without trusting the estimator with weights
at all: integer weights against rows repeated so many times. Then rows are added that leave the measure as it was (a pair of
weights +a and −a in one place, a row of weight m split into m + 2 and −2), or nearly as it was (the −a a thousandth of a standard
deviation away), and the fitted models are compared by their answers on a grid. Differences are counted in units of what the
weights do: the distance between the model of the repeated rows and that of the unweighted ones.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn
import weighted_fits as fits
from sklearn.utils import all_estimators
from weighted_fits import FitFailed, Predictions, Problem

from kmeanalyst.learning.weights.weight_support import (
    EXACT,
    NONE,
    NONNEGATIVE_ONLY,
    OF_THEIR_PARTS,
    SILENTLY_WRONG,
    TABLE_PATH,
    Verdict,
    parameters_of,
    table_key,
)

SEEDS = 10  # fits that are averaged where the answer hangs on the seed or on the order of the rows
TOLERANCE = 0.04  # share of what the weights do that two equal models may differ by: solver tolerance, rounding
LAW_TOLERANCE = 0.15  # the same for averages over seeds: a bootstrap of n rows is not quite one of Σm rows
SIGNED_SEEDS = 3  # fits that are compared one by one under negative weights
MOVES_NOTHING = 1e-6  # share of the answers' own size below which a difference is rounding
CLEAR_NOISE = 0.1  # standard error over the effect up to which ten seeds are enough
UNCLEAR_NOISE = 0.28  # and beyond which the answer is unclear

LOOK_AT_WHICH_ROWS = {"OneHotEncoder", "OrdinalEncoder", "MinMaxScaler", "MaxAbsScaler", "LabelBinarizer"}


# ------------------------------------------------------------------------------------------------ the test


@dataclass(frozen=True)
class Harness:
    """An estimator on a problem, with what its weights do: the yardstick of every comparison."""

    estimator: Any
    problem: Problem
    seeds: int
    repeated: Predictions
    unweighted: Predictions
    weighted: Predictions

    @property
    def effect(self) -> float:
        """How far repeating rows moves the model; where it moves nothing, the answers' own size."""
        moved = fits.distance(self.repeated, self.unweighted)
        return moved if moved > MOVES_NOTHING * self.unweighted.size else self.unweighted.size

    @property
    def noise(self) -> float:
        """Standard error of the difference between repeating and weighting, in units of the effect."""
        return self.repeated.minus(self.weighted).error / self.effect

    @property
    def ignores(self) -> bool:
        """Whether the weighted fit is the unweighted one: rows, orders and seeds are the same."""
        moved = fits.distance(self.repeated, self.unweighted) > MOVES_NOTHING * self.unweighted.size
        return moved and fits.distance(self.weighted, self.unweighted) <= MOVES_NOTHING * self.effect

    def ask(self, name: str) -> Predictions:
        return fits.averaged(self.estimator, self.problem, fits.design(self.problem, name), self.seeds)

    def same_for_each_seed(self, left: Predictions, right: Predictions) -> bool:
        """Whether the models are one with every seed by itself: the seed aside, the measure alone decides."""
        if not np.isfinite(fits.distance(left, right)):
            return False
        return bool(np.sqrt(np.mean(left.minus(right).each ** 2, axis=(1, 2))).max() <= TOLERANCE * self.effect)

    def same(self, left: Predictions, right: Predictions) -> bool:
        """Whether two models are one, up to solver tolerance or, in the mean over seeds, their spread."""
        if not np.isfinite(fits.distance(left, right)):
            return False
        exactly = self.seeds == 1 and "cv" not in parameters_of(self.estimator)
        share = TOLERANCE if exactly else LAW_TOLERANCE
        return fits.distance(left, right) <= share * self.effect + 2.0 * left.minus(right).error


def harness(estimator: Any, problem: Problem) -> Harness:
    """The estimator on the problem: one seed where neither seed nor order matters, else enough to see the effect."""
    tried = fits.averaged(estimator, problem, fits.design(problem, "weighted"), 3)
    if tried.error <= MOVES_NOTHING * tried.size:
        return _harness(estimator, problem, 1)
    trial = _harness(estimator, problem, SEEDS)
    return trial if trial.noise <= CLEAR_NOISE else _harness(estimator, problem, 2 * SEEDS)


def _harness(estimator: Any, problem: Problem, seeds: int) -> Harness:
    designs = (fits.design(problem, name) for name in ("repeated", "unweighted", "weighted"))
    return Harness(estimator, problem, seeds, *[fits.averaged(estimator, problem, one, seeds) for one in designs])


def probe(estimator: Any) -> Verdict:
    """What an estimator does with weights, found by fitting copies of it to small data. Never raises.

    estimator  an instance; it is left as it is. Under two seconds for most, under ten for slow ensembles.
    Returns    Verdict, by the meaning of the four verdicts in `weight_support`.
    """
    try:
        with fits.quietly():
            return _tested(estimator) if may_take_weights(estimator) else _without_weights(estimator)
    except Exception as error:  # an estimator's own code runs here
        return Verdict(NONE, f"it could not be tested ({fits.first_line(error)}).", False)


def may_take_weights(estimator: Any) -> bool:
    """Whether fit has an argument sample_weight, or any keywords."""
    try:
        parameters = inspect.signature(estimator.fit).parameters
    except (AttributeError, TypeError, ValueError):
        return False
    any_keyword = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return "sample_weight" in parameters or any_keyword


def _tested(estimator: Any) -> Verdict:
    model = fits.in_batches(fits.prepared(estimator), 10_000)
    failure = ""
    for problem in (make() for make in fits.problems_for(estimator)):
        try:
            fits.averaged(model, problem, fits.design(problem, "unweighted"), 1)
        except FitFailed as error:
            failure = failure or str(error)
            continue
        try:
            fits.averaged(model, problem, fits.design(problem, "weighted"), 1)
        except FitFailed as error:
            return Verdict(NONE, f"fit takes no sample_weight, not even a positive one ({error}).", False)
        try:
            return _judged(estimator, harness(model, problem))
        except FitFailed as error:
            return Verdict(NONE, f"its fits with several seeds cannot be compared ({error}).", False)
    return Verdict(NONE, f"it could be fitted to none of the test problems ({failure}).", False)


def _judged(estimator: Any, trial: Harness) -> Verdict:
    nonnegative_ok, how = _of_nonnegative(trial)
    verdict, reason = _of_signed(trial)
    if trial.ignores and verdict != NONNEGATIVE_ONLY:
        return Verdict(NONE, "fit has an argument for weights, but the model is the unweighted one.", False)
    if verdict == EXACT and not nonnegative_ok:
        verdict, reason = SILENTLY_WRONG, "negative weights are accepted"
    if verdict == EXACT and _splits_into_folds(estimator):
        verdict, reason = SILENTLY_WRONG, "rows are split into folds, which part rows that cancel each other"
    notes = [how, *_notes(estimator, trial)]
    return Verdict(verdict, "; ".join([reason, *(note for note in notes if note)]) + ".", nonnegative_ok)


def _of_nonnegative(trial: Harness) -> tuple[bool, str]:
    """Whether whole-number weights do what repeating the rows does, and what was seen if not."""
    if trial.ignores:
        return False, "weights ≥ 0 change nothing"
    if trial.noise > UNCLEAR_NOISE:
        return False, "the fits differ more from seed to seed than weights move them, so that nothing can be concluded"
    if not trial.same(trial.repeated, trial.weighted):
        return False, "whole-number weights give another model than rows repeated so many times"
    return True, ""


def _of_signed(trial: Harness) -> tuple[str, str]:
    """The verdict on negative weights and the behaviour it rests on."""
    if trial.seeds > 1:
        trial = _harness(fits.in_batches(trial.estimator, 32), trial.problem, SIGNED_SEEDS)
    questions = [
        ("pairs", "weighted", "pairs of rows that cancel change the model"),
        ("split rows", "weighted", "rows split into w + 2 and −2 change the model"),
        ("near pairs", "weighted", "pairs of rows that all but cancel change the model grossly"),
        ("negative", "negative, split", "rows of a negative measure, split, give another model"),
    ]
    faults: list[str] = []
    errors: list[FitFailed] = []
    for name, other, fault in questions:
        if name == "near pairs" and not trial.problem.continuous:
            continue
        try:
            left, right = trial.ask(name), trial.weighted if other == "weighted" else trial.ask(other)
        except FitFailed as error:
            errors.append(error)
            continue
        nonsense = left.nonsense or right.nonsense
        faults.append(f"give {nonsense}" if nonsense else "" if trial.same_for_each_seed(left, right) else fault)
    if errors and not faults and not any(error.at_times for error in errors) and _refuses_the_least(trial):
        return NONNEGATIVE_ONLY, f"negative weights end in an error ({errors[0]})"
    if errors:
        return SILENTLY_WRONG, f"negative weights end in an error at times ({errors[0]}) and are accepted at others"
    if any(faults):
        return SILENTLY_WRONG, f"negative weights are accepted, but {next(filter(None, faults))}"
    return EXACT, "pairs of rows that cancel change nothing, nor do rows split into w + 2 and −2"


def _refuses_the_least(trial: Harness) -> bool:
    """Whether one row of slightly negative weight is refused too, with any seed: else an error is an accident."""
    design = fits.design(trial.problem, "one negative")
    return not any(fits.can_be_fitted(trial.estimator, design, seed) for seed in range(SIGNED_SEEDS))


def _splits_into_folds(estimator: Any) -> bool:
    return "cv" in (parameters := parameters_of(estimator)) or parameters.get("early_stopping") is True


def _notes(estimator: Any, trial: Harness) -> list[str]:
    """What a caller should know besides."""
    given = parameters_of(estimator)
    notes = {
        "judged by the mean of fits with several seeds": trial.seeds > 1,
        "gamma='scale' looks at the rows without their weights": given.get("gamma") == "scale",
        "min_samples_leaf counts rows whatever they weigh": given.get("min_samples_leaf", 1) != 1,
        "a bootstrap holds as many rows as there are, whatever they weigh, unless max_samples is given":
            given.get("max_samples", 0) is None,
        "class_weight='balanced' is reckoned from rows as this scikit-learn counts them":
            given.get("class_weight") == "balanced",
        "above 10,000 rows it holds out a part of them, unless early_stopping=False":
            given.get("early_stopping") == "auto",
    }  # fmt: skip
    try:
        of_empty = "" if trial.same(trial.ask("empty rows"), trial.weighted) else "rows of weight 0 change the model"
    except FitFailed as error:
        of_empty = f"rows of weight 0 end in an error ({error})"
    return [note for note, holds in notes.items() if holds] + [of_empty]


# ------------------------------------------------------------------------------------------------ without weights


def _without_weights(estimator: Any) -> Verdict:
    """An estimator whose fit takes no weights: exact if it learns nothing from the values of the rows."""
    if hasattr(estimator, "transform") and not hasattr(estimator, "predict") and learns_nothing(estimator):
        return Verdict(EXACT, "fitted to other rows of the same shape, it transforms alike: it learns nothing.", True)
    if type(estimator).__name__ in LOOK_AT_WHICH_ROWS and type(estimator).__module__.startswith("sklearn."):
        counts = {"min_frequency", "max_categories"} & {k for k, v in parameters_of(estimator).items() if v is not None}
        if not counts:
            reason = "fit takes no sample_weight: it looks at which rows there are, not at how often they are."
            return Verdict(NONE, reason, True)
    return Verdict(NONE, "fit takes no sample_weight.", False)


def learns_nothing(estimator: Any) -> bool:
    """Whether a transformer fitted to two tables of one shape transforms alike: for every kind of table it can take."""
    if hasattr(estimator, "get_support"):  # a choice of columns may be the same for other rows by accident
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
        first, second = (fits.seeded(estimator, 0) for _ in range(2))
        first.fit(left, target)
        first_said = fits.as_table(first.transform(left))
    except Exception:
        return None
    try:
        second_said = fits.as_table(second.fit(right, target[::-1]).transform(left))
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


def table_estimators() -> dict[str, Any]:
    """The estimators of the table, by key: each of scikit-learn's that needs no argument, and the named variants.

    Left out are those whose answer is that of their parts.
    """
    found: dict[str, Any] = {}
    with fits.quietly():
        for name, kind in all_estimators():
            if name in OF_THEIR_PARTS:
                continue
            for changes in [{}, *VARIANTS.get(name, [])]:
                try:
                    found[table_key(name, changes)] = kind(**changes)
                except TypeError:  # it needs an argument, or this scikit-learn has no such parameter
                    continue
    return found


def main() -> None:
    """Write the table of the installed scikit-learn to the package: its version, and {key: verdict, reason, …}. Minutes."""
    entries = {key: probe(estimator)._asdict() for key, estimator in table_estimators().items()}
    table = {"scikit-learn": sklearn.__version__, "entries": entries}
    TABLE_PATH.write_text(json.dumps(table, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
