"""Room 4: what a statistic is made from: weighted points, one release's or the product of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from kmeanalyst.inference.delta_method import Terms
from kmeanalyst.inference.error_model import Parts
from kmeanalyst.kernels.base import Array


class Errors(Protocol):
    """What a law's errors are read off: an ErrorModel, or several of independent releases together."""

    @property
    def notes(self) -> tuple[str, ...]: ...

    def parts(self, influence: Array) -> Parts: ...

    def covariance(self, influence: Array) -> Parts: ...


class Law(Protocol):
    """Weighted points, and the rows beside them at which derivatives must be known: what a statistic is made from.

    A Population is the law of a release; a ProductLaw (see `product_law`) that of several independent ones.
    """

    @property
    def view(self) -> str: ...

    @property
    def model(self) -> Errors: ...

    @property
    def weights(self) -> Array: ...

    @property
    def given(self) -> Array | None: ...

    def question(self, column: Any) -> Any:
        """A column's name, or another question, as `values` takes it."""
        ...

    def values(self, question: Any) -> Array:
        """A question at the points, then at the other rows: (n,) float64, finite at the points."""
        ...

    def mean(self, values: Array) -> Array: ...

    def features(self, values: Array, function: Callable[[Array], Array]) -> tuple[Array, Array]:
        """Means (k,) and influences (·, k) of functions of the values: (m,) or (m, d) → (m, k), asked in blocks."""
        ...

    def influence(self, derivative: Array) -> Array:
        """From derivatives (n,) or (n, k) by each row's weight, the influence function as `model` takes it."""
        ...

    def terms(self, influence: Array) -> Terms:
        """The influence on each release, as an Estimate carries it."""
        ...

    def text(self, question: str) -> str: ...

    def infeasible(self, what: str, value: Callable[[Any], float]) -> str: ...

    def bounds(self, column: Any) -> tuple[float, float] | None:
        """What a question's values cannot leave; None where nothing is declared."""
        ...


class GivenOrNot:
    """What laws of weighted rows share: means, and influence functions given a condition or not (see `population`).

    weights    (M,) on the first rows of model.frame; given a condition they sum to one.
    given      (n,) bool over model.frame, whether the condition holds; None without one.
    chance     Σ w · condition under the law's weights; 1 without a condition.
    condition  the condition as text; "" without one.
    """

    model: Any
    weights: Array
    given: Array | None
    chance: float
    condition: str

    def mean(self, values: Array) -> Array:
        """Σ v · values at the points: of (n,) a number, of (n, k) an array (k,)."""
        return self.weights @ values[: len(self.weights)]

    def influence(self, derivative: Array) -> Array:
        """dT/dw at the rows of model.frame from dT/dv there, (n,) or (n, k)."""
        if self.given is None:
            return derivative
        given = self.given if derivative.ndim == 1 else self.given[:, None]
        return np.where(given, derivative - self.mean(derivative), 0.0) / self.chance

    def features(self, values: Array, function: Callable[[Array], Array]) -> tuple[Array, Array]:
        """See `Law.features`."""
        at_rows = function(values)
        return self.mean(at_rows), self.influence(at_rows)

    def terms(self, influence: Array) -> Terms:
        """The one release's, or the sample's."""
        return ((self.model, influence),)

    def text(self, question: str) -> str:
        """The question as text, with the condition."""
        return f"{question} | {self.condition}" if self.condition else question


def infeasible_value(what: str, feasible: Any, value: Callable[[Any], float]) -> str:
    """A note on an infeasible value, with the statistic's value under the feasible law (None: it has none)."""
    beside = "says nothing given the condition" if feasible is None else f"gives {value(feasible):.4g}"
    return f"{what}: signed weights can give one. The probability view {beside}."
