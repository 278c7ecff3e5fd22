"""Weights reach the estimators inside an estimator, by scikit-learn's metadata routing."""

from __future__ import annotations

import inspect
from typing import Any

import sklearn
from sklearn.metrics import get_scorer

from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.weights.weight_support import parameters_of


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
