"""Numbers that depend on the weights of rows, each with its derivative by every weight, and the rules of calculus.

A statistic T of weights w moves, to first order, by Σ δw · T′(z); T′ is its influence function (Deville 1999, *Variance
estimation for complex statistics*). A mean Σ w h has the influence h. Arithmetic computes influences too, so a variance, a
correlation or a ratio is written as its formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import on_one_thread

Rule = Callable[..., tuple[Any, ...]]  # values → the value of the result, and its derivative by each of them


def _power(x: Any, power: float) -> tuple[Any, Any]:
    base = np.asarray(x, dtype=float)[()]
    return base**power, power * base ** (power - 1.0) if power else 0.0


RULES: dict[str, Rule] = {
    "+": lambda a, b: (a + b, 1.0, 1.0), "-": lambda a, b: (a - b, 1.0, -1.0), "*": lambda a, b: (a * b, b, a),
    "/": lambda a, b: ((value := np.true_divide(a, b)), np.true_divide(1.0, b), -value / b), "**": _power,
    "negative": lambda x: (-x, -1.0), "sqrt": lambda x: (np.sqrt(x), np.true_divide(0.5, np.sqrt(x))),
    "log": lambda x: (np.log(x), np.true_divide(1.0, x)), "exp": lambda x: (np.exp(x), np.exp(x)),
}  # fmt: skip
_UFUNCS = {np.add: "+", np.subtract: "-", np.multiply: "*", np.true_divide: "/"}


def _in_both_orders(rule: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    return lambda self, other: self._apply(rule, self, other), lambda self, other: self._apply(rule, other, self)


class Differentiable:
    """The operators of a value that carries a first-order error: Statistic and Estimate inherit them."""

    value: Any

    @staticmethod
    def _is_constant(x: Any) -> bool:
        return isinstance(x, int | float | np.integer | np.floating)

    def _derived(self, rule: str, operands: tuple[Any, ...], value: Any, slopes: list[Any]) -> Any:
        """The result of a rule, from its value and its derivative by each operand, constants included."""
        raise NotImplementedError

    def _apply(self, rule: str, *operands: Any) -> Any:
        if not all(isinstance(x, type(self)) or self._is_constant(x) for x in operands):
            return NotImplemented
        with np.errstate(all="ignore"):
            value, *slopes = RULES[rule](*(x.value if isinstance(x, type(self)) else x for x in operands))
        return self._derived(rule, operands, value, slopes)

    __add__, __radd__ = _in_both_orders("+")
    __sub__, __rsub__ = _in_both_orders("-")
    __mul__, __rmul__ = _in_both_orders("*")
    __truediv__, __rtruediv__ = _in_both_orders("/")

    def __pow__(self, power: Any) -> Any:
        return self._apply("**", self, power) if Differentiable._is_constant(power) else NotImplemented

    def __neg__(self) -> Any:
        return self._apply("negative", self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """np.sqrt, np.log and np.exp, and numpy's numbers on the left side of an operator."""
        rule = _UFUNCS.get(ufunc, ufunc.__name__)
        if method != "__call__" or options or rule not in RULES:
            return NotImplemented
        return self._apply(rule, *inputs)


class IntervalRule:
    """An interval that is not value ± z·error."""

    def interval(self, z: float) -> tuple[float, float]:
        raise NotImplementedError

    def robust(self, level: float) -> tuple[float, float] | None:
        """That over all populations which agree with the measurement; None where it follows from the influence function."""
        return None


@dataclass(frozen=True, eq=False)
class OfRatio(IntervalRule):
    """All θ with |numerator − θ·denominator| ≤ z·error (Fieller 1954), of what is not negative those from 0 on.

    value, error  the ratio, and its error to first order.
    sides         errors of the numerator and of the denominator, over the denominator.
    """

    value: float
    error: float
    sides: tuple[float, float]
    positive: bool = False

    def interval(self, z: float) -> tuple[float, float]:
        a, b = z * self.sides[0], z * self.sides[1]
        shared = (a**2 + (self.value * b) ** 2 - (z * self.error) ** 2) / (2 * self.value) if self.value else 0.0
        shared = float(np.clip(shared, -a * b, a * b))  # z² times the covariance of both sides, over the denominator squared
        middle, half = self.value - shared, np.sqrt(max((z * self.error) ** 2 + shared**2 - (a * b) ** 2, 0.0))
        if b < 1:
            return (middle - half) / (1 - b**2), (middle + half) / (1 - b**2)
        far_from_0 = self.positive and self.value > a
        return (self.value**2 - a**2) / (middle + half) if far_from_0 else 0.0 if self.positive else -np.inf, np.inf


@dataclass(frozen=True, eq=False)
class Statistic(Differentiable):
    """A number, or an array of numbers, that depends on the weights of rows.

    value        a float, or (k,).
    influence    its derivative by the weight of each row, (n,) or (n, k); NaN at rows where it is undefined. None where
                 the value or its first order is undefined.
    question     what was asked, as text; "" of an intermediate result.
    notes        what a reader should know of the value.
    interval_by  the interval, if it is not value ± error, or what makes it of both.
    possible     (least, largest) value that a population can give it; None where that is not known.

    Arithmetic with numbers, arrays and other statistics of the same weights gives statistics.

    >>> from kmeanalyst.inference.estimate.statistic import mean_of_rows
    >>> weights, x = np.array([0.5, 0.5]), np.array([1.0, 3.0])
    >>> variance = mean_of_rows(weights, x**2) - mean_of_rows(weights, x) ** 2
    >>> float(variance.value), variance.influence.tolist()
    (1.0, [-3.0, -3.0])
    """

    value: Any
    influence: Array | None
    question: str = ""
    notes: tuple[str, ...] = ()
    interval_by: IntervalRule | Callable[[float, float], IntervalRule] | None = None
    possible: tuple[float, float] | None = None

    @staticmethod
    def _is_constant(x: Any) -> bool:
        return isinstance(x, np.ndarray) or Differentiable._is_constant(x)

    def _derived(self, rule: str, operands: tuple[Any, ...], value: Any, slopes: list[Any]) -> Statistic:
        terms = [(x, slope) for x, slope in zip(operands, slopes, strict=False) if isinstance(x, Statistic)]
        if any(x.influence is None for x, _ in terms):
            return Statistic(value, None)
        with np.errstate(all="ignore"):
            return Statistic(value, reduce(np.add, (_chained(x, slope, np.shape(value)) for x, slope in terms)))

    def __getitem__(self, chosen: Any) -> Statistic:
        return Statistic(self.value[chosen], None if self.influence is None else self.influence[:, chosen])


def _chained(x: Statistic, slope: Any, shape: tuple[int, ...]) -> Array:
    """The influence (n, *shape) that a result of this shape has by way of one operand."""
    assert x.influence is not None
    n, own = len(x.influence), np.shape(x.value)
    influence = x.influence.reshape(n, *[1] * (len(shape) - len(own)), *own)
    return np.broadcast_to(influence * slope, (n, *shape))


@on_one_thread
def mean_of_rows(weights: Array, values: Array) -> Statistic:
    """Σ w · values, of values (n,) or (n, k) the first M of which have the weights (M,)."""
    return Statistic(weights @ values[: len(weights)], np.asarray(values, dtype=float))
