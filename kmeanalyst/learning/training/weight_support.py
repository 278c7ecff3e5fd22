"""What an estimator's fit makes of signed weights: it is fitted, on small tables whose signed measure is known.

A fit obeys signed weights if it depends on the measure Σ w δ alone: rows that cancel change nothing, and a row may be split into
parts of which some are negative.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.training.weights import fit_with_weights, needs_none, parameters_of, why_unweighted

_ROWS, _COLUMNS = 250, 3  # more than an optimiser's batch
_EQUAL = 1e-4  # relative difference of answers: solvers stop early


class WeightSupport(str):
    """ "exact", "nonnegative_only", "silently_wrong" or "none", with the reason.

    exact             the fitted model depends on the signed measure Σ w δ alone.
    nonnegative_only  negative weights are refused with an error.
    silently_wrong    negative weights are accepted and give a model that is not the measure's, or nonsense.
    none              fit takes no weights.

    reason            one sentence: the behaviour that was seen.
    nonnegative_ok    whether weights ≥ 0 are used as rows repeated so many times; False for one that takes none.

    >>> from sklearn.linear_model import Ridge
    >>> found = ka.weight_support(Ridge())
    >>> found == "nonnegative_only", found.nonnegative_ok
    (True, True)
    """

    reason: str
    nonnegative_ok: bool

    def __new__(cls, verdict: str, reason: str, nonnegative_ok: bool) -> WeightSupport:
        support = super().__new__(cls, verdict)
        support.reason, support.nonnegative_ok = reason, nonnegative_ok
        return support

    def __reduce__(self) -> tuple[Any, ...]:  # pickling and copying go through __new__
        return WeightSupport, (str(self), self.reason, self.nonnegative_ok)

    def __repr__(self) -> str:
        correctly = "correctly" if self.nonnegative_ok else "incorrectly"
        return f"<{self!s}: {self.reason} (weights ≥ 0 are used {correctly})>"


def weight_support(estimator: Any) -> WeightSupport:
    """Whether an estimator's fit obeys signed weights: exact, nonnegative_only, silently_wrong or none.

    estimator  a scikit-learn estimator or one with its methods: an instance, or a class that needs no arguments. Copies of it
               are fitted on tables of 250 rows; it is not changed. Parts of a composite one get the weights by routing.
    Returns    WeightSupport, a str with reason and nonnegative_ok.
    Errors     TypeError for what has no fit method; ValueError where it can be fitted to no such table.

    >>> from sklearn.linear_model import LogisticRegression
    >>> ka.weight_support(LogisticRegression()) == "exact"
    True
    """
    instance = estimator() if isinstance(estimator, type) else estimator
    if not hasattr(instance, "fit"):
        raise TypeError(
            f"expected an estimator with a fit method, got {type(estimator).__name__}: only fitting takes weights. "
            "Pass a scikit-learn estimator or pipeline."
        )
    if needs_none(instance):
        return WeightSupport("exact", "it learns nothing from how often rows occur.", True)
    if (why := why_unweighted(instance)).endswith("takes no sample_weight"):
        return WeightSupport("none", f"{why}.", False)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        X, y, plain = _first_that_fits(instance)
        verdict, reason = "exact", "rows that cancel change nothing, nor do rows split into 3 and −2"
        for what, rows, targets, weights in _same_measures(instance, X, y):
            try:
                agrees = _agree(plain, _answers(instance, rows, targets, weights, _elsewhere(X)))
            except Exception as error:  # whatever an estimator raises
                verdict = "nonnegative_only"
                reason = f"negative weights end in an error ({type(error).__name__}: {error!s:.80})"
                continue
            if not agrees:
                verdict, reason = "silently_wrong", f"negative weights are accepted, but {what} change the model"
                break
        if verdict == "exact" and hasattr(instance, "predict_proba"):
            negative = np.where(np.arange(_ROWS) % 7, 1.0, -0.2)
            found = _answers(instance, X, y, negative, _elsewhere(X))
            if not ((found >= -_EQUAL) & (found <= 1 + _EQUAL)).all():
                verdict, reason = "silently_wrong", "negative weights give probabilities below 0 or above 1"
    return WeightSupport(verdict, f"{reason}{'; ' if why else ''}{why}.", not why)


def _first_that_fits(estimator: Any) -> tuple[Array, Array, Array]:
    """The first of some tables that the estimator can be fitted to: rows of small counts and what depends on them; its answers."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (_ROWS, _COLUMNS)).astype(float)
    score = X @ np.arange(1, _COLUMNS + 1) + 4 * rng.standard_normal(_ROWS)
    y = (score > np.median(score)).astype(int) if is_classifier(estimator) else np.exp(score / 10)
    for rows, targets in ((X, y), (X[:, :1], y), (X, np.column_stack([y, y[::-1]]))):
        try:
            return rows, targets, _answers(estimator, rows, targets, np.ones(_ROWS), _elsewhere(rows))
        except Exception as error:
            why = f"{type(error).__name__}: {error!s:.100}"
    raise ValueError(
        f"{type(estimator).__name__} was fitted to none of the test tables ({why}), so its treatment of weights is not known. "
        "Check its parameters."
    )


def _elsewhere(X: Array) -> Array:
    """The rows at which answers are compared: between those of the tables."""
    return np.random.default_rng(1).integers(0, 24, X.shape) / 4


def _same_measures(estimator: Any, X: Array, y: Array) -> Iterator[tuple[str, Array, Array, Array]]:
    """What is done to rows of weight 1 so that their measure stays, and the rows, targets and weights then."""
    ones, half = np.ones(len(X)), np.arange(len(X)) % 2 == 0
    other = 1 - y[:20] if is_classifier(estimator) else y[20:40]
    signs = np.repeat([1.0, -1.0], 20)
    for what, rows, size in (("rows that cancel", X[:20], 2.0), ("far rows that cancel", X[:20] + 7.0, 1.5)):
        yield what, np.vstack([X, rows, rows]), np.concatenate([y, other, other]), np.append(ones, size * signs)
    parts = np.append(np.where(half, 3.0, 1.0), -2.0 * ones[half])
    yield "rows split into 3 and −2", np.vstack([X, X[half]]), np.concatenate([y, y[half]]), parts


def _answers(estimator: Any, X: Array, y: Array, weights: Array, at: Array) -> Array:
    """What a fitted copy says at rows: probabilities, values or coordinates."""
    copy = clone(estimator)
    copy.set_params(**{name: 0 for name in parameters_of(copy) if name == "random_state"})
    fitted = fit_with_weights(copy, X, y, weights)
    for method in ("predict_proba", "decision_function", "predict", "transform", "score_samples"):
        if hasattr(fitted, method):
            found = getattr(fitted, method)(at)
            return np.asarray(found.toarray() if hasattr(found, "toarray") else found, dtype=float)
    raise TypeError("once fitted it says nothing of other rows")


def _agree(first: Array, second: Array) -> bool:
    if first.shape != second.shape or not np.isfinite(second).all():
        return False
    return bool(np.abs(first - second).max() <= _EQUAL * np.abs(first).max())
