"""Which estimators learn from weights, and how these reach the estimators inside one, by scikit-learn's metadata routing.

No estimator gets negative weights: most of scikit-learn's misuse them silently.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import sklearn
from sklearn.base import clone
from sklearn.metrics import get_scorer
from sklearn.model_selection import ParameterSampler
from sklearn.utils.validation import has_fit_parameter

from kmeanalyst.kernels.base import Array

_SETTINGS = 50  # of a search over parameters, that are looked at
_NEED_NONE = {  # transformers that learn nothing, or only which values there are
    "AdditiveChi2Sampler", "Binarizer", "FeatureHasher", "FunctionTransformer", "GaussianRandomProjection", "HashingVectorizer",
    "LabelBinarizer", "MaxAbsScaler", "MinMaxScaler", "Normalizer", "OneHotEncoder", "OrdinalEncoder", "PolynomialCountSketch",
    "PolynomialFeatures", "RBFSampler", "SkewedChi2Sampler", "SparseRandomProjection",
}  # fmt: skip
_COUNT = {"min_frequency": None, "max_categories": None, "gamma": 1.0}  # with other values than these they count rows
_MISUSE = ("IsolationForest", "Perceptron", "RANSACRegressor", "RandomTreesEmbedding", "SGDOneClassSVM")
_BALANCE = ("LogisticRegression", "LinearSVC", "RandomForestClassifier")  # classes by weights, and not by rows


def why_unweighted(estimator: Any) -> str:
    """Why an estimator does not learn from weights ≥ 0 as from rows repeated so many times; empty where it does."""
    taken = False
    for part in _parts(estimator):
        name, takes = type(part).__name__, has_fit_parameter(part, "sample_weight")
        if _misuses(part):
            return f"{name} misuses weights, with these parameters"
        if not (takes or needs_none(part) or _passes_on(part)):
            return f"{name} takes no sample_weight"
        taken |= takes
    return "" if taken else f"{type(estimator).__name__} takes no sample_weight"


def _parts(estimator: Any) -> Iterator[Any]:
    """It, the estimators inside it, and those that a search over parameters tries."""
    for part in (estimator, *inner_estimators(estimator)):
        yield part
        for candidate in _candidates(part):
            yield from (candidate, *inner_estimators(candidate))


def _candidates(search: Any) -> Iterator[Any]:
    settings = getattr(search, "param_grid", None) or getattr(search, "param_distributions", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer settings than these
        tried = list(ParameterSampler(settings, _SETTINGS, random_state=0)) if settings else []
    for each in tried:
        with suppress(ValueError):  # which the search will raise itself
            yield clone(search.estimator).set_params(**{name: clone(value, safe=False) for name, value in each.items()})


def _misuses(part: Any) -> bool:
    name, given = _name(part), parameters_of(part)
    balances = given.get("class_weight") == "balanced" and name not in _BALANCE
    samples = name.startswith("GradientBoosting") and given["subsample"] < 1
    calibrates = name in ("SVC", "NuSVC") and given.get("probability") is True  # by Platt's method, which counts labels
    return name in _MISUSE or balances or samples or calibrates


def needs_none(part: Any) -> bool:
    given = parameters_of(part)
    return _name(part) in _NEED_NONE and all(given.get(name, usual) == usual for name, usual in _COUNT.items())


def _passes_on(part: Any) -> bool:
    """Whether an estimator is made of others, and its fit takes what is meant for them."""
    kinds = (parameter.kind for parameter in inspect.signature(part.fit).parameters.values())
    return bool(inner_estimators(part)) and inspect.Parameter.VAR_KEYWORD in kinds


def _name(part: Any) -> str:
    """The class's name if it is scikit-learn's own."""
    kind = type(part)
    return kind.__name__ if kind.__module__.startswith("sklearn.") else ""


def parameters_of(estimator: Any, deep: bool = False) -> dict[str, Any]:
    return estimator.get_params(deep=deep) if hasattr(estimator, "get_params") else {}


def fit_with_weights(estimator: Any, X: Any, y: Array | None, weights: Array | None) -> Any:
    """The estimator, fitted in place.

    weights  (n,) for the estimator and whatever inside it takes weights; a search over parameters weights its scores too.
             None for an unweighted fit.
    """
    targets = () if y is None else (y,)
    if weights is None:
        return estimator.fit(X, *targets)
    if not _routes(estimator):
        return estimator.fit(X, *targets, sample_weight=weights)
    with sklearn.config_context(enable_metadata_routing=True):
        for each in (estimator, *inner_estimators(estimator)):
            _request_weights(each)
        estimator.fit(X, *targets, sample_weight=weights)
    _forget_requests(estimator, set())
    return estimator


def inner_estimators(estimator: Any) -> list[Any]:
    parts = parameters_of(estimator, deep=True).values()
    return [part for part in parts if hasattr(part, "fit") and not inspect.isclass(part)]


def _routes(estimator: Any) -> bool:
    """Whether weights reach the estimators inside only by routing: some composite estimators pass weights on themselves."""
    if not inner_estimators(estimator):
        return False
    try:
        estimator.get_metadata_routing()
    except NotImplementedError:
        return False
    return True


def _request_weights(estimator: Any) -> None:
    for name in ("fit", "score"):
        request = getattr(estimator, f"set_{name}_request", None)
        if request is not None and "sample_weight" in inspect.signature(getattr(estimator, name)).parameters:
            request(sample_weight=True)
    scoring = getattr(estimator, "scoring", None)
    if scoring is not None and scoring != "loss":  # that of histogram boosting, which is weighted already
        estimator.scoring = _weighted(scoring)


def _weighted(scoring: Any) -> Any:
    if isinstance(scoring, dict):
        return {name: _weighted(one) for name, one in scoring.items()}
    if isinstance(scoring, list | tuple | set):
        return {str(name): _weighted(name) for name in scoring}
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    metric = getattr(scorer, "_score_func", None)
    if metric is None or "sample_weight" not in inspect.signature(metric).parameters:
        return scorer
    return scorer.set_score_request(sample_weight=True)


def _forget_requests(part: Any, seen: set[int]) -> None:
    """Remove the requests from an estimator and its parts: they were for this fit, and no file can hold them."""
    if id(part) in seen or inspect.isclass(part):
        return
    seen.add(id(part))
    if isinstance(part, dict):
        inner = list(part.values())
    elif isinstance(part, list | tuple | set):
        inner = list(part)
    elif hasattr(part, "_metadata_request") or hasattr(part, "get_params"):
        vars(part).pop("_metadata_request", None)
        inner = list(vars(part).values())
    else:
        return
    for one in inner:
        _forget_requests(one, seen)
