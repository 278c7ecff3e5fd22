"""How an estimator treats weights, negative ones above all: scikit-learn has no tag for it.

`weight_support` answers from a shipped table of scikit-learn's estimators, and composite ones from their parts. The answer
for an estimator that the table does not list, or lists only for another version of scikit-learn, is unknown: it gets no
negative weights.
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeCV
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.svm import LinearSVC
from sklearn.utils.validation import has_fit_parameter

EXACT, NONNEGATIVE_ONLY, SILENTLY_WRONG, NONE = "exact", "nonnegative_only", "silently_wrong", "none"
UNKNOWN = "unknown"
WORST_FIRST = (NONE, SILENTLY_WRONG, UNKNOWN, NONNEGATIVE_ONLY, EXACT)
UNLISTED, PARTS = "not in the table", "its parts"
MOST_CANDIDATES = 50  # candidates of a grid or random search that are judged one by one

HARMLESS = {"verbose", "n_jobs", "random_state", "copy", "copy_X", "cache_size", "warm_start", "hidden_layer_sizes"}
STRENGTHS = {
    *("C", "alpha", "tol", "max_iter", "n_estimators", "learning_rate", "max_depth", "max_leaf_nodes", "n_clusters"),
    *("min_samples_leaf", "min_samples_split", "epsilon", "degree", "coef0", "var_smoothing", "ccp_alpha", "l1_ratio"),
    *("min_impurity_decrease", "eta0", "validation_fraction", "n_iter_no_change", "n_init", "intercept_scaling"),
    *("l2_regularization", "max_bins", "nu", "power", "quantile", "n_bins", "n_knots"),
}  # parameters that, as positive numbers, change an amount only: they do not change what weights mean

COUNTING = {"min_frequency", "max_categories", "gamma"}  # with these, transformers that ignore frequencies use them

SEARCHES = {"GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV"}
FOLDS = SEARCHES | {
    *("CalibratedClassifierCV", "TunedThresholdClassifierCV", "RFECV", "SequentialFeatureSelector"),
    *("StackingClassifier", "StackingRegressor"),
}


TABLE_PATH = Path(__file__).with_name("weight_table.json")

OF_THEIR_PARTS = {
    *("Pipeline", "ColumnTransformer", "FeatureUnion", "GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV"),
    *("HalvingRandomSearchCV", "CalibratedClassifierCV", "StackingClassifier", "StackingRegressor", "ClassifierChain"),
    *("TunedThresholdClassifierCV", "FixedThresholdClassifier", "VotingClassifier", "VotingRegressor"),
    *("RegressorChain", "OneVsRestClassifier", "OneVsOneClassifier", "OutputCodeClassifier", "MultiOutputClassifier"),
    *("MultiOutputRegressor", "RFE", "RFECV", "SelectFromModel", "SequentialFeatureSelector"),
    *("TransformedTargetRegressor", "FrozenEstimator", "SelfTrainingClassifier"),
}  # scikit-learn's estimators made of others, whose answer is that of their parts


class Verdict(NamedTuple):
    """An entry of the table: the verdict, the behaviour seen in one sentence, and whether weights ≥ 0 are used correctly."""

    verdict: str
    reason: str
    nonnegative_ok: bool


class Table(NamedTuple):
    """The version of scikit-learn that was tested, and its estimators' verdicts by `table_key`."""

    version: str
    entries: dict[str, Verdict]


@cache
def read_table() -> Table:
    read = json.loads(TABLE_PATH.read_text(encoding="utf-8"))
    return Table(read["scikit-learn"], {key: Verdict(**entry) for key, entry in read["entries"].items()})


def table_key(name: str, changes: Mapping[str, Any]) -> str:
    """`Ridge` for the defaults, `Ridge(solver='svd')` for others."""
    inside = ", ".join(f"{key}={changes[key]!r}" for key in sorted(changes))
    return f"{name}({inside})" if inside else name


class WeightSupport(str):
    """ "exact", "nonnegative_only", "unknown", "silently_wrong" or "none", with the reason.

    exact             the fitted model depends on the signed measure Σ w δ alone.
    nonnegative_only  correct for weights ≥ 0; negative ones are refused with an error.
    unknown           fit takes weights, and its treatment of negative ones is untested.
    silently_wrong    negative weights are accepted and give a model that is not the measure's, or nonsense.
    none              fit takes no weights, or ignores them.

    reason            one sentence: the behaviour that was seen, or why it is unknown.
    source            "table, scikit-learn <version>", "not in the table" or "its parts".
    nonnegative_ok    whether weights ≥ 0 are used correctly.

    >>> from sklearn.linear_model import Ridge
    >>> found = ka.weight_support(Ridge())
    >>> found == "nonnegative_only", found.nonnegative_ok
    (True, True)
    >>> found.reason
    'negative weights end in an error (ValueError: array must not contain infs or NaNs).'
    """

    reason: str
    source: str
    nonnegative_ok: bool

    def __new__(cls, verdict: str, reason: str, source: str, nonnegative_ok: bool) -> WeightSupport:
        if verdict not in WORST_FIRST:
            raise ValueError(
                f"verdict must be one of {', '.join(WORST_FIRST)}, got {verdict!r}: no other has a meaning."
            )
        support = super().__new__(cls, verdict)
        support.reason, support.source, support.nonnegative_ok = reason, source, nonnegative_ok
        return support

    def __reduce__(self) -> tuple[Any, ...]:  # pickling and copying go through __new__
        return WeightSupport, (str(self), self.reason, self.source, self.nonnegative_ok)

    def __repr__(self) -> str:
        correctly = "correctly" if self.nonnegative_ok else "incorrectly"
        return f"<{self!s}: {self.reason} ({self.source}; weights ≥ 0 are used {correctly})>"


def weight_support(estimator: Any) -> WeightSupport:
    """Whether an estimator's fit obeys signed weights: exact, nonnegative_only, unknown, silently_wrong or none.

    estimator  a scikit-learn estimator or one with its methods: an instance, or a class that needs no arguments.
               It is neither changed nor fitted.
    Returns    WeightSupport, a str with reason, source and nonnegative_ok.

    Composite estimators are judged by their parts, as if every part that takes weights gets them.

    >>> from sklearn.linear_model import LogisticRegression
    >>> weight_support(LogisticRegression()) == "exact"
    True
    """
    instance = _instance(estimator)
    name = _sklearn_name(instance)
    if name in OF_THEIR_PARTS:
        return _of_parts(name, instance)
    if name in OF_PLATT and getattr(instance, "probability", False) not in (False, "deprecated"):
        return WeightSupport(SILENTLY_WRONG, PLATT_REASON, f"scikit-learn {sklearn.__version__}", False)
    changes = _changes(instance) if name else {}
    entry = _entry(name, changes, instance)
    if entry is None:
        return _unlisted(name, changes, instance)
    version = read_table().version
    verdict, reason = entry.verdict, entry.reason
    if verdict == EXACT and version != sklearn.__version__ and takes_weights(instance):
        verdict = UNKNOWN
        reason = f"it was tested with scikit-learn {version}, and {sklearn.__version__} is installed: {reason}"
    return WeightSupport(verdict, reason, f"table, scikit-learn {version}", entry.nonnegative_ok)


def takes_weights(estimator: Any) -> bool:
    """Whether fit has an argument sample_weight, or a part's fit has; `weight_support` says whether it uses it correctly."""
    instance = _instance(estimator)
    name = _sklearn_name(instance)
    if name in OF_THEIR_PARTS:
        return any(takes_weights(part) for _, part in _parts(name, instance))
    return has_fit_parameter(instance, "sample_weight")


def _instance(estimator: Any) -> Any:
    if inspect.isclass(estimator):
        needed = [
            name
            for name, parameter in inspect.signature(estimator).parameters.items()
            if parameter.default is inspect.Parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        if needed:
            raise TypeError(
                f"{estimator.__name__} needs {', '.join(needed)}, and its treatment of weights depends on them, so there is no "
                "answer for the class. Pass an instance."
            )
        estimator = estimator()
    if not hasattr(estimator, "fit"):
        raise TypeError(
            f"expected an estimator with a fit method, got {type(estimator).__name__}: only fitting takes weights. "
            "Pass a scikit-learn estimator or pipeline."
        )
    return estimator


def _sklearn_name(estimator: Any) -> str:
    """The class's name if it is scikit-learn's own; empty for others, including derived classes."""
    kind = type(estimator)
    return kind.__name__ if kind.__module__.startswith("sklearn.") else ""


def fresh(estimator: Any) -> Any:
    return clone(estimator, safe=False)


def parameters_of(estimator: Any, deep: bool = False) -> dict[str, Any]:
    return estimator.get_params(deep=deep) if hasattr(estimator, "get_params") else {}


# ------------------------------------------------------------------------------------------------ the table


def _entry(name: str, changes: dict[str, Any], estimator: Any) -> Verdict | None:
    """The table's entry for an estimator; None if it lists none.

    A transformer that needs no weights (it learns nothing, or only which values occur) has the same entry with other
    parameters, except those that count rows.
    """
    entries = read_table().entries
    default = entries.get(name)
    needs_none = default is not None and default.nonnegative_ok and not has_fit_parameter(estimator, "sample_weight")
    fallback = default if needs_none and not COUNTING & set(changes) else None
    return entries.get(table_key(name, changes), fallback)


def _unlisted(name: str, changes: dict[str, Any], estimator: Any) -> WeightSupport:
    """The answer for an estimator that is not in the table: the worst one of its class with fewer changes."""
    if not has_fit_parameter(estimator, "sample_weight"):
        return WeightSupport(NONE, "fit takes no sample_weight.", UNLISTED, False)
    keys = [name, *(table_key(name, {key: value}) for key, value in changes.items())]
    related = [entry for entry in map(read_table().entries.get, keys) if entry is not None]
    shown = (table_key(name, changes) if name else type(estimator).__name__)[:160]
    verdict = UNKNOWN
    reason = f"{shown} is not in the table of tested estimators, so its treatment of negative weights is unknown."
    for entry in related:
        if WORST_FIRST.index(entry.verdict) < WORST_FIRST.index(verdict):
            verdict, reason = entry.verdict, f"{shown} is not in the table; with fewer changes {entry.reason}"
    return WeightSupport(verdict, reason, UNLISTED, all(entry.nonnegative_ok for entry in related))


def _changes(estimator: Any) -> dict[str, Any]:
    defaults = {key: p.default for key, p in inspect.signature(type(estimator)).parameters.items()}
    given = parameters_of(estimator)
    return {key: value for key, value in given.items() if _matters(key, value, defaults.get(key))}


def _matters(key: str, value: Any, default: Any) -> bool:
    if key in HARMLESS or repr(value) == repr(default):
        return False
    return not (key in STRENGTHS and _positive(value) and (default is None or _positive(default)))


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


# ------------------------------------------------------------------------------------------------ composites


def _of_parts(name: str, estimator: Any) -> WeightSupport:
    """The verdict on an estimator made of others: the worst verdict of its parts.

    Never EXACT if it splits rows into folds: rows that cancel each other in the whole can come into different folds.
    """
    answers = [(label, weight_support(part), takes_weights(part)) for label, part in _parts(name, estimator)]
    if not answers:
        return WeightSupport(EXACT, "it has no part that learns from rows.", PARTS, True)
    some_take = any(taken for _, _, taken in answers)
    judged = [  # a part that uses only which rows occur is wrong for negative weights alone
        (SILENTLY_WRONG if found == NONE and found.nonnegative_ok and some_take else str(found), label, found)
        for label, found, _ in answers
    ]
    verdict, label, found = min(judged, key=lambda one: (WORST_FIRST.index(one[0]), one[2].nonnegative_ok))
    reason = f"{label}: {found.reason}"
    if verdict == EXACT and name in FOLDS:
        verdict, reason = SILENTLY_WRONG, f"{FOLDS_REASON} ({label} by itself is exact)."
    return WeightSupport(verdict, reason, PARTS, all(found.nonnegative_ok for _, found, _ in answers))


OF_PLATT = ("SVC", "NuSVC")
PLATT_REASON = (
    "its probabilities come from Platt's method, which counts labels and ignores weights; CalibratedClassifierCV(SVC(), "
    "ensemble=False) uses them"
)
FOLDS_REASON = (
    "it splits rows into folds, which separate rows that cancel each other and can have a negative total, "
    "and scores are weighted only if the weights are routed to the scorer"
)


def _parts(name: str, estimator: Any) -> list[tuple[str, Any]]:
    parts = [(label, part) for label, part in _named_parts(name, estimator) if hasattr(part, "fit")]
    return [(f"{label} ({type(part).__name__})", part) for label, part in parts]


def _named_parts(name: str, estimator: Any) -> Iterator[tuple[str, Any]]:
    if name == "Pipeline":
        yield from estimator.steps
    elif name == "FeatureUnion":
        yield from estimator.transformer_list
    elif name == "ColumnTransformer":
        yield from ((label, part) for label, part, _ in estimator.transformers)
        yield "remainder", estimator.remainder
    elif name == "TransformedTargetRegressor":
        yield "regressor", LinearRegression() if estimator.regressor is None else estimator.regressor
        yield "transformer", estimator.transformer
    elif name in SEARCHES:
        yield from (("estimator", candidate) for candidate in _candidates(name, estimator))
    elif name.startswith(("Voting", "Stacking")):
        yield from estimator.estimators
        yield "final_estimator", _final(name, estimator)
    elif name != "FrozenEstimator":
        yield "estimator", _single(name, estimator)


def _single(name: str, estimator: Any) -> Any:
    part = getattr(estimator, "estimator", None)
    part = getattr(estimator, "base_estimator", None) if part is None else part  # chains, before scikit-learn 1.7
    return LinearSVC() if part is None and name == "CalibratedClassifierCV" else part


def _final(name: str, estimator: Any) -> Any:
    if name.startswith("Voting") or estimator.final_estimator is not None:
        return getattr(estimator, "final_estimator", None)
    return LogisticRegression() if name == "StackingClassifier" else RidgeCV()


def _candidates(name: str, search: Any) -> list[Any]:
    found = []
    for settings in _settings(name, search):
        copies = {key: fresh(value) for key, value in settings.items()}
        try:
            found.append(fresh(search.estimator).set_params(**copies))
        except ValueError:  # the search will raise it itself
            continue
    return found or [search.estimator]


def _settings(name: str, search: Any) -> list[dict[str, Any]]:
    if name.endswith("GridSearchCV"):
        return list(islice(ParameterGrid(search.param_grid), MOST_CANDIDATES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer settings than requested
        return list(ParameterSampler(search.param_distributions, MOST_CANDIDATES, random_state=0))
